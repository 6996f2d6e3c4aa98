"""Places in a text as the Language Server Protocol counts them: lines end at a line feed, a
carriage return or both, and columns are in units of the encoding that both sides agreed on."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lsprotocol import types

from regraft.source.text import Edit

UTF8, UTF32 = types.PositionEncodingKind.Utf8, types.PositionEncodingKind.Utf32


@dataclass(frozen=True)
class Positions:
    """The places of a text, from byte offsets into its UTF-8 form and back."""

    text: bytes
    encoding: str = types.PositionEncodingKind.Utf16

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The byte offset at which each line starts."""
        starts = [0]
        # bytes are split at line feeds and carriage returns alone, unlike strings
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        if len(starts) > 1 and not self.text.endswith((b"\n", b"\r")):
            starts.pop()
        return tuple(starts)

    def position(self, offset: int) -> types.Position:
        """Return the position of a byte offset."""
        line = bisect_right(self.starts, offset) - 1
        return types.Position(line, self._units(self.text[self.starts[line] : offset]))

    def range(self, start: int, end: int) -> types.Range:
        """Return the range between two byte offsets."""
        return types.Range(self.position(start), self.position(end))

    def offset(self, position: types.Position) -> int:
        """Return the byte offset of a position; behind the end of its line it is that end."""
        if position.line >= len(self.starts):
            return len(self.text)
        start = self.starts[position.line]
        end = self.starts[position.line + 1] if position.line + 1 < len(self.starts) else None
        line = self.text[start:end].rstrip(b"\r\n")
        if self.encoding == UTF8:
            return start + min(position.character, len(line))
        units = 0
        characters = line.decode(errors="replace")
        for index, character in enumerate(characters):
            if units >= position.character:
                return start + len(characters[:index].encode())
            units += self._units(character.encode())
        return start + len(line)

    def line_range(self, line: int, column: int = 0) -> types.Range:
        """Return the range from a 1-based line and column in characters to the end of the line; of
        line 0 the start of the text."""
        index = min(max(line - 1, 0), len(self.starts) - 1)
        end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
        content = self.text[self.starts[index] : end].rstrip(b"\r\n")
        before = content.decode(errors="replace")[: max(column - 1, 0)].encode()
        start = self.starts[index] + min(len(before), len(content))
        return self.range(start, self.starts[index] + len(content))

    def text_edits(self, edits: Iterable[Edit]) -> list[types.TextEdit]:
        """Return byte edits as edits of the protocol."""
        return [
            types.TextEdit(self.range(edit.span.start, edit.span.end), edit.text) for edit in edits
        ]

    def edits_to(self, changed: bytes) -> list[types.TextEdit]:
        """Return the edits, by whole lines, that make another text of this one."""
        return [
            types.TextEdit(self.range(start, end), text.decode(errors="replace"))
            for start, end, text in _line_edits(self.text, changed)
        ]

    def _units(self, text: bytes) -> int:
        """Return the length of a text in units of the encoding."""
        if self.encoding == UTF8 or text.isascii():
            return len(text)
        characters = text.decode(errors="replace")
        if self.encoding == UTF32:
            return len(characters)
        return len(characters.encode("utf-16-le", "surrogatepass")) // 2


def _line_edits(before: bytes, after: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the byte offsets of each run of lines that differs, and its new text."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, old, new)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag != "equal":
            yield starts[first], starts[last], b"".join(new[new_first:new_last])
