"""Values of a specialisation: what each kind keeps when it gets another name or becomes another
kind."""

from __future__ import annotations

import ast

import pytest

torch = pytest.importorskip("torch")

from regraft.splitting.program.type_patterns import open_dimensions  # noqa: E402
from regraft.splitting.program.value_kinds_and_parts import (  # noqa: E402
    get_alternative,
    is_independent,
    is_truth_of_operand,
    list_parts,
)
from regraft.splitting.program.values import (  # noqa: E402
    NO_TWIN,
    EitherValue,
    HostValue,
    RecordValue,
    StaticValue,
    TensorValue,
    convert_to_host,
    fork,
    make_value,
)


def name(identifier: str) -> ast.Name:
    """Return the expression that reads a variable."""
    return ast.Name(identifier, ast.Load())


def test_a_tensor_or_none_keeps_its_constant_under_another_name() -> None:
    tensor = TensorValue(torch.ones(2, 3), name("x"), torch.ones(4, 3), constant=True)
    value = EitherValue(tensor, None, partial=True).with_name("y")
    assert ast.unparse(value.code) == "y" and value.instead is None and value.partial
    assert open_dimensions(value) == (0,)
    assert is_independent(value) and not is_independent(value.with_constant(False))


def test_the_alternative_of_a_partial_value_is_partial() -> None:
    number = HostValue(3, name("n"), 5, among=(3, 5), truth=True)
    alternative = get_alternative(EitherValue(number, None, partial=True))
    assert isinstance(alternative, HostValue) and alternative.partial
    assert alternative.among == (3, 5) and is_truth_of_operand(alternative)


def test_the_host_keeps_what_is_noted_of_a_value() -> None:
    tensors = TensorValue([torch.ones(1)], name("x"), constant=True, partial=True)
    from_region = convert_to_host(tensors)
    assert from_region.constant and from_region.partial and from_region.twin is NO_TWIN
    from_constant = convert_to_host(StaticValue(True, ast.Constant(True), truth=True))
    assert from_constant.truth and not from_constant.constant and from_constant.among is None


def test_a_value_without_constants_may_be_any_of_its_type() -> None:
    value = HostValue(3, name("n"), constant=True, among=(3,)).drop_constants()
    assert value.among is None and not value.constant and value.example == 3


def test_elements_of_tuples_and_fields_of_records_are_replaced() -> None:
    pair = HostValue((1, 2), ast.Tuple([name("a"), name("b")], ast.Load()))
    assert list(pair.fields) == [0, 1]
    assert ast.unparse(pair.with_fields([name("c"), name("d")]).code) == "(c, d)"
    construction = ast.parse("Point(x=a, y=b)", mode="eval").body
    assert isinstance(construction, ast.Call)
    record = RecordValue((1, 2), construction)
    assert list(record.fields) == ["x", "y"]
    assert ast.unparse(record.with_fields([name("c"), name("d")]).code) == "Point(x=c, y=d)"
    assert not StaticValue((1, 2), ast.parse("(1, 2)", mode="eval").body).fields


def test_regions_compute_tensors_and_the_host_all_other_values() -> None:
    assert isinstance(make_value(torch.ones(1), name("x")), TensorValue)
    assert isinstance(make_value([torch.ones(1)], name("rows")), HostValue)


def test_parts_end_where_the_second_world_has_none() -> None:
    assert list_parts(HostValue([1, 2], name("a"), [3])) == [(1, 3)]
    assert list_parts(HostValue([1, 2], name("a"))) == [(1, NO_TWIN), (2, NO_TWIN)]


def test_a_fork_has_lists_of_its_own() -> None:
    rows: list[int] = [1]
    names = fork({"a": HostValue(rows, name("a")), "b": HostValue(rows, name("b"))})
    assert names["a"].example is names["b"].example is not rows
