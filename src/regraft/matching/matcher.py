"""Matching: the unification of a rule's pattern with the value graph of one body."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from regraft.dsl.syntax import Attr, Operand, Predicate, Var, Wildcard
from regraft.matching.arguments import (
    argument_orders,
    attribute_base,
    default_arguments,
    describe_node,
    dimension_conditions,
    is_outdated,
    is_same_value,
    is_same_view,
    is_skipped_on_none,
    none_subject,
    unmentioned_argument,
)
from regraft.matching.constants import is_certainly, operand_text
from regraft.matching.decorated_definitions import marking_objection
from regraft.matching.layer_calls import (
    bind_layer,
    can_be_layer,
    can_compute,
    has_name_of_pattern,
    may_be_passed_whole,
    names_layer,
    possible_inputs,
)
from regraft.matching.necessary_operations import required_calls
from regraft.matching.pattern import Pattern, PatternNode
from regraft.matching.result import Condition, Holds, Match, NoMatch, Skips, Test
from regraft.matching.soundness import unmet_condition, unsoundness, with_conditions
from regraft.matching.uses import is_branching, writes_privately
from regraft.structure.calls import changes_input, own_op
from regraft.structure.library_activations import RUN_TIME_TESTS
from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Body, Node, Structure, Value

State = tuple[Mapping[str, Value], Mapping[str, Node], tuple[Condition, ...]]


def find_matches(
    pattern: Pattern, where: tuple[Predicate, ...], module: Module, structure: Structure, body: Body
) -> Iterable[Match | NoMatch]:
    """Return the results of a pattern in a body, lazily: for each node that may be its first output
    the match, or the nearest miss. Empty where the body lacks an operation or call that the rule
    requires.

    where: the conditions of the rule.
    """
    if not pattern.ops <= body.ops or not _has_calls(tuple(required_calls(pattern, where)), body):
        return ()
    return (
        _Matcher(pattern, where, module, structure, body, root).run()
        for root in _candidates(pattern, body)
    )


def _has_calls(calls: Collection[tuple[str, str]], body: Body) -> bool:
    """Return whether a body has a node of each operation, and a call of the name beside it where
    that is not "".

    calls: (operation, name) of each.
    """
    if not calls:
        return True
    spellings = [node.spelling for node in body.index.get("call", ())]
    called_names = {"", *spellings, *map(own_op, spellings)}
    return all(op in body.index and name in called_names for op, name in calls)


def _split_by_conditions(
    states: Iterable[State], count: int
) -> tuple[Iterator[State], Iterator[State]]:
    """Return the states whose tests after the first `count` do not depend on a branch, and the
    others."""
    unconditional: list[State] = []
    conditional: list[State] = []
    for state in states:
        holds_in_branch = any(isinstance(test, Holds) for test in state[2][count:])
        (conditional if holds_in_branch else unconditional).append(state)
    return iter(unconditional), iter(conditional)


def _candidates(pattern: Pattern, body: Body) -> tuple[Node, ...]:
    """Return the nodes of a body that the first output of a pattern may match: those of its
    operation, and calls that may turn out at run time to compute it."""
    candidates = body.index.get(pattern.anchor.op, ())
    if pattern.anchor.op in RUN_TIME_TESTS:
        candidates = tuple(
            sorted((*candidates, *body.index.get("call", ())), key=lambda node: node.time)
        )
    if pattern.anchor.layer in pattern.passed_whole:
        candidates += tuple(
            node
            for node in body.index.get("call", ())
            if can_be_layer(pattern, pattern.anchor, node)
        )
    return candidates


class _Matcher:
    """The search for a match of a pattern whose first output is the node `root`; `miss` is the
    nearest miss so far."""

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
            for match in dict.fromkeys((unconditional, with_conditions(unconditional))):
                objection = self._objection(match)
                if objection is None:
                    return match
                reason, at = objection
                self._record_miss(len(nodes) + 1, reason, at)
        return self.miss

    def _objection(self, match: Match) -> tuple[str, ast.AST] | None:
        """Return why a match does not count, with the syntax node to blame: it is unsound, a
        condition of the rule is not met, or its definition must not be decorated. None where it
        counts."""
        reason = unsoundness(match, self.module)
        if reason is not None:
            return reason
        for predicate in self.where:
            reason = unmet_condition(predicate, match, self.module)
            if reason is not None:
                return reason
        return marking_objection(match, self.module)

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
        """Store a miss in `self.miss` if more nodes fitted (`depth`) than in the nearest one so
        far."""
        if depth > self.miss.depth:
            self.miss = NoMatch(self.body, self.root, depth, reason, at)

    # unification

    def _match_outputs(
        self, outputs: tuple[str, ...], candidates: Sequence[Node], state: State
    ) -> Iterator[State]:
        """Yield the states in which nodes match the given outputs and all that these are computed
        from.

        candidates: nodes for the first of the outputs; state: what is matched already.
        """
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
        """Return candidates for the next output, all after the node `last`: nodes that take a value
        to which a variable is bound already; where there is none, all nodes of the operation."""
        if not outputs:
            return ()
        pattern_node, bindings = self.pattern.producers[outputs[0]], state[0]
        bound_values = [
            bindings[operand.name]
            for _, operand in pattern_node.args
            if isinstance(operand, Var) and operand.name in bindings
        ]
        if not bound_values:
            nodes = self.body.index.get(pattern_node.op, ())
            return [node for node in nodes if node.time > last.time]
        users = dict.fromkeys(use for value in bound_values for use in value.uses)
        return [
            use for use in users if use.time > last.time and self._may_be_node(pattern_node, use)
        ]

    def _may_be_node(self, pattern_node: PatternNode, node: Node) -> bool:
        """Return whether a node has the pattern's operation, or may turn out to have it."""
        return node.op == pattern_node.op or may_be_passed_whole(self.pattern, pattern_node, node)

    def _match_node(self, pattern_node: PatternNode, node: Node, state: State) -> Iterator[State]:
        """Yield the states, extensions of `state`, in which `node` and the nodes that compute its
        arguments match a node of the pattern; record a miss where the operation, the layer or an
        argument differs."""
        bindings, nodes, tests = state
        if pattern_node.output in nodes:
            if nodes[pattern_node.output] is node:
                yield state
            return
        is_private_write = node.op == f"{pattern_node.op}_" and writes_privately(node)
        reading = self._read_as(pattern_node, node, is_private_write)
        if reading is None:
            reason = f"expected {pattern_node.op}, found {describe_node(node)}"
            self._record_miss(len(nodes), reason, node.expr)
            return
        args, new_tests = reading
        if node.op != "call" and not is_private_write and changes_input(node.op, node.args):
            reason = f"{describe_node(node)} changes its input in place"
            self._record_miss(len(nodes), reason, node.expr)
            return
        reason, bindings = self._bind_settings(pattern_node, node, args, bindings)
        if reason:
            self._record_miss(len(nodes), reason, node.expr)
            return
        nodes = {**nodes, pattern_node.output: node}
        bindings = {**bindings, pattern_node.output: node.output}
        next_state = bindings, nodes, (*tests, *new_tests)
        for order in argument_orders(pattern_node, node, args):
            yield from self._match_arguments(list(pattern_node.args), order, next_state, node)

    def _read_as(
        self, pattern_node: PatternNode, node: Node, is_private_write: bool
    ) -> tuple[Mapping[str, Value], tuple[Test, ...]] | None:
        """Return the arguments of a node as those of the pattern's operation, and the tests that
        tell when the model runs that it is this operation; None where it is another one."""
        has_op = node.op == pattern_node.op or is_private_write
        if has_op and has_name_of_pattern(node, pattern_node):
            return node.args, ()
        if may_be_passed_whole(self.pattern, pattern_node, node):
            return possible_inputs(node, pattern_node) or {}, ()
        predicate = RUN_TIME_TESTS.get(pattern_node.op)
        if predicate is None or node.layer is None or not can_compute(node, pattern_node.op):
            return None
        args = {"input": node.args["0"], **default_arguments(pattern_node.op)}
        return args, (Test(predicate, node.layer),)

    def _bind_settings(
        self,
        pattern_node: PatternNode,
        node: Node,
        args: Mapping[str, Value],
        bindings: Mapping[str, Value],
    ) -> tuple[str, Mapping[str, Value]]:
        """Check the layer of a node and the arguments that the pattern does not mention.

        Return why these do not fit, "" where they do, and the bindings with those of the layer.
        """
        if names_layer(pattern_node):
            reason, bindings = bind_layer(self.pattern, pattern_node, node, bindings)
            if reason:
                return reason, bindings
        if pattern_node.any_settings:
            return "", bindings
        return unmentioned_argument(pattern_node, node, args), bindings

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
        bindings, nodes, tests = state
        if name not in args:
            self._record_miss(
                len(nodes), f"{describe_node(node)} has no argument {name}", node.expr
            )
            return
        conditions = dimension_conditions(operand, name, args)
        if conditions is not None:
            next_state = bindings, nodes, (*tests, *conditions)
            yield from self._match_arguments(later_operands, args, next_state, node)
            return
        for next_state in self._match_operand(operand, args[name], state, node):
            yield from self._match_arguments(later_operands, args, next_state, node)

    def _match_operand(
        self, operand: Operand, value: Value, state: State, node: Node
    ) -> Iterator[State]:
        """Yield the states in which a value, an argument of `node`, matches an operand: a wildcard,
        a variable, an attribute, or a constant; record a miss where it does not."""
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
            elif is_same_value(bound_value, value) or is_same_view(bound_value, value, self.body):
                yield state
            else:
                reason = f"${operand.name} would stand for two different values"
                self._record_miss(len(nodes), reason, node.expr)
        elif isinstance(operand, Attr):
            yield from self._match_attribute(operand, value, state, node)
        elif is_certainly(operand, value):
            yield state
        else:
            reason = f"an argument of {describe_node(node)} is not {operand_text(operand)}"
            self._record_miss(len(nodes), reason, node.expr)

    def _match_attribute(
        self, operand: Attr, value: Value, state: State, node: Node
    ) -> Iterator[State]:
        """Yield the states in which a value, an argument of `node`, is an attribute of what matches
        the operand's base; record a miss where it is not."""
        base, count = attribute_base(operand, value), len(state[1])
        if base is None:
            reason = f"an argument of {describe_node(node)} is not .{operand.name}"
            self._record_miss(count, reason, node.expr)
        elif is_outdated(value, node, self.body):
            reason = f"the {operand.name} that {describe_node(node)} takes may have changed since"
            self._record_miss(count, reason, node.expr)
        else:
            yield from self._match_operand(operand.base, base, state, node)

    def _match_producer(
        self, pattern_node: PatternNode, value: Value, state: State, user: Node
    ) -> Iterator[State]:
        """Yield the states in which a value matches the output of a pattern's node.

        The value is the node's output directly or in one branch of several, or bypasses an optional
        node. States in which all branches bypass it come before those that hold in one branch.
        """
        bindings, nodes, tests = state
        if pattern_node.skip:
            yield from self._match_skip(pattern_node, value, state, user)
            return
        bypassing = self._match_bypass(pattern_node, value, state, user)
        if value.origin == "phi" and is_branching(value):
            yield from self._match_none_branch(pattern_node, value, state)
            unconditional, bypassing = _split_by_conditions(bypassing, len(tests))
            yield from unconditional
            for guard, option in value.options:
                yield from self._match_producer(
                    pattern_node, option, (bindings, nodes, (*tests, Holds(guard))), user
                )
        elif value.node is None or value.origin == "phi":
            is_joined = value.origin == "phi"
            reason = "depends on which branch was taken" if is_joined else "is not computed here"
            self._record_miss(len(nodes), f"the input of {describe_node(user)} {reason}", user.expr)
        else:
            yield from self._match_node(pattern_node, value.node, state)
        yield from bypassing

    def _match_bypass(
        self, pattern_node: PatternNode, value: Value, state: State, user: Node
    ) -> Iterator[State]:
        """Yield the states in which an optional node is left out and a value matches its operand;
        nothing for a node that has to be there."""
        if pattern_node.bypass:
            bindings, nodes, tests = state
            operand = dict(pattern_node.args)[pattern_node.bypass]
            yield from self._match_operand(
                operand, value, ({**bindings, pattern_node.output: value}, nodes, tests), user
            )

    def _match_skip(
        self, pattern_node: PatternNode, value: Value, state: State, user: Node
    ) -> Iterator[State]:
        """Yield the states in which `value` is the result of a chain of operations that the
        pattern's `skip` names, applied to what matches its operand: with all of the chain passed
        over, then with one less, down to none."""
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
        for (guard, option), (_, bypassing) in (value.options, value.options[::-1]):
            subject = none_subject(guard)
            if option.node is None or subject is None:
                continue
            for bindings, nodes, tests in self._match_node(pattern_node, option.node, state):
                if is_skipped_on_none(pattern_node, option.node, bypassing, bindings, subject):
                    yield bindings, nodes, (*tests, Skips(option.node))
