"""The check of the host's decisions and results against the original, on the example calls and on
perturbed inputs."""

from __future__ import annotations

from typing import Any

from regraft.report.terminal import Watch, ignore
from regraft.splitting.checking.original_network import (
    MAX_ROUNDED,
    CheckResult,
    Original,
    attempt,
    is_beyond_limits,
)
from regraft.splitting.checking.result_difference import difference, first_difference
from regraft.splitting.checking.rounding_test import is_rounding
from regraft.splitting.checking.saved_inputs import replay_advice
from regraft.splitting.errors import UnseenSide, Unsplittable
from regraft.splitting.program.residual import Loop, Side, all_steps, sides_at_infinity
from regraft.splitting.sampling.decision_recorder import TooLong
from regraft.splitting.sampling.varied_calls import (
    CHECKED,
    CHECKED_OF_STATIC,
    MAX_PERTURBED,
    vary_calls,
)

__all__ = ["check_split_network", "difference", "unseen_side_errors"]

_REMEDY = (
    'give an example call that takes it (or split with unseen="raise", --unseen raise,'
    " where none can)"
)


def check_split_network(
    original: Original, split: Any, sides: list[Side], watch: Watch = ignore
) -> CheckResult:
    """Compare the split network's results and decisions with the original's, input by input, and
    return the result.

    The original's decisions are those of the residual program, whose results have to be the
    original's, too. Raises Unsplittable for a difference that neither a threshold nor rounding
    explains.
    """
    return DecisionCheck(original, split, sides).run(watch)


def list_taken_sides(original: Original, sides: list[Side]) -> set[int]:
    """Return the numbers of the sides that the residual program takes on the inputs of the check,
    with those that sizes decide or that only infinite or NaN inputs may take; of all sides where a
    run on an input is refused. Stops where all are taken."""
    check = DecisionCheck(original, None, sides)
    every_side = set(range(len(sides)))
    taken = check.infinite_sides | {number for number in every_side if sides[number].by_size}
    for number, call in enumerate(vary_calls(original.calls, original.varied)):
        if taken == every_side or number >= check.first_extreme:
            break
        if check.has_enough_inputs(number):
            continue
        try:
            outcome = original.trace(call)
        except TooLong:
            if check.is_example(number):
                return every_side
            continue
        except Unsplittable:
            return every_side
        taken.update(original.recorder.trace)
        if not isinstance(outcome, Exception):
            check.result.equal.add(number)
    return taken


class DecisionCheck:
    """Compares results and decisions of a split network with the original's.

    infinite_sides: the numbers of the sides that only infinite or NaN inputs take. first_extreme:
    the number of the first of these inputs, which come last. is_static: whether the network is one
    region, whatever the values of its inputs.
    """

    def __init__(self, original: Original, split: Any, sides: list[Side]) -> None:
        self.original, self.split, self.sides = original, split, sides
        self.recorder = original.recorder
        self.infinite_sides = sides_at_infinity(original.steps, self.recorder.regions)
        self.first_extreme = len(original.calls) + MAX_PERTURBED
        regions = self.recorder.regions
        has_loop = any(isinstance(step, Loop) for step in all_steps(original.steps))
        self.is_static = (
            len(regions) == 1 and not (sides or has_loop) and not regions[0].sized_by_data
        )
        self.result = CheckResult()

    def run(self, watch: Watch) -> CheckResult:
        """Compare on the inputs of `vary_calls` until enough are compared, then on those of extreme
        values until each side in `infinite_sides` is taken; return the result."""
        for number, call in enumerate(vary_calls(self.original.calls, self.original.varied)):
            is_extreme = number >= self.first_extreme
            if is_extreme or self.has_enough_inputs(number):
                if self.result.taken >= self.infinite_sides:
                    break
                if not is_extreme:
                    continue
            watch(f"comparing results on input {number + 1}")
            self.compare(number, call)
        return self.result

    def is_example(self, number: int) -> bool:
        """Return whether an input is a call of the user."""
        return number < len(self.original.calls)

    def has_enough_inputs(self, number: int) -> bool:
        """Return whether an input is no example call, and `CHECKED` inputs have had equal results,
        or `CHECKED_OF_STATIC` where the network is static."""
        enough = CHECKED_OF_STATIC if self.is_static else CHECKED
        return len(self.result.equal) >= enough and not self.is_example(number)

    def compare(self, number: int, call: dict[str, Any]) -> None:
        """Run the original, the residual program and the split network on one input, compare
        results and decisions, and add the input to `self.result`.

        Inputs that the network does not take add nothing, infinite and NaN ones only the infinite
        sides that they take; raises Unsplittable for a difference, but not on the latter.
        """
        try:
            traced = self.original.trace(call)
            expected = self.original.run(call)
        except TooLong as problem:
            if self.is_example(number):
                raise self.original.refuse(str(problem)) from problem
            return  # the original might not end on this input
        got = attempt(lambda: self.split(**call))
        if not self.is_example(number) and is_no_answer(traced, expected, got):
            return
        mismatch = difference(traced, expected)
        if number >= self.first_extreme:
            # else the network was not made for such an input
            if not mismatch and self.decides_equally() and not difference(got, expected):
                self.result.taken.update(self.infinite_sides & {*self.recorder.trace})
            return
        if mismatch:
            raise self.original.refuse(
                f"the specialised program differs from the original: {mismatch}",
                self.recorder.place if isinstance(traced, Exception) else None,
            )
        position = first_difference(self.recorder.trace, self.split.host.trace)
        ended_early = isinstance(got, Exception) and position == len(self.split.host.trace)
        if position is None or ended_early:
            self.compare_results(number, call, got, expected)
        else:
            self.excuse_decision(number, call, position)

    def decides_equally(self) -> bool:
        """Return whether the split network took the sides that the residual program took."""
        return bool(self.recorder.trace == self.split.host.trace)

    def compare_results(self, number: int, call: dict[str, Any], got: Any, expected: Any) -> None:
        """Add an input with equal results, and its sides, to the result; or else a sentence on a
        difference that the order of equal values or rounding explains.

        Raises Unsplittable for any other difference.
        """
        mismatch = difference(got, expected)
        if not mismatch:
            self.result.taken.update(self.split.host.trace)
            self.result.equal.add(number)
            return
        self.original.look_for_thresholds(call)
        if self.recorder.orders_equals and len(self.result.at_threshold) < MAX_ROUNDED:
            self.result.at_threshold.append(
                f"input {number}: equal values are put in another order"
            )
            return
        has_room = len(self.result.rounding) < MAX_ROUNDED
        if not (has_room and is_rounding(self.original.model, call, got, expected)):
            advice = replay_advice(call, self.split.directory)
            raise self.original.refuse(
                f"the split network differs from the original: {mismatch}{advice}"
            )
        self.result.rounding.append(f"input {number}: {mismatch}")

    def excuse_decision(self, number: int, call: dict[str, Any], position: int) -> None:
        """Note in the result, under `at_threshold`, an input whose decision at `position` of the
        trace differs from the original's.

        Raises Unsplittable where the values compared are not at the threshold.
        """
        next_number = slice(position, position + 1)
        side_number = (self.recorder.trace[next_number] or self.split.host.trace[next_number])[0]
        side = self.sides[side_number]
        self.original.look_for_thresholds(call)
        if not any(self.recorder.near[next_number]):
            advice = replay_advice(call, self.split.directory)
            raise Unsplittable(
                side.path,
                side.line,
                f"the split network decides differently from the original here{advice}",
            )
        self.result.at_threshold.append(f"input {number}: {side.path}:{side.line}")


def is_no_answer(traced: Any, expected: Any, got: Any) -> bool:
    """Return whether a made-up input shows nothing: the residual program, the original and the
    split network raise for it, or the first and the last say that it is beyond their limits."""
    all_raise = all(isinstance(outcome, Exception) for outcome in (traced, expected, got))
    return all_raise or (is_beyond_limits(traced) and is_beyond_limits(got))


def unseen_side_errors(
    sides: list[Side], taken: set[int], remedy: str = _REMEDY
) -> list[Unsplittable]:
    """Return a refusal for each side that no checked input took, with what to do, `remedy`."""
    return [
        unseen_side_error(sides, number, remedy)
        for number in range(len(sides))
        if number not in taken
    ]


def unseen_side_error(sides: list[Side], number: int, remedy: str = _REMEDY) -> Unsplittable:
    """Return the error, for the caller to raise, that no checked input took side `number`; it names
    the place, the condition and what to do, `remedy`."""
    side = sides[number]
    equal_sides = [position for position, candidate in enumerate(sides) if candidate == side]
    place = ""
    if len(equal_sides) > 1:
        place = f", place {equal_sides.index(number) + 1} of {len(equal_sides)} of this line"
    return UnseenSide(
        side.path,
        side.line,
        f"no checked input took the side where {side.label}{place}; {remedy}",
    )


def error_of_all(refusals: list[Unsplittable]) -> UnseenSide:
    """Return the first of some refusals of `unseen_side_errors`, for the caller to raise, with the
    lines of all further ones, so that one more run finds every example that is missing."""
    first, *further = refusals
    reason = first.reason
    if further:
        lines = ", ".join(map(str, sorted({refusal.line for refusal in further})))
        sides = "1 further side" if len(further) == 1 else f"{len(further)} further sides"
        reason += f"; {sides} without such an input: line {lines}"
    return UnseenSide(first.path, first.line, reason)
