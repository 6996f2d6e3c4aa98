"""Comprehensions rewritten as loops that fill a list or dictionary."""

from __future__ import annotations

import ast
import copy


def expand_comprehension(
    node: ast.ListComp | ast.GeneratorExp | ast.DictComp, target: str, prefix: str
) -> list[ast.stmt]:
    """Return statements that assign a new list or dictionary to `target`, and put the
    comprehension's elements into it; `node` stays as it is.

    The comprehension's own variables get the prefix `prefix`, except in the first iterable, which
    Python evaluates outside of the comprehension.
    """
    node = copy.deepcopy(node)
    targets = {
        name.id
        for part in node.generators
        for name in ast.walk(part.target)
        if isinstance(name, ast.Name)
    }
    first = node.generators[0].iter
    for name in ast.walk(node):
        if isinstance(name, ast.Name) and name.id in targets and not is_inside(name, first):
            name.id = prefix + name.id
    body: list[ast.stmt] = [add_element(node, ast.Name(target, ast.Load()))]
    for part in reversed(node.generators):
        for test in reversed(part.ifs):
            body = [ast.If(test, body, [])]
        body = [ast.For(part.target, part.iter, body, [])]
    empty = ast.Dict([], []) if isinstance(node, ast.DictComp) else ast.List([], ast.Load())
    statements = [ast.Assign([ast.Name(target, ast.Store())], empty), *body]
    return [
        ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in statements
    ]


def add_element(node: ast.ListComp | ast.GeneratorExp | ast.DictComp, target: ast.expr) -> ast.stmt:
    """Return the statement that adds the comprehension's element to the list or dictionary
    `target`."""
    if isinstance(node, ast.DictComp):
        return ast.Assign([ast.Subscript(target, node.key, ast.Store())], node.value)
    return ast.Expr(ast.Call(ast.Attribute(target, "append", ast.Load()), [node.elt], []))


def is_inside(node: ast.AST, tree: ast.AST) -> bool:
    """Return whether `node` is `tree` or a part of it."""
    return any(descendant is node for descendant in ast.walk(tree))
