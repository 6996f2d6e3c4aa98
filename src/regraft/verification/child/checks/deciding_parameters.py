"""Find by data flow in the source which parameters of a function decide what some of its lines
compute."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set

Function = ast.FunctionDef | ast.AsyncFunctionDef
Lines = Sequence[tuple[int, int]]
# Code that runs when it is called or asked for the next value.
_LATER = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.GeneratorExp,
)


def deciding_parameters(function: Function, lines: Lines) -> tuple[str, ...]:
    """Return the names of the parameters that default to None and decide what the lines, pairs of a
    first and a last line, compute, directly or through variables.

    A variable depends on a parameter where it is assigned from it, or in a branch or loop that the
    parameter decides, before the lines or in a loop around them.
    """
    optional = [name for name, default in _parameter_defaults(function) if _is_none(default)]
    return tuple(name for name in optional if _is_read_in_lines(name, function, lines))


def _parameter_defaults(function: Function) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield pairs of a parameter's name and its default: of parameters with a default, and of
    keyword-only parameters without, whose default is yielded as None."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    for argument, default in zip(positional[first_default:], arguments.defaults, strict=True):
        yield argument.arg, default
    for keyword, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield keyword.arg, keyword_default


def _is_none(default: ast.expr | None) -> bool:
    """Return whether a default is the constant None."""
    return isinstance(default, ast.Constant) and default.value is None


def _is_read_in_lines(name: str, function: Function, lines: Lines) -> bool:
    """Return whether the lines read the parameter, or a variable that may depend on it there."""
    everywhere = dependent_variables(name, function)
    return _is_read_in_block(function.body, {name}, everywhere, lines, is_decided=False)


def _is_read_in_block(
    block: Sequence[ast.stmt],
    dependent: set[str],
    everywhere: frozenset[str],
    lines: Lines,
    *,
    is_decided: bool,
) -> bool:
    """Return whether the lines read one of the `dependent` variables in some statements, in which
    further variables become dependent in their order, and are added to the set.

    The body of a loop may run again after its end. Functions inside, and generators, may run at any
    time, so they read one of the variables that depend on the parameter `everywhere`. The
    statements are decided where a branch around them reads a dependent variable.
    """
    for statement in block:
        runs_again = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
        blocks = [] if runs_again else _nested_statements(statement)
        decides_blocks = is_decided
        if runs_again:
            _add_until_unchanged([statement], dependent, is_decided=is_decided)
        else:
            decides_blocks = _add_own_variables(statement, blocks, dependent, is_decided=is_decided)
        parts = _own_parts(statement, blocks)
        later = [part for node in parts if isinstance(node, _LATER) for part in ast.walk(node)]
        is_read = _are_read(parts, dependent, lines) or _are_read(later, everywhere, lines)
        if is_read or _is_read_in_block(
            blocks,
            set(everywhere) if isinstance(statement, _LATER) else dependent,
            everywhere,
            lines,
            is_decided=decides_blocks,
        ):
            return True
    return False


def _are_read(nodes: Iterable[ast.AST], names: Set[str], lines: Lines) -> bool:
    """Return whether one of some nodes reads one of some names in the lines."""
    return any(
        start <= node.lineno <= end
        for node in nodes
        if isinstance(node, ast.Name) and node.id in names and not _is_stored(node)
        for start, end in lines
    )


def dependent_variables(name: str, function: Function) -> frozenset[str]:
    """Return the variables of a function that depend on a parameter, the parameter included."""
    dependent = {name}
    _add_until_unchanged(function.body, dependent, is_decided=False)
    return frozenset(dependent)


def _add_until_unchanged(
    statements: Sequence[ast.stmt], dependent: set[str], *, is_decided: bool
) -> None:
    """Add to `dependent` the variables that statements make dependent on it in any order."""
    count_before = -1
    while count_before < len(dependent):
        count_before = len(dependent)
        for statement in statements:
            _add_dependent_variables(statement, dependent, is_decided=is_decided)


def _add_dependent_variables(node: ast.stmt, dependent: set[str], *, is_decided: bool) -> None:
    """Add to `dependent` the variables that a statement, or a statement in its blocks, assigns or
    changes in place if it reads a dependent variable or `is_decided` by such a variable.

    A statement is decided where a branch or loop around it reads a dependent variable.
    """
    blocks = _nested_statements(node)
    decides_blocks = _add_own_variables(node, blocks, dependent, is_decided=is_decided)
    for statement in blocks:
        _add_dependent_variables(statement, dependent, is_decided=decides_blocks)


def _add_own_variables(
    node: ast.stmt, blocks: list[ast.stmt], dependent: set[str], *, is_decided: bool
) -> bool:
    """Add to `dependent` the variables that a statement makes dependent outside of its blocks
    (`_add_dependent_variables`), and return whether these are decided."""
    own_parts = _own_parts(node, blocks)
    names = [part for part in own_parts if isinstance(part, ast.Name)]
    reads_dependent = any(name.id in dependent and not _is_stored(name) for name in names)
    if is_decided or reads_dependent:
        dependent.update(name.id for name in names if _is_stored(name))
        dependent.update(filter(None, map(_variable_changed_in_place, own_parts)))
    is_branch = isinstance(node, ast.If | ast.While | ast.For | ast.Match)
    return is_decided or (is_branch and reads_dependent)


def _nested_statements(node: ast.stmt) -> list[ast.stmt]:
    """Return the statements in the blocks of a statement, those of exception handlers last."""
    blocks = [
        block for field in ("body", "orelse", "finalbody") for block in getattr(node, field, [])
    ]
    handlers = getattr(node, "handlers", [])
    return blocks + [statement for handler in handlers for statement in handler.body]


def _own_parts(node: ast.stmt, blocks: list[ast.stmt]) -> list[ast.AST]:
    """Return all nodes of a statement, itself included, that are not in its blocks."""
    inner_ids = {id(part) for statement in blocks for part in ast.walk(statement)}
    return [part for part in ast.walk(node) if id(part) not in inner_ids]


def _variable_changed_in_place(node: ast.AST) -> str:
    """Return the variable whose value an expression changes in place; "" for none."""
    match node:
        case ast.Subscript(ast.Name(name), _, ast.Store()):
            return name
        case ast.Call(ast.Attribute(ast.Name(name), method)) if method.endswith("_") or method in (
            "append",
            "extend",
        ):
            return name
    return ""


def _is_stored(name: ast.Name) -> bool:
    """Return whether a name is assigned where it stands."""
    return isinstance(name.ctx, ast.Store)
