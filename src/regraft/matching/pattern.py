"""A rule's source fragment, compiled for matching: nodes with canonical operations and arguments by name."""

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

    op      canonical operation, or `call` for a callee that is not in the table
    name    what a `call` must be spelled as, or the type a layer must have (`torch.nn.Linear`)
    layer   variable bound to the module that is called
    args    operands by parameter name; what is not mentioned must have its default
    open    the layer's own settings are not constrained (it is passed to the kernel whole)
    chosen  the layer may also be of a type that only the running program knows
    through the parameter whose value the output is where an optional node is missing; "" for a node that must be there
    skip    operations any number of which, also none, may stand between the one operand and the output
    """

    op: str
    args: tuple[tuple[str, Operand], ...]
    output: str
    name: str = ""
    layer: str = ""
    open: bool = False
    chosen: bool = False
    through: str = ""
    skip: frozenset[str] = frozenset()

    @property
    def required(self) -> bool:
        """Whether there is no match without it."""
        return not self.through and not self.skip

    @property
    def is_glue(self) -> bool:
        """Whether it is a subscript, a tuple or arithmetic of numbers: no operation on tensors."""
        return self.op.startswith("py.")


@dataclass(frozen=True, slots=True)
class LayerPattern:
    """What the constructor of a layer variable must look like: its type and its arguments by name.

    chosen  the rule names several types (`alt`): the model may choose one when it runs
    """

    type: str
    args: tuple[tuple[str, Operand], ...]
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Decorator:
    """What marks a definition that as a whole computes the pattern: `@path(arguments)`.

    parameters  the definition's parameters by name, with their defaults (None: there is none)
    callers     the decorator of the classes that call the definition, which it is given; "" for none
    """

    path: str
    arguments: tuple[Const, ...]
    parameters: tuple[tuple[str, Const | None], ...]
    callers: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One alternative of a rule: nodes, layers, and the kernel call that replaces them.

    outputs    the variables that the kernel gives, in the order of the text; matching starts at the first one's node
    whole      layer variables that an op of Regraft gets as they are: it calls what is not the plain layer
    ops        operations without which a body has no match
    decorator  what marks the definition instead of a kernel call; its `target` is not written anywhere
    """

    nodes: tuple[PatternNode, ...]
    producers: Mapping[str, PatternNode]
    layers: Mapping[str, LayerPattern]
    target: Apply
    outputs: tuple[str, ...]
    whole: frozenset[str] = field(default=frozenset())
    ops: frozenset[str] = field(default=frozenset())
    decorator: Decorator | None = None

    @property
    def anchor(self) -> PatternNode:
        return self.producers[self.outputs[0]]

    @property
    def kernel(self) -> str:
        """The qualified name of the kernel, or of the decorator."""
        return self.decorator.path if self.decorator is not None else getattr(self.target.callee, "path", "")


@dataclass(eq=False)
class PatternProblem(Exception):
    """Why a rule cannot be compiled, and where in its text."""

    message: str
    at: Position | None


def compile_rule(rule: RuleSyntax) -> tuple[Pattern, ...]:
    """The alternatives of a rule, in the order of its text; raises PatternProblem."""
    layers = tuple(_layer_patterns(rule))
    return tuple(
        _compile(one, chosen)
        for transformation in rule.forward
        for chosen in _layer_choices(layers, bound(transformation))
        for one in alternatives(transformation)
    )


def _layer_choices(
    layers: Sequence[tuple[str, tuple[LayerPattern, ...]]], used: Collection[str]
) -> Iterator[Mapping[str, LayerPattern]]:
    """Each choice of the layers' types; what a transformation does not use is not varied."""
    choices = [types if name in used else types[:1] for name, types in layers]
    for one in itertools.product(*choices):
        yield dict(zip((name for name, _ in layers), one, strict=True))


def alternatives(transformation: Transformation) -> Iterator[Transformation]:
    """A transformation with each choice of its `alt` nodes; the kernel call leaves out what a choice does not bind."""
    choices = [_choices(node) for node in transformation.source]
    everywhere = bound(transformation)
    for source in itertools.product(*choices):
        one = replace(transformation, source=source)
        missing = everywhere - bound(one)
        yield replace(one, target=tuple(_without(node, missing) for node in one.target)) if missing else one


def _choices(node: Node | Wildcard) -> list[Node | Wildcard]:
    if isinstance(node, Wildcard):
        return [node]
    return [replace(node, apply=apply, alternatives=()) for apply in (node.apply, *node.alternatives)]


def bound(transformation: Transformation, certainly: bool = False) -> set[str]:
    """Variables that the source binds, those of any alternative included, or without those that may be missing."""
    found: set[str] = set()
    for node in nodes_of(transformation.source):
        found.update(made(node))
        for apply in (node.apply, *node.alternatives) if not (node.optional and certainly) else ():
            found.update(variables(apply))
    return found


def nodes_of(fragment: Fragment) -> Iterator[Node]:
    return (node for node in fragment if not isinstance(node, Wildcard))


def made(node: Node) -> Iterator[str]:
    """Variables of a node's outputs."""
    return (name for output in node.outputs for name in variables(output))


def _without(node: Node | Wildcard, missing: set[str]) -> Node | Wildcard:
    if isinstance(node, Wildcard):
        return node
    keywords = tuple(pair for pair in node.apply.keywords if missing.isdisjoint(variables(pair[1])))
    return replace(node, apply=replace(node.apply, keywords=keywords))


def _layer_patterns(rule: RuleSyntax) -> Iterator[tuple[str, tuple[LayerPattern, ...]]]:
    """Each layer variable with the types that its layer may have."""
    for transformation in rule.init:
        if transformation.target and not isinstance(transformation.target[0], Wildcard):
            _fail("rules that construct layers are not supported: use `=> keep`", transformation.at)
        for node in transformation.source:
            if isinstance(node, Wildcard):
                continue
            outputs = [one.name for one in node.outputs if isinstance(one, Var)]
            types = (node.apply, *node.alternatives)
            if len(outputs) != 1:
                _fail("a layer needs a type and one variable: torch.nn.Linear(...) -> $linear", node.at)
            yield outputs[0], tuple(_layer_pattern(one, len(types) > 1, node.at) for one in types)


def _layer_pattern(apply: Apply, chosen: bool, at: Position | None) -> LayerPattern:
    if not isinstance(apply.callee, Ref):
        _fail("a layer needs a type and one variable: torch.nn.Linear(...) -> $linear", at)
    if apply.callee.path == OWN_CLASS and not apply.args and not apply.keywords and not chosen:
        return LayerPattern(OWN_CLASS, ())
    layer_type = table().layer(apply.callee.path)
    if layer_type is None:
        _fail(f"{apply.callee.path} is not a layer of torch.nn", at)
    fitted = bind((layer_type.init,), apply.args, dict(apply.keywords))
    if fitted is None and (apply.args or apply.keywords):
        # a pattern may leave required arguments out: bind what it names
        named = {**dict(zip([p.name for p in layer_type.init], apply.args, strict=False))}
        named.update(apply.keywords)
        unknown = set(named) - {parameter.name for parameter in layer_type.init}
        if unknown or len(apply.args) > len(layer_type.init):
            _fail(f"the arguments do not fit the constructor of {apply.callee.path}", at)
        fitted = named, ()
    return LayerPattern(apply.callee.path, tuple(fitted[0].items()) if fitted is not None else (), chosen)


def _compile(transformation: Transformation, layers: Mapping[str, LayerPattern]) -> Pattern:
    compiler = _Compiler(layers)
    for node in transformation.source:
        if isinstance(node, Wildcard):
            _fail("a wildcard that stands for any node is not supported in `forward`", transformation.at)
        compiler.node(node)
    nodes = tuple(compiler.nodes)
    producers = {node.output: node for node in nodes}
    if not nodes:
        _fail("`forward` has no node to find", transformation.at)
    target, outputs = _target(transformation, nodes)
    _check_connected(nodes, producers, outputs, transformation.at)
    whole = frozenset(one.name for one in _given(target) if isinstance(one, Var) and one.name in layers)
    for made in nodes:
        if (made.chosen or made.name == OWN_CLASS) and made.layer not in whole:
            _fail(f"${made.layer} may be of several types: an op of Regraft has to be given it", transformation.at)
    needed = (node for node in nodes if node.required and node.layer not in whole)
    ops = frozenset(node.op for node in needed) - {"call", *RUN_TIME_TESTS}
    return Pattern(nodes, producers, layers, target, outputs, whole, ops, _decorator(transformation))


def _given(call: Apply) -> Iterator[Operand]:
    """The arguments of a call of an op of Regraft, and of the ops whose results it is given."""
    if isinstance(call.callee, Ref) and call.callee.path.startswith("regraft.ops."):
        for operand in (*call.args, *(operand for _, operand in call.keywords)):
            yield operand
            if isinstance(operand, Apply):
                yield from _given(operand)


def _decorator(transformation: Transformation) -> Decorator | None:
    """`@mark("name")($x, flag=1)`, and `@mark(_)` for the classes that call what is marked."""
    marked, *others = (node for node in transformation.target if isinstance(node, Node))
    if not marked.layer:
        return None
    call = marked.apply
    mark, at = call.callee, marked.at
    if not isinstance(mark, Apply) or not isinstance(mark.callee, Ref) or mark.keywords:
        _fail("a decorator is called, and then with the definition's parameters: @name(...)($x)", at)
    arguments = tuple(one for one in mark.args if isinstance(one, Const))
    named = tuple((one.name, None) for one in call.args if isinstance(one, Var))
    defaults = tuple((name, one) for name, one in call.keywords if isinstance(one, Const))
    if len(arguments) < len(mark.args) or len(named) < len(call.args) or len(defaults) < len(call.keywords):
        _fail("a decorator takes constants; the definition's parameters are variables, or have constants", at)
    callers = [one.apply.callee.path for one in others if isinstance(one.apply.callee, Ref)]
    if len(callers) < len(others) or any(not one.layer or one.apply.args != (Wildcard(),) for one in others):
        _fail("the decorator of classes that call the definition is given that: @name(_)", at)
    return Decorator(mark.callee.path, arguments, named + defaults, "".join(callers))


def _target(transformation: Transformation, nodes: tuple[PatternNode, ...]) -> tuple[Apply, tuple[str, ...]]:
    """The kernel call and the variables that it gives: those after its arrow, else the output of the last node."""
    target, *others = transformation.target
    if isinstance(target, Wildcard) or len(others) > int(target.layer):
        _fail("`forward` needs exactly one kernel call as its target", transformation.at)
    outputs = tuple(one.name for one in target.outputs if isinstance(one, Var)) or (nodes[-1].output,)
    made = [node.output for node in nodes if node.output in outputs]
    if len(outputs) < len(target.outputs) or made != list(outputs) or nodes[-1].output not in outputs:
        message = f"the target must give ${nodes[-1].output}, the output of the last node"
        _fail(f"{message}; several outputs come in the order of their nodes", target.at or transformation.at)
    if any(node.skip and node.output in outputs for node in nodes):
        _fail("what `skip` passes over cannot be the output", target.at or transformation.at)
    return target.apply, outputs


def _check_connected(
    nodes: tuple[PatternNode, ...], producers: Mapping[str, PatternNode], outputs: tuple[str, ...],
    at: Position | None,
) -> None:  # fmt: skip
    reached: set[str] = set()
    pending = [producers[name] for name in outputs]
    while pending:
        node = pending.pop()
        reached.add(node.output)
        for _, operand in node.args:
            names = [name for name in variables(operand) if name in producers and name not in reached]
            pending += [producers[name] for name in names]
    missing = [node.output for node in nodes if node.output not in reached]
    if missing:
        _fail(f"${missing[0]} does not lead to ${nodes[-1].output}, the last output", at)


# Operations whose presence in a layer chosen at run time can be tested there.
RUN_TIME_TESTS = {"gelu": "regraft.ops.is_gelu"}


# A layer of any class that is not PyTorch's own.
OWN_CLASS = "torch.nn.Module"


class _Compiler:
    """Flattens nested operands into nodes with fresh variables."""

    def __init__(self, layers: Mapping[str, LayerPattern]) -> None:
        self.layers = layers
        self.nodes: list[PatternNode] = []
        self.fresh = 0

    def node(self, node: Node) -> None:
        if len(node.outputs) != 1 or not isinstance(node.outputs[0], Var):
            _fail("each node needs one output variable: ... -> $x", node.at)
        if node.skip:
            self.skip(node, node.outputs[0].name)
            return
        self.apply(node.apply, node.outputs[0].name, node.at)
        if node.optional:
            self.nodes[-1] = replace(self.nodes[-1], through=self.through(self.nodes[-1], node.at))

    def skip(self, node: Node, output: str) -> None:
        operand = self.flat(node.apply.args[0], node.at)
        if not isinstance(operand, Var):
            _fail("`skip` passes over operations of a value: skip view|reshape($x) -> $y", node.at)
        ops = {name: table().method(name) for name in node.skip}
        for name, op in ops.items():
            if op is None:
                _fail(f"{name} is not a tensor method", node.at)
        if any(one.output == output for one in self.nodes):
            _fail(f"${output} is the output of two nodes", node.at)
        self.nodes.append(
            PatternNode("skip", (("input", operand),), output, skip=frozenset(filter(None, ops.values())))
        )

    def through(self, node: PatternNode, at: Position | None) -> str:
        made = {one.output for one in self.nodes}
        for name, operand in node.args:
            if isinstance(operand, Var) and operand.name in made:
                return name
        _fail("an optional node needs an operand that another node makes: it stands for the output without it", at)

    def apply(self, apply: Apply, output: str, at: Position | None) -> None:
        if any(node.output == output for node in self.nodes):
            _fail(f"${output} is the output of two nodes", at)
        args = tuple(self.flat(one, at) for one in apply.args)
        keywords = {name: self.flat(one, at) for name, one in apply.keywords}
        made = self.shape(apply.callee, args, keywords, output, at)
        self.nodes.append(made)

    def flat(self, operand: Operand | Slice | None, at: Position | None) -> Operand:
        """An operand without computations inside: each becomes a node of its own."""
        if isinstance(operand, Attr):
            return Attr(self.flat(operand.base, at), operand.name)
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
            self.apply(operand, name, at)
        else:
            self.nodes.append(self.glue(operand, name, at))
        return Var(self.nodes[-1].output)

    def glue(self, operand: Item | Group | Slice, output: str, at: Position | None) -> PatternNode:
        """A subscript, a tuple or a slice, which the structure has as nodes, too."""
        if isinstance(operand, Item):
            args = (("base", self.flat(operand.base, at)), ("index", self.flat(operand.index, at)))
            return PatternNode("py.item", args, output)
        if isinstance(operand, Slice):
            ends = (("start", operand.start), ("stop", operand.stop), ("step", None))
            return PatternNode("py.slice", tuple((name, self.flat(one, at)) for name, one in ends), output)
        items = tuple((str(number), self.flat(one, at)) for number, one in enumerate(operand.items))
        return PatternNode("py.tuple", items, output)

    def shape(
        self, callee: Operand | str, args: tuple[Operand, ...], keywords: dict[str, Operand], output: str,
        at: Position | None,
    ) -> PatternNode:  # fmt: skip
        if callee == "//":
            return PatternNode("py.binary", tuple(zip("01", args, strict=True)), output, "//")
        if isinstance(callee, str):
            names = ("input", "exponent" if callee == "**" else "other")
            if callee not in OPERATORS:
                _fail(f"no tensor operation is written {callee}", at)
            return PatternNode(OPERATORS[callee], tuple(zip(names, args, strict=False)), output)
        if isinstance(callee, Var):
            if callee.name not in self.layers:
                _fail(f"${callee.name} is called but `init` does not say which layer it is", at)
            layer = self.layers[callee.name]
            layer_type = table().layer(layer.type)
            op = layer_type.op if layer_type and layer_type.op else "call"
            inputs = layer_inputs(layer_type) if layer_type and layer_type.op else ("input",)
            inputs = ("0",) if layer.type == OWN_CLASS else inputs  # nothing is known of its parameters
            if len(args) != len(inputs) or keywords:
                _fail(f"the call of a {layer.type} layer takes {', '.join(inputs)}", at)
            given = tuple(zip(inputs, args, strict=True))
            return PatternNode(op, given, output, layer.type, callee.name, open=True, chosen=layer.chosen)
        if isinstance(callee, Attr):
            op_name = table().method(callee.name)
            if op_name is None:
                _fail(f"{callee.name} is not a tensor method", at)
            return self.operation(op_name, (self.flat(callee.base, at), *args), keywords, output, at)
        if isinstance(callee, Ref):
            return self.named(callee.path, args, keywords, output, at)
        _fail("cannot call this operand", at)

    def named(
        self, path: str, args: tuple[Operand, ...], keywords: dict[str, Operand], output: str, at: Position | None
    ) -> PatternNode:
        layer_type = table().layer(path)
        if layer_type is not None:
            if len(args) != 1 or keywords or layer_type.op is None:
                _fail(f"the call of a {path} layer takes one input", at)
            return PatternNode(layer_type.op, (("input", args[0]),), output, path, open=True)
        op = table().spelled(path)
        if op is not None:
            return self.operation(op, args, keywords, output, at)
        named = tuple((str(index), operand) for index, operand in enumerate(args)) + tuple(keywords.items())
        return PatternNode("call", named, output, path)

    def operation(
        self, op: str, args: tuple[Operand, ...], keywords: dict[str, Operand], output: str, at: Position | None
    ) -> PatternNode:
        if op in CASTS and len(args) == 1:
            op, args = "to", (*args, Ref(CASTS[op]))
        if op == "to" and len(args) == 2:
            return PatternNode("to", (("input", args[0]), ("dtype", args[1])), output)
        if op == "square":
            op, args = "pow", (*args, Const(2))
        bound = bind(table().operation(op).signatures, args, keywords)
        if bound is None:
            _fail(f"the arguments do not fit {op}", at)
        return PatternNode(op, tuple(bound[0].items()), output)


def _fail(message: str, at: Position | None) -> NoReturn:
    raise PatternProblem(message, at)


def variables(operand: Operand | Slice | None) -> tuple[str, ...]:
    """Names of the variables in an operand, in order."""
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
