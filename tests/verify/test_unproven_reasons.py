"""Test which reasons a definition that nothing ran is given."""

from __future__ import annotations

import pytest

from regraft.verification.definition_changes import find_changes
from regraft.verification.missing_evidence import missing_comparison

BEFORE = """\
class Block:
    def forward(self, x):
        return x + x


class Other:
    def forward(self, x):
        return x
"""
OWN = "Block (inference): cannot be built from width=8: TypeError"
NETWORK = "Other (inference): no inputs could be made that it accepts: ValueError"
LIMIT = "the time limit left no room for more models"


@pytest.mark.parametrize(
    ("skipped", "shown"),
    [
        ([NETWORK, OWN], f": {OWN}."),
        ([NETWORK, LIMIT, OWN], f": {OWN}; {LIMIT}."),
        (["Blocks (inference): ValueError", OWN], f": {OWN}."),
        (["Other of net.parts (inference): ValueError", LIMIT], f": {LIMIT}."),
        (["Other(width=8) as a whole, eval mode, is left out: noise", OWN], f": {OWN}."),
        ([NETWORK], f": {NETWORK}."),
    ],
)
def test_failures_of_other_definitions_are_left_out(skipped: list[str], shown: str) -> None:
    (change,) = find_changes(BEFORE.encode(), BEFORE.replace("x + x", "2 * x").encode())
    reason = missing_comparison(change, {"skipped": skipped}, {}, "net.py")
    assert reason.startswith(f"nothing ran its changed lines{shown}")
