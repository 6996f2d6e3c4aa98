"""Comparison of a compiled region with torch, in results and speed, on the region's samples and on
changed ones; and the region traced by torch.export."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from regraft.splitting.checking.result_difference import difference
from regraft.splitting.compiling.changed_samples import (
    change_numbers,
    change_values,
    change_whole_numbers,
    enlarge_floats,
    resized_samples,
    with_negative_zero,
)
from regraft.splitting.compiling.quiet import without_output
from regraft.splitting.compiling.size_limits import (
    DecidesByData,
    Sample,
    limits_of,
    sizes_not_shown,
    varying_axes,
)
from regraft.splitting.observing.call_observation import observe
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.bounded_results import bounded_results
from regraft.splitting.sampling.branch_exploration import RegionModule
from regraft.splitting.sampling.numpy_conversion import to_numpy, to_torch

SLOWER = 1.2  # a region that takes more than this multiple of torch's time stays eager
MIN_SAVING = 50e-6  # seconds; smaller differences do not matter
TIMING_SECONDS = 0.02  # seconds for the timing of a region; three rounds in any case


class Uncompilable(Exception):
    """Signals that the compiler cannot take the region."""


class Unrun(Uncompilable):
    """Signals that the compiled region raises where torch gives a result."""


class Slower(Uncompilable):
    """Signals that the compiler can take the region, but torch is faster."""


def compare_with_torch(
    region: Region,
    module: RegionModule,
    run: Callable[[Sample], list[Any]],
    name: str,
) -> None:
    """Compare a compiled region with torch: its results, and its speed where `region.measured` is
    True. Sets `region.limits`, the sizes for which the results are right.

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
    numbers and of other sizes, and, where data decide sizes, with other values. Sets
    `region.limits`, the sizes for which they are right.

    A tracer may take a number for a constant, and a size that the data decided for one that is
    always the same; a compiler may compute whole numbers otherwise. Raises Uncompilable unless
    `run` gives the results of torch.

    run: runs the compiled region. name: the compiler's name for the message.
    """
    for sample in region.samples:
        with torch.no_grad():
            expected = as_tensors(module(*sample))
        check_result(expected, run, sample, name, difference)
        for changed in change_numbers(sample):
            compare_changed(module, run, changed, name, difference, may_fail_if_empty=True)
    first = region.samples[0]
    sized_by_data = region.sized_by_data = decides_sizes(region, module)
    has_elements = any(tensor.dim() for tensor in first)
    for factor, describe in DIFFERENCE_BY_FACTOR.items() if sized_by_data and has_elements else ():
        compare_changed(module, run, change_values(first, factor), name, describe)
    for changed in change_whole_numbers(first, may_be_sizes=sized_by_data):
        compare_changed(module, run, changed, name, difference)
    if not sized_by_data:
        compare_changed(module, run, with_negative_zero(first), name, difference)
        compare_changed(module, run, enlarge_floats(first), name, difference_in_size)
    compare_sizes(region, module, run, name, sized_by_data)


def decides_sizes(region: Region, module: RegionModule) -> bool:
    """Return whether the size of a tensor in a region depends on values of its inputs, as after
    `nonzero`, in a run on the first sample."""
    sample = region.samples[0]
    with torch.no_grad():
        return bool(sample) and bool(observe(lambda: module(*sample)).shapes)


def compare_sizes(
    region: Region,
    module: RegionModule,
    run: Callable[[Sample], list[Any]],
    name: str,
    sized_by_data: bool,
) -> None:
    """Compare a compiled region with torch on samples of other sizes, and set `region.limits`,
    conditions on the sizes for which it is right. A size that may differ and that is the same in
    all samples has to be that.

    Sizes beyond the limits at which both are equal extend them. sized_by_data: the result of
    `decides_sizes`. Raises Uncompilable where the results differ within the limits, or Python code
    may decide by a size that values decide.
    """
    try:
        limits = limits_of(region, module, sized_by_data)
    except DecidesByData as problem:
        raise Uncompilable(str(problem)) from problem
    every_size = not limits.guarded
    for sample in (*region.further, *resized_samples(region, every_size=every_size)):
        is_inside = limits.holds(sample)
        try:
            is_compared = compare_changed(module, run, sample, name, difference)
        except Uncompilable:
            if is_inside:
                raise
        else:
            if is_compared and not is_inside:
                limits.extend(sample)
    region.limits = [*limits.conditions(), *sizes_not_shown(region)]


def compare_changed(
    module: RegionModule,
    run: Callable[[Sample], list[Any]],
    sample: Sample,
    name: str,
    describe: Callable[[Any, Any], str],
    *,
    may_fail_if_empty: bool = False,
) -> bool:
    """Compare a compiled region with torch on a changed sample; return True where they agree, False
    where torch itself raises. Raises Uncompilable where they differ.

    run: runs the compiled region. name: the compiler's name for messages. describe: describes how
    two results differ; "" where they do not. may_fail_if_empty: whether the region may raise, too,
    where torch gives tensors without elements only: rows that a number beyond the last one chose,
    read by a recurrent layer.
    """
    try:
        with torch.no_grad(), bounded_results():
            expected = as_tensors(module(*sample))
    except Exception:  # noqa: BLE001  (whatever torch raises for values that the region does not take)
        return False
    try:
        check_result(expected, run, sample, name, describe)
    except Unrun:
        if may_fail_if_empty and not any(tensor.numel() for tensor in expected):
            return False
        raise
    return True


def check_result(
    expected: tuple[torch.Tensor, ...],
    run: Callable[[Sample], list[Any]],
    sample: Sample,
    name: str,
    describe: Callable[[Any, Any], str],
) -> None:
    """Run the compiled region on a sample; raise Unrun where it raises, and Uncompilable where its
    result differs from `expected`.

    name: the compiler's name for messages. describe: describes how two results differ; "" where
    they do not.
    """
    try:
        got = to_torch(tuple(run(sample)))
    except Exception as problem:
        raise Unrun(f"{name} cannot run it: {first_line(problem)}") from problem
    mismatch = describe(got, expected)
    if mismatch:
        raise Uncompilable(f"{name} gives other values: {mismatch}")


def as_tensors(results: Any) -> tuple[torch.Tensor, ...]:
    """Return the region's results as tensors without gradients."""
    return tuple(torch.as_tensor(result).detach() for result in results)


def no_difference(_: Any, __: Any) -> str:
    """Return "" for any two results: for these values two right implementations may choose
    different rows, so that the region only has to run."""
    return ""


def difference_in_size(got: Any, expected: Any) -> str:
    """Describe how the sizes of two results differ, or that elements of one are NaN or infinite
    where those of the other are not; "" where neither is so. Other numbers are not compared."""
    sizes = [[tuple(tensor.shape) for tensor in results] for results in (got, expected)]
    if sizes[0] != sizes[1]:
        return f"sizes {sizes[0]} instead of {sizes[1]}"
    for name, test in (("NaN", torch.isnan), ("infinity", torch.isinf)):
        if not all(map(torch.equal, map(test, got), map(test, expected))):
            return f"numbers instead of {name}, or {name} instead of numbers"
    return ""


# Factors of values that choose other rows, and the function that describes what may not differ
# there.
DIFFERENCE_BY_FACTOR = dict.fromkeys((-1.0, 3.0, -3.0, 0.2), difference_in_size) | dict.fromkeys(
    (0.0, 1e8), no_difference
)


def check_speed(
    region: Region,
    module: RegionModule,
    run: Callable[[Sample], list[Any]],
    name: str,
) -> None:
    """Time the compiled region, and torch as it would run the region instead, on the largest
    sample. Sets `region.seconds`.

    run: runs the compiled region. name: the compiler's name for the message. Raises Slower where
    torch is faster.
    """
    sample = largest_sample(region)
    with torch.no_grad():
        compiled, eager = shortest_times(lambda: run(sample), lambda: module(*sample))
        if is_slower(compiled, eager):  # an island takes longer than the module
            island = trace_island(region, module)
            arrays = [to_numpy(tensor) for tensor in sample]
            compiled, eager = 0.0, 0.0
            if island:
                compiled, eager = shortest_times(lambda: run(sample), lambda: island(*arrays))
    region.seconds = compiled, eager
    if is_slower(compiled, eager):
        raise Slower(f"{name} takes {compiled * 1e6:.0f} us, torch {eager * 1e6:.0f} us")


def is_slower(compiled: float, eager: float) -> bool:
    """Return whether the compiled region is slower than torch by more than SLOWER and MIN_SAVING;
    times in seconds."""
    return compiled > SLOWER * eager and compiled - eager > MIN_SAVING


def trace_island(region: Region, module: RegionModule) -> Callable[..., Any] | None:
    """Return a function that runs the region with torch, traced by torch.export, as the host would:
    it takes the region's inputs as NumPy arrays and returns a list of its outputs as arrays. None
    where the region cannot be traced."""
    try:
        network = program_function(trace_program(region, module))
    except Exception:  # noqa: BLE001  (whatever the exporter raises)
        return None
    return lambda *arrays: [result.numpy() for result in network(*map(torch.from_numpy, arrays))]


def program_function(program: Any) -> Callable[..., Any]:
    """Return a function that runs an exported program on the region's inputs, as the host does:
    without the checks and the packing of arguments of the program's module, which take 40 us a
    call. It returns a tuple of the outputs.

    Raises Uncompilable where the program takes something else than weights and inputs.
    """
    contents = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    kinds = {spec.kind.name for spec in specs}
    changes = {spec.kind.name for spec in program.graph_signature.output_specs} - {"USER_OUTPUT"}
    if not kinds <= {"PARAMETER", "BUFFER", "CONSTANT_TENSOR", "USER_INPUT"} or changes:
        raise Uncompilable(f"torch.export makes {', '.join(sorted(kinds | changes))} of it")
    weights = [contents[spec.target].detach() for spec in specs if spec.target is not None]
    return lambda *inputs: program.graph_module(*weights, *inputs)


def shortest_times(*calls: Callable[[], Any]) -> list[float]:
    """Return the shortest time of each call in seconds. The calls run in turns, in three rounds at
    least."""
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
    """Return that of the region's samples with the most elements."""
    return max(region.samples, key=lambda sample: sum(tensor.numel() for tensor in sample))


def trace_program(region: Region, module: RegionModule) -> Any:
    """Return the region as an exported program of torch.export, traced on its largest sample.

    Raises whatever torch.export raises; the graph that it prints then is dropped.
    """
    shapes = (open_shapes(region),) if region.inputs else None
    with torch.no_grad(), without_output():
        return torch.export.export(module, largest_sample(region), dynamic_shapes=shapes)


def open_shapes(region: Region) -> tuple[dict[int, Any], ...]:
    """Return the argument `dynamic_shapes` of torch.export for the inputs: open are the dimensions
    that differ between the samples."""
    axes = varying_axes(region)
    return tuple(dict.fromkeys(axes.get(key, ()), torch.export.Dim.AUTO) for key in region.inputs)


def first_line(problem: Exception) -> str:
    """Return the first line of an exception's text, or the name of its type where the text is
    empty."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
