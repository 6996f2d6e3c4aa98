"""The statements of the residual program."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Assign:
    """`target = value`."""

    target: str
    value: ast.expr


@dataclass(frozen=True)
class Unpack:
    """`first, second = value`."""

    targets: tuple[str, ...]
    value: ast.expr


@dataclass(frozen=True)
class StoreItem:
    """`base[index] = value`."""

    base: ast.expr
    index: ast.expr
    value: ast.expr


@dataclass(frozen=True)
class Evaluate:
    """An expression that is computed for its effect."""

    value: ast.expr


@dataclass(frozen=True)
class Check:
    """`assert test`; with a message, which ValueError gets, `if not test: raise`."""

    test: ast.expr
    message: str = ""


@dataclass(frozen=True)
class Raise:
    """`raise error`."""

    error: ast.expr


@dataclass(frozen=True)
class Return:
    """`return value`."""

    value: ast.expr


@dataclass(frozen=True)
class Break:
    """`break`."""


@dataclass(frozen=True)
class Continue:
    """`continue`."""


Computation = Assign | Unpack  # what a region may consist of
Terminator = Return | Raise | Break | Continue  # what leaves a block
Statement = Computation | StoreItem | Evaluate | Check | Terminator


def raise_error(name: str, argument: ast.expr) -> Raise:
    """Return the statement that raises one of Python's own errors with one argument."""
    return Raise(ast.Call(ast.Name(name, ast.Load()), [argument], []))


def raise_message(name: str, message: str) -> Raise:
    """Return the statement that raises one of Python's own errors with a message."""
    return raise_error(name, ast.Constant(message))


def read_names(code: ast.AST | Statement) -> set[str]:
    """Return all names that the code reads, also those of functions that it calls, of objects whose
    attributes it reads, and of the variables of comprehensions and lambdas."""
    if not isinstance(code, ast.AST):
        parts = (part for part in vars(code).values() if isinstance(part, ast.AST))
        return {key for part in parts for key in read_names(part)}
    return {
        child.id
        for child in ast.walk(code)
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)
    }


def assigned_names(code: ast.AST | Statement) -> set[str]:
    """Return the names that the code assigns; storing an element or attribute assigns none."""
    match code:
        case Assign(target):
            return {target}
        case Unpack(targets):
            return {*targets}
        case ast.AST():
            return {
                child.id
                for child in ast.walk(code)
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
            }
    return set()


def rename(code: ast.expr, new_names: Mapping[str, str]) -> ast.expr:
    """Return a copy of the expression in which each variable that is a key of `new_names` has its
    new name."""
    renamed = copy.deepcopy(code)
    for node in ast.walk(renamed):
        if isinstance(node, ast.Name):
            node.id = new_names.get(node.id, node.id)
    return renamed


def write_statement(statement: Statement) -> str:
    """Return the statement as Python source on one line, without indentation; for `break` and
    `continue` that word."""
    match statement:
        case Assign(target, value):
            return f"{target} = {ast.unparse(value)}"
        case Unpack(targets, value):
            return f"{write_targets(targets)} = {ast.unparse(value)}"
        case StoreItem(base, index, value):
            element = ast.Subscript(base, index, ast.Load())
            return f"{ast.unparse(element)} = {ast.unparse(value)}"
        case Evaluate(value):
            return ast.unparse(value)
        case Check(test, message):
            if message:
                return f"if not ({ast.unparse(test)}): raise ValueError({message!r})"
            return f"assert {ast.unparse(test)}"
        case Raise(error):
            return f"raise {ast.unparse(error)}"
        case Return(value):
            return f"return {ast.unparse(value)}"
    return type(statement).__name__.lower()


def write_targets(targets: tuple[str, ...]) -> str:
    """Return the names as the left side of an assignment that takes a tuple apart."""
    return ", ".join(targets) + ("," if len(targets) == 1 else "")
