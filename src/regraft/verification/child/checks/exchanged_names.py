"""Require that a variable which stands in the place of another one of the other version once has
another value than that one.

`view(b, w, h)` for `view(b, h, w)` shows only where the height and the width differ, and inputs
that were guessed may have but equal ones.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from regraft.execution.compare import identical

DIFFERED = "differed from the other version's `{}`"
Place = tuple[int, int, int]  # the line, the first and the last column of an expression
_PLAIN = (bool, int, float, str, type(None))


def exchanged_names(own: ast.AST, other: ast.AST) -> dict[Place, str]:
    """Return, by their places in one definition, the variables in whose place the other version has
    another one, with the name of that one. Both versions bind both variables, or neither does.

    Statements that changed places, operands that do so in a sum, a product or an equation, keywords
    in another order, and functions that are called are not exchanged.
    """
    bound = bound_names(own) ^ bound_names(other)  # by one version only
    return {
        place_of(part): other_part.id
        for part, other_part in unlike_parts(own, other)
        if isinstance(part, ast.Name) and isinstance(other_part, ast.Name)
        if bound.isdisjoint((part.id, other_part.id))
    }


def place_of(node: ast.expr) -> Place:
    """Return where an expression stands in its file."""
    return node.lineno, node.col_offset, node.end_col_offset or 0


def value_in(frame: FrameType | None, name: str) -> Any:
    """Return the value of a variable in a frame, or else in those around it of the same file.
    Raises LookupError where it has none."""
    filename = frame.f_code.co_filename if frame is not None else ""
    while frame is not None and frame.f_code.co_filename == filename:
        for variables in (frame.f_locals, frame.f_globals):
            if name in variables:
                return variables[name]
        frame = frame.f_back
    raise LookupError(name)


def have_differed(value: Any, other_value: Any) -> bool:
    """Return whether two values differ or cannot be compared: plain values and tensors that can be
    read may be equal, and so may two names of one object."""
    if value is other_value:
        return False
    if isinstance(value, torch.Tensor) and isinstance(other_value, torch.Tensor):
        is_readable = value.device.type == other_value.device.type == "cpu"
        return not (is_readable and identical(value.detach(), other_value.detach()))
    are_plain = isinstance(value, _PLAIN) and isinstance(other_value, _PLAIN)
    return not are_plain or value != other_value


def unlike_parts(own: ast.AST, other: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield the variables that differ at equal places of two trees, and the nodes of different
    types there, as far as the trees have one form."""
    if isinstance(own, ast.Name) and isinstance(other, ast.Name):
        are_read = isinstance(own.ctx, ast.Load) and isinstance(other.ctx, ast.Load)
        yield from ((own, other),) * (are_read and own.id != other.id)
        return
    if type(own) is not type(other):
        yield own, other
        return
    operands = _operands_of(own)
    if operands and operands == _operands_of(other):
        return
    for parts, other_parts in zip(_fields_of(own), _fields_of(other), strict=True):
        own_only, other_only = _without_equal(parts, other_parts)
        if len(own_only) == len(other_only):
            for part, other_part in zip(own_only, other_only, strict=True):
                yield from unlike_parts(part, other_part)


def _without_equal(
    parts: list[ast.AST], other_parts: list[ast.AST]
) -> tuple[list[ast.AST], list[ast.AST]]:
    """Return two lists of nodes; those of statements without statements that both hold."""
    if not any(isinstance(part, ast.stmt) for part in (*parts, *other_parts)):
        return parts, other_parts
    texts, other_texts = list(map(ast.dump, parts)), list(map(ast.dump, other_parts))
    return (
        [part for part, text in zip(parts, texts, strict=True) if text not in other_texts],
        [part for part, text in zip(other_parts, other_texts, strict=True) if text not in texts],
    )


def _fields_of(node: ast.AST) -> Iterator[list[ast.AST]]:
    """Yield the parts of a node by field: keywords by their names, and of a called method its
    object."""
    for name, value in ast.iter_fields(node):
        parts = [part for part in (value if isinstance(value, list) else [value]) if _is_node(part)]
        if isinstance(node, ast.Call) and name == "keywords":
            parts.sort(key=lambda keyword: str(keyword.arg))
        elif isinstance(node, ast.Call) and name == "func":
            parts = [value.value] if isinstance(value, ast.Attribute) else []
        yield parts


def _is_node(value: Any) -> bool:
    """Return whether a value is a node of a syntax tree."""
    return isinstance(value, ast.AST)


def _operands_of(node: ast.AST) -> Counter[str]:
    """Return dumps of the operands of a sum or product, of all nested ones, or of an equation; an
    empty counter for another node."""
    match node:
        case ast.BinOp(op=ast.Add() | ast.Mult()):
            return Counter(map(ast.dump, _nested_operands(node, type(node.op))))
        case ast.Compare(left, [ast.Eq() | ast.NotEq()], [right]):
            return Counter((ast.dump(left), ast.dump(right)))
    return Counter()


def _nested_operands(node: ast.expr, operation: type[ast.operator]) -> Iterator[ast.expr]:
    """Yield the operands of a chain of one operation."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, operation):
        yield from _nested_operands(node.left, operation)
        yield from _nested_operands(node.right, operation)
    else:
        yield node


def bound_names(definition: ast.AST) -> frozenset[str]:
    """Return the names of the parameters and variables that a definition binds."""
    return frozenset(
        part.arg if isinstance(part, ast.arg) else part.id
        for part in ast.walk(definition)
        if isinstance(part, ast.arg)
        or (isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    )
