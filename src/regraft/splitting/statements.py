"""Statements: branches are followed down both sides, what meets is joined."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.assign import part_name
from regraft.splitting.codes import assign, held_as, name, parts_of
from regraft.splitting.either import Cases
from regraft.splitting.expressions import Choice
from regraft.splitting.inplace import Changes
from regraft.splitting.meet import unify
from regraft.splitting.possible import of_all
from regraft.splitting.residual import Branch, HostStep, Step, at_the_end, leaves, reads
from regraft.splitting.values import Names, Value, literal, opened, same_type

GRADIENTS = (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.set_grad_enabled)


class Statements(Changes):
    """Walks statements; what is left of them goes to `steps`."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.depth = 0
        self.cases: set[tuple[int, str]] = set()  # statements that are specialised by cases now, and of which names
        self.met: dict[tuple[int, ...], Value] = {}  # of paths that meet: what names hold that hold the same on each

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if leaves(self.steps):
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        handler = getattr(self, f"do_{type(node).__name__}", None)
        if handler is None:
            raise self.refuse(node, f"{type(node).__name__} is not supported in a network that is split")
        steps, names = list(self.steps), self.forked(self.names)
        self.frame.line = getattr(node, "lineno", self.frame.line)
        self.pending.append(None)  # what a statement evaluates it uses itself
        try:
            try:
                handler(node)
            except Choice as choice:
                self.steps[:], self.names = list(steps), self.forked(names)
                self.choose(node, choice)
        except Cases as cases:
            self.steps[:], self.names = steps, names
            self.by_cases(node, cases.key)
        finally:
            self.pending.pop()
        for step in self.steps[len(steps) :]:
            if isinstance(step, HostStep) and not step.place[1]:
                step.place = self.frame.path, getattr(node, "lineno", 0)

    def by_cases(self, node: ast.stmt, key: str) -> None:
        """A statement for what a name may hold: the constant, or not."""
        while key and key not in self.names:
            key = self.copies.get(key, "")
        if not key:
            raise self.refuse(
                node, "something that is None or a number on some of the paths here is not supported here"
            )
        this = id(node), key
        if this in self.cases or isinstance(node, (ast.For, ast.While)):
            both = f"{self.names[key].instead} on some of the paths that lead here, and something else on others"
            raise self.refuse(node, f"{key} is {both}; that is not supported here")
        self.cases.add(this)
        sides = [lambda: self.statement(node), lambda: self.statement(node)]
        self.decide(node, self.test_of(key), sides[0], sides[1], ["", ""])
        self.cases.discard(this)

    def choose(self, node: ast.stmt, choice: Choice) -> None:
        """One arm for each module that the index may name."""
        chosen = self.evaluate(choice.index)
        chosen = self.number(chosen) if chosen.kind == "tensor" else chosen
        index = chosen.code if isinstance(chosen.code, ast.Name) else self.held_by_host(chosen).code
        arms: list[tuple[ast.expr | None, list[Step]]] = []
        ends = []
        for key in choice.keys:
            self.chosen[id(choice.index)] = self.static(key)
            test = ast.Compare(index, [ast.Eq()], [ast.Constant(key)])
            steps, after = self.apart(lambda: self.block([node]), self.names, test)
            arms.append((test, steps))
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
        unify(self, ends)
        joined: Names = {}
        self.met = {}
        for key in dict.fromkeys(key for _, names in ends for key in names):
            found = [(steps, names[key]) for steps, names in ends if key in names]
            if len(found) == len(ends):
                joined[key] = self.join(key, found)
                if any(value.partial for _, value in found):
                    joined[key] = replace(joined[key], partial=True, constant=False)
            elif self.is_variable(key):
                joined.update(self.join_partial(key, found))
        self.names = joined
        self.rejoin([names for _, names in ends])
        self.tie([names for _, names in ends])

    def is_variable(self, key: str) -> bool:
        """Whether a name is a variable of the source, or an element of one."""
        return bool(bases(key) & self.reserved)

    def join_partial(self, key: str, found: list[tuple[list[Step], Value]]) -> Names:
        """A variable that some of the paths do not assign; reading it there raises, as it does in the original."""
        if bases(key) & self.deleted:
            return {}  # the host still holds it
        value = self.join(key, found)
        if value.kind == "static":
            if literal(value.example) is None:
                return {}
            assign_last(key, [(steps, value) for steps, _ in found])
            value = Value("host", value.example, name(key))
        return {key: replace(value, partial=True, constant=False)}

    def rejoin(self, found: list[Names]) -> None:
        """Tuples of equal length, from their elements."""
        for key in self.names:
            values = [names[key] for names in found if key in names]
            kept = all(self.is_kept_apart(key, names[key], names) for names in found if key in names)
            if kept and len({(type(value.example), *value.fields) for value in values}) == 1:
                partial = any(self.names[part_name(key, place)].partial for place in values[0].fields)
                self.names[key] = replace(self.rebuilt(key, values[0]), partial=partial)

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
        if (kinds & {"tensor", "either"} and kinds <= {"tensor", "either", "static"}) or self.some_none(values):
            return self.join_either(key, found)
        plain = all(value.kind != "static" or literal(value.example) is not None for value in values)
        if kinds <= {"static", "host"} and plain and all(same_type(longest, value) for value in values):
            own = [isinstance(value.code, ast.Name) and value.code.id == key for value in values]
            assign_last(key, [one for one, held in zip(found, own, strict=True) if not held])
            self.met_lists(longest.example, [value.example for value in values])
            truth = any(value.truth for value in values)
            return Value("host", longest.example, name(key), longest.twin, among=of_all(values), truth=truth)
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

    def join_either(self, key: str, found: list[tuple[list[Step], Value]]) -> Value:
        """A tensor (or, beside None, a value of the host) on some paths, one and the same constant on the others."""
        none = self.some_none([value for _, value in found])
        held = [
            (steps, value) for steps, value in found if value.kind == "static" and (value.example is None or not none)
        ]
        rest = [(steps, uncovered(value)) for steps, value in found if (steps, value) not in held]
        constants = [value.example for _, value in held] + [
            value.instead for _, value in found if value.kind == "either"
        ]
        joined = self.join(key, rest)
        first = constants[0]
        same = all(same_constant(first, one) for one in constants)
        if joined.kind == "static" and literal(joined.example) is not None:
            assign_last(key, rest)
            joined = Value("host", joined.example, name(key))
        if joined.kind not in ("host", "tensor") or not same or not (first is None or isinstance(first, (int, float))):
            return Value("lost", None, name(key))
        assign_last(key, held)
        if joined.kind == "tensor":  # not the tensor itself: a change of that one need not change this
            joined = self.one_of(joined, [value for _, value in rest])
        return replace(joined, kind="either", instead=first, constant=False)

    def some_none(self, values: list[Value]) -> bool:
        """Whether some of them are None, others are not, and the host may hold all."""
        none = [value.kind == "static" and value.example is None for value in values]
        unsure = any(value.kind == "either" and value.instead is None for value in values)
        return (unsure or (any(none) and not all(none))) and not any(
            value.kind in ("record", "lost") for value in values
        )

    def fits_either(self, value: Value, new: Value) -> bool:
        """Whether `new` is one of what `value` may be."""
        if new.kind == "static":
            return same_constant(value.instead, new.example)
        if new.kind == "either" and not same_constant(value.instead, new.instead):
            return False
        return uncovered(new).kind == uncovered(value).kind and same_type(value, new)

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
        elif not test.example:  # on a path that no input takes, or where the original raises, too
            self.steps.append(HostStep(ast.fix_missing_locations(ast.parse("raise AssertionError").body[0])))

    def do_Raise(self, node: ast.Raise) -> None:
        """One of Python's own errors, which the host raises."""
        call = node.exc if isinstance(node.exc, ast.Call) else ast.Call(node.exc or name("None"), [], [])
        kind = call.func.id if isinstance(call.func, ast.Name) and call.func.id not in self.globals else ""
        error = getattr(builtins, kind, None)
        if not (isinstance(error, type) and issubclass(error, Exception)) or call.keywords or node.cause:
            raise self.refuse(node, "raising anything but an error of Python's own is not supported")
        before = len(self.steps)
        given = [self.evaluate(one) for one in call.args]
        made = all(one.kind in ("static", "host") and literal(one.example) is not None for one in given)
        if not made or len(self.steps) > before:  # a side that raises gives no samples
            raise self.refuse(node, f"{kind} of values of tensors is not supported")
        raised = ast.Raise(ast.Call(name(kind), [one.code for one in given], []))
        self.steps.append(HostStep(ast.fix_missing_locations(raised)))

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
            self.deleted.add(self.frame.prefix + target.id)

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        if len(node.targets) > 1 and value.kind != "static":  # the first may be read by what the others get
            value = self.under_a_name(value)
        self.pending.append([value] if len(node.targets) > 1 else None)
        for target in node.targets:
            self.store(target, value)
        self.pending.pop()

    def do_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.store_name(self.frame.prefix + node.name, self.made_function(node, node))

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.evaluate(node.value))

    def do_Return(self, node: ast.Return) -> None:
        if self.depth == 0 and isinstance(node.value, ast.IfExp):  # both sides may give what they like
            sides = [[ast.copy_location(ast.Return(one), node)] for one in (node.value.body, node.value.orelse)]
            self.do_If(ast.copy_location(ast.If(node.value.test, sides[0], sides[1]), node))  # type: ignore[arg-type]
            return
        value = self.evaluate(node.value) if node.value else Value("static", None, ast.Constant(None))
        value = self.display(node, value) if self.depth == 0 else value
        code = self.held(value) if value.kind == "tensor" else value.code
        if self.depth == 0:
            if value.kind == "static" and literal(value.example) is None:
                raise self.refuse(node, f"returns a {type(value.example).__name__}, which the host cannot make")
            outside = sorted(reads(code) & self.globals.keys())
            if outside:
                kind = type(self.globals[outside[0]]).__name__
                raise self.refuse(node, f"returns a {kind} within a tuple or list, which the host cannot make")
            if any(isinstance(one, ast.Name) and self.is_truth_only(one.id) for one in parts_of(code)):
                raise self.refuse(
                    node, "of the value of `and` or `or`, which may be a tensor, only the truth is known"
                )
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Return(self.as_number(code)))))
            return
        self.keep(f"{self.frame.prefix}result", replace(value, code=code))

    def is_truth_only(self, key: str) -> bool:
        return key in self.names and self.names[key].truth

    def as_number(self, code: ast.expr) -> ast.expr:
        """Sizes that regions compute, as Python numbers."""
        if isinstance(code, ast.Tuple):
            return ast.Tuple([self.as_number(one) for one in code.elts], ast.Load())
        if isinstance(code, ast.Call) and isinstance(code.func, ast.Name) and code.func.id in self.results:
            words = [ast.keyword(one.arg, self.as_number(one.value)) for one in code.keywords]
            return ast.Call(code.func, [], words)
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


def bases(key: str) -> set[str]:
    """A name, and those of which it may be an element."""
    parts = key.split("__")
    return {"__".join(parts[:count]) for count in range(1, len(parts) + 1)}


def assign_last(key: str, found: list[tuple[list[Step], Value]]) -> None:
    """Let the host hold each path's value under a name, at the path's end."""
    for steps, value in found:
        at_the_end(steps, HostStep(assign(key, value.code)))


def uncovered(value: Value) -> Value:
    """What it is where it is not the constant."""
    if value.kind != "either":
        return value
    return replace(value, kind=held_as(value.example))


def same_constant(left: Any, right: Any) -> bool:
    if left is right:
        return True
    return literal(left) is not None and type(left) is type(right) and repr(left) == repr(right)
