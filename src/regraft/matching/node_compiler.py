"""The nodes of a rule's source text as PatternNodes; nested operands become nodes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from regraft.dsl.syntax import (
    SLICE,
    SUBSCRIPT,
    Apply,
    Attr,
    Const,
    Group,
    Item,
    Node,
    Operand,
    Position,
    Ref,
    Slice,
    Var,
)
from regraft.matching.pattern import LayerPattern, PatternNode, raise_problem
from regraft.structure.called_layers import bind_inputs, layer_inputs
from regraft.structure.operations import CASTS
from regraft.structure.optable import OPERATORS, POWERS, ROOTS, bind, table


class NodeCompiler:
    """A compiler of the nodes of a rule's source, which collects them in `nodes`, operands before
    what uses them; a nested operand gets a new variable, such as `1'`."""

    def __init__(self, layers: Mapping[str, LayerPattern]) -> None:
        self.layers = layers
        self.nodes: list[PatternNode] = []
        self.fresh = 0

    def add_node(self, node: Node) -> None:
        """Append the pattern of a node of the rule's source to `nodes`, after those of its
        operands; raise PatternProblem where it has not one output variable, or cannot be
        matched."""
        if len(node.outputs) != 1 or not isinstance(node.outputs[0], Var):
            raise_problem("each node needs one output variable: ... -> $x", node.at)
        if node.skip:
            self.add_skip(node, node.outputs[0].name)
            return
        self.add_call(node.apply, node.outputs[0].name, node.at)
        if node.optional:
            self.nodes[-1] = replace(
                self.nodes[-1], bypass=self.bypass_parameter(self.nodes[-1], node.at)
            )

    def add_skip(self, node: Node, output: str) -> None:
        """Append the node of `skip`, which passes over any number of the named operations; raise
        PatternProblem where its operand is no variable, a name no tensor method, or its output that
        of another node."""
        operand = self.flatten(node.apply.args[0], node.at)
        if not isinstance(operand, Var):
            raise_problem(
                "`skip` passes over operations of a value: skip view|reshape($x) -> $y", node.at
            )
        ops = frozenset(_method_op(name, node.at) for name in node.skip)
        if any(pattern_node.output == output for pattern_node in self.nodes):
            raise_problem(f"${output} is the output of two nodes", node.at)
        self.nodes.append(PatternNode("skip", (("input", operand),), output, skip=ops))

    def bypass_parameter(self, node: PatternNode, at: Position | None) -> str:
        """Return the first parameter of an optional node whose operand another node computes: where
        the optional node is missing, this operand is the output. Raise PatternProblem if there is
        none."""
        outputs = {pattern_node.output for pattern_node in self.nodes}
        for name, operand in node.args:
            if isinstance(operand, Var) and operand.name in outputs:
                return name
        raise_problem(
            "an optional node needs an operand that another node makes: it stands for the output"
            " without it",
            at,
        )

    def add_call(self, apply: Apply, output: str, at: Position | None) -> None:
        """Append the node of a call or operator to `nodes`, after those of its operands; raise
        PatternProblem where another node has this output, or nothing can be called so."""
        if any(node.output == output for node in self.nodes):
            raise_problem(f"${output} is the output of two nodes", at)
        args = tuple(self.flatten(argument, at) for argument in apply.args)
        keywords = {name: self.flatten(argument, at) for name, argument in apply.keywords}
        pattern_node = self.pattern_node(apply.callee, args, keywords, output, at)
        self.nodes.append(pattern_node)

    def flatten(self, operand: Operand | Slice | None, at: Position | None) -> Operand:
        """Return an operand that contains no computation: a call, subscript, tuple or slice is
        appended to `nodes`, and a new variable for its result returned. None becomes the constant
        None."""
        if isinstance(operand, Attr):
            return Attr(self.flatten(operand.base, at), operand.name)
        if operand is None:
            return Const(None)
        if not isinstance(operand, Apply | Item | Group | Slice):
            return operand
        if isinstance(operand, Slice):
            operand = Apply(SLICE, (operand.start or Const(None), operand.stop or Const(None)))
        self.fresh += 1
        name = f"{self.fresh}'"  # no variable of a rule's text can be called so
        if isinstance(operand, Apply) and operand.callee == SLICE:
            self.nodes.append(self.slice_node(operand.args, name, at))
        elif isinstance(operand, Apply):
            self.add_call(operand, name, at)
        else:
            self.nodes.append(self.glue_node(operand, name, at))
        return Var(self.nodes[-1].output)

    def glue_node(self, operand: Item | Group, output: str, at: Position | None) -> PatternNode:
        """Return the node of a subscript (`py.item`) or a tuple (`py.tuple`); nodes of its operands
        are appended to `nodes`."""
        if isinstance(operand, Item):
            args = (
                ("base", self.flatten(operand.base, at)),
                ("index", self.flatten(operand.index, at)),
            )
            return PatternNode("py.item", args, output)
        elements = tuple(
            (str(number), self.flatten(element, at)) for number, element in enumerate(operand.items)
        )
        return PatternNode("py.tuple", elements, output)

    def slice_node(
        self, parts: tuple[Operand, ...], output: str, at: Position | None
    ) -> PatternNode:
        """Return the node of a slice with these parts, which are start, stop and perhaps a step;
        nodes of the parts are appended to `nodes`."""
        operands = (*(self.flatten(part, at) for part in parts), Const(None))
        return PatternNode(
            "py.slice", tuple(zip(("start", "stop", "step"), operands, strict=False)), output
        )

    def pattern_node(
        self,
        callee: Operand | str,
        args: tuple[Operand, ...],
        keywords: dict[str, Operand],
        output: str,
        at: Position | None,
    ) -> PatternNode:
        """Return the node of a call of `callee`: an operator, a layer variable, a tensor method, or
        a function or layer type by its qualified name. Raise PatternProblem for another callee, and
        for arguments that do not fit."""
        if isinstance(callee, str):
            return _operator_node(callee, args, output, at)
        if isinstance(callee, Var):
            return self.layer_node(callee.name, args, keywords, output, at)
        if isinstance(callee, Attr) and callee.name == "size" and len(args) == 1:
            shape = Attr(self.flatten(callee.base, at), "shape")
            return PatternNode("py.item", (("base", shape), ("index", args[0])), output)
        if isinstance(callee, Attr):
            op = _method_op(callee.name, at)
            operands = (self.flatten(callee.base, at), *args)
            return _operation_node(op, operands, keywords, output, at)
        if isinstance(callee, Ref):
            return _call_node(callee.path, args, keywords, output, at)
        raise_problem("cannot call this operand", at)

    def layer_node(
        self,
        variable: str,
        args: tuple[Operand, ...],
        keywords: dict[str, Operand],
        output: str,
        at: Position | None,
    ) -> PatternNode:
        """Return the node of a call of a layer variable, with the layer's operation; raise
        PatternProblem for a variable that `init` lacks, and for arguments that do not fit."""
        if variable not in self.layers:
            raise_problem(f"${variable} is called but `init` does not say which layer it is", at)
        layer = self.layers[variable]
        layer_type = table().layer(layer.type)
        op, inputs = _layer_operation(layer.type)
        operands: Mapping[str, Operand] | None
        if layer_type is not None and layer_type.several:
            operands = bind_inputs(layer_type, args, keywords)
        else:
            fits = len(args) == len(inputs) and not keywords
            operands = dict(zip(inputs, args, strict=True)) if fits else None
        if operands is None:
            raise_problem(f"the call of a {layer.type} layer takes {', '.join(inputs)}", at)
        return PatternNode(
            op,
            tuple(operands.items()),
            output,
            layer.type,
            variable,
            any_settings=layer_type is None or not layer_type.several,
            chosen=layer.chosen,
        )


def _operator_node(
    symbol: str, args: tuple[Operand, ...], output: str, at: Position | None
) -> PatternNode:
    """Return the node of an operator; raise PatternProblem where no operation is written so."""
    if symbol == SUBSCRIPT:
        return PatternNode("py.item", tuple(zip(("base", "index"), args, strict=True)), output)
    if symbol == "//":
        return PatternNode("py.binary", tuple(zip("01", args, strict=True)), output, "//")
    if symbol not in OPERATORS:
        raise_problem(f"no tensor operation is written {symbol}", at)
    exponent = args[1] if symbol == "**" else None
    if isinstance(exponent, Const) and exponent.value in ROOTS:
        return PatternNode(ROOTS[exponent.value], (("input", args[0]),), output)
    names = ("input", "exponent" if symbol == "**" else "other")
    return PatternNode(OPERATORS[symbol], tuple(zip(names, args, strict=False)), output)


def _layer_operation(layer_type: str) -> tuple[str, tuple[str, ...]]:
    """Return the canonical operation that a call of a layer type computes, with the parameters that
    the call takes; ("call", ("0",)) for a type outside of the table."""
    torch_type = table().layer(layer_type)
    if torch_type is None or not torch_type.op:
        return "call", ("0",)  # the structure knows nothing of its parameters, either
    return torch_type.op, layer_inputs(torch_type)


def _method_op(name: str, at: Position | None) -> str:
    """Return the canonical operation of a tensor method; raise PatternProblem where there is
    none."""
    op = table().method(name)
    if op is None:
        raise_problem(f"{name} is not a tensor method", at)
    return op


def _call_node(
    path: str,
    args: tuple[Operand, ...],
    keywords: dict[str, Operand],
    output: str,
    at: Position | None,
) -> PatternNode:
    """Return the node of a call by a qualified name: a layer type, whose constructor's arguments
    are left open, a canonical operation, or else a `call` of this name. Raise PatternProblem for
    arguments that do not fit."""
    layer_type = table().layer(path)
    if layer_type is not None:
        if len(args) != 1 or keywords or layer_type.op is None or layer_type.several:
            raise_problem(f"the call of a {path} layer takes one input", at)
        return PatternNode(layer_type.op, (("input", args[0]),), output, path, any_settings=True)
    op = table().canonical_op(path)
    if op is not None:
        return _operation_node(op, args, keywords, output, at)
    numbered = ((str(index), operand) for index, operand in enumerate(args))
    return PatternNode("call", (*numbered, *keywords.items()), output, path)


def _operation_node(
    op: str,
    args: tuple[Operand, ...],
    keywords: dict[str, Operand],
    output: str,
    at: Position | None,
) -> PatternNode:
    """Return the node of a canonical operation, with its arguments by name; casts such as `float()`
    become `to`, and `square` becomes `pow`. Raise PatternProblem for arguments that do not fit."""
    if op in CASTS and len(args) == 1:
        op, args = "to", (*args, Ref(CASTS[op]))
    if op == "to" and len(args) == 2:
        return PatternNode("to", (("input", args[0]), ("dtype", args[1])), output)
    if op in POWERS:
        op, args = "pow", (*args, Const(POWERS[op]))
    binding = bind(table().operation(op).signatures, args, keywords)
    if binding is None:
        raise_problem(f"the arguments do not fit {op}", at)
    return PatternNode(op, tuple(binding[0].items()), output)
