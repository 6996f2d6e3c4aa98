"""Slots whose values differ more than those of a slot that a search ended with.

A search lowers token ids until a model accepts them, often to ones alone, and drops dimensions of a
mask until it fits: then an edit that reads another token, or another position of the mask, computes
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from regraft.verification.child.drivers.argument_slots import BATCH, LENGTH, Slot

_LIMITS = (16, 8, 6, 5, 4, 3, 2)  # below which token ids may be, larger ones first
_CONSTANT_KINDS = frozenset({"additive", "zeros", "ones"})


def more_varied_slot(slot: Slot, accepts: Callable[[Slot], bool]) -> Slot | None:
    """Return a slot that is accepted in the place of one whose values are all equal: different
    token ids for a single one, or a mask with a hidden end for a constant that has a row of fixed
    length for each row of the batch; None where there is none."""
    if slot.kind == "ids" and slot.lowest >= slot.limit - 1 and not slot.places:
        return _different_ids(slot, accepts)
    if slot.kind in _CONSTANT_KINDS and [dim.of for dim in slot.dims] == [BATCH.of, ""]:
        mask = replace(slot, kind="mask", dims=(BATCH, LENGTH))
        return mask if accepts(mask) else None
    return None


def _different_ids(slot: Slot, accepts: Callable[[Slot], bool]) -> Slot | None:
    """Return a slot with the widest range of token ids of which the largest alone are accepted, and
    all together; from 0 on where that is accepted, else from the present one on. None where there
    is no such range."""
    lowest = 0 if accepts(replace(slot, lowest=0, limit=1)) else slot.limit - 1
    for limit in _LIMITS:
        largest_only = replace(slot, lowest=limit - 1, limit=limit)
        different = replace(slot, lowest=lowest, limit=limit)
        if limit - 1 > lowest and accepts(largest_only) and accepts(different):
            return different
    return None
