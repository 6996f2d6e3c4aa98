"""`regraft.split`: a network with decisions on values becomes compiled sub-networks and a host."""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import inspect
import io
import json
import shutil
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regraft.dynamic.check import check
from regraft.dynamic.errors import Unsplittable
from regraft.dynamic.explore import Explorer, RegionModule
from regraft.dynamic.host import host_source
from regraft.dynamic.probe import observe
from regraft.dynamic.record import Recorder, to_numpy, to_torch
from regraft.dynamic.regions import partition
from regraft.dynamic.residual import Region, number_sides
from regraft.dynamic.specialise import Specialiser
from regraft.dynamic.state import State


@dataclass(frozen=True)
class Report:
    """What a split consists of, and how it was checked.

    inputs_checked: inputs of equal decisions and results. at_threshold: inputs that the split network decides
    differently, where the value compared lies at its threshold. seconds: the whole build.
    """

    subnetworks: int
    islands: tuple[str, ...]
    sides: int
    sides_run: int
    inputs_checked: int
    at_threshold: tuple[str, ...]
    seconds: float


class SplitModel:
    """Called like the original network: torch tensors in and out."""

    def __init__(self, directory: Path, report: Report, scratch: Any = None) -> None:
        self.directory, self.report, self._scratch = directory, report, scratch
        spec = importlib.util.spec_from_file_location("regraft_split_host", directory / "host.py")
        if spec is None or spec.loader is None:
            raise ValueError(f"{directory} holds no host")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.host = module.Host(directory)

    def __call__(self, *args: Any, **words: Any) -> Any:
        return to_torch(
            self.host.forward(*map(to_numpy, args), **{key: to_numpy(value) for key, value in words.items()})
        )

    def save(self, directory: str | Path) -> None:
        """Write host, sub-networks and manifest; the directory then runs without torch and without Regraft."""
        shutil.copytree(self.directory, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def load_split(directory: str | Path) -> SplitModel:
    """What `save` wrote; a changed file raises ValueError."""
    manifest = json.loads((Path(directory) / "manifest.json").read_text("utf-8"))
    host = (Path(directory) / "host.py").read_bytes()
    if digest(host) != manifest["host"]:
        raise ValueError("host.py is not the file that the manifest describes")
    fields: dict[str, Any] = {
        key: tuple(one) if isinstance(one, list) else one for key, one in manifest["report"].items()
    }
    return SplitModel(Path(directory), Report(**fields))


def split(model: torch.nn.Module, example_inputs: list[Any], compiler: str = "onnxruntime") -> SplitModel:
    """Split `model`, following every side of every decision from `example_inputs` (tuples or dicts of arguments).

    Raises Unsplittable with file, line and reason where the network cannot be split or the result differs.
    """
    started = time.monotonic()
    if compiler != "onnxruntime":
        raise ValueError(f"unknown compiler {compiler!r}; there is onnxruntime")
    path, parameters = locate(model)
    if not example_inputs:
        raise Unsplittable(path, 0, "splitting needs at least one example call")
    calls = [arguments(model, path, call) for call in example_inputs]
    if len({kind(call) for call in calls}) > 1:
        raise Unsplittable(path, 0, "the example calls differ in shapes, types or constants, which is not supported")
    if model.training:
        raise Unsplittable(path, 0, "the network is in training mode; call eval() first")
    state = State(model)
    for call in calls:
        check_runs(model, path, call)
    check_state(model, state)
    specialiser = Specialiser(model)
    steps = specialiser.network(calls[0])
    outside = frozenset({"self", "numpy", *vars(builtins), *specialiser.globals})
    steps, regions = partition(steps, outside)
    modules = [RegionModule(region, model, specialiser.globals) for region in regions]
    explorer = Explorer(path, regions, modules)
    for call in calls:
        explorer.run(steps, {key: to_numpy(value) for key, value in call.items()})
    scratch = tempfile.TemporaryDirectory(prefix="regraft-split-")
    directory = Path(scratch.name)
    entries = [
        compile_region(region, module, directory, path) for region, module in zip(regions, modules, strict=True)
    ]
    sides = number_sides(steps)
    source = host_source(type(model).__name__, parameters, steps)
    (directory / "host.py").write_text(source, "utf-8")
    manifest = {"regions": entries, "host": digest(source.encode()), "torch": torch.__version__}
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")
    made = SplitModel(directory, Report(len(regions), (), len(sides), 0, 0, (), 0.0), scratch)
    state = State(model)
    found = check(model, made, calls, Recorder(path, regions, modules), steps, sides)
    check_state(model, state)
    at = tuple(found.at_threshold)
    made.report = Report(
        len(regions), (), len(sides), len(sides), found.equal, at, round(time.monotonic() - started, 2)
    )
    manifest["report"] = {key: getattr(made.report, key) for key in Report.__dataclass_fields__}
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")
    return made


def locate(model: torch.nn.Module) -> tuple[str, list[str]]:
    """The file of the network's forward, and its parameters."""
    if isinstance(model, torch.jit.ScriptModule):
        raise Unsplittable("<TorchScript>", 0, "a TorchScript model has no source; split the module it was made from")
    forward = inspect.unwrap(type(model).forward)
    path = inspect.getsourcefile(forward) or "<unknown>" if inspect.isfunction(forward) else "<unknown>"
    if inspect.isgeneratorfunction(forward) or inspect.iscoroutinefunction(forward):
        raise Unsplittable(path, forward.__code__.co_firstlineno, "forward is a generator or coroutine")
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
        raise Unsplittable(path, forward.__code__.co_firstlineno, "forward takes * or ** arguments")
    hooked = [one for one in model.modules() if one._forward_hooks or one._forward_pre_hooks]
    if hooked or "forward" in vars(model):
        raise Unsplittable(
            path, forward.__code__.co_firstlineno, "modules with hooks or a replaced forward cannot be split"
        )
    texts = [one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in parameters]
    return path, texts


def arguments(model: torch.nn.Module, path: str, call: Any) -> dict[str, Any]:
    signature = inspect.signature(type(model).forward)
    try:
        words = call if isinstance(call, dict) else {}
        bound = signature.bind(model, *(() if isinstance(call, dict) else call), **words)
    except TypeError as problem:
        raise Unsplittable(path, 0, f"the example call does not fit forward: {problem}") from problem
    bound.apply_defaults()
    return dict(list(bound.arguments.items())[1:])


def kind(call: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        (key, str(one.dtype), tuple(one.shape)) if isinstance(one, torch.Tensor) else (key, repr(one))
        for key, one in call.items()
    )


def check_runs(model: torch.nn.Module, path: str, call: dict[str, Any]) -> None:
    """The network draws no random numbers, keeps its state, and leaves its inputs alone."""
    line = inspect.unwrap(type(model).forward).__code__.co_firstlineno
    state = [*model.parameters(), *model.buffers(), *(one for one in call.values() if isinstance(one, torch.Tensor))]
    seen = observe(lambda: model(**call), state)
    if seen.random:
        raise Unsplittable(path, line, "random numbers are drawn or seeded in forward")
    if seen.changed:
        raise Unsplittable(path, line, "parameters, buffers or inputs are changed in forward")


def check_state(model: torch.nn.Module, state: State) -> None:
    changed = state.changed(model)
    if changed is not None:
        module = type(model.get_submodule(changed[0]))
        forward = inspect.unwrap(module.forward)
        raise Unsplittable(
            inspect.getsourcefile(forward) or "<unknown>", forward.__code__.co_firstlineno,
            f"a call changes the attribute {changed[1]} of {changed[0] or 'the network'} ({module.__name__})",
        )  # fmt: skip


def compile_region(region: Region, module: RegionModule, directory: Path, path: str) -> dict[str, Any]:
    line = getattr(region.statements[0], "lineno", 0)
    if not region.samples:
        raise Unsplittable(path, line, f"no example leads to region {region.number}: {ast_text(region)}")
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, region.samples[0], buffer, dynamo=False, input_names=list(region.inputs),
                output_names=[f"{key}_out" for key in region.outputs], opset_version=17,
            )  # fmt: skip
    except Exception as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise Unsplittable(path, line, f"ONNX cannot express {ast_text(region)}: {reason}") from problem
    data = buffer.getvalue()
    file = f"region_{region.number}.onnx"
    (directory / file).write_bytes(data)
    return {"file": file, "sha256": digest(data), "inputs": region.inputs, "outputs": region.outputs}


def ast_text(region: Region) -> str:
    return "; ".join(ast.unparse(one) for one in region.statements)[:200]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
