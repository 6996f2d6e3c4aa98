"""The names that statements read and bind, and whether other statements change their meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from regraft.verification.bound_and_read_names import declared_names, stored_names
from regraft.verification.names_and_scopes import COMPREHENSIONS, SCOPES, name_of

# Functions through which a function reads the names of its own variables.
OWN_VARIABLE_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})
# statements that can run code after a `return`
FINALISING = frozenset({"Try", "TryStar", "With", "AsyncWith"})


def names_in(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the variables in some nodes, with repetitions."""
    return [part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)]


def changes_meaning_in_comprehension(nodes: Iterable[ast.AST]) -> bool:
    """Return whether expressions contain what means something else, or is not allowed, in a
    comprehension: an assignment, `await`, `yield`, `super` or `__class__`; or a target that is no
    variable."""
    kinds = ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom
    stores = ast.Attribute | ast.Subscript
    return any(
        isinstance(part, kinds)
        or (isinstance(part, stores) and isinstance(part.ctx, ast.Store))
        or name_of(part) in ("super", "__class__")
        for node in nodes
        for part in ast.walk(node)
    )


def occurs_in_loop_only(names: list[str], loop: ast.For, function: ast.AST | None) -> bool:
    """Return whether no name of `names` may mean a variable of a function outside of a loop, or in
    the source of the loop: there a comprehension reads another variable than the loop."""
    if function is None:
        return False
    parameters = {part.arg for part in ast.walk(function) if isinstance(part, ast.arg)}
    outside = parameters | _outer_names(function, left_out=loop) | _outer_names(loop.iter)
    return outside.isdisjoint(names)


def is_plain_local(name: str, function: ast.FunctionDef | None) -> bool:
    """Return whether a name is certainly a local variable that only the function's own statements
    read; False also for None, for a private name, and in a function with `try`, `with` or
    `locals()`."""
    may_be_mangled = name.startswith("_")  # `__name` and `_Class__name` can be one variable
    if function is None or may_be_mangled:
        return False
    nodes = [node for node in ast.walk(function) if node is not function]
    has_cleanup = any(type(node).__name__ in FINALISING for node in nodes)
    reads_own_variables = not OWN_VARIABLE_READERS.isdisjoint(map(name_of, nodes))
    if has_cleanup or reads_own_variables:
        return False
    return name not in _names_in_inner_scopes(nodes) | declared_names(nodes)


def _names_in_inner_scopes(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names in those nodes that are scopes of their own, without the variables that a
    comprehension itself assigns, and without its first source, which runs outside of it."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, SCOPES):
            source = node.generators[0].iter if isinstance(node, COMPREHENSIONS) else None
            names |= _outer_names(node, left_out=source)
    return names


def _outer_names(node: ast.AST, left_out: ast.AST | None = None) -> set[str]:
    """Return the names in a node that may mean variables outside of it: all, but for those that a
    comprehension, which may be the node itself, assigns for its own parts. Names in the part
    `left_out` do not count."""
    if node is left_out:
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    parts = ast.iter_child_nodes(node)
    names = {name for part in parts for name in _outer_names(part, left_out)}
    if not isinstance(node, COMPREHENSIONS):
        return names
    targets = frozenset().union(*(stored_names(part.target) for part in node.generators))
    return (names - targets) | _outer_names(node.generators[0].iter, left_out)
