"""The names that assignments bind."""

from __future__ import annotations

import ast


def target_name(node: ast.stmt) -> str | None:
    """Return the name to which an assignment assigns a value, if that is all it does; None for any
    other statement."""
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
    ):
        return node.targets[0].id
    if (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.value is not None
    ):
        return node.target.id
    return None


def first_name(node: ast.stmt) -> str:
    """Return the name to which an assignment assigns a value, or the first of the names into which
    it unpacks one; "" for any other statement."""
    if isinstance(node, ast.Assign) and unpacks_into_names(node):
        names = (part.id for part in ast.walk(node.targets[0]) if isinstance(part, ast.Name))
        return next(names, "")
    return target_name(node) or ""


def unpacks_into_names(node: ast.stmt) -> bool:
    """Return whether an assignment has one target, a tuple that consists of names."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target = node.targets[0]
    return isinstance(target, ast.Tuple) and all(
        isinstance(element, ast.Name) for element in target.elts
    )
