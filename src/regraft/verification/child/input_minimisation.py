"""Cut the sizes of the inputs that show a difference, as long as they show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_variants import ALL, ROWS, narrow_tensors
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.evidence_record import Ledger

TRIES = 32

Cut = tuple[int, int, slice]


def minimise_call(
    call: Call, difference: Difference, differs: Callable[[Call], Difference | None], ledger: Ledger
) -> tuple[Call, Difference]:
    """Return the smallest call that still differs, of those tried while there is time, and its
    difference; at worst `call` and `difference` themselves.

    Sizes are cut greedily: first rows, then every size that tensors share, to one, to two, by half.
    `differs` returns None for a call without a difference. Inputs that the original does not accept
    show none, so a cut that goes too far is undone. TRIES such cuts end the search.
    """
    refused: list[Cut] = []
    while len(refused) < TRIES and not ledger.is_late():
        cut = next((cut for cut in _cuts(call) if cut not in refused), None)
        if cut is None:
            break
        size, to, dims = cut
        smaller = narrow_tensors(call, size, to, dims, call.label)
        smaller_difference = differs(smaller)
        if smaller_difference is None:
            refused.append(cut)
        else:
            call, difference = smaller, smaller_difference
    return call, difference


def _cuts(call: Call) -> Iterator[Cut]:
    """Yield (size, smaller size, dimensions): for rows, then for all dimensions, the largest cut of
    the largest size first."""
    shapes = call_arguments.shapes(call)
    for dims in (ROWS, ALL):
        for size in sorted({size for shape in shapes for size in shape[dims]}, reverse=True):
            yield from ((size, to, dims) for to in sorted({1, 2, size // 2}) if 0 < to < size)
