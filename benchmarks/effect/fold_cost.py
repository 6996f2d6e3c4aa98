"""What it costs to fold a batch normalisation in every call, and what it would cost to keep folded
weights instead and to compare all numbers that they depend on.

A version counter does not tell that `weight.data.mul_(2)`, or a NumPy array of the same memory,
has changed a parameter, so the numbers themselves would have to be compared. Times are processor
times on one thread, in evaluation without gradients, medians in µs. For the smallest batch of
images that is folded, `share` is the part that folding has in the call of the op, and `saved` the
part of the call that comparing in place of folding would save.

    python benchmarks/effect/fold_cost.py [--rounds 41] > benchmarks/results/effect-fold-cost.txt
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

import torch
from torch import Tensor, nn

from regraft.benchmarking.machine_name import machine
from regraft.ops import conv_batch_norm, implementation
from regraft.ops.conv_batch_norm import folded_weights

SLICE = 5e-4  # seconds of one measurement
# channels, size of the kernel, groups, height and width of the images
LAYERS = (
    (32, 3, 1, 112),
    (64, 3, 1, 56),
    (128, 3, 1, 56),
    (256, 3, 1, 56),
    (64, 1, 1, 56),
    (256, 1, 1, 56),
    (512, 1, 1, 28),
    (64, 3, 64, 56),
    (256, 3, 256, 56),
)


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the processor time of a call, the mean of several."""
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def medians(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the seconds of calls that are measured in turn: the medians of all rounds."""
    repeats = [max(1, round(SLICE / max(seconds(call, 2), 1e-7))) for call in calls]
    measured: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, count, times in zip(calls, repeats, measured, strict=True):
            times.append(seconds(call, count))
    return [statistics.median(times) for times in measured]


def smallest_batch(conv: nn.Module, norm: nn.Module, channels: int, side: int) -> Tensor:
    """Return the smallest batch of images for which the op folds; ValueError for none up to 256."""
    for batch in range(1, 257):
        x = torch.empty(batch, channels, side, side)
        if implementation("conv_batch_norm", x, conv, norm) == "folded":
            return torch.randn_like(x)
    raise ValueError(f"no batch of {channels} x {side} x {side} is folded")


def row(channels: int, size: int, groups: int, side: int, rounds: int) -> str:
    """Return the row of a layer."""
    conv = nn.Conv2d(channels, channels, size, padding=size // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(channels).eval()
    sources = (conv.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var)
    copies = [tensor.clone() for tensor in sources]
    x = smallest_batch(conv, norm, channels, side)
    fold, compare, op = medians(
        (
            lambda: folded_weights(conv, norm),
            lambda: all(torch.equal(*pair) for pair in zip(sources, copies, strict=True)),
            lambda: conv_batch_norm(x, conv, norm),
        ),
        rounds,
    )
    kind = "depthwise" if groups > 1 else f"{size}x{size}"
    return (
        f"{kind:10} {'x'.join(map(str, x.shape)):>16} {conv.weight.numel():>9} {1e6 * fold:>9.1f}"
        f" {1e6 * compare:>9.1f} {1e6 * op:>9.0f} {fold / op:>8.2%} {(fold - compare) / op:>8.2%}"
    )


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(
        f"{machine(torch.device('cpu'))}, torch {torch.__version__}, Python"
        f" {platform.python_version()}, {datetime.now(timezone.utc):%Y-%m-%d}\n"
        f"processor time of one thread, medians of {rounds} rounds, beside other processes; µs\n\n"
        f"{'layer':10} {'input':>16} {'weights':>9} {'fold':>9} {'compare':>9} {'op':>9}"
        f" {'share':>8} {'saved':>8}"
    )
    for channels, size, groups, side in LAYERS:
        print(row(channels, size, groups, side, rounds), flush=True)


if __name__ == "__main__":
    main()
