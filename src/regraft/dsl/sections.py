"""Bodies and rule files: puts nodes and sections together once the grammar has recognised them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from regraft.dsl.syntax import Fragment, Node, Position, RuleSyntax, Safety, Transformation, Wildcard


class Place(Protocol):
    """Anything that stands somewhere in the text, 1-based."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class Token(Place, Protocol):
    """What is used here of the parser's tokens, which are strings."""

    def __str__(self) -> str: ...


class Culprit(Exception):
    """A text that the grammar takes and the language does not; the parser turns it into a `SyntaxProblem`."""

    def __init__(self, message: str, at: Place) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, at.line, at.column


@dataclass(frozen=True, slots=True)
class Piece:
    """One node of a body, or `keep` (`node` None); `underscore` tells `_` from `*`."""

    node: Node | Wildcard | None
    line: int
    column: int
    underscore: bool = False


_REPEATED = ("init", "forward", "body")
Side: TypeAlias = "tuple[Piece | Token, ...]"  # pieces and the separators between them


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a rule file under its heading."""

    heading: Token
    content: Any


def pieces(side: Side) -> tuple[Piece, ...]:
    return tuple(piece for piece in side if isinstance(piece, Piece))


def start(side: Side) -> Position:
    """Where the first node stands."""
    return next((Position(piece.line, piece.column) for piece in pieces(side)), Position(1, 1))


def fragment(side: Side) -> Fragment:
    """The nodes without their separators."""
    nodes: list[Node | Wildcard] = []
    for piece in pieces(side):
        if piece.node is None:
            raise Culprit("`keep` stands alone, after `=>`", piece)
        nodes.append(piece.node)
    return tuple(nodes)


def transformation(parts: Sequence[Any]) -> Transformation:
    """Source, `=>`, target; `keep` and a lone `_` are the empty target."""
    source, arrow, target, *more = parts
    if more:
        raise Culprit("a second `=>`: one transformation is `source => target`", more[0])
    if not pieces(source):
        raise Culprit("nothing before `=>`: write the fragment to be replaced", arrow)
    replacement = pieces(target)
    if not replacement:
        raise Culprit("nothing after `=>`: write the replacement, or `keep`", arrow)
    keep = len(replacement) == 1 and _is_keep(replacement[0])
    return Transformation(fragment(source), () if keep else fragment(target), start(source))


def transformations(heading: Token, parts: Sequence[Any]) -> tuple[Transformation, ...]:
    """The transformations of one section; `parts` are sides with the `=>` between them."""
    if str(heading) == "forward" and len(parts) > 3:
        raise Culprit("a second `=>`: `forward` holds one transformation; start another `forward`", parts[3])
    result: list[Transformation] = []
    source, *rest = parts
    while rest:
        arrow, side, *rest = rest
        cut = _target_end(side, rest[0]) if rest else len(side)
        result.append(transformation((source, arrow, side[:cut])))
        source = side[cut:]
    return tuple(result)


def _is_keep(piece: Piece) -> bool:
    return piece.node is None or piece.underscore


def _target_end(side: Side, arrow: Token) -> int:
    """Where a target ends and the next source starts: after `keep`, at the only blank line or the only newline."""
    for index, piece in enumerate(side):
        if isinstance(piece, Piece) and _is_keep(piece):
            return index + 1
    inner = [i for i, token in enumerate(side) if not isinstance(token, Piece) and _separates(side, i)]
    blank = [i for i in inner if re.search(r"\n[ \t\r]*\n", str(side[i]))]
    cuts = blank or inner
    if len(cuts) != 1:
        raise Culprit("a second `=>`, and it is not clear where the first replacement ends: start a new `init`", arrow)
    return cuts[0]


def _separates(side: Side, index: int) -> bool:
    """Whether only a newline stands between two nodes, without a `;`."""
    if str(side[index]) == ";":
        return False
    around = side[index - 1 : index] + side[index + 1 : index + 2]
    return len(around) == 2 and all(isinstance(piece, Piece) for piece in around)


def rule(sections: Sequence[Section]) -> RuleSyntax:
    """The whole file from its sections, which may come in any order after the name."""
    top: Place = sections[0].heading if sections else Position(1, 1)
    if not sections or str(sections[0].heading) != "rule":
        raise Culprit("a rule file starts with `rule NAME`", top)
    found: dict[str, Any] = {}
    for section in sections:
        heading = str(section.heading)
        if heading in found and heading not in _REPEATED:
            raise Culprit(f"a second `{heading}`", section.heading)
        repeated = found.get(heading, ()) if heading in _REPEATED else None
        found[heading] = section.content if repeated is None else repeated + section.content
    for required in ("summary", "safety", "forward"):
        if required not in found and (required != "forward" or "body" not in found):
            raise Culprit(f"rule `{found['rule']}` has no `{required}`", top)
    return RuleSyntax(
        str(found["rule"]),
        found["summary"],
        cast(Safety, str(found["safety"])),
        found.get("needs", ()),
        found.get("init", ()),
        found.get("forward", ()),
        found.get("where", ()),
        found.get("body", ()),
        "default" in found,
    )
