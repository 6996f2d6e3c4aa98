"""Test that a difference is shown on the smallest inputs that show it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from regraft.verification.child import call_arguments  # noqa: E402
from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.comparison_terms import Difference  # noqa: E402
from regraft.verification.child.evidence_record import Ledger  # noqa: E402
from regraft.verification.child.input_minimisation import TRIES, minimise_call  # noqa: E402


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Return an empty ledger."""
    return Ledger(tmp_path, ("Block",), float("inf"))


def test_shared_sizes_shrink_together_as_far_as_the_difference_shows(ledger: Ledger) -> None:
    def differs(call: Call) -> Difference | None:
        hidden, mask = call.args[0], call.kwargs["mask"]
        if hidden.shape[1] != mask.shape[1] or hidden.shape[-1] % 5:
            return None  # what the original does not take
        return Difference("output", f"{tuple(hidden.shape)}") if hidden.shape[1] > 1 else None

    call = Call((torch.ones(3, 8, 20),), {"mask": torch.ones(3, 8)}, "as recorded")
    smallest, difference = minimise_call(call, Difference("output", "first"), differs, ledger)
    assert call_arguments.shapes(smallest) == [[1, 2, 5], [1, 2]]
    assert (smallest.label, difference.sentence) == ("as recorded", "(1, 2, 5)")


def test_what_cannot_shrink_stays_and_the_search_ends(ledger: Ledger) -> None:
    tried = []

    def differs(call: Call) -> Difference | None:
        tried.append(call_arguments.shapes(call))
        return None

    call = Call((torch.ones(16, 3, 5, 7, 11, 13),), {}, "as recorded")
    first = Difference("output", "first")
    assert minimise_call(call, first, differs, ledger) == (call, first)
    assert 0 < len(tried) <= TRIES
