"""Names that nodes of a syntax tree mention."""

from __future__ import annotations

import ast

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
