"""Decisions in expressions: `and`, `or`, `a if c else b`, chained comparisons, comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from regraft.splitting.codes import MUTATORS, method_call, name
from regraft.splitting.either import asked_of
from regraft.splitting.indexing import Indexing
from regraft.splitting.normal import comprehension
from regraft.splitting.possible import TRUTHS, is_truth, narrowed, possible
from regraft.splitting.records import is_namedtuple
from regraft.splitting.residual import Branch, Step, TensorStep, reads
from regraft.splitting.values import Names, Value

LABELS = ("the condition holds", "the condition does not hold")


class Decisions(Indexing):
    """Both sides of a decision are followed, and what they leave is joined."""

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        first = self.evaluate(node.values[0])
        self.tests.append(first)
        try:
            return self.both(node, first)
        finally:
            self.tests.pop()

    def both(self, node: ast.BoolOp, first: Value) -> Value:
        """`and` and `or`, given the first operand."""
        rest = node.values[1] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[1:])
        ast.copy_location(rest, node.values[1])
        if len(node.values) > 2:
            rest.asked = asked(node)  # type: ignore[attr-defined]
        both = isinstance(node.op, ast.And)
        left = self.truth(first)
        if left.kind == "static":
            return self.evaluate(rest) if bool(left.example) == both else first
        left = replace(left, truth=first.truth or first.kind == "tensor")
        self.only_truth(node, first)
        found: list[Value] = []
        pending = self.pending[-1]
        before, fallible = len(pending or ()), self.fallible
        (steps, names), visible = self.changing(
            lambda: self.apart(lambda: found.append(self.operand(node, rest)), self.names, left.code, both)
        )
        if pending is not None:
            del pending[before:]
        tensors = all(isinstance(one, TensorStep) for one in steps)
        last = found[0]
        one_type = asked(node) or type(left.example) is type(last.example)
        if tensors and not visible and self.fallible == fallible and one_type:  # else it has to be skipped
            if last.kind == "static" and (asked(node) or (type(last.example) is bool and is_truth(left))):
                return left if bool(last.example) == both else self.static(not both)
            self.steps.extend(steps)
            self.names = {**names, **self.names}  # what the first operand says of them holds in the second only
            example = (left.example and last.example) if both else (left.example or last.example)
            among = TRUTHS if is_truth(left) and is_truth(last) else None
            value = Value("host", example, ast.BoolOp(node.op, [left.code, last.code]), among=among)
            unsure = not asked(node) and (left.truth or last.truth)
            return replace(self.held_by_host(value), truth=True) if unsure else value
        key = self.fresh()

        def keep(value: Value) -> None:
            value = self.as_bool(value) if asked(node) else value
            self.keep(key, self.held_by_host(value) if self.is_size(value) else value)

        def asked_for() -> None:
            self.steps, self.names = steps, names
            keep(found[0])

        skipped = self.static(not both) if asked(node) or type(left.example) is bool else left
        sides = [asked_for, lambda: keep(skipped)]
        labels = ["the condition holds", ""] if both else ["", "the condition does not hold"]
        value = self.decided(node, left, key, sides if both else sides[::-1], labels)
        if not reads(left.code) & visible:
            self.implied[key, both] = left.code
        return value

    def only_truth(self, node: ast.BoolOp, value: Value) -> None:
        """Refuse an operand whose value would be asked for."""
        if is_value(value) and not asked(node):
            raise self.refuse(
                node, "the value of and and or, where a tensor decides, is not supported; only its truth"
            )

    def operand(self, node: ast.BoolOp, rest: ast.expr) -> Value:
        """The last operand; of a tensor its truth."""
        value = self.evaluate(rest)
        self.only_truth(node, value)
        if value.kind in ("static", "host") and not asked(node):
            return value
        return replace(self.truth(value), truth=not asked(node))

    def as_bool(self, value: Value) -> Value:
        """The truth of a value of the host, where it may be a number or a container."""
        if value.kind == "static":
            return self.static(bool(value.example))
        if type(value.example) is bool:
            return value
        code = ast.Call(name("bool"), [value.code], [])
        return Value("host", bool(value.example), code, bool(value.other), among=TRUTHS)

    def on_IfExp(self, node: ast.IfExp) -> Value:
        test = self.truth(self.evaluate(node.test))
        if test.kind == "static":
            return self.evaluate(node.body if test.example else node.orelse)
        key = self.fresh()
        sides = [lambda: self.keep(key, self.evaluate(node.body)), lambda: self.keep(key, self.evaluate(node.orelse))]
        return self.decided(node, test, key, sides)

    def decided(
        self, node: ast.expr, test: Value, key: str, sides: list[Callable[[], None]], labels: Sequence[str] = LABELS
    ) -> Value:
        """The value that both sides keep under `key`."""
        self.decide(node, test, sides[0], sides[1], labels)
        if self.names[key].kind == "lost":
            raise self.refuse(node, "the sides of this expression have different types or shapes")
        return self.names[key]

    def on_NamedExpr(self, node: ast.NamedExpr) -> Value:
        key = self.frame.prefix + node.target.id
        value = self.evaluate(node.value)
        old = {one for one in self.names if one == key or one.startswith(f"{key}__")}
        if any(old & reads(one.code) for one in self.waiting()):
            raise self.refuse(node, f"{node.target.id} changes within an expression that reads it, too")
        self.store(node.target, value)
        self.changed.add(key)
        return self.evaluate(ast.copy_location(ast.Name(node.target.id, ast.Load()), node))

    def on_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> Value:
        if any(part.is_async for part in node.generators):
            raise self.refuse(node, "an asynchronous comprehension is not supported")
        if any(isinstance(one, ast.Lambda) for one in ast.walk(node)):
            raise self.refuse(node, "a lambda in a comprehension is not supported")
        key = self.fresh()
        for statement in comprehension(node, key, f"{key}_"):
            self.statement(statement)
        return self.names[self.frame.prefix + key]

    def on_GeneratorExp(self, node: ast.GeneratorExp) -> Value:
        """A list of what it gives, where it is used up at once and changes nothing."""
        methods = {one.func.attr for one in ast.walk(node) if isinstance(one, ast.Call)
                   and isinstance(one.func, ast.Attribute)}  # fmt: skip
        if getattr(node, "at_once", "") != "call" or methods & MUTATORS:
            raise self.refuse(node, "a generator is supported where sum, list or the like use it up at once")
        value, changed = self.changing(lambda: self.on_ListComp(node))
        if changed:
            raise self.refuse(node, "a generator that changes something is not supported")
        return value

    def on_DictComp(self, node: ast.DictComp) -> Value:
        key = self.fresh()
        for statement in comprehension(node, key, f"{key}_"):
            self.statement(statement)
        return self.names[self.frame.prefix + key]

    def on_Compare(self, node: ast.Compare) -> Value:
        """`a < b < c` is `a < b and b < c`, with b computed once."""
        if len(node.ops) == 1:
            return self.composed(node)
        parts: list[ast.expr] = [node.left]
        for one in node.comparators[:-1]:
            key = self.fresh()
            self.store(ast.Name(key, ast.Store()), self.evaluate(one))
            parts.append(ast.copy_location(ast.Name(key, ast.Load()), one))
        parts.append(node.comparators[-1])
        pairs: list[ast.expr] = [
            ast.copy_location(ast.Compare(left, [op], [right]), node)
            for left, op, right in zip(parts, node.ops, parts[1:], strict=False)
        ]
        made = ast.copy_location(ast.BoolOp(ast.And(), pairs), node)
        made.asked = asked(node)  # type: ignore[attr-defined]
        return self.evaluate(made)

    def apart(
        self, walk: Callable[[], None], names: Names, test: ast.expr | None = None, holds: bool = True
    ) -> tuple[list[Step], Names]:
        """Specialise something apart, where a test holds or does not: its steps, and the names after it."""
        outer, self.steps, self.names = (self.steps, self.names), [], self.forked(names)
        try:
            if test is not None:
                self.narrow(test, holds)
            walk()
            return self.steps, self.names
        finally:
            self.steps, self.names = outer

    def decide(
        self, node: ast.AST, test: Value, body: Callable[[], None], other: Callable[[], None],
        labels: Sequence[str] = LABELS,
    ) -> None:  # fmt: skip
        """A branch on a value of the host: both sides are followed, and what they leave is joined."""
        names = self.names
        sides = [self.apart(walk, names, test.code, walk is body) for walk in (body, other)]
        self.merge(sides)
        arms: list[tuple[ast.expr | None, list[Step]]] = [(test.code, sides[0][0]), (None, sides[1][0])]
        self.steps.append(Branch(arms, getattr(node, "lineno", 0), self.frame.path, list(labels)))

    def narrow(self, test: ast.expr, holds: bool) -> None:
        """What may be a constant is it, or is not, where that has been asked."""
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        if isinstance(test, ast.Name) and (test.id, holds) in self.implied:
            self.narrow(self.implied[test.id, holds], holds)
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            for one in test.values:
                self.narrow(one, holds)
        for key in reads(test) & self.names.keys():
            self.names[key] = narrowed(self.names[key], key, test, holds)
        asked = asked_of(test)
        value = self.names.get(asked[0]) if asked is not None else None
        if asked is None or value is None or value.kind != "either":
            return
        if asked[1] == holds:
            self.names[asked[0]] = self.static(value.instead)
        else:
            self.names[asked[0]] = self.unveiled(value)

    def truth(self, value: Value) -> Value:
        """What `if value` asks, as the host asks it."""
        if self.is_made(value.example):
            return self.static(self.made_truth(value.code, value.example))
        if value.kind == "tensor":
            if not isinstance(value.example, torch.Tensor) or value.example.numel() != 1:
                raise self.refuse(value.code, "the truth of several values is ambiguous")
            if self.is_known(value):
                return self.static(bool(value.example))  # weights and what is made of them stay what they are
            among = TRUTHS if value.example.dtype is torch.bool else None
            code = method_call(self.held(value), "item")
            return Value("host", bool(value.example), code, bool(value.other), among=among)
        if value.kind == "record":
            named = is_namedtuple(type(value.example))
            return self.static(bool(value.fields) if named else self.made_truth(value.code, value.example))
        if self.has_length(value):
            return self.static(bool(value.example))
        truths = {bool(one) for one in possible(value) or TRUTHS}
        return value if len(truths) > 1 else self.static(truths.pop())


def asked(node: ast.expr) -> bool:
    """Whether only the truth of an expression counts."""
    return getattr(node, "asked", False)


def is_value(value: Value) -> bool:
    """Whether it is a tensor of more than truth values."""
    return value.kind == "tensor" and getattr(value.example, "dtype", None) is not torch.bool
