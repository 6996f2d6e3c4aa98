"""Edits of expressions that change what changed lines compute."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from regraft.verification.definition_changes import Change
from regraft.verification.top_level_definitions import Definition

_NO_OPERAND = ast.Starred | ast.Constant  # arguments that are no operand of a call
_PASSING = frozenset(
    {
        "contiguous",
        "clone",
        "detach",
        "reshape",
        "view",
        "isinstance",
        "len",
        "tuple",
        "list",
        "range",
    }
)
_LARGEST_INDEX = 2  # up to here, a number is often a position in something short
_SYMMETRIC = frozenset(
    {"add", "mul", "max", "min", "maximum", "minimum", "isinstance", "print", "cat", "stack"}
)
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

# A description, and the function that makes the edit on a copy of the expression.
Edit = tuple[str, Callable[[Any], ast.expr]]


def edits_in_changed_lines(root: Definition, change: Change) -> list[tuple[int, int, Edit]]:
    """Return the edits of changed lines, sorted: line, position of the node in the walk over the
    definition, and edit."""
    unedited_ids = _descendant_ids(
        part for node in ast.walk(root) for part in _unedited_parts(node)
    )
    body_ids = _descendant_ids(
        statement
        for node in ast.walk(root)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )
    editable_ids = body_ids - unedited_ids
    sites = []
    for number, node in enumerate(ast.walk(root)):
        if not isinstance(node, ast.expr) or id(node) not in editable_ids:
            continue
        if any(start <= node.lineno <= end for start, end in change.statements):
            sites += [(node.lineno, number, edit) for edit in _edits(node)]
    return sorted(sites, key=lambda site: site[:2])


def _descendant_ids(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the identities of nodes and of all nodes in them."""
    return {id(descendant) for node in nodes for descendant in ast.walk(node)}


def _unedited_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node, or those of its parts, that compute no result: errors, messages, annotations,
    defaults, decorators; and tests of loops."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
            yield node
        case ast.While(test=test):
            yield test
        case ast.If(body=[ast.Raise()]):
            yield node
        case ast.AnnAssign(annotation=annotation):
            yield annotation
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            yield node.args
            yield from getattr(node, "decorator_list", [])
            if getattr(node, "returns", None) is not None:
                yield node.returns  # type: ignore[misc, union-attr]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logger" | "logging" | "warnings"))):
            yield node


def _edits(node: ast.expr) -> Iterator[Edit]:
    """Yield the edits of one expression, each with its description and the function that makes it
    on a copy: another operator, number, flag or side, an operand or a sign less, and those of a
    call. Nothing for other expressions."""
    match node:
        case ast.BinOp(first, op, second) if type(op) in _OPERATORS:
            if not (_is_text(first) or _is_text(second)):
                yield "another operator", _set_fields(op=_OPERATORS[type(op)]())
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd()):
            yield "without its right operand", lambda copied: copied.left
            yield "without its left operand", lambda copied: copied.right
        case ast.Constant(value=bool()):
            yield "another flag", _set_fields(value=not node.value)
        case ast.Constant(value=int(value)):
            yield "a larger number", _set_fields(value=value + 1)
            if value > _LARGEST_INDEX:
                yield "a smaller number", _set_fields(value=value - 1)
        case ast.Constant(value=float(value)) if math.isfinite(value):
            yield "a larger number", _set_fields(value=value * 2 if value else 1.0)
            if value:
                yield "a smaller number", _set_fields(value=value / 2)
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            yield "the opposite", _set_fields(ops=[_COMPARISONS[type(op)]()])
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand) if not isinstance(
            operand, ast.Constant
        ):
            yield "without its sign", lambda copied: copied.operand
        case ast.IfExp():
            yield (
                "the other side",
                lambda copied: ast.IfExp(copied.test, copied.orelse, copied.body),
            )
        case ast.Call():
            yield from _edits_of_call(node)


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression is a constant text."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _edits_of_call(node: ast.Call) -> Iterator[Edit]:
    """Yield the edits of a call: its operand in its place, its first two arguments swapped, and
    without each keyword; edits that would rarely matter (`reshape`, `max`) are left out."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in _PASSING and not name[:1].isupper():
        yield from _edits_to_operand(node)
    are_plain = not any(isinstance(argument, _NO_OPERAND) for argument in node.args)
    if name not in _SYMMETRIC and are_plain and len(node.args) >= 2:
        yield "arguments swapped", _swap_arguments
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield f"without {keyword.arg}", functools.partial(_without_keyword, index=index)


def _edits_to_operand(node: ast.Call) -> Iterator[Edit]:
    """Yield the edit that puts the operand of a call in its place: the first argument, or the
    object of a method without arguments; nothing where there is no such operand."""
    if node.args and not isinstance(node.args[0], _NO_OPERAND):
        yield "without the call", lambda copied: copied.args[0]
        return
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    has_receiver = receiver is not None and not isinstance(receiver, ast.Name | ast.Call)
    if has_receiver and not node.args:
        yield "without the call", lambda copied: copied.func.value


def _swap_arguments(call: ast.Call) -> ast.Call:
    """Swap the first two arguments of a call in place and return it."""
    call.args[:2] = call.args[1::-1]
    return call


def _without_keyword(call: ast.Call, index: int) -> ast.Call:
    """Delete the keyword at a position of a call in place and return the call."""
    del call.keywords[index]
    return call


def _set_fields(**fields: Any) -> Callable[[Any], ast.expr]:
    """Return a function that sets fields of a node in place and returns it."""

    def edit(node: Any) -> ast.expr:
        """Set the fields of a node in place and return it."""
        for name, value in fields.items():
            setattr(node, name, value)
        return node  # type: ignore[no-any-return]

    return edit
