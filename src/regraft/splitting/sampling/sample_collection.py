"""Collection of samples for every region, on the example calls and on perturbed ones."""

from __future__ import annotations

import itertools
from typing import Any

from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.residual import Region, Step
from regraft.splitting.sampling.branch_exploration import Explorer, common_sizes
from regraft.splitting.sampling.decision_recorder import to_numpy
from regraft.splitting.sampling.varied_calls import CHECKED, vary_calls

PERTURBED = 40  # perturbed inputs that are run for samples of other sizes


def collect_samples(
    explorer: Explorer, steps: list[Step], calls: list[dict[str, Any]], varied: int
) -> None:
    """Collect samples of every region, in the regions, by running the residual program on the
    calls.

    Perturbed inputs, made of the first `varied` calls, are run, too, where sizes are open or a
    region lacks samples. Raises Unsplittable where the program fails on an example call.
    """
    has_open_sizes = any(any(region.open) for region in explorer.regions)
    enough = len(calls) + PERTURBED * has_open_sizes
    for number, call in enumerate(
        itertools.islice(vary_calls(calls, varied), len(calls) + CHECKED)
    ):
        if number >= enough and not any(map(lacks_samples, explorer.regions)):
            break
        names = {key: to_numpy(value) for key, value in call.items()}
        if number < len(calls):
            run_example_call(explorer, steps, names, number)
        else:
            explorer.run_for_samples(steps, names)


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
        raise Unsplittable(explorer.path, 0, reason) from problem


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
