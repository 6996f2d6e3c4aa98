"""Indices of modules, objects, lists of the host and tensors."""

from __future__ import annotations

import ast

import torch

from regraft.splitting.program.example_with_larger_sizes import lengthen
from regraft.splitting.program.record_classes import is_namedtuple
from regraft.splitting.program.residual_expressions import (
    is_integer_scalar,
    literal_range,
    method_call,
    name,
)
from regraft.splitting.program.values import (
    NO_TWIN,
    HostValue,
    RecordValue,
    StaticValue,
    TensorValue,
    Value,
    convert_to_host,
)
from regraft.splitting.specialising.code_running import run_code, run_operation
from regraft.splitting.specialising.constant_tables import (
    MODULE_CONTAINERS,
    choose_element,
    write_table,
)
from regraft.splitting.specialising.either_values import require_tensor
from regraft.splitting.specialising.elements import convert_to_tuple, get_element, make_tuple
from regraft.splitting.specialising.list_lengths_and_aliases import (
    has_definite_length,
    is_ragged,
    note_ragged,
)
from regraft.splitting.specialising.object_methods import call_object_method
from regraft.splitting.specialising.objects_made_in_forward import (
    find_special_method,
    holds_stand_in,
    is_stand_in,
)
from regraft.splitting.specialising.slice_widths import fix_length
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import (
    bind_fresh,
    bind_number,
    index_container,
    take_missing_element,
)


def evaluate_subscript(state: Specialisation, node: ast.Subscript) -> Value:
    """Return the element or part that an index gives of a tensor, a container, an object or a list
    of modules.

    Raises Choice where the host chooses a module or a constant object; raises Unsplittable for
    indices that cannot be followed.
    """
    base = require_tensor(state, node, state.evaluate(node.value), "TypeError")
    if isinstance(base, RecordValue) and is_namedtuple(type(base.example)):
        base = convert_to_tuple(state, base)
    chosen = state.chosen_indices.get(id(node.slice))
    index = chosen or bind_number(state, state.evaluate(node.slice))
    if is_stand_in(state, base.example):
        method = find_special_method(state, node, base.example, "__getitem__")
        return call_object_method(state, node, method, [index], {})
    if is_constant_position(index) and holds_stand_in(state, base.example):
        place = range(len(base.example))[index.example]
        return get_typed_element(state, node, base, place)
    if isinstance(base, StaticValue) and not isinstance(index, StaticValue):
        base = write_table(base)
        choose_element(state, node, base, index)
    check_element_types(state, node, base, index)
    if isinstance(base, StaticValue) and isinstance(base.example, MODULE_CONTAINERS):
        return state.static(run_code(state, node, write_subscript(base, index)).example)
    if isinstance(base, RecordValue):
        return index_record(state, node, base, index)
    if isinstance(base, HostValue):
        return index_host_value(state, node, base, index)
    if isinstance(base.example, torch.Tensor):
        index = convert_lists(state, node, index)
        base, index = select_by_index(base, index)
    element = run_operation(state, node, write_subscript(base, index), [base, index])
    return note_other_lengths(state, base, index, element)


def note_other_lengths(state: Specialisation, base: Value, index: Value, element: Value) -> Value:
    """Return the element that an index gives. A list, tuple or string that an index known only at
    run time gives gets a name where another element of the container has another length; such a
    list is noted as of unknown length."""
    is_container = isinstance(base.example, (list, tuple, dict))
    if not is_container or not isinstance(index, HostValue) or not isinstance(element, HostValue):
        return element
    container = base.example
    elements = list(container.values() if isinstance(container, dict) else container)
    note_ragged(state, element.example, elements)
    is_sequence = isinstance(element.example, (str, tuple)) and len({*map(len, elements)}) > 1
    has_other_length = is_sequence or is_ragged(state, element.example)
    return state.bind_in_host(element) if has_other_length else element


def is_constant_position(index: Value) -> bool:
    """Return whether an index is a whole number that is known."""
    return isinstance(index, StaticValue) and type(index.example) is int


def write_subscript(base: Value, index: Value) -> ast.expr:
    """Return the residual expression of `base[index]`."""
    return ast.Subscript(base.code, index.code, ast.Load())


def get_typed_element(state: Specialisation, node: ast.Subscript, base: Value, place: int) -> Value:
    """Return the element of a tuple at `place`; raise Unsplittable if its type differs between the
    paths here."""
    return state.require_single_type(node, ast.unparse(node), get_element(state, base, place))


def check_element_types(
    state: Specialisation, node: ast.Subscript, base: Value, index: Value
) -> None:
    """Raise Unsplittable for an index known only at run time into a list, tuple or dictionary whose
    elements in the example have several types."""
    is_container = isinstance(base.example, (list, tuple, dict))
    if not is_container or isinstance(index, StaticValue) or index.example is None:
        return
    elements = base.example.values() if isinstance(base.example, dict) else base.example
    if len({*map(type, elements)}) > 1:
        raise state.refuse(
            node,
            "an element of a list whose elements have different types is not supported",
        )


def index_record(
    state: Specialisation, node: ast.Subscript, base: RecordValue, index: Value
) -> Value:
    """Return the field that a known index of a record gives, such as of an output of transformers,
    which is a tuple, too; raise Unsplittable for other indices."""
    if isinstance(index, StaticValue):
        element = run_code(state, node, write_subscript(base, index)).example
        for place in base.fields if element is not None else ():
            if getattr(base.example, place) is element:
                return get_element(state, base, place)
    raise state.refuse(node, f"an index of a {type(base.example).__name__} is not supported here")


def index_host_value(
    state: Specialisation, node: ast.Subscript, base: HostValue, index: Value
) -> Value:
    """Return the element or slice that an index of a container of the host gives; an element is
    assigned to a new name if it is a tensor. Raises Unsplittable for a tensor as the index."""
    if isinstance(index, TensorValue):
        raise state.refuse(node, "a container is indexed by a tensor")
    if isinstance(base.code, ast.Tuple) and isinstance(index, StaticValue):
        if isinstance(index.example, int):
            return get_typed_element(state, node, base, index.example)
        if isinstance(index.code, ast.Slice):
            return slice_tuple(state, node, base, index)
    code = write_subscript(base, index)
    if is_beyond_example(state, base, index):
        return take_missing_element(state, code, base, base.example[-1])
    element = note_other_lengths(state, base, index, index_container(state, node, code))
    return fix_length(state, index, element)


def slice_tuple(state: Specialisation, node: ast.Subscript, base: HostValue, index: Value) -> Value:
    """Return a slice with known bounds of a tuple that is written out, as a tuple of its elements'
    expressions."""
    assert isinstance(base.code, ast.Tuple)
    positions = ast.Subscript(literal_range(base), index.code, ast.Load())
    places = run_code(state, node, positions).example
    code = ast.Tuple([base.code.elts[place] for place in places], ast.Load())
    return convert_to_host(run_code(state, node, code))


def is_beyond_example(state: Specialisation, base: Value, index: Value) -> bool:
    """Return whether an index, of a list whose length is not known, is a position that the list
    lacks in the example; False for an empty list."""
    length = len(base.example)
    has_open_length = type(index.example) is int and id(base.example) in state.ragged
    return has_open_length and length > 0 and not -length <= index.example < length


def convert_lists(state: Specialisation, node: ast.AST, index: Value) -> Value:
    """Return an index of a tensor in which lists that the host computes, also in a tuple, became
    tensors; lists of constants and of tensors that are written out stay."""
    if isinstance(index, HostValue) and type(index.example) is list:
        stays = isinstance(index.code, ast.List) and not has_host_number(index)
        return index if stays else convert_list(state, node, index)
    if index.fields and any(type(element) is list for element in index.example):
        return make_tuple(
            state,
            [
                convert_lists(state, node, get_element(state, index, place))
                for place in index.fields
            ],
        )
    return index


def has_host_number(index: HostValue) -> bool:
    """Return whether a list of numbers that is written out has one that is no constant: a region
    gets it as a tensor, and of a list that has tensors in it torch makes a tuple."""
    are_numbers = all(type(element) in (int, bool) for element in index.example)
    nodes = ast.walk(index.code)
    return are_numbers and any(isinstance(part, (ast.Name, ast.Call)) for part in nodes)


def convert_list(state: Specialisation, node: ast.AST, numbers: Value) -> Value:
    """Append a host step that converts a list of numbers to an array under a new name; return it as
    a tensor of one dimension, of open size if the list's length is not known. Raises Unsplittable
    for numbers of several types."""
    if not isinstance(numbers.code, ast.Name):
        numbers = bind_fresh(state, numbers)
    kinds = {type(number) for number in numbers.example}
    if numbers.example and not kinds <= {int} and not kinds <= {bool} and not kinds <= {float}:
        reason = "a list of anything but numbers of one type, as a tensor, is not supported"
        raise state.refuse(node, reason)
    tensor = torch.tensor(numbers.example, dtype=None if kinds else torch.int64)
    has_length = has_definite_length(state, numbers)
    state.values_decide_sizes = state.values_decide_sizes or not has_length
    dtype_name = ast.Constant(str(tensor.dtype).partition(".")[2])
    function = ast.Attribute(name("numpy"), "asarray", ast.Load())
    code = ast.Call(function, [numbers.code, dtype_name], [])
    twin = NO_TWIN if has_length else lengthen(tensor, [0])
    return state.bind_in_host(TensorValue(tensor, code, twin))


def select_by_index(base: Value, index: Value) -> tuple[Value, Value]:
    """Replace integer tensors without dimensions in an index, whose values torch would read, by
    `index_select`, which reads none; return the base and the index.

    Both stay as they are without such a tensor, and where the index has None or an Ellipsis in it.
    """
    is_single = not isinstance(index.code, ast.Tuple)
    index_codes = [index.code] if is_single else list(index.code.elts)  # type: ignore[attr-defined]
    examples = [index.example] if is_single or index.example is None else list(index.example)
    if len(index_codes) != len(examples) or not any(map(is_integer_scalar, examples)):
        return base, index
    adds_dimension = [
        example is None and not isinstance(index_code, ast.Slice)
        for example, index_code in zip(examples, index_codes, strict=True)
    ]
    if any(adds_dimension) or any(example is Ellipsis for example in examples):
        return base, index
    code = base.code
    for dim, example in enumerate(examples):
        if is_integer_scalar(example):
            position = method_call(index_codes[dim], "reshape", ast.Constant(1))
            code = method_call(code, "index_select", ast.Constant(dim), position)
            index_codes[dim] = ast.Constant(0)
    remaining_index = index_codes[0] if is_single else ast.Tuple(index_codes, ast.Load())
    return base.with_code(code), index.with_code(remaining_index)
