"""ONNX graphs in the making: nodes, constants and weights, which go to the innermost graph around all their uses."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy
import onnx
from onnx import helper, numpy_helper

from regraft.splitting.single.values import KINDS, Listed, Number, Sequence, Tensor

Array = Any


@dataclass
class Node:
    """An operation; attributes that are graphs are made last."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    name: str = ""
    proto: onnx.NodeProto | None = None  # of a region, as it stands


@dataclass
class Graph:
    """A graph, or the body of an `If` or `Loop` within `parent`. risky: something in it may fail at run time."""

    fresh: itertools.count[int]
    nodes: list[Node] = field(default_factory=list)
    inputs: list[tuple[str, Any]] = field(default_factory=list)
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    weights: dict[int, Array] = field(default_factory=dict)
    constants: dict[tuple[str, tuple[int, ...], bytes], tuple[str, Array]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    condition: str = ""  # a value that is known at run time only
    depth: int = 0
    raised: str = ""  # what the program raises here, if it does
    risky: bool = False

    def child(self) -> Graph:
        return Graph(self.fresh, depth=self.depth + 1, condition=self.condition)

    def name(self) -> str:
        return f"v.{next(self.fresh)}"  # no parameter of Python has this name

    def add(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node with one output; its name."""
        return self.several(op, list(inputs), 1, name=name, **attributes)[0]

    def copy_as(self, name: str, made: str) -> None:
        """Let `made` be another name of the value `name`."""
        self.nodes.append(Node("Identity", [name], [made], {}))

    def several(self, op: str, inputs: list[str], count: int, name: str = "", **attributes: Any) -> list[str]:
        outputs = [self.name() for _ in range(count)]
        self.nodes.append(Node(op, inputs, list(outputs), attributes, name))
        self.made.update(outputs)
        return outputs

    def constant(self, value: Any, dtype: str) -> str:
        """The name of a constant of this graph."""
        array = numpy.asarray(value, dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = (self.name(), array)
        return self.constants[key][0]

    def constant_of(self, tensor: onnx.TensorProto) -> str:
        array = numpy_helper.to_array(tensor)
        return self.constant(array, array.dtype.name)

    def number(self, value: Any, kind: str) -> str:
        return self.constant(value, KINDS[kind])

    def output(self, name: str, kind: Any) -> None:
        """Give `name` as an output, by its own node: what comes from outside or goes out twice is copied."""
        given = {one for one, _ in self.outputs}
        if name not in self.made or name in given:
            name = self.add("Identity", name)
        self.outputs.append((name, kind))

    def failing(self) -> str:
        """A zero (int64) whose computation fails whenever this graph runs."""
        self.risky = True
        place = self.add("Add", self.add("Cast", self.condition, to=onnx.TensorProto.INT64), self.number(1, "int"))
        return self._checked(place, self.raised)

    def unless(self, holds: str, message: str) -> str:
        """A zero (int64) whose computation fails with `message` unless `holds` (bool)."""
        self.risky = True
        place = self.add("Cast", self.add("Not", holds), to=onnx.TensorProto.INT64)
        return self._checked(place, message)

    def _checked(self, place: str, message: str) -> str:
        """Element `place` of [0]: ONNX has no operation that raises, but every element has to be there."""
        return self.add("Gather", self.constant([0], "int64"), place, name=f"{message} [{self.name()}]")

    def children(self) -> list[Graph]:
        return [one for node in self.nodes for one in node.attributes.values() if isinstance(one, Graph)]

    def used(self) -> dict[int, Array]:
        """The weights in this graph and those within it."""
        found = dict(self.weights)
        for one in self.children():
            found.update(one.used())
        return found

    def settle(self) -> None:
        """Let each weight be in the innermost graph around all its uses."""
        children = [(one, one.used()) for one in self.children()]
        for child, used in children:
            for number, array in used.items():
                if number in self.weights or sum(number in other for _, other in children) > 1:
                    self.weights[number] = array
                    child.drop(number)
        for child, _ in children:
            child.settle()

    def drop(self, number: int) -> None:
        self.weights.pop(number, None)
        for one in self.children():
            one.drop(number)

    def proto(self, name: str) -> onnx.GraphProto:
        nodes = [node.proto if node.proto is not None else self._node(node) for node in self.nodes]
        arrays = [*self.constants.values(), *((f"w.{number}", array) for number, array in self.weights.items())]
        initializers = [numpy_helper.from_array(array, key) for key, array in arrays]
        inputs, outputs = ([information(*one, self.depth) for one in side] for side in (self.inputs, self.outputs))
        return helper.make_graph(nodes, name, inputs, outputs, initializers)

    def _node(self, node: Node) -> onnx.NodeProto:
        made = {
            key: one.proto(f"{node.outputs[0]}_{key}") if isinstance(one, Graph) else one
            for key, one in node.attributes.items()
        }
        return helper.make_node(node.op, node.inputs, node.outputs, name=node.name, **made)


def element_type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype)))


def dtype_of(value: Number | Tensor | Listed) -> str:
    return KINDS[value.kind] if isinstance(value, Number) else value.dtype


def information(name: str, kind: Any, depth: int) -> onnx.ValueInfoProto:
    """`kind`: a value of values.py, or dtype and sizes of an input. Within other graphs shapes are left open."""
    if isinstance(kind, Sequence):
        element = helper.make_tensor_type_proto(element_type(dtype_of(kind.element)), None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(element))
    if isinstance(kind, tuple):
        return helper.make_tensor_value_info(name, element_type(kind[0]), kind[1])
    ranks = {Number: 0, Tensor: getattr(kind, "rank", None), Listed: getattr(kind, "depth", None)}
    rank = ranks[type(kind)]
    shape = [None] * rank if rank is not None and (depth == 0 or rank == 0) else None
    return helper.make_tensor_value_info(name, element_type(dtype_of(kind)), shape)
