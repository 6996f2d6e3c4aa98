"""Loops: those over known things are unrolled, others are followed until what they hold settles."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from regraft.splitting.assign import part_name
from regraft.splitting.codes import assign, held_as, name
from regraft.splitting.errors import Unrunnable, Unsplittable
from regraft.splitting.meet import unify
from regraft.splitting.normal import changes, first_body, peeled_for, peeled_while, without_else
from regraft.splitting.residual import HostStep, Loop, Step, leaves, reads, writes
from regraft.splitting.statements import Statements, same_constant, uncovered
from regraft.splitting.values import SAME, Names, Value, literal, opened, same_type

OPENED = 4  # times that sizes of tensors in one loop are opened
UNROLLED = 4096  # iterations of one loop


@dataclass
class Around:
    """A loop that is being followed, and the paths that leave it early, or an iteration, with what they leave."""

    unrolled: bool
    ends: list[tuple[list[Step], Names]] = field(default_factory=list)
    next: list[tuple[list[Step], Names]] = field(default_factory=list)


class NotSettled(Unsplittable):
    """A loop's first iteration finds something of another type than the ones that follow."""


class Loops(Statements):
    """Walks loops."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.loops: list[Around] = []
        self.not_entered = 0  # loops so far over lists that are empty where they are followed
        self.never: list[Step] = []  # what these do instead

    def do_For(self, node: ast.For) -> None:
        values = self.evaluate(node.iter)
        items = self.elements(node, values)
        if items is None:
            self.host_loop(node, values)
            return
        around = Around(True)
        ends = around.ends
        body = first_body(node)
        if len(items) > UNROLLED:
            raise self.refuse(node, f"more than {UNROLLED} iterations to unroll")
        own = self.assigned(node)  # which the loop changes after it has taken what it runs over
        items = [self.under_a_name(one) if one.kind != "static" and reads(one.code) & own else one for one in items]
        outer, self.steps = self.steps, []
        loops, self.loops = self.loops, [*self.loops, around]
        self.pending.append(items)  # rows of a tensor are taken one by one
        for item in items:
            if not leaves(self.steps):
                self.store(node.target, item)
                self.block(body)
        self.pending.pop()
        if not leaves(self.steps):
            self.block(node.orelse)
        self.loops = loops
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
        def follow() -> None:
            self.generalise(node)
            self.loop(node, None)

        self.or_peeled(node, follow, lambda: peeled_while(node, self.fresh()))

    def or_peeled(self, node: ast.While | ast.For, follow: Callable[[], None], peel: Callable[[], ast.stmt]) -> None:
        """Follow a loop; with its first iteration apart where that one leaves things of other types."""
        steps, names = list(self.steps), self.forked(self.names)
        varying, changed, entered = set(self.varying), set(self.changed), self.not_entered
        try:
            follow()
        except NotSettled as problem:
            if getattr(node, "peeled", False):
                raise Unsplittable(problem.path, problem.line, problem.reason) from problem
            self.steps[:], self.names = steps, names
            self.varying, self.changed, self.not_entered = varying, changed, entered
            self.statement(peel())

    def host_loop(self, node: ast.For, values: Value) -> None:
        if node.orelse:
            start, loop, rest = without_else(node, self.unused("exhausted"))
            self.statement(start)
            self.host_loop(loop, values)
            self.statement(rest)
            return
        code = self.held(values) if values.kind == "tensor" else values.code
        pairs = [(one, other) for one, other in values.parts()] or [(one, one) for one in values.other]
        if not pairs and isinstance(values.example, range):
            pairs = [(values.example.start, SAME)]
        if not pairs and not isinstance(values.example, list):
            raise self.refuse(node, "no example enters this loop over values of the host", Unrunnable)
        if not pairs:  # an empty list, which a loop around may fill
            self.not_entered += 1
            error = f"raise RuntimeError('{self.frame.path}:{node.lineno}: no example entered this loop')"
            never = HostStep(ast.parse(error).body[0])
            self.never.append(never)
            self.steps.append(Loop([never], (ast.Name(self.fresh(), ast.Store()), code)))
            return
        kind = held_as(pairs[0][0])
        items = [Value(kind, one, name(""), other) for one, other in pairs]
        if not all(same_type(items[0], one) for one in items):
            raise self.refuse(node, "a loop over values of different types or shapes is not supported")
        target = node.target
        if not isinstance(target, ast.Name) or self.holds_other(self.frame.prefix + target.id, items[0]):
            target = ast.copy_location(ast.Name(self.fresh(), ast.Store()), node)
            first = ast.Assign([node.target], ast.Name(target.id, ast.Load()))
            body = [ast.fix_missing_locations(ast.copy_location(first, node)), *node.body]
            node = ast.copy_location(ast.For(target, node.iter, body, []), node)
        key = self.frame.prefix + target.id
        unassigned = () if key in self.names and not self.names[key].partial else (key,)

        def follow() -> None:
            self.generalise(node)
            self.hold(key, items[0].named(key))
            self.loop(node, (ast.Name(key, ast.Store()), code), unassigned)

        def peel() -> ast.stmt:
            several = self.fresh()
            self.store_name(self.frame.prefix + several, self.as_list(replace(values, code=code), pairs))
            return peeled_for(node, several, self.fresh())

        self.or_peeled(node, follow, peel)

    def holds_other(self, key: str, item: Value) -> bool:
        """Whether a loop's variable holds something of another type before, which it keeps where no iteration runs."""
        before = self.names.get(key)
        if before is None:
            return False
        own = isinstance(before.code, ast.Name) and before.code.id == key
        return not (own and before.kind == item.kind and same_type(before, item))

    def as_list(self, values: Value, pairs: list[tuple[Any, Any]]) -> Value:
        """What a loop runs over as something that has a length, which nothing is known of."""
        if isinstance(values.example, (list, tuple, range, torch.Tensor)):
            return values
        examples, others = ([pair[place] for pair in pairs] for place in (0, 1))
        self.ragged.update((id(one), one) for one in (examples, others))
        twin = SAME if values.twin is SAME else others
        return replace(values, code=ast.Call(name("list"), [values.code], []), example=examples, twin=twin)

    def generalise(self, node: ast.While | ast.For) -> None:
        """What the loop assigns is not known any more once it runs."""
        self.settle(node, self.assigned(node))

    def settle(self, node: ast.AST, keys: set[str]) -> None:
        """Let the host or regions hold what is under these names, of which nothing is known any more."""
        for key in sorted(keys):
            if key not in self.names:
                continue
            value = self.names[key] = replace(self.names[key], constant=False, among=None)
            if value.kind in ("static", "host") and not isinstance(value.code, ast.Name) and not value.fields:
                if value.kind == "static" and literal(value.example) is None:
                    self.names[key] = Value("lost", None, name(key))
                    continue
                self.steps.append(HostStep(assign(key, value.code)))
                self.hold(key, replace(value, kind="host"))
        for key, value in self.names.items():
            if self.is_kept_apart(key, value, self.names):
                self.names[key] = self.rebuilt(key, value)

    def assigned(self, node: ast.AST) -> set[str]:
        """The names that a loop assigns, those of the elements of tuples among them."""
        keys = {self.frame.prefix + one for one in writes(node) | changes(node)}
        for key in sorted(keys):
            value = self.names.get(key)
            if value is not None:
                keys.update(part_name(key, place) for place in value.fields)
        return keys

    def loop(
        self, node: ast.While | ast.For, header: tuple[ast.expr, ast.expr] | None, unassigned: Collection[str] = ()
    ) -> None:
        """The body is followed once; again where a tensor grew in it, whose size is open then.

        Also where it changes one in place, which another name may hold since an iteration before.
        unassigned: its variable, where nothing is assigned to that before.
        """
        self.collect()
        varying = self.assigned(node) - self.varying
        self.varying |= varying
        before, again = self.in_place, True
        entered = self.not_entered
        for _ in range(OPENED + 1):
            for key in varying & self.names.keys():
                if self.names[key].kind == "tensor":
                    self.names[key] = self.one_of(self.names[key], [self.names[key]])
            entry = dict(self.names)
            around = Around(False)
            (steps, after, ends), changed = self.changing(lambda: self.followed(node, around, entry))  # noqa: B023
            found = changed - self.varying
            if found & entry.keys():
                varying |= found
                self.varying |= found
                self.settle(node, found)
                continue
            target = {header[0].id} if header is not None and isinstance(header[0], ast.Name) else set()
            for _, end in ends or [(steps, after)]:
                self.names = {
                    key: value if key in target else self.carried(node, key, value, end.get(key))
                    for key, value in self.names.items()
                }
            if any(self.names[key].kind == "lost" and one.kind != "lost" for key, one in entry.items()):
                continue
            if any(
                self.is_ragged(self.names[key].example) > self.is_ragged(one.example) for key, one in entry.items()
            ):
                continue
            if again and (self.in_place > before or self.not_entered > entered):
                again = False
                continue
            if all(
                self.names[key].twin is value.twin or self.names[key].kind == "host" for key, value in entry.items()
            ):
                break
        else:
            raise self.refuse(node, "the shapes of tensors in this loop do not settle")
        self.varying -= varying
        if not leaves(steps):  # what a `del` in the body took away
            self.names = {key: value for key, value in self.names.items() if key in after or key not in self.deleted}
        self.names.update((key, replace(self.names[key], partial=True)) for key in unassigned if key in self.names)
        self.leave(node, around, ends, header is not None)
        self.steps.append(Loop(steps, header))

    def followed(
        self, node: ast.While | ast.For, around: Around, entry: Names
    ) -> tuple[list[Step], Names, list[tuple[list[Step], Names]]]:
        """One iteration: its steps, the names at its end, and all paths that lead from it to the next one."""
        steps, after = self.apart(lambda: self.iteration(node, around), self.names)
        ends = [*around.next, *([] if leaves(steps) else [(steps, after)])]
        unify(self, [([], entry), *ends])
        return steps, after, ends

    def carried(self, node: ast.AST, key: str, value: Value, new: Value | None) -> Value:
        """What a name holds at the start of any iteration, given what it holds at the start and the end of one."""
        if value.kind == "lost":
            return value
        if self.is_kept_apart(key, value, self.names) and new is not None and list(new.fields) == list(value.fields):
            return self.rebuilt(key, value)
        if new is not None and new.kind == value.kind == "static" and not same_constant(value.example, new.example):
            raise self.refuse(node, f"{key} is an object and changes in a loop whose length is not known")
        if new is not None and new.kind == value.kind == "tensor" and new.example is not value.example:
            self.shared.append([value.example, new.example])
        if value.kind == "either" and new is not None and self.fits_either(value, new):
            return value
        if new is not None and new.kind == value.kind != "either" and same_type(value, new):
            self.met_lists(new.example, [value.example])
            return replace(new, constant=False, among=None) if value.kind == "host" else value
        also = new is not None and new.kind == value.kind == "either" and same_constant(new.instead, value.instead)
        grows = new is not None and (also or (new.kind == "tensor" and value.kind in ("tensor", "either")))
        wider = opened(uncovered(value), uncovered(new)) if new is not None and grows else None
        if wider is not None:
            return replace(self.hold(key, wider), kind=value.kind)
        if new is not None or key in writes(ast.Module([node], [])) or value.kind != "static":  # type: ignore[list-item]
            if getattr(node, "peeled", False):
                return Value("lost", None, name(key))
            raise self.refuse(node, f"{key} changes its type or shape from one iteration to the next", NotSettled)
        return value

    def iteration(self, node: ast.While | ast.For, around: Around) -> None:
        outer, self.loops = self.loops, [*self.loops, around]
        self.looping += 1
        try:
            if isinstance(node, ast.While):
                test = self.truth(self.evaluate(node.test))
                if not (test.kind == "static" and test.example):
                    stop = replace(test, code=ast.UnaryOp(ast.Not(), test.code), among=None)
                    labels = ["the loop ends by its condition", "the loop goes on"]
                    self.decide(node, stop, lambda: self.block([*node.orelse, ast.Break()]), lambda: None, labels)
            self.block(node.body)
        finally:
            self.loops = outer
            self.looping -= 1

    def leave(self, node: ast.AST, around: Around, again: list[tuple[list[Step], Names]], exhausted: bool) -> None:
        """The names after a loop of an unknown number of iterations, given the paths from one to the next.

        exhausted: whether it also ends where there are no more items.
        """
        new: Names = {}
        for key in dict.fromkeys(key for _, names in again for key in names):
            if key not in self.names and self.is_variable(key):
                found = [(side, names) for side, names in again if key in names]
                values = [(side, names[key]) for side, names in found]
                alone = len(found) == 1 and self.is_kept_apart(key, values[0][1], found[0][1])
                apart = alone and key not in self.deleted
                new.update({key: values[0][1]} if apart else self.join_partial(key, values))
        ends = [(side, {**new, **names}) for side, names in around.ends]
        nowhere: list[Step] = []
        if exhausted or not ends:
            ends.insert(0, (nowhere, {**self.names, **new}))
        self.merge(ends, stay=False)
        if nowhere:
            raise self.refuse(node, "a variable that this loop leaves as several things is not supported")

    def do_Break(self, node: ast.Break) -> None:
        self.steps.append(HostStep(ast.Break()))
        self.loops[-1].ends.append((self.steps, self.names))

    def do_Continue(self, node: ast.Continue) -> None:
        if self.loops[-1].unrolled:
            raise self.refuse(node, "continue inside with or try, in a loop that is unrolled, is not supported")
        self.steps.append(HostStep(ast.Continue()))
        self.loops[-1].next.append((self.steps, self.names))
