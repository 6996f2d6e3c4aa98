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

from regraft.splitting.artifacts import Artifacts, digest
from regraft.splitting.batch import compile_batches, has_samples
from regraft.splitting.check import CHECKED, check, check_batches, check_file, examples
from regraft.splitting.check import unseen as not_taken
from regraft.splitting.compile import compile_region
from regraft.splitting.compilers import Compiler, compiler_named
from regraft.splitting.errors import Unrunnable, Unsplittable
from regraft.splitting.explore import Explorer, RegionModule
from regraft.splitting.host import host_source
from regraft.splitting.host_batched import batched_source
from regraft.splitting.loaded import Report, SplitModel, load_split
from regraft.splitting.network import (
    arguments,
    check_calls,
    check_form,
    check_state,
    inputs,
    kind,
    locate,
    texts_of,
)
from regraft.splitting.record import Recorder, to_numpy
from regraft.splitting.records import Mutable
from regraft.splitting.regions import partition
from regraft.splitting.residual import Region, Step, all_steps, close_regions, close_sides, number_sides
from regraft.splitting.results import described
from regraft.splitting.samples import common
from regraft.splitting.scratch import Attribute, stores, without
from regraft.splitting.single import FILE, SingleFile, note
from regraft.splitting.single import single_file as as_file
from regraft.splitting.specialise import Specialiser
from regraft.splitting.state import State
from regraft.splitting.stored import find, keep, key_of
from regraft.splitting.unpacked import Packed, check_unchanged, unpacked

FOLLOWED = 8  # example calls that are tried
PERTURBED = 40  # inputs that are run for samples of other sizes


@dataclass(frozen=True)
class Options:
    """How a network is split; see `split`."""

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
    """Split `model`, following every side of every decision from `example_inputs` (tuples or dicts of arguments).

    compiler: "onnxruntime", "openvino" or "aotinductor"; what it cannot take or gets wrong stays eager, and is listed.
    unseen: what becomes of a side that no checked input takes. "refuse": the network is not split. "raise": the host
    raises RuntimeError where it would be taken; the report lists it. cache: whether a network that was split before,
    with equal weights, sources, calls and versions, is taken from the user's cache directory. single_file: give one
    ONNX file, with `If` and `Loop` in the place of the host; what ONNX cannot express is refused. batched: the result
    takes any number of samples along the first dimension of its inputs, which is 1 in the examples, and gives a list:
    for each sample what the network gives for it alone. measure: a sub-network that is slower than torch here (by a
    fifth and 50 us, one thread) stays eager, so that the host needs torch; not in single files and batches.
    Raises Unsplittable with file, line and reason where the network cannot be split or the result differs.
    """
    started = time.monotonic()
    if unseen not in ("refuse", "raise"):
        raise ValueError(f"unseen is {unseen!r}; there are 'refuse' and 'raise'")
    chosen = Options(compiler_named(compiler), unseen, single_file, batched, measure)
    if single_file and compiler != "onnxruntime":
        raise ValueError("single files are for ONNX Runtime; leave the compiler out")
    if single_file and batched:
        raise ValueError("a single file takes one sample")
    path = locate(model)
    check_form(path, example_inputs)
    given = [arguments(model, path, call) for call in example_inputs]
    if model.training:
        raise Unsplittable(path, 0, "the network is in training mode; call eval() first")
    network, calls, packed = unpacked(model, path, given)
    if len({kind(call) for call in calls}) > 1:
        raise Unsplittable(
            path, 0, "the example calls differ in types, dimensions or constants, which is not supported"
        )
    if batched and not all(has_samples(one) for one in calls[0].values() if isinstance(one, torch.Tensor)):
        raise Unsplittable(path, 0, "batches need example calls of one sample: inputs whose first dimension is 1")
    key = key_of(model, given, (repr(chosen),)) if cache else None
    stored = find(key) if key is not None else None
    if stored is not None:
        with contextlib.suppress(ValueError, OSError, KeyError):  # a damaged entry is built again
            return load_split(stored / FILE if single_file else stored)
    if packed is not None:
        check_unchanged(model, path, given, packed)
    made = build(network, path, calls, packed, chosen, started)
    made.packed = packed
    if key is not None:
        keep(key, made.directory)
    return made


def build(
    model: torch.nn.Module, path: str, calls: list[dict[str, Any]], packed: Packed | None, options: Options,
    started: float,
) -> SplitModel | SingleFile:  # fmt: skip
    compiler, parameters = options.compiler, texts_of(model, path)
    known = check_calls(model, path, calls)
    importlib.import_module("torch._dynamo")  # torch loads it at the first use of a mode, which is no analysis
    followed = time.monotonic()
    specialiser, steps = without(model, known, lambda scratch: specialised(model, calls, options, scratch))
    hidden = {*vars(builtins), "math"} - specialiser.variables
    outside = frozenset({"self", "numpy", *hidden, *specialiser.globals, *specialiser.results})
    steps, regions = partition(steps, outside)
    analysis = round(time.monotonic() - followed, 2)
    modules = [RegionModule(region, model, specialiser.globals) for region in regions]
    for region in regions:
        region.measured = options.measure and not (options.single_file or options.batched)
        region.open = tuple(frozenset(specialiser.open.get(key, ())) for key in region.inputs)
    classes = {name: described(one) for name, one in specialiser.results.items()}
    explore(Explorer(path, regions, modules, classes), steps, calls)
    never = [Unsplittable(*one.place, "no example leads here") for one in regions if not one.samples]
    if never and options.unseen == "raise":
        regions = close_regions(steps, regions)
        modules = [RegionModule(region, model, specialiser.globals) for region in regions]
    folder = tempfile.TemporaryDirectory(prefix="regraft-split-")
    directory = Path(folder.name)
    artifacts = Artifacts(directory)
    if compiler.prepare is not None:
        compiler.prepare(regions, modules, directory)
    pairs = zip(regions, modules, strict=True)
    entries = [compile_region(region, module, artifacts, compiler) for region, module in pairs]
    islands, models = counted(entries)
    sides = number_sides(steps)
    versions = {"torch": torch.__version__, "onnx": onnx.__version__, compiler.name: compiler.version}
    manifest = {
        "compiler": compiler.name,
        "versions": versions,
        "inputs": inputs(calls),
        "arguments": dataclasses.asdict(packed) if packed is not None else None,
        "regions": entries,
        **artifacts.manifest(),
    }
    host = functools.partial(
        host_source, type(model).__name__, parameters, list(calls[0]), steps, bool(islands), compiler, classes
    )
    scratch = sorted(specialiser.scratch)
    not_left = tuple(".".join(filter(None, one)).removeprefix("network." if packed else "") for one in scratch)
    report = Report(len(regions), models, islands, len(sides), 0, (), 0, (), 0.0, not_left=not_left, analysis=analysis)
    write(directory, host(), manifest, report)
    recorder, state = Recorder(path, regions, modules, classes), State(model)
    found = check(model, SplitModel(directory, report), calls, recorder, steps, sides)
    missing = not_taken(sides, found.taken)
    if missing and options.unseen == "refuse":
        raise missing[0]
    close_sides(steps, found.taken)
    one = as_file(path, steps, regions, directory, manifest, classes) if options.single_file else None
    if one is not None:
        onnx.save(one, directory / FILE)
        try:
            file = SingleFile(directory / FILE, report)
        except ValueError as problem:
            raise Unsplittable(path, 0, f"as a single file: {problem}") from problem
        found = check_file(model, file, calls, recorder, steps, found)
    if options.batched:
        folder = tempfile.TemporaryDirectory(prefix="regraft-split-")
        directory, source = Path(folder.name), functools.partial(batched_source, type(model).__name__, parameters)
        artifacts = Artifacts(directory)
        check_state(model, state, scratch)
        batches = compile_batches(regions, model, specialiser.globals, artifacts, compiler)
        state = State(model)  # an export gives modules copies of the dictionaries that they hold
        islands, models = counted([entry[key] for entry in batches for key in ("together", "each") if key in entry])
        tensors = [key for key, one in calls[0].items() if isinstance(one, torch.Tensor)]
        host = functools.partial(source, list(calls[0]), tensors, steps, bool(islands), compiler, classes)
        manifest = {**any_number(manifest), "regions": batches, **artifacts.manifest()}
        alone = tuple(place(region) for region, one in zip(regions, batches, strict=True) if "together" not in one)
        report = replace(report, models=models, islands=islands, one_by_one=alone)
        write(directory, host(), manifest, report)
        found = check_batches(model, SplitModel(directory, report), calls, recorder, steps, found)
    check_state(model, state, scratch)
    report = replace(
        report, sides_run=len(found.taken), unseen=tuple(map(str, (*missing, *never))),
        inputs_checked=len(found.equal), at_threshold=tuple(found.at_threshold), rounding=tuple(found.rounding),
        seconds=round(time.monotonic() - started, 2),
    )  # fmt: skip
    write(directory, host(), manifest, report)
    if one is None:
        return SplitModel(directory, report, folder)
    note(one, report=dataclasses.asdict(report), arguments=manifest["arguments"])
    onnx.save(one, directory / FILE)
    return SingleFile(directory / FILE, report, folder)


def counted(entries: list[dict[str, Any]]) -> tuple[tuple[str, ...], int]:
    """Why sub-networks are eager islands, and the number of different files of the others."""
    models = {entry.get("model", entry.get("file")) for entry in entries if "reason" not in entry}
    return tuple(entry["reason"] for entry in entries if "reason" in entry), len(models)


def specialised(
    model: torch.nn.Module, calls: list[dict[str, Any]], options: Options, scratch: set[Attribute]
) -> tuple[Specialiser, list[Step]]:
    """The program as it is followed on the first call; on another where something cannot be run on that one."""
    failed: Unrunnable | None = None
    partly: tuple[Specialiser, list[Step]] | None = None  # a loop in it is over lists that are empty for this call
    mutable: set[type] = set()
    first = 0
    while first < min(len(calls), FOLLOWED):
        specialiser = Specialiser(model)
        specialiser.mutable = mutable
        try:
            with stores(model) as specialiser.stored:
                # where Python raises that a variable has no value, ONNX would compute with anything
                steps = specialiser.network(calls[first:] + calls[:first], scratch, partial=not options.single_file)
        except Unrunnable as problem:
            failed = failed or problem
            first += 1
        except Mutable as found:
            mutable.add(found.kind)
        else:
            never = {id(one) for one in specialiser.never}
            if never.isdisjoint(map(id, all_steps(steps))):
                return specialiser, steps
            partly = partly or (specialiser, steps)
            first += 1
    if partly is not None:
        return partly
    raise failed or AssertionError("there are calls")


def any_number(known: dict[str, Any]) -> dict[str, Any]:
    """What a call has to give, with any number of samples."""
    free = {
        key: {**one, "shape": [None, *one["shape"][1:]]} if "shape" in one else one
        for key, one in known["inputs"].items()
    }
    return {**known, "inputs": free}


def place(region: Region) -> str:
    return f"{region.place[0]}:{region.place[1]}"


def write(directory: Path, host: str, manifest: dict[str, Any], report: Report) -> None:
    (directory / "host.py").write_text(host, "utf-8")
    whole = {"host": digest(host.encode()), **manifest, "report": dataclasses.asdict(report)}
    (directory / "manifest.json").write_text(json.dumps(whole, separators=(",", ":")), "utf-8")


def lacks_samples(region: Region) -> bool:
    """Whether nothing has led to it, or nothing has shown that an open size varies."""
    if not region.samples:
        return True
    seen = [common([one.shape for one in tensors]) for tensors in zip(*region.samples, strict=True)]
    return any(sizes[dim] is not None for sizes, dims in zip(seen, region.open, strict=True) for dim in dims)


def explore(explorer: Explorer, steps: list[Step], calls: list[dict[str, Any]]) -> None:
    """Samples of every region; perturbed inputs, too, where sizes are open or a region has none."""
    for number, call in enumerate(itertools.islice(examples(calls), len(calls) + CHECKED)):
        enough = len(calls) + PERTURBED * any(any(one.open) for one in explorer.regions)
        if number >= enough and not any(map(lacks_samples, explorer.regions)):
            break
        names = {key: to_numpy(value) for key, value in call.items()}
        if number >= len(calls):
            explorer.out_of_turn(steps, names)
            continue
        try:
            explorer.run(steps, names)
        except Unsplittable:
            raise
        except Exception as problem:
            reason = f"the specialised program fails on example call {number}: {type(problem).__name__}: {problem}"
            raise Unsplittable(explorer.path, 0, reason) from problem
