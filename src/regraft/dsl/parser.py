"""Parsing of text into syntax with Lark and `grammar.lark`, and the wording of its error
messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from lark import Lark, Token, UnexpectedCharacters, UnexpectedToken
from lark.lark import PostLex

from regraft.dsl.build import Builder
from regraft.dsl.sections import NotationError
from regraft.dsl.syntax import Fragment, RuleSyntax, SyntaxProblem, Transformation

_OPENERS = frozenset(("LPAR", "LSQB"))
_CLOSERS = frozenset(("RPAR", "RSQB"))
_UNFINISHED = frozenset(
    ("COMMA", "ARROW", "FAT", "SUM", "SIGN", "POWER", "NOT", "COMPARE", "IF", "AND", "OR")
)

# The names of terminals in error messages; terminals with the same name are mentioned once.
_WORDS = {
    **dict.fromkeys(
        (
            "VAR",
            "WILDCARD",
            "REF",
            "NUMBER",
            "NEGATIVE",
            "STRING",
            "SINGLETON",
            "ELLIPSIS",
            "SIGN",
            "LPAR",
        ),
        "a value",
    ),
    **dict.fromkeys(("SUM", "PRODUCT", "POWER", "COMPARE", "DOT", "AND", "OR"), "an operator"),
    **dict.fromkeys(
        ("LSQB", "NOT", "LAYER", "OPT", "COLON", "KEEP", "NL", "CONTINUATION", "COMMENT", "BLANK"),
        "",
    ),
    "SEMICOLON": "`;` or a new line",
    **dict.fromkeys(("RULE", "SUMMARY", "SAFETY", "DEFAULT", "NEEDS"), "a section"),
    **dict.fromkeys(("INIT", "FORWARD", "BODY", "BLOCK", "WHERE"), "a section"),
    "RPAR": "`)`",
    "RSQB": "`]`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "IF": "`if`",
    "FAT": "`=>`",
    "ARROW": "`->`",
    "ATTRIBUTE": "an attribute's name",
    "WORD": "a name",
    "PACKAGE": "a package",
    "VERSION": "a version",
    "CODE": "`|` and a line of Python",
    "MORETHAN": "`>=`",
    "$END": "the end",
}
# The order in which a message lists the expected terminals.
_ORDER = tuple(dict.fromkeys(word for word in _WORDS.values() if word))
_WORD_OR_CHARACTER = re.compile(r"\w+|.", re.DOTALL)
_SCAN = re.compile(r"""#[^\n]*|\$\w+'*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[()\[\]]""")


class _Newlines(PostLex):
    """A filter that drops newlines inside brackets and after tokens that cannot end a node."""

    always_accept = ("NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth, previous = 0, ""
        for token in stream:
            if token.type == "NL" and (depth > 0 or previous in _UNFINISHED):
                continue
            depth += (token.type in _OPENERS) - (token.type in _CLOSERS)
            previous = token.type
            yield token


@cache
def _parser() -> Lark:
    """Return the parser of the grammar, which is built once."""
    return Lark(
        Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        start=["fragment", "transformation", "rule"],
        maybe_placeholders=False,
        postlex=_Newlines(),
        transformer=Builder(),  # Lark only looks the methods up
    )


def parse_fragment(text: str) -> Fragment | SyntaxProblem:
    """Parse nodes separated by `;` or newlines; the empty text is the empty fragment."""
    result: Fragment | SyntaxProblem = _parse(text, "fragment")
    return result


def parse_transformation(text: str) -> Transformation | SyntaxProblem:
    """Parse one `source => target`."""
    result: Transformation | SyntaxProblem = _parse(text, "transformation")
    return result


@lru_cache(maxsize=256)
def parse_rule(text: str) -> RuleSyntax | SyntaxProblem:
    """Parse the text of a `.rule` file; the results, which are constant, are kept for a process
    that loads all rules several times."""
    result: RuleSyntax | SyntaxProblem = _parse(text, "rule")
    return result


def _parse(text: str, start: Literal["fragment", "transformation", "rule"]) -> Any:
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        return _problem("a NUL character: this is not a text file", text, text.index("\0"))
    try:
        return _parser().parse(text, start=start)
    except NotationError as notation_error:
        return SyntaxProblem(notation_error.message, notation_error.line, notation_error.column)
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        offset = len(text.rstrip()) if at_end else int(error.token.start_pos or 0)
        return _unexpected(text, offset, str(error.token), error.accepts or error.expected, at_end)
    except UnexpectedCharacters as error:
        return _unexpected(text, error.pos_in_stream or 0, "", error.allowed or ())


def _unexpected(
    text: str, offset: int, token: str, expected: Iterable[str], at_end: bool = False
) -> SyntaxProblem:
    """Return the problem of a token that the grammar does not allow at an offset; `token` is ""
    when unknown."""
    bracket = _open_bracket(text, offset)
    if at_end and bracket is not None:
        return _problem(f"`{text[bracket]}` is never closed", text, bracket)
    expectation = _list_expected(expected)
    if at_end:
        return _problem(f"the text ends too early; expected {expectation}", text, offset)
    token = token or _WORD_OR_CHARACTER.findall(text, offset)[0]
    if token == "$":
        return _problem("`$` needs a name after it", text, offset)
    if token in ('"', "'"):
        return _problem("this string does not end on its line", text, offset)
    if token.startswith("\n"):
        return _problem(f"the line ends too early; expected {expectation}", text, offset)
    shown = f"`{token}`" if token.isprintable() else f"the character {token!r}"
    message = f"unexpected {shown}; expected {expectation}"
    if bracket is not None and ("`)`" in expectation or "`]`" in expectation):
        opened = _problem("", text, bracket)
        message += f" (`{text[bracket]}` opened at {opened.line}:{opened.column})"
    return _problem(message, text, offset)


def _list_expected(expected: Iterable[str]) -> str:
    """Return the names of the expected terminals as an enumeration with `or`."""
    words = {_WORDS.get(terminal, "") for terminal in expected}
    listed = [word for word in _ORDER if word in words]
    return " or ".join(filter(None, (", ".join(listed[:-1]), *listed[-1:]))) or "something else"


def _open_bracket(text: str, offset: int) -> int | None:
    """Return the offset of the innermost bracket that is still open at `offset`; None when all are
    closed."""
    stack: list[int] = []
    for token in _SCAN.finditer(text, 0, offset):
        if token.group() in "([":
            stack.append(token.start())
        elif token.group() in ")]" and stack:
            stack.pop()
    return stack[-1] if stack else None


def _problem(message: str, text: str, offset: int) -> SyntaxProblem:
    """Return a problem at an offset of the text."""
    before = text[:offset]
    return SyntaxProblem(message, before.count("\n") + 1, offset - before.rfind("\n"))
