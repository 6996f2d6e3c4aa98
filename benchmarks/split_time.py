"""Time to specialise a network against its length: a loop over twice as many modules takes twice as
long.

    python benchmarks/split_time.py

Prints seconds of processor time for loops over 200, 400 and 800 modules, without and with a list
that grows, and the growth from 200 to 800. Exits with 1 if one of them grows more than `LIMIT`
times.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn

from regraft.splitting.specialisation import follow_calls

SIZES = (200, 400, 800)
REPEATS = 3
LIMIT = 4.4  # times as long for four times as many modules


class Chain(nn.Module):
    """One layer after the other, then a decision on a value."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        if x.sum() > 0:
            return x
        return -x


class Collecting(Chain):
    """The same, with a list of all results."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = []
        for layer in self.layers:
            x = layer(x)
            states.append(x)
        if x.sum() > 0:
            return torch.stack(states)
        return -x


def seconds(network: type[Chain], length: int) -> float:
    """Return the shortest time of a few runs."""
    model = network(length).eval()
    calls: list[dict[str, Any]] = [{"x": torch.ones(1, 4)}]
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        follow_calls(model, calls, set(), partial=True)
        times.append(time.process_time() - started)
    return min(times)


def main() -> int:
    too_long = False
    for network in (Chain, Collecting):
        times = [seconds(network, length) for length in SIZES]
        growth = times[-1] / times[0]
        too_long = too_long or growth > LIMIT
        shown = ", ".join(
            f"{length}: {value:.2f} s" for length, value in zip(SIZES, times, strict=True)
        )
        print(f"{network.__name__:<10} {shown}; {growth:.1f} times from {SIZES[0]} to {SIZES[-1]}")
    return int(too_long)


if __name__ == "__main__":
    sys.exit(main())
