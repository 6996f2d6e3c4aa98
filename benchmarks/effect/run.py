"""What the rules of pack `torch` gain as single operations on CPU: each page's kind of source
against its kernel.

In pairs, one thread, processor time, as `regraft bench` measures: printed are the median ratio
(above 1: the kernel is faster) and its 95% interval. `acceptance.py` measures whole models that
Regraft rewrites itself.

    python benchmarks/effect/run.py [--rounds 40] > benchmarks/results/effect.txt
"""

from __future__ import annotations

import argparse
import math
import platform
from collections.abc import Callable
from datetime import datetime, timezone

import torch
from torch import Tensor
from torch.nn import functional

from regraft.benchmarking.paired_measurement import compare
from regraft.ops import REFERENCES, attention, grouped_experts, quick_gelu, rounded_softmax

Operation = Callable[..., Tensor]


def hand_layer_norm(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5)


def hand_gelu_tanh(x: Tensor) -> Tensor:
    return (
        0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    )


def hand_gelu_erf(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def hand_silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def hand_softmax(x: Tensor) -> Tensor:
    shares = torch.exp(x - x.amax(-1, keepdim=True))
    return shares / shares.sum(-1, keepdim=True)


def hand_log_softmax(x: Tensor) -> Tensor:
    return torch.log(torch.softmax(x, dim=-1))


def hand_round_trip(x: Tensor) -> Tensor:
    return functional.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


def hand_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
    return torch.matmul(functional.softmax(scores, dim=-1), value)


def kernel_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention(query, key, value, divisor=math.sqrt(query.shape[-1]))


NUMBER, CHOSEN, ROWS = 64, 8, 512
EXPERTS = torch.rand(ROWS, NUMBER, generator=torch.Generator().manual_seed(0)).topk(CHOSEN)


def hand_experts(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    made: Tensor = REFERENCES["grouped_experts"](
        x, EXPERTS[1], EXPERTS[0], gate_up, down, functional.silu, NUMBER
    )
    return made


def kernel_experts(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    return grouped_experts(x, EXPERTS[1], EXPERTS[0], gate_up, down, functional.silu, NUMBER)


WIDE, SQUARE, SCORES = ((8, 256, 1024),), ((4, 8, 256, 256),), ((1, 12, 512, 512),)
CASES: tuple[tuple[str, Operation, Operation, tuple[tuple[int, ...], ...]], ...] = (
    ("layer-norm", hand_layer_norm, lambda x: functional.layer_norm(x, x.shape[-1:]), WIDE),
    ("gelu, tanh", hand_gelu_tanh, lambda x: functional.gelu(x, approximate="tanh"), WIDE),
    ("gelu, erf", hand_gelu_erf, functional.gelu, WIDE),
    ("quick-gelu", REFERENCES["quick_gelu"], quick_gelu, WIDE),
    ("silu", hand_silu, functional.silu, WIDE),
    ("exp-softmax", hand_softmax, lambda x: functional.softmax(x, dim=-1), SQUARE),
    ("log-softmax", hand_log_softmax, lambda x: functional.log_softmax(x, dim=-1), SQUARE),
    (
        "softmax-round-trip, bf16",
        hand_round_trip,
        lambda x: rounded_softmax(x, -1, x.dtype),
        SCORES,
    ),
    (
        "experts, 8 of 64",
        hand_experts,
        kernel_experts,
        ((ROWS, 256), (NUMBER, 256, 256), (NUMBER, 256, 128)),
    ),
    ("attention, T = 512", hand_attention, kernel_attention, ((1, 12, 512, 64),) * 3),
    ("attention, T = 2048", hand_attention, kernel_attention, ((1, 12, 2048, 64),) * 3),
)


def timed(operation: Operation, inputs: tuple[Tensor, ...], training: bool) -> Callable[[], None]:
    """One call; with `training` of the backward pass, too."""

    def call() -> None:
        made = operation(*inputs)
        if training:
            torch.autograd.grad(made, inputs, torch.ones_like(made))

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()},"
        " float32, one thread,"
    )
    print(
        f"{rounds} rounds, {datetime.now(timezone.utc):%Y-%m-%d}; original ÷ kernel, median and its"
        " 95% interval\n"
    )
    print(f"{'rule':26}{'inference':>22}{'with backward':>22}")
    for name, original, kernel, shapes in CASES:
        cells = []
        for training in (False, True):
            dtype = torch.bfloat16 if "bf16" in name else torch.float32
            inputs = tuple(
                torch.randn(shape, dtype=dtype, requires_grad=training) for shape in shapes
            )
            both = (timed(one, inputs, training) for one in (original, kernel))
            speed = compare(*both, rounds, torch.device("cpu")).speed
            cells.append(f"{speed.median:.2f} ({speed.low:.2f}-{speed.high:.2f})")
        print(f"{name:26}{cells[0]:>22}{cells[1]:>22}", flush=True)


if __name__ == "__main__":
    main()
