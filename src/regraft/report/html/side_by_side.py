"""Compute the rows of a side-by-side diff from the edits of a text."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

CONTEXT = 2  # unchanged lines around a change
_TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)

# A part of a line, and whether it differs from the other side.
Part = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class Cell:
    """A line of one version, with its 1-based number."""

    number: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """Two lines that stand beside each other; None where a version has no such line."""

    old: Cell | None
    new: Cell | None

    @property
    def kind(self) -> str:
        """The word "same", "removed", "added" or "changed"."""
        if self.old is None:
            return "added"
        if self.new is None:
            return "removed"
        return "same" if self.old.parts == self.new.parts else "changed"


def hunks(text: bytes, edits: Sequence[Mapping[str, Any]]) -> Iterator[list[Row]]:
    """Yield the rows of each part of a text that edits change, with `CONTEXT` lines around it.

    text   the UTF-8 form of a file
    edits  the edits as the JSON report has them: `start` and `end` with `byte`, and `text`; they do
           not overlap
    """
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    shift = 0  # new lines before the hunk less old ones
    for first, last, members in _line_ranges(starts, edits):
        old = text[starts[first] : starts[last]]
        new = _edited(old, starts[first], members)
        old_lines, new_lines = _decoded_lines(old), _decoded_lines(new)
        yield list(_rows(old_lines, new_lines, first + 1, first + 1 + shift))
        shift += len(new_lines) - len(old_lines)


def hunks_between(old: bytes, new: bytes) -> Iterator[list[Row]]:
    """Yield the rows of each part in which two texts, in UTF-8, differ, with `CONTEXT` lines around
    it."""
    old_lines, new_lines = _decoded_lines(old), _decoded_lines(new)
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        yield list(
            _rows(
                old_lines[first[1] : last[2]],
                new_lines[first[3] : last[4]],
                first[1] + 1,
                first[3] + 1,
            )
        )


def _line_ranges(
    starts: Sequence[int], edits: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, int, list[Mapping[str, Any]]]]:
    """Yield ranges of 0-based lines (first, after the last) with the edits in each; ranges that
    would touch are one.

    starts  the byte at which each line begins, and the number of bytes
    """
    number_of_lines = len(starts) - 1
    ranges: list[tuple[int, int, list[Mapping[str, Any]]]] = []
    for edit in sorted(edits, key=lambda edit: int(edit["start"]["byte"])):
        first = max(_line_of(starts, edit["start"]["byte"]) - CONTEXT, 0)
        last = min(_line_of(starts, edit["end"]["byte"]) + CONTEXT + 1, number_of_lines)
        if ranges and first <= ranges[-1][1]:
            before, end, members = ranges[-1]
            ranges[-1] = before, max(end, last), [*members, edit]
        else:
            ranges.append((first, last, [edit]))
    yield from ranges


def _line_of(starts: Sequence[int], byte: int) -> int:
    """Return the 0-based line of a byte; the end of the text belongs to the last line."""
    return max(bisect_right(starts, byte, hi=len(starts) - 1) - 1, 0)


def _edited(text: bytes, offset: int, edits: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a part of a text, which begins at byte `offset`, with edits applied."""
    for edit in reversed(edits):
        start, end = edit["start"]["byte"] - offset, edit["end"]["byte"] - offset
        text = text[:start] + edit["text"].encode() + text[end:]
    return text


def _rows(
    old: Sequence[str], new: Sequence[str], old_number: int, new_number: int
) -> Iterator[Row]:
    """Yield the rows of two texts, by lines, whose first lines have these numbers."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        pairs = zip_longest(range(old_start, old_end), range(new_start, new_end))
        for old_index, new_index in pairs:
            old_line = None if old_index is None else old[old_index]
            new_line = None if new_index is None else new[new_index]
            old_parts, new_parts = _parts(old_line, new_line, tag == "equal")
            yield Row(
                None if old_index is None else Cell(old_number + old_index, old_parts),
                None if new_index is None else Cell(new_number + new_index, new_parts),
            )


def _parts(
    old: str | None, new: str | None, equal: bool
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Return the parts of two lines, of which one may be missing; the words that differ are marked
    where both are there."""
    if equal or old is None or new is None:
        return _unmarked(old), _unmarked(new)
    old_words, new_words = _TOKEN.findall(old), _TOKEN.findall(new)
    old_parts: list[Part] = []
    new_parts: list[Part] = []
    matcher = difflib.SequenceMatcher(None, old_words, new_words, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        for parts, words in (
            (old_parts, old_words[old_start:old_end]),
            (new_parts, new_words[new_start:new_end]),
        ):
            if words:
                parts.append(("".join(words), tag != "equal"))
    return tuple(old_parts), tuple(new_parts)


def _unmarked(line: str | None) -> tuple[Part, ...]:
    """Return a line as a part that does not differ; no part for an empty or a missing one."""
    return ((line, False),) if line else ()


def _decoded_lines(text: bytes) -> list[str]:
    """Return the lines of UTF-8, without a byte order mark and line ends."""
    return [line.decode("utf-8", "replace").removeprefix("\ufeff") for line in text.splitlines()]
