"""From which size on folding a batch normalisation into the convolution before it gains, on CPU in
evaluation.

In pairs, one thread, processor time, as `regraft bench` measures: the median ratio (above 1:
folding is faster) and its 95% interval, with everything folded (REGRAFT_KERNELS=always), and what
`regraft.ops.conv_batch_norm` does itself.

    python benchmarks/effect/folding.py [--rounds 20] > benchmarks/results/effect-folding.txt
"""

from __future__ import annotations

import argparse
import os
import platform
from datetime import datetime, timezone

import torch
from torch import Tensor, nn

from regraft.benchmarking.paired_measurement import compare
from regraft.ops import conv_batch_norm, implementation

KINDS = {
    "1x1": lambda channels: nn.Conv2d(channels, channels, 1, bias=False),
    "3x3": lambda channels: nn.Conv2d(channels, channels, 3, padding=1, bias=False),
    "depthwise": lambda channels: nn.Conv2d(
        channels, channels, 3, padding=1, groups=channels, bias=False
    ),
}
SHAPES = (
    (32, 112, 1),
    (32, 112, 8),
    (64, 56, 1),
    (64, 56, 8),
    (256, 14, 1),
    (256, 14, 8),
    (256, 56, 8),
)


def ratio(x: Tensor, conv: nn.Module, norm: nn.Module, rounds: int) -> str:
    speed = compare(
        lambda: norm(conv(x)), lambda: conv_batch_norm(x, conv, norm), rounds, torch.device("cpu")
    ).speed
    return f"{speed.median:.2f} ({speed.low:.2f}-{speed.high:.2f})"


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()},"
        " float32, one thread,"
    )
    print(
        f"{rounds} rounds, {datetime.now(timezone.utc):%Y-%m-%d}; original ÷ folded, median and its"
        " 95% interval\n"
    )
    print(
        f"{'convolution':12}{'input':>18}{'results':>10}{'a weight':>10}{'folded':>20}{'the op':>12}"  # noqa: E501
    )
    for kind, make in KINDS.items():
        for channels, side, batch in SHAPES:
            if kind == "3x3" and channels == 256:
                continue  # a second each
            conv, norm = make(channels).eval(), nn.BatchNorm2d(channels).eval()
            x = torch.randn(batch, channels, side, side)
            os.environ["REGRAFT_KERNELS"] = "always"
            folded = ratio(x, conv, norm, rounds)
            del os.environ["REGRAFT_KERNELS"]
            chosen = implementation("conv_batch_norm", x, conv, norm)
            shape = "x".join(map(str, x.shape))
            weights = x.numel() // conv.weight.numel()
            print(
                f"{kind:12}{shape:>18}{x.numel():>10}{weights:>10}{folded:>20}{chosen:>12}",
                flush=True,
            )


if __name__ == "__main__":
    main()
