"""Make variants of a call with other texts: with the separators and words of the code, in other
cases, with white space, digits and letters of other alphabets."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from operator import is_not
from types import ModuleType
from typing import Any

from regraft.verification.child.call_arguments import Call, argument_leaves, map_call

TEXTS = "texts"
_CONSTANTS = 8  # the most texts of the code from which others are made
_LONGEST = 64  # characters of a text of the code
_LIMIT = 64  # the most texts that replace one text
_SHOWN = 24  # characters of a text in a label
_USUAL = (
    "",
    " ",
    " Ab  cD\t",
    "a\nb\r\n\nC ",
    "Straße İI",
    "e\u0301\u00e9",
    "x\u00b2",
    "\u00bd",
    "\u0661\u0662",
    "\U0001f600",
    "12",
    "-3",
    "1e3",
    " 0x1F ",
    "_a-b",
    "'a' \"b\"\\n",
)
_PIECES = (
    ("a", "B", "c"),
    (" a ", "b ", "", "a"),
    ("1", " 2", "-3"),
    ("1.5", "", "2"),
    ("\u00bd", "a"),
    ("\u00b2", "a"),
)


def texts_of(nodes: Iterable[ast.AST], module: ModuleType) -> tuple[str, ...]:
    """Return at most `_CONSTANTS` texts among constants of the code and variables of its module
    that it reads, in order; long ones, as documentation is, are left out."""
    texts: dict[str, None] = {}
    for node in nodes:
        value: Any = None
        if isinstance(node, ast.Constant):
            value = node.value
        elif isinstance(node, ast.Name):
            value = vars(module).get(node.id)
        if isinstance(value, str) and 0 < len(value) <= _LONGEST:
            texts[value] = None
    return tuple(texts)[:_CONSTANTS]


def calls_with_other_texts(call: Call, texts: tuple[str, ...]) -> Iterator[Call]:
    """Yield a call in which another text stands for all equal texts among its arguments, those in
    lists and dictionaries included, at most `_LIMIT` for each of these, and calls with other keys
    of dictionaries; `texts` are those of the code. The original may refuse them."""
    for value in dict.fromkeys(leaf for leaf in argument_leaves(call) if isinstance(leaf, str)):
        other_texts = dict.fromkeys(_other_texts(value, texts))
        for other in itertools.islice((text for text in other_texts if text != value), _LIMIT):
            yield map_call(call, _replacing(value, other), f"the text {other[:_SHOWN]!r}", TEXTS)
    for prefix in texts:
        args = _with_prefixed_keys(call.args, prefix)
        kwargs = {name: _with_prefixed_keys(value, prefix) for name, value in call.kwargs.items()}
        if args is not call.args or any(kwargs[name] is not call.kwargs[name] for name in kwargs):
            yield Call(args, kwargs, f"keys with {prefix[:_SHOWN]!r} before them", TEXTS)


def _replacing(value: str, other: str) -> Any:
    """Return the function that puts `other` in the place of the text `value`, and returns any other
    leaf as it is."""
    return lambda leaf: other if isinstance(leaf, str) and leaf == value else leaf


def _other_texts(value: str, texts: tuple[str, ...]) -> Iterator[str]:
    """Yield texts to stand for one of a call: it in other cases and with white space, those of the
    code alike, and the separators of the code between pieces; then usual ones."""
    words = [text for text in texts if any(map(str.isalnum, text))]
    separators = [text for text in texts if text not in words] or [" ", "\n"]
    yield from _spellings(value)
    for separator, pieces in itertools.product(separators[: _CONSTANTS // 2], _PIECES):
        yield separator.join(pieces)
    for separator in separators[: _CONSTANTS // 2]:
        yield from (separator, f"{separator}a{separator}", f"a{separator}{separator}b")
    for word in words:
        yield from (word, word.upper(), word.capitalize(), f" {word} ")
        yield from (f"{word}{value}", f"{value}{word}", f"{word}{word}{value}{word}")
    yield from _USUAL


def _spellings(value: str) -> Iterator[str]:
    """Yield a text in other cases, with white space around it, and twice."""
    yield from (value.upper(), value.lower(), value.capitalize(), f" {value} ", f"\t{value}\n")
    yield value + value


def _with_prefixed_keys(value: Any, prefix: str) -> Any:
    """Return a dictionary, or a tuple of arguments with dictionaries, in which `prefix` stands
    before every second key that is a text; the value itself where there is none."""
    if type(value) is tuple:
        elements = tuple(_with_prefixed_keys(element, prefix) for element in value)
        return elements if any(map(is_not, elements, value)) else value
    if type(value) is not dict or not any(isinstance(key, str) for key in value):
        return value
    return {
        f"{prefix}{key}" if isinstance(key, str) and number % 2 == 0 else key: element
        for number, (key, element) in enumerate(value.items())
    }
