"""The checks of a match whose rewriting may change or hide what the program does."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

from regraft.matching.result import Match
from regraft.matching.shared_memory_of_tensors import (
    SHARING_OPS,
    freshly_written_values,
    possible_sources,
)
from regraft.rewriting.withheld import Withheld
from regraft.source.imports import Imports
from regraft.source.text import Span
from regraft.structure import guards
from regraft.structure.calls import writes
from regraft.structure.guards import Atom
from regraft.structure.values_and_nodes import Node, Value

_HOOK_REGISTRATION = re.compile(
    rb"\.register_(?:module_)?(?:forward|full_backward|backward)\w*hook"
)
# Kernels whose result may be written into: it is new memory, and none of their implementations is
# differentiated by it. A postponed tensor is computed before that. Folded layers end in a
# convolution or in the product of a Linear layer; where nothing is folded, the layers themselves
# run.
_WRITABLE_RESULTS = (
    "regraft.ops.attention_without_weights",
    "regraft.ops.conv_batch_norm",
    "regraft.ops.conv_of_patches",
    "regraft.ops.gated_halves",
    "regraft.ops.interleaved_rotary",
    "regraft.ops.linear_at",
    "regraft.ops.linear_batch_norm",
    "regraft.ops.linear_of_parts",
    "regraft.ops.one_hot_",
    "regraft.ops.postponed_",
    "regraft.ops.rms_normalize",
    "regraft.ops.rolled_rotary",
    "regraft.ops.sorted_head",
    "regraft.ops.sorted_indices",
    "regraft.ops.squared_distances",
    "regraft.ops.unfold_",
    "torch.nn.functional.gelu",
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.silu",
)


class MatchChecks:
    """One match in its file, and the checks that raise Withheld where it must not be rewritten.
    They return None and change nothing.

    root     the matched node that computes the output, the last one of several
    matched  the nodes of the match
    """

    def __init__(self, match: Match, imports: Imports) -> None:
        self.match, self.imports, self.source = match, imports, imports.source
        self.root = match.root
        self.matched = frozenset(match.nodes)

    def _withholding(self, reason: str, node: Node) -> Withheld:
        """Return the Withheld, for the caller to raise, with a reason and the line of a node."""
        return Withheld(reason, getattr(node.expr, "lineno", node.statement.node.lineno))

    def _check_places(self, root: ast.expr, node: Node) -> None:
        """Raise Withheld where a node cannot be replaced at its place: a call is matched in part,
        it stands in an f-string or beside `:=`, `yield` or `await`, a comment is inside, its result
        is changed in place later, the kernel leaves a layer out that may have hooks, TorchScript
        compiles the function, or the file cannot import the kernel.

        root  the expression of the node, whose text is checked for comments
        """
        self._check_compound()
        self._check_enclosing_expressions(root, node)
        for elided in self._elided_layer_nodes():
            self._check_elided_layer(elided)
        self._check_comments(self.source.span(root), node)
        self._check_writes(node)
        if self.match.body.compiled:
            reason = "TorchScript compiles this function, and would have to compile the kernel"
            raise self._withholding(reason, self.root)
        if self.imports.obstacle:
            raise self._withholding(self.imports.obstacle, self.root)

    def _check_enclosing_expressions(self, root: ast.expr, node: Node) -> None:
        """Raise Withheld where the expression `root` is inside an f-string, or the statement of its
        node contains `:=`, `yield` or `await`."""
        for outer in _special_parts(node.statement.node):
            if isinstance(outer, ast.JoinedStr) and any(inner is root for inner in ast.walk(outer)):
                raise self._withholding("inside an f-string", node)
            if not isinstance(outer, ast.JoinedStr):
                raise self._withholding(f"the statement holds a {type(outer).__name__}", node)

    def _check_elided_layer(self, elided: Node) -> None:
        """Raise Withheld for the call of a layer that the kernel leaves out, where the file
        registers hooks, which may be on it, or sets a layer of this name on an object other than
        `self`."""
        layer_name = elided.layer.name if elided.layer is not None else ""
        name = layer_name.split("[")[0].rpartition(".")[2]
        if _HOOK_REGISTRATION.search(self.source.text):
            raise self._withholding(
                f"the file registers hooks, which may be on {name}, which is no longer called",
                elided,
            )
        if self._is_set_outside(name.encode()):
            raise self._withholding(
                f"another object's {name} is set in this file: its type is not certain", elided
            )

    def _check_writes(self, root: Node) -> None:
        """Raise Withheld where the result of `root`, or a value that may share its memory, is
        changed in place afterwards, because a kernel may keep its result for the backward pass.

        Kernels whose result may be written into are excepted.
        """
        if self.match.pattern.kernel.startswith(_WRITABLE_RESULTS):
            return
        visited, pending = {root.output}, [root.output]
        while pending and self.match.body.writers:
            value = pending.pop()
            for use in value.every_use():
                if writes(use) and _has_as_target(use, value):
                    raise self._withholding("the result is changed in place afterwards", use)
                if use.op in SHARING_OPS and use.output not in visited:
                    visited.add(use.output)
                    pending.append(use.output)

    def _is_set_outside(self, name: bytes) -> bool:
        """Return whether the file assigns to an attribute of this name on an object other than
        `self`, also by `setattr`; a search of the text."""
        text = self.source.text
        for assignment in re.finditer(rb"\.%s\s*=(?!=)" % re.escape(name), text):
            if not re.search(
                rb"(?<![\w.])self$", text[max(assignment.start() - 5, 0) : assignment.start()]
            ):
                return True
        return (
            re.search(rb"setattr\((?!\s*self\b)[^,\n]*,\s*[\"']%s\b" % re.escape(name), text)
            is not None
        )

    def _check_compound(self) -> None:
        """Raise Withheld where a call that computes several nodes, of a `Sequential` or an inlined
        function, is matched in part only: it is replaced as a unit or not at all. Also raise it
        where a method of `self` that only passes a matched value on would no longer be called."""
        for expr, value in self.match.body.compound.items():
            name = self.match.body.inlined.get(expr) or ""
            matched_nodes = [node for node in self.match.nodes if node.expr is expr]
            if not matched_nodes:
                self._check_passing_method(expr, name)
            elif name or not any(_is_whole_call(node, value) for node in matched_nodes):
                self._check_matched_call(expr, value, matched_nodes)

    def _check_matched_call(
        self, expr: ast.AST, value: Value, matched_nodes: Sequence[Node]
    ) -> None:
        """Raise Withheld where a call that computes `value` by several nodes cannot be replaced: a
        call of a Sequential, of a method of `self`, or of a function that computes more than the
        rule covers.

        matched_nodes  those of its nodes that are matched, at least one
        """
        body, first = self.match.body, matched_nodes[0]
        name = body.inlined.get(expr)
        if name is None or any(node.member for node in matched_nodes):
            raise self._withholding("the layers are inside one nn.Sequential call", first)
        if name.startswith("self."):
            reason = f"{name}, which a subclass may override, would no longer be called"
            raise self._withholding(reason, first)
        unmatched_nodes = [
            node for node in body.nodes if node.expr is expr and node not in self.matched
        ]
        is_inner = self.root not in matched_nodes and value.node in self.matched
        is_complete = is_inner or self.root.output is value or self._returns_output_or_input(value)
        if not is_complete or any(map(self._has_work, unmatched_nodes)):
            reason = f"{name} computes more than the rule covers, or a part of it"
            raise self._withholding(reason, first)

    def _returns_output_or_input(self, value: Value) -> bool:
        """Return whether `value`, the result of an inlined function, is the output of the root in
        some branch, and in every other one the input that the kernel returns under the same
        condition (`returned_for` of the rule). False where the rule has no such condition."""
        returned, bindings = self.match.pattern.returned, self.match.bindings
        if returned is None or not value.options:
            return False
        source, other, constant = returned
        condition = Atom("eq", bindings[other].key(), constant)
        options = [option for _, option in value.options]
        return self.root.output in options and all(
            option is self.root.output
            or (option is bindings[source] and guards.implies(guard, condition))
            for guard, option in value.options
        )

    def _check_passing_method(self, expr: ast.AST, name: str) -> None:
        """Raise Withheld where the inlined call `expr` of the method `name` of `self` only passes a
        matched value on to matched nodes, and would no longer be called: a subclass may override
        it."""
        value = self.match.body.compound[expr]
        between = any(
            value is argument for node in self.match.nodes for argument in node.args.values()
        )
        if name.startswith("self.") and between and value.node in self.matched:
            raise self._withholding(
                f"{name}, which a subclass may override, would no longer be called", self.root
            )

    def _has_work(self, node: Node) -> bool:
        """Return whether a node that is not matched has an effect or computes something, instead of
        only passing values on (`py.*`)."""
        return node.effect or not node.op.startswith("py.")

    def _elided_layer_nodes(self) -> list[Node]:
        """Return the matched nodes that call a layer which the kernel is not given as an
        argument."""
        passed_values = {value for value in self.match.bindings.values() if value.kind == "module"}
        return [
            node
            for node in self.match.nodes
            if node.layer is not None and node.layer not in passed_values
        ]

    def _check_comments(self, span: Span, node: Node) -> None:
        """Raise Withheld, with the line of `node`, where a comment of the file touches the span."""
        if any(span.touches(comment) for comment in self.source.comments_near(span)):
            raise self._withholding("a comment stands inside the code that would change", node)

    def _check_effects(self) -> None:
        """Raise Withheld where an unmatched node with an effect runs between the first matched node
        and the root. Inner nodes move to the root's place: what stands in between must neither
        change nor show what they compute."""
        first = min(node.time for node in self.match.nodes)
        for node in self.match.between(first, self.root.time):
            if node.effect and not self._is_write_elsewhere(node):
                line = getattr(node.expr, "lineno", node.statement.node.lineno)
                description = (
                    node.spelling or (node.layer.name if node.layer is not None else "") or "a call"
                )
                raise Withheld(
                    f"{description} at line {line} stands between the nodes and may have effects",
                    line,
                )

    def _is_write_elsewhere(self, node: Node) -> bool:
        """Return whether a node only writes into tensors that are new, and that no matched value
        may be or be a view of."""
        if not writes(node) or node.random or node.layer is not None:
            return False
        written = freshly_written_values(node)
        matched = [value for inner in self.match.nodes for value in inner.args.values()]
        values = [*matched, *self.match.bindings.values()]
        return bool(written) and all(written.isdisjoint(possible_sources(v)) for v in values)


def _is_whole_call(node: Node, value: Value) -> bool:
    """Return whether a node with the output `value` is a call of a module that may be a Sequential;
    the kernel is given the module whole."""
    return node.op == "call" and node.output is value


def _has_as_target(node: Node, value: Value) -> bool:
    """Return whether the first argument of a node is `value`, or a value of several branches that
    may be it."""
    target = next(iter(node.args.values()), None)
    visited, pending = set(), [target] if target is not None else []
    while pending:
        option = pending.pop()
        if option is value:
            return True
        if option not in visited:
            visited.add(option)
            pending += [inner for _, inner in option.options]
    return False


@functools.lru_cache(maxsize=64)
def _special_parts(statement: ast.AST) -> tuple[ast.AST, ...]:
    """Return the f-strings, `:=`, `yield` and `await` in a statement, outer ones first; cached for
    the last 64 statements."""
    kinds = (ast.JoinedStr, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
    return tuple(part for part in ast.walk(statement) if isinstance(part, kinds))
