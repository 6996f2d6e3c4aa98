"""The words in the text of a function, the names that it binds and those that it calls."""

from __future__ import annotations

import ast
import unicodedata
from dataclasses import dataclass

from regraft.source.syntax_iterators import defaults, walk
from regraft.source.text import SourceFile
from regraft.structure.function_surroundings import Function

# a table for `bytes.translate` that leaves words, and blanks between them
WORD_BYTES = bytes(
    byte if chr(byte).isalnum() or byte == ord("_") or byte > 127 else 32 for byte in range(256)
)


def read_words(source: SourceFile, function: Function) -> frozenset[bytes]:
    """Return every word of a function's body without its docstring, and the names that are default
    values."""
    body = function.body
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(body) > 1:
        first = body[1]
    start = source.line_starts[first.lineno - 1]
    text = source.text[start : source.line_starts[function.end_lineno or function.lineno]]
    if not text.isascii():  # Python normalises identifiers
        text = unicodedata.normalize("NFKC", text.decode()).encode()
    words = [
        (default.id if isinstance(default, ast.Name) else default.attr).encode()
        for _, default in defaults(function.args)
        if isinstance(default, ast.Name | ast.Attribute)
    ]
    return frozenset(words).union(text.translate(WORD_BYTES).split())


@dataclass(frozen=True, slots=True)
class Calls:
    """Names and attributes (with a dot before them) that a function binds, and those that it calls.

    calls_other  the function calls something that is neither a name nor an attribute
    """

    bound: frozenset[str]
    called: frozenset[str]
    calls_other: bool


def find_calls(function: Function) -> Calls:
    """Return the names and attributes that a function binds and calls."""
    bound: set[str] = set()
    called: set[str] = set()
    calls_other = False
    for node in walk(function):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                called.add(f".{node.func.attr}")
            elif isinstance(node.func, ast.Name):
                called.add(node.func.id)
            else:
                calls_other = True
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            bound.add(f".{node.attr}")
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return Calls(frozenset(bound), frozenset(called), calls_other)
