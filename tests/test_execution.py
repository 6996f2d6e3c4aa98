"""Nested values and comparisons, as verification and splitting share them."""

from __future__ import annotations

import math
from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.execution import compare, nested  # noqa: E402
from regraft.verification.child.checks.replaced_functions import FunctionsSnapshot  # noqa: E402

Pair = namedtuple("Pair", "first second")
SIZE = torch.Size([2])
NESTED: dict[str, Any] = {
    "list": [1, (2, 3)],
    "pair": Pair(4, OrderedDict(a=5)),
    "user": UserDict(b=6),
    "size": SIZE,
}


def is_list(value: Any) -> bool:
    return type(value) is list


def test_leaves_are_replaced_and_containers_keep_their_types() -> None:
    result = nested.map_leaves(NESTED, lambda leaf: leaf if leaf is SIZE else -leaf)
    assert result["list"] == [-1, (-2, -3)]
    assert isinstance(result["pair"], Pair)
    assert isinstance(result["pair"].second, OrderedDict)
    assert result["pair"] == (-4, {"a": -5})
    assert isinstance(result["user"], UserDict)
    assert result["size"] is SIZE


def test_leaves_come_in_order() -> None:
    assert list(nested.iterate_leaves(NESTED)) == [1, 2, 3, 4, 5, 6, SIZE]


def test_the_caller_decides_what_is_looked_into() -> None:
    assert list(nested.iterate_leaves([1, (2,)], is_list)) == [1, (2,)]
    assert nested.map_leaves([1, [(2,)]], repr, is_list) == ["1", ["(2,)"]]


def test_a_flat_value_names_types_and_ends_at_itself() -> None:
    value: dict[str, Any] = {"a": [True]}
    value["self"] = value
    assert nested.flatten(value, "x") == {
        "type of x": "dict",
        "type of x['a']": "list",
        "x['a'][0]": True,
        "type of x['self']": "dict",
    }


def test_plain_values_are_equal_by_type_and_nan() -> None:
    assert compare.are_equal(math.nan, math.nan)
    assert not compare.are_equal(math.nan, math.nan, equal_nan=False)
    assert not compare.are_equal(1, 1.0)


def test_tensors_are_identical_by_format_and_nan() -> None:
    values = torch.tensor([1.0, math.nan])
    assert compare.identical(values, values.clone())
    assert not compare.identical(values, values.double())
    assert not compare.identical(values, values.nan_to_num())
    assert compare.are_alike(values, values.double(), dtype=False)
    assert not compare.are_alike(values, None)


def test_a_mismatch_is_described_up_to_the_tolerances() -> None:
    ones = torch.ones(3)
    assert compare.describe_mismatch(ones, ones + 1e-7) == ""
    assert "not close" in compare.describe_mismatch(ones, ones + 0.1)
    assert compare.describe_mismatch(ones, ones + 0.1, rtol=0.0, atol=0.2) == ""


def test_the_verifier_notices_a_replaced_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = FunctionsSnapshot()
    monkeypatch.setattr(compare, "are_equal", lambda *_: True)
    assert "regraft.execution.compare.are_equal" in functions.replaced_names()
