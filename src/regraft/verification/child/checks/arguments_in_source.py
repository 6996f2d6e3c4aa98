"""Find in the source of a function what its signature does not state: the keywords that it reads
from its `**kwargs`, how many parts it unpacks an argument to, and the numbers that it compares an
argument with."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

_MOST_PARTS = 4
_LARGEST = 10**6  # an argument may be a size


def with_read_keywords(signature: inspect.Signature, function: Any) -> inspect.Signature:
    """Return the signature of a function with a keyword parameter for each keyword that its source
    reads from its `**kwargs`; the signature itself where there is none.

    The default is that of `kwargs.get("name", default)` or `pop`, None where it is no literal and
    for `kwargs["name"]`, which the function reads where the keyword is given.
    """
    collector = next(
        (p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None
    )
    if collector is None:
        return signature
    new_parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in _keywords_read(function, collector).items()
        if name not in signature.parameters and name.isidentifier()
    ]
    *stated_parameters, last_parameter = signature.parameters.values()
    return signature.replace(parameters=[*stated_parameters, *new_parameters, last_parameter])


def unpacked_parts(function: Any, name: str) -> int:
    """Return how many parts, from two to `_MOST_PARTS`, the source of a function unpacks its
    parameter `name` to, or reads by constant indices; 0 where it does neither."""
    counts = [0]
    for node in ast.walk(syntax_of(function)):
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elements) | ast.List(elements)], value=ast.Name(id)
            ) if id == name:
                counts.append(len(elements))
            case ast.Subscript(value=ast.Name(id), slice=ast.Constant(int(index))) if id == name:
                counts.append(index + 1)
    return max(count if 2 <= count <= _MOST_PARTS else 0 for count in counts)


def numbers_around(function: Any, name: str) -> tuple[float, ...]:
    """Return numbers at and around those, up to `_LARGEST`, that the source of a function compares
    its parameter `name` with: for an integer those beside it, for a fraction a tenth of a percent
    less and more."""
    numbers: dict[float, None] = {}
    for node in ast.walk(syntax_of(function)):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            if any(isinstance(operand, ast.Name) and operand.id == name for operand in operands):
                numbers.update(
                    dict.fromkeys(filter(_is_usable_number, map(literal_value, operands)))
                )
    return tuple(dict.fromkeys(value for number in numbers for value in _neighbours(number)))


def _is_usable_number(value: Any) -> bool:
    """Return whether a value is a number, no flag, whose size is at most `_LARGEST`."""
    return type(value) in (int, float) and abs(value) <= _LARGEST


def _neighbours(number: float) -> tuple[float, ...]:
    """Return a number between those that are next to it, as `numbers_around` describes them."""
    if isinstance(number, int):
        return number - 1, number, number + 1
    return 0.999 * number, number, 1.001 * number


def _keywords_read(function: Any, collector: str) -> Mapping[str, Any]:
    """Return by name the defaults of the keywords that a function reads from the dictionary
    `collector` of its keywords."""
    definition = syntax_of(function)
    defaults = {
        key: None if default is None else literal_value(default)
        for key, default in keyword_lookups(definition, collector)
    }
    for node in ast.walk(definition):
        match node:
            case ast.Subscript(value=ast.Name(owner), slice=ast.Constant(str(key))) if (
                owner == collector
            ):
                defaults.setdefault(key, None)
    return defaults


def keyword_lookups(definition: ast.AST, collector: str) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the name and the default, None where there is none, of each keyword that a definition
    reads by `get` or `pop` from the dictionary `collector` of its keywords."""
    for node in ast.walk(definition):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(owner), attr="get" | "pop"),
                args=[ast.Constant(str(key)), *default],
            ) if owner == collector:
                yield key, default[0] if default else None


def fields_with_defaults(tree: ast.Module) -> frozenset[str]:
    """Return the names of the attributes that a file reads by `getattr` with a default, or asks for
    by `hasattr`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Call(func=ast.Name("hasattr"), args=[_, ast.Constant(str(name))])
                | ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), _])
            ):
                names.add(name)
    return frozenset(names)


def syntax_of(function: Any) -> ast.AST:
    """Return the syntax tree of a function; an empty module where its source cannot be read."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return ast.Module([], []) if code is None else _parsed(code)


def syntax_of_class(cls: type) -> ast.AST:
    """Return the syntax tree of a class; an empty module for a class without a source of its
    own."""
    return _parsed(cls)


@functools.lru_cache(maxsize=256)
def _parsed(code: Any) -> ast.AST:
    """Return the syntax tree of the source of a code object or class; an empty module where it
    cannot be read or does not stand by itself."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError, TypeError, ValueError):
        return ast.Module([], [])


def literal_value(node: ast.expr) -> Any:
    """Return the value of a literal, None for another expression."""
    try:
        return ast.literal_eval(node)
    except (TypeError, ValueError):
        return None
