"""Choose values for an option that the text of a file asks for: a tuple beside a number, missing
entries of a mapping, members of an enumeration, choices of an annotation."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from regraft.verification.child.checks.argument_variants import literal_choices
from regraft.verification.child.checks.arguments_in_source import literal_value
from regraft.verification.child.drivers.configuration_objects import is_config
from regraft.verification.child.drivers.source_hints import Choices
from regraft.verification.names_and_scopes import name_of

_UNSET = (True, 0.5)  # values for an entry whose default is no constant


def other_forms(
    name: str, value: Any, tree: ast.Module, other_values: Callable[[str, Any], tuple[Any, ...]]
) -> Iterator[Any]:
    """Yield values of another form for an option of a file with the syntax tree `tree`: a tuple and
    a list of unequal numbers for a number, or the number for a tuple of equal ones, where the file
    tests the type of the option or makes a tuple of it; an iterator over a tuple or list that the
    file makes a sequence of; a string in another spelling that the file folds, strips or replaces;
    a mapping with an entry that the file looks up and that is missing, whose value is
    another one than its default; the other members of an enumeration. `other_values` returns other
    values for a name and a plain value."""
    if isinstance(value, Enum):
        yield from (member for member in type(value) if member is not value)
    elif type(value) is int and _may_be_tuple(name, tree):
        yield from ((value, value + 2), [value, value + 1])
    elif isinstance(value, str):
        yield from _other_spellings(name, value, tree)
    elif isinstance(value, tuple | list):
        if len(set(map(repr, value))) == 1 and type(value[0]) is int and _may_be_tuple(name, tree):
            yield value[0]
        if _becomes_sequence(name, tree):
            yield iter(list(value))
    elif isinstance(value, Mapping):
        yield from _with_further_entries(name, value, tree, other_values)


def _with_further_entries(
    name: str,
    value: Mapping[str, Any],
    tree: ast.Module,
    other_values: Callable[[str, Any], tuple[Any, ...]],
) -> Iterator[dict[str, Any]]:
    """Yield a mapping with each entry that a file looks up in it and that it lacks, with another
    value than its default."""
    for key, default in _entries_looked_up(name, tree).items():
        if key not in value:
            yield {**value, key: (*other_values(key, default), *_UNSET)[0]}


def _may_be_tuple(name: str, tree: ast.Module) -> bool:
    """Return whether a file tests the type of a name or attribute, or passes it to a function that
    makes tuples or pairs by its name."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=[argument, *_]) if name_of(argument) == name:
                if name_of(function) == "isinstance" or re.search(
                    "tuple|pair", name_of(function), re.IGNORECASE
                ):
                    return True
    return False


def _becomes_sequence(name: str, tree: ast.Module) -> bool:
    """Return whether a file makes a tuple, list or sorted list of a name or attribute, and so
    takes any iterable."""
    return any(
        isinstance(node, ast.Call)
        and name_of(node.func) in ("tuple", "list", "sorted")
        and any(name_of(argument) == name for argument in node.args)
        for node in ast.walk(tree)
    )


def _other_spellings(name: str, value: str, tree: ast.Module) -> Iterator[str]:
    """Yield other texts that a file may make the same as `value` by methods of a name or attribute,
    or of their results, one for each such call: `value` in the other case for `lower` and the like,
    with blanks around it for `strip`, and for `replace` with its second argument exchanged for the
    first."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=args) if (
                name_of(_owner_of_methods(owner)) == name
            ):
                old, new = [*map(literal_value, args), None, None][:2]
                if method in ("lower", "upper", "casefold"):
                    yield value.upper() if value.islower() else value.lower()
                elif method == "strip" and not args:
                    yield f" {value} "
                elif method == "replace" and isinstance(old, str) and isinstance(new, str) and new:
                    yield value.replace(new, old)


def _owner_of_methods(node: ast.expr) -> ast.expr:
    """Return the expression at the start of a chain of calls of methods: `a` of `a.b().c()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node


def _entries_looked_up(name: str, tree: ast.Module) -> dict[str, Any]:
    """Return by key the constant defaults of the entries that a file looks up in a mapping of a
    name by `NAME.get("key", default)` or `pop`, or asks for by `"key" in NAME`; None for no
    constant."""
    defaults: dict[str, Any] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=owner, attr="get" | "pop" | "setdefault"),
                args=[ast.Constant(str(key)), *default],
            ) if name_of(owner) == name:
                defaults[key] = literal_value(default[0]) if default else None
            case ast.Compare(
                left=ast.Constant(str(key)), ops=[ast.In() | ast.NotIn()], comparators=[owner]
            ) if name_of(owner) == name:
                defaults.setdefault(key, None)
    return defaults


def annotated_choices(arguments: Mapping[str, Any], cls: type, choices: Choices) -> Choices:
    """Return `choices` with the strings of the `Literal[...]` that annotate parameters of the
    constructor of a class, or fields of the configurations among its arguments."""
    annotations: dict[str, Any] = {}
    for owner in (cls, *(type(value) for value in arguments.values() if is_config(value))):
        for base in reversed(owner.__mro__):
            annotations |= inspect.get_annotations(base)
            constructor = vars(base).get("__init__")
            annotations |= dict(getattr(constructor, "__annotations__", {}))
    result = dict(choices)
    for name, annotation in annotations.items():
        strings = tuple(text for text in literal_choices(annotation) if isinstance(text, str))
        if strings:
            result[name] = tuple(dict.fromkeys((*result.get(name, ()), *strings)))
    return result
