"""The files of a split network: models that several regions share, and one copy of every weight."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnx import numpy_helper

from regraft.splitting.compiling.engine_settings import EngineSettings

ALIGNMENT = 64  # bytes; the offset of a weight in its file is a multiple of it
MIN_INTEGERS = (
    64  # elements; smaller integer tensors are shapes and axes, which belong to the structure
)
WEIGHT_TYPES = frozenset(
    ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
)


class Artifacts:
    """The files of one directory: ONNX models, each shared by regions of equal structure, and
    `weights.bin` with one copy of every weight. Models are written as they are added, the weights
    by `write_weights`. settings: how the engine runs them, here as later."""

    def __init__(self, directory: Path, settings: EngineSettings) -> None:
        self.directory, self.settings = directory, settings
        self.models: dict[str, dict[str, Any]] = {}
        self.weights: dict[str, tuple[str, list[int], int]] = {}  # dtype, shape, offset
        self.file_by_digest: dict[str, str] = {}
        self.weight_bytes = bytearray()

    def add(self, model: onnx.ModelProto, inputs: list[str]) -> dict[str, Any]:
        """Write a region's model as `model_*.onnx`, unless an equal one was written, and return the
        region's entry in the manifest. Changes `model`: takes its weights out and renames its
        values.

        inputs: the names of the region's inputs. The entry has "model", the number of the model,
        "weights", the numbers of the weights bound to it, and "used", the positions of the inputs
        that the model reads.
        """
        weights = self.take_weights(model.graph)
        read_names = {graph_input.name for graph_input in model.graph.input}
        rename_by_position(model.graph, {key: f"i{number}" for number, key in enumerate(inputs)})
        model_bytes = model.SerializeToString(deterministic=True)
        key = digest(model_bytes)
        if key not in self.models:
            file = f"model_{len(self.models)}.onnx"
            (self.directory / file).write_bytes(model_bytes)
            self.models[key] = {"file": file, "sha256": key}
        used = [number for number, key in enumerate(inputs) if key in read_names]
        return {"model": list(self.models).index(key), "weights": weights, "used": used}

    def _locate_weights(self, graph: onnx.GraphProto, weights: list[int]) -> None:
        """Note in the initializers whose weights were taken out of a graph where these lie in
        `weights.bin`. weights: their numbers, in the order of the initializers."""
        places = [*self.weights.values()]
        external_weights = [tensor for tensor in graph.initializer if tensor.external_data]
        for tensor, number in zip(external_weights, weights, strict=True):
            dtype, shape, offset = places[number]
            size = numpy.dtype(dtype).itemsize * int(numpy.prod(shape, dtype=int))
            tensor.external_data.add(key="offset", value=str(offset))
            tensor.external_data.add(key="length", value=str(size))

    def add_standalone(self, model: onnx.ModelProto, inputs: list[str]) -> dict[str, Any]:
        """Write a region's model as `region_*.onnx`, a file that says where its weights lie in
        `weights.bin`, unless an equal one was written; return the region's entry in the manifest.
        Changes `model`: takes its weights out and renames its values.

        inputs: the names of the region's inputs. The entry has "file", "sha256", and "used", the
        positions of the inputs that the model reads.
        """
        weights = self.take_weights(model.graph)
        read_names = {graph_input.name for graph_input in model.graph.input}
        rename_by_position(model.graph, {key: f"i{number}" for number, key in enumerate(inputs)})
        self._locate_weights(model.graph, weights)
        model_bytes = model.SerializeToString(deterministic=True)
        key = digest(model_bytes)
        if key not in self.file_by_digest:
            self.file_by_digest[key] = f"region_{len(self.file_by_digest)}.onnx"
            (self.directory / self.file_by_digest[key]).write_bytes(model_bytes)
        used = [number for number, key in enumerate(inputs) if key in read_names]
        return {"file": self.file_by_digest[key], "sha256": key, "used": used}

    def take_weights(self, graph: onnx.GraphProto) -> list[int]:
        """Move the weights out of the graph, whose initializers then refer to `weights.bin`, and
        return their numbers (`add_weight`), in the order of the initializers.

        Empty tensors, integer tensors of fewer than `MIN_INTEGERS` elements, and types that the
        host cannot bind, stay in the graph.
        """
        numbers = []
        for tensor in graph.initializer:
            array = numpy_helper.to_array(tensor)
            least_size = MIN_INTEGERS if array.dtype.kind in "iu" else 1
            if array.dtype.name in WEIGHT_TYPES and array.size >= least_size:
                numbers.append(self.add_weight(array))
                _refer_to_weights(tensor)
        return numbers

    def add_weight(self, array: numpy.ndarray[Any, Any]) -> int:
        """Add a weight to those of `weights.bin`, unless an equal one is there, and return its
        number; numbers count from 0 in the order of addition."""
        weight_bytes = array.tobytes()
        key = digest(f"{array.dtype.name} {array.shape}".encode() + weight_bytes)
        if key not in self.weights:
            self.weight_bytes.extend(bytes(-len(self.weight_bytes) % ALIGNMENT))
            self.weights[key] = (array.dtype.name, list(array.shape), len(self.weight_bytes))
            self.weight_bytes.extend(weight_bytes)
        return list(self.weights).index(key)

    def write_weights(self) -> dict[str, Any]:
        """Write `weights.bin`, and return the manifest's entries "models" and "weights", which
        describe the files with their digests."""
        (self.directory / "weights.bin").write_bytes(self.weight_bytes)
        return {
            "models": list(self.models.values()),
            "weights": {
                "file": "weights.bin",
                "sha256": digest(bytes(self.weight_bytes)),
                "arrays": [*self.weights.values()],
            },
        }


def rename_by_position(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Rename the graph's values by position, in place, and remove other names and texts, so that
    graphs of equal structure become equal.

    names: the new names of the inputs, i0, i1 and so on. Outputs become o0, weights w0, other
    values v0, each with its number.
    """
    names = {"": "", **names}
    weights = [tensor.name for tensor in graph.initializer if tensor.external_data]
    names.update((name, f"w{number}") for number, name in enumerate(weights))
    names.update(
        (output.name, f"o{number}")
        for number, output in enumerate(graph.output)
        if output.name not in names
    )
    _rename_values(graph, names)
    graph.name, graph.doc_string = "region", ""
    del graph.metadata_props[:]
    del graph.value_info[:]


def _rename_values(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Rename the values of a graph and of its inner graphs, in place; a value that `names` lacks
    gets a new name, v0 and so on, which is added there.

    The nodes' names and texts, the shapes of outputs and the names of open sizes are removed.
    """

    def new_name(name: str) -> str:
        """Return the new name of a value; a value that `names` lacks is added there as the next `v`
        number."""
        return names.setdefault(name, f"v{len(names)}")

    for operand in (*graph.input, *graph.initializer):
        operand.name = new_name(operand.name)
    for node in graph.node:
        node.name = node.doc_string = ""
        del node.metadata_props[:]
        node.input[:] = [new_name(name) for name in node.input]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename_values(inner, names)
        node.output[:] = [new_name(name) for name in node.output]
    for operand in graph.output:
        operand.name = new_name(operand.name)
    _clear_shapes(graph)


def _refer_to_weights(tensor: onnx.TensorProto) -> None:
    """Take the content out of an initializer, which then refers to `weights.bin`."""
    tensor.doc_string = ""
    del tensor.metadata_props[:]
    del tensor.external_data[:]
    tensor.ClearField("raw_data")
    for field in ("float_data", "int32_data", "int64_data", "double_data"):
        tensor.ClearField(field)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


def _clear_shapes(graph: onnx.GraphProto) -> None:
    """Remove the shapes of outputs and the names of the inputs' open sizes from a graph."""
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for value in graph.input:
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.Clear()


def digest(content: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
