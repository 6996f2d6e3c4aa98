"""The check: the split network against the original, on the examples and on inputs made from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.splitting.errors import Unsplittable
from regraft.splitting.record import Recorder, TooLong
from regraft.splitting.residual import Side, Step, beyond_numbers
from regraft.splitting.results import contents, same_kind
from regraft.splitting.rounding import is_rounding

CHECKED = 200  # inputs on which the result is compared with the original
MADE = 2 * CHECKED  # perturbed inputs at most
EXTREMES = (math.nan, math.inf, -math.inf)  # for decisions that compare with infinity
ROUNDED = 10  # inputs whose results may differ by what rounding is worth
BATCH = 8  # samples of a batch that is checked
SCALES = (0.0, 0.1, 10.0, -1.0, 3.0, -0.1, -10.0)  # of inputs that shall reach other sides


@dataclass
class Checked:
    """Inputs that were equal, by number, the sides that they took, and inputs that a threshold decides otherwise.

    rounding: inputs whose results differ by what rounding is worth in the original itself.
    """

    equal: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    at_threshold: list[str] = field(default_factory=list)
    rounding: list[str] = field(default_factory=list)


def check(model: torch.nn.Module, made: Any, calls: list[dict[str, Any]], recorder: Recorder, steps: list[Step],
          sides: list[Side]) -> Checked:  # fmt: skip
    """Compare results and decisions; a difference is an error.

    The original's decisions are those of the residual program, whose results have to be the original's, too.
    """
    found = Checked()
    beyond = beyond_numbers(steps, recorder.regions)
    for number, call in enumerate(examples(calls)):
        extreme = number >= len(calls) + MADE
        if extreme or (len(found.equal) >= CHECKED and number >= len(calls)):
            if found.taken >= beyond:
                break
            if not extreme:
                continue
        try:
            traced = attempt(lambda call=call: recorder.record(steps, call))  # type: ignore[misc]
        except TooLong as problem:
            if number < len(calls):
                raise Unsplittable(recorder.path, 0, str(problem)) from problem
            continue  # the original might not end on this input
        with torch.no_grad():
            expected = attempt(lambda call=call: model(**call))  # type: ignore[misc]
        got = attempt(lambda call=call: made(**call))  # type: ignore[misc]
        if all(isinstance(one, Exception) for one in (traced, expected, got)) and number >= len(calls):
            continue  # no input for this network
        wrong = difference(traced, expected)
        if extreme and (wrong or recorder.trace != made.host.trace or difference(got, expected)):
            continue  # nothing that the network was made for
        if extreme:
            found.taken.update(beyond & {*recorder.trace})
            continue
        if wrong:
            raise Unsplittable(recorder.path, 0, f"the specialised program differs from the original: {wrong}")
        place = first_difference(recorder.trace, made.host.trace)
        if place is None:
            wrong = difference(got, expected)
            if wrong:
                attempt(lambda call=call: recorder.record(steps, call, near=True))  # type: ignore[misc]
                if recorder.equals and len(found.at_threshold) < ROUNDED:
                    found.at_threshold.append(f"input {number}: equal values are put in another order")
                    continue
                if len(found.rounding) >= ROUNDED or not is_rounding(model, call, got, expected):
                    raise Unsplittable(recorder.path, 0, f"the split network differs from the original: {wrong}")
                found.rounding.append(f"input {number}: {wrong}")
                continue
            found.taken.update(made.host.trace)
            found.equal.add(number)
            continue
        where = sides[(recorder.trace[place : place + 1] or made.host.trace[place : place + 1])[0]]
        attempt(lambda call=call: recorder.record(steps, call, near=True))  # type: ignore[misc]
        if not any(recorder.near[place : place + 1]):
            raise Unsplittable(where.path, where.line, "the split network decides differently from the original here")
        found.at_threshold.append(f"input {number}: {where.path}:{where.line}")
    return found


def check_file(model: torch.nn.Module, made: Any, calls: list[dict[str, Any]], recorder: Recorder, steps: list[Step],
               found: Checked) -> Checked:  # fmt: skip
    """The same for the single file, on the inputs that were equal before; its decisions show in its results only."""
    again = Checked(taken=found.taken, at_threshold=list(found.at_threshold), rounding=list(found.rounding))
    for number, call in enumerate(examples(calls)):
        if number > max(found.equal, default=-1):
            break
        if number not in found.equal:
            continue
        with torch.no_grad():
            expected = attempt(lambda call=call: model(**call))  # type: ignore[misc]
        got = attempt(lambda call=call: made(**call))  # type: ignore[misc]
        raised = isinstance(expected, Exception) and isinstance(got, Exception)  # ONNX Runtime has its own exceptions
        wrong = "" if raised else difference(got, expected)
        if wrong:
            attempt(lambda call=call: recorder.record(steps, call, near=True))  # type: ignore[misc]
            if len(again.rounding) < ROUNDED and is_rounding(model, call, got, expected):
                again.rounding.append(f"input {number}, in the single file: {wrong}")
                continue
            if not recorder.unequal:
                raise Unsplittable(recorder.path, 0, f"the single file differs from the original: {wrong}")
            again.at_threshold.append(f"input {number}, in the single file")
            continue
        again.equal.add(number)
    return again


def check_batches(model: torch.nn.Module, made: Any, calls: list[dict[str, Any]], recorder: Recorder,
                  steps: list[Step], found: Checked) -> Checked:  # fmt: skip
    """The inputs that were equal alone, now in batches: each sample's result has to be that of the original alone."""
    again = Checked(taken=found.taken, at_threshold=list(found.at_threshold), rounding=list(found.rounding))
    batch: dict[int, dict[str, Any]] = {}
    last = max(found.equal, default=-1)
    for number, call in enumerate(itertools.islice(examples(calls), last + 1)):
        if number in found.equal:
            batch[number] = call
        sizes = {tuple(one.shape for one in each.values() if isinstance(one, torch.Tensor)) for each in batch.values()}
        if len(batch) == BATCH or len(sizes) > 1 or number == last:
            held = batch.pop(number) if len(sizes) > 1 else None
            check_batch(model, made, batch, recorder, steps, again)
            batch = {number: held} if held is not None else {}
    if batch:
        check_batch(model, made, batch, recorder, steps, again)
    return again


def check_batch(model: torch.nn.Module, made: Any, batch: dict[int, dict[str, Any]], recorder: Recorder,
                steps: list[Step], again: Checked) -> None:  # fmt: skip
    with torch.no_grad():
        alone = {number: attempt(lambda call=call: model(**call)) for number, call in batch.items()}  # type: ignore[misc]
    batch = {number: call for number, call in batch.items() if not isinstance(alone[number], Exception)}
    if not batch:
        return
    first = next(iter(batch.values()))
    several = {
        key: torch.cat([call[key] for call in batch.values()]) if isinstance(value, torch.Tensor) else value
        for key, value in first.items()
    }
    for (number, call), got in zip(batch.items(), made(**several), strict=True):
        wrong = difference(got, alone[number])
        if wrong:
            attempt(lambda call=call: recorder.record(steps, call, near=True))  # type: ignore[misc]
            if not recorder.unequal:
                raise Unsplittable(recorder.path, 0, f"a sample in a batch differs from the original alone: {wrong}")
            again.at_threshold.append(f"input {number}, in a batch")
        else:
            again.equal.add(number)


def attempt(call: Callable[[], Any]) -> Any:
    """What the call gives, or the exception that it raises."""
    try:
        return call()
    except (TooLong, Unsplittable):
        raise
    except Exception as problem:  # noqa: BLE001  (whatever the network raises)
        return problem


def first_difference(left: list[int], right: list[int]) -> int | None:
    if left == right:
        return None
    same = (number for number, (one, other) in enumerate(zip(left, right, strict=False)) if one != other)
    return next(same, min(len(left), len(right)))


def difference(got: Any, expected: Any) -> str:
    """How a result differs from the expected one; empty where it does not.

    The tolerances are those of torch.testing for the type, but the absolute one grows with the largest value of a
    tensor: what a sum of large terms leaves near zero carries their rounding, in every order of summation.
    """
    if isinstance(expected, Exception) or isinstance(got, Exception):
        return "" if type(got) is type(expected) else f"{got!r} instead of {expected!r}"
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        rtol, atol = torch.testing._comparison.default_tolerances(expected)
        if expected.is_floating_point() and expected.numel():
            atol *= max(1.0, float(expected.detach().nan_to_num(0, 0, 0).abs().max()))
        try:
            torch.testing.assert_close(got, expected, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as problem:
            return " ".join(str(problem).split())
        return ""
    got, expected = (tuple(one) if isinstance(one, torch.Size) else one for one in (got, expected))
    if not same_kind(got, expected):
        return f"a {type(got).__name__} instead of a {type(expected).__name__}"
    if isinstance(expected, float):
        return difference(torch.tensor(got), torch.tensor(expected))
    got, expected = contents(got), contents(expected)
    if isinstance(expected, dict):
        got, expected = [*got.keys(), *got.values()], [*expected.keys(), *expected.values()]
    if isinstance(expected, (tuple, list)):
        if len(got) != len(expected):
            return f"{len(got)} elements instead of {len(expected)}"
        return next(filter(None, map(difference, got, expected)), "")
    return "" if got == expected else f"{got!r} instead of {expected!r}"


def unseen(sides: list[Side], taken: set[int]) -> list[Unsplittable]:
    """The sides that no checked input took."""
    found = []
    for number, side in enumerate(sides):
        if number not in taken:
            alike = [other for other, one in enumerate(sides) if one == side]
            place = f", place {alike.index(number) + 1} of {len(alike)} of this line" if len(alike) > 1 else ""
            found.append(Unsplittable(
                side.path, side.line,
                f"no checked input took the side where {side.label}{place}; give an example call that takes it"
                ' (or split with unseen="raise", where none can)',
            ))  # fmt: skip
    return found


def examples(calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The calls themselves and perturbed ones: noise, and every fourth scaled, negated or shifted as a whole.

    At last calls with one value in all places, infinite or no number, for sides that no other reaches.
    """
    generator = torch.Generator().manual_seed(0)
    yield from calls
    for number in range(MADE):
        wide = SCALES[number // 4 % len(SCALES)] if number % 4 == 0 else None
        call = calls[number // 4 % len(calls) if wide is not None else number % len(calls)]
        yield {key: perturbed(value, generator, wide) for key, value in call.items()}
    for extreme in EXTREMES:
        yield {key: filled(value, extreme) for key, value in calls[0].items()}


def filled(value: Any, extreme: float) -> Any:
    """The tensor full of one value, where it may have it."""
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.full_like(value, extreme) if floats else value


def perturbed(value: Any, generator: torch.Generator, wide: float | None) -> Any:
    """Another input of the same shape: noise on floats (`wide`: scaled by it), whole numbers from the same range."""
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool or value.is_complex() or not value.numel():
        return value
    if not value.is_floating_point():
        low, high = int(value.min()), int(value.max())
        return torch.randint(low, high + 1, value.shape, generator=generator, dtype=value.dtype)
    spread = float(value.std(unbiased=False)) or float(value.abs().mean()) or 1.0  # one element has no deviation
    noise = spread * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    if wide is None:
        return value * (0.3 + 1.4 * torch.rand(1, generator=generator).item()) + 0.3 * noise
    shift = 2 * spread * torch.randn(1, generator=generator).item() if wide > 0 else 0.0
    return value * wide + 0.1 * abs(wide) * noise + shift
