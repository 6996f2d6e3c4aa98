"""Test the intervals, the pairs and the peak memory of measurements."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from regraft.benchmarking.median_intervals import (
    FEWEST,
    LEVEL,
    Interval,
    gain_is_settled,
    interval,
    is_decided,
)
from regraft.benchmarking.paired_measurement import Race, compare
from regraft.benchmarking.steps import BenchError, Prepared, clock, peak, prepare_with_peak, step

CPU = torch.device("cpu")
MIB = 2**20


@pytest.mark.parametrize("n", range(FEWEST, 60))
def test_the_interval_is_the_narrowest_of_its_level(n: int) -> None:
    bounds = interval([float(value) for value in range(1, n + 1)])
    k = int(bounds.low)
    assert bounds.high == n + 1 - k and bounds.low <= bounds.median <= bounds.high

    def missed(k: int) -> float:
        return 2 * sum(math.comb(n, i) for i in range(k)) / 2**n

    assert missed(k) <= 1 - LEVEL < missed(k + 1)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    chance = random.Random(0)
    hits = 0
    for _ in range(2000):
        bounds = interval([chance.lognormvariate(0.0, 1.0) for _ in range(12)])
        hits += bounds.low <= 1.0 <= bounds.high
    assert hits >= LEVEL * 2000 - 30


def test_too_few_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match="needs 6 values, not 5"):
        interval([1.0] * 5)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def busy(seconds: float) -> None:
    """Use the processor for so many seconds."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_one_thread_is_measured_in_time_of_the_processor() -> None:
    assert clock(CPU) == "processor time" and clock(torch.device("cuda")) == "elapsed time"
    torch.set_num_threads(2)
    assert clock(CPU) == "elapsed time"


def test_a_step_that_takes_twice_as_long() -> None:
    pair = compare(lambda: busy(0.01), lambda: busy(0.005), 9, CPU)
    assert pair.speed.low > 1.2 and pair.speed.median < 3
    assert 0.004 <= pair.new.median < pair.old.median


def test_the_two_steps_alternate() -> None:
    order: list[str] = []

    def old() -> None:
        order.append("old")
        busy(0.03)

    def new() -> None:
        order.append("new")
        busy(0.03)

    compare(old, new, 6, CPU)
    assert order[-12:] in (["new", "old", "old", "new"] * 3, ["old", "new", "new", "old"] * 3)


def test_peak_memory_counts_what_lives_at_once() -> None:
    x = torch.randn(512, 512)
    size = x.nbytes
    assert peak(lambda: (x + 1) * 2, CPU) == pytest.approx(2 * size, rel=0.01)
    assert peak(lambda: [x + 1, x + 2, x + 3], CPU) == pytest.approx(3 * size, rel=0.01)
    assert peak(lambda: (x + 1, None)[1] or x + 2, CPU) == pytest.approx(size, rel=0.01)


def test_peak_memory_of_inference_and_training() -> None:
    layer, x = nn.Linear(512, 512), torch.randn(512, 512)
    inference, training = (
        peak(step(layer, [((x,), {})], training), CPU) for training in (False, True)
    )
    assert inference == pytest.approx(MIB, rel=0.01)
    assert training > 2 * inference and layer.weight.grad is None


class Loss(nn.Module):
    """A model that returns its loss beside its logits and records the gradients of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.seen: list[object] = []

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = (self.weight * x).sum()
        loss.register_hook(self.seen.append)
        return {"loss": loss, "logits": self.weight * x * 100}


def test_the_loss_of_the_output_is_differentiated() -> None:
    model = Loss()
    gradients: list[torch.Tensor] = []
    model.weight.register_hook(gradients.append)
    step(model, [((), {"x": torch.ones(3)})], True)()
    assert torch.equal(gradients[0], torch.ones(3))


def test_a_model_without_gradients_has_no_training_step() -> None:
    training_step = step(nn.ReLU(), [((torch.ones(2),), {})], True)
    with pytest.raises(BenchError, match="has a gradient"):
        compare(training_step, training_step, 6, CPU)


def test_a_model_that_does_not_run() -> None:
    inference = step(nn.Linear(2, 2), [((torch.ones(3),), {})], False)
    with pytest.raises(BenchError, match="does not run: RuntimeError"):
        compare(inference, inference, 6, CPU)


@pytest.mark.parametrize(
    ("low", "high", "decided"),
    [
        (1.03, 2.0, True),
        (0.5, 0.97, True),
        (0.985, 1.015, True),
        (1.01, 1.5, False),
        (0.9, 1.1, False),
        (0.97, 1.01, False),
    ],
)
def test_an_interval_is_decided_beyond_the_margin_or_within_it(
    low: float, high: float, decided: bool
) -> None:
    assert is_decided(Interval(low, (low + high) / 2, high)) is decided


def test_a_comparison_ends_when_it_has_enough() -> None:
    seen: list[Interval] = []
    runs: list[int] = []

    def is_enough(speed: Interval) -> bool:
        seen.append(speed)
        return len(seen) == 2

    def run_step() -> None:
        runs.append(1)

    compare(run_step, run_step, 50, torch.device("cpu"), is_enough=is_enough, slice_seconds=1e-9)
    assert len(seen) == 2 and len(runs) == 2 * (2 + 1 + FEWEST + 1)


def race_of(names: str, rounds: int, order: list[str]) -> Race:
    """Return a race of steps that write their names, of one letter, into `order`."""

    def prepared(name: str) -> Prepared:
        def run_step() -> None:
            order.append(name)
            busy(0.001)

        return Prepared(run_step, 1)

    return Race(
        prepared("old"),
        {name: prepared(name) for name in names},
        rounds,
        CPU,
        is_enough=lambda _: False,
    )


def test_every_step_of_a_race_runs_directly_beside_the_old_one_and_alternates() -> None:
    order: list[str] = []
    race = race_of("abc", 6, order)
    settled: list[str] = []
    counts: list[tuple[int, int]] = []
    race.run(lambda name, _: settled.append(name), lambda *count: counts.append(count))
    even, odd = ["a", "old", "b", "c", "old"], ["b", "old", "a", "old", "c"]
    assert order == (even + odd) * 3
    assert settled == ["a", "b", "c"] and counts[-1] == (18, 18)
    assert set(race.pairs()) == {"a", "b", "c"}


def test_a_race_goes_on_without_those_that_are_settled() -> None:
    order: list[str] = []

    def prepared(name: str, seconds: float) -> Prepared:
        def run_step() -> None:
            order.append(name)
            busy(seconds)

        return Prepared(run_step, 1)

    steps = {"fast": prepared("fast", 0.002), "slow": prepared("slow", 0.02)}
    race = Race(prepared("old", 0.01), steps, 9, CPU, is_enough=lambda speed: speed.median < 1)
    race.run()
    assert order.count("slow") == FEWEST and order.count("fast") == 9 == order.count("old")
    pairs = race.pairs()
    assert pairs["fast"].speed.low > 1 > pairs["slow"].speed.high


def test_a_pair_is_the_same_the_other_way_round() -> None:
    pair = compare(lambda: busy(0.002), lambda: busy(0.001), 6, CPU, slice_seconds=1e-9)
    inverse = pair.inverse()
    assert inverse.old == pair.new and inverse.new == pair.old
    assert inverse.speed.low == 1 / pair.speed.high
    assert inverse.speed.inverse().median == pytest.approx(pair.speed.median)


@pytest.mark.parametrize(
    ("low", "median", "high", "settled"),
    [
        (1.03, 1.05, 1.1, True),  # faster
        (0.9, 1.005, 1.015, True),  # no gain beyond the margin
        (0.9, 1.0, 1.3, True),  # half of the pairs show none
        (0.9, 1.01, 1.3, False),
        (1.01, 1.05, 1.1, False),
    ],
)
def test_a_gain_is_settled_when_it_is_clear_or_out_of_reach(
    low: float, median: float, high: float, settled: bool
) -> None:
    assert gain_is_settled(Interval(low, median, high)) is settled


def test_a_step_is_warm_and_its_memory_known_before_it_is_measured() -> None:
    x, runs = torch.randn(512, 512), []

    def run_step() -> None:
        runs.append(1)
        (x + 1) * 2

    prepared, size = prepare_with_peak(run_step, CPU)
    assert size == pytest.approx(2 * x.nbytes, rel=0.01)
    assert prepared.repeats > 1 and len(runs) >= 3
    with pytest.raises(BenchError, match="does not run: ZeroDivisionError"):
        prepare_with_peak(lambda: 1 / 0, CPU)
