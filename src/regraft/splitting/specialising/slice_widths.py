"""Slices of a known width, such as `x[t : t + 1]` or `tokens[-1:]`: they have as many elements as
the width says unless they lie at an end, and the host may check that they do."""

from __future__ import annotations

import ast
from dataclasses import replace

from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.value_kinds_and_parts import lists_in
from regraft.splitting.program.values import NO_TWIN, HostValue, StaticValue, TensorValue, Value
from regraft.splitting.specialising.guarded_sizes import append_check, guard_sizes, is_tensor
from regraft.splitting.specialising.list_lengths_and_aliases import is_ragged
from regraft.splitting.specialising.state import Specialisation


def find_width(state: Specialisation, node: ast.Slice, lower: Value | None) -> int | None:
    """Return how many elements a slice of the source has where it lies at no end: 2 of `[i:i + 2]`,
    `[i - 2:i]`, `[-2:]`; None where that is not known. lower: the value of its lower bound."""
    if node.step is not None:
        return None
    if isinstance(lower, StaticValue) and type(lower.example) is int and node.upper is None:
        return -lower.example if lower.example < 0 else None
    for bound, other, operator in (
        (node.upper, node.lower, ast.Add),
        (node.lower, node.upper, ast.Sub),
    ):
        if (
            isinstance(bound, ast.BinOp)
            and isinstance(bound.op, operator)
            and isinstance(bound.right, (ast.Constant, ast.Name, ast.Attribute))
            and other is not None
            and ast.dump(bound.left) == ast.dump(other)
        ):
            width = state.evaluate(bound.right)
            is_known = isinstance(width, StaticValue) and type(width.example) is int
            return width.example if is_known and width.example > 0 else None
    return None


def get_width(code: ast.expr) -> int | None:
    """Return the width of a slice in residual code that `find_width` found; None for any other
    index."""
    width: int | None = getattr(code, "width", None)
    return width


def fix_widths(
    state: Specialisation, node: ast.AST, value: TensorValue, opened: TensorValue
) -> TensorValue | None:
    """Return the value, after a step in which the host checks the sizes that numbers of the host
    opened, where these are the widths of slices; None where others are, or none.

    opened: the value with these sizes open. Such values are counted; they stay open unless
    `state.clamps.fixes_widths`.
    """
    code = value.code
    if opened is value or not is_tensor(value) or not isinstance(code, ast.Subscript):
        return None
    items = code.slice.elts if isinstance(code.slice, ast.Tuple) else [code.slice]
    if not all(isinstance(item, ast.Slice) for item in items):
        return None
    dims = sorted({*open_dimensions(opened)} - {*open_dimensions(value)})
    if not dims or any(
        dim >= len(items) or get_width(items[dim]) != value.example.shape[dim] for dim in dims
    ):
        return None
    state.clamps.widths += 1
    return guard_sizes(state, node, value, [dims]) if state.clamps.fixes_widths else None


def fix_length(state: Specialisation, index: Value, part: Value) -> Value:
    """Return a slice of a list; where its length is not known and its width is, under a name, after
    a step in which the host checks that it has this length.

    Such slices are counted; they stay as they are unless `state.clamps.fixes_widths`.
    """
    width = get_width(index.code)
    if width is None or not isinstance(part, HostValue) or type(part.example) is not list:
        return part
    if not is_ragged(state, part.example):
        return part
    has_width = len(part.example) == len(part.second_example) == width
    if not has_width or len([*lists_in(part.example)]) > 1:
        return part
    state.clamps.widths += 1
    if not state.clamps.fixes_widths:
        return part
    twin = NO_TWIN if part.twin is NO_TWIN else list(part.twin)
    fixed = state.bind_in_host(replace(part, example=list(part.example), twin=twin))
    length = ast.Call(name("len"), [fixed.code], [])
    test = ast.Compare(length, [ast.Eq()], [ast.Constant(width)])
    append_check(state, test, f"this part of a list has {width} elements in all examples")
    return fixed
