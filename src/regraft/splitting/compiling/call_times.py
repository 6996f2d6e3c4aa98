"""The time of a call of the split network, beside the original's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from regraft.splitting.compiling.region_comparison import shortest_times

TIMED_CALLS = 8  # example calls that are timed


def time_calls(
    split: Callable[..., Any], model: torch.nn.Module, calls: list[dict[str, Any]]
) -> tuple[float, float]:
    """Return the mean time of a call of the split network and of the original, in seconds: of the
    first example calls, each run in turns and the shortest time taken."""
    timed = calls[:TIMED_CALLS]
    with torch.no_grad():
        pairs = [
            shortest_times(functools.partial(split, **call), functools.partial(model, **call))
            for call in timed
        ]
    split_time, eager_time = (sum(times) / len(timed) for times in zip(*pairs, strict=True))
    return split_time, eager_time
