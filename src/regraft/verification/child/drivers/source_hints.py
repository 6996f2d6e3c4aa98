"""Read from the source of a file which values of configurations matter to it.

Every function that takes a `source` raises SyntaxError where it does not parse. Nothing is run.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regraft.verification.class_syntax import used_names
from regraft.verification.names_and_scopes import name_of

# Strings by the name that a file compares with them, with strings and integers that are keys of the
# dictionaries in which it looks the name up.
Choices = Mapping[str, tuple[str | int, ...]]


@dataclass(frozen=True, slots=True)
class Hints:
    """Hints of a file about values that matter.

    `text` is the part of the source that is searched for names of fields. `choices` are the strings
    that the file compares names with (`compared_strings`). `optional` are the defaults, by name, of
    fields that the file reads with a default and a configuration may lack. `compared` are the names
    that the file tests for equality with other names. `dispatches` tells that the file chooses
    between implementations of attention.
    """

    text: str = ""
    choices: Choices = field(default_factory=dict)
    optional: Mapping[str, Any] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    dispatches: bool = True


def hints(text: str, source: str) -> Hints:
    """Return the hints of a file with the text `source`, about the part of it that is `text`.

    The `text` of the hints is that part, followed by the expressions that the source assigns to the
    attributes of `self` which the part reads, one a line: they may name fields that the part does
    not. The other hints are those of the whole source. `text` itself need not parse.
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
    """Yield, as text, the expressions of plain assignments in a source (`self.name = ...`) to
    attributes of `self` that a text mentions."""
    read_attributes = set(re.findall(r"\bself\.(\w+)", text))
    for node in ast.walk(_parse(source)):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name("self"), attr=name)], value=value
            ) if name in read_attributes:
                yield ast.unparse(value)


@functools.cache
def _parse(source: str) -> ast.Module:
    """Return the syntax tree of a source; cached, so callers must not change it."""
    return ast.parse(source)


def names_leading_to(names: frozenset[str], source: str) -> frozenset[str]:
    """Return `names` together with all names that use one of them, directly or through others.

    A function or class at the top level of the source uses the names in it. In any other statement
    at the top level, such as a registry of classes, every name uses all names there.
    """
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


@functools.cache
def words_of_forward(source: str) -> Choices:
    """Return, by name, the words that a file compares with each parameter of a `forward` whose
    default is a word, or that has none and is compared with words; {} for a file that does not
    parse. Cached."""
    try:
        tree = _parse(source)
    except SyntaxError:
        return {}
    choices = compared_strings(source)
    words: dict[str, tuple[str | int, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            for name, default in _defaults_of(node.args):
                is_word = isinstance(default, ast.Constant) and isinstance(default.value, str)
                if is_word or (default is None and choices.get(name)):
                    words[name] = choices.get(name, ())
    return words


def _defaults_of(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the parameters of a function by name, with their defaults, None for those without."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = [None] * (len(positional) - len(arguments.defaults))
    parameters = (*positional, *arguments.kwonlyargs)
    defaults = (*required, *arguments.defaults, *arguments.kw_defaults)
    yield from zip((parameter.arg for parameter in parameters), defaults, strict=True)


def compared_strings(source: str) -> Choices:
    """Return by name the strings that a file compares names and attributes with, or looks up in a
    dictionary of constant keys, without duplicates, in the order of the source.

    For `self.kind == "a"`, `self.kind[0] in ("a", "b")` and `{"a": f, "b": g}[self.kind]` the name
    is `kind`; all strings on either side of a comparison count. A name that the file compares with
    other values only has (); names that it neither compares nor looks up are left out.
    """
    strings_by_name: dict[str, dict[str | int, None]] = {}
    for name, keys in _looked_up_keys(_parse(source)):
        strings_by_name.setdefault(name, {}).update(dict.fromkeys(keys))
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


def _looked_up_keys(tree: ast.Module) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield pairs of a name or attribute and the strings and integers among the keys of a
    dictionary in which a file looks it up, as `table[name]` or `table.get(name)`; the dictionary is
    written there, or assigned to a name somewhere in the file."""
    keys_by_table: dict[str, tuple[str | int, ...]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=ast.Dict() as display) if name_of(target):
                keys_by_table[name_of(target)] = _constant_keys(display)
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=table, slice=key) if name_of(key):
                pass
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_]) if name_of(
                key
            ):
                pass
            case _:
                continue
        keys = (
            _constant_keys(table)
            if isinstance(table, ast.Dict)
            else keys_by_table.get(name_of(table), ())
        )
        if keys:
            yield name_of(key), keys


def _constant_keys(table: ast.Dict) -> tuple[str | int, ...]:
    """Return the constant strings and integers among the keys of a dictionary display."""
    return tuple(
        key.value
        for key in table.keys
        if isinstance(key, ast.Constant)
        and isinstance(key.value, str | int)
        and not isinstance(key.value, bool)
    )


def _compared_names(source: str) -> frozenset[str]:
    """Return the names and attributes that a file tests for equality with each other, as `windows`
    and `length` in `self.windows == self.length`. Comparisons with any other value do not count."""
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
    constant)`, where the name of the object ends with "config"; of several defaults for a field,
    the last in the order of `ast.walk`."""
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
