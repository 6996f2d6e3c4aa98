"""What Regraft's rewrites are worth on CPU, on models that Regraft rewrites itself, against what
was asked for.

    python benchmarks/effect/acceptance.py                              # all, with 12 layers
    python benchmarks/effect/acceptance.py --rounds 6 --layers 2 encoder

One thread, processor time, in pairs; `regraft.benchmarking` says how. Every line says the median
with its 95% interval, the peak memory, and whether the whole interval is on the right side of what
was asked for. The rewrites are verified first (`--no-verify` skips that). Exits with 1 where a line
is not.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")
sys.path.insert(0, str(Path(__file__).parent))

import models
import torch

from regraft.benchmarking import Options, bench, calls_of
from regraft.rules import load_rules
from regraft.scanning import compile_rules


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and what is asked for: at least `speed` times as fast, at most `memory` of the
    original's peak."""

    name: str
    build: Callable[[], Any]
    mode: str
    rule: str
    speed: float
    memory: float = 0.0


def cases(layers: int) -> tuple[Case, ...]:
    attention = "adopter/bert-attention"

    def encoder(length: int, dropout: float = 0.0) -> Callable[[], Any]:
        return functools.partial(models.encoder, length, layers, dropout)

    def returning(length: int) -> Callable[[], Any]:
        return functools.partial(models.encoder, length, layers, attention=models.WeightsAttention)

    return (
        Case("encoder, T = 512", encoder(512), "inference", attention, 1.1),
        Case("encoder, T = 2048", encoder(2048), "inference", attention, 1.6),
        Case("encoder, T = 2048", encoder(2048), "training", attention, 1.3),
        Case("returned weights, 512", returning(512), "inference", "torch/attention", 1.0),
        Case("returned weights, 2048", returning(2048), "inference", "torch/attention", 1.6),
        Case("returned weights, 2048", returning(2048), "training", "torch/attention", 1.3),
        Case("layer norm by hand", models.layer_norm, "inference", "torch/layer-norm", 2.0),
        Case("GELU by hand", models.gelu, "inference", "torch/gelu", 2.0),
        Case("softmax by hand", models.softmax, "inference", "torch/exp-softmax", 2.0),
        Case(
            "vocabulary of 128,000",
            models.vocabulary_head,
            "training",
            "torch/linear-cross-entropy",
            1 / 1.1,
            0.4,
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "only", nargs="*", help="cases whose names contain one of these (default: all)"
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--layers", type=int, default=models.LAYERS, help="of the encoder (default: %(default)s)"
    )
    parser.add_argument("--no-verify", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()},"
        " float32, one thread,"
    )
    print(f"{options.rounds} pairs, encoders of {options.layers} layers, {time.strftime('%F')}\n")
    print(f"{'model':23}{'mode':11}{'rule':28}{'times as fast':>20}{'asked':>7}{'memory, MiB':>16}")
    missed = 0
    for case in cases(options.layers):
        if not options.only or any(one in case.name for one in options.only):
            missed += not measured(case, options.rounds, not options.no_verify)
    return int(missed > 0)


def measured(case: Case, rounds: int, verify: bool) -> bool:
    """Measure and print one case; whether it is as was asked for."""
    torch.manual_seed(0)
    model, inputs = case.build()
    rules, problems = compile_rules(load_rules([case.rule])[0])
    assert not problems
    result = bench(model, calls_of(inputs), rules, Options((case.mode,), rounds, verify=verify))
    rows = [row for row in result.rows if row.name == case.rule]
    if not rows:
        print(
            f"{case.name:23}{case.mode:11}{case.rule:28}  nothing was rewritten:"
            f" {'; '.join(result.left)}"
        )
        return False
    (row,) = rows
    speed = row.pair.speed
    good = (
        speed.low >= case.speed
        and row.bytes <= (case.memory or 1.0) * row.bytes_against
        and not row.differs
    )
    shown = f"{speed.median:.2f} ({speed.low:.2f}-{speed.high:.2f})"
    sizes = f"{row.bytes_against / 2**20:.0f} -> {row.bytes / 2**20:.0f}"
    verdict = "" if good else f"  NOT as asked {row.differs}"
    print(
        f"{case.name:23}{case.mode:11}{case.rule:28}{shown:>20}{case.speed:>7.2f}{sizes:>16}{verdict}",
        flush=True,
    )
    return good


if __name__ == "__main__":
    sys.exit(main())
