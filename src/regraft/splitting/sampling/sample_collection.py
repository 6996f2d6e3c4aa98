"""Collection of samples for every region, on the example calls and on perturbed ones."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.residual import Region, Step
from regraft.splitting.sampling.bounded_results import bounded_results
from regraft.splitting.sampling.branch_exploration import Explorer, RegionModule, common_sizes
from regraft.splitting.sampling.numpy_conversion import to_numpy
from regraft.splitting.sampling.varied_calls import CHECKED, vary_calls

Sample = tuple[torch.Tensor, ...]

PERTURBED = 40  # perturbed inputs that are run for samples of other sizes


def collect_samples(
    explorer: Explorer, steps: list[Step], calls: list[dict[str, Any]], varied: int
) -> None:
    """Collect samples of every region, in the regions, by running the residual program on the
    calls. Perturbed inputs, made of the first `varied` calls, are run, too, where sizes are open or
    a region lacks samples. Raises Unsplittable where the program fails on an example call."""
    has_open_sizes = any(any(region.open) for region in explorer.regions)
    enough = len(calls) + PERTURBED * has_open_sizes
    varied_calls = itertools.islice(vary_calls(calls, varied), len(calls) + CHECKED)
    for number, call in enumerate(varied_calls):
        if number >= enough and not any(map(lacks_samples, explorer.regions)):
            break
        names = {key: to_numpy(value) for key, value in call.items()}
        with bounded_results():
            if number < len(calls):
                run_example_call(explorer, steps, names, number)
            else:
                explorer.run_for_samples(steps, names)
    add_made_up_samples(explorer)


def add_made_up_samples(explorer: Explorer) -> None:
    """Add samples (`make_samples`) to the regions that have some, but with an open size that is the
    same in all of them, and set how many were made up."""
    for region, module in zip(explorer.regions, explorer.modules, strict=True):
        if region.samples and lacks_samples(region):
            samples = make_samples(region, module)
            region.samples.extend(samples)
            region.made_up = len(samples)


def make_samples(region: Region, module: RegionModule) -> list[Sample]:
    """Return samples in which the open sizes that are the same in all samples are others: all of
    them if the region can be run so, else those that are equal to each other.

    Sizes are one smaller; of one element there are two.
    """
    first = region.samples[0]
    axes = [
        (place, dim)
        for place, dims in enumerate(region.open)
        for dim in sorted(dims)
        if first[place].shape[dim] and len({s[place].shape[dim] for s in region.samples}) == 1
    ]
    sizes = dict.fromkeys(first[place].shape[dim] for place, dim in axes)
    groups = [[axis for axis in axes if first[axis[0]].shape[axis[1]] == size] for size in sizes]
    for choice in ([axes], groups):
        samples = [sample for group in choice if runs(module, sample := resize(first, group))]
        if samples:
            return samples
    return []


def resize(sample: Sample, axes: list[tuple[int, int]]) -> Sample:
    """Return a sample with one element less along these axes (the place of an input, and a
    dimension), and with two instead of one."""
    resized = list(sample)
    for place, dim in axes:
        tensor = resized[place]
        size = tensor.shape[dim]
        rows = [0, 0] if size == 1 else range(size - 1)
        resized[place] = tensor.index_select(dim, torch.tensor(rows, dtype=torch.int64))
    return tuple(resized)


def runs(module: RegionModule, sample: Sample) -> bool:
    """Return whether torch runs a region on a sample without an error."""
    try:
        with torch.no_grad():
            module(*sample)
    except Exception:  # noqa: BLE001  (whatever torch raises for sizes that do not fit)
        return False
    return True


def run_example_call(
    explorer: Explorer, steps: list[Step], names: dict[str, Any], number: int
) -> None:
    """Run the program on example call `number`, whose arguments are the variables `names`, which
    are changed in place; the explorer adds samples to its regions. Raises Unsplittable for any
    exception of the program."""
    try:
        explorer.run(steps, names)
    except Unsplittable:
        raise
    except Exception as problem:
        reason = (
            f"the specialised program fails on example call {number}: {type(problem).__name__}:"
            f" {problem}"
        )
        raise Unsplittable(*explorer.place, reason) from problem


def lacks_samples(region: Region) -> bool:
    """Return whether a region has no samples, or an open size is the same in all of them."""
    if not region.samples:
        return True
    sizes_of_inputs = [
        common_sizes([tensor.shape for tensor in tensors])
        for tensors in zip(*region.samples, strict=True)
    ]
    return any(
        sizes[dim] is not None
        for sizes, dims in zip(sizes_of_inputs, region.open, strict=True)
        for dim in dims
    )
