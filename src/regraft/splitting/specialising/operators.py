"""Operators, slices and displays of tuples, lists and dictionaries."""

from __future__ import annotations

import ast
import copy
import operator
from dataclasses import replace

import torch

from regraft.splitting.program.codes import is_literal, method_call, name
from regraft.splitting.program.normal import mark_uses
from regraft.splitting.program.possible import TRUTHS, outcomes, possible_constants
from regraft.splitting.program.values import SAME, Value, literal
from regraft.splitting.specialising.branches import evaluate_truth
from regraft.splitting.specialising.dictionaries import list_items
from regraft.splitting.specialising.displays import write_new_dictionary
from regraft.splitting.specialising.either import require_tensors, test_for_none
from regraft.splitting.specialising.elements import list_element_codes, make_tuple
from regraft.splitting.specialising.fields import operate_on_records
from regraft.splitting.specialising.places import set_place
from regraft.splitting.specialising.running import run_code, run_operation
from regraft.splitting.specialising.stand_ins import (
    get_places,
    holds_stand_in,
    is_dict_stand_in,
    is_stand_in,
    make_object,
    test_stand_in,
)
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.variables import bind_number, read_slice_bound

MASK_OPERATORS = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}


MAX_LIST_LENGTH = 4096  # most elements of a list that are written down


def is_flat_list(code: ast.expr) -> bool:
    """Return whether `code` is a list display of constants and names only."""
    return isinstance(code, ast.List) and all(
        isinstance(element, (ast.Constant, ast.Name)) for element in code.elts
    )


def evaluate_operator(state: Specialisation, node: ast.expr) -> Value:
    """Evaluate an operator, slice or display; its kind is the strongest kind of its
    operands."""
    residual = copy.copy(node)
    is_sequence = isinstance(node, (ast.List, ast.Tuple))
    if isinstance(node, ast.Dict):
        return make_dictionary(state, node)
    if is_sequence and any(isinstance(element, ast.Starred) for element in node.elts):  # type: ignore[attr-defined]
        return evaluate_starred(state, node)  # type: ignore[arg-type]
    operand_nodes = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    operands = [state.evaluate(operand_node) for operand_node in operand_nodes]
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) and any(
        operand.kind == "either" for operand in operands
    ):
        none_check = test_for_none(state, node, operands)
        if none_check is not None:
            return none_check
        operands = require_tensors(state, node, operands)
    if any(operand.kind == "record" for operand in operands) and not isinstance(node, ast.Tuple):
        return operate_on_records(state, node, operands)
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.Not)
        and operands[0].kind == "tensor"
    ):
        operands = [evaluate_truth(state, operands[0])]
    if isinstance(node, ast.Slice):
        operands = [
            read_slice_bound(state, operand_node, operand)
            for operand_node, operand in zip(operand_nodes, operands, strict=True)
        ]
    if isinstance(node, ast.Slice) or (
        not is_sequence and any(operand.kind == "tensor" for operand in operands)
    ):
        operands = [bind_number(state, operand) for operand in operands]
    if isinstance(node, ast.List):
        operands = [
            write_new_dictionary(state, operand_node, operand)
            for operand_node, operand in zip(operand_nodes, operands, strict=True)
        ]
    operand_codes = [
        state.bind_result(operand) if is_sequence and operand.kind == "tensor" else operand.code
        for operand in operands
    ]
    codes = {
        id(operand_node): code
        for operand_node, code in zip(operand_nodes, operand_codes, strict=True)
    }
    for field, child in ast.iter_fields(node):
        if isinstance(child, ast.expr):
            setattr(residual, field, codes[id(child)])
        elif isinstance(child, list):
            setattr(residual, field, [codes.get(id(child), child) for child in child])
    if isinstance(node, ast.Tuple) and any(
        holds_stand_in(state, operand.example) for operand in operands
    ):
        return make_tuple(state, operands)
    if is_sequence and (
        not isinstance(node, ast.Tuple) or any(operand.kind != "static" for operand in operands)
    ):
        if any(
            operand.kind == "static" and not is_literal(operand) for operand in operands
        ) and not isinstance(node, ast.Tuple):
            raise state.refuse(
                node,
                "a container of modules or other objects, made in forward, is not supported",
            )
        container_type = tuple if isinstance(node, ast.Tuple) else list
        worlds_agree = isinstance(node, ast.Tuple) and all(
            operand.twin is SAME for operand in operands
        )
        twin = (
            SAME if worlds_agree else container_type(operand.second_example for operand in operands)
        )
        return Value(
            "host", container_type(operand.example for operand in operands), residual, twin
        )
    if isinstance(node, ast.Compare) and any(
        isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops
    ):
        if all(operand.kind == "static" for operand in operands):
            return state.static(
                (operands[0].example is operands[1].example) == isinstance(node.ops[0], ast.Is)
            )
        numbers = [
            operand
            for operand in operands
            if operand.kind == "host" and isinstance(operand.example, (int, float))
        ]
        if numbers and not any(operand.example is None for operand in operands):
            return replace(run_code(state, node, residual), kind="host")  # `flag is True`
        if not any(
            value.kind == "static"
            and not isinstance(value.example, torch.Tensor)
            and (value.example is None or literal(value.example) is None)
            for value in operands
        ):
            raise state.refuse(
                node,
                "whether two values known only at run time are one object is not supported",
            )
        return state.static(run_code(state, node, residual).example)
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.Not)
        and is_stand_in(state, operands[0].example)
    ):
        return state.static(not test_stand_in(state, node, operands[0].example))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        key, container = operands
        if is_dict_stand_in(state, container.example) and key.kind == "static":
            is_contained = ("item", key.example) in get_places(state, node, container.example)
            return state.static(is_contained == isinstance(node.ops[0], ast.In))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        tuples = [list_element_codes(state, operand) for operand in operands]
        if (
            tuples[0] is not None
            and tuples[1] is not None
            and any(operand.kind == "host" for operand in operands)
        ):
            residual = ast.Tuple([*tuples[0], *tuples[1]], ast.Load())
            return replace(run_code(state, node, residual), kind="host")
        lists = [operand.code for operand in operands if isinstance(operand.code, ast.List)]
        if len(lists) == 2:
            residual = ast.List([*lists[0].elts, *lists[1].elts], ast.Load())
        if all(isinstance(operand.example, list) for operand in operands) and any(
            operand.kind == "host" for operand in operands
        ):
            return replace(run_code(state, node, residual), kind="host")
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and is_flat_list(operands[0].code)
    ):
        repeats = operands[1].example
        if operands[1].kind == "static" and type(repeats) is int and repeats <= MAX_LIST_LENGTH:
            residual = ast.List(operands[0].code.elts * repeats, ast.Load())  # type: ignore[attr-defined]
            return replace(run_code(state, node, residual), kind="host")
    if isinstance(node, ast.Slice):
        kind = "host" if any(operand.kind == "host" for operand in operands) else "static"
        return Value(kind, None, residual)
    if isinstance(node, ast.BinOp) and type(node.op) in MASK_OPERATORS:
        table = combine_mask(state, node, operands)
        if table is not None:
            return table
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and operands[1].kind == "host":
        is_integral = all(isinstance(operand.example, int) for operand in operands)
        if is_integral and min(possible_constants(operands[1]) or (-1,)) < 0:
            raise state.refuse(
                node,
                "a power of whole numbers is none if the exponent is negative: use a float",
            )
    among = outcomes(node, operand_nodes, operands)
    if among is None and (
        isinstance(node, ast.Compare) or isinstance(getattr(node, "op", None), ast.Not)
    ):
        among = TRUTHS  # for what the host computes; a tensor has no `among`
    if among is not None and len(among) == 1:
        return state.static(among[0])
    return replace(run_operation(state, node, residual, operands), among=among)


def evaluate_starred(state: Specialisation, node: ast.List | ast.Tuple) -> Value:
    """Evaluate a display with `*` as a sum: `[*rows, x]` is `[*rows] + [x]`.

    An operand of known length is taken element by element.
    """
    display_type = type(node)
    parts: list[ast.expr] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            parts.append(
                ast.Call(name("list" if display_type is ast.List else "tuple"), [element.value], [])
            )
        elif parts and isinstance(parts[-1], display_type):
            parts[-1].elts.append(element)
        else:
            parts.append(display_type([element], ast.Load()))
    total = parts[0]
    for part in parts[1:]:
        total = ast.BinOp(total, ast.Add(), part)
    mark_uses(total)
    return state.evaluate(ast.fix_missing_locations(ast.copy_location(total, node)))


def combine_mask(state: Specialisation, node: ast.BinOp, operands: list[Value]) -> Value | None:
    """Combine a mask with one constant, such as `mask + False`, by its truth table; None for
    other operands.

    The exporter to ONNX fails on the constant.
    """
    masks = [
        operand
        for operand in operands
        if operand.kind == "tensor" and getattr(operand.example, "dtype", 0) == torch.bool
    ]
    if len(masks) != 1 or not any(
        operand.kind == "static" and type(operand.example) is bool for operand in operands
    ):
        return None
    truths = torch.tensor([False, True])
    table = MASK_OPERATORS[type(node.op)](
        *(truths if operand is masks[0] else operand.example for operand in operands)
    )
    if table.dtype != torch.bool:
        return None
    mask = state.bind_result(masks[0])
    inverted = ast.UnaryOp(ast.Invert(), mask)
    codes: dict[tuple[bool, ...], ast.expr] = {
        (False, True): method_call(mask, "clone"),
        (True, False): inverted,
        (True, True): ast.BinOp(mask, ast.BitOr(), inverted),
        (False, False): ast.BinOp(mask, ast.BitAnd(), inverted),
    }
    return run_code(state, node, codes[tuple(table.tolist())])


def make_dictionary(state: Specialisation, node: ast.Dict) -> Value:
    """Return a dictionary: an object that forward makes if all keys are known, else one that
    the host makes."""
    keys = [
        state.static(None) if key_node is None else state.evaluate(key_node)
        for key_node in node.keys
    ]
    values = [state.evaluate(value_node) for value_node in node.values]
    if any(key.kind != "static" for key in keys):
        codes = [
            state.bind_result(value) if value.kind == "tensor" else value.code for value in values
        ]
        return replace(
            run_code(state, node, ast.Dict([key.code for key in keys], codes)), kind="host"
        )
    dictionary = make_object(state, dict)
    for key_node, key, value in zip(node.keys, keys, values, strict=True):
        items = {key.example: value} if key_node is not None else list_items(state, node, value)
        for item_key, item_value in items.items():
            set_place(state, node, dictionary.example, ("item", item_key), item_value)
    return dictionary
