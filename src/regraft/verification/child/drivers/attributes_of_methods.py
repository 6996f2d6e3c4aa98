"""Find in the source of a class which attributes its methods read and assign, and guess those that
nobody assigns."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from regraft.verification.child.drivers.guessed_values import value_for

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_INSTANCE = "self"


def attributes_read(tree: ast.AST, name: str) -> tuple[str, ...]:
    """Return the attributes of the instance that the method `name` of a class reads, in the order
    of its text, without duplicates."""
    return tuple(_attributes(_methods(tree).get(name), ast.Load))


def preparing_methods(tree: ast.AST, name: str) -> Iterator[str]:
    """Yield the public methods of a class that assign an attribute which the method `name` reads,
    without that method itself."""
    read = set(attributes_read(tree, name))
    for other, method in _methods(tree).items():
        is_public = other != name and not other.startswith("_")
        if is_public and read & set(_attributes(method, ast.Store)):
            yield other


def guessed_attributes(tree: ast.AST, names: Iterable[str]) -> dict[str, Any]:
    """Return values for attributes of a class by their names: False for those that it only tests.
    Raises LookupError where no value can be guessed."""
    tested = _tested_attributes(tree)
    return {name: False if name in tested else value_for(name) for name in names}


def _methods(tree: ast.AST) -> dict[str, _Function]:
    """Return the functions in a syntax tree by their names."""
    return {node.name: node for node in ast.walk(tree) if isinstance(node, _Function)}


def _attributes(method: ast.AST | None, context: type[ast.expr_context]) -> dict[str, None]:
    """Return the attributes of the instance in a context of a method, as the keys of a dictionary;
    those of a method that is None are none."""
    nodes = ast.walk(method) if method is not None else ()
    return dict.fromkeys(
        node.attr for node in nodes if _is_own_attribute(node) and isinstance(node.ctx, context)
    )


def _is_own_attribute(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Return whether a node is an attribute of the instance."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == _INSTANCE
    )


def _tested_attributes(tree: ast.AST) -> frozenset[str]:
    """Return the attributes of the instance that are read only as the whole test of an `if` or of a
    conditional expression, or with a `not` before."""
    nodes = list(ast.walk(tree))
    tests = [node.test for node in nodes if isinstance(node, ast.If | ast.IfExp)]
    negations = [test for test in tests if isinstance(test, ast.UnaryOp)]
    tests += [test.operand for test in negations if isinstance(test.op, ast.Not)]
    names = {test.attr for test in tests if _is_own_attribute(test)}
    names_read_otherwise = {
        node.attr
        for node in nodes
        if _is_own_attribute(node)
        and isinstance(node.ctx, ast.Load)
        and not any(node is test for test in tests)
    }
    return frozenset(names - names_read_otherwise)
