"""Means over as many rows as data leave: none of them is NaN in torch, and 0 in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper


def divide(data: bytes) -> bytes:
    """The model with each mean over open sizes as the sum divided by the number of what is summed."""
    model = onnx.load_from_string(data)
    means = [node for node in model.graph.node if node.op_type == "ReduceMean"]
    if not means:
        return data
    types = _types(model)
    unsized = [node for node in means if not _is_sized(types.get(node.input[0]))]
    if not unsized:
        return data
    nodes = [new for node in model.graph.node for new in (_divided(node) if node in unsized else [node])]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return bytes(model.SerializeToString())


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """Types and shapes as they follow from those of the inputs; what an exporter saw on its sample is left out."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for one in bare.graph.output:
        one.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(bare).graph
    return {one.name: one.type.tensor_type for one in (*graph.input, *graph.value_info, *graph.output)}


def _is_sized(known: onnx.TypeProto.Tensor | None) -> bool:
    return known is not None and known.HasField("shape") and all(one.HasField("dim_value") for one in known.shape.dim)


def _divided(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    given, made = node.input[0], node.output[0]
    names = {key: f"{made}_{key}" for key in ("sum", "all", "some", "whole", "left", "number")}
    total = helper.make_node("ReduceSum", list(node.input), [names["sum"]])
    total.attribute.extend(node.attribute)
    yield total
    yield helper.make_node("Size", [given], [names["all"]])
    yield helper.make_node("Size", [names["sum"]], [names["some"]])
    yield helper.make_node("CastLike", [names["all"], given], [names["whole"]])
    yield helper.make_node("CastLike", [names["some"], given], [names["left"]])
    yield helper.make_node("Div", [names["whole"], names["left"]], [names["number"]])
    yield helper.make_node("Div", [names["sum"], names["number"]], [made])
