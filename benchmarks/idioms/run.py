"""What the rules of pack `idioms` gain as single operations on CPU: each op against the composition
that it replaces, at sizes from small to usual.

In pairs, one thread, processor time, as `regraft bench` measures: printed are the median ratio
(above 1: the op is faster) and its 95% interval, and how many times as much memory the composition
needs at its peak.

    python benchmarks/idioms/run.py [--rounds 20] [NAME...] > benchmarks/results/idioms.txt
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from regraft import ops
from regraft.benchmarking.median_intervals import FEWEST
from regraft.benchmarking.paired_measurement import compare
from regraft.benchmarking.steps import Step, peak

CPU = torch.device("cpu")
Operation = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """One op at one size.

    original  the composition
    kernel    the op
    leaves    the tensors that get gradients; none for an op that pays in inference alone
    """

    rule: str
    size: str
    original: Operation
    kernel: Operation
    leaves: tuple[Tensor, ...] = ()


def learned(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


def pairs() -> Iterator[Case]:
    """Yield distances and cosines of N and K points with D coordinates."""
    for count, others, width in ((32, 32, 16), (256, 256, 16), (256, 512, 64), (1024, 512, 64)):
        x, y = learned(count, width), learned(others, width)
        size = f"{count} x {others} x {width}"
        rule = "pairwise-distance"
        yield Case(
            f"{rule}, squared",
            size,
            lambda x=x, y=y: ((x[:, None] - y[None]) ** 2).sum(-1),
            lambda x=x, y=y: ops.squared_distances(x[:, None], y[None], -1),
            (x, y),
        )
        yield Case(
            f"{rule}, norm",
            size,
            lambda x=x, y=y: torch.norm(x[:, None] - y[None], dim=-1),
            lambda x=x, y=y: ops.distances(x[:, None], y[None], -1),
            (x, y),
        )
        yield Case(
            "pairwise-product, cosine",
            size,
            lambda x=x, y=y: functional.cosine_similarity(x[:, None], y[None], dim=-1),
            lambda x=x, y=y: ops.pairwise_cosine(x[:, None], y[None], -1),
            (x, y),
        )
        yield Case(
            "pairwise-product",
            size,
            lambda x=x, y=y: (x[:, None] * y[None]).sum(-1),
            lambda x=x, y=y: ops.pairwise_product(x[:, None], y[None], -1),
            (x, y),
        )
    for count in (512, 2048):
        x, y = learned(1, count, 3), learned(1, count, 3)
        yield Case(
            "pairwise-distance, squared",
            f"{count} x {count} x 3",
            lambda x=x, y=y: ((x[:, :, None] - y[:, None]) ** 2).sum(-1),
            lambda x=x, y=y: ops.squared_distances(x[:, :, None], y[:, None], -1),
            (x, y),
        )
    for count, width in ((64, 256), (64, 2048)):
        x = learned(count, width)
        shape = (count, count, width)
        yield Case(
            "pairwise-distance, expanded",
            f"{count} x {count} x {width}",
            lambda x=x, shape=shape: (
                (x.unsqueeze(0).expand(shape) - x.unsqueeze(1).expand(shape)) ** 2
            ).sum(2),
            lambda x=x, shape=shape: ops.squared_distances(
                x.unsqueeze(0).expand(shape), x.unsqueeze(1).expand(shape), 2, expanded=True
            ),
            (x,),
        )


def lookups() -> Iterator[Case]:
    """Yield products with one-hot vectors of N indices among K classes."""
    for count, classes, width in ((32, 32, 16), (256, 64, 64), (1024, 512, 64), (4096, 1024, 64)):
        weight, index = learned(classes, width), torch.randint(0, classes, (count,))
        yield Case(
            "one-hot-matmul",
            f"{count} x {classes} x {width}",
            lambda index=index, classes=classes, weight=weight: (
                functional.one_hot(index, classes).float() @ weight
            ),
            lambda index=index, classes=classes, weight=weight: ops.one_hot_matmul(
                index, classes, weight, torch.float32
            ),
            (weight,),
        )
    for count, classes in ((64, 18), (1024, 100), (256, 1000), (4096, 1000), (512, 32000)):
        values, index = learned(count, classes), torch.randint(0, classes, (count,))
        yield Case(
            "one-hot-select",
            f"{count} x {classes}",
            lambda index=index, classes=classes, values=values: (
                functional.one_hot(index, classes) * values
            ).sum(-1),
            lambda index=index, classes=classes, values=values: ops.one_hot_select(
                values, index, classes
            ),
            (values,),
        )


def heads() -> Iterator[Case]:
    """Yield layers at the last of T positions, and the first of N sorted numbers."""
    for batch, length, width, wide in (
        (8, 2, 64, 10),
        (32, 28, 128, 10),
        (4, 128, 256, 1000),
        (1, 128, 768, 32000),
    ):
        linear, x = nn.Linear(width, wide), learned(batch, length, width)
        yield Case(
            "last-position",
            f"{batch} x {length} x {width} -> {wide}",
            lambda linear=linear, x=x: linear(x)[:, -1],
            lambda linear=linear, x=x: ops.linear_at(x, linear, -1),
            (x, *linear.parameters()),
        )
    for rows, count, first in ((64, 16, 8), (64, 128, 5), (64, 1000, 500), (64, 50000, 10)):
        scores = torch.randn(rows, count)
        yield Case(
            "sorted-head",
            f"{first} of {rows} x {count}",
            lambda scores=scores, first=first: torch.sort(scores, -1, descending=True)[0][
                :, :first
            ],
            lambda scores=scores, first=first: ops.sorted_head(scores, first, 1, descending=True),
        )
        yield Case(
            "sorted-indices",
            f"{first} of {rows} x {count}",
            lambda scores=scores, first=first: torch.argsort(scores, -1)[:, :first],
            lambda scores=scores, first=first: ops.sorted_indices(scores, first, 1),
        )


def diagonals() -> Iterator[Case]:
    """Yield products of N x M and M x N matrices."""
    for count, width in ((32, 32), (128, 64), (512, 64), (512, 512)):
        first, second, scales = learned(count, width), learned(width, count), learned(count)
        size = f"{count} x {width}"
        for name, composition, kernel, operands in (
            ("diag @", lambda x, y: torch.diag(x) @ y, ops.diagonal_matmul, (scales, first)),
            ("@ diag", lambda x, y: x @ torch.diag(y), ops.matmul_diagonal, (second, scales)),
            ("diagonal", lambda x, y: torch.diagonal(x @ y), ops.product_diagonal, (first, second)),
            ("trace", lambda x, y: torch.trace(x @ y), ops.product_trace, (first, second)),
        ):
            yield Case(
                f"diagonal-algebra, {name}",
                size,
                partial(composition, *operands),
                partial(kernel, *operands),
                operands,
            )


def step(operation: Operation, leaves: tuple[Tensor, ...]) -> Step:
    """One call; with leaves of the backward pass, too."""

    def call() -> None:
        if not leaves:
            with torch.no_grad():
                operation()
            return
        made = operation()
        torch.autograd.grad(made, leaves, torch.ones_like(made))

    return call


def cell(case: Case, leaves: tuple[Tensor, ...], rounds: int) -> str:
    """Return the ratios of time and of peak memory of a case as text."""
    steps = [step(operation, leaves) for operation in (case.original, case.kernel)]
    speed = compare(steps[0], steps[1], rounds, CPU).speed
    needed = [max(peak(one_step, CPU), 1) for one_step in steps]
    times = f"{speed.median:.2f} ({speed.low:.2f}-{speed.high:.2f})"
    return f"{times:>24}{needed[0] / needed[1]:>8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only cases with one of these in their name")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    if options.rounds < FEWEST:
        parser.error(f"--rounds {options.rounds}: an interval needs at least {FEWEST} rounds")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()},"
        f" float32, one thread,\n{options.rounds} rounds,"
        f" {datetime.now(timezone.utc):%Y-%m-%d}; original ÷ op: median time and its 95% interval,"
        " peak memory\n"
    )
    print(f"{'rule':29}{'size':24}{'inference':>24}{'memory':>8}{'training':>24}{'memory':>8}")
    for cases in (pairs, lookups, heads, diagonals):
        for case in cases():
            if options.names and not any(name in case.rule for name in options.names):
                continue
            text = cell(case, (), options.rounds)
            text += cell(case, case.leaves, options.rounds) if case.leaves else ""
            print(f"{case.rule:29}{case.size:24}{text}", flush=True)


if __name__ == "__main__":
    main()
