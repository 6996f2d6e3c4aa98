"""Means in ONNX models over a number of rows that the data decide, replaced by sum and division:
the mean of no rows is NaN in torch, and 0 in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper


def replace_open_means(model_bytes: bytes) -> bytes:
    """Return the model in which each mean over a tensor of open sizes is computed as a sum, divided
    by the number of elements summed: 0/0 is NaN as in torch. A model without such means is returned
    as it is."""
    model = onnx.load_from_string(model_bytes)
    means = [node for node in model.graph.node if node.op_type == "ReduceMean"]
    if not means:
        return model_bytes
    types = _types(model)
    open_means = [node for node in means if not _is_sized(types.get(node.input[0]))]
    if not open_means:
        return model_bytes
    nodes = [
        part
        for node in model.graph.node
        for part in (_sum_and_divide(node) if node in open_means else [node])
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return bytes(model.SerializeToString())


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """Return the tensor types and shapes of the model's values that follow from those of its
    inputs, by name; values for which nothing follows are missing.

    The shapes that an exporter wrote down for its sample are not used; the model stays.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(bare).graph
    return {
        value.name: value.type.tensor_type
        for value in (*graph.input, *graph.value_info, *graph.output)
    }


def _is_sized(tensor_type: onnx.TypeProto.Tensor | None) -> bool:
    """Return whether a tensor type has a shape whose sizes are all numbers; False for None."""
    return (
        tensor_type is not None
        and tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in tensor_type.shape.dim)
    )


def _sum_and_divide(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that compute the mean of `node` as a sum and a division."""
    operand, result = node.input[0], node.output[0]
    names = {key: f"{result}_{key}" for key in ("sum", "all", "some", "whole", "left", "number")}
    total = helper.make_node("ReduceSum", list(node.input), [names["sum"]])
    total.attribute.extend(node.attribute)
    yield total
    yield helper.make_node("Size", [operand], [names["all"]])
    yield helper.make_node("Size", [names["sum"]], [names["some"]])
    yield helper.make_node("CastLike", [names["all"], operand], [names["whole"]])
    yield helper.make_node("CastLike", [names["some"], operand], [names["left"]])
    yield helper.make_node("Div", [names["whole"], names["left"]], [names["number"]])
    yield helper.make_node("Div", [names["sum"], names["number"]], [result])
