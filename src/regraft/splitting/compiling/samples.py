"""The samples of a region: inputs that a compiled region is compared on, and the sizes that they
leave open."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from regraft.splitting.checking.difference import difference
from regraft.splitting.observing.probe import observe
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.explore import RegionModule, common_sizes
from regraft.splitting.sampling.record import to_numpy, to_torch

Sample = tuple[torch.Tensor, ...]

WHOLE_NUMBERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})


SLOWER = 1.2  # a region that takes more than this multiple of torch's time stays eager
MIN_SAVING = 50e-6  # seconds; smaller differences do not matter
SMALL = 3  # the largest size that PyTorch's notes on broadcasting exclude
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
    `run` gives the results of torch. Limits of the region's sizes that turn out to be none are
    removed from `region.limits`.
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
    if not sized_by_data:  # else whole numbers may be sizes
        for changed in change_whole_numbers(first):
            compare_changed(module, run, changed, name, difference)
    compare_sizes(region, module, run, name)


def compare_sizes(
    region: Region, module: RegionModule, run: Callable[[Sample], list[Any]], name: str
) -> None:
    """Compare a compiled region with torch on samples of other sizes.

    Raises Uncompilable where they differ although no limit of the region excludes the size. A limit
    that excludes a few small sizes alone, as PyTorch notes them where it might broadcast, is
    removed if the results are equal there.
    """
    removable = {limit for limit in region.limits if excludes_small_sizes_alone(limit, region)}
    for sample in resized_samples(region):
        inputs = dict(zip(region.inputs, sample, strict=True))
        exceeded = {limit for limit in region.limits if not is_within(limit, inputs)}
        if exceeded - removable:
            continue
        try:
            compare_changed(module, run, sample, name, difference)
        except Uncompilable:
            if not exceeded:
                raise
            removable -= exceeded
    region.limits = [limit for limit in region.limits if limit not in removable]


def compare_changed(
    module: RegionModule,
    run: Callable[[Sample], list[Any]],
    sample: Sample,
    name: str,
    describe: Callable[[Any, Any], str],
) -> None:
    """Compare a compiled region with torch on a changed sample, unless torch raises for it; raise
    Uncompilable where they differ.

    describe: describes how two results differ; "" where they do not.
    """
    try:
        with torch.no_grad():
            expected = as_tensors(module(*sample))
    except Exception:  # noqa: BLE001  (whatever torch raises for values that the region does not take)
        return
    check_result(expected, run, sample, name, describe)


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


def change_whole_numbers(sample: Sample) -> Iterator[Sample]:
    """Yield the sample with the whole numbers of its tensors negated, and near the largest of their
    type; nothing where it has none."""
    for change in (torch.neg, towards_largest):
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


def resized_samples(region: Region) -> Iterator[Sample]:
    """Yield the first sample with the sizes that differ between the samples replaced by each of
    `COMPARED_SIZES`: all of them, and then each group of sizes that are always equal alone.

    Rows are repeated or left out; floating-point numbers move a little, so that none are equal.
    """
    generator = torch.Generator().manual_seed(0)
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for place, tensors in enumerate(zip(*region.samples, strict=True)):
        for dim, sizes in enumerate(zip(*(tensor.shape for tensor in tensors), strict=True)):
            if len(set(sizes)) > 1:
                groups.setdefault(sizes, []).append((place, dim))
    if not groups:
        return
    sample = max(region.samples, key=lambda tensors: min(map(torch.Tensor.numel, tensors)))
    together = [axis for axes in groups.values() for axis in axes]
    for axes in (together, *(groups.values() if len(groups) > 1 else ())):
        for size in COMPARED_SIZES:
            resized = list(sample)
            for place, dim in axes:
                tensor = resized[place]
                if tensor.shape[dim] and tensor.numel() // tensor.shape[dim] * size <= MAX_ELEMENTS:
                    rows = torch.arange(size) % tensor.shape[dim]
                    resized[place] = moved(tensor.index_select(dim, rows), generator)
            yield tuple(resized)


def moved(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return floating-point numbers a little larger or smaller; other tensors unchanged."""
    if not tensor.is_floating_point():
        return tensor
    noise = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
    return tensor * (1 + noise / 16) + noise / 1024


def is_within(limit: str, inputs: Mapping[str, Any]) -> bool:
    """Return whether inputs by name, tensors or arrays, have sizes for which a limit holds."""
    return bool(eval(limit, {"__builtins__": {"max": max, "min": min}}, dict(inputs)))


def excludes_small_sizes_alone(limit: str, region: Region) -> bool:
    """Return whether a limit on one size excludes only sizes up to `SMALL`, as far as larger sizes
    tell; no rows are no size."""
    axes = [
        (key, dim)
        for key, dims in varying_axes(region).items()
        for dim in dims
        if f"{key}.shape[{dim}]" in limit
    ]
    if len(axes) != 1:
        return False
    key, dim = axes[0]

    def holds(size: int) -> bool:
        sizes = torch.Size([1] * dim + [size])
        return is_within(limit, {key: SimpleNamespace(shape=sizes)})

    larger_sizes = (*range(SMALL + 1, 300), *(2**power for power in range(9, 40)))
    return not all(map(holds, range(1, SMALL + 1))) and all(map(holds, larger_sizes))


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


def varying_axes(region: Region) -> dict[str, dict[int, str]]:
    """Return the dimensions of the inputs that differ between the samples, each with a name, by
    input."""
    axes: dict[str, dict[int, str]] = {}
    for key, *tensors in zip(region.inputs, *region.samples, strict=True):
        dims = [
            dim
            for dim, size in enumerate(common_sizes([tensor.shape for tensor in tensors]))
            if size is None
        ]
        if dims:
            axes[key] = {dim: f"{key}_{dim}" for dim in dims}
    return axes


def first_line(problem: Exception) -> str:
    """Return the first line of an exception's text, or the name of its type where the text is
    empty."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
