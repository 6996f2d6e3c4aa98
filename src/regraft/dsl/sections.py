"""Construction of fragments, transformations and rule files from the nodes and sections of the
grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from regraft.dsl.syntax import (
    Fragment,
    Node,
    Position,
    RuleSyntax,
    Safety,
    Transformation,
    Wildcard,
)


class Place(Protocol):
    """An object with a position in the text, counted from 1."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class Token(Place, Protocol):
    """The part of the interface of the parser's tokens, which are strings, that this
    package uses."""

    def __str__(self) -> str: ...


class NotationError(Exception):
    """An error in a text that the grammar accepts; the parser converts the exception into a
    `SyntaxProblem`."""

    def __init__(self, message: str, at: Place) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, at.line, at.column


@dataclass(frozen=True, slots=True)
class Piece:
    """One node of a body, or `keep` (`node` is None); `underscore` distinguishes the wildcard `_`
    from `*`."""

    node: Node | Wildcard | None
    line: int
    column: int
    underscore: bool = False


_REPEATED = ("init", "forward", "body", "block")
Side: TypeAlias = "tuple[Piece | Token, ...]"  # pieces and the separators between them


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a rule file under its heading."""

    heading: Token
    content: Any


def pieces(side: Side) -> tuple[Piece, ...]:
    """Return the nodes and `keep` marks of a side without the separators."""
    return tuple(piece for piece in side if isinstance(piece, Piece))


def start(side: Side) -> Position:
    """Return the position of the first node, or that of the start of the text when there is no
    node."""
    return next((Position(piece.line, piece.column) for piece in pieces(side)), Position(1, 1))


def fragment(side: Side) -> Fragment:
    """Return the nodes of a side without the separators; raise NotationError for `keep`."""
    nodes: list[Node | Wildcard] = []
    for piece in pieces(side):
        if piece.node is None:
            raise NotationError("`keep` stands alone, after `=>`", piece)
        nodes.append(piece.node)
    return tuple(nodes)


def transformation(parts: Sequence[Any]) -> Transformation:
    """Return the transformation of the parts source, `=>`, target; `keep` and a single `_` are the
    empty target."""
    source, arrow, target, *extra_parts = parts
    if extra_parts:
        raise NotationError(
            "a second `=>`: one transformation is `source => target`", extra_parts[0]
        )
    if not pieces(source):
        raise NotationError("nothing before `=>`: write the fragment to be replaced", arrow)
    replacement = pieces(target)
    if not replacement:
        raise NotationError("nothing after `=>`: write the replacement, or `keep`", arrow)
    is_keep = len(replacement) == 1 and _is_keep(replacement[0])
    return Transformation(fragment(source), () if is_keep else fragment(target), start(source))


def transformations(heading: Token, parts: Sequence[Any]) -> tuple[Transformation, ...]:
    """Return the transformations of one section; `parts` are sides with the `=>` between them."""
    if str(heading) == "forward" and len(parts) > 3:
        raise NotationError(
            "a second `=>`: `forward` holds one transformation; start another `forward`", parts[3]
        )
    result: list[Transformation] = []
    source, *following_parts = parts
    while following_parts:
        arrow, side, *following_parts = following_parts
        target_end = _target_end(side, following_parts[0]) if following_parts else len(side)
        result.append(transformation((source, arrow, side[:target_end])))
        source = side[target_end:]
    return tuple(result)


def _is_keep(piece: Piece) -> bool:
    return piece.node is None or piece.underscore


def _target_end(side: Side, arrow: Token) -> int:
    """Return the index in `side` at which the target ends and the next source starts.

    This is after `keep`, at the only blank line, or else at the only newline. `arrow` is the
    position for an error.
    """
    for index, piece in enumerate(side):
        if isinstance(piece, Piece) and _is_keep(piece):
            return index + 1
    ends = _possible_ends(side)
    if len(ends) != 1:
        raise NotationError(
            "a second `=>`, and it is not clear where the first replacement ends: start a new"
            " `init`",
            arrow,
        )
    return ends[0]


def _possible_ends(side: Side) -> list[int]:
    """Return the indices of the blank lines between two statements in `side`; of the newlines there
    where it has no blank line."""
    newlines = [
        index
        for index, part in enumerate(side)
        if not isinstance(part, Piece) and _is_line_separator(side, index)
    ]
    blank_lines = [index for index in newlines if re.search(r"\n[ \t\r]*\n", str(side[index]))]
    return blank_lines or newlines


def _is_line_separator(side: Side, index: int) -> bool:
    """Return whether the separator at an index is a newline between two nodes, without a `;`."""
    if str(side[index]) == ";":
        return False
    neighbours = side[index - 1 : index] + side[index + 1 : index + 2]
    return len(neighbours) == 2 and all(isinstance(piece, Piece) for piece in neighbours)


def _contents(sections: Sequence[Section]) -> dict[str, Any]:
    """Return the content of sections by their headings, of those that may be repeated all content;
    raise NotationError for a second section of another heading."""
    content_by_heading: dict[str, Any] = {}
    for section in sections:
        heading = str(section.heading)
        if heading in _REPEATED:
            content_by_heading[heading] = content_by_heading.get(heading, ()) + section.content
        elif heading in content_by_heading:
            raise NotationError(f"a second `{heading}`", section.heading)
        else:
            content_by_heading[heading] = section.content
    return content_by_heading


def rule(sections: Sequence[Section]) -> RuleSyntax:
    """Return the rule of a file from its sections, which may come in any order after the name."""
    start_place: Place = sections[0].heading if sections else Position(1, 1)
    if not sections or str(sections[0].heading) != "rule":
        raise NotationError("a rule file starts with `rule NAME`", start_place)
    content_by_heading = _contents(sections)
    bodies = content_by_heading.get("body", ()) + content_by_heading.get("block", ())
    for required in ("summary", "safety", "forward"):
        if required not in content_by_heading and not (required == "forward" and bodies):
            raise NotationError(
                f"rule `{content_by_heading['rule']}` has no `{required}`", start_place
            )
    return RuleSyntax(
        str(content_by_heading["rule"]),
        content_by_heading["summary"],
        cast(Safety, str(content_by_heading["safety"])),
        content_by_heading.get("needs", ()),
        content_by_heading.get("init", ()),
        content_by_heading.get("forward", ()),
        content_by_heading.get("where", ()),
        bodies,
        "default" in content_by_heading,
    )
