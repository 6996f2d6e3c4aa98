"""The samples of a region: what a compiled region is compared on, and the sizes that they leave open."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from regraft.splitting.check import difference
from regraft.splitting.explore import RegionModule
from regraft.splitting.probe import observe
from regraft.splitting.record import to_numpy, to_torch
from regraft.splitting.residual import Region

Sample = tuple[torch.Tensor, ...]


SLOWER = 1.2  # times the time of torch, from which on a region stays eager
WORTH = 50e-6  # seconds, below which it does not matter
PATIENCE = 0.02  # seconds for the timing of a region; three rounds in any case


class Untaken(Exception):
    """The compiler cannot take the region."""


class Slower(Untaken):
    """The compiler can, but torch is faster."""


def compare(region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str) -> None:
    """Raises Untaken unless `run` gives what torch gives, and as fast where that is asked."""
    compare_values(region, module, run, name)
    if region.measured:
        check_speed(region, module, run, name)


def compare_values(region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str) -> None:
    """Raises Untaken unless `run` gives what torch gives, on all samples, and on those with other numbers.

    A tracer may take a number for a constant, and the size that data decided for a size that always is so.
    """
    for sample in region.samples:
        with torch.no_grad():
            expected = tensors(module(*sample))
        difference_to(expected, run, sample, name, difference)
        for other in other_numbers(sample):
            compare_other(module, run, other, name, difference)
    first = region.samples[0]
    with torch.no_grad():
        sized = any(one.dim() for one in first) and bool(observe(lambda: module(*first), ()).shapes)
    for factor, differ in CHOOSING.items() if sized else ():
        compare_other(module, run, other_values(first, factor), name, differ)


def compare_other(
    module: RegionModule, run: Callable[[Sample], list[Any]], sample: Sample, name: str,
    differ: Callable[[Any, Any], str],
) -> None:  # fmt: skip
    try:
        with torch.no_grad():
            expected = tensors(module(*sample))
    except Exception:  # noqa: BLE001  (whatever torch raises for values that the region does not take)
        return
    difference_to(expected, run, sample, name, differ)


def difference_to(
    expected: tuple[torch.Tensor, ...], run: Callable[[Sample], list[Any]], sample: Sample, name: str,
    differ: Callable[[Any, Any], str],
) -> None:  # fmt: skip
    try:
        got = to_torch(tuple(run(sample)))
    except Exception as problem:
        raise Untaken(f"{name} cannot run it: {first_line(problem)}") from problem
    wrong = differ(got, expected)
    if wrong:
        raise Untaken(f"{name} gives other values: {wrong}")


def tensors(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(torch.as_tensor(one).detach() for one in result)


def no_difference(_: Any, __: Any) -> str:
    """Where values are equal, or all too large, two implementations may choose different rows."""
    return ""


def difference_in_size(got: Any, expected: Any) -> str:
    """How sizes differ, and numbers from what is none: a mean over no rows is NaN."""
    sizes = [[tuple(one.shape) for one in each] for each in (got, expected)]
    if sizes[0] != sizes[1]:
        return f"sizes {sizes[0]} instead of {sizes[1]}"
    same = all(torch.equal(one.isnan(), other.isnan()) for one, other in zip(got, expected, strict=True))
    return "" if same else "numbers instead of NaN, or NaN instead of numbers"


def other_numbers(sample: Sample) -> Iterator[Sample]:
    """The sample with its single numbers a little larger, and a little smaller."""
    for step in (1, -1) if any(one.dim() == 0 for one in sample) else ():
        yield tuple(another_number(one, step) if one.dim() == 0 else one for one in sample)


def another_number(number: torch.Tensor, step: int) -> torch.Tensor:
    if number.dtype == torch.bool:
        return ~number
    return number + step if not number.is_floating_point() else number * (1 + step / 4) + step / 2


def other_values(sample: Sample, factor: float) -> Sample:
    """The sample with values that may choose other rows: floats times a factor; none or all of a mask."""
    return tuple(
        torch.full_like(one, factor > 0) if one.dtype == torch.bool
        else one * factor if one.is_floating_point() else one
        for one in sample
    )  # fmt: skip


# Factors of values that choose other rows, and what may not differ there.
CHOOSING = dict.fromkeys((-1.0, 3.0, -3.0, 0.2), difference_in_size) | dict.fromkeys((0.0, 1e8), no_difference)


def check_speed(region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str) -> None:
    """Raises Slower where torch is faster, on the largest sample and with one thread, as sub-networks run."""
    sample = largest(region)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            compiled, eager = fastest(lambda: run(sample), lambda: module(*sample))
            if is_slower(compiled, eager):  # an island takes longer than the module
                island, given = as_island(region, module), [to_numpy(one) for one in sample]
                compiled, eager = fastest(lambda: run(sample), lambda: island(*given)) if island else (0.0, 0.0)
    finally:
        torch.set_num_threads(threads)
    if is_slower(compiled, eager):
        raise Slower(f"{name} takes {compiled * 1e6:.0f} us, torch {eager * 1e6:.0f} us")


def is_slower(compiled: float, eager: float) -> bool:
    return compiled > SLOWER * eager and compiled - eager > WORTH


def as_island(region: Region, module: RegionModule) -> Callable[..., Any] | None:
    """What the host runs for an eager island; None where torch.export cannot take the region."""
    try:
        network = program(region, module).module()
    except Exception:  # noqa: BLE001  (whatever the exporter raises)
        return None
    return lambda *given: [one.numpy() for one in network(*map(torch.from_numpy, given))]


def fastest(*calls: Callable[[], Any]) -> list[float]:
    """The least time of each, in turns, in seconds."""
    found = [math.inf] * len(calls)
    rounds, started = 0, time.perf_counter()
    while rounds < 3 or time.perf_counter() - started < PATIENCE:
        for place, call in enumerate(calls):
            before = time.perf_counter()
            call()
            found[place] = min(found[place], time.perf_counter() - before)
        rounds += 1
    return found


def common(shapes: list[torch.Size]) -> list[int | None]:
    return [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]


def largest(region: Region) -> Sample:
    return max(region.samples, key=lambda sample: sum(one.numel() for one in sample))


def program(region: Region, module: RegionModule) -> Any:
    """The region as torch.export traces it."""
    shapes = (open_shapes(region),) if region.inputs else None
    with torch.no_grad():
        return torch.export.export(module, largest(region), dynamic_shapes=shapes)


def open_shapes(region: Region) -> tuple[dict[int, Any], ...]:
    axes = varying(region)
    return tuple(dict.fromkeys(axes.get(key, ()), torch.export.Dim.AUTO) for key in region.inputs)


def varying(region: Region) -> dict[str, dict[int, str]]:
    """The dimensions of the inputs that differ between the samples."""
    axes: dict[str, dict[int, str]] = {}
    for key, *tensors in zip(region.inputs, *region.samples, strict=True):
        dims = [dim for dim, size in enumerate(common([one.shape for one in tensors])) if size is None]
        if dims:
            axes[key] = {dim: f"{key}_{dim}" for dim in dims}
    return axes


def first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
