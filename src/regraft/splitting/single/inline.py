"""Regions' models as nodes of a graph, under names of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx

from regraft.splitting.errors import Unsplittable
from regraft.splitting.export import OPSET
from regraft.splitting.residual import Region, RegionStep
from regraft.splitting.single.graph import Graph, Node, dtype_of
from regraft.splitting.single.join import Disagree, name_of
from regraft.splitting.single.values import Names, Number, Tensor, described, number_kind


class Regions:
    """The compiled regions of a directory, by number."""

    def __init__(self, directory: Path, manifest: dict[str, Any], regions: list[Region]) -> None:
        self.entries, self.regions = manifest["regions"], regions
        files = [directory / one["file"] for one in manifest["models"]]
        self.models = [onnx.load(file, load_external_data=False) for file in files]
        data = (directory / manifest["weights"]["file"]).read_bytes()
        self.weights = [
            numpy.frombuffer(data, dtype, int(numpy.prod(shape, dtype=int)), offset).reshape(shape)
            for dtype, shape, offset in manifest["weights"]["arrays"]
        ]
        self.opsets = {"": OPSET}  # also where there are no regions
        for model in self.models:
            for one in model.opset_import:
                self.opsets[one.domain] = max(one.version, self.opsets.get(one.domain, 0))

    def place(self, number: int) -> tuple[str, int]:
        return self.regions[number].place

    def inline(self, step: RegionStep, names: Names, graph: Graph) -> None:
        """The nodes of a region; its outputs become names."""
        entry = self.entries[step.number]
        if "reason" in entry:
            raise Unsplittable(*self.place(step.number), f"a sub-network that torch runs: {entry['reason']}")
        model = self.models[entry["model"]]
        known = {one.name: f"w.{number}" for one, number in zip(external(model), entry["weights"], strict=True)}
        for place in entry["used"]:
            known[f"i{place}"] = self.given(step, place, names, graph)
        for number in entry["weights"]:
            graph.weights[number] = self.weights[number]
        for tensor in model.graph.initializer:
            if tensor.name not in known:
                known[tensor.name] = graph.constant_of(tensor)
        for node in model.graph.node:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            rename(copied, known, graph)
            graph.nodes.append(Node(copied.op_type, [], list(copied.output), {}, proto=copied))
            graph.made.update(copied.output)
        for made, key, kind in zip(model.graph.output, step.outputs, entry["outputs"], strict=True):
            names[key] = Tensor(known[made.name], kind["type"], len(kind["shape"]))

    def given(self, step: RegionStep, place: int, names: Names, graph: Graph) -> str:
        """What goes into a region: a tensor, or a number of the host as one."""
        wanted = self.entries[step.number]["inputs"][place]
        value = names[wanted["name"]]
        if not isinstance(value, Tensor) and number_kind(value) is None:
            raise Disagree(f"{wanted['name']}, {described(value)} that goes into a sub-network,")
        name = name_of(graph, value)
        have = value if isinstance(value, Tensor) else Number(name, number_kind(value) or "")
        if dtype_of(have) != wanted["type"]:
            raise Disagree(f"{wanted['name']}, of {dtype_of(have)} where a sub-network takes {wanted['type']},")
        return name


def external(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    return [one for one in model.graph.initializer if one.external_data]


def rename(node: onnx.NodeProto, known: dict[str, str], graph: Graph) -> None:
    """Names of the region as names of the graph; `known` gets those that the node makes."""
    node.input[:] = [known[one] if one else "" for one in node.input]
    for attribute in node.attribute:
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            scope = dict(known)
            for one in (*inner.input, *inner.initializer):
                scope[one.name] = one.name = graph.name()
            for part in inner.node:
                rename(part, scope, graph)
            for one in inner.output:
                one.name = scope[one.name]
    for place, one in enumerate(node.output):
        if one:
            known[one] = node.output[place] = graph.name()
