"""Functions of Python that the host or several operations evaluate: `max`, `zip` and the like."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace

import torch

from regraft.splitting.program.codes import holds_tensor, method_call, name
from regraft.splitting.program.normal import mark_uses
from regraft.splitting.program.possible import TRUTHS, possible_constants
from regraft.splitting.program.values import SAME, Value
from regraft.splitting.specialising.assign import store
from regraft.splitting.specialising.elements import (
    get_element,
    get_shape,
    list_elements,
    make_list,
    make_tuple,
    take_elements,
)
from regraft.splitting.specialising.indexing import MODULE_CONTAINERS
from regraft.splitting.specialising.lists import has_known_length
from regraft.splitting.specialising.running import (
    is_constant_tensor,
    read_in_worlds,
    read_number,
    run_code,
    run_operation,
)
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.variables import index_elements, read_slice_bound

READING_BUILTINS = frozenset({"int", "float", "bool"})


PURE_BUILTINS = frozenset(
    {
        "int",
        "float",
        "bool",
        "len",
        "range",
        "enumerate",
        "zip",
        "min",
        "max",
        "sum",
        "abs",
        "round",
        "list",
        "tuple",
        "dict",
        "reversed",
        "slice",
        "sorted",
        "isinstance",
        "hasattr",
        "getattr",
        "str",
        "any",
        "all",
        "type",
        "divmod",
    }
)


def is_single_value(value: Value) -> bool:
    """Return whether a value is, or may be, a tensor of one element."""
    return (
        value.kind in ("tensor", "either")
        and isinstance(value.example, torch.Tensor)
        and value.example.numel() == 1
    )


def call_builtin(
    state: Specialisation, node: ast.Call, function_name: str, operands: list[Value], code: ast.Call
) -> Value:
    """Evaluate a call of a built-in function of Python; refuse any outside PURE_BUILTINS."""
    if function_name not in PURE_BUILTINS:
        raise state.refuse(node, f"{function_name}() is not supported")
    if function_name == "len" and has_known_length(state, operands[0]):
        return state.static(len(operands[0].example))
    if function_name == "range":
        operands = [read_slice_bound(state, node, operand) for operand in operands]
        code = ast.Call(code.func, [operand.code for operand in operands], [])
    tensors = [operand for operand in operands if operand.kind == "tensor"]
    if function_name == "list" and not operands:
        return make_list(state, node, [])
    if function_name in ("list", "tuple") and operands and (tensors or operands[0].fields):
        elements = take_elements(state, node, operands[0])
        return (
            make_list(state, node, elements)
            if function_name == "list"
            else make_tuple(state, elements)
        )
    if function_name in ("max", "min") and (
        tensors or any(operand.kind == "either" for operand in operands)
    ):
        return select_extreme(state, node, function_name, operands)
    if function_name in ("abs", "round", "pow") and tensors:
        return run_operation(state, node, code, operands)
    if function_name == "reversed" and isinstance(operands[0].example, list):
        return replace(run_code(state, node, code), kind="host")
    if function_name in ("zip", "enumerate") and any(
        operand.kind != "static" for operand in operands
    ):
        value = zip_rows(state, node, function_name, operands)
        if value is not None:
            return value
    if (
        function_name in ("sum", "max", "min")
        and len(operands) == 1
        and holds_tensor(operands[0].example)
    ):
        return reduce_list(state, node, function_name, operands[0], code)
    if not tensors:
        if function_name in ("max", "min", "sum") and has_mixed_types(state, operands):
            raise state.refuse(
                node,
                f"{function_name}() of numbers of several types is not supported: make all float",
            )
        if function_name in ("isinstance", "type") and operands[0].kind == "host":
            return test_type_of_number(state, node, function_name, operands, code)
        value = run_code(state, node, code)
        is_static = all(operand.kind == "static" for operand in operands)
        among = TRUTHS if function_name in ("bool", "any", "all") else None
        return (
            state.static(value.example, code)
            if is_static
            else replace(value, kind="host", among=among)
        )
    if function_name in READING_BUILTINS and len(operands) == 1:
        if is_constant_tensor(state, tensors[0]):
            return state.static(getattr(builtins, function_name)(tensors[0].example))
        number = method_call(state.bind_result(tensors[0]), "item")
        example, second_example = read_in_worlds(
            state, node, tensors[0], getattr(builtins, function_name)
        )
        among = TRUTHS if function_name == "bool" else None
        return Value(
            "host",
            example,
            ast.Call(name(function_name), [number], []),
            second_example,
            among=among,
        )
    if function_name == "len":
        return get_element(state, get_shape(state, tensors[0]), 0)
    if function_name == "enumerate" and len(operands) == 1:
        return replace(run_code(state, node, ast.Call(name("list"), [code], [])), kind="host")
    if function_name in ("isinstance", "hasattr", "type"):
        return state.static(run_code(state, node, code).example)
    raise state.refuse(node, f"{function_name}() of a tensor is not supported")


def has_mixed_types(state: Specialisation, operands: list[Value]) -> bool:
    """Return whether data decide the type of the largest, smallest or sum of these numbers."""
    first = operands[0].example
    is_sequence = len(operands) == 1 and isinstance(first, (list, tuple))
    numbers = [*first] if is_sequence else [operand.example for operand in operands]
    kinds = {type(number) for number in numbers}
    are_static = all(operand.kind == "static" for operand in operands)
    return not are_static and kinds <= {bool, int, float} and len(kinds) > 1


def test_type_of_number(
    state: Specialisation, node: ast.Call, function_name: str, operands: list[Value], code: ast.Call
) -> Value:
    """Evaluate isinstance() or type() of a number of the host: the host tests what the example
    does not say."""
    if operands[0].truth:
        raise state.refuse(
            node,
            "of the value of `and` or `or`, which may be a tensor, only the truth is known",
        )
    kinds = {
        type(constant)
        for constant in possible_constants(operands[0]) or (operands[0].example, 0, 0.0)
    }
    if len(kinds) == 1 or not kinds <= {bool, int, float}:
        return state.static(run_code(state, node, code).example)
    if function_name == "type" or operands[1].kind != "static":
        raise state.refuse(
            node, "the type of a number that data decide is not known here: ask isinstance()"
        )
    class_info = operands[1].example
    wanted_types = class_info if isinstance(class_info, tuple) else (class_info,)
    if not all(wanted_type in (bool, int, float) for wanted_type in wanted_types):
        raise state.refuse(node, "isinstance() of a number takes int, float and bool only")
    kind = ast.Tuple([name(wanted_type.__name__) for wanted_type in wanted_types], ast.Load())
    value = Value(
        "host", None, ast.Call(name("isinstance"), [operands[0].code, kind], []), among=TRUTHS
    )
    examples = [
        isinstance(example, class_info)
        for example in (operands[0].example, operands[0].second_example)
    ]
    return replace(value, example=examples[0], twin=examples[1])


def reduce_list(
    state: Specialisation, node: ast.Call, function_name: str, tensors: Value, code: ast.expr
) -> Value:
    """Evaluate `sum`, `max` or `min` of tensors in a list of the host."""
    function = getattr(builtins, function_name)
    are_single = all(
        isinstance(tensor, torch.Tensor) and tensor.numel() == 1 for tensor in tensors.example
    )
    if tensors.kind != "host" or not (function_name == "sum" or are_single):
        raise state.refuse(node, f"{function_name}() of what this holds is not supported")
    with torch.no_grad():
        example, second_example = function(tensors.example), function(tensors.second_example)
    return state.bind_in_host(
        Value("tensor", example, code, SAME if tensors.twin is SAME else second_example)
    )


def select_extreme(
    state: Specialisation, node: ast.Call, function_name: str, operands: list[Value]
) -> Value:
    """Evaluate `max` or `min` of tensors of one element each: the first of the largest or
    smallest."""
    candidates = operands if len(operands) > 1 else take_elements(state, node, operands[0])
    are_single = all(
        type(candidate.example) in (int, float) or is_single_value(candidate)
        for candidate in candidates
    )
    if (
        are_single
        and not node.keywords
        and len(candidates) > 1
        and any(candidate.kind != "tensor" for candidate in candidates)
    ):
        return decide_extreme(state, node, function_name, candidates)
    if (
        node.keywords
        or not are_single
        or len({(candidate.example.dtype, candidate.example.shape) for candidate in candidates}) > 1
    ):
        raise state.refuse(
            node,
            f"{function_name}() of tensors that are not single values of one type is not supported",
        )
    where_code = state.alias_global("where", torch.where)
    best = candidates[0]
    for candidate in candidates[1:]:
        sign = ast.Gt() if function_name == "max" else ast.Lt()
        codes = [state.bind_result(candidate), state.bind_result(best)]
        selection = ast.Call(where_code, [ast.Compare(codes[0], [sign], [codes[1]]), *codes], [])
        best = run_operation(state, node, selection, [candidate, best])
    return state.merge_aliases(best, candidates)  # one of them itself, which `+=` would change


def decide_extreme(
    state: Specialisation, node: ast.Call, function_name: str, candidates: list[Value]
) -> Value:
    """Evaluate `max` or `min` if some may be numbers of Python: a decision, which gives one or
    the other."""
    names = [state.fresh_name() for _ in candidates]
    for key, candidate in zip(names, candidates, strict=True):
        store(state, ast.Name(key, ast.Store()), candidate)
    best: ast.expr = name(names[0])
    for key in names[1:]:
        test = ast.Compare(name(key), [ast.Gt() if function_name == "max" else ast.Lt()], [best])
        selection = ast.fix_missing_locations(
            ast.copy_location(ast.IfExp(test, name(key), best), node)
        )
        mark_uses(selection)
        selection.either = True  # type: ignore[attr-defined]
        value, larger = state.evaluate(selection), state.fresh_name()
        store(state, ast.Name(larger, ast.Store()), value)
        best = name(larger)
    return value


def zip_rows(
    state: Specialisation, node: ast.Call, function_name: str, operands: list[Value]
) -> Value | None:
    """Return `zip` or `enumerate` of sequences of known length as a tuple of tuples; None for
    other operands."""
    keywords = {
        keyword.arg: operands[place - len(node.keywords)]
        for place, keyword in enumerate(node.keywords)
    }
    strict = keywords.pop("strict", None)
    sequences = operands[: len(operands) - len(node.keywords)]
    if function_name == "enumerate" and len(sequences) > 1:
        return None
    element_lists = [list_elements(state, node, sequence) for sequence in sequences]
    # the host cannot hold modules, so they are taken one by one
    if any(
        sequence.kind == "static" and isinstance(sequence.example, MODULE_CONTAINERS)
        for sequence in sequences
    ):
        pairs = zip(element_lists, sequences, strict=True)
        element_lists = [
            index_elements(state, node, sequence) if elements is None else elements
            for elements, sequence in pairs
        ]
    known_lists = [elements for elements in element_lists if elements is not None]
    if (
        keywords
        or len(known_lists) < len(element_lists)
        or (strict is not None and strict.kind != "static")
    ):
        return None
    if function_name == "enumerate":
        known_lists.insert(0, [state.static(place) for place in range(len(known_lists[0]))])
    if (
        strict is not None
        and strict.example
        and len({len(elements) for elements in known_lists}) > 1
    ):
        raise state.refuse(node, "zip() of different lengths with strict=True fails")
    return make_tuple(
        state, [make_tuple(state, list(row)) for row in zip(*known_lists, strict=False)]
    )


def call_math(
    state: Specialisation, node: ast.Call, function_name: str, code: ast.Call, operands: list[Value]
) -> Value:
    """Let the host call a function of `math`."""
    are_tensors = (
        isinstance(operand.example, torch.Tensor) and operand.example.numel() == 1
        for operand in operands
    )
    numbers = [
        read_number(state, operand) if is_tensor else operand
        for operand, is_tensor in zip(operands, are_tensors, strict=True)
    ]
    if not all(isinstance(number.example, (int, float)) for number in numbers):
        raise state.refuse(node, f"math.{function_name} of anything but numbers is not supported")
    codes = [number.code for number in numbers]
    count = len(code.args)
    keywords = [
        ast.keyword(keyword.arg, keyword_code)
        for keyword, keyword_code in zip(code.keywords, codes[count:], strict=True)
    ]
    value = run_code(state, node, ast.Call(code.func, codes[:count], keywords))
    if not isinstance(value.example, (int, float)):
        raise state.refuse(node, f"math.{function_name}, which gives no number, is not supported")
    if "math" in state.variables:
        raise state.refuse(
            node, f"math.{function_name} beside a variable of the name math is not supported"
        )
    function = ast.Attribute(name("math"), function_name, ast.Load())
    code = ast.Call(function, codes[:count], keywords)
    return state.bind_in_host(replace(value, kind="host", code=code, among=None))
