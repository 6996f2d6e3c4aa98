"""Statements: branches are followed down both sides, loops over known things are unrolled, what meets is joined."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import torch

from regraft.dynamic.assign import part_name
from regraft.dynamic.codes import assign, name
from regraft.dynamic.expressions import Choice
from regraft.dynamic.inplace import Changes
from regraft.dynamic.normal import changes, tails, without_continue
from regraft.dynamic.residual import Branch, HostStep, Loop, Step, leaves, reads, writes
from regraft.dynamic.values import Names, Value, fork, literal, opened, same_type

GRADIENTS = (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.set_grad_enabled)
OPENED = 4  # times that sizes of tensors in one loop are opened
UNROLLED = 4096  # iterations of one loop


class Statements(Changes):
    """Walks statements; what is left of them goes to `steps`."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.depth = 0
        self.met: dict[tuple[int, ...], Value] = {}  # of paths that meet: what names hold that hold the same on each
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
        self.frame.line = getattr(node, "lineno", self.frame.line)
        self.pending.append(None)  # what a statement evaluates it uses itself
        try:
            handler(node)
        except Choice as choice:
            self.steps[:], self.names = steps, names
            self.choose(node, choice)
        finally:
            self.pending.pop()
        for step in self.steps[len(steps) :]:
            if isinstance(step, HostStep) and not step.place[1]:
                step.place = self.frame.path, getattr(node, "lineno", 0)

    def choose(self, node: ast.stmt, choice: Choice) -> None:
        """One arm for each module that the index may name."""
        chosen = self.evaluate(choice.index)
        chosen = self.number(chosen) if chosen.kind == "tensor" else chosen
        index = chosen.code if isinstance(chosen.code, ast.Name) else self.held_by_host(chosen).code
        arms: list[tuple[ast.expr | None, list[Step]]] = []
        ends = []
        for key in choice.keys:
            self.chosen[id(choice.index)] = self.static(key)
            steps, after = self.branch([node], self.names)
            arms.append((ast.Compare(index, [ast.Eq()], [ast.Constant(key)]), steps))
            ends.append((steps, after))
        del self.chosen[id(choice.index)]
        self.merge(ends)
        text = ast.unparse(choice.index)
        message = ast.parse(f"raise LookupError({ast.unparse(index)})").body[0]
        labels = [*(f"{text} is {key!r}" for key in choice.keys), "no module has this index"]
        self.steps.append(Branch([*arms, (None, [HostStep(message)])], node.lineno, self.frame.path, labels))

    # -- joins

    def merge(self, ends: list[tuple[list[Step], Names]], stay: bool = True) -> None:
        """The names after paths that meet; what differs but is plain becomes a variable of the host."""
        ends = [(steps, names) for steps, names in ends if not (stay and leaves(steps))]
        if not ends:
            return
        joined: Names = {}
        self.met = {}
        for key in ends[0][1]:
            if all(key in names for _, names in ends):
                joined[key] = self.join(key, [(steps, names[key]) for steps, names in ends])
        self.names = joined
        self.rejoin([names for _, names in ends])

    def rejoin(self, found: list[Names]) -> None:
        """Tuples of equal length, from their elements."""
        for key in self.names:
            values = [names[key] for names in found]
            kept = all(self.is_kept_apart(key, value, names) for value, names in zip(values, found, strict=True))
            if kept and len({(type(value.example), *value.fields) for value in values}) == 1:
                self.names[key] = self.rebuilt(key, values[0])

    def join(self, key: str, found: list[tuple[list[Step], Value]]) -> Value:
        values = [value for _, value in found]
        first = values[0]
        kinds = {value.kind for value in values}
        if all(value.fields for value in values):
            return Value("lost", None, name(key))  # its elements are joined
        if kinds == {"static"} and all(same_constant(first.example, value.example) for value in values):
            return first
        longest = max(values, key=lambda value: len(value.example) if isinstance(value.example, list) else 0)
        if kinds == {"tensor"}:
            return self.join_tensors(key, values)
        plain = all(value.kind != "static" or literal(value.example) is not None for value in values)
        if kinds <= {"static", "host"} and plain and all(same_type(longest, value) for value in values):
            for steps, value in found:
                if not (isinstance(value.code, ast.Name) and value.code.id == key):
                    steps.insert(len(steps) - leaves(steps), HostStep(assign(key, value.code)))
            return Value("host", longest.example, name(key), longest.twin)
        return Value("lost", None, name(key))

    def join_tensors(self, key: str, values: list[Value]) -> Value:
        """A tensor that differs in sizes only has open ones afterwards."""
        joined = values[0]
        for value in values[1:]:
            if not same_type(joined, value):
                wider = opened(joined, value)
                if wider is None:
                    return Value("lost", None, name(key))
                joined = wider
        if any(value.example is not values[0].example for value in values):
            joined = self.met.setdefault(tuple(id(value.example) for value in values), self.one_of(joined, values))
        if joined is not values[0]:
            self.hold(key, joined)
        return replace(joined.named(key), constant=all(value is values[0] for value in values) and values[0].constant)

    def one_of(self, value: Value, values: list[Value]) -> Value:
        """A value that is one tensor or another, by the path taken; it shares the memory of all."""
        self.shared.append([one.example for one in values])
        return replace(value, example=value.example.view_as(value.example))

    # -- statements

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and self.changed_in_place(node.value):
            return
        value = self.evaluate(node.value)
        if value.kind == "host":
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Expr(value.code))))

    def do_Assert(self, node: ast.Assert) -> None:
        test = self.truth(self.evaluate(node.test))
        if test.kind != "static":
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Assert(test.code))))
        elif not test.example:
            raise self.refuse(node, "this assertion fails")

    def do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            base = self.evaluate(target.value) if isinstance(target, (ast.Attribute, ast.Subscript)) else None
            if base is not None and self.is_made(base.example) and isinstance(target, ast.Subscript):
                key = self.evaluate(target.slice)
                self.invoke(node, self.special(node, base.example, "__delitem__"), [key], {})
                continue
            if not isinstance(target, ast.Name) or self.frame.prefix + target.id not in self.names:
                raise self.refuse(node, "del of anything but a local name is not supported")
            del self.names[self.frame.prefix + target.id]

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        if len(node.targets) > 1 and value.kind != "static":  # the first may be read by what the others get
            value = self.under_a_name(value)
        self.pending.append([value] if len(node.targets) > 1 else None)
        for target in node.targets:
            self.store(target, value)
        self.pending.pop()

    def under_a_name(self, value: Value) -> Value:
        key = self.fresh()
        self.store_name(key, value)
        return self.names[key]

    def do_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.store_name(self.frame.prefix + node.name, self.made_function(node, node))

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.evaluate(node.value))

    def do_Return(self, node: ast.Return) -> None:
        value = self.evaluate(node.value) if node.value else Value("static", None, ast.Constant(None))
        value = self.display(node, value) if self.depth == 0 else value
        code = self.held(value) if value.kind == "tensor" else value.code
        if self.depth == 0:
            if value.kind == "static" and literal(value.example) is None:
                raise self.refuse(node, f"returns a {type(value.example).__name__}, which the host cannot make")
            if value.kind == "record":
                raise self.refuse(node, f"returns a {type(value.example).__name__}; return a tuple of its fields")
            outside = sorted(reads(code) & self.globals.keys())
            if outside:
                kind = type(self.globals[outside[0]]).__name__
                raise self.refuse(node, f"returns a {kind} within a tuple or list, which the host cannot make")
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Return(self.as_number(code)))))
            return
        self.keep(f"{self.frame.prefix}result", replace(value, code=code))

    def as_number(self, code: ast.expr) -> ast.expr:
        """Sizes that regions compute, as Python numbers."""
        if isinstance(code, ast.Tuple):
            return ast.Tuple([self.as_number(one) for one in code.elts], ast.Load())
        if isinstance(code, ast.Name) and code.id in self.sizes:
            return ast.Call(name("int"), [code], [])
        return code

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
        items = self.elements(node, values)
        if items is None:
            self.host_loop(node, values)
            return
        ends: list[tuple[list[Step], Names]] = []
        body = [without_continue(one) for one in tails(node.body, ast.Continue)]
        if len(items) > UNROLLED:
            raise self.refuse(node, f"more than {UNROLLED} iterations to unroll")
        outer, self.steps = self.steps, []
        self.loops.append(ends)
        self.pending.append(items)  # rows of a tensor are taken one by one
        for item in items:
            if not leaves(self.steps):
                self.store(node.target, item)
                self.block(body)
        self.pending.pop()
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
        code = self.held(values) if values.kind == "tensor" else values.code
        pairs = [(one, other) for one, other in values.parts()] or [(one, one) for one in values.other]
        if node.orelse or not pairs:
            raise self.refuse(node, "this loop over values of the host is not supported (or no example enters it)")
        kind = "tensor" if isinstance(pairs[0][0], torch.Tensor) else "host"
        items = [Value(kind, one, name(""), other) for one, other in pairs]
        if not all(same_type(items[0], one) for one in items):
            raise self.refuse(node, "a loop over values of different types or shapes is not supported")
        target = node.target
        if not isinstance(target, ast.Name):
            target = ast.copy_location(ast.Name(self.fresh(), ast.Store()), node)
            first = ast.Assign([node.target], ast.Name(target.id, ast.Load()))
            body = [ast.fix_missing_locations(ast.copy_location(first, node)), *node.body]
            node = ast.copy_location(ast.For(target, node.iter, body, []), node)
        self.generalise(node)
        key = self.frame.prefix + target.id
        self.hold(key, items[0].named(key))
        self.loop(node, (ast.Name(key, ast.Store()), code))

    def generalise(self, node: ast.While | ast.For) -> None:
        """What the loop assigns is not known any more once it runs."""
        self.settle(node, self.assigned(node))

    def settle(self, node: ast.AST, keys: set[str]) -> None:
        """Let the host or regions hold what is under these names, of which nothing is known any more."""
        for key in sorted(keys):
            value = self.names.get(key)
            if value is not None and value.constant:
                self.names[key] = replace(value, constant=False)
            if (
                value is not None
                and value.kind in ("static", "host")
                and not isinstance(value.code, ast.Name)
                and not value.fields
            ):
                if value.kind == "static" and literal(value.example) is None:
                    raise self.refuse(node, f"{key} is an object and changes in a loop whose length is not known")
                self.steps.append(HostStep(assign(key, value.code)))
                self.hold(key, replace(value, kind="host"))

    def assigned(self, node: ast.AST) -> set[str]:
        """The names that a loop assigns, those of the elements of tuples among them."""
        keys = {self.frame.prefix + one for one in writes(node) | changes(node)}
        for key in sorted(keys):
            value = self.names.get(key)
            if value is not None:
                keys.update(part_name(key, place) for place in value.fields)
        return keys

    def loop(self, node: ast.While | ast.For, header: tuple[ast.expr, ast.expr] | None) -> None:
        """The body is followed once; again where a tensor grew in it, whose size is open then.

        Also where it changes one in place, which another name may hold since an iteration before.
        """
        self.collect()
        varying = self.assigned(node) - self.varying
        self.varying |= varying
        before, again = self.in_place, True
        for _ in range(OPENED + 1):
            for key in varying & self.names.keys():
                if self.names[key].kind == "tensor":
                    self.names[key] = self.one_of(self.names[key], [self.names[key]])
            entry = dict(self.names)
            (steps, after), changed = self.changing(lambda: self.apart(lambda: self.iteration(node), self.names))
            found = changed - self.varying
            if found & entry.keys():
                varying |= found
                self.varying |= found
                self.settle(node, found)
                continue
            target = {header[0].id} if header is not None and isinstance(header[0], ast.Name) else set()
            self.names = {
                key: value if key in target else self.carried(node, key, value, after.get(key))
                for key, value in entry.items()
            }
            if again and self.in_place > before:
                again = False
                continue
            if all(
                self.names[key].twin is value.twin or self.names[key].kind == "host" for key, value in entry.items()
            ):
                break
        else:
            raise self.refuse(node, "the shapes of tensors in this loop do not settle")
        self.varying -= varying
        self.steps.append(Loop(steps, header))

    def carried(self, node: ast.AST, key: str, value: Value, new: Value | None) -> Value:
        """What a name holds at the start of any iteration, given what it holds at the start and the end of one."""
        if self.is_kept_apart(key, value, self.names) and new is not None and list(new.fields) == list(value.fields):
            return self.rebuilt(key, value)
        if new is not None and new.kind == value.kind == "static" and not same_constant(value.example, new.example):
            raise self.refuse(node, f"{key} is an object and changes in a loop whose length is not known")
        if new is not None and new.kind == value.kind == "tensor" and new.example is not value.example:
            self.shared.append([value.example, new.example])
        if new is not None and new.kind == value.kind and same_type(value, new):
            return replace(new, constant=False) if value.kind == "host" else value
        wider = opened(value, new) if new is not None and new.kind == value.kind == "tensor" else None
        if wider is not None:
            return self.hold(key, wider)
        if key in writes(ast.Module([node], [])) or value.kind != "static":  # type: ignore[list-item]
            raise self.refuse(node, f"{key} changes its type or shape from one iteration to the next")
        return value

    def iteration(self, node: ast.While | ast.For) -> None:
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

    def do_Break(self, node: ast.Break) -> None:
        self.steps.append(HostStep(ast.Break()))
        if self.loops[-1] is not None:
            self.loops[-1].append((self.steps, self.names))

    def do_Continue(self, node: ast.Continue) -> None:
        if self.loops[-1] is not None:
            raise self.refuse(node, "continue inside with or try, in a loop that is unrolled, is not supported")
        self.steps.append(HostStep(ast.Continue()))


def same_constant(left: Any, right: Any) -> bool:
    if left is right:
        return True
    return literal(left) is not None and type(left) is type(right) and bool(left == right)
