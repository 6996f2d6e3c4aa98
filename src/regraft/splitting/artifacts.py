"""What a split network consists of on disk: models that several regions share, and one copy of every weight."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnx import numpy_helper

ALIGNED = 64  # bytes, the start of a weight in its file
SMALL = 64  # elements; integers below it are shapes and axes, which belong to the structure
PLAIN = frozenset(["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])


class Artifacts:
    """Files of one directory: `model_*.onnx`, without weights or names, and `weights.bin`, bound to them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.models: dict[str, dict[str, Any]] = {}
        self.weights: dict[str, tuple[str, list[int], int]] = {}  # dtype, shape, offset
        self.files: dict[str, str] = {}
        self.data = bytearray()

    def add(self, model: onnx.ModelProto, inputs: list[str]) -> dict[str, Any]:
        """Keep a region's model; returns which file it is, the weights bound to it, and the inputs that it reads."""
        bound = self.bound(model.graph)
        given = {one.name for one in model.graph.input}
        rename(model.graph, {key: f"i{number}" for number, key in enumerate(inputs)})
        data = model.SerializeToString(deterministic=True)
        key = digest(data)
        if key not in self.models:
            file = f"model_{len(self.models)}.onnx"
            (self.directory / file).write_bytes(data)
            self.models[key] = {"file": file, "sha256": key}
        used = [number for number, one in enumerate(inputs) if one in given]
        return {"model": list(self.models).index(key), "weights": bound, "used": used}

    def add_whole(self, model: onnx.ModelProto, inputs: list[str]) -> dict[str, Any]:
        """Keep a region's model as a file that says where its weights lie; regions of equal weights share it."""
        bound = self.bound(model.graph)
        given = {one.name for one in model.graph.input}
        rename(model.graph, {key: f"i{number}" for number, key in enumerate(inputs)})
        places = [*self.weights.values()]
        external = [one for one in model.graph.initializer if one.external_data]
        for tensor, number in zip(external, bound, strict=True):
            dtype, shape, offset = places[number]
            size = numpy.dtype(dtype).itemsize * int(numpy.prod(shape, dtype=int))
            tensor.external_data.add(key="offset", value=str(offset))
            tensor.external_data.add(key="length", value=str(size))
        data = model.SerializeToString(deterministic=True)
        key = digest(data)
        if key not in self.files:
            self.files[key] = f"region_{len(self.files)}.onnx"
            (self.directory / self.files[key]).write_bytes(data)
        used = [number for number, one in enumerate(inputs) if one in given]
        return {"file": self.files[key], "sha256": key, "used": used}

    def bound(self, graph: onnx.GraphProto) -> list[int]:
        """Take the weights out of the graph; their numbers, in the order of the graph's initializers."""
        numbers = []
        for tensor in graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype.name not in PLAIN or array.size < (SMALL if array.dtype.kind in "iu" else 1):
                continue
            numbers.append(self.weight(array))
            tensor.doc_string = ""
            del tensor.metadata_props[:]
            del tensor.external_data[:]
            tensor.ClearField("raw_data")
            for field in ("float_data", "int32_data", "int64_data", "double_data"):
                tensor.ClearField(field)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")
        return numbers

    def weight(self, array: numpy.ndarray[Any, Any]) -> int:
        data = array.tobytes()
        key = digest(f"{array.dtype.name} {array.shape}".encode() + data)
        if key not in self.weights:
            self.data.extend(bytes(-len(self.data) % ALIGNED))
            self.weights[key] = (array.dtype.name, list(array.shape), len(self.data))
            self.data.extend(data)
        return list(self.weights).index(key)

    def manifest(self) -> dict[str, Any]:
        """Write the weights; what the host needs to know to bind them."""
        (self.directory / "weights.bin").write_bytes(self.data)
        return {
            "models": list(self.models.values()),
            "weights": {"file": "weights.bin", "sha256": digest(bytes(self.data)), "arrays": [*self.weights.values()]},
        }


def rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Names by position, so that graphs of equal structure are equal: i0 (inputs), o0 (outputs), w0 (weights), v0."""
    names = {"": "", **names}
    bound = [one.name for one in graph.initializer if one.external_data]
    names.update((name, f"w{number}") for number, name in enumerate(bound))
    names.update((one.name, f"o{number}") for number, one in enumerate(graph.output) if one.name not in names)
    _rename(graph, names)
    graph.name, graph.doc_string = "region", ""
    del graph.metadata_props[:]
    del graph.value_info[:]


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    def new(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}")

    for one in (*graph.input, *graph.initializer):
        one.name = new(one.name)
    for node in graph.node:
        node.name = node.doc_string = ""
        del node.metadata_props[:]
        node.input[:] = [new(one) for one in node.input]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename(inner, names)
        node.output[:] = [new(one) for one in node.output]
    for one in graph.output:
        one.name = new(one.name)
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for value in graph.input:
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.Clear()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
