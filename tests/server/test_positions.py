"""Test places in texts as the protocol counts them."""

from __future__ import annotations

import pytest
from lsprotocol import types

from lsp_session import applied
from regraft.server.diagnostics import shifted
from regraft.server.positions import Positions

TEXT = "a\u00e9\U0001f600b\r\nsecond\rth\u2028ird\x0c\nlast"


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 7), ("utf-16", 4), ("utf-32", 3)])
def test_columns_are_in_units_of_the_encoding(encoding: str, column: int) -> None:
    positions = Positions(TEXT.encode(), encoding)
    offset = TEXT.encode().index(b"b")
    assert positions.position(offset) == types.Position(0, column)
    assert positions.offset(types.Position(0, column)) == offset


def test_lines_end_where_the_protocol_says_and_nowhere_else() -> None:
    positions = Positions(TEXT.encode())
    assert len(positions.starts) == 4
    for offset in positions.starts:
        assert positions.offset(positions.position(offset)) == offset
    assert positions.position(TEXT.encode().index(b"ird")) == types.Position(2, 3)
    assert positions.position(len(TEXT.encode())) == types.Position(3, 4)


def test_positions_outside_of_the_text_are_the_nearest_in_it() -> None:
    positions = Positions(b"ab\ncd\n")
    assert positions.offset(types.Position(0, 99)) == 2
    assert positions.offset(types.Position(9, 0)) == 6
    assert Positions(b"").position(0) == types.Position(0, 0)
    assert Positions(b"").line_range(5) == types.Range(types.Position(0, 0), types.Position(0, 0))


def test_edits_by_lines_make_the_other_text() -> None:
    before = "one\ntwo\n\u00e9 three\nfour"
    for after in ("", "one\n", "zero\none\ntwo\n\u00e9 3\nfour\nfive\n", before):
        edits = Positions(before.encode()).edits_to(after.encode())
        assert applied(before, edits) == after
    assert not Positions(before.encode()).edits_to(before.encode())


def test_diagnostics_move_with_their_lines() -> None:
    def at(line: int) -> types.Diagnostic:
        place = types.Range(types.Position(line, 0), types.Position(line, 1))
        return types.Diagnostic(place, "text")

    before, after = b"a\nb\nc\nd\n", b"a\nx\ny\nz\nc\nd\n"
    moved = shifted([at(0), at(1), at(3)], before, after)
    assert [diagnostic.range.start.line for diagnostic in moved] == [0, 5]
