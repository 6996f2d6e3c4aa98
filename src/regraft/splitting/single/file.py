"""The single file: made from the host's steps, called like the network."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import helper

from regraft.splitting.errors import Unsplittable
from regraft.splitting.export import session_of
from regraft.splitting.record import to_numpy, to_torch
from regraft.splitting.residual import Region, Step
from regraft.splitting.results import Classes, made
from regraft.splitting.single.graph import Graph
from regraft.splitting.single.inline import Regions
from regraft.splitting.single.join import name_of
from regraft.splitting.single.lower import Lowering
from regraft.splitting.single.values import Const, Items, Listed, Names, Number, Sequence, Tensor, Value, described
from regraft.splitting.unpacked import Packed

LIMIT = 2**31 - 2**20  # bytes of a file of Protocol Buffers
NESTED = 30  # graphs within graphs, which Protocol Buffers read
FILE = "network.onnx"
KEY = "regraft"  # of the metadata


def single_file(
    path: str, steps: list[Step], regions: list[Region], directory: Path, manifest: dict[str, Any], classes: Classes
) -> onnx.ModelProto:
    """The host's program around the regions of `directory`.

    Raises Unsplittable with file, line and reason where ONNX cannot express it.
    """
    compiled = Regions(directory, manifest, regions)
    graph = Graph(itertools.count())
    names: Names = {}
    for key, known in manifest["inputs"].items():
        if "value" in known:
            continue  # the host's program holds it as a constant
        shape = [f"{key}_{dim}" if size is None else size for dim, size in enumerate(known["shape"])]
        graph.inputs.append((key, (known["dtype"], shape)))
        names[key] = Tensor(key, known["dtype"], len(shape))
    lowering = Lowering(path, compiled)
    result = lowering.function(steps, names, graph)
    tree = given(graph, result, "result_" if "result" in names else "result", classes)
    if not graph.outputs:
        raise lowering.refuse("a result that no input decides")
    if deepest(graph) > NESTED:
        raise Unsplittable(
            path, 0, f"decisions within decisions, {deepest(graph)} deep, cannot be part of an ONNX file"
        )
    graph.settle()
    if sum(one.nbytes for one in graph.used().values()) > LIMIT:
        raise Unsplittable(path, 0, "more than 2 GB of weights cannot be part of a single ONNX file")
    opsets = [helper.make_opsetid(domain, version) for domain, version in compiled.opsets.items()]
    model = helper.make_model(graph.proto("network"), producer_name="regraft", opset_imports=opsets, ir_version=9)
    note(model, versions=manifest["versions"], inputs=manifest["inputs"], result=tree)
    return model


def note(model: onnx.ModelProto, **facts: Any) -> None:
    """Add to what the file says of itself."""
    known = json.loads(model.metadata_props[0].value) if model.metadata_props else {}
    helper.set_model_props(model, {KEY: json.dumps({**known, **facts})})


def deepest(graph: Graph) -> int:
    return max([graph.depth, *map(deepest, graph.children())])


def given(graph: Graph, value: Value, name: str, classes: Classes) -> Any:
    """Let the graph give a result, each leaf as an output; how the result is put together from them."""
    if isinstance(value, Const):
        if value.value is None or isinstance(value.value, (bool, int, float, str)):
            return {"value": value.value}
    elif isinstance(value, Items):
        keys = value.keys or range(len(value.values))
        parts = [given(graph, one, f"{name}_{key}", classes) for key, one in zip(keys, value.values, strict=True)]
        if value.kind in ("tuple", "list"):
            return {value.kind: parts}
        fields = dict(zip(value.keys, parts, strict=True))
        known = {value.kind: classes[value.kind]} if value.kind != "dict" else {}
        return {"object": [known, fields]} if known else {"dict": fields}
    elif isinstance(value, (Number, Tensor, Sequence, Listed)):
        graph.copy_as(name_of(graph, value), name)
        graph.outputs.append((name, value))
        number = isinstance(value, (Number, Listed)) or (
            isinstance(value, Sequence) and isinstance(value.element, Number)
        )
        return {"numbers" if number else "sequence" if isinstance(value, Sequence) else "tensor": name}
    raise Unsplittable("", 0, f"{described(value)} as a result cannot be part of a single ONNX file")


def rebuilt(tree: dict[str, Any], outputs: dict[str, Any]) -> Any:
    """The result as the network gives it."""
    ((kind, part),) = tree.items()
    if kind == "value":
        return part
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](rebuilt(one, outputs) for one in part)
    if kind == "object":
        (kind_of_it,) = made(part[0]).values()
        return kind_of_it(**{key: rebuilt(one, outputs) for key, one in part[1].items()})
    if kind == "dict":
        return {key: rebuilt(one, outputs) for key, one in part.items()}
    if kind == "numbers":
        return python(outputs[part])
    return [numpy.asarray(one) for one in outputs[part]] if kind == "sequence" else numpy.asarray(outputs[part])


def python(value: Any) -> Any:
    return [python(one) for one in value] if isinstance(value, list) else numpy.asarray(value).tolist()


def facts_of(session: onnxruntime.InferenceSession, path: Path) -> dict[str, Any]:
    """What the file says of itself."""
    known = session.get_modelmeta().custom_metadata_map.get(KEY)
    if known is None:
        raise ValueError(f"{path} is no network that was split")
    found: dict[str, Any] = json.loads(known)
    return found


class SingleFile:
    """Called like the original network: torch tensors in and out. ONNX Runtime refuses other types and sizes."""

    def __init__(self, path: Path, report: Any = None, scratch: Any = None) -> None:
        self.path, self.directory, self.report, self._scratch = path, path.parent, report, scratch
        self.packed: Packed | None = None
        try:
            self.session = session_of(str(path))
        except Exception as problem:
            raise ValueError(f"ONNX Runtime cannot load {path}: {problem}") from problem
        known = facts_of(self.session, path)
        self.inputs, self.result, self.facts = known["inputs"], known["result"], known
        self.wanted = [one.name for one in self.session.get_inputs()]
        self.given = [one.name for one in self.session.get_outputs()]

    def __call__(self, *args: Any, **words: Any) -> Any:
        if self.packed is not None:
            args, words = (), self.packed.parts(args, words)
        call = {**dict(zip(self.inputs, args, strict=False)), **words}
        if len(args) > len(self.inputs) or not set(self.wanted) <= set(call) <= set(self.inputs):
            raise TypeError(f"the network takes {', '.join(self.inputs)}")
        for key, known in self.inputs.items():
            if "value" in known and key in call and repr(call[key]) != known["value"]:
                raise ValueError(f"{key} is {call[key]!r}; the network was split for {known['value']}")
        outputs = self.session.run(None, {key: to_numpy(call[key]) for key in self.wanted})
        return to_torch(rebuilt(self.result, dict(zip(self.given, outputs, strict=True))))

    def save(self, path: str | Path) -> None:
        """Copy the file, which any ONNX Runtime can load."""
        shutil.copyfile(self.path, path)
