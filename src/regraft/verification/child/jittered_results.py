"""Results of the original with other roundings of its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.execution.compare import as_strided
from regraft.verification.child.call_outcomes import Outcome
from regraft.verification.child.tensor_distance import measure

JITTERED = 3  # runs of the original with other roundings of its parameters


def farther_outcome(
    reference: Outcome, first: Outcome, second: Outcome, largest_part: float = math.inf
) -> Outcome:
    """Return a copy of `first`, with each output and gradient of `second` that lies farther from
    the reference than the value of `first` does, but by no more than `largest_part` of the
    reference's largest value. Paths that are missing in one of the three, and tensors of different
    shapes, stay as in `first`."""
    return replace(
        first,
        outputs=_farther_results(reference.outputs, first.outputs, second.outputs, largest_part),
        gradients=_farther_results(
            reference.gradients or {}, first.gradients or {}, second.gradients or {}, largest_part
        ),
    )


def _farther_results(
    reference: Mapping[str, Any],
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    largest_part: float,
) -> Mapping[str, Any]:
    """Return a copy of `first` with each tensor of `second` that lies farther from the reference,
    by path, if by no more than a part of the reference; values that are no tensors, or whose three
    shapes differ, stay as in `first`."""
    farther = dict(first)
    for path, value in reference.items():
        results = [
            as_strided(result)
            for result in (value, first.get(path), second.get(path))
            if isinstance(result, torch.Tensor)
        ]
        if len(results) < 3 or len({result.shape for result in results}) > 1:
            continue
        gap = measure(results[0], results[2])
        if gap.relative <= largest_part and gap.absolute > measure(results[0], results[1]).absolute:
            farther[path] = second[path]
    return farther
