"""Matching: the unification of a rule's pattern with the value graph of one body."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from regraft.dsl.syntax import Attr, Const, Operand, Predicate, Var, Wildcard
from regraft.matching.definitions import misfit
from regraft.matching.pattern import (
    OWN_CLASS,
    RUN_TIME_TESTS,
    LayerPattern,
    Pattern,
    PatternNode,
    variables,
)
from regraft.matching.predicates import is_certainly, operand_text, unmet_reason
from regraft.matching.result import Assumes, Condition, Holds, Match, NoMatch, Skips, Test
from regraft.matching.uses import (
    is_branching,
    is_metadata,
    only_reads_shapes,
    uses,
    uses_under,
    writes_privately,
)
from regraft.structure import guards
from regraft.structure.calls import changes_input, computed_op
from regraft.structure.guards import Atom
from regraft.structure.model import MISSING, Body, Layer, Node, Structure, Value
from regraft.structure.module import Module
from regraft.structure.optable import COMMUTATIVE, table
from regraft.structure.rank import same_dimension

State = tuple[Mapping[str, Value], Mapping[str, Node], tuple[Condition, ...]]


def find(
    pattern: Pattern, where: tuple[Predicate, ...], module: Module, structure: Structure, body: Body
) -> Iterator[Match | NoMatch]:
    """Yield every match of the pattern in a body, and the nearest miss at each candidate root
    without a match."""
    if any(op not in body.index and f"{op}_" not in body.index for op in pattern.ops):
        return
    called_names = {node.spelling for node in body.index.get("call", ())}
    if any(name not in called_names for name in required_calls(pattern, where)):
        return
    for root in _candidates(pattern, body):
        yield _Matcher(pattern, where, module, structure, body, root).run()


def required_calls(pattern: Pattern, where: tuple[Predicate, ...]) -> Iterator[str]:
    """Yield the functions that a body must call for the conditions `feeds` on outputs of a pattern
    to hold."""
    for predicate in where:
        if predicate.name == "feeds" and any(
            variable in pattern.producers for variable in variables(predicate.args[0])
        ):
            yield operand_text(predicate.args[1])


def required_classes(where: tuple[Predicate, ...]) -> tuple[str, ...]:
    """Return the kinds of layers of the model's own classes that the conditions need: "rms_norm" or
    none."""
    return ("rms_norm",) if any(predicate.name == "rms_norm" for predicate in where) else ()


def required_operations(where: tuple[Predicate, ...]) -> tuple[str, ...]:
    """Return the operations that a body must contain for the conditions `attends` to hold."""
    return ("softmax",) if any(predicate.name == "attends" for predicate in where) else ()


def _candidates(pattern: Pattern, body: Body) -> tuple[Node, ...]:
    """Return the nodes of a body that the first output of a pattern may match."""
    candidates = body.index.get(pattern.anchor.op, ())
    if pattern.anchor.op in RUN_TIME_TESTS:
        candidates = tuple(
            sorted((*candidates, *body.index.get("call", ())), key=lambda node: node.time)
        )
    if pattern.anchor.layer in pattern.passed_whole:
        candidates += tuple(
            node for node in body.index.get("call", ()) if _can_be_layer(node, pattern.anchor)
        )
    return candidates


def _can_be_layer(node: Node, pattern_node: PatternNode) -> bool:
    """Return whether a call is one of a layer that an op of Regraft can look at when the model
    runs.

    The layer is of one of several types of `torch.nn`, that of the pattern among them, or is
    replaced later. Where the rule names several types, the configuration may choose the layer, too.
    """
    if node.layer is None or node.args.keys() != {"0"}:
        return False
    certain_layers = [layer for layer in node.layer.layers if not layer.choice]
    if len(certain_layers) < len(node.layer.layers):
        return pattern_node.chosen and all(
            table().layer(layer.type) is not None for layer in certain_layers if layer.type
        )
    types = {layer.type for layer in certain_layers if layer.type}
    return (
        len(certain_layers) > 1
        and pattern_node.name in types
        and all(table().layer(layer_type) is not None for layer_type in types)
    )


class _Matcher:
    """An attempt at one root; `miss` is the nearest miss so far."""

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
            pattern,
            where,
            module,
            structure,
            body,
            root,
        )
        self.miss = NoMatch(body, root, -1, "the operation is another one", root.expr)

    def run(self) -> Match | NoMatch:
        """Return the first match that is sound and meets the rule's conditions, else the nearest
        miss."""
        for bindings, nodes, tests in self._match_outputs(
            self.pattern.outputs, (self.root,), ({}, {}, ())
        ):
            unconditional = self._as_match(bindings, nodes, tests)
            for match in dict.fromkeys((unconditional, self._with_conditions(unconditional))):
                reason = self._unsoundness(match) or next(
                    filter(
                        None,
                        (
                            *(self._unmet_condition(predicate, match) for predicate in self.where),
                            misfit(match, self.module),
                        ),
                    ),
                    None,
                )
                if reason is None:
                    return match
                self._record_miss(len(nodes) + 1, reason[0], reason[1])
        return self.miss

    def _as_match(
        self, bindings: Mapping[str, Value], nodes: Mapping[str, Node], tests: tuple[Condition, ...]
    ) -> Match:
        """Return the match of a complete state, with its nodes in order of time."""
        ordered = tuple(sorted(nodes.values(), key=lambda node: node.time))
        roots = tuple(nodes[name] for name in self.pattern.outputs)
        return Match(
            self.pattern, self.structure, self.body, bindings, ordered, roots[-1], tests, roots
        )

    def _record_miss(self, depth: int, reason: str, at: ast.AST) -> None:
        """Keep a miss if more nodes fitted than in the nearest one so far."""
        if depth > self.miss.depth:
            self.miss = NoMatch(self.body, self.root, depth, reason, at)

    # unification

    def _match_outputs(
        self, outputs: tuple[str, ...], candidates: Sequence[Node], state: State
    ) -> Iterator[State]:
        """Yield the states in which the outputs are matched, one after the other in order
        of time."""
        if not outputs:
            yield state
            return
        pattern_node = self.pattern.producers[outputs[0]]
        for node in candidates:
            for next_state in self._match_node(pattern_node, node, state):
                yield from self._match_outputs(
                    outputs[1:], self._next_candidates(outputs[1:], node, next_state), next_state
                )

    def _next_candidates(
        self, outputs: tuple[str, ...], last: Node, state: State
    ) -> Sequence[Node]:
        """Return candidates for the next output, all after the node `last`.

        They take a value that a variable is bound to already; where there is none, all nodes of the
        operation will do.
        """
        if not outputs:
            return ()
        pattern_node = self.pattern.producers[outputs[0]]
        bound_values = [
            state[0].get(operand.name)
            for _, operand in pattern_node.args
            if isinstance(operand, Var)
        ]
        if not any(bound_values):
            return [
                node for node in self.body.index.get(pattern_node.op, ()) if node.time > last.time
            ]
        candidates = dict.fromkeys(
            use for value in bound_values if value is not None for use in value.uses
        )
        is_passed_whole = pattern_node.layer in self.pattern.passed_whole
        return [
            use
            for use in candidates
            if use.time > last.time
            and (
                use.op == pattern_node.op or (is_passed_whole and _can_be_layer(use, pattern_node))
            )
        ]

    def _match_node(self, pattern_node: PatternNode, node: Node, state: State) -> Iterator[State]:
        """Yield the states in which a node of the pattern is matched by `node`."""
        bindings, nodes, tests = state
        if pattern_node.output in nodes:
            if nodes[pattern_node.output] is node:
                yield state
            return
        depth = len(nodes)
        args: Mapping[str, Value] = node.args
        is_private_write = node.op == f"{pattern_node.op}_" and writes_privately(node)
        if (node.op != pattern_node.op and not is_private_write) or not _has_wanted_name(
            node, pattern_node
        ):
            predicate = RUN_TIME_TESTS.get(pattern_node.op)
            if pattern_node.layer in self.pattern.passed_whole and _can_be_layer(
                node, pattern_node
            ):
                args = {"input": node.args["0"]}
            elif predicate is None or not _can_compute(node, pattern_node.op):
                self._record_miss(
                    depth, f"expected {pattern_node.op}, found {describe(node)}", node.expr
                )
                return
            else:
                assert node.layer is not None
                tests = (*tests, Test(predicate, node.layer))
                args = {"input": node.args["0"], **_default_arguments(pattern_node.op)}
        if node.op != "call" and not is_private_write and changes_input(node.op, node.args):
            self._record_miss(depth, f"{describe(node)} changes its input in place", node.expr)
            return
        if (
            pattern_node.name
            and not pattern_node.is_glue
            and (pattern_node.op != "call" or pattern_node.name == OWN_CLASS)
        ):
            reason, bindings = self._bind_layer(pattern_node, node, bindings)
            if reason:
                self._record_miss(depth, reason, node.expr)
                return
        reason = (
            "" if pattern_node.any_settings else _unmentioned_argument(pattern_node, node, args)
        )
        if reason:
            self._record_miss(depth, reason, node.expr)
            return
        nodes = {**nodes, pattern_node.output: node}
        bindings = {**bindings, pattern_node.output: node.output}
        for order in _argument_orders(pattern_node, args):
            yield from self._match_arguments(
                list(pattern_node.args), order, (bindings, nodes, tests), node
            )

    def _dimension_conditions(
        self, operand: Operand, name: str, args: Mapping[str, Value]
    ) -> tuple[Condition, ...] | None:
        """Return the conditions under which an argument is the pattern's dimension, counted from
        the other end.

        Return None where the argument is no such dimension.
        """
        if not name.startswith("dim") or not isinstance(operand, Const) or "input" not in args:
            return None
        input_rank = same_dimension(args["input"], operand.value, args[name].const)
        if input_rank is None:
            return None
        return (
            ()
            if input_rank.certain
            else (Assumes(f"it is not certain that the tensor has {input_rank.number} dimensions"),)
        )

    def _bind_layer(
        self, pattern_node: PatternNode, node: Node, bindings: Mapping[str, Value]
    ) -> tuple[str, Mapping[str, Value]]:
        """Check the type and the constructor's arguments of a layer, and bind the layer variable.

        Return why the layer does not fit, "" where it does, and the bindings.
        """
        if node.layer is None:
            return (
                f"expected a layer {pattern_node.name}, found a call of {describe(node)}",
                bindings,
            )
        types = {layer.type for layer in node.layer.layers}
        is_exact = types == {pattern_node.name} or pattern_node.name == OWN_CLASS
        if not is_exact and not (
            pattern_node.layer in self.pattern.passed_whole and _can_be_layer(node, pattern_node)
        ):
            return (
                f"expected a layer {pattern_node.name}, found {', '.join(sorted(types))}",
                bindings,
            )
        if not pattern_node.layer:
            return "", bindings
        bound_layer = bindings.get(pattern_node.layer)
        if bound_layer is not None and not is_same_value(bound_layer, node.layer):
            return f"${pattern_node.layer} would stand for two different layers", bindings
        bindings = {**bindings, pattern_node.layer: node.layer}
        for layer in (
            candidate for candidate in node.layer.layers if candidate.type == pattern_node.name
        ):
            extended = _bind_constructor(self.pattern.layers[pattern_node.layer], layer, bindings)
            if isinstance(extended, str):
                return extended, bindings
            bindings = extended
        return "", bindings

    def _match_arguments(
        self,
        operands: list[tuple[str, Operand]],
        args: Mapping[str, Value],
        state: State,
        node: Node,
    ) -> Iterator[State]:
        """Yield the states in which the arguments of a node match the operands, one after the
        other."""
        if not operands:
            yield state
            return
        (name, operand), *later_operands = operands
        if name not in args:
            self._record_miss(len(state[1]), f"{describe(node)} has no argument {name}", node.expr)
            return
        conditions = self._dimension_conditions(operand, name, args)
        if conditions is not None:
            bindings, nodes, tests = state
            yield from self._match_arguments(
                later_operands, args, (bindings, nodes, (*tests, *conditions)), node
            )
            return
        for next_state in self._match_operand(operand, args[name], state, node):
            yield from self._match_arguments(later_operands, args, next_state, node)

    def _match_operand(
        self, operand: Operand, value: Value, state: State, node: Node
    ) -> Iterator[State]:
        """Yield the states in which a value, an argument of `node`, matches an operand."""
        bindings, nodes, tests = state
        if isinstance(operand, Wildcard):
            yield state
        elif isinstance(operand, Var) and operand.name in self.pattern.producers:
            yield from self._match_producer(
                self.pattern.producers[operand.name], value, state, node
            )
        elif isinstance(operand, Var):
            bound_value = bindings.get(operand.name)
            if bound_value is None:
                yield {**bindings, operand.name: value}, nodes, tests
            elif is_same_value(bound_value, value):
                yield state
            else:
                self._record_miss(
                    len(nodes), f"${operand.name} would stand for two different values", node.expr
                )
        elif isinstance(operand, Attr):
            base = _attribute_base(operand, value)
            if base is None:
                self._record_miss(
                    len(nodes), f"an argument of {describe(node)} is not .{operand.name}", node.expr
                )
            else:
                yield from self._match_operand(operand.base, base, state, node)
        elif is_certainly(operand, value):
            yield state
        else:
            self._record_miss(
                len(nodes),
                f"an argument of {describe(node)} is not {operand_text(operand)}",
                node.expr,
            )

    def _match_producer(
        self, pattern_node: PatternNode, value: Value, state: State, user: Node
    ) -> Iterator[State]:
        """Yield the states in which a value matches the output of a pattern's node.

        The value is the node's output directly or in one branch of several, or bypasses an optional
        node.
        """
        bindings, nodes, tests = state
        if pattern_node.skip:
            yield from self._match_skip(pattern_node, value, state, user)
            return
        if value.origin == "phi" and is_branching(value):
            yield from self._match_none_branch(pattern_node, value, state)
            for guard, option in value.options:
                yield from self._match_producer(
                    pattern_node, option, (bindings, nodes, (*tests, Holds(guard))), user
                )
        elif value.node is None or value.origin == "phi":
            reason = (
                "depends on which branch was taken"
                if value.origin == "phi"
                else "is not computed here"
            )
            self._record_miss(len(nodes), f"the input of {describe(user)} {reason}", user.expr)
        else:
            yield from self._match_node(pattern_node, value.node, state)
        if pattern_node.bypass:
            operand = dict(pattern_node.args)[pattern_node.bypass]
            yield from self._match_operand(
                operand, value, ({**bindings, pattern_node.output: value}, nodes, tests), user
            )

    def _match_skip(
        self, pattern_node: PatternNode, value: Value, state: State, user: Node
    ) -> Iterator[State]:
        """Yield the states in which a value is reached through operations that `skip` names, the
        most first."""
        bindings, nodes, tests = state
        steps, source = [], value
        while (
            source.node is not None
            and source.node.op in pattern_node.skip
            and "input" in source.node.args
        ):
            steps.append(source.node)
            source = source.node.args["input"]
        operand = pattern_node.args[0][1]
        for count in range(len(steps), -1, -1):
            passed_nodes = {
                f"{pattern_node.output}'{index}": step for index, step in enumerate(steps[:count])
            }
            start = steps[count - 1].args["input"] if count else value
            next_state = {**bindings, pattern_node.output: value}, {**nodes, **passed_nodes}, tests
            yield from self._match_operand(operand, start, next_state, user)

    def _match_none_branch(
        self, pattern_node: PatternNode, value: Value, state: State
    ) -> Iterator[State]:
        """Yield the states in which an optional node is skipped where its operand is None.

        That is `if mask is not None: s = s + mask`. The kernel takes the mask, None included, so no
        condition is left.
        """
        if not pattern_node.bypass or len(value.options) != 2:
            return
        for (guard, option), (_, bypassing_option) in (value.options, value.options[::-1]):
            none_test = guard.operand if isinstance(guard, guards.Not) else None
            if option.node is None or not isinstance(none_test, Atom) or none_test.kind != "none":
                continue
            for next_state in self._match_node(pattern_node, option.node, state):
                names = [
                    operand.name
                    for name, operand in pattern_node.args
                    if isinstance(operand, Var) and name != pattern_node.bypass
                ]
                bypassing_operand = dict(pattern_node.args)[pattern_node.bypass]
                bypassing_arguments = [
                    argument
                    for argument in option.node.args.values()
                    if argument is bypassing_option
                ]
                if (
                    [next_state[0][name].key() for name in names] == [none_test.subject]
                    and bypassing_arguments
                    and isinstance(bypassing_operand, Var)
                ):
                    yield next_state[0], next_state[1], (*next_state[2], Skips(option.node))

    # conditions that hold for every rule

    def _with_conditions(self, match: Match) -> Match:
        """Return the match with a condition for each use of an inner value elsewhere that only some
        branch makes.

        It is for matches that need a condition anyway, or whose other uses all are under
        conditions: the original code stays as the other branch. Return the match unchanged where a
        use is not under a condition.
        """
        matched, tests = set(match.nodes), list(match.tests)
        base = match.fast
        for node in match.nodes:
            for guard, use in uses(node.output) if node not in match.roots else ():
                if (
                    use in matched
                    or is_metadata(use)
                    or not guards.satisfiable(guards.conjoin(base, guard))
                ):
                    continue
                unimplied = [
                    conjunct
                    for conjunct in guards.conjuncts(guard)
                    if not guards.implies(base, conjunct)
                ]
                if not unimplied:
                    return match  # used wherever the root is
                condition = guards.negate(
                    unimplied[0] if len(unimplied) == 1 else guards.And(tuple(unimplied))
                )
                tests.append(Holds(condition))
                base = guards.conjoin(base, condition)
        return replace(match, tests=tuple(tests)) if len(tests) > len(match.tests) else match

    def _unsoundness(self, match: Match) -> tuple[str, ast.AST] | None:
        """Return why the kernel may not replace the match, and the syntax node to blame; None where
        it may."""
        matched = set(match.nodes)
        for node in match.nodes:
            if node in match.roots:
                continue
            for use in self._forbidding_uses(match, node):
                if use not in matched and not only_reads_shapes(use, matched):
                    line = getattr(use.expr, "lineno", use.statement.node.lineno)
                    return f"the result of {describe(node)} is also used at line {line}", use.expr
        if any(node.loop != match.root.loop for node in match.nodes):
            return "the nodes are not in the same loop", match.root.expr
        if not guards.satisfiable(guards.merge_readings(match.guard)):
            return "the code runs only where the kernel does not apply", match.root.expr
        return self._override_reason(match)

    def _forbidding_uses(self, match: Match, node: Node) -> tuple[Node, ...]:
        """Return the uses of an inner value that forbid the match, with those by the match
        itself."""
        if match.condition is not guards.TRUE:
            base = match.fast
            return tuple(use for use in uses_under(base, node.output) if not is_metadata(use))
        same_block = node.statement.block == match.root.statement.block
        return node.output.every_use() if same_block else uses_under(match.guard, node.output)

    def _override_reason(self, match: Match) -> tuple[str, ast.AST] | None:
        """Return a reason and a node where a subclass that inherits the method builds another
        layer, else None.

        The subclass would get the kernel, too.
        """
        cls = self.structure.cls
        if cls is None:
            return None
        for node in match.nodes:
            if node.layer is None or node.layer.origin != "path":
                continue
            root = ".".join(node.layer.name.split("[")[0].split(".")[:2])
            own_types = _layer_types(self.structure.layers.get(root, ()))
            for subclass in self.module.subclasses.get(cls.name, ()):
                if (
                    match.body.name not in self.module.methods(subclass)
                    and _layer_types(self.module.layers(subclass).get(root, ())) != own_types
                ):
                    return f"subclass {subclass.name} builds {root} as another layer", node.expr
        return None

    def _unmet_condition(self, predicate: Predicate, match: Match) -> tuple[str, ast.AST] | None:
        """Return why a condition does not hold, and the root; None where it holds or its variables
        are unbound."""
        names = [name for operand in predicate.args for name in variables(operand)]
        if names and match.bindings.keys().isdisjoint(names):
            return None  # it speaks of another alternative, or of a node that is not there
        reason = unmet_reason(predicate, match.bindings, self.structure, self.module)
        return (reason, match.root.expr) if reason else None


def describe(node: Node) -> str:
    """Return a name of a node for messages: its layer, its spelling, or its operation."""
    if node.layer is not None and node.layer.name:
        return node.layer.name
    return node.spelling or node.op


def is_same_value(left: Value, right: Value) -> bool:
    """Return whether two values are certainly equal: one value, one constant, or one path to a
    layer or global."""
    if left is right:
        return True
    if left.const is not MISSING and right.const is not MISSING:
        return type(left.const) is type(right.const) and left.const == right.const
    # other attributes may change between two reads
    fixed_path = left.origin == "path" and left.is_layer
    return (
        left.origin == right.origin
        and (fixed_path or left.origin == "global")
        and left.name == right.name
    )


def _layer_types(layers: tuple[Layer, ...]) -> frozenset[str]:
    """Return the classes or types of layers, to compare two constructors."""
    return frozenset(layer.source or layer.type for layer in layers)


def _has_wanted_name(node: Node, pattern_node: PatternNode) -> bool:
    """Return whether a node's function, layer or operator is the one that the pattern names."""
    if pattern_node.op != "call":
        return (
            not pattern_node.is_glue or not pattern_node.name or node.spelling == pattern_node.name
        )
    name = pattern_node.name
    if name == OWN_CLASS:
        return (
            node.layer is not None
            and node.args.keys() == {"0"}
            and all(map(_is_own, node.layer.layers))
        )
    return node.spelling == name or (
        node.layer is not None and any(layer.type == name for layer in node.layer.layers)
    )


def _is_own(layer: Layer) -> bool:
    """Return whether a layer is of a class that PyTorch does not have."""
    return bool(layer.type) and not layer.choice and table().layer(layer.type) is None


def _can_compute(node: Node, op: str) -> bool:
    """Return whether a call with one argument is of a layer that may turn out to compute `op` at
    run time."""
    if node.op != "call" or node.layer is None or set(node.args) != {"0"}:
        return False
    layers = node.layer.layers
    return any(
        _can_choose(layer, op) if layer.choice else computed_op(layer.type) == op
        for layer in layers
    )


def _can_choose(layer: Layer, op: str) -> bool:
    """Return whether a table may give the operation, or a variant of it, for a key that it may be
    asked for."""
    return any(_can_mean(key.const, op) for key in layer.args["key"].alternatives())


def _can_mean(key: object, op: str) -> bool:
    """Return whether the entry under a key of a table may be the operation.

    A text has to contain a name of the operation; any other key may stand for it.
    """
    names = ("silu", "swish") if op == "silu" else (op,)
    return not isinstance(key, str) or (any(name in key for name in names) and key != f"quick_{op}")


def _default_arguments(op: str) -> dict[str, Value]:
    """Return the defaults of an operation's optional parameters, as constant values."""
    signature = table().operation(op).signatures[0]
    return {
        parameter.name: Value(0, "const", const=parameter.default)
        for parameter in signature
        if parameter.optional
    }


def _unmentioned_argument(pattern_node: PatternNode, node: Node, args: Mapping[str, Value]) -> str:
    """Return why an argument that the pattern does not mention forbids a match; "" where none does.

    Nothing is dropped silently: such an argument must have its default.
    """
    mentioned = {name for name, _ in pattern_node.args}
    if pattern_node.is_glue:
        return "" if mentioned == args.keys() else f"{describe(node)} has another number of parts"
    for name, value in args.items():
        if name in mentioned or name in node.defaults or name.isdigit():
            continue
        default = _default_of(pattern_node.op, name)
        if value.const is MISSING or value.const != default:
            return f"{describe(node)} also has {name}"
    return ""


def _default_of(op: str, name: str) -> object:
    """Return the default of an operation's parameter; MISSING where it has none."""
    for signature in table().operation(op).signatures:
        for parameter in signature:
            if parameter.name == name and parameter.optional:
                return parameter.default
    return MISSING


def _argument_orders(
    pattern_node: PatternNode, args: Mapping[str, Value]
) -> Iterator[Mapping[str, Value]]:
    """Yield the arguments in each order that means the same: operands of commutative operations,
    transposed dims."""
    yield args
    if pattern_node.op in COMMUTATIVE and "input" in args and "other" in args:
        yield {**args, "input": args["other"], "other": args["input"]}
    if pattern_node.op == "transpose" and "dim0" in args and "dim1" in args:
        yield {**args, "dim0": args["dim1"], "dim1": args["dim0"]}


def _bind_constructor(
    layer_pattern: LayerPattern, layer: Layer, bindings: Mapping[str, Value]
) -> Mapping[str, Value] | str:
    """Return the bindings with a constructor's arguments, or why an argument does not fit."""
    layer_type = table().layer(layer_pattern.type)
    defaults = (
        {parameter.name: parameter.default for parameter in layer_type.init if parameter.optional}
        if layer_type
        else {}
    )
    for name, operand in layer_pattern.args:
        value = layer.args.get(name)
        if value is None:
            value = (
                Value(0, "const", const=defaults[name]) if name in defaults else Value(0, "unknown")
            )
        if isinstance(operand, Var):
            bindings = {**bindings, operand.name: value}
        elif not isinstance(operand, Wildcard) and not is_certainly(operand, value):
            return f"{layer.path or layer.type} is built with another {name}"
    return bindings


def _attribute_base(operand: Attr, value: Value) -> Value | None:
    """Return the value of which `value` is the attribute that the operand names; None where it is
    none."""
    attribute = value.attribute()
    if attribute is not None and attribute[1] == operand.name:
        return attribute[0]
    return None
