"""Tuples, lists and shapes: their elements, and the names under which elements are stored."""

from __future__ import annotations

import ast
from typing import Any

import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.record_classes import is_record
from regraft.splitting.program.residual import HostStep, TensorStep
from regraft.splitting.program.residual_expressions import (
    holds_tensor,
    is_named_result,
    is_static_object,
    name,
)
from regraft.splitting.program.statements import Assign, Unpack
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.value_kinds_and_parts import are_static, list_parts
from regraft.splitting.program.values import (
    NO_TWIN,
    HostValue,
    Names,
    RecordValue,
    StaticValue,
    TensorValue,
    Value,
    make_value,
)
from regraft.splitting.specialising.code_running import run_code
from regraft.splitting.specialising.objects_made_in_forward import get_item_keys, is_dict_stand_in
from regraft.splitting.specialising.state import Specialisation


def get_part_name(key: str, place: Any) -> str:
    """Return the name under which an element of the tuple, or a field of the record, that `key`
    holds is stored. place: the position or the field's name."""
    return f"{key}__{place}"


def make_tuple(state: Specialisation, values: list[Value]) -> StaticValue | HostValue:
    """Return a tuple of the values: static if all of them are, else of the host."""
    examples = tuple(value.example for value in values)
    if are_static(values):
        return state.static(examples)
    code = ast.Tuple([value.code for value in values], ast.Load())
    return HostValue(examples, code, tuple(value.second_example for value in values))


def make_list(state: Specialisation, node: ast.AST, values: list[Value]) -> HostValue:
    """Return a list of the values, as a value whose expression is a display; tensors are first
    assigned to names. Raises Unsplittable for modules and other objects as elements."""
    if any(isinstance(value, RecordValue) or is_static_object(value) for value in values):
        raise state.refuse(
            node, "a container of modules or other objects, made in forward, is not supported"
        )
    codes = [state.write_for_host(value) for value in values]
    return HostValue(
        [value.example for value in values],
        ast.List(codes, ast.Load()),
        [value.second_example for value in values],
    )


def list_element_codes(value: Value) -> list[ast.expr] | None:
    """Return the expressions of a tuple's elements; None for a tuple that is not written out and
    has elements without a literal, and for what is no tuple."""
    if not isinstance(value.example, tuple):
        return None
    if isinstance(value.code, ast.Tuple):
        return list(value.code.elts)
    items = (
        [literal(element) for element in value.example]
        if isinstance(value, StaticValue)
        else [None]
    )
    return (
        None
        if any(item is None for item in items)
        else [item for item in items if item is not None]
    )


def get_shape(state: Specialisation, base: Value) -> StaticValue | HostValue:
    """Return a tensor's shape as a tuple: constants, and `x.shape[0]` for a size that differs
    between the worlds."""
    if base.twin is NO_TWIN or base.example.shape == base.second_example.shape:
        return state.static(tuple(base.example.shape))
    shape_code = ast.Attribute(state.bind_result(base), "shape", ast.Load())
    sizes = enumerate(zip(base.example.shape, base.second_example.shape, strict=True))
    elements: list[ast.expr] = [
        (
            ast.Constant(size)
            if size == second_size
            else ast.Subscript(shape_code, ast.Constant(dim), ast.Load())
        )
        for dim, (size, second_size) in sizes
    ]
    code = ast.Tuple(elements, ast.Load())
    return HostValue(tuple(base.example.shape), code, tuple(base.second_example.shape))


def get_element(state: Specialisation, value: Value, place: Any) -> Value:
    """Return an element of a tuple, or a field of a record.

    value: a StaticValue, or a value whose `fields` hold the code of each element. Code that is a
    constant or a name gives the value of that constant or name. place: a position, also of a field,
    or the name of a field. Raises IndexError, KeyError or AttributeError where there is none.
    """
    if isinstance(value, StaticValue):
        return state.static(get_part(value.example, place))
    code = [*value.fields.values()][place] if isinstance(place, int) else value.fields[place]
    known_element = evaluate_atom(state, code)
    if known_element is not None:
        return known_element
    example, twin = get_part(value.example, place), get_part(value.second_example, place)
    if isinstance(example, torch.nn.Module):
        return state.static(example, code)
    twin = NO_TWIN if value.twin is NO_TWIN else twin
    if isinstance(code, ast.Call) and is_record(type(example)):
        return RecordValue(example, code, twin)
    return make_value(example, code, twin)


def get_part(container: Any, place: Any) -> Any:
    """Return the element of a container at an int `place`, or the field of an object with the name
    `place`."""
    return container[place] if isinstance(place, int) else getattr(container, place)


def evaluate_atom(state: Specialisation, code: ast.expr) -> Value | None:
    """Return the value of an expression that is a number or other constant, a name, or an object of
    `state.globals`; None for other expressions."""
    if isinstance(code, ast.Constant):
        return state.static(code.value)
    if isinstance(code, ast.UnaryOp) and isinstance(code.operand, ast.Constant):
        return state.static(ast.literal_eval(code))  # a number below 0
    if isinstance(code, ast.Name) and code.id in state.names:
        return state.names[code.id]
    if isinstance(code, ast.Name) and code.id in state.globals:
        return state.static(state.globals[code.id])
    return None


def list_elements(state: Specialisation, node: ast.AST, values: Value) -> list[Value] | None:
    """Return the elements that a loop over `values` visits, as values of their own; None if their
    number is not known. A tensor is first assigned to a new name by a step, and its rows are taken
    from that."""
    if is_dict_stand_in(state, values.example):
        return [state.static(key) for key in get_item_keys(state, node, values.example)]
    if isinstance(values, StaticValue):
        return [state.static(element) for element in values.example]
    if isinstance(values.code, ast.List):
        values = values.with_code(ast.Tuple(values.code.elts, ast.Load()))
    if values.fields and (isinstance(values, HostValue) or isinstance(values.example, tuple)):
        return [get_element(state, values, place) for place in values.fields]
    if (
        isinstance(values, TensorValue)
        and isinstance(values.example, torch.Tensor)
        and 0 not in open_dimensions(values)
    ):
        return list_rows(state, node, values)
    return None


def list_rows(state: Specialisation, node: ast.AST, tensor: TensorValue) -> list[Value]:
    """Return the rows of a tensor as values of their own. It is assigned to a new name first, since
    the source may assign to its name before a loop over the rows ends."""
    rows = state.fresh_name()
    state.steps.append(TensorStep(Assign(rows, tensor.code), state.location))
    state.bind_name(rows, tensor)
    places = map(ast.Constant, range(len(tensor.example)))
    return [run_code(state, node, ast.Subscript(name(rows), place, ast.Load())) for place in places]


def has_part_names(key: str, value: Value, names: Names) -> bool:
    """Return whether a value is a tuple or a record with at least one element, and `names` has for
    each element the name that `get_part_name` gives it; elements of elements are not looked at."""
    return bool(value.fields) and all(get_part_name(key, place) in names for place in value.fields)


def list_inner_first(names: Names) -> list[str]:
    """Return the names, those of elements before those of the tuples and records that have them, so
    that the expression of a tuple in a tuple is known before that of the outer one."""
    return sorted(names, key=lambda key: -key.count("__"))


def rebuild_value(state: Specialisation, key: str, value: Value) -> HostValue | RecordValue:
    """Return the tuple or record of the name `key` with the present values of its elements'
    names."""
    assert isinstance(value, (HostValue, RecordValue))
    return value.with_fields(
        [state.names[get_part_name(key, place)].code for place in value.fields]
    )


def take_apart(state: Specialisation, value: Value) -> list[Value]:
    """Append a step, of a region or of the host, that unpacks a tuple, list or tensor into new
    names; return the elements under these names."""
    parts = list_parts(value)
    element_names = [state.fresh_name() for _ in parts]
    statement = Unpack(tuple(element_names), value.code)
    is_tensor = isinstance(value, TensorValue)
    state.steps.append(TensorStep(statement, state.location) if is_tensor else HostStep(statement))
    return [
        bind_part(state, element_name, *part, is_tensor)
        for element_name, part in zip(element_names, parts, strict=True)
    ]


def bind_part(state: Specialisation, key: str, example: Any, twin: Any, by_region: bool) -> Value:
    """Let the name `key`, into which a step unpacked an element, hold it, and return its value; an
    element of a region that is None in both worlds, or a literal where no size differs between
    them, is a constant.

    by_region: whether a region unpacked it, not the host.
    """
    is_none = example is None and twin in (None, NO_TWIN)
    if by_region and (is_none or (twin is NO_TWIN and literal(example) is not None)):
        return state.static(example)
    if by_region and type(example) is int:
        state.note_size(key)
    has_tensors = by_region and holds_tensor(example)  # such as the states of an LSTM
    value_class = TensorValue if has_tensors or isinstance(example, torch.Tensor) else HostValue
    return state.bind_name(key, value_class(example, name(key), twin))


def list_region_elements(state: Specialisation, value: TensorValue) -> StaticValue | HostValue:
    """Return the list or tuple that a region computes as one of its elements, each under a new
    name; raise Unsplittable for elements that are no tensors, constants, lists or tuples."""
    parts: list[Value] = []
    for place, (example, second_example) in enumerate(list_parts(value)):
        code = ast.Subscript(value.code, ast.Constant(place), ast.Load())
        part = TensorValue(example, code, NO_TWIN if second_example is NO_TWIN else second_example)
        if type(example) in (list, tuple):
            parts.append(list_region_elements(state, part))
        elif isinstance(example, torch.Tensor):
            parts.append(state.bind_if_tensor(part))
        elif literal(example) is not None and example == part.second_example:
            parts.append(state.static(example))
        else:
            raise state.refuse(
                value.code, f"a {type(example).__name__} in a list that cannot be followed"
            )
    is_list = type(value.example) is list
    return make_list(state, value.code, parts) if is_list else make_tuple(state, parts)


def take_elements(state: Specialisation, node: ast.AST, value: Value) -> list[Value]:
    """Return the elements of a tuple, list or tensor one by one; a region's elements get names.
    Raise Unsplittable for a value whose length is not known."""
    if isinstance(value, TensorValue) and (
        type(value.example) is tuple or is_named_result(value.example)
    ):
        return take_apart(state, value)
    elements = list_elements(state, node, value)
    if elements is None:
        raise state.refuse(
            node, "a tensor whose length the data decide is taken apart: write [row for row in x]"
        )
    return [state.bind_if_tensor(element) for element in elements]


def convert_to_tuple(state: Specialisation, value: RecordValue) -> StaticValue | HostValue:
    """Return a namedtuple as a plain tuple."""
    return make_tuple(state, [get_element(state, value, place) for place in value.fields])
