"""The definitions of a file, and which of them a rewrite changes."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection

Name = tuple[str, str]  # (class, method), or ("", function)


def definitions(tree: ast.Module) -> dict[Name, ast.AST]:
    """Return the functions at the top level of a file and the methods of the classes there, by
    (class, name); those that are defined twice are left out."""
    node_by_name: dict[Name, ast.AST] = {}
    duplicates: set[Name] = set()
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                name = (owner, member.name)
                duplicates.update({name} & node_by_name.keys())
                node_by_name[name] = member
    return {name: node for name, node in node_by_name.items() if name not in duplicates}


def changed_definitions(before: ast.Module, after: ast.Module) -> set[Name] | None:
    """Return the names of the functions and methods whose code differs; None if anything but their
    bodies and the imports differs."""
    outlines = [ast.unparse(_without_bodies(tree)) for tree in (before, after)]
    if outlines[0] != outlines[1]:
        return None
    nodes_before, nodes_after = definitions(before), definitions(after)
    return {
        name
        for name, node in nodes_after.items()
        if name in nodes_before and ast.dump(node) != ast.dump(nodes_before[name])
    }


class _BodyStripper(ast.NodeTransformer):
    """Replaces the bodies of functions by `pass`, and removes imports, in place."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Return the function with `pass` as its body."""
        node.body = [ast.Pass()]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_Import(self, node: ast.Import) -> None:
        """Return None, which removes the import."""
        return None

    visit_ImportFrom = visit_Import  # type: ignore[assignment]


def _without_bodies(tree: ast.Module) -> ast.Module:
    """Return a copy of the file without its imports, and with `pass` as the body of each function
    and method."""
    tree = copy.deepcopy(tree)
    statements = [
        statement
        for statement in tree.body
        if not isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    body = [
        (
            _BodyStripper().visit(statement)
            if isinstance(statement, ast.ClassDef | ast.FunctionDef)
            else statement
        )
        for statement in statements
    ]
    return ast.Module(body, [])


def definitions_reaching(tree: ast.Module, functions: Collection[str]) -> set[Name]:
    """Return the functions and methods of the file that name one of `functions`, also through other
    functions."""
    names_by_definition = {
        name: {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
        for name, node in definitions(tree).items()
    }
    callers: set[Name] = set()
    targets = set(functions)
    while True:
        new_callers = {
            name
            for name, used_names in names_by_definition.items()
            if name not in callers and not targets.isdisjoint(used_names)
        }
        if not new_callers:
            return callers
        callers |= new_callers
        targets |= {function for owner, function in new_callers if not owner}
