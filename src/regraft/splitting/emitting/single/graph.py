"""ONNX graphs under construction: nodes, constants and weights.

Each weight goes to the innermost graph around all its uses.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy
import onnx
from onnx import helper, numpy_helper

from regraft.splitting.emitting.single.graph_values import (
    KINDS,
    NestedList,
    Number,
    Sequence,
    Tensor,
)

Array = Any


@dataclass
class Node:
    """An operation of a graph; attributes that are graphs are written as ONNX only when the whole
    file is."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    name: str = ""
    proto: onnx.NodeProto | None = None  # the finished proto of a node of a region


@dataclass
class Graph:
    """A graph of ONNX under construction, or the body of an `If` or `Loop` within another graph.

    counter       the numbers of the names of values, shared by all graphs of a file
    inputs        names with types: values of graph_values.py, or dtype and sizes
    outputs       names with types
    weights       arrays by their number in the manifest
    constants     names and arrays by dtype, shape and bytes
    node_outputs  the names that the graph's own nodes give
    condition     the name of a bool that is known at run time only, which `add_failure` needs
    depth         the number of graphs around this one
    raise_text    the place and the statement of what the program raises in this graph, or ""
    may_fail      whether an operation in it may fail at run time
    """

    counter: itertools.count[int]
    nodes: list[Node] = field(default_factory=list)
    inputs: list[tuple[str, Any]] = field(default_factory=list)
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    weights: dict[int, Array] = field(default_factory=dict)
    constants: dict[tuple[str, tuple[int, ...], bytes], tuple[str, Array]] = field(
        default_factory=dict
    )
    node_outputs: set[str] = field(default_factory=set)
    condition: str = ""
    depth: int = 0
    raise_text: str = ""
    may_fail: bool = False

    def new_child(self) -> Graph:
        """Return a new empty graph to be the body of an `If` or `Loop` in this one; this graph does
        not change."""
        return Graph(self.counter, depth=self.depth + 1, condition=self.condition)

    def new_name(self) -> str:
        """Return a name that no other value has."""
        return f"v.{next(self.counter)}"  # no parameter of Python has this name

    def add(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        return self.add_node(op, list(inputs), 1, name=name, **attributes)[0]

    def add_alias(self, name: str, alias: str) -> None:
        """Add a node that gives the value `name` the second name `alias`."""
        self.nodes.append(Node("Identity", [name], [alias], {}))

    def add_node(
        self, op: str, inputs: list[str], count: int, name: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with `count` outputs; return their new names. name: the node's own name, which
        ONNX Runtime shows where the node fails."""
        outputs = [self.new_name() for _ in range(count)]
        self.nodes.append(Node(op, inputs, list(outputs), attributes, name))
        self.node_outputs.update(outputs)
        return outputs

    def take_over(self, child: Graph) -> None:
        """Add the nodes, constants and weights of a graph that `new_child` made, and that is the
        body of nothing; its names stay."""
        for key, (name, array) in child.constants.items():
            if key in self.constants:
                self.add_alias(self.constants[key][0], name)
            else:
                self.constants[key] = (name, array)
        for inner in child.children():
            inner.move_up()
        self.nodes.extend(child.nodes)
        self.node_outputs.update(child.node_outputs)
        self.weights.update(child.weights)

    def move_up(self) -> None:
        """Note that there is one graph less around this graph and those within it."""
        self.depth -= 1
        for child in self.children():
            child.move_up()

    def constant(self, value: Any, dtype: str) -> str:
        """Return the name of a constant with this value; it is added to this graph unless an equal
        constant of the same dtype was."""
        array = numpy.asarray(value, dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = (self.new_name(), array)
        return self.constants[key][0]

    def constant_of(self, tensor: onnx.TensorProto) -> str:
        """Return the name of a constant with the values of a tensor, which is added unless there is
        an equal one."""
        array = numpy_helper.to_array(tensor)
        return self.constant(array, array.dtype.name)

    def number(self, value: Any, kind: str) -> str:
        """Return the name of a constant for a Python number, which is added unless there is an
        equal one; kind: "int", "float" or "bool"."""
        return self.constant(value, KINDS[kind])

    def add_output(self, name: str, kind: Any) -> None:
        """Make the value `name` the next output, of the type `kind`.

        An output needs a node of this graph and a name of its own: values from outside and repeated
        outputs are copied first.
        """
        output_names = {output_name for output_name, _ in self.outputs}
        if name not in self.node_outputs or name in output_names:
            name = self.add("Identity", name)
        self.outputs.append((name, kind))

    def add_failure(self) -> str:
        """Add nodes that fail with `raise_text` whenever this graph runs, and return the name of
        their output, an int64 that would be 0; `may_fail` becomes True."""
        self.may_fail = True
        index = self.add(
            "Add",
            self.add("Cast", self.condition, to=onnx.TensorProto.INT64),
            self.number(1, "int"),
        )
        return self._zero_or_failure(index, self.raise_text)

    def add_check(self, condition: str, message: str) -> str:
        """Add nodes that give 0 (int64) where the bool named `condition` holds and fail with
        `message` where it does not; return the output's name. `may_fail` becomes True.

        What has to fail with them adds the output to its value.
        """
        self.may_fail = True
        index = self.add("Cast", self.add("Not", condition), to=onnx.TensorProto.INT64)
        return self._zero_or_failure(index, message)

    def _zero_or_failure(self, index: str, message: str) -> str:
        """Add a node that gives 0 where the int named `index` is 0 and fails with `message`
        otherwise; return the output's name.

        ONNX has no operation that raises, so the node takes element `index` of the constant [0].
        """
        return self.add(
            "Gather", self.constant([0], "int64"), index, name=f"{message} [{self.new_name()}]"
        )

    def children(self) -> list[Graph]:
        """Return the graphs directly within this one, without those of regions' nodes."""
        return [
            attribute
            for node in self.nodes
            for attribute in node.attributes.values()
            if isinstance(attribute, Graph)
        ]

    def all_weights(self) -> dict[int, Array]:
        """Return the weights of this graph and of those within it, by number."""
        weights = dict(self.weights)
        for child in self.children():
            weights.update(child.all_weights())
        return weights

    def place_weights(self) -> None:
        """Move each weight to the innermost graph that contains all its uses, in place: from two
        graphs side by side to the graph around both."""
        children = [(child, child.all_weights()) for child in self.children()]
        for child, child_weights in children:
            for number, array in child_weights.items():
                if (
                    number in self.weights
                    or sum(number in sibling_weights for _, sibling_weights in children) > 1
                ):
                    self.weights[number] = array
                    child.drop_weight(number)
        for child, _ in children:
            child.place_weights()

    def drop_weight(self, number: int) -> None:
        """Remove a weight from this graph and those within it."""
        self.weights.pop(number, None)
        for child in self.children():
            child.drop_weight(number)

    def to_proto(self, name: str) -> onnx.GraphProto:
        """Return the graph as ONNX, under a name; its constants and weights are initializers."""
        nodes = [
            node.proto if node.proto is not None else self._node_to_proto(node)
            for node in self.nodes
        ]
        arrays = [
            *self.constants.values(),
            *((f"w.{number}", array) for number, array in self.weights.items()),
        ]
        initializers = [numpy_helper.from_array(array, array_name) for array_name, array in arrays]
        inputs, outputs = (
            [value_info(*entry, self.depth) for entry in side]
            for side in (self.inputs, self.outputs)
        )
        return helper.make_graph(nodes, name, inputs, outputs, initializers)

    def _node_to_proto(self, node: Node) -> onnx.NodeProto:
        """Return a node without a finished `proto` as ONNX, with the graphs in its attributes."""
        attributes = {
            key: attribute.to_proto(f"{node.outputs[0]}_{key}")
            if isinstance(attribute, Graph)
            else attribute
            for key, attribute in node.attributes.items()
        }
        return helper.make_node(node.op, node.inputs, node.outputs, name=node.name, **attributes)


def element_type(dtype: str) -> int:
    """Return ONNX's number of a NumPy dtype."""
    return int(helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype)))


def dtype_of(value: Number | Tensor | NestedList) -> str:
    """Return the dtype of a number, a tensor or the numbers of nested lists."""
    return KINDS[value.kind] if isinstance(value, Number) else value.dtype


def value_info(name: str, kind: Any, depth: int) -> onnx.ValueInfoProto:
    """Return the name and type of an input or output as ONNX.

    kind: a value of graph_values.py, or dtype and sizes of an input. depth: the number of graphs
    around; for values of graph_values.py the sizes are open, and within other graphs also the
    number of dimensions, unless it is 0.
    """
    if isinstance(kind, Sequence):
        element = helper.make_tensor_type_proto(element_type(dtype_of(kind.element)), None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(element))
    if isinstance(kind, tuple):
        return helper.make_tensor_value_info(name, element_type(kind[0]), kind[1])
    ranks = {
        Number: 0,
        Tensor: getattr(kind, "rank", None),
        NestedList: getattr(kind, "depth", None),
    }
    rank = ranks[type(kind)]
    shape = [None] * rank if rank is not None and (depth == 0 or rank == 0) else None
    return helper.make_tensor_value_info(name, element_type(dtype_of(kind)), shape)
