"""The samples of a region: what a compiled region is compared on, and the sizes that they leave open."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from regraft.dynamic.check import difference
from regraft.dynamic.explore import RegionModule
from regraft.dynamic.record import to_numpy, to_torch
from regraft.dynamic.residual import Region

Sample = tuple[torch.Tensor, ...]


SLOWER = 1.2  # times the time of torch, from which on a region stays eager
WORTH = 50e-6  # seconds, below which it does not matter
PATIENCE = 0.02  # seconds for the timing of a region; three rounds in any case


class Untaken(Exception):
    """The compiler cannot take the region."""


class Slower(Untaken):
    """The compiler can, but torch is faster."""


def compare(region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str) -> None:
    """Raises Untaken unless `run` gives what torch gives, on all samples."""
    for sample in region.samples:
        with torch.no_grad():
            expected = tuple(torch.as_tensor(one).detach() for one in module(*sample))
        try:
            got = to_torch(tuple(run(sample)))
        except Exception as problem:
            raise Untaken(f"{name} cannot run it: {first_line(problem)}") from problem
        wrong = difference(got, expected)
        if wrong:
            raise Untaken(f"{name} gives other values: {wrong}")
    if region.measured:
        check_speed(region, module, run, name)


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
