"""The samples of a region: inputs that a compiled region is compared on, and the sizes that they
leave open."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from regraft.splitting.checking.difference import difference
from regraft.splitting.compiling.size_limits import (
    DecidesByData,
    Sample,
    SizeLimits,
    limits_of,
    varying_axes,
)
from regraft.splitting.observing.probe import observe
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.explore import RegionModule
from regraft.splitting.sampling.record import to_numpy, to_torch

WHOLE_NUMBERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


Axis = tuple[int, int]  # the number of an input, and of a dimension

SLOWER = 1.2  # a region that takes more than this multiple of torch's time stays eager
MIN_SAVING = 50e-6  # seconds; smaller differences do not matter
EVERY_SIZE = 64  # the largest size up to which every size is compared where limits need it
COMPARED_SIZES = (1, 2, 3, 17, 64, 257)  # sizes beside those of the samples
MAX_ELEMENTS = 1_000_000  # elements of an input that is made for a comparison
TIMING_SECONDS = 0.02  # seconds for the timing of a region; three rounds in any case


class Uncompilable(Exception):
    """Signals that the compiler cannot take the region."""


class Slower(Uncompilable):
    """Signals that the compiler can take the region, but torch is faster."""


def compare(
    region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str
) -> None:
    """Compare a compiled region with torch: its results, and its speed where `region.measured` is
    True.

    run: runs the compiled region. name: the compiler's name for messages. Raises Uncompilable
    unless `run` gives the results of torch, and Slower where torch is faster.
    """
    compare_values(region, module, run, name)
    if region.measured:
        check_speed(region, module, run, name)


def compare_values(
    region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str
) -> None:
    """Compare a compiled region's results with torch's on all samples, on samples with other
    numbers and of other sizes, and, where data decide sizes, on other values.

    A tracer may take a number for a constant, and a size that the data decided for one that is
    always the same; a compiler may compute whole numbers otherwise. Raises Uncompilable unless
    `run` gives the results of torch. Sets `region.limits`.
    """
    for sample in region.samples:
        with torch.no_grad():
            expected = as_tensors(module(*sample))
        check_result(expected, run, sample, name, difference)
        for changed in change_numbers(sample):
            compare_changed(module, run, changed, name, difference)
    first = region.samples[0]
    with torch.no_grad():
        sized_by_data = any(tensor.dim() for tensor in first) and bool(
            observe(lambda: module(*first)).shapes
        )
    for factor, describe in DIFFERENCE_BY_FACTOR.items() if sized_by_data else ():
        compare_changed(module, run, change_values(first, factor), name, describe)
    for changed in change_whole_numbers(first, may_be_sizes=sized_by_data):
        compare_changed(module, run, changed, name, difference)
    compare_sizes(region, module, run, name)


def compare_sizes(
    region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str
) -> None:
    """Compare a compiled region with torch on samples of other sizes, and set `region.limits`.

    Sizes beyond the limits at which both are equal extend them. Raises Uncompilable where the
    results differ within the limits.
    """
    limits = region_limits(region, module)
    for sample in resized_samples(region, every_size=not limits.guarded):
        is_inside = limits.holds(sample)
        try:
            is_compared = compare_changed(module, run, sample, name, difference)
        except Uncompilable:
            if is_inside:
                raise
        else:
            if is_compared and not is_inside:
                limits.extend(sample)
    region.limits = limits.conditions()


def region_limits(region: Region, module: RegionModule) -> SizeLimits:
    """Return the limits of a region by its samples; raise Uncompilable where values decide sizes by
    which Python code may decide."""
    try:
        return limits_of(region, module)
    except DecidesByData as problem:
        raise Uncompilable(str(problem)) from problem


def compare_changed(
    module: RegionModule,
    run: Callable[[Sample], list[Any]],
    sample: Sample,
    name: str,
    describe: Callable[[Any, Any], str],
) -> bool:
    """Compare a compiled region with torch on a changed sample; return False where torch raises for
    it, else True. Raises Uncompilable where they differ.

    describe: describes how two results differ; "" where they do not.
    """
    try:
        with torch.no_grad():
            expected = as_tensors(module(*sample))
    except Exception:  # noqa: BLE001  (whatever torch raises for values that the region does not take)
        return False
    check_result(expected, run, sample, name, describe)
    return True


def check_result(
    expected: tuple[torch.Tensor, ...],
    run: Callable[[Sample], list[Any]],
    sample: Sample,
    name: str,
    describe: Callable[[Any, Any], str],
) -> None:
    """Run the compiled region on a sample; raise Uncompilable where it raises, or `describe` finds
    a difference from `expected`."""
    try:
        got = to_torch(tuple(run(sample)))
    except Exception as problem:
        raise Uncompilable(f"{name} cannot run it: {first_line(problem)}") from problem
    mismatch = describe(got, expected)
    if mismatch:
        raise Uncompilable(f"{name} gives other values: {mismatch}")


def as_tensors(results: Any) -> tuple[torch.Tensor, ...]:
    """Return the region's results as tensors without gradients."""
    return tuple(torch.as_tensor(result).detach() for result in results)


def no_difference(_: Any, __: Any) -> str:
    """Return "" for any two results: values that are equal, or all too large, may let two
    implementations choose different rows."""
    return ""


def difference_in_size(got: Any, expected: Any) -> str:
    """Describe how sizes differ, or where one result is NaN and the other is not; "" where neither
    is so.

    A mean over no rows is NaN.
    """
    sizes = [[tuple(tensor.shape) for tensor in results] for results in (got, expected)]
    if sizes[0] != sizes[1]:
        return f"sizes {sizes[0]} instead of {sizes[1]}"
    equal_nans = all(
        torch.equal(result.isnan(), reference.isnan())
        for result, reference in zip(got, expected, strict=True)
    )
    return "" if equal_nans else "numbers instead of NaN, or NaN instead of numbers"


def change_numbers(sample: Sample) -> Iterator[Sample]:
    """Yield the sample with its single numbers a little larger, and a little smaller; nothing where
    it has none."""
    for step in (1, -1) if any(tensor.dim() == 0 for tensor in sample) else ():
        yield tuple(
            change_number(tensor, step) if tensor.dim() == 0 else tensor for tensor in sample
        )


def change_number(number: torch.Tensor, step: int) -> torch.Tensor:
    """Return a tensor of one number a little larger (step 1) or smaller (step -1), and the opposite
    of a truth value."""
    if number.dtype == torch.bool:
        return ~number
    return number + step if not number.is_floating_point() else number * (1 + step / 4) + step / 2


def change_whole_numbers(sample: Sample, *, may_be_sizes: bool) -> Iterator[Sample]:
    """Yield the sample with the whole numbers of its tensors negated, and near the largest of their
    type unless they may be sizes; nothing where it has none."""
    for change in (torch.neg,) if may_be_sizes else (torch.neg, towards_largest):
        changed = tuple(
            change(tensor) if tensor.dim() and tensor.dtype in WHOLE_NUMBERS else tensor
            for tensor in sample
        )
        if any(new is not old for new, old in zip(changed, sample, strict=True)):
            yield changed


def towards_largest(tensor: torch.Tensor) -> torch.Tensor:
    """Return whole numbers that are as far apart as those of the tensor, the largest of which is
    the largest of their type, or 2**60 for 64 bits: sums still fit."""
    largest = 2**60 if tensor.dtype == torch.int64 else torch.iinfo(tensor.dtype).max
    return tensor + (largest - tensor.max()) if tensor.numel() else tensor


def resized_samples(region: Region, *, every_size: bool) -> Iterator[Sample]:
    """Yield a sample with the sizes that differ between the samples replaced by each of
    `COMPARED_SIZES`, or by every size up to `EVERY_SIZE`: all of them, and then each group of sizes
    that are always equal alone.

    Of all together, sizes whose difference is always the same keep it.
    """
    generator = torch.Generator().manual_seed(0)
    groups = axes_by_sizes(region)
    if not groups:
        return
    sample = max(region.samples, key=lambda tensors: min(map(torch.Tensor.numel, tensors)))
    first_sizes = next(iter(groups))
    together = {
        axis: constant_difference(sizes, first_sizes)
        for sizes, axes in groups.items()
        for axis in axes
    }
    alone = [dict.fromkeys(axes, 0) for axes in groups.values()] if len(groups) > 1 else []
    for offsets in (together, *alone):
        for size in range(1, EVERY_SIZE + 1) if every_size else COMPARED_SIZES:
            sizes = {axis: size + offset for axis, offset in offsets.items()}
            yield resize(sample, sizes, generator)


def axes_by_sizes(region: Region) -> dict[tuple[int, ...], list[Axis]]:
    """Return the axes whose size differs between the samples, by their sizes in the samples."""
    groups: dict[tuple[int, ...], list[Axis]] = {}
    for place, tensors in enumerate(zip(*region.samples, strict=True)):
        for dim, sizes in enumerate(zip(*(tensor.shape for tensor in tensors), strict=True)):
            if len(set(sizes)) > 1:
                groups.setdefault(sizes, []).append((place, dim))
    return groups


def constant_difference(sizes: tuple[int, ...], first_sizes: tuple[int, ...]) -> int:
    """Return by how much sizes exceed others if it is the same in all samples, else 0."""
    differences = {size - first for size, first in zip(sizes, first_sizes, strict=True)}
    return differences.pop() if len(differences) == 1 else 0


def resize(sample: Sample, sizes: dict[Axis, int], generator: torch.Generator) -> Sample:
    """Return a sample with other sizes along some axes; an axis keeps its size if the new one is
    none, or too large.

    Rows are repeated or left out; floating-point numbers move a little, so that none are equal.
    """
    resized = list(sample)
    for (place, dim), size in sizes.items():
        tensor = resized[place]
        row_elements = tensor.numel() // max(tensor.shape[dim], 1)
        if tensor.shape[dim] and size > 0 and row_elements * size <= MAX_ELEMENTS:
            rows = torch.arange(size) % tensor.shape[dim]
            resized[place] = moved(tensor.index_select(dim, rows), generator)
    return tuple(resized)


def moved(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return floating-point numbers a little larger or smaller; other tensors unchanged."""
    if not tensor.is_floating_point():
        return tensor
    noise = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
    return tensor * (1 + noise / 16) + noise / 1024


def change_values(sample: Sample, factor: float) -> Sample:
    """Return the sample with values that may choose other rows.

    Floats are multiplied by the factor; masks are full where it is positive, and empty otherwise;
    integers stay.
    """
    return tuple(
        torch.full_like(tensor, factor > 0)
        if tensor.dtype == torch.bool
        else tensor * factor
        if tensor.is_floating_point()
        else tensor
        for tensor in sample
    )


# Factors of values that choose other rows, and the function that describes what may not differ
# there.
DIFFERENCE_BY_FACTOR = dict.fromkeys((-1.0, 3.0, -3.0, 0.2), difference_in_size) | dict.fromkeys(
    (0.0, 1e8), no_difference
)


def check_speed(
    region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str
) -> None:
    """Time the compiled region and torch on the largest sample with one thread, as sub-networks
    run.

    Raises Slower where torch is faster.
    """
    sample = largest_sample(region)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            compiled, eager = fastest(lambda: run(sample), lambda: module(*sample))
            if is_slower(compiled, eager):  # an island takes longer than the module
                island, arrays = as_island(region, module), [to_numpy(tensor) for tensor in sample]
                compiled, eager = (
                    fastest(lambda: run(sample), lambda: island(*arrays)) if island else (0.0, 0.0)
                )
    finally:
        torch.set_num_threads(threads)
    if is_slower(compiled, eager):
        raise Slower(f"{name} takes {compiled * 1e6:.0f} us, torch {eager * 1e6:.0f} us")


def is_slower(compiled: float, eager: float) -> bool:
    """Return whether the compiled region is slower than torch by more than SLOWER and MIN_SAVING;
    times in seconds."""
    return compiled > SLOWER * eager and compiled - eager > MIN_SAVING


def as_island(region: Region, module: RegionModule) -> Callable[..., Any] | None:
    """Return the function that the host would run for an eager island, of arrays.

    Returns None where torch.export cannot take the region.
    """
    try:
        network = trace_program(region, module).module()
    except Exception:  # noqa: BLE001  (whatever the exporter raises)
        return None
    return lambda *arrays: [result.numpy() for result in network(*map(torch.from_numpy, arrays))]


def fastest(*calls: Callable[[], Any]) -> list[float]:
    """Return the least time of each call in seconds; the calls are run in turns."""
    times = [math.inf] * len(calls)
    rounds, started = 0, time.perf_counter()
    while rounds < 3 or time.perf_counter() - started < TIMING_SECONDS:
        for number, call in enumerate(calls):
            before = time.perf_counter()
            call()
            times[number] = min(times[number], time.perf_counter() - before)
        rounds += 1
    return times


def largest_sample(region: Region) -> Sample:
    """Return the region's sample with the most elements."""
    return max(region.samples, key=lambda sample: sum(tensor.numel() for tensor in sample))


def trace_program(region: Region, module: RegionModule) -> Any:
    """Return the region as an exported program of torch.export, traced on its largest sample."""
    shapes = (open_shapes(region),) if region.inputs else None
    with torch.no_grad():
        return torch.export.export(module, largest_sample(region), dynamic_shapes=shapes)


def open_shapes(region: Region) -> tuple[dict[int, Any], ...]:
    """Return the dynamic shapes of the inputs for torch.export: the dimensions that differ between
    the samples."""
    axes = varying_axes(region)
    return tuple(dict.fromkeys(axes.get(key, ()), torch.export.Dim.AUTO) for key in region.inputs)


def first_line(problem: Exception) -> str:
    """Return the first line of an exception's text, or the name of its type where the text is
    empty."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
