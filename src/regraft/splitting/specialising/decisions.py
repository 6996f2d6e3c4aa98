"""Decisions in expressions: `and`, `or`, `a if c else b`, chained comparisons, comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from regraft.splitting.program.codes import MUTATORS, method_call, name
from regraft.splitting.program.normal import expand_comprehension
from regraft.splitting.program.possible import TRUTHS, is_truth, narrow, possible_constants
from regraft.splitting.program.records import is_namedtuple
from regraft.splitting.program.residual import Branch, Step, TensorStep, reads
from regraft.splitting.program.values import Names, Value
from regraft.splitting.specialising.either import tested_constant
from regraft.splitting.specialising.indexing import Indexing

LABELS = ("the condition holds", "the condition does not hold")


class Decisions(Indexing):
    """Follows both sides of a decision, and joins what they leave."""

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        first_operand = self.evaluate(node.values[0])
        self.first_operands.append(first_operand)
        try:
            return self.evaluate_bool_op(node, first_operand)
        finally:
            self.first_operands.pop()

    def evaluate_bool_op(self, node: ast.BoolOp, first_operand: Value) -> Value:
        """Evaluate `and` or `or`, given the first operand."""
        remaining = (
            node.values[1] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[1:])
        )
        ast.copy_location(remaining, node.values[1])
        if len(node.values) > 2:
            remaining.asked = is_truth_asked(node)  # type: ignore[attr-defined]
        is_and = isinstance(node.op, ast.And)
        first_truth = self.truth(first_operand)
        if first_truth.kind == "static":
            return (
                self.evaluate(remaining) if bool(first_truth.example) == is_and else first_operand
            )
        first_truth = replace(
            first_truth, truth=first_operand.truth or first_operand.kind == "tensor"
        )
        self.check_only_truth(node, first_operand)
        results: list[Value] = []
        pending = self.pending[-1]
        pending_count, fallible_count = len(pending or ()), self.fallible_operations
        (steps, names), changes = self.track_changes(
            lambda: self.specialise_apart(
                lambda: results.append(self.last_operand(node, remaining)),
                self.names,
                first_truth.code,
                is_and,
            )
        )
        if pending is not None:
            del pending[pending_count:]
        has_only_tensors = all(isinstance(step, TensorStep) for step in steps)
        second = results[0]
        has_one_type = is_truth_asked(node) or type(first_truth.example) is type(second.example)
        # otherwise the second operand has to be skipped where the first decides
        if (
            has_only_tensors
            and not changes
            and self.fallible_operations == fallible_count
            and has_one_type
        ):
            if second.kind == "static" and (
                is_truth_asked(node) or (type(second.example) is bool and is_truth(first_truth))
            ):
                return first_truth if bool(second.example) == is_and else self.static(not is_and)
            self.steps.extend(steps)
            # the first operand narrows names in the second only
            self.names = {
                **names,
                **self.names,
            }
            example = (
                (first_truth.example and second.example)
                if is_and
                else (first_truth.example or second.example)
            )
            among = TRUTHS if is_truth(first_truth) and is_truth(second) else None
            value = Value(
                "host", example, ast.BoolOp(node.op, [first_truth.code, second.code]), among=among
            )
            is_ambiguous = not is_truth_asked(node) and (first_truth.truth or second.truth)
            return replace(self.bind_in_host(value), truth=True) if is_ambiguous else value
        key = self.fresh_name()

        def store_result(value: Value) -> None:
            value = self.as_bool(value) if is_truth_asked(node) else value
            self.keep(key, self.bind_in_host(value) if self.is_size(value) else value)

        def store_second() -> None:
            self.steps, self.names = steps, names
            store_result(results[0])

        skipped = (
            self.static(not is_and)
            if is_truth_asked(node) or type(first_truth.example) is bool
            else first_truth
        )
        sides = [store_second, lambda: store_result(skipped)]
        labels = ["the condition holds", ""] if is_and else ["", "the condition does not hold"]
        value = self.decide_value(node, first_truth, key, sides if is_and else sides[::-1], labels)
        if not reads(first_truth.code) & changes:
            self.implied_tests[key, is_and] = first_truth.code
        return value

    def check_only_truth(self, node: ast.BoolOp, value: Value) -> None:
        """Refuse a numeric tensor as an operand of which more than the truth is used."""
        if is_numeric_tensor(value) and not is_truth_asked(node):
            raise self.refuse(
                node,
                "the value of and and or, where a tensor decides, is not supported; only its truth",
            )

    def last_operand(self, node: ast.BoolOp, remaining: ast.expr) -> Value:
        """Return the last operand, or its truth if it is a tensor."""
        value = self.evaluate(remaining)
        self.check_only_truth(node, value)
        if value.kind in ("static", "host") and not is_truth_asked(node):
            return value
        return replace(self.truth(value), truth=not is_truth_asked(node))

    def as_bool(self, value: Value) -> Value:
        """Return the truth of a value of the host that may be a number or a container."""
        if value.kind == "static":
            return self.static(bool(value.example))
        if type(value.example) is bool:
            return value
        code = ast.Call(name("bool"), [value.code], [])
        return Value("host", bool(value.example), code, bool(value.second_example), among=TRUTHS)

    def on_IfExp(self, node: ast.IfExp) -> Value:
        test = self.truth(self.evaluate(node.test))
        if test.kind == "static":
            return self.evaluate(node.body if test.example else node.orelse)
        key = self.fresh_name()
        sides = [
            lambda: self.keep(key, self.evaluate(node.body)),
            lambda: self.keep(key, self.evaluate(node.orelse)),
        ]
        return self.decide_value(node, test, key, sides)

    def decide_value(
        self,
        node: ast.expr,
        test: Value,
        key: str,
        sides: list[Callable[[], None]],
        labels: Sequence[str] = LABELS,
    ) -> Value:
        """Follow both sides of a decision, and return the value that both store under `key`."""
        self.decide(node, test, sides[0], sides[1], labels)
        if self.names[key].kind == "lost":
            raise self.refuse(node, "the sides of this expression have different types or shapes")
        return self.names[key]

    def on_NamedExpr(self, node: ast.NamedExpr) -> Value:
        key = self.frame.prefix + node.target.id
        value = self.evaluate(node.value)
        old_names = {
            candidate
            for candidate in self.names
            if candidate == key or candidate.startswith(f"{key}__")
        }
        if any(old_names & reads(waiting.code) for waiting in self.pending_values()):
            raise self.refuse(
                node, f"{node.target.id} changes within an expression that reads it, too"
            )
        self.store(node.target, value)
        self.changed_names.add(key)
        return self.evaluate(ast.copy_location(ast.Name(node.target.id, ast.Load()), node))

    def on_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> Value:
        if any(part.is_async for part in node.generators):
            raise self.refuse(node, "an asynchronous comprehension is not supported")
        if any(isinstance(inner_node, ast.Lambda) for inner_node in ast.walk(node)):
            raise self.refuse(node, "a lambda in a comprehension is not supported")
        key = self.fresh_name()
        for statement in expand_comprehension(node, key, f"{key}_"):
            self.statement(statement)
        return self.names[self.frame.prefix + key]

    def on_GeneratorExp(self, node: ast.GeneratorExp) -> Value:
        """Return a list of what a generator gives, if it is used up at once and changes nothing."""
        methods = {
            call.func.attr
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        }
        if getattr(node, "at_once", "") != "call" or methods & MUTATORS:
            raise self.refuse(
                node, "a generator is supported where sum, list or the like use it up at once"
            )
        value, changes = self.track_changes(lambda: self.on_ListComp(node))
        if changes:
            raise self.refuse(node, "a generator that changes something is not supported")
        return value

    def on_DictComp(self, node: ast.DictComp) -> Value:
        key = self.fresh_name()
        for statement in expand_comprehension(node, key, f"{key}_"):
            self.statement(statement)
        return self.names[self.frame.prefix + key]

    def on_Compare(self, node: ast.Compare) -> Value:
        """Evaluate `a < b < c` as `a < b and b < c`, with b computed once."""
        if len(node.ops) == 1:
            return self.evaluate_operator(node)
        parts: list[ast.expr] = [node.left]
        for comparator in node.comparators[:-1]:
            key = self.fresh_name()
            self.store(ast.Name(key, ast.Store()), self.evaluate(comparator))
            parts.append(ast.copy_location(ast.Name(key, ast.Load()), comparator))
        parts.append(node.comparators[-1])
        pairs: list[ast.expr] = [
            ast.copy_location(ast.Compare(left, [op], [right]), node)
            for left, op, right in zip(parts, node.ops, parts[1:], strict=False)
        ]
        conjunction = ast.copy_location(ast.BoolOp(ast.And(), pairs), node)
        conjunction.asked = is_truth_asked(node)  # type: ignore[attr-defined]
        return self.evaluate(conjunction)

    def specialise_apart(
        self,
        walk: Callable[[], None],
        names: Names,
        test: ast.expr | None = None,
        holds: bool = True,
    ) -> tuple[list[Step], Names]:
        """Specialise what `walk` follows apart, where a test holds or not; return its steps and the
        names after it."""
        outer_state, self.steps, self.names = (self.steps, self.names), [], self.fork_names(names)
        try:
            if test is not None:
                self.narrow(test, holds)
            walk()
            return self.steps, self.names
        finally:
            self.steps, self.names = outer_state

    def decide(
        self,
        node: ast.AST,
        test: Value,
        body: Callable[[], None],
        orelse: Callable[[], None],
        labels: Sequence[str] = LABELS,
    ) -> None:
        """Branch on a value of the host: follow both sides, and join what they leave."""
        names = self.names
        sides = [
            self.specialise_apart(walk, names, test.code, walk is body) for walk in (body, orelse)
        ]
        self.merge(sides)
        arms: list[tuple[ast.expr | None, list[Step]]] = [
            (test.code, sides[0][0]),
            (None, sides[1][0]),
        ]
        self.steps.append(Branch(arms, getattr(node, "lineno", 0), self.frame.path, list(labels)))

    def narrow(self, test: ast.expr, holds: bool) -> None:
        """Narrow what the names in a test may hold to what they hold where the test holds, or does
        not."""
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        if isinstance(test, ast.Name) and (test.id, holds) in self.implied_tests:
            self.narrow(self.implied_tests[test.id, holds], holds)
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            for operand in test.values:
                self.narrow(operand, holds)
        for key in reads(test) & self.names.keys():
            self.names[key] = narrow(self.names[key], key, test, holds)
        tested = tested_constant(test)
        value = self.names.get(tested[0]) if tested is not None else None
        if tested is None or value is None or value.kind != "either":
            return
        if tested[1] == holds:
            self.names[tested[0]] = self.static(value.instead)
        else:
            self.names[tested[0]] = self.bind_without_constant(value)

    def truth(self, value: Value) -> Value:
        """Return what `if value` tests, as the host tests it."""
        if self.is_stand_in(value.example):
            return self.static(self.truth_of_stand_in(value.code, value.example))
        if value.kind == "tensor":
            if not isinstance(value.example, torch.Tensor) or value.example.numel() != 1:
                raise self.refuse(value.code, "the truth of several values is ambiguous")
            if self.is_constant_tensor(value):
                # weights and what is made of them stay what they are
                return self.static(bool(value.example))
            among = TRUTHS if value.example.dtype is torch.bool else None
            code = method_call(self.bind_result(value), "item")
            return Value("host", bool(value.example), code, bool(value.second_example), among=among)
        if value.kind == "record":
            is_tuple = is_namedtuple(type(value.example))
            return self.static(
                bool(value.fields)
                if is_tuple
                else self.truth_of_stand_in(value.code, value.example)
            )
        if self.has_length(value):
            return self.static(bool(value.example))
        truths = {bool(constant) for constant in possible_constants(value) or TRUTHS}
        return value if len(truths) > 1 else self.static(truths.pop())


def is_truth_asked(node: ast.expr) -> bool:
    """Return whether only the truth of an expression counts."""
    return getattr(node, "asked", False)


def is_numeric_tensor(value: Value) -> bool:
    """Return whether a value is a tensor of anything but truth values."""
    return value.kind == "tensor" and getattr(value.example, "dtype", None) is not torch.bool
