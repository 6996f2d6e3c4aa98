"""The names in nodes of a syntax tree, the parts of it that share a scope, and its `__future__`
imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

COMPREHENSIONS = ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp
SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | COMPREHENSIONS


def words_of(node: ast.AST) -> tuple[str, ...]:
    """Return the words of a name, an attribute, a keyword, a function's definition or an import,
    split at dots; a single "" for any other node, a class among them."""
    match node:
        case ast.alias(name):
            return tuple(name.split("."))
        case ast.ImportFrom(module):
            return tuple((module or "").split("."))
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.keyword(arg=str(name)):
            return (name,)
    return (name_of(node),)


def name_of(node: ast.AST) -> str:
    """Return the identifier of a name or an attribute, "" for other nodes."""
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


def parts_in_own_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield those of some nodes and their parts that run in the scope of these nodes: not those of
    inner scopes, except the first source of a comprehension."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, COMPREHENSIONS):
            pending.append(node.generators[0].iter)
        elif not isinstance(node, SCOPES):
            pending.extend(ast.iter_child_nodes(node))


def future_imports(statements: Iterable[ast.stmt]) -> list[ast.ImportFrom]:
    """Return the `__future__` imports among the statements of a file."""
    return [
        node
        for node in statements
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
