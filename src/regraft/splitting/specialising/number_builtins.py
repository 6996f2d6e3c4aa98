"""Calls of built-in functions on numbers and sequences of the host."""

from __future__ import annotations

import ast
from dataclasses import replace

import torch

from regraft.splitting.program.possible_constants import TRUTHS, possible_constants
from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.value_kinds_and_parts import is_truth_of_operand
from regraft.splitting.program.values import HostValue, StaticValue, Value, convert_to_host
from regraft.splitting.specialising.code_running import read_number, run_code
from regraft.splitting.specialising.constant_tables import MODULE_CONTAINERS
from regraft.splitting.specialising.elements import list_elements, make_tuple
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import index_elements


def test_type_of_number(
    state: Specialisation, node: ast.Call, function_name: str, operands: list[Value], code: ast.Call
) -> Value:
    """Return the value of isinstance() or type() of a number of the host: a constant where the
    types that the number may have decide, else a truth value that the host finds by isinstance().

    Raises Unsplittable for type() where several types are possible, isinstance() of other classes
    than int, float and bool, and the value of `and` or `or`.
    """
    if is_truth_of_operand(operands[0]):
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
    if function_name == "type" or not isinstance(operands[1], StaticValue):
        raise state.refuse(
            node, "the type of a number that data decide is not known here: ask isinstance()"
        )
    class_info = operands[1].example
    answers = {isinstance(kind(), class_info) for kind in kinds}
    if len(answers) == 1:
        return state.static(answers.pop())
    wanted_types = class_info if isinstance(class_info, tuple) else (class_info,)
    if not all(wanted_type in (bool, int, float) for wanted_type in wanted_types):
        raise state.refuse(node, "isinstance() of a number takes int, float and bool only")
    kind = ast.Tuple([name(wanted_type.__name__) for wanted_type in wanted_types], ast.Load())
    value = HostValue(
        None, ast.Call(name("isinstance"), [operands[0].code, kind], []), among=TRUTHS
    )
    examples = [
        isinstance(example, class_info)
        for example in (operands[0].example, operands[0].second_example)
    ]
    return replace(value, example=examples[0], twin=examples[1])


def zip_rows(
    state: Specialisation, node: ast.Call, function_name: str, operands: list[Value]
) -> Value | None:
    """Return the value of `zip` or `enumerate` of sequences of known length, as a tuple of tuples.

    Returns None where a length is not known, where `enumerate` has a second argument, for a keyword
    other than `strict`, and for a `strict` known only at run time. Raises Unsplittable for
    different lengths with `strict=True`.
    """
    keyword_operands = operands[len(operands) - len(node.keywords) :]
    keywords = {
        keyword.arg: operand
        for keyword, operand in zip(node.keywords, keyword_operands, strict=True)
    }
    strict = keywords.pop("strict", None)
    sequences = operands[: len(operands) - len(node.keywords)]
    if function_name == "enumerate" and len(sequences) > 1:
        return None
    known_lists = list_each_sequence(state, node, sequences)
    is_strict_known = strict is None or isinstance(strict, StaticValue)
    if keywords or known_lists is None or not is_strict_known:
        return None
    if function_name == "enumerate":
        known_lists.insert(0, [state.static(place) for place in range(len(known_lists[0]))])
    lengths = {len(elements) for elements in known_lists}
    if strict is not None and strict.example and len(lengths) > 1:
        raise state.refuse(node, "zip() of different lengths with strict=True fails")
    rows = zip(*known_lists, strict=False)
    return make_tuple(state, [make_tuple(state, list(row)) for row in rows])


def list_each_sequence(
    state: Specialisation, node: ast.Call, sequences: list[Value]
) -> list[list[Value]] | None:
    """Return the elements of each sequence, one by one; None if the length of any sequence is not
    known."""
    element_lists = [list_elements(state, node, sequence) for sequence in sequences]
    # the host cannot hold modules, so they are taken one by one
    if any(
        isinstance(sequence, StaticValue) and isinstance(sequence.example, MODULE_CONTAINERS)
        for sequence in sequences
    ):
        element_lists = [
            index_elements(state, node, sequence) if elements is None else elements
            for elements, sequence in zip(element_lists, sequences, strict=True)
        ]
    known_lists = [elements for elements in element_lists if elements is not None]
    return known_lists if len(known_lists) == len(element_lists) else None


def call_math(
    state: Specialisation, node: ast.Call, function_name: str, code: ast.Call, operands: list[Value]
) -> Value:
    """Return the number that a function of `math` gives, also for constants, under a new name, to
    which a step of the host assigns it. The host reads tensors of one value.

    Raises Unsplittable for operands and results that are no numbers, and a variable of the network
    with the name `math`, which would hide the module in the host.
    """
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
        reason = f"math.{function_name} beside a variable of the name math is not supported"
        raise state.refuse(node, reason)
    function = ast.Attribute(name("math"), function_name, ast.Load())
    code = ast.Call(function, codes[:count], keywords)
    return state.bind_in_host(replace(convert_to_host(value), code=code, among=None))
