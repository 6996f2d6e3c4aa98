"""The check of batches against the original, which runs each of their samples alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from regraft.splitting.checking.original_network import CheckResult, Original
from regraft.splitting.checking.result_difference import difference
from regraft.splitting.sampling.varied_calls import vary_calls

BATCH = 8  # samples in a batch that is checked

# the arguments of a batch's samples by the numbers of the inputs
Batch = dict[int, dict[str, Any]]


def check_batches(original: Original, split: Any, earlier: CheckResult) -> CheckResult:
    """Run the inputs that are equal in `earlier` in batches, compare each sample's result with the
    original's for it alone, and return the result of this check. Raises Unsplittable for a
    difference that no threshold explains.

    split: takes the arguments of a batch, and returns a list of results.
    """
    result = earlier.for_next_artefact()
    for batch in batches_of_equal_sizes(original, earlier.equal):
        check_batch(original, split, batch, result)
    return result


def batches_of_equal_sizes(original: Original, chosen: set[int]) -> Iterator[Batch]:
    """Yield those calls of `vary_calls` whose numbers are in `chosen`, in order, in batches:
    dictionaries of at most `BATCH` calls by number. A call whose tensors have other sizes begins
    the next batch."""
    batch: Batch = {}
    last = max(chosen, default=-1)
    calls = vary_calls(original.calls, original.varied)
    for number, call in enumerate(itertools.islice(calls, last + 1)):
        if number in chosen:
            batch[number] = call
        has_several_sizes = len(set(map(shapes_of, batch.values()))) > 1
        if len(batch) == BATCH or has_several_sizes or number == last:
            postponed = batch.pop(number) if has_several_sizes else None
            yield batch
            batch = {number: postponed} if postponed is not None else {}
    if batch:
        yield batch


def shapes_of(call: dict[str, Any]) -> tuple[torch.Size, ...]:
    """Return the shapes of the tensors among a call's arguments."""
    return tuple(value.shape for value in call.values() if isinstance(value, torch.Tensor))


def check_batch(original: Original, split: Any, batch: Batch, result: CheckResult) -> None:
    """Compare the results of one batch with the original's, sample by sample. Add the number of
    each equal input to `result.equal`, and a description of an input to `result.at_threshold` where
    a threshold explains the difference.

    split: takes the samples' arguments, concatenated, and returns a list with the result of each
    sample. Samples on which the original raises are left out. Raises Unsplittable for a difference
    that no threshold explains.
    """
    expected = {number: original.run(call) for number, call in batch.items()}
    accepted = {
        number: call
        for number, call in batch.items()
        if not isinstance(expected[number], Exception)
    }
    if not accepted:
        return
    results = split(**stack(list(accepted.values())))
    for (number, call), got in zip(accepted.items(), results, strict=True):
        mismatch = difference(got, expected[number])
        if not mismatch:
            result.equal.add(number)
            continue
        original.look_for_thresholds(call)
        if not original.recorder.near_unequal:
            raise original.refuse(
                f"a sample in a batch differs from the original alone: {mismatch}"
            )
        result.at_threshold.append(f"input {number}, in a batch")


def stack(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of one call with the samples of all `calls`: tensors are concatenated,
    other arguments are those of the first call."""
    return {
        key: torch.cat([call[key] for call in calls]) if isinstance(value, torch.Tensor) else value
        for key, value in calls[0].items()
    }
