"""Find the messages to people that a change drops: warnings, entries of logs, printed text."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator

from regraft.verification.top_level_definitions import definitions_by_name

_LEVELS = frozenset({"debug", "info", "warning", "warn", "error", "critical", "exception", "log"})
_LOGGER = re.compile(r"log(ger|ging)?$", re.IGNORECASE)
_LONGEST = 100  # characters of a message that is shown


def lost_messages(source: bytes, changed: bytes, definition: str) -> list[str]:
    """Return a description of each call of the definition that warns, logs or prints and that the
    changed file has less often: "a message of line 12: CALL". A call with another text is lost,
    too."""
    node = definitions_by_name(_parse(source)).get(definition)
    if node is None:
        return []
    lost = _count_messages(source) - _count_messages(changed)
    calls = sorted(_messages(node), key=lambda call: call.lineno)
    return [
        f"a message of line {call.lineno}: {text[:_LONGEST]}"
        for call in calls
        if (text := ast.unparse(call)) in lost
    ]


@functools.lru_cache(maxsize=2)  # the versions of a file, for each of its definitions
def _parse(text: bytes) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(text)


@functools.lru_cache(maxsize=2)
def _count_messages(text: bytes) -> Counter[str]:
    """Return how often each call that warns, logs or prints stands in a file."""
    return Counter(ast.unparse(call) for call in _messages(_parse(text)))


def _messages(root: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a syntax tree that warn, log or print, as far as their names say so."""
    for node in ast.walk(root):
        match node:
            case ast.Call(func=ast.Name(id="print" | "warn")):
                yield node
            case ast.Call(func=ast.Attribute(value=ast.Name(id="warnings"), attr="warn")):
                yield node
            case ast.Call(func=ast.Attribute(value=owner, attr=attr)):
                name = getattr(owner, "attr", getattr(owner, "id", ""))
                if attr.removesuffix("_once") in _LEVELS and _LOGGER.search(name):
                    yield node
