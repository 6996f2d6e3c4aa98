"""The source fragments of a rule, compiled for matching: nodes with canonical operations and
arguments by name."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from regraft.dsl.build import SLICE
from regraft.dsl.syntax import (
    Apply,
    Attr,
    Const,
    Fragment,
    Group,
    Item,
    Node,
    Operand,
    Position,
    Ref,
    RuleSyntax,
    Slice,
    Transformation,
    Var,
    Wildcard,
)
from regraft.structure.calls import CASTS, layer_inputs
from regraft.structure.optable import OPERATORS, bind, table


@dataclass(frozen=True, slots=True)
class PatternNode:
    """One node to find.

    op            canonical operation, or `call` for a callee that is not in the table name
    the spelling that a `call` must have, or the type that a layer must have (`torch.nn.Linear`)
    layer         variable bound to the module that is called args          operands by parameter
    name; a parameter that is not mentioned must have its default any_settings  the layer's own
    settings are not constrained (it is passed to the kernel whole) chosen        the layer may also
    be of a type that only the running program knows bypass        the parameter whose value the
    output is where an optional node is missing; "" for a required node skip          operations any
    number of which, also none, may stand between the one operand and the output
    """

    op: str
    args: tuple[tuple[str, Operand], ...]
    output: str
    name: str = ""
    layer: str = ""
    any_settings: bool = False
    chosen: bool = False
    bypass: str = ""
    skip: frozenset[str] = frozenset()

    @property
    def is_required(self) -> bool:
        """Return whether there is no match without the node."""
        return not self.bypass and not self.skip

    @property
    def is_glue(self) -> bool:
        """Return whether the node is a subscript, a tuple or arithmetic of numbers, not an
        operation on tensors."""
        return self.op.startswith("py.")


@dataclass(frozen=True, slots=True)
class LayerPattern:
    """The constructor that a layer variable must have: its type and its arguments by name.

    chosen  the rule names several types (`alt`), one of which the model may choose when it runs
    """

    type: str
    args: tuple[tuple[str, Operand], ...]
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Decorator:
    """The mark on a definition that as a whole computes the pattern: `@path(arguments)`.

    parameters  the definition's parameters by name, with their defaults; None stands for no default
    callers     the decorator of the classes that call the definition, which it takes as argument;
    "" for none
    """

    path: str
    arguments: tuple[Const, ...]
    parameters: tuple[tuple[str, Const | None], ...]
    callers: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One alternative of a rule: nodes, layers, and the kernel call that replaces them.

    producers     the nodes by their output variables outputs       the variables that the kernel
    gives, in the order of the text; matching starts at the first node passed_whole  layer variables
    that an op of Regraft gets as they are: it calls a layer that is not the plain one ops
    operations without which a body has no match decorator     the mark on the definition, in rules
    that mark instead of calling a kernel; then `target` is written
                  nowhere
    """

    nodes: tuple[PatternNode, ...]
    producers: Mapping[str, PatternNode]
    layers: Mapping[str, LayerPattern]
    target: Apply
    outputs: tuple[str, ...]
    passed_whole: frozenset[str] = field(default=frozenset())
    ops: frozenset[str] = field(default=frozenset())
    decorator: Decorator | None = None

    @property
    def anchor(self) -> PatternNode:
        """The node of the first output, at which matching starts."""
        return self.producers[self.outputs[0]]

    @property
    def kernel(self) -> str:
        """The qualified name of the kernel, or of the decorator."""
        return (
            self.decorator.path
            if self.decorator is not None
            else getattr(self.target.callee, "path", "")
        )


@dataclass(eq=False)
class PatternProblem(Exception):
    """The reason why a rule cannot be compiled, and the place in its text."""

    message: str
    at: Position | None


def compile_rule(rule: RuleSyntax) -> tuple[Pattern, ...]:
    """Return the alternatives of a rule, in the order of its text; raise PatternProblem."""
    layers = tuple(_layer_patterns(rule))
    return tuple(
        _compile_alternative(alternative, chosen)
        for transformation in rule.forward
        for chosen in _layer_choices(layers, bound_variables(transformation))
        for alternative in alternatives(transformation)
    )


def _layer_choices(
    layers: Sequence[tuple[str, tuple[LayerPattern, ...]]], used: Collection[str]
) -> Iterator[Mapping[str, LayerPattern]]:
    """Yield each choice of the layers' types; the type of a layer that is not in `used` is not
    varied."""
    choices = [types if name in used else types[:1] for name, types in layers]
    for types in itertools.product(*choices):
        yield dict(zip((name for name, _ in layers), types, strict=True))


def alternatives(transformation: Transformation) -> Iterator[Transformation]:
    """Yield a transformation with each choice of its `alt` nodes.

    The kernel call leaves out keyword arguments whose variables a choice does not bind.
    """
    choices = [_choices(node) for node in transformation.source]
    everywhere = bound_variables(transformation)
    for source in itertools.product(*choices):
        alternative = replace(transformation, source=source)
        missing = everywhere - bound_variables(alternative)
        yield (
            replace(
                alternative,
                target=tuple(_without_missing(node, missing) for node in alternative.target),
            )
            if missing
            else alternative
        )


def _choices(node: Node | Wildcard) -> list[Node | Wildcard]:
    """Return the node with each of its alternatives alone."""
    if isinstance(node, Wildcard):
        return [node]
    return [
        replace(node, apply=apply, alternatives=()) for apply in (node.apply, *node.alternatives)
    ]


def bound_variables(transformation: Transformation, certainly: bool = False) -> set[str]:
    """Return the variables that the source binds, with those of any alternative.

    certainly  leave out the inputs of nodes that may be missing
    """
    names: set[str] = set()
    for node in nodes_of(transformation.source):
        names.update(output_variables(node))
        for apply in (node.apply, *node.alternatives) if not (node.optional and certainly) else ():
            names.update(variables(apply))
    return names


def nodes_of(fragment: Fragment) -> Iterator[Node]:
    """Return the nodes of a fragment without its wildcards."""
    return (node for node in fragment if not isinstance(node, Wildcard))


def output_variables(node: Node) -> Iterator[str]:
    """Return the variables of a node's outputs."""
    return (name for output in node.outputs for name in variables(output))


def _without_missing(node: Node | Wildcard, missing: set[str]) -> Node | Wildcard:
    """Return a node of the target without the keyword arguments that mention a missing variable."""
    if isinstance(node, Wildcard):
        return node
    keywords = tuple(pair for pair in node.apply.keywords if missing.isdisjoint(variables(pair[1])))
    return replace(node, apply=replace(node.apply, keywords=keywords))


def _layer_patterns(rule: RuleSyntax) -> Iterator[tuple[str, tuple[LayerPattern, ...]]]:
    """Yield each layer variable with the types that its layer may have."""
    for transformation in rule.init:
        if transformation.target and not isinstance(transformation.target[0], Wildcard):
            _raise_problem(
                "rules that construct layers are not supported: use `=> keep`", transformation.at
            )
        for node in transformation.source:
            if isinstance(node, Wildcard):
                continue
            outputs = [output.name for output in node.outputs if isinstance(output, Var)]
            constructors = (node.apply, *node.alternatives)
            if len(outputs) != 1:
                _raise_problem(
                    "a layer needs a type and one variable: torch.nn.Linear(...) -> $linear",
                    node.at,
                )
            yield (
                outputs[0],
                tuple(
                    _layer_pattern(constructor, len(constructors) > 1, node.at)
                    for constructor in constructors
                ),
            )


def _layer_pattern(apply: Apply, chosen: bool, at: Position | None) -> LayerPattern:
    """Return the pattern of a layer's constructor; raise PatternProblem."""
    if not isinstance(apply.callee, Ref):
        _raise_problem("a layer needs a type and one variable: torch.nn.Linear(...) -> $linear", at)
    if apply.callee.path == OWN_CLASS and not apply.args and not apply.keywords and not chosen:
        return LayerPattern(OWN_CLASS, ())
    layer_type = table().layer(apply.callee.path)
    if layer_type is None:
        _raise_problem(f"{apply.callee.path} is not a layer of torch.nn", at)
    binding = bind((layer_type.init,), apply.args, dict(apply.keywords))
    if binding is None and (apply.args or apply.keywords):
        # a pattern may leave required arguments out: bind what it names
        arguments = {**dict(zip([p.name for p in layer_type.init], apply.args, strict=False))}
        arguments.update(apply.keywords)
        unknown_names = set(arguments) - {parameter.name for parameter in layer_type.init}
        if unknown_names or len(apply.args) > len(layer_type.init):
            _raise_problem(f"the arguments do not fit the constructor of {apply.callee.path}", at)
        binding = arguments, ()
    return LayerPattern(
        apply.callee.path, tuple(binding[0].items()) if binding is not None else (), chosen
    )


def _compile_alternative(
    transformation: Transformation, layers: Mapping[str, LayerPattern]
) -> Pattern:
    """Return the pattern of a transformation without `alt` nodes; raise PatternProblem."""
    compiler = _Compiler(layers)
    for node in transformation.source:
        if isinstance(node, Wildcard):
            _raise_problem(
                "a wildcard that stands for any node is not supported in `forward`",
                transformation.at,
            )
        compiler.add_node(node)
    nodes = tuple(compiler.nodes)
    producers = {node.output: node for node in nodes}
    if not nodes:
        _raise_problem("`forward` has no node to find", transformation.at)
    target, outputs = _kernel_target(transformation, nodes)
    _check_connected(nodes, producers, outputs, transformation.at)
    passed_whole = frozenset(
        operand.name
        for operand in _passed_operands(target)
        if isinstance(operand, Var) and operand.name in layers
    )
    for pattern_node in nodes:
        if (
            pattern_node.chosen or pattern_node.name == OWN_CLASS
        ) and pattern_node.layer not in passed_whole:
            _raise_problem(
                f"${pattern_node.layer} may be of several types: an op of Regraft has to be"
                " given it",
                transformation.at,
            )
    required_nodes = (node for node in nodes if node.is_required and node.layer not in passed_whole)
    ops = frozenset(node.op for node in required_nodes) - {"call", *RUN_TIME_TESTS}
    return Pattern(
        nodes, producers, layers, target, outputs, passed_whole, ops, _decorator(transformation)
    )


def _passed_operands(call: Apply) -> Iterator[Operand]:
    """Yield the arguments of a call of an op of Regraft, and those of the ops whose results it
    takes."""
    if isinstance(call.callee, Ref) and call.callee.path.startswith("regraft.ops."):
        for operand in (*call.args, *(operand for _, operand in call.keywords)):
            yield operand
            if isinstance(operand, Apply):
                yield from _passed_operands(operand)


def _decorator(transformation: Transformation) -> Decorator | None:
    """Return the decorator of a target, or None for a kernel call; raise PatternProblem.

    The target is `@mark("name")($x, flag=1)`, and `@mark(_)` for the classes that call the marked
    definition.
    """
    decorator_node, *caller_nodes = (
        node for node in transformation.target if isinstance(node, Node)
    )
    if not decorator_node.layer:
        return None
    call = decorator_node.apply
    decorator_call, at = call.callee, decorator_node.at
    if (
        not isinstance(decorator_call, Apply)
        or not isinstance(decorator_call.callee, Ref)
        or decorator_call.keywords
    ):
        _raise_problem(
            "a decorator is called, and then with the definition's parameters: @name(...)($x)", at
        )
    arguments = tuple(argument for argument in decorator_call.args if isinstance(argument, Const))
    parameters = tuple((variable.name, None) for variable in call.args if isinstance(variable, Var))
    defaults = tuple(
        (name, constant) for name, constant in call.keywords if isinstance(constant, Const)
    )
    if (
        len(arguments) < len(decorator_call.args)
        or len(parameters) < len(call.args)
        or len(defaults) < len(call.keywords)
    ):
        _raise_problem(
            "a decorator takes constants; the definition's parameters are variables, or have"
            " constants",
            at,
        )
    caller_paths = [
        caller_node.apply.callee.path
        for caller_node in caller_nodes
        if isinstance(caller_node.apply.callee, Ref)
    ]
    if len(caller_paths) < len(caller_nodes) or any(
        not caller_node.layer or caller_node.apply.args != (Wildcard(),)
        for caller_node in caller_nodes
    ):
        _raise_problem(
            "the decorator of classes that call the definition is given that: @name(_)", at
        )
    return Decorator(
        decorator_call.callee.path, arguments, parameters + defaults, "".join(caller_paths)
    )


def _kernel_target(
    transformation: Transformation, nodes: tuple[PatternNode, ...]
) -> tuple[Apply, tuple[str, ...]]:
    """Return the kernel call and its output variables: those after its arrow, else the last node's
    output."""
    target, *caller_nodes = transformation.target
    if isinstance(target, Wildcard) or len(caller_nodes) > int(target.layer):
        _raise_problem("`forward` needs exactly one kernel call as its target", transformation.at)
    outputs = tuple(output.name for output in target.outputs if isinstance(output, Var)) or (
        nodes[-1].output,
    )
    produced = [node.output for node in nodes if node.output in outputs]
    if (
        len(outputs) < len(target.outputs)
        or produced != list(outputs)
        or nodes[-1].output not in outputs
    ):
        message = f"the target must give ${nodes[-1].output}, the output of the last node"
        _raise_problem(
            f"{message}; several outputs come in the order of their nodes",
            target.at or transformation.at,
        )
    if any(node.skip and node.output in outputs for node in nodes):
        _raise_problem(
            "what `skip` passes over cannot be the output", target.at or transformation.at
        )
    return target.apply, outputs


def _check_connected(
    nodes: tuple[PatternNode, ...],
    producers: Mapping[str, PatternNode],
    outputs: tuple[str, ...],
    at: Position | None,
) -> None:
    """Raise PatternProblem where a node does not lead to an output."""
    reached: set[str] = set()
    pending = [producers[name] for name in outputs]
    while pending:
        node = pending.pop()
        reached.add(node.output)
        for _, operand in node.args:
            names = [
                name for name in variables(operand) if name in producers and name not in reached
            ]
            pending += [producers[name] for name in names]
    missing = [node.output for node in nodes if node.output not in reached]
    if missing:
        _raise_problem(f"${missing[0]} does not lead to ${nodes[-1].output}, the last output", at)


# Operations whose presence in a layer chosen at run time can be tested there.
RUN_TIME_TESTS = {"gelu": "regraft.ops.is_gelu"}


# A layer of any class that is not PyTorch's own.
OWN_CLASS = "torch.nn.Module"


class _Compiler:
    """A compiler that flattens nested operands into nodes with fresh variables."""

    def __init__(self, layers: Mapping[str, LayerPattern]) -> None:
        self.layers = layers
        self.nodes: list[PatternNode] = []
        self.fresh = 0

    def add_node(self, node: Node) -> None:
        """Append a node of the rule's source, after the nodes of its operands."""
        if len(node.outputs) != 1 or not isinstance(node.outputs[0], Var):
            _raise_problem("each node needs one output variable: ... -> $x", node.at)
        if node.skip:
            self.add_skip(node, node.outputs[0].name)
            return
        self.add_call(node.apply, node.outputs[0].name, node.at)
        if node.optional:
            self.nodes[-1] = replace(
                self.nodes[-1], bypass=self.bypass_parameter(self.nodes[-1], node.at)
            )

    def add_skip(self, node: Node, output: str) -> None:
        """Append the node of `skip`: operations that are passed over."""
        operand = self.flatten(node.apply.args[0], node.at)
        if not isinstance(operand, Var):
            _raise_problem(
                "`skip` passes over operations of a value: skip view|reshape($x) -> $y", node.at
            )
        ops = {name: table().method(name) for name in node.skip}
        for name, op in ops.items():
            if op is None:
                _raise_problem(f"{name} is not a tensor method", node.at)
        if any(pattern_node.output == output for pattern_node in self.nodes):
            _raise_problem(f"${output} is the output of two nodes", node.at)
        self.nodes.append(
            PatternNode(
                "skip", (("input", operand),), output, skip=frozenset(filter(None, ops.values()))
            )
        )

    def bypass_parameter(self, node: PatternNode, at: Position | None) -> str:
        """Return the first parameter whose operand another node makes; raise PatternProblem if
        there is none."""
        outputs = {pattern_node.output for pattern_node in self.nodes}
        for name, operand in node.args:
            if isinstance(operand, Var) and operand.name in outputs:
                return name
        _raise_problem(
            "an optional node needs an operand that another node makes: it stands for the output"
            " without it",
            at,
        )

    def add_call(self, apply: Apply, output: str, at: Position | None) -> None:
        """Append the node of a call or operator, after the nodes of its operands."""
        if any(node.output == output for node in self.nodes):
            _raise_problem(f"${output} is the output of two nodes", at)
        args = tuple(self.flatten(argument, at) for argument in apply.args)
        keywords = {name: self.flatten(argument, at) for name, argument in apply.keywords}
        pattern_node = self.pattern_node(apply.callee, args, keywords, output, at)
        self.nodes.append(pattern_node)

    def flatten(self, operand: Operand | Slice | None, at: Position | None) -> Operand:
        """Return an operand without computations inside: each of these becomes a node of
        its own."""
        if isinstance(operand, Attr):
            return Attr(self.flatten(operand.base, at), operand.name)
        if operand is None:
            return Const(None)
        if not isinstance(operand, Apply | Item | Group | Slice):
            return operand
        if isinstance(operand, Apply) and operand.callee == SLICE:
            start, stop, *_ = operand.args
            operand = Slice(start, stop)
        self.fresh += 1
        name = f"{self.fresh}'"  # no variable of a rule's text can be called so
        if isinstance(operand, Apply):
            self.add_call(operand, name, at)
        else:
            self.nodes.append(self.glue_node(operand, name, at))
        return Var(self.nodes[-1].output)

    def glue_node(
        self, operand: Item | Group | Slice, output: str, at: Position | None
    ) -> PatternNode:
        """Return the node of a subscript, a tuple or a slice, which the structure has as nodes,
        too."""
        if isinstance(operand, Item):
            args = (
                ("base", self.flatten(operand.base, at)),
                ("index", self.flatten(operand.index, at)),
            )
            return PatternNode("py.item", args, output)
        if isinstance(operand, Slice):
            ends = (("start", operand.start), ("stop", operand.stop), ("step", None))
            return PatternNode(
                "py.slice", tuple((name, self.flatten(end, at)) for name, end in ends), output
            )
        elements = tuple(
            (str(number), self.flatten(element, at)) for number, element in enumerate(operand.items)
        )
        return PatternNode("py.tuple", elements, output)

    def pattern_node(
        self,
        callee: Operand | str,
        args: tuple[Operand, ...],
        keywords: dict[str, Operand],
        output: str,
        at: Position | None,
    ) -> PatternNode:
        """Return the node that a call of `callee` means; raise PatternProblem."""
        if callee == "//":
            return PatternNode("py.binary", tuple(zip("01", args, strict=True)), output, "//")
        if isinstance(callee, str):
            names = ("input", "exponent" if callee == "**" else "other")
            if callee not in OPERATORS:
                _raise_problem(f"no tensor operation is written {callee}", at)
            return PatternNode(OPERATORS[callee], tuple(zip(names, args, strict=False)), output)
        if isinstance(callee, Var):
            if callee.name not in self.layers:
                _raise_problem(
                    f"${callee.name} is called but `init` does not say which layer it is", at
                )
            layer = self.layers[callee.name]
            layer_type = table().layer(layer.type)
            op = layer_type.op if layer_type and layer_type.op else "call"
            inputs = layer_inputs(layer_type) if layer_type and layer_type.op else ("input",)
            # nothing is known of its parameters
            inputs = ("0",) if layer.type == OWN_CLASS else inputs
            if len(args) != len(inputs) or keywords:
                _raise_problem(f"the call of a {layer.type} layer takes {', '.join(inputs)}", at)
            operands = tuple(zip(inputs, args, strict=True))
            return PatternNode(
                op,
                operands,
                output,
                layer.type,
                callee.name,
                any_settings=True,
                chosen=layer.chosen,
            )
        if isinstance(callee, Attr):
            op_name = table().method(callee.name)
            if op_name is None:
                _raise_problem(f"{callee.name} is not a tensor method", at)
            return self.operation_node(
                op_name, (self.flatten(callee.base, at), *args), keywords, output, at
            )
        if isinstance(callee, Ref):
            return self.call_node(callee.path, args, keywords, output, at)
        _raise_problem("cannot call this operand", at)

    def call_node(
        self,
        path: str,
        args: tuple[Operand, ...],
        keywords: dict[str, Operand],
        output: str,
        at: Position | None,
    ) -> PatternNode:
        """Return the node of a call by a qualified name: a layer's type, an operation, or another
        function."""
        layer_type = table().layer(path)
        if layer_type is not None:
            if len(args) != 1 or keywords or layer_type.op is None:
                _raise_problem(f"the call of a {path} layer takes one input", at)
            return PatternNode(
                layer_type.op, (("input", args[0]),), output, path, any_settings=True
            )
        op = table().canonical_op(path)
        if op is not None:
            return self.operation_node(op, args, keywords, output, at)
        operands = tuple((str(index), operand) for index, operand in enumerate(args)) + tuple(
            keywords.items()
        )
        return PatternNode("call", operands, output, path)

    def operation_node(
        self,
        op: str,
        args: tuple[Operand, ...],
        keywords: dict[str, Operand],
        output: str,
        at: Position | None,
    ) -> PatternNode:
        """Return the node of a canonical operation, with its arguments by name; raise
        PatternProblem."""
        if op in CASTS and len(args) == 1:
            op, args = "to", (*args, Ref(CASTS[op]))
        if op == "to" and len(args) == 2:
            return PatternNode("to", (("input", args[0]), ("dtype", args[1])), output)
        if op == "square":
            op, args = "pow", (*args, Const(2))
        binding = bind(table().operation(op).signatures, args, keywords)
        if binding is None:
            _raise_problem(f"the arguments do not fit {op}", at)
        return PatternNode(op, tuple(binding[0].items()), output)


def _raise_problem(message: str, at: Position | None) -> NoReturn:
    raise PatternProblem(message, at)


def variables(operand: Operand | Slice | None) -> tuple[str, ...]:
    """Return the names of the variables in an operand, in order."""
    if isinstance(operand, Var):
        return (operand.name,)
    parts: tuple[Operand | Slice | None, ...] = ()
    if isinstance(operand, Attr):
        parts = (operand.base,)
    elif isinstance(operand, Item):
        parts = (operand.base, operand.index)
    elif isinstance(operand, Slice):
        parts = (operand.start, operand.stop)
    elif isinstance(operand, Group):
        parts = operand.items
    elif isinstance(operand, Apply):
        callee = () if isinstance(operand.callee, str) else (operand.callee,)
        parts = (*callee, *operand.args, *(value for _, value in operand.keywords))
    return tuple(name for part in parts for name in variables(part))
