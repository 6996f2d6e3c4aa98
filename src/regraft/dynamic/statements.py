"""Statements: branches are followed down both sides, loops over known things are unrolled, what meets is joined."""

from __future__ import annotations

import ast
from typing import Any

import torch

from regraft.dynamic.calls import Calls
from regraft.dynamic.expressions import Choice, assign, name
from regraft.dynamic.normal import holds, tails
from regraft.dynamic.residual import Branch, HostStep, Loop, Step, TensorStep, leaves, writes
from regraft.dynamic.values import Names, Value, fork, literal, same_type

GRADIENTS = (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.set_grad_enabled)
UNROLLED = 4096  # iterations of one loop


class Statements(Calls):
    """Walks statements; what is left of them goes to `steps`."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.depth = 0
        self.loops: list[list[tuple[list[Step], Names]] | None] = []

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if leaves(self.steps):
                return
            self.statement(statement)

    def branch(self, statements: list[ast.stmt], names: Names) -> tuple[list[Step], Names]:
        """Specialise statements apart: their steps, and the names after them."""
        return self.apart(lambda: self.block(statements), names)

    def statement(self, node: ast.stmt) -> None:
        handler = getattr(self, f"do_{type(node).__name__}", None)
        if handler is None:
            raise self.refuse(node, f"{type(node).__name__} is not supported in a network that is split")
        steps, names = list(self.steps), fork(self.names)
        try:
            handler(node)
        except Choice as choice:
            self.steps[:], self.names = steps, names
            self.choose(node, choice)

    def choose(self, node: ast.stmt, choice: Choice) -> None:
        """One arm for each module that the index may name."""
        index = choice.index.code
        if not isinstance(index, ast.Name):
            raise self.refuse(node, "give the index of the module a name first: i = int(...)")
        arms: list[tuple[ast.expr | None, list[Step]]] = []
        ends = []
        for number in range(choice.number):
            names = {**self.names, index.id: Value("static", number, ast.Constant(number))}
            steps, after = self.branch([node], names)
            arms.append((ast.Compare(index, [ast.Eq()], [ast.Constant(number)]), steps))
            ends.append((steps, after))
        self.merge(ends)
        message = ast.parse(f"raise IndexError({index.id})").body[0]
        labels = [*(f"{index.id} is {number}" for number in range(choice.number)), "no module has this index"]
        self.steps.append(Branch([*arms, (None, [HostStep(message)])], node.lineno, self.frame.path, labels))

    # -- joins

    def merge(self, ends: list[tuple[list[Step], Names]], stay: bool = True) -> None:
        """The names after paths that meet; what differs but is plain becomes a variable of the host."""
        ends = [(steps, names) for steps, names in ends if not (stay and leaves(steps))]
        if not ends:
            return
        joined: Names = {}
        for key in ends[0][1]:
            if all(key in names for _, names in ends):
                joined[key] = self.join(key, [(steps, names[key]) for steps, names in ends])
        self.names = joined

    def join(self, key: str, found: list[tuple[list[Step], Value]]) -> Value:
        values = [value for _, value in found]
        first = values[0]
        kinds = {value.kind for value in values}
        if kinds == {"static"} and all(same_constant(first.example, value.example) for value in values):
            return first
        longest = max(values, key=lambda value: len(value.example) if isinstance(value.example, list) else 0)
        alike = all(same_type(longest.example, value.example) for value in values)
        if kinds == {"tensor"} and alike:
            return first
        plain = all(value.kind != "static" or literal(value.example) is not None for value in values)
        if kinds <= {"static", "host"} and alike and plain:
            for steps, value in found:
                if value.kind == "static":
                    steps.insert(len(steps) - leaves(steps), HostStep(assign(key, value.code)))
            return Value("host", longest.example, name(key))
        return Value("lost", None, name(key))

    # -- statements

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        value = self.evaluate(node.value)
        if value.kind == "host":
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Expr(value.code))))

    def do_Assert(self, node: ast.Assert) -> None:
        test = self.evaluate(node.test)
        if test.kind != "static" or not test.example:
            raise self.refuse(node, "an assertion about values is not supported")

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.store(target, value)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.evaluate(node.value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.refuse(node, "an augmented assignment to anything but a name changes something in place")
        old = self.evaluate(ast.copy_location(ast.Name(node.target.id, ast.Load()), node))
        shared = [v for v in self.names.values() if v.example is old.example]
        if isinstance(old.example, (torch.Tensor, list)) and (len(shared) > 1 or old.kind != "tensor"):
            raise self.refuse(node, f"{node.target.id} is changed in place while something else may hold it")
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        self.store(node.target, self.evaluate(ast.copy_location(value, node)))

    def store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value)
            return
        if not isinstance(target, ast.Name):
            raise self.refuse(
                target, "assigning to an attribute or an element is not supported in a network that is split"
            )
        key = self.frame.prefix + target.id
        if value.kind == "static":
            self.names[key] = value
            return
        step = TensorStep if value.kind == "tensor" else HostStep
        self.steps.append(step(assign(key, value.code)))
        self.names[key] = Value(value.kind, value.example, name(key))

    def unpack(self, target: ast.Tuple | ast.List, value: Value) -> None:
        parts = list(value.example) if isinstance(value.example, (tuple, list, torch.Tensor)) else None
        if parts is None or len(parts) != len(target.elts) or any(isinstance(e, ast.Starred) for e in target.elts):
            raise self.refuse(target, "this cannot be unpacked")
        if value.kind == "static":
            for element, part in zip(target.elts, parts, strict=True):
                self.store(element, self.static(part))
            return
        held = []
        if isinstance(value.code, ast.Tuple):  # element by element, through names of their own where they might clash
            for part, code in zip(parts, value.code.elts, strict=True):
                held.append(self.part(part, code))
        else:
            fresh = [self.fresh() for _ in parts]
            step = TensorStep if value.kind == "tensor" else HostStep
            pattern = ast.Tuple([ast.Name(one, ast.Store()) for one in fresh], ast.Store())
            self.steps.append(step(ast.fix_missing_locations(ast.Assign([pattern], value.code, lineno=1))))
            for one, part in zip(fresh, parts, strict=True):
                kind = "tensor" if isinstance(part, torch.Tensor) else "host"
                held.append(Value(kind, part, name(one)))
                self.names[one] = held[-1]
        for element, made in zip(target.elts, held, strict=True):
            self.store(element, made)

    def part(self, example: Any, code: ast.expr) -> Value:
        if isinstance(code, ast.Name) and code.id in self.names:
            old = self.names[code.id]
            target = self.fresh()
            step = TensorStep if old.kind == "tensor" else HostStep
            self.steps.append(step(assign(target, code)))
            self.names[target] = Value(old.kind, old.example, name(target))
            return self.names[target]
        kind = "tensor" if isinstance(example, torch.Tensor) else "host"
        return self.static(example, code) if isinstance(code, ast.Constant) else Value(kind, example, code)

    def do_Return(self, node: ast.Return) -> None:
        value = self.evaluate(node.value) if node.value else Value("static", None, ast.Constant(None))
        code = self.held(value) if value.kind == "tensor" else value.code
        if value.kind == "static" and literal(value.example) is None:
            raise self.refuse(node, f"returns a {type(value.example).__name__}, which the host cannot make")
        if self.depth == 0:
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Return(code))))
            return
        key = f"{self.frame.prefix}result"
        if value.kind == "host" and isinstance(code, ast.Tuple):
            self.names[f"{key}s"] = Value("static", len(code.elts), ast.Constant(len(code.elts)))
            for number, (part, one) in enumerate(zip(value.example, code.elts, strict=True)):
                self.keep(f"{key}{number}", self.part_or_name(part, one))
        else:
            self.names[f"{key}s"] = Value("static", -1, ast.Constant(-1))
            self.keep(key, Value(value.kind, value.example, code))

    def part_or_name(self, example: Any, code: ast.expr) -> Value:
        return (
            self.names[code.id] if isinstance(code, ast.Name) and code.id in self.names else self.part(example, code)
        )

    def keep(self, key: str, value: Value) -> None:
        """A name for a value as it stands, without the prefix of the function."""
        prefix, self.frame.prefix = self.frame.prefix, ""
        self.store(ast.Name(key, ast.Store()), value)
        self.frame.prefix = prefix

    def do_If(self, node: ast.If) -> None:
        test = self.truth(self.evaluate(node.test))
        if test.kind == "static":
            self.block(node.body if test.example else node.orelse)
            return
        self.decide(node, test, lambda: self.block(node.body), lambda: self.block(node.orelse))

    def do_With(self, node: ast.With) -> None:
        for item in node.items:
            manager = self.evaluate(item.context_expr)
            if not isinstance(manager.example, GRADIENTS) or item.optional_vars is not None:
                raise self.refuse(node, "with is supported for torch.no_grad and its like only")
        self.block(node.body)

    def do_For(self, node: ast.For) -> None:
        values = self.evaluate(node.iter)
        if values.kind == "tensor":
            raise self.refuse(node, "a loop over the rows of a tensor is not supported")
        if values.kind == "host":
            self.host_loop(node, values)
            return
        ends: list[tuple[list[Step], Names]] = []
        items = list(values.example)
        body = [without_continue(one) for one in tails(node.body, ast.Continue)]
        if len(items) > UNROLLED:
            raise self.refuse(node, f"more than {UNROLLED} iterations to unroll")
        outer, self.steps = self.steps, []
        self.loops.append(ends)
        for item in items:
            if not leaves(self.steps):
                self.store(node.target, self.static(item))
                self.block(body)
        if not leaves(self.steps):
            self.block(node.orelse)
        self.loops.pop()
        steps, self.steps = self.steps, outer
        if not ends:
            self.steps.extend(steps)
            return
        if not leaves(steps):
            ends.append((steps, self.names))
            self.merge(ends, stay=False)
            steps.append(HostStep(ast.Break()))
        else:
            self.merge(ends, stay=False)
        self.steps.append(Loop(steps))

    def do_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self.refuse(node, "else after a while loop is not supported")
        self.generalise(node)
        self.loop(node, None)

    def host_loop(self, node: ast.For, values: Value) -> None:
        items = list(values.example)
        if node.orelse or not isinstance(node.target, ast.Name) or not items:
            raise self.refuse(node, "this loop over values of the host is not supported (or no example enters it)")
        if not all(same_type(items[0], one) for one in items):
            raise self.refuse(node, "a loop over values of different types or shapes is not supported")
        self.generalise(node)
        key = self.frame.prefix + node.target.id
        kind = "tensor" if isinstance(items[0], torch.Tensor) else "host"
        self.names[key] = Value(kind, items[0], name(key))
        self.loop(node, (ast.Name(key, ast.Store()), values.code))

    def generalise(self, node: ast.While | ast.For) -> None:
        """What the loop assigns is not known any more once it runs."""
        for key in {self.frame.prefix + one for one in writes(node)}:
            value = self.names.get(key)
            if value is not None and value.kind == "static":
                if literal(value.example) is None:
                    raise self.refuse(node, f"{key} is an object and changes in a loop whose length is not known")
                self.steps.append(HostStep(assign(key, value.code)))
                self.names[key] = Value("host", value.example, name(key))

    def loop(self, node: ast.While | ast.For, header: tuple[ast.expr, ast.expr] | None) -> None:
        entry = self.names
        outer, self.steps, self.names = self.steps, [], fork(entry)
        self.loops.append(None)
        if isinstance(node, ast.While):
            test = self.truth(self.evaluate(node.test))
            arms: list[tuple[ast.expr | None, list[Step]]] = [
                (ast.UnaryOp(ast.Not(), test.code), [HostStep(ast.Break())]), (None, [])
            ]  # fmt: skip
            labels = ["the loop ends by its condition", "the loop goes on"]
            stop = Branch(arms, node.lineno, self.frame.path, labels)
            if not (test.kind == "static" and test.example):
                self.steps.append(stop)
        self.block(node.body)
        self.loops.pop()
        steps, after, self.steps, self.names = self.steps, self.names, outer, dict(entry)
        for key, value in entry.items():
            new = after.get(key)
            if new is None or new.kind != value.kind or not same_type(value.example, new.example):
                if key in writes(ast.Module([node], [])) or value.kind != "static":
                    raise self.refuse(node, f"{key} changes its type or shape from one iteration to the next")
            elif value.kind == "host":
                self.names[key] = new
        self.steps.append(Loop(steps, header))

    def do_Break(self, node: ast.Break) -> None:
        self.steps.append(HostStep(ast.Break()))
        if self.loops[-1] is not None:
            self.loops[-1].append((self.steps, self.names))

    def do_Continue(self, node: ast.Continue) -> None:
        if self.loops[-1] is not None:
            raise self.refuse(node, "continue inside with or try, in a loop that is unrolled, is not supported")
        self.steps.append(HostStep(ast.Continue()))


def without_continue(node: ast.stmt) -> ast.stmt:
    """A statement at the end of an iteration that is unrolled, where `continue` does nothing."""
    if isinstance(node, ast.Continue):
        return ast.copy_location(ast.Pass(), node)
    if isinstance(node, ast.If) and holds(node, ast.Continue):
        arms = ([*arm[:-1], *map(without_continue, arm[-1:])] for arm in (node.body, node.orelse))
        return ast.copy_location(ast.If(node.test, *arms), node)
    return node


def same_constant(left: Any, right: Any) -> bool:
    if left is right:
        return True
    return literal(left) is not None and type(left) is type(right) and bool(left == right)
