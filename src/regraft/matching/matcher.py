"""Matching: unification of a rule's pattern with the value graph of one body."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from regraft.dsl.syntax import Attr, Const, Operand, Predicate, Var, Wildcard
from regraft.matching.definitions import misfit
from regraft.matching.pattern import OWN_CLASS, RUN_TIME_TESTS, LayerPattern, Pattern, PatternNode, variables
from regraft.matching.predicates import fixed, show, unmet
from regraft.matching.result import Assumes, Condition, Holds, Match, NoMatch, Skips, Test
from regraft.matching.uses import is_branching, is_metadata, is_private, only_shapes, uses, uses_under
from regraft.structure import guards
from regraft.structure.calls import changes_input, computes
from regraft.structure.guards import Atom
from regraft.structure.model import MISSING, Body, Layer, Node, Structure, Value
from regraft.structure.module import Module
from regraft.structure.optable import COMMUTATIVE, table
from regraft.structure.rank import same_dimension

State = tuple[Mapping[str, Value], Mapping[str, Node], tuple[Condition, ...]]


def find(
    pattern: Pattern, where: tuple[Predicate, ...], module: Module, structure: Structure, body: Body
) -> Iterator[Match | NoMatch]:
    """Every match of the pattern in a body, and the nearest miss of each root that is not one."""
    if any(op not in body.index and f"{op}_" not in body.index for op in pattern.ops):
        return
    known = {node.spelling for node in body.index.get("call", ())}
    if any(name not in known for name in called(pattern, where)):
        return
    for root in _candidates(pattern, body):
        yield _Matcher(pattern, where, module, structure, body, root).run()


def called(pattern: Pattern, where: tuple[Predicate, ...]) -> Iterator[str]:
    """Functions that have to be called for the conditions `feeds` on outputs of a pattern to hold."""
    for predicate in where:
        if predicate.name == "feeds" and any(one in pattern.producers for one in variables(predicate.args[0])):
            yield show(predicate.args[1])


def layers_of(where: tuple[Predicate, ...]) -> tuple[str, ...]:
    """Norms that layers of the model's own classes have to be for the conditions on them to hold."""
    return ("rms_norm",) if any(predicate.name == "rms_norm" for predicate in where) else ()


def led_to(where: tuple[Predicate, ...]) -> tuple[str, ...]:
    """Operations that have to be there for the conditions `attends` to hold."""
    return ("softmax",) if any(predicate.name == "attends" for predicate in where) else ()


def _candidates(pattern: Pattern, body: Body) -> tuple[Node, ...]:
    found = body.index.get(pattern.anchor.op, ())
    if pattern.anchor.op in RUN_TIME_TESTS:
        found = tuple(sorted((*found, *body.index.get("call", ())), key=lambda node: node.time))
    if pattern.anchor.layer in pattern.whole:
        found += tuple(node for node in body.index.get("call", ()) if _may_be(node, pattern.anchor))
    return found


def _may_be(node: Node, wanted: PatternNode) -> bool:
    """A call of a layer that is of this type or another one of `torch.nn`, or replaced later: the op looks at it.

    Where the rule names several types, the configuration may choose the layer, too.
    """
    if node.layer is None or node.args.keys() != {"0"}:
        return False
    known = [layer for layer in node.layer.layers if not layer.choice]
    if len(known) < len(node.layer.layers):
        return wanted.chosen and all(table().layer(layer.type) is not None for layer in known if layer.type)
    types = {layer.type for layer in known if layer.type}
    return len(known) > 1 and wanted.name in types and all(table().layer(one) is not None for one in types)


class _Matcher:
    """One attempt at one root; keeps the nearest miss."""

    def __init__(
        self,
        pattern: Pattern,
        where: tuple[Predicate, ...],
        module: Module,
        structure: Structure,
        body: Body,
        root: Node,
    ) -> None:
        self.pattern, self.where, self.module, self.structure, self.body, self.root = (
            pattern, where, module, structure, body, root,
        )  # fmt: skip
        self.miss = NoMatch(body, root, -1, "the operation is another one", root.expr)

    def run(self) -> Match | NoMatch:
        for bindings, nodes, tests in self._outputs(self.pattern.outputs, (self.root,), ({}, {}, ())):
            plain = self._match(bindings, nodes, tests)
            for match in dict.fromkeys((plain, self._conditioned(plain))):
                reason = self._sound(match) or next(
                    filter(None, (*(self._holds(one, match) for one in self.where), misfit(match, self.module))), None
                )
                if reason is None:
                    return match
                self._fail(len(nodes) + 1, reason[0], reason[1])
        return self.miss

    def _match(self, bindings: Mapping[str, Value], nodes: Mapping[str, Node], tests: tuple[Condition, ...]) -> Match:
        ordered = tuple(sorted(nodes.values(), key=lambda node: node.time))
        roots = tuple(nodes[name] for name in self.pattern.outputs)
        return Match(self.pattern, self.structure, self.body, bindings, ordered, roots[-1], tests, roots)

    def _fail(self, depth: int, reason: str, at: ast.AST) -> None:
        if depth > self.miss.depth:
            self.miss = NoMatch(self.body, self.root, depth, reason, at)

    # unification

    def _outputs(self, left: tuple[str, ...], candidates: Sequence[Node], state: State) -> Iterator[State]:
        """The nodes of the outputs, one after the other in the order of time; the first is the anchor."""
        if not left:
            yield state
            return
        wanted = self.pattern.producers[left[0]]
        for node in candidates:
            for after in self._node(wanted, node, state):
                yield from self._outputs(left[1:], self._further(left[1:], node, after), after)

    def _further(self, left: tuple[str, ...], last: Node, state: State) -> Sequence[Node]:
        """Candidates for the next output: nodes after the last that take a value which is bound already, if one is."""
        if not left:
            return ()
        wanted = self.pattern.producers[left[0]]
        known = [state[0].get(operand.name) for _, operand in wanted.args if isinstance(operand, Var)]
        if not any(known):
            return [node for node in self.body.index.get(wanted.op, ()) if node.time > last.time]
        uses = dict.fromkeys(use for value in known if value is not None for use in value.uses)
        whole = wanted.layer in self.pattern.whole
        return [
            use for use in uses
            if use.time > last.time and (use.op == wanted.op or (whole and _may_be(use, wanted)))
        ]  # fmt: skip

    def _node(self, wanted: PatternNode, node: Node, state: State) -> Iterator[State]:
        bindings, nodes, tests = state
        if wanted.output in nodes:
            if nodes[wanted.output] is node:
                yield state
            return
        depth = len(nodes)
        args: Mapping[str, Value] = node.args
        private = node.op == f"{wanted.op}_" and is_private(node)
        if (node.op != wanted.op and not private) or not _named(node, wanted):
            predicate = RUN_TIME_TESTS.get(wanted.op)
            if wanted.layer in self.pattern.whole and _may_be(node, wanted):
                args = {"input": node.args["0"]}
            elif predicate is None or not _chosen(node, wanted.op):
                self._fail(depth, f"{describe(node)} where {wanted.op} is wanted", node.expr)
                return
            else:
                assert node.layer is not None
                tests = (*tests, Test(predicate, node.layer))
                args = {"input": node.args["0"], **_default_arguments(wanted.op)}
        if node.op != "call" and not private and changes_input(node.op, node.args):
            self._fail(depth, f"{describe(node)} changes its input in place", node.expr)
            return
        if wanted.name and not wanted.is_glue and (wanted.op != "call" or wanted.name == OWN_CLASS):
            reason, bindings = self._layer(wanted, node, bindings)
            if reason:
                self._fail(depth, reason, node.expr)
                return
        reason = "" if wanted.open else _unmentioned(wanted, node, args)
        if reason:
            self._fail(depth, reason, node.expr)
            return
        nodes = {**nodes, wanted.output: node}
        bindings = {**bindings, wanted.output: node.output}
        for order in _orders(wanted, args):
            yield from self._arguments(list(wanted.args), order, (bindings, nodes, tests), node)

    def _dimension(self, operand: Operand, name: str, args: Mapping[str, Value]) -> tuple[Condition, ...] | None:
        """Conditions under which an argument is the dimension of the pattern, counted from the other end."""
        if not name.startswith("dim") or not isinstance(operand, Const) or "input" not in args:
            return None
        found = same_dimension(args["input"], operand.value, args[name].const)
        if found is None:
            return None
        return () if found.certain else (Assumes(f"it is not certain that the tensor has {found.number} dimensions"),)

    def _layer(
        self, wanted: PatternNode, node: Node, bindings: Mapping[str, Value]
    ) -> tuple[str, Mapping[str, Value]]:
        """Check the type (and constructor) of a layer's node; binds the layer variable."""
        if node.layer is None:
            return f"{describe(node)} is a function where a {wanted.name} layer is wanted", bindings
        found = {layer.type for layer in node.layer.layers}
        fits = found == {wanted.name} or wanted.name == OWN_CLASS
        if not fits and not (wanted.layer in self.pattern.whole and _may_be(node, wanted)):
            return f"the layer is {', '.join(sorted(found))} where {wanted.name} is wanted", bindings
        if not wanted.layer:
            return "", bindings
        other = bindings.get(wanted.layer)
        if other is not None and not same(other, node.layer):
            return f"${wanted.layer} would be two layers", bindings
        bindings = {**bindings, wanted.layer: node.layer}
        for layer in (one for one in node.layer.layers if one.type == wanted.name):
            bound = _constructor(self.pattern.layers[wanted.layer], layer, bindings)
            if isinstance(bound, str):
                return bound, bindings
            bindings = bound
        return "", bindings

    def _arguments(
        self, left: list[tuple[str, Operand]], args: Mapping[str, Value], state: State, node: Node
    ) -> Iterator[State]:
        if not left:
            yield state
            return
        (name, operand), *rest = left
        if name not in args:
            self._fail(len(state[1]), f"{describe(node)} has no argument {name}", node.expr)
            return
        conditions = self._dimension(operand, name, args)
        if conditions is not None:
            bindings, nodes, tests = state
            yield from self._arguments(rest, args, (bindings, nodes, (*tests, *conditions)), node)
            return
        for after in self._operand(operand, args[name], state, node):
            yield from self._arguments(rest, args, after, node)

    def _operand(self, operand: Operand, value: Value, state: State, node: Node) -> Iterator[State]:
        bindings, nodes, tests = state
        if isinstance(operand, Wildcard):
            yield state
        elif isinstance(operand, Var) and operand.name in self.pattern.producers:
            yield from self._made(self.pattern.producers[operand.name], value, state, node)
        elif isinstance(operand, Var):
            bound = bindings.get(operand.name)
            if bound is None:
                yield {**bindings, operand.name: value}, nodes, tests
            elif same(bound, value):
                yield state
            else:
                self._fail(len(nodes), f"${operand.name} would be two different values", node.expr)
        elif isinstance(operand, Attr):
            base = _base(operand, value)
            if base is None:
                self._fail(len(nodes), f"an argument of {describe(node)} is not .{operand.name}", node.expr)
            else:
                yield from self._operand(operand.base, base, state, node)
        elif fixed(operand, value):
            yield state
        else:
            self._fail(len(nodes), f"an argument of {describe(node)} is not {show(operand)}", node.expr)

    def _made(self, wanted: PatternNode, value: Value, state: State, user: Node) -> Iterator[State]:
        """The value as the output of a pattern's node: directly, in one branch of several, or passed on without it."""
        bindings, nodes, tests = state
        if wanted.skip:
            yield from self._skipping(wanted, value, state, user)
            return
        if value.origin == "phi" and is_branching(value):
            yield from self._skipped_where_none(wanted, value, state)
            for guard, option in value.options:
                yield from self._made(wanted, option, (bindings, nodes, (*tests, Holds(guard))), user)
        elif value.node is None or value.origin == "phi":
            why = "depends on which branch was taken" if value.origin == "phi" else "is not computed here"
            self._fail(len(nodes), f"the input of {describe(user)} {why}", user.expr)
        else:
            yield from self._node(wanted, value.node, state)
        if wanted.through:
            operand = dict(wanted.args)[wanted.through]
            yield from self._operand(operand, value, ({**bindings, wanted.output: value}, nodes, tests), user)

    def _skipping(self, wanted: PatternNode, value: Value, state: State, user: Node) -> Iterator[State]:
        """The value with any number of the operations in between that the pattern passes over, the most first."""
        bindings, nodes, tests = state
        steps, made = [], value
        while made.node is not None and made.node.op in wanted.skip and "input" in made.node.args:
            steps.append(made.node)
            made = made.node.args["input"]
        operand = wanted.args[0][1]
        for number in range(len(steps), -1, -1):
            passed = {f"{wanted.output}'{index}": step for index, step in enumerate(steps[:number])}
            start = steps[number - 1].args["input"] if number else value
            after = {**bindings, wanted.output: value}, {**nodes, **passed}, tests
            yield from self._operand(operand, start, after, user)

    def _skipped_where_none(self, wanted: PatternNode, value: Value, state: State) -> Iterator[State]:
        """`if mask is not None: s = s + mask`: the kernel takes the mask, None included, so no condition is left."""
        if not wanted.through or len(value.options) != 2:
            return
        for (guard, option), (_, other) in (value.options, value.options[::-1]):
            tested = guard.operand if isinstance(guard, guards.Not) else None
            if option.node is None or not isinstance(tested, Atom) or tested.kind != "none":
                continue
            for after in self._node(wanted, option.node, state):
                names = [one.name for name, one in wanted.args if isinstance(one, Var) and name != wanted.through]
                passed = dict(wanted.args)[wanted.through]
                through = [one for one in option.node.args.values() if one is other]
                if [after[0][one].key() for one in names] == [tested.subject] and through and isinstance(passed, Var):
                    yield after[0], after[1], (*after[2], Skips(option.node))

    # conditions that hold for every rule

    def _conditioned(self, match: Match) -> Match:
        """With a condition for each use of an inner value elsewhere that only some branch makes.

        Only for matches that need a condition anyway, or whose other uses all are under conditions: the original code
        stays as the other branch.
        """
        matched, tests = set(match.nodes), list(match.tests)
        base = match.fast
        for node in match.nodes:
            for guard, use in uses(node.output) if node not in match.roots else ():
                if use in matched or is_metadata(use) or not guards.satisfiable(guards.conjoin(base, guard)):
                    continue
                needed = [one for one in guards.conjuncts(guard) if not guards.implies(base, one)]
                if not needed:
                    return match  # used wherever the root is
                condition = guards.negate(needed[0] if len(needed) == 1 else guards.And(tuple(needed)))
                tests.append(Holds(condition))
                base = guards.conjoin(base, condition)
        return replace(match, tests=tuple(tests)) if len(tests) > len(match.tests) else match

    def _sound(self, match: Match) -> tuple[str, ast.AST] | None:
        matched = set(match.nodes)
        for node in match.nodes:
            if node in match.roots:
                continue
            for use in self._other_uses(match, node):
                if use not in matched and not only_shapes(use, matched):
                    line = getattr(use.expr, "lineno", use.statement.node.lineno)
                    return f"the result of {describe(node)} is also used at line {line}", use.expr
        if any(node.loop != match.root.loop for node in match.nodes):
            return "the nodes are not in the same loop", match.root.expr
        if not guards.satisfiable(guards.settled(match.guard)):
            return "the code runs only where the kernel does not apply", match.root.expr
        return self._overridden(match)

    def _other_uses(self, match: Match, node: Node) -> tuple[Node, ...]:
        """Uses of an inner value that forbid the match, those of the match itself among them."""
        if match.condition is not guards.TRUE:
            base = match.fast
            return tuple(use for use in uses_under(base, node.output) if not is_metadata(use))
        same_block = node.statement.block == match.root.statement.block
        return node.output.every_use() if same_block else uses_under(match.guard, node.output)

    def _overridden(self, match: Match) -> tuple[str, ast.AST] | None:
        """A subclass that inherits the method but builds another layer would get the kernel, too."""
        cls = self.structure.cls
        if cls is None:
            return None
        for node in match.nodes:
            if node.layer is None or node.layer.origin != "path":
                continue
            root = ".".join(node.layer.name.split("[")[0].split(".")[:2])
            own = _types(self.structure.layers.get(root, ()))
            for sub in self.module.subclasses.get(cls.name, ()):
                if (
                    match.body.name not in self.module.methods(sub)
                    and _types(self.module.layers(sub).get(root, ())) != own
                ):
                    return f"subclass {sub.name} builds {root} as another layer", node.expr
        return None

    def _holds(self, predicate: Predicate, match: Match) -> tuple[str, ast.AST] | None:
        names = [name for operand in predicate.args for name in variables(operand)]
        if names and match.bindings.keys().isdisjoint(names):
            return None  # it speaks of another alternative, or of a node that is not there
        reason = unmet(predicate, match.bindings, self.structure, self.module)
        return (reason, match.root.expr) if reason else None


def describe(node: Node) -> str:
    """A node in words for messages."""
    if node.layer is not None and node.layer.name:
        return node.layer.name
    return node.spelling or node.op


def same(left: Value, right: Value) -> bool:
    """True when two values are certainly equal: one value, one constant, or one attribute path."""
    if left is right:
        return True
    if left.const is not MISSING and right.const is not MISSING:
        return type(left.const) is type(right.const) and left.const == right.const
    fixed_path = left.origin == "path" and left.is_layer  # other attributes may change between two reads
    return left.origin == right.origin and (fixed_path or left.origin == "global") and left.name == right.name


def _types(layers: tuple[Layer, ...]) -> frozenset[str]:
    return frozenset(layer.source or layer.type for layer in layers)


def _named(node: Node, wanted: PatternNode) -> bool:
    """Whether a call is of the function or layer that the pattern names, and glue of the operator."""
    if wanted.op != "call":
        return not wanted.is_glue or not wanted.name or node.spelling == wanted.name
    name = wanted.name
    if name == OWN_CLASS:
        return node.layer is not None and node.args.keys() == {"0"} and all(map(_is_own, node.layer.layers))
    return node.spelling == name or (node.layer is not None and any(one.type == name for one in node.layer.layers))


def _is_own(layer: Layer) -> bool:
    """Whether a layer is of a class that PyTorch does not have."""
    return bool(layer.type) and not layer.choice and table().layer(layer.type) is None


def _chosen(node: Node, op: str) -> bool:
    """A call with one argument of a layer or function that may turn out to compute `op` at run time."""
    if node.op != "call" or node.layer is None or set(node.args) != {"0"}:
        return False
    layers = node.layer.layers
    return any(_may_choose(layer, op) if layer.choice else computes(layer.type) == op for layer in layers)


def _may_choose(layer: Layer, op: str) -> bool:
    """Whether a table may give the operation, or a variant of it, for one of the keys that it may be asked for."""
    return any(_may_mean(key.const, op) for key in layer.args["key"].alternatives())


def _may_mean(key: object, op: str) -> bool:
    """Whether what stands under a constant in a table may be the operation, by its name; any other key may."""
    names = ("silu", "swish") if op == "silu" else (op,)
    return not isinstance(key, str) or (any(name in key for name in names) and key != f"quick_{op}")


def _default_arguments(op: str) -> dict[str, Value]:
    signature = table().operation(op).signatures[0]
    return {
        parameter.name: Value(0, "const", const=parameter.default) for parameter in signature if parameter.optional
    }


def _unmentioned(wanted: PatternNode, node: Node, args: Mapping[str, Value]) -> str:
    """Nothing is dropped silently: an argument the pattern does not mention must have its default."""
    mentioned = {name for name, _ in wanted.args}
    if wanted.is_glue:
        return "" if mentioned == args.keys() else f"{describe(node)} has another number of parts"
    for name, value in args.items():
        if name in mentioned or name in node.defaults or name.isdigit():
            continue
        default = _default(wanted.op, name)
        if value.const is MISSING or value.const != default:
            return f"{describe(node)} also has {name}"
    return ""


def _default(op: str, name: str) -> object:
    for signature in table().operation(op).signatures:
        for parameter in signature:
            if parameter.name == name and parameter.optional:
                return parameter.default
    return MISSING


def _orders(wanted: PatternNode, args: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    yield args
    if wanted.op in COMMUTATIVE and "input" in args and "other" in args:
        yield {**args, "input": args["other"], "other": args["input"]}
    if wanted.op == "transpose" and "dim0" in args and "dim1" in args:
        yield {**args, "dim0": args["dim1"], "dim1": args["dim0"]}


def _constructor(wanted: LayerPattern, layer: Layer, bindings: Mapping[str, Value]) -> Mapping[str, Value] | str:
    """Bind the constructor's arguments; a reason when one does not fit."""
    layer_type = table().layer(wanted.type)
    defaults = {one.name: one.default for one in layer_type.init if one.optional} if layer_type else {}
    for name, operand in wanted.args:
        value = layer.args.get(name)
        if value is None:
            value = Value(0, "const", const=defaults[name]) if name in defaults else Value(0, "unknown")
        if isinstance(operand, Var):
            bindings = {**bindings, operand.name: value}
        elif not isinstance(operand, Wildcard) and not fixed(operand, value):
            return f"{layer.path or layer.type} is built with another {name}"
    return bindings


def _base(operand: Attr, value: Value) -> Value | None:
    """The value whose attribute `value` is, when it is the attribute that the operand names."""
    found = value.attribute()
    if found is not None and found[1] == operand.name:
        return found[0]
    return None
