"""Read from the source of a file which values of configurations matter to it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regraft.verify.class_texts import used_names

Choices = Mapping[str, tuple[str, ...]]  # strings by the name that a file compares with them


@dataclass(frozen=True, slots=True)
class Hints:
    """Hints of a file about values that matter.

    `text` is searched for names of fields; `choices` are the strings that the file compares names
    with; `optional` are fields that it reads with a default, which a configuration may not have;
    `compared` are names whose equality it tests. `dispatches` tells that the file chooses between
    implementations of attention.
    """

    text: str = ""
    choices: Choices = field(default_factory=dict)
    optional: Mapping[str, Any] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    dispatches: bool = True


def hints(text: str, source: str) -> Hints:
    """Return the hints of a source.

    Their `text` is the argument `text`, a part of the source, with the expressions that the source
    assigns to the attributes of `self` that this part reads; the others are of the source.
    """
    dispatches = re.search("attn_implementation|ALL_ATTENTION", source) is not None
    extended_text = "\n".join((text, *_assigned_expressions(text, source)))
    return Hints(
        extended_text,
        compared_strings(source),
        _optional_fields(source),
        _compared_names(source),
        dispatches,
    )


def _assigned_expressions(text: str, source: str) -> Iterator[str]:
    """Yield the expressions that a source assigns to attributes of `self` that a text reads."""
    read_attributes = set(re.findall(r"\bself\.(\w+)", text))
    for node in ast.walk(_parse(source)):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name("self"), attr=name)], value=value
            ) if name in read_attributes:
                yield ast.unparse(value)


@functools.cache
def _parse(source: str) -> ast.Module:
    """Return the syntax tree of a source."""
    return ast.parse(source)


def names_leading_to(names: frozenset[str], source: str) -> frozenset[str]:
    """Return the names, and the names that lead to one of them, directly or through others:
    functions and classes at the top level by what they use, and all names of any other top-level
    statement by one another."""
    names_by_user: dict[str, set[str]] = {}
    for node in _parse(source).body:
        used = used_names(node)
        defined = {node.name} if isinstance(node, ast.ClassDef | ast.FunctionDef) else used
        for name in defined:
            names_by_user.setdefault(name, set()).update(used)
    leading = set(names)
    while added := {name for name, used in names_by_user.items() if used & leading} - leading:
        leading |= added
    return frozenset(leading)


def compared_strings(source: str) -> Choices:
    """Return by name the strings that a file compares names and attributes with, as in `self.kind
    == "a"`; () for a name that it compares with other values only."""
    strings_by_name: dict[str, dict[str, None]] = {}
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            operands = [side.value if isinstance(side, ast.Subscript) else side for side in sides]
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in operands]
            constants = [
                constant.value
                for side in sides
                for constant in ast.walk(side)
                if isinstance(constant, ast.Constant)
            ]
            for name in filter(None, names):
                strings_by_name.setdefault(name, {}).update(
                    {constant: None for constant in constants if isinstance(constant, str)}
                )
    return {name: tuple(values) for name, values in strings_by_name.items()}


def _compared_names(source: str) -> frozenset[str]:
    """Return the names and attributes that a file tests for equality with each other, as in
    `self.windows == self.length`."""
    compared: set[str] = set()
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            names = [
                getattr(side, "attr", getattr(side, "id", ""))
                for side in (node.left, *node.comparators)
            ]
            compared.update(names if all(names) else ())
    return frozenset(compared)


def _optional_fields(source: str) -> dict[str, Any]:
    """Return by name the defaults of fields that a file reads by `getattr(config, "name",
    constant)`."""
    defaults = {}
    for node in ast.walk(_parse(source)):
        match node:
            case ast.Call(
                func=ast.Name("getattr"),
                args=[
                    ast.Name(owner) | ast.Attribute(attr=owner),
                    ast.Constant(str(name)),
                    ast.Constant(value),
                ],
            ) if owner.endswith("config"):
                defaults[name] = value
    return defaults
