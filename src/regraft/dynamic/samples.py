"""The samples of a region: what a compiled region is compared on, and the sizes that they leave open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regraft.dynamic.check import difference
from regraft.dynamic.explore import RegionModule
from regraft.dynamic.record import to_torch
from regraft.dynamic.residual import Region

Sample = tuple[torch.Tensor, ...]


class Untaken(Exception):
    """The compiler cannot take the region."""


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
