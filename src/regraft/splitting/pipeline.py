"""The steps of a split, by which a network becomes compiled sub-networks and a host.

They are those of DyCL: specialise the network, partition the program into regions, sample the
regions' inputs, compile the regions, emit the artefact; it is then checked against the network.
"""

from __future__ import annotations

import time
from dataclasses import replace

from regraft.report.terminal import Watch, ignore
from regraft.splitting.attempts import change_plan, list_stricter
from regraft.splitting.build_options import Options
from regraft.splitting.checking.decision_check import (
    check_split_network,
    error_of_all,
    list_taken_sides,
    unseen_side_errors,
)
from regraft.splitting.checking.original_network import CheckResult, Original
from regraft.splitting.compiling.call_times import time_calls
from regraft.splitting.compiling.compiled_network import (
    CompiledNetwork,
    compile_network,
    count_models,
    reasons_of_islands,
)
from regraft.splitting.compiling.listed_sizes import listed_sizes
from regraft.splitting.emitting.artefact_protocol import SplitNetwork
from regraft.splitting.emitting.emit_directory import write_host
from regraft.splitting.emitting.program_outline import outline_of, region_facts
from regraft.splitting.emitting.split_directory import SplitModel
from regraft.splitting.emitting.split_report import Report
from regraft.splitting.errors import UncompilableRegion, UnseenSide, Unsplittable
from regraft.splitting.network import Network, Program
from regraft.splitting.observing.assigned_attributes import Attribute
from regraft.splitting.preconditions import StateGuard, check_calls, texts_of_parameters
from regraft.splitting.program.residual import (
    Region,
    Side,
    close_regions,
    close_sides,
    guard_regions,
    number_sides,
    regions_decided_by_sizes,
)
from regraft.splitting.region_partition import convert_sizes, partition
from regraft.splitting.sampling.branch_exploration import Explorer
from regraft.splitting.sampling.decision_recorder import Recorder, SideRecorder
from regraft.splitting.sampling.dynamic_sizes import guard_sizes
from regraft.splitting.sampling.sample_collection import collect_samples
from regraft.splitting.specialisation import Specialised, load_lazy_modules, specialise
from regraft.splitting.specialising.followed_code import Location
from regraft.splitting.specialising.state import ClampedSizes, Plan


def build(
    network: Network, options: Options, started: float, watch: Watch = ignore
) -> SplitNetwork:
    """Split a bound network and write it into a new temporary directory. Sizes that bounds decide,
    as in `x[:3]`, are open. Where the network cannot be split so, the host checks that they are
    those of the examples. started: the value of time.monotonic() when the split began. watch: as in
    `split`. Raises Unsplittable."""
    assigned = check_calls(network.model, network.path, network.calls)
    watch("loading the exporter")
    load_lazy_modules()
    refusals: list[Unsplittable] = []
    attempts = [ClampedSizes()]
    for clamps in attempts:  # which grows
        try:
            return build_with(network, options, assigned, clamps, started, watch)
        except Unsplittable as problem:
            refusals.append(problem)
            attempts += [
                following
                for following in list_stricter(clamps)
                if not any(following.checks_same(attempt) for attempt in attempts)
            ]
    # a side that no input took has a remedy: an example call of it
    raise min(refusals, key=lambda refusal: not isinstance(refusal, UnseenSide))


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
    plan = Plan()
    refused: Unsplittable | None = None  # what another plan shall mend
    detours: frozenset[Location] = frozenset()
    while True:
        analysis_started = time.monotonic()
        watch("specialising")
        partial = options.emitter.partial
        try:
            specialised = specialise(network.model, network.calls, assigned, partial, plan, clamps)
        except Unsplittable as problem:
            # a loop that cannot stay one: an example of the side is the remedy
            raise refused or problem from None
        if isinstance(refused, UncompilableRegion) and specialised.detours <= detours:
            raise refused  # the program is the same
        detours = specialised.detours
        try:
            return compile_and_check(
                network, options, plan, specialised, (started, analysis_started), watch
            )
        except (UnseenSide, UncompilableRegion) as refusal:
            following = change_plan(plan, refusal, specialised)
            if following == plan:
                raise
            plan, refused = following, refusal


def compile_and_check(
    network: Network,
    options: Options,
    plan: Plan,
    specialised: Specialised,
    started: tuple[float, float],
    watch: Watch,
) -> SplitNetwork:
    """Return the artefact of a specialised network, compiled and checked.

    plan: the one by which it was specialised. started: the values of time.monotonic() when the
    split and the analysis began. Raises Unsplittable, for a side that no checked input took
    UnseenSide.
    """
    emitter = options.emitter
    parameters = texts_of_parameters(network.model, network.path)
    program = partition_into_regions(
        network, parameters, specialised, options.measure and emitter.measured
    )
    analysis = round(time.monotonic() - started[1], 2)
    watch("collecting samples of regions")
    program, unreached = sample_regions(program, options.unseen)
    if options.unseen == "refuse" and specialised.unrolled:
        watch("looking for sides of unrolled loops")
        refuse_untaken_early(program, plan, specialised)
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
        times = time_calls(artefact.network, network.model, calls)
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
        describe_inputs(region, specialised)
    facts = specialised.classes, specialised.scope, specialised.assigned, specialised.messages
    return Program(network, parameters, steps, regions, *facts)


def describe_inputs(region: Region, specialised: Specialised) -> None:
    """Set which dimensions of a region's inputs are open, and which inputs are sizes and
    numbers."""
    region.open = tuple(frozenset(specialised.open_by_name.get(key, ())) for key in region.inputs)
    region.sizes = specialised.size_names.intersection(region.inputs)
    region.numbers = frozenset(region.inputs) - specialised.tensor_names


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


def original_of(program: Program, recorder_class: type[Recorder] = Recorder) -> Original:
    """Return what split versions of the network are compared with: the network, its example calls,
    and a recorder, of this class, of the decisions of the residual program."""
    network = program.network
    recorder = recorder_class(network.path, program.regions, program.modules, program.classes)
    calls = [*network.calls, *network.further]
    return Original(network.model, calls, network.varied, recorder, program.steps)


def refuse_untaken_early(program: Program, plan: Plan, specialised: Specialised) -> None:
    """Raise the UnseenSide that the check of the program would raise, where another plan may mend
    it, so that nothing is compiled in vain: a side that the residual program takes on none of the
    inputs of the check, that program's host does not take either."""
    sides = number_sides(program.steps)
    taken = list_taken_sides(original_of(program, SideRecorder), sides)
    refused = untaken_errors(sides, taken)
    if refused:
        refusal = error_of_all(refused)
        if change_plan(plan, refusal, specialised) != plan:
            raise refusal


def untaken_errors(sides: list[Side], taken: set[int]) -> list[Unsplittable]:
    """Return the errors that refuse a network for its sides that no input took, without those that
    sizes of inputs alone decide: it is split for the sizes of the example calls."""
    by_size = {number for number, side in enumerate(sides) if side.by_size}
    return unseen_side_errors(sides, taken | by_size)


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

    unseen: with "refuse", the first of `untaken_errors` is raised instead, with the lines of the
    others.
    """
    refused = untaken_errors(sides, taken)
    if refused and unseen == "refuse":
        raise error_of_all(refused)
    close_sides(program.steps, taken)
    remedy = "the artefact raises an error there; an example call that takes it opens it"
    return unseen_side_errors(sides, taken, remedy)


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
        listed_sizes=tuple(listed_sizes(program.regions, program.inputs)),
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
