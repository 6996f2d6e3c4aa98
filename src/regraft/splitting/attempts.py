"""What is tried in turn where a network cannot be split at first."""

from __future__ import annotations

from dataclasses import replace

from regraft.splitting.errors import UncompilableRegion, UnseenSide
from regraft.splitting.specialisation import Specialised
from regraft.splitting.specialising.state import ClampedSizes, Plan


def list_stricter(clamps: ClampedSizes) -> list[ClampedSizes]:
    """Return how else a network may be split that could not be split so: with the host checking
    further sizes of those that it was found to have."""
    stricter = []
    if clamps.count and not clamps.guarded:
        stricter.append(ClampedSizes(guarded=True, fixes_widths=clamps.fixes_widths))
    if clamps.widths and not clamps.fixes_widths:
        stricter.append(ClampedSizes(guarded=clamps.guarded, fixes_widths=True))
    return stricter


def change_plan(
    plan: Plan, refusal: UnseenSide | UncompilableRegion, specialised: Specialised
) -> Plan:
    """Return the plan by which a network may be split that was refused, with loops that are not
    unrolled or calls that are followed; the same plan where there is no other."""
    if isinstance(refusal, UncompilableRegion):
        return replace(plan, followed=plan.followed | refusal.places)
    # each iteration of an unrolled loop has sides of its own
    loops = specialised.unrolled.get((refusal.path, refusal.line), set())
    return replace(plan, rolled=plan.rolled | loops)
