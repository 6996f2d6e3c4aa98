"""The sizes from which ops pay on a GPU, beside the least sizes that the ops have in their code.

    python benchmarks/gpu/thresholds.py [--device cpu]

Each op runs at sizes around its least one with its kernel demanded (REGRAFT_KERNELS=always), in
pairs with the composition, without gradients. Prints how many times as fast it is, with the
interval that holds the true number with a probability of 95%. Exits with 1 where results differ.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ["REGRAFT_KERNELS"] = "always"

import torch
from environment import print_versions
from torch import nn

from regraft import ops
from regraft.benchmarking.median_intervals import is_decided
from regraft.benchmarking.paired_measurement import compare
from regraft.ops.folding import _LEAST_ELSEWHERE, _LEAST_FOLDED
from regraft.ops.postponed_matmul import _LEAST_SCORES

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Threshold:
    """An op with a least size.

    least  the least size on the device, as the op's code has it
    make   size, dtype and device → the calls of the op and of the composition
    """

    name: str
    least: int
    make: Callable[[int, torch.dtype, torch.device], tuple[Call, Call]]


def postponed_attention(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Call, Call]:
    """Return attention with this number of scores, over 16 heads of 64 features."""
    length = max(16, round((size / 16) ** 0.5))
    shape = (1, 16, length, 64)
    query, key, value = (torch.randn(shape, dtype=dtype, device=device) for _ in range(3))

    def attend(multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Any:
        scores = multiply(query, key.transpose(-1, -2)) / 8
        return torch.matmul(scores.softmax(-1), value)

    return (
        lambda: attend(ops.postponed_matmul),
        lambda: attend(torch.matmul),
    )


def folded_convolution(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Call, Call]:
    """Return a convolution with its batch normalisation, with this number of results."""
    channels = 64
    side = max(8, round((size / channels / 8) ** 0.5))
    conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False, dtype=dtype, device=device)
    norm = nn.BatchNorm2d(channels, dtype=dtype, device=device).eval()
    x = torch.randn(8, channels, side, side, dtype=dtype, device=device)
    return lambda: ops.conv_batch_norm(x, conv, norm), lambda: norm(conv(x))


def thresholds(device: str) -> list[Threshold]:
    """Return the ops whose least size depends on the device."""
    least_folded = _LEAST_FOLDED.get(device, _LEAST_ELSEWHERE)
    return [
        Threshold("postponed scores", _LEAST_SCORES[device], postponed_attention),
        Threshold("folded batch norm", least_folded, folded_convolution),
    ]


def measure(threshold: Threshold, device: torch.device, powers: range) -> Iterator[str]:
    """Yield a line for each size and dtype of an op.

    Raises AssertionError where results differ.
    """
    dtypes = [torch.float32] if device.type == "cpu" else [torch.float32, torch.bfloat16]
    # weights are folded in float32 alone
    for dtype in dtypes[:1] if threshold.make is folded_convolution else dtypes:
        for power in powers:
            size = threshold.least << power if power >= 0 else threshold.least >> -power
            ours, plain = threshold.make(size, dtype, device)
            expected = plain()
            tolerance = 5e-3 if dtype == torch.float32 else 4e-2
            limit = tolerance * float(expected.abs().amax())
            torch.testing.assert_close(ours() + 0, expected, rtol=tolerance, atol=limit)
            speed = compare(
                plain, ours, 12, device, is_enough=is_decided, slice_seconds=0.004
            ).speed
            yield (
                f"{threshold.name:18} {str(dtype).removeprefix('torch.'):9} {size:12}"
                f" {speed.median:6.2f} ({speed.low:.2f}-{speed.high:.2f})"
                f"{'  the least size' if power == 0 else ''}"
            )


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    device = parser.parse_args().device
    torch.set_num_threads(1)
    print_versions()
    is_wrong = False
    # on a CPU, to try the program: at the small sizes alone
    powers = range(-6, 5 if device == "cuda" else -3)
    for threshold in thresholds(device):
        try:
            for line in measure(threshold, torch.device(device), powers):
                print(line, flush=True)
        except AssertionError as problem:
            print(f"FAILED {threshold.name}: {problem}")
            is_wrong = True
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
