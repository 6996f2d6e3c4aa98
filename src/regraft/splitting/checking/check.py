"""The check of the split network against the original, on the example calls and on perturbed
inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.splitting.checking.rounding import is_rounding
from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.residual import Side, Step, sides_at_infinity
from regraft.splitting.program.results import contents, is_same_kind
from regraft.splitting.sampling.record import Recorder, TooLong

CHECKED = 200  # inputs on which the result is compared with the original
MAX_PERTURBED = 2 * CHECKED  # perturbed inputs
EXTREMES = (math.nan, math.inf, -math.inf)  # for decisions that compare with infinity
MAX_ROUNDED = 10  # inputs whose results may differ by as much as rounding changes the original's
BATCH = 8  # samples in a batch that is checked
# factors of perturbed inputs that shall reach other sides
SCALES = (
    0.0,
    0.1,
    10.0,
    -1.0,
    3.0,
    -0.1,
    -10.0,
)


@dataclass
class CheckResult:
    """The inputs of a check, by number, and the sides that they took.

    equal: inputs with equal results. taken: numbers of the sides. at_threshold: inputs that the
    split network decides otherwise, because the values compared lie at a threshold. rounding:
    inputs whose results differ by no more than those of the original do where its weights are
    rounded differently.
    """

    equal: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    at_threshold: list[str] = field(default_factory=list)
    rounding: list[str] = field(default_factory=list)


def check(
    model: torch.nn.Module,
    split: Any,
    calls: list[dict[str, Any]],
    recorder: Recorder,
    steps: list[Step],
    sides: list[Side],
) -> CheckResult:
    """Compare the split network's results and decisions with the original's, input by input, and
    return the result.

    The original's decisions are those of the residual program, whose results have to be the
    original's, too. Raises Unsplittable for a difference that neither a threshold nor rounding
    explains.
    """
    result = CheckResult()
    infinite_sides = sides_at_infinity(steps, recorder.regions)
    for number, call in enumerate(examples(calls)):
        extreme = number >= len(calls) + MAX_PERTURBED
        if extreme or (len(result.equal) >= CHECKED and number >= len(calls)):
            if result.taken >= infinite_sides:
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
        got = attempt(lambda call=call: split(**call))  # type: ignore[misc]
        if all(
            isinstance(outcome, Exception) for outcome in (traced, expected, got)
        ) and number >= len(calls):
            continue  # the network does not take such an input
        mismatch = difference(traced, expected)
        if extreme and (
            mismatch or recorder.trace != split.host.trace or difference(got, expected)
        ):
            continue  # the network was not made for such an input
        if extreme:
            result.taken.update(infinite_sides & {*recorder.trace})
            continue
        if mismatch:
            raise Unsplittable(
                recorder.path, 0, f"the specialised program differs from the original: {mismatch}"
            )
        position = first_difference(recorder.trace, split.host.trace)
        if position is None:
            mismatch = difference(got, expected)
            if mismatch:
                attempt(lambda call=call: recorder.record(steps, call, near=True))  # type: ignore[misc]
                if recorder.orders_equals and len(result.at_threshold) < MAX_ROUNDED:
                    result.at_threshold.append(
                        f"input {number}: equal values are put in another order"
                    )
                    continue
                if len(result.rounding) >= MAX_ROUNDED or not is_rounding(
                    model, call, got, expected
                ):
                    raise Unsplittable(
                        recorder.path, 0, f"the split network differs from the original: {mismatch}"
                    )
                result.rounding.append(f"input {number}: {mismatch}")
                continue
            result.taken.update(split.host.trace)
            result.equal.add(number)
            continue
        side = sides[
            (recorder.trace[position : position + 1] or split.host.trace[position : position + 1])[
                0
            ]
        ]
        attempt(lambda call=call: recorder.record(steps, call, near=True))  # type: ignore[misc]
        if not any(recorder.near[position : position + 1]):
            raise Unsplittable(
                side.path, side.line, "the split network decides differently from the original here"
            )
        result.at_threshold.append(f"input {number}: {side.path}:{side.line}")
    return result


def check_file(
    model: torch.nn.Module,
    split: Any,
    calls: list[dict[str, Any]],
    recorder: Recorder,
    steps: list[Step],
    earlier: CheckResult,
) -> CheckResult:
    """Compare the single file's results with the original's, on inputs that were equal before, and
    return the result.

    The single file's decisions show in its results only. Raises Unsplittable as `check` does.
    """
    result = CheckResult(
        taken=earlier.taken,
        at_threshold=list(earlier.at_threshold),
        rounding=list(earlier.rounding),
    )
    for number, call in enumerate(examples(calls)):
        if number > max(earlier.equal, default=-1):
            break
        if number not in earlier.equal:
            continue
        with torch.no_grad():
            expected = attempt(lambda call=call: model(**call))  # type: ignore[misc]
        got = attempt(lambda call=call: split(**call))  # type: ignore[misc]
        # ONNX Runtime has its own exceptions
        both_raise = isinstance(expected, Exception) and isinstance(got, Exception)
        mismatch = "" if both_raise else difference(got, expected)
        if mismatch:
            attempt(lambda call=call: recorder.record(steps, call, near=True))  # type: ignore[misc]
            if len(result.rounding) < MAX_ROUNDED and is_rounding(model, call, got, expected):
                result.rounding.append(f"input {number}, in the single file: {mismatch}")
                continue
            if not recorder.near_unequal:
                raise Unsplittable(
                    recorder.path, 0, f"the single file differs from the original: {mismatch}"
                )
            result.at_threshold.append(f"input {number}, in the single file")
            continue
        result.equal.add(number)
    return result


def check_batches(
    model: torch.nn.Module,
    split: Any,
    calls: list[dict[str, Any]],
    recorder: Recorder,
    steps: list[Step],
    earlier: CheckResult,
) -> CheckResult:
    """Compare each sample's result in a batch with the original's for it alone, and return the
    result.

    The samples are the inputs that were equal alone. Raises Unsplittable as `check` does.
    """
    result = CheckResult(
        taken=earlier.taken,
        at_threshold=list(earlier.at_threshold),
        rounding=list(earlier.rounding),
    )
    batch: dict[int, dict[str, Any]] = {}
    last = max(earlier.equal, default=-1)
    for number, call in enumerate(itertools.islice(examples(calls), last + 1)):
        if number in earlier.equal:
            batch[number] = call
        sizes = {
            tuple(value.shape for value in arguments.values() if isinstance(value, torch.Tensor))
            for arguments in batch.values()
        }
        if len(batch) == BATCH or len(sizes) > 1 or number == last:
            postponed = batch.pop(number) if len(sizes) > 1 else None
            check_batch(model, split, batch, recorder, steps, result)
            batch = {number: postponed} if postponed is not None else {}
    if batch:
        check_batch(model, split, batch, recorder, steps, result)
    return result


def check_batch(
    model: torch.nn.Module,
    split: Any,
    batch: dict[int, dict[str, Any]],
    recorder: Recorder,
    steps: list[Step],
    result: CheckResult,
) -> None:
    """Compare the results of one batch of calls (by input number) with the original's, and add them
    to `result`."""
    with torch.no_grad():
        expected = {
            number: attempt(lambda call=call: model(**call))  # type: ignore[misc]
            for number, call in batch.items()
        }
    batch = {
        number: call
        for number, call in batch.items()
        if not isinstance(expected[number], Exception)
    }
    if not batch:
        return
    first = next(iter(batch.values()))
    stacked = {
        key: (
            torch.cat([call[key] for call in batch.values()])
            if isinstance(value, torch.Tensor)
            else value
        )
        for key, value in first.items()
    }
    for (number, call), got in zip(batch.items(), split(**stacked), strict=True):
        mismatch = difference(got, expected[number])
        if mismatch:
            attempt(lambda call=call: recorder.record(steps, call, near=True))  # type: ignore[misc]
            if not recorder.near_unequal:
                raise Unsplittable(
                    recorder.path,
                    0,
                    f"a sample in a batch differs from the original alone: {mismatch}",
                )
            result.at_threshold.append(f"input {number}, in a batch")
        else:
            result.equal.add(number)


def attempt(call: Callable[[], Any]) -> Any:
    """Return the result of the call, or the exception that it raises; TooLong and Unsplittable are
    raised on."""
    try:
        return call()
    except (TooLong, Unsplittable):
        raise
    except Exception as problem:  # noqa: BLE001  (whatever the network raises)
        return problem


def first_difference(left: list[int], right: list[int]) -> int | None:
    """Return the first position at which the lists differ; None where they are equal."""
    if left == right:
        return None
    differing = (
        position
        for position, (first, second) in enumerate(zip(left, right, strict=False))
        if first != second
    )
    return next(differing, min(len(left), len(right)))


def difference(got: Any, expected: Any) -> str:
    """Describe how a result differs from the expected one; "" where it does not.

    The tolerances are those of torch.testing for the type, but the absolute one grows with the
    largest value of a tensor: a sum of large terms that ends near zero carries their rounding, in
    every order of summation.
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
    got, expected = (
        tuple(value) if isinstance(value, torch.Size) else value for value in (got, expected)
    )
    if not is_same_kind(got, expected):
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


def unseen_side_errors(sides: list[Side], taken: set[int]) -> list[Unsplittable]:
    """Return a refusal for each side that no checked input took."""
    refusals = []
    for number, side in enumerate(sides):
        if number not in taken:
            alike = [position for position, candidate in enumerate(sides) if candidate == side]
            place = (
                f", place {alike.index(number) + 1} of {len(alike)} of this line"
                if len(alike) > 1
                else ""
            )
            refusals.append(
                Unsplittable(
                    side.path,
                    side.line,
                    f"no checked input took the side where {side.label}{place}; give an example"
                    ' call that takes it (or split with unseen="raise", where none can)',
                )
            )
    return refusals


def examples(calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the calls themselves and perturbed ones: noise, and every fourth scaled, negated or
    shifted as a whole.

    The last calls have one value in all places, infinite or NaN, for sides that no other call
    reaches.
    """
    generator = torch.Generator().manual_seed(0)
    yield from calls
    for number in range(MAX_PERTURBED):
        scale = SCALES[number // 4 % len(SCALES)] if number % 4 == 0 else None
        call = calls[number // 4 % len(calls) if scale is not None else number % len(calls)]
        yield {key: perturb(value, generator, scale) for key, value in call.items()}
    for extreme in EXTREMES:
        yield {key: fill(value, extreme) for key, value in calls[0].items()}


def fill(value: Any, extreme: float) -> Any:
    """Return the tensor full of one value where its type is floating-point; other values as they
    are."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.full_like(value, extreme) if is_float else value


def perturb(value: Any, generator: torch.Generator, scale: float | None) -> Any:
    """Return another input of the same shape: noise on floats, whole numbers from the same range.

    scale: the factor of the floats and of their noise; None for a random factor between 0.3 and
    1.7. Truth values, complex numbers, tensors without elements and what is no tensor stay as they
    are.
    """
    if (
        not isinstance(value, torch.Tensor)
        or value.dtype == torch.bool
        or value.is_complex()
        or not value.numel()
    ):
        return value
    if not value.is_floating_point():
        low, high = int(value.min()), int(value.max())
        return torch.randint(low, high + 1, value.shape, generator=generator, dtype=value.dtype)
    # one element has no deviation
    spread = float(value.std(unbiased=False)) or float(value.abs().mean()) or 1.0
    noise = spread * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    if scale is None:
        return value * (0.3 + 1.4 * torch.rand(1, generator=generator).item()) + 0.3 * noise
    shift = 2 * spread * torch.randn(1, generator=generator).item() if scale > 0 else 0.0
    return value * scale + 0.1 * abs(scale) * noise + shift
