"""Inlining of regions: the nodes of their models become nodes of a graph, under new names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx

from regraft.splitting.compiling.onnx_export import OPSET
from regraft.splitting.emitting.single.graph import Graph, Node, dtype_of
from regraft.splitting.emitting.single.graph_values import (
    Names,
    Number,
    Tensor,
    describe_value,
    number_kind,
)
from regraft.splitting.emitting.single.optional_values import require_present
from regraft.splitting.emitting.single.path_types import Inexpressible, name_of
from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.residual import Region, RegionStep


class Regions:
    """The compiled regions of a directory, by number.

    entries  the regions' entries in the manifest
    models   the models, each shared by regions of equal structure
    weights  the arrays of the weights by number
    opsets   the versions of the operator sets that the models need, by domain
    """

    def __init__(self, directory: Path, manifest: dict[str, Any], regions: list[Region]) -> None:
        """Read the models and the weights from the directory."""
        self.entries, self.regions = manifest["regions"], regions
        files = [directory / entry["file"] for entry in manifest["models"]]
        self.models = [onnx.load(file, load_external_data=False) for file in files]
        weight_bytes = (directory / manifest["weights"]["file"]).read_bytes()
        self.weights = [
            numpy.frombuffer(
                weight_bytes, dtype, int(numpy.prod(shape, dtype=int)), offset
            ).reshape(shape)
            for dtype, shape, offset in manifest["weights"]["arrays"]
        ]
        self.opsets = {"": OPSET}  # needed even without regions
        for model in self.models:
            for opset in model.opset_import:
                self.opsets[opset.domain] = max(opset.version, self.opsets.get(opset.domain, 0))

    def place(self, number: int) -> tuple[str, int]:
        """Return the path and line of a region in the source."""
        return self.regions[number].place

    def inline(self, step: RegionStep, names: Names, graph: Graph) -> None:
        """Copy the nodes of a region's model into `graph`, under new names, and set the region's
        outputs in `names`, from which its inputs are read.

        Raises Unsplittable for a region that torch runs, and Inexpressible for an input of another
        type than the model takes.
        """
        entry = self.entries[step.number]
        if "reason" in entry:
            raise Unsplittable(
                *self.place(step.number), f"a sub-network that torch runs: {entry['reason']}"
            )
        model = self.models[entry["model"]]
        name_map = {
            tensor.name: f"w.{number}"
            for tensor, number in zip(external_tensors(model), entry["weights"], strict=True)
        }
        for position in entry["used"]:
            name_map[f"i{position}"] = self.input_name(step, position, names, graph)
        for number in entry["weights"]:
            graph.weights[number] = self.weights[number]
        for tensor in model.graph.initializer:
            if tensor.name not in name_map:
                name_map[tensor.name] = graph.constant_of(tensor)
        for node in model.graph.node:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            rename_values(copied, name_map, graph)
            graph.nodes.append(Node(copied.op_type, [], list(copied.output), {}, proto=copied))
            graph.node_outputs.update(copied.output)
        for output, key, output_type in zip(
            model.graph.output, step.outputs, entry["outputs"], strict=True
        ):
            names[key] = Tensor(
                name_map[output.name], output_type["type"], len(output_type["shape"])
            )

    def input_name(self, step: RegionStep, position: int, names: Names, graph: Graph) -> str:
        """Return the name of the value that is input number `position` of a region: a tensor of
        `names`, or a number of the host as a tensor. Raises Inexpressible for other values and
        other dtypes."""
        declared = self.entries[step.number]["inputs"][position]
        value = require_present(graph, names[declared["name"]])
        if not isinstance(value, Tensor) and number_kind(value) is None:
            raise Inexpressible(
                f"{declared['name']}, {describe_value(value)} that goes into a sub-network,"
            )
        name = name_of(graph, value)
        typed_value = value if isinstance(value, Tensor) else Number(name, number_kind(value) or "")
        if dtype_of(typed_value) != declared["type"]:
            raise Inexpressible(
                f"{declared['name']}, of {dtype_of(typed_value)} where a sub-network takes"
                f" {declared['type']},"
            )
        return name


def external_tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the initializers of a model whose values lie in the file of weights."""
    return [tensor for tensor in model.graph.initializer if tensor.external_data]


def rename_values(node: onnx.NodeProto, name_map: dict[str, str], graph: Graph) -> None:
    """Rename the values that a node, and the graphs in its attributes, reads and computes, in
    place.

    name_map: the new names of the values it reads; new names of `graph` for the node's outputs are
    added.
    """
    node.input[:] = [name_map[input_name] if input_name else "" for input_name in node.input]
    for attribute in node.attribute:
        for subgraph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            scope = dict(name_map)
            for value in (*subgraph.input, *subgraph.initializer):
                scope[value.name] = value.name = graph.new_name()
            for inner_node in subgraph.node:
                rename_values(inner_node, scope, graph)
            for value in subgraph.output:
                value.name = scope[value.name]
    for index, value in enumerate(node.output):
        if value:
            name_map[value] = node.output[index] = graph.new_name()
