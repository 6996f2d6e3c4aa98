"""Which of a version's patches are enough for a difference: the others are taken back, one after the other."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable

from regraft.verify.changes import definition_lines

Hunk = tuple[int, int, int, int]  # first and last line of the original and of the changed version, as in difflib


def fewest(original: bytes, changed: bytes, differs: Callable[[bytes], bool]) -> tuple[bytes, tuple[int, ...]]:
    """The changed version without the patches that it can lose and still differ, and which of its lines are left.

    No lines where it can lose none. differs: whether a version differs from the original where `changed` did. What
    stands outside of definitions, such as imports, stays. What does not parse is not tried. O(patches) calls.
    """
    before, after = original.splitlines(keepends=True), changed.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    hunks = [one[1:] for one in matcher.get_opcodes() if one[0] != "equal"]
    inside = definition_lines(ast.parse(changed))
    patches = [hunk for hunk in hunks if inside & {*lines(hunk)}]
    if len(patches) < 2 or not differs(changed):
        return changed, ()
    kept = list(hunks)
    for patch in reversed(patches):
        left = [one for one in kept if one != patch]
        text = with_hunks(before, after, left)
        if any(one in patches for one in left) and parses(text) and differs(text):
            kept = left
    if len(kept) == len(hunks):
        return changed, ()
    enough = sorted(line for one in kept if one in patches for line in lines(one))
    return with_hunks(before, after, kept), tuple(enough)


def lines(hunk: Hunk) -> range:
    """Lines of the changed version, counted from 1; where lines are taken away the one after them."""
    return range(hunk[2] + 1, max(hunk[3], hunk[2] + 1) + 1)


def with_hunks(before: list[bytes], after: list[bytes], hunks: list[Hunk]) -> bytes:
    """The original with some of the hunks."""
    made: list[bytes] = []
    place = 0
    for first, last, start, end in hunks:
        made += [*before[place:first], *after[start:end]]
        place = last
    return b"".join([*made, *before[place:]])


def parses(text: bytes) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
