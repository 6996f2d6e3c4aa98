"""`regraft.split`: a network with decisions on values becomes compiled sub-networks and a host."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import torch

from regraft.splitting.arguments import Packed, check_unchanged, unpack_arguments
from regraft.splitting.checking.check import CHECKED, check, check_batches, check_file, examples
from regraft.splitting.checking.check import unseen_side_errors as unseen_errors
from regraft.splitting.compiling.artifacts import Artifacts, digest
from regraft.splitting.compiling.batch import compile_batches, has_samples
from regraft.splitting.compiling.compilers import Compiler, compiler_named
from regraft.splitting.compiling.regions import compile_region
from regraft.splitting.compiling.samples import common_sizes
from regraft.splitting.emitting.host import host_source
from regraft.splitting.emitting.host_batched import batched_source
from regraft.splitting.emitting.single import FILE, SingleFile, note
from regraft.splitting.emitting.single import single_file as as_file
from regraft.splitting.errors import Unrunnable, Unsplittable
from regraft.splitting.loaded import Report, SplitModel, load_split
from regraft.splitting.observing.scratch import Attribute, record_stores, run_without
from regraft.splitting.observing.state import State
from regraft.splitting.partition import partition
from regraft.splitting.preconditions import (
    bind_arguments,
    check_calls,
    check_form,
    check_state,
    input_descriptions,
    kind_of_call,
    locate,
    texts_of_parameters,
)
from regraft.splitting.program.records import Mutable
from regraft.splitting.program.residual import (
    Region,
    Step,
    all_steps,
    close_regions,
    close_sides,
    number_sides,
)
from regraft.splitting.program.results import describe_class
from regraft.splitting.sampling.explore import Explorer, RegionModule
from regraft.splitting.sampling.record import Recorder, to_numpy
from regraft.splitting.specialising.network import specialise_network, start_specialisation
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.stored import find_network, keep_network, key_of

MAX_FOLLOWED = 8  # example calls that specialisation is tried on
PERTURBED = 40  # perturbed inputs that are run for samples of other sizes


@dataclass(frozen=True)
class Options:
    """The options of a split that its result depends on; see `split`."""

    compiler: Compiler
    unseen: str
    single_file: bool
    batched: bool
    measure: bool


def split(
    model: torch.nn.Module,
    example_inputs: list[Any],
    compiler: str = "onnxruntime",
    unseen: str = "refuse",
    cache: bool = True,
    single_file: bool = False,
    batched: bool = False,
    measure: bool = True,
) -> SplitModel | SingleFile:
    """Split `model`, following every side of every decision from `example_inputs` (tuples or dicts
    of arguments).

    compiler: "onnxruntime", "openvino" or "aotinductor"; what it cannot take or gets wrong stays
    eager, and is listed. unseen: what becomes of a side that no checked input takes. "refuse": the
    network is not split. "raise": the host raises RuntimeError where it would be taken; the report
    lists it. cache: whether a network that was split before, with equal weights, sources, calls and
    versions, is taken from the user's cache directory. single_file: give one ONNX file, with `If`
    and `Loop` in the place of the host; what ONNX cannot express is refused. batched: the result
    takes any number of samples along the first dimension of its inputs, which is 1 in the examples,
    and gives a list: for each sample what the network gives for it alone. measure: a sub-network
    that is slower than torch here (by a fifth and 50 us, one thread) stays eager, so that the host
    needs torch; not in single files and batches. Raises Unsplittable with file, line and reason
    where the network cannot be split or the result differs.
    """
    started = time.monotonic()
    if unseen not in ("refuse", "raise"):
        raise ValueError(f"unseen is {unseen!r}; there are 'refuse' and 'raise'")
    options = Options(compiler_named(compiler), unseen, single_file, batched, measure)
    if single_file and compiler != "onnxruntime":
        raise ValueError("single files are for ONNX Runtime; leave the compiler out")
    if single_file and batched:
        raise ValueError("a single file takes one sample")
    path = locate(model)
    check_form(path, example_inputs)
    arguments_of_calls = [bind_arguments(model, path, call) for call in example_inputs]
    if model.training:
        raise Unsplittable(path, 0, "the network is in training mode; call eval() first")
    network, calls, packed = unpack_arguments(model, path, arguments_of_calls)
    if len({kind_of_call(call) for call in calls}) > 1:
        raise Unsplittable(
            path,
            0,
            "the example calls differ in types, dimensions or constants, which is not supported",
        )
    if batched and not all(
        has_samples(value) for value in calls[0].values() if isinstance(value, torch.Tensor)
    ):
        raise Unsplittable(
            path, 0, "batches need example calls of one sample: inputs whose first dimension is 1"
        )
    key = key_of(model, arguments_of_calls, (repr(options),)) if cache else None
    entry = find_network(key) if key is not None else None
    if entry is not None:
        with contextlib.suppress(ValueError, OSError, KeyError):  # a damaged entry is built again
            return load_split(entry / FILE if single_file else entry)
    if packed is not None:
        check_unchanged(model, path, arguments_of_calls, packed)
    result = build(network, path, calls, packed, options, started)
    result.packed = packed
    if key is not None:
        keep_network(key, result.directory)
    return result


def build(
    model: torch.nn.Module,
    path: str,
    calls: list[dict[str, Any]],
    packed: Packed | None,
    options: Options,
    started: float,
) -> SplitModel | SingleFile:
    """Split a checked network and write it into a new temporary directory.

    calls: the arguments of the example calls, by parameter. packed: how the network's arguments
    were taken apart; None where they were not. started: the value of time.monotonic() when the
    split began. Raises Unsplittable.
    """
    compiler, parameter_texts = options.compiler, texts_of_parameters(model, path)
    assigned = check_calls(model, path, calls)
    # torch loads it at the first use of a mode, outside the analysis
    importlib.import_module("torch._dynamo")
    analysis_started = time.monotonic()
    specialiser, steps = run_without(
        model, assigned, lambda scratch: specialise(model, calls, options, scratch)
    )
    builtin_names = {*vars(builtins), "math"} - specialiser.variables
    outside = frozenset(
        {"self", "numpy", *builtin_names, *specialiser.globals, *specialiser.results}
    )
    steps, regions = partition(steps, outside)
    analysis = round(time.monotonic() - analysis_started, 2)
    modules = [RegionModule(region, model, specialiser.globals) for region in regions]
    for region in regions:
        region.measured = options.measure and not (options.single_file or options.batched)
        region.open = tuple(
            frozenset(specialiser.open_by_name.get(key, ())) for key in region.inputs
        )
    classes = {
        name: describe_class(result_class) for name, result_class in specialiser.results.items()
    }
    explore(Explorer(path, regions, modules, classes), steps, calls)
    unreached = [
        Unsplittable(*region.place, "no example leads here")
        for region in regions
        if not region.samples
    ]
    if unreached and options.unseen == "raise":
        regions = close_regions(steps, regions)
        modules = [RegionModule(region, model, specialiser.globals) for region in regions]
    folder = tempfile.TemporaryDirectory(prefix="regraft-split-")
    directory = Path(folder.name)
    artifacts = Artifacts(directory)
    if compiler.prepare is not None:
        compiler.prepare(regions, modules, directory)
    pairs = zip(regions, modules, strict=True)
    entries = [compile_region(region, module, artifacts, compiler) for region, module in pairs]
    islands, models = summarise_entries(entries)
    sides = number_sides(steps)
    versions = {
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        compiler.name: compiler.version,
    }
    manifest = {
        "compiler": compiler.name,
        "versions": versions,
        "inputs": input_descriptions(calls),
        "arguments": dataclasses.asdict(packed) if packed is not None else None,
        "regions": entries,
        **artifacts.manifest(),
    }
    host = functools.partial(
        host_source,
        type(model).__name__,
        parameter_texts,
        list(calls[0]),
        steps,
        bool(islands),
        compiler,
        classes,
    )
    scratch = sorted(specialiser.scratch)
    not_left = tuple(
        ".".join(filter(None, attribute)).removeprefix("network." if packed else "")
        for attribute in scratch
    )
    report = Report(
        len(regions),
        models,
        islands,
        len(sides),
        0,
        (),
        0,
        (),
        0.0,
        not_left=not_left,
        analysis=analysis,
    )
    write_files(directory, host(), manifest, report)
    recorder, state = Recorder(path, regions, modules, classes), State(model)
    checked = check(model, SplitModel(directory, report), calls, recorder, steps, sides)
    untaken = unseen_errors(sides, checked.taken)
    if untaken and options.unseen == "refuse":
        raise untaken[0]
    close_sides(steps, checked.taken)
    graph = (
        as_file(path, steps, regions, directory, manifest, classes) if options.single_file else None
    )
    if graph is not None:
        onnx.save(graph, directory / FILE)
        try:
            file = SingleFile(directory / FILE, report)
        except ValueError as problem:
            raise Unsplittable(path, 0, f"as a single file: {problem}") from problem
        checked = check_file(model, file, calls, recorder, steps, checked)
    if options.batched:
        folder = tempfile.TemporaryDirectory(prefix="regraft-split-")
        directory, source = (
            Path(folder.name),
            functools.partial(batched_source, type(model).__name__, parameter_texts),
        )
        artifacts = Artifacts(directory)
        check_state(model, state, scratch)
        batches = compile_batches(regions, model, specialiser.globals, artifacts, compiler)
        state = State(model)  # an export gives modules copies of the dictionaries that they hold
        islands, models = summarise_entries(
            [entry[key] for entry in batches for key in ("together", "each") if key in entry]
        )
        tensors = [key for key, value in calls[0].items() if isinstance(value, torch.Tensor)]
        host = functools.partial(
            source, list(calls[0]), tensors, steps, bool(islands), compiler, classes
        )
        manifest = {**allow_any_number(manifest), "regions": batches, **artifacts.manifest()}
        one_by_one = tuple(
            place_of(region)
            for region, entry in zip(regions, batches, strict=True)
            if "together" not in entry
        )
        report = replace(report, models=models, islands=islands, one_by_one=one_by_one)
        write_files(directory, host(), manifest, report)
        checked = check_batches(
            model, SplitModel(directory, report), calls, recorder, steps, checked
        )
    check_state(model, state, scratch)
    report = replace(
        report,
        sides_run=len(checked.taken),
        unseen=tuple(map(str, (*untaken, *unreached))),
        inputs_checked=len(checked.equal),
        at_threshold=tuple(checked.at_threshold),
        rounding=tuple(checked.rounding),
        seconds=round(time.monotonic() - started, 2),
    )
    write_files(directory, host(), manifest, report)
    if graph is None:
        return SplitModel(directory, report, folder)
    note(graph, report=dataclasses.asdict(report), arguments=manifest["arguments"])
    onnx.save(graph, directory / FILE)
    return SingleFile(directory / FILE, report, folder)


def summarise_entries(entries: list[dict[str, Any]]) -> tuple[tuple[str, ...], int]:
    """Return the reasons for which sub-networks are eager islands, and the number of different
    files of the others."""
    models = {entry.get("model", entry.get("file")) for entry in entries if "reason" not in entry}
    return tuple(entry["reason"] for entry in entries if "reason" in entry), len(models)


def specialise(
    model: torch.nn.Module, calls: list[dict[str, Any]], options: Options, scratch: set[Attribute]
) -> tuple[Specialisation, list[Step]]:
    """Specialise the network on the first call, or on a later one where something cannot be run on
    the earlier ones.

    Returns the specialiser and the residual program. scratch: attributes of modules that calls
    assign. A program without loops that are never entered is preferred; raises Unrunnable where no
    call can be followed.
    """
    first_error: Unrunnable | None = None
    incomplete: tuple[Specialisation, list[Step]] | None = (
        None  # a loop in it is over lists that are empty for this call
    )
    mutable: set[type] = set()
    number = 0
    while number < min(len(calls), MAX_FOLLOWED):
        specialiser = start_specialisation(model)
        specialiser.mutable = mutable
        try:
            with record_stores(model) as specialiser.stored_attributes:
                # where Python raises that a variable has no value, ONNX would compute with any
                # value
                steps = specialise_network(
                    specialiser,
                    calls[number:] + calls[:number],
                    scratch,
                    partial=not options.single_file,
                )
        except Unrunnable as problem:
            first_error = first_error or problem
            number += 1
        except Mutable as signal:
            mutable.add(signal.kind)
        else:
            error_steps = {id(step) for step in specialiser.not_entered_errors}
            if error_steps.isdisjoint(map(id, all_steps(steps))):
                return specialiser, steps
            incomplete = incomplete or (specialiser, steps)
            number += 1
    if incomplete is not None:
        return incomplete
    raise first_error or AssertionError("there are calls")


def allow_any_number(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with inputs that may have any number of samples."""
    open_inputs = {
        key: (
            {**description, "shape": [None, *description["shape"][1:]]}
            if "shape" in description
            else description
        )
        for key, description in manifest["inputs"].items()
    }
    return {**manifest, "inputs": open_inputs}


def place_of(region: Region) -> str:
    """Return the file and line of the region's first statement, as text."""
    return f"{region.place[0]}:{region.place[1]}"


def write_files(directory: Path, host: str, manifest: dict[str, Any], report: Report) -> None:
    """Write the host and the manifest, which holds the report, into the directory."""
    (directory / "host.py").write_text(host, "utf-8")
    contents = {"host": digest(host.encode()), **manifest, "report": dataclasses.asdict(report)}
    (directory / "manifest.json").write_text(json.dumps(contents, separators=(",", ":")), "utf-8")


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


def explore(explorer: Explorer, steps: list[Step], calls: list[dict[str, Any]]) -> None:
    """Collect samples of every region by running the residual program on the calls.

    Perturbed inputs are run, too, where sizes are open or a region lacks samples. Raises
    Unsplittable where the program fails on an example call.
    """
    for number, call in enumerate(itertools.islice(examples(calls), len(calls) + CHECKED)):
        enough = len(calls) + PERTURBED * any(any(region.open) for region in explorer.regions)
        if number >= enough and not any(map(lacks_samples, explorer.regions)):
            break
        names = {key: to_numpy(value) for key, value in call.items()}
        if number >= len(calls):
            explorer.run_out_of_turn(steps, names)
            continue
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
