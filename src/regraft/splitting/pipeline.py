"""`regraft.split`: a network with decisions on values becomes compiled sub-networks and a host.

The steps are those of DyCL: specialise the network, partition the program into regions, sample the
regions' inputs, compile the regions, emit the artefact; it is then checked against the network.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from regraft.report.terminal import Watch, ignore
from regraft.splitting.build_options import Options, check_options, chosen_compilers
from regraft.splitting.checking.decision_check import (
    check_split_network,
    error_of_all,
    unseen_side_errors,
)
from regraft.splitting.checking.original_network import CheckResult, Original
from regraft.splitting.compiling.batch_regions import has_samples
from regraft.splitting.compiling.compiled_network import (
    CompiledNetwork,
    compile_network,
    count_models,
    reasons_of_islands,
)
from regraft.splitting.compiling.engine_settings import engine_settings, given_settings
from regraft.splitting.compiling.speed import time_calls
from regraft.splitting.emitting.artefact_protocol import Emitter, SplitNetwork
from regraft.splitting.emitting.emit_directory import write_host
from regraft.splitting.emitting.program_outline import outline_of, region_facts
from regraft.splitting.emitting.split_directory import SplitModel
from regraft.splitting.emitting.split_report import Report
from regraft.splitting.errors import UnseenSide, Unsplittable
from regraft.splitting.loading import load_split
from regraft.splitting.nested_arguments import check_unchanged
from regraft.splitting.network import Network, Program, add_sizes, bind_network
from regraft.splitting.network_cache import find_network, make_key, store_network
from regraft.splitting.observing.assigned_attributes import Attribute
from regraft.splitting.preconditions import StateGuard, check_calls, texts_of_parameters
from regraft.splitting.program.residual import (
    Side,
    close_regions,
    close_sides,
    guard_regions,
    number_sides,
    regions_decided_by_sizes,
)
from regraft.splitting.region_partition import convert_sizes, partition
from regraft.splitting.sampling.branch_exploration import Explorer
from regraft.splitting.sampling.decision_recorder import Recorder
from regraft.splitting.sampling.dynamic_sizes import DynamicSize, guard_sizes, read_dynamic
from regraft.splitting.sampling.sample_collection import collect_samples
from regraft.splitting.specialisation import Specialised, load_lazy_modules, specialise
from regraft.splitting.specialising.state import ClampedSizes, Location


def split(
    model: torch.nn.Module,
    example_inputs: list[Any],
    compiler: str = "onnxruntime",
    unseen: str = "refuse",
    cache: bool = True,
    single_file: bool = False,
    batched: bool = False,
    measure: bool = True,
    watch: Watch = ignore,
    threads: int | None = None,
    providers: Sequence[str] | None = None,
    dynamic: Mapping[str, Mapping[int, tuple[int, int]]] | None = None,
) -> SplitNetwork:
    """Split `model`, following every side of every decision from `example_inputs` (tuples or dicts
    of arguments).

    compiler: "onnxruntime", "openvino" or "aotinductor"; what it cannot take or gets wrong stays
    eager, and is listed. "auto" builds the network with each one that is installed, takes that
    which is the fastest on the example calls, and reports the times of all. unseen: what becomes of
    a side that no checked input takes. "refuse": the network is not split. "raise": the host raises
    RuntimeError where it would be taken; the report lists it. cache: whether a network that was
    split before, with equal weights, sources, calls and versions, is taken from the user's cache
    directory. single_file: give one ONNX file, with `If` and `Loop` in the place of the host; what
    ONNX cannot express is refused. batched: the result takes any number of samples along the first
    dimension of its inputs, which is 1 in the examples, and gives a list: for each sample what the
    network gives for it alone. measure: a sub-network that is slower than torch here (by a fifth
    and 50 us, one thread) stays eager, so that the host needs torch; not in single files and
    batches. watch: is called with what is done ("compiling region 2 of 5"). threads: those of one
    operation, 1 by default, for ONNX Runtime and OpenVINO. providers: the execution providers of
    ONNX Runtime, in the order in which they are asked, the CPU's by default. Both are recorded, and
    `load_split` can replace them. dynamic: the sizes that dimensions may have, `{"x": {0: (1,
    512)}}`, in the place of example calls of several sizes: the network is split for all of them,
    and raises ValueError for others. Raises ValueError for unknown options and those that do not go
    together, Unsplittable with file, line and reason where the network cannot be split or the
    result differs.
    """
    started = time.monotonic()
    check_options(compiler, unseen, single_file, batched, measure)
    artefact = "file" if single_file else "batches" if batched else "directory"
    settings = engine_settings(threads, providers)
    network = bind_network(model, example_inputs)
    sizes = read_dynamic(dynamic or {}, network.calls)
    stated = given_settings(threads, providers)
    choices = [
        Options(choice, unseen, artefact, measure, settings, tuple(map(str, sizes)))
        for choice in chosen_compilers("onnxruntime" if single_file else compiler, stated)
    ]
    if batched:
        require_one_sample(network, sizes)
    words = tuple(word for options in choices for word in options.in_words)
    key = make_key(model, network.original_calls, words) if cache else None
    stored = load_stored(key, choices[0].emitter)
    if stored is not None:
        return stored
    if network.packed is not None:
        check_unchanged(model, network.path, network.original_calls, network.packed)
    result = build_fastest(add_sizes(network, sizes), choices, started, watch)
    result.packed = network.packed
    if key is not None:
        store_network(key, result.directory)
    return result


def build_fastest(
    network: Network, choices: list[Options], started: float, watch: Watch
) -> SplitNetwork:
    """Split a bound network with each of the options, which differ in their compiler, and return
    the fastest result, whose report names the times of all; of one only, its result as it is.

    Raises Unsplittable, for the first of them, where the network cannot be split with any.
    """
    if len(choices) == 1:
        return build(network, choices[0], started, watch)
    results: list[tuple[float, SplitNetwork]] = []
    trials: list[dict[str, Any]] = []
    errors: list[Unsplittable] = []
    for options in choices:
        name = options.compiler.name
        try:
            result = build(network, options, started, functools.partial(say_for, watch, name))
        except Unsplittable as problem:
            errors.append(problem)
            trials.append({"compiler": name, "seconds": None, "reason": str(problem)})
            continue
        seconds, _ = result.report.times or (math.inf, math.inf)
        results.append((seconds, result))
        trials.append({"compiler": name, "seconds": seconds, "reason": ""})
    if not results:
        raise errors[0]
    _, fastest = min(results, key=lambda pair: pair[0])
    if isinstance(fastest, SplitModel):  # single files are for one compiler
        fastest.replace_report(replace(fastest.report, compilers=tuple(trials)))
    return fastest


def say_for(watch: Watch, name: str, part: str) -> None:
    """Call `watch` with what is done with the compiler `name`."""
    watch(f"{name}: {part}")


def require_one_sample(network: Network, sizes: list[DynamicSize]) -> None:
    """Raise Unsplittable unless every tensor of the first example call is one sample, ValueError
    where the dimension of the samples has a range of sizes."""
    if any(size.dim == 0 for size in sizes):
        raise ValueError("dimension 0 is that of the samples in batches, which takes any size")
    call = network.calls[0]
    if not all(has_samples(call[key]) for key in network.tensor_inputs):
        reason = "batches need example calls of one sample: inputs whose first dimension is 1"
        raise Unsplittable(*network.place, reason)


def load_stored(key: str | None, emitter: Emitter) -> SplitNetwork | None:
    """Return the network of this key in the cache; None without a key, and where the network is not
    there or is damaged."""
    directory = find_network(key) if key is not None else None
    if directory is not None:
        with contextlib.suppress(ValueError, OSError, KeyError):
            return load_split(directory / emitter.entry)
    return None


def build(
    network: Network, options: Options, started: float, watch: Watch = ignore
) -> SplitNetwork:
    """Split a bound network and write it into a new temporary directory.

    Sizes that bounds decide, as in `x[:3]`, are open. Where the network cannot be split so, the
    host checks that they are those of the examples. started: the value of time.monotonic() when the
    split began. watch: as in `split`. Raises Unsplittable.
    """
    assigned = check_calls(network.model, network.path, network.calls)
    watch("loading the exporter")
    load_lazy_modules()
    clamps = ClampedSizes()
    try:
        return build_with(network, options, assigned, clamps, started, watch)
    except Unsplittable:
        if not clamps.count:
            raise
        guarded = ClampedSizes(guarded=True)
        with contextlib.suppress(Unsplittable):
            return build_with(network, options, assigned, guarded, started, watch)
        raise


def build_with(
    network: Network,
    options: Options,
    assigned: list[Attribute],
    clamps: ClampedSizes,
    started: float,
    watch: Watch,
) -> SplitNetwork:
    """Split a bound network as `build` does. assigned: the attributes of modules that calls assign.
    clamps: whether the host checks sizes that bounds decide. Raises Unsplittable."""
    rolled: frozenset[Location] = frozenset()
    unseen: UnseenSide | None = None
    while True:
        analysis_started = time.monotonic()
        watch("specialising")
        partial = options.emitter.partial
        try:
            specialised = specialise(
                network.model, network.calls, assigned, partial, rolled, clamps
            )
        except Unsplittable as problem:
            # a loop that cannot stay one: an example of the side is the remedy
            raise unseen or problem from None
        try:
            return compile_and_check(
                network, options, specialised, (started, analysis_started), watch
            )
        except UnseenSide as refusal:
            # each iteration of an unrolled loop has sides of its own
            loops = specialised.unrolled.get((refusal.path, refusal.line), set())
            if loops <= rolled:
                raise
            rolled, unseen = rolled | loops, refusal


def compile_and_check(
    network: Network,
    options: Options,
    specialised: Specialised,
    started: tuple[float, float],
    watch: Watch,
) -> SplitNetwork:
    """Return the artefact of a specialised network, compiled and checked.

    started: the values of time.monotonic() when the split and the analysis began. Raises
    Unsplittable, for a side that no checked input took UnseenSide.
    """
    emitter = options.emitter
    parameters = texts_of_parameters(network.model, network.path)
    program = partition_into_regions(
        network, parameters, specialised, options.measure and emitter.measured
    )
    analysis = round(time.monotonic() - started[1], 2)
    watch("collecting samples of regions")
    program, unreached = sample_regions(program, options.unseen)
    compiled = compile_network(program, options.compiler, options.settings, watch)
    guard_regions(program.steps, program.regions)
    guard_sizes(program.steps, network.path, network.groups)
    sides = number_sides(program.steps)
    report = describe_parts(compiled, len(sides), analysis)
    original = original_of(program)
    guard = StateGuard(network.model, program.assigned)
    checked = check_host(compiled, original, sides, report, watch)
    untaken = close_untaken(program, sides, checked.taken, options.unseen)
    watch("emitting and checking the artefact")
    artefact = emitter.emit(compiled, report, guard)
    checked = artefact.check(original, checked)
    guard.check()
    report = complete_report(artefact.report, checked, [*untaken, *unreached])
    if options.measure:
        watch("timing the network")
        calls = network.calls[: network.varied]
        times = time_calls(artefact.network, network.model, calls, options.settings.threads)
        report = replace(report, times=times)
    return artefact.finish(replace(report, seconds=round(time.monotonic() - started[0], 2)))


def partition_into_regions(
    network: Network, parameters: list[str], specialised: Specialised, measured: bool
) -> Program:
    """Return the program of a specialised network, with its tensor statements gathered into
    regions.

    parameters: those of forward, as text. measured: whether regions are run by torch where it is
    faster.
    """
    steps, regions = partition(specialised.steps, specialised.outside)
    convert_sizes(steps, specialised.region_sizes)
    for region in regions:
        region.measured = measured
        region.open = tuple(
            frozenset(specialised.open_by_name.get(key, ())) for key in region.inputs
        )
        region.sizes = specialised.size_names.intersection(region.inputs)
        region.numbers = frozenset(region.inputs) - specialised.tensor_names
    return Program(
        network,
        parameters,
        steps,
        regions,
        specialised.classes,
        specialised.scope,
        specialised.assigned,
        specialised.messages,
    )


def sample_regions(program: Program, unseen: str) -> tuple[Program, list[Unsplittable]]:
    """Run the program on the calls to collect samples of its regions, in the regions; return the
    program, and an error for each region that no input led to.

    unseen: with "raise", such regions are removed, and the host raises an error in their place; so
    it does by default for those on a side that sizes of inputs alone decide.
    """
    network = program.network
    explorer = Explorer(network.path, program.regions, program.modules, program.classes)
    collect_samples(explorer, program.steps, network.calls, network.varied)
    unsampled = [region for region in program.regions if not region.samples]
    unreached = [Unsplittable(*region.place, "no example leads here") for region in unsampled]
    by_size = regions_decided_by_sizes(program.steps)
    if unreached and (unseen == "raise" or all(region.number in by_size for region in unsampled)):
        program = replace(program, regions=close_regions(program.steps, program.regions))
    return program, unreached


def original_of(program: Program) -> Original:
    """Return what split versions of the network are compared with: the network, its example calls,
    and a recorder of the decisions of the residual program."""
    network = program.network
    recorder = Recorder(network.path, program.regions, program.modules, program.classes)
    calls = [*network.calls, *network.further]
    return Original(network.model, calls, network.varied, recorder, program.steps)


def check_host(
    compiled: CompiledNetwork, original: Original, sides: list[Side], report: Report, watch: Watch
) -> CheckResult:
    """Write the host of the compiled network, and compare its decisions with the original's.

    The host is checked first whatever the artefact, since only its decisions can be seen.
    """
    write_host(compiled, report)
    return check_split_network(original, SplitModel(compiled.directory, report), sides, watch)


def close_untaken(
    program: Program, sides: list[Side], taken: set[int], unseen: str
) -> list[Unsplittable]:
    """Change the program so that the sides which are not in `taken` raise an error; return an
    Unsplittable for each of them.

    unseen: with "refuse", the first of these is raised instead, with the lines of the others,
    unless sizes of inputs alone decide it: the network is split for the sizes of the example calls.
    """
    untaken = unseen_side_errors(sides, taken)
    by_size = {number for number, side in enumerate(sides) if side.by_size}
    refused = unseen_side_errors(sides, taken | by_size)
    if refused and unseen == "refuse":
        raise error_of_all(refused)
    close_sides(program.steps, taken)
    return untaken


def describe_parts(compiled: CompiledNetwork, side_count: int, analysis: float) -> Report:
    """Return the report of a compiled network before its check: the counts of its parts, and zeros
    for what a check finds.

    side_count: the number of sides of decisions. analysis: seconds until the regions were known.
    """
    program, entries = compiled.program, compiled.manifest["regions"]
    wrapper_prefix = "network." if program.network.packed is not None else ""
    not_left = tuple(
        ".".join(filter(None, attribute)).removeprefix(wrapper_prefix)
        for attribute in program.assigned
    )
    return Report(
        subnetworks=len(program.regions),
        models=count_models(entries),
        islands=reasons_of_islands(entries),
        sides=side_count,
        sides_run=0,
        unseen=(),
        inputs_checked=0,
        at_threshold=(),
        seconds=0.0,
        not_left=not_left,
        left_out=program.messages,
        analysis=analysis,
        outline=tuple(outline_of(program.steps)),
        regions=tuple(region_facts(program.regions, entries)),
    )


def complete_report(report: Report, checked: CheckResult, unseen: list[Unsplittable]) -> Report:
    """Return the report completed by the results of the check. unseen: the errors for sides and
    regions that no checked input led to."""
    return replace(
        report,
        sides_run=len(checked.taken),
        sides_taken=tuple(sorted(checked.taken)),
        unseen=tuple(map(str, unseen)),
        inputs_checked=len(checked.equal),
        at_threshold=tuple(checked.at_threshold),
        rounding=tuple(checked.rounding),
    )
