"""Loops: those over known elements are unrolled, others are followed until what the names hold
settles."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from regraft.splitting.errors import Unrunnable, Unsplittable
from regraft.splitting.program.codes import assign, kind_of, name
from regraft.splitting.program.normal import (
    changed_names,
    first_body,
    peel_for,
    peel_while,
    without_else,
)
from regraft.splitting.program.residual import HostStep, Loop, Step, leaves, reads, writes
from regraft.splitting.program.values import (
    SAME,
    Names,
    Value,
    literal,
    open_differing_sizes,
    same_type,
)
from regraft.splitting.specialising.assign import part_name
from regraft.splitting.specialising.meet import unify
from regraft.splitting.specialising.statements import Statements, same_constant, without_constant

MAX_OPENINGS = 4  # most times that sizes of tensors in one loop are opened
MAX_UNROLLED = 4096  # most iterations of one loop that are unrolled


@dataclass
class FollowedLoop:
    """A loop that is being followed, with the steps and names of the paths out of it.

    unrolled: whether its iterations are followed one by one. exits: the paths that leave the loop
    early. continues: the paths that leave an iteration early.
    """

    unrolled: bool
    exits: list[tuple[list[Step], Names]] = field(default_factory=list)
    continues: list[tuple[list[Step], Names]] = field(default_factory=list)


class NotSettled(Unsplittable):
    """Signals that a loop's first iteration finds something of another type than the ones that
    follow."""


class Loops(Statements):
    """Walks loops."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.loops: list[FollowedLoop] = []
        self.not_entered = 0  # loops so far over lists that are empty where they are followed
        # the steps that raise an error where one of these is entered
        self.not_entered_errors: list[Step] = []

    def do_For(self, node: ast.For) -> None:
        iterable = self.evaluate(node.iter)
        elements = self.elements(node, iterable)
        if elements is None:
            self.follow_host_loop(node, iterable)
            return
        loop = FollowedLoop(True)
        exits = loop.exits
        body = first_body(node)
        if len(elements) > MAX_UNROLLED:
            raise self.refuse(node, f"more than {MAX_UNROLLED} iterations to unroll")
        # the loop changes these after it has evaluated its iterable
        assigned = self.assigned_names(node)
        elements = [
            (
                self.bind_fresh(element)
                if element.kind != "static" and reads(element.code) & assigned
                else element
            )
            for element in elements
        ]
        outer_steps, self.steps = self.steps, []
        outer_loops, self.loops = self.loops, [*self.loops, loop]
        # rows of a tensor are taken one by one; of modules there may be many, and none of them
        # changes
        self.pending.append(
            [element for element in elements if not isinstance(element.example, torch.nn.Module)]
        )
        for element in elements:
            if not leaves(self.steps):
                self.store(node.target, element)
                self.block(body)
        self.pending.pop()
        if not leaves(self.steps):
            self.block(node.orelse)
        self.loops = outer_loops
        steps, self.steps = self.steps, outer_steps
        if not exits:
            self.steps.extend(steps)
            return
        if not leaves(steps):
            exits.append((steps, self.names))
            self.merge(exits, drop_leaving=False)
            steps.append(HostStep(ast.Break()))
        else:
            self.merge(exits, drop_leaving=False)
        self.steps.append(Loop(steps))

    def do_While(self, node: ast.While) -> None:
        def follow() -> None:
            self.generalise(node)
            self.follow_to_fixpoint(node, None)

        self.follow_or_peel(node, follow, lambda: peel_while(node, self.fresh_name()))

    def follow_or_peel(
        self, node: ast.While | ast.For, follow: Callable[[], None], peel: Callable[[], ast.stmt]
    ) -> None:
        """Follow a loop, with its first iteration apart if that one leaves values of other
        types."""
        steps, names = list(self.steps), self.fork_names(self.names)
        varying, changed, entered = (
            set(self.varying_names),
            set(self.changed_names),
            self.not_entered,
        )
        try:
            follow()
        except NotSettled as problem:
            if getattr(node, "peeled", False):
                raise Unsplittable(problem.path, problem.line, problem.reason) from problem
            self.steps[:], self.names = steps, names
            self.varying_names, self.changed_names, self.not_entered = varying, changed, entered
            self.statement(peel())

    def follow_host_loop(self, node: ast.For, values: Value) -> None:
        """Follow a loop over values of the host, whose number is not known."""
        if node.orelse:
            start, loop, else_statement = without_else(node, self.unused_name("exhausted"))
            self.statement(start)
            self.follow_host_loop(loop, values)
            self.statement(else_statement)
            return
        code = self.bind_result(values) if values.kind == "tensor" else values.code
        pairs = [(example, twin) for example, twin in values.parts()] or [
            (example, example) for example in values.second_example
        ]
        if not pairs and isinstance(values.example, range):
            pairs = [(values.example.start, SAME)]
        if not pairs and not isinstance(values.example, list):
            raise self.refuse(
                node, "no example enters this loop over values of the host", Unrunnable
            )
        if not pairs:  # an empty list, which an enclosing loop may fill
            self.not_entered += 1
            error = (
                f"raise RuntimeError('{self.frame.path}:{node.lineno}: no example entered this"
                " loop')"
            )
            error_step = HostStep(ast.parse(error).body[0])
            self.not_entered_errors.append(error_step)
            self.steps.append(Loop([error_step], (ast.Name(self.fresh_name(), ast.Store()), code)))
            return
        kind = kind_of(pairs[0][0])
        elements = [Value(kind, example, name(""), twin) for example, twin in pairs]
        if not all(same_type(elements[0], element) for element in elements):
            raise self.refuse(
                node, "a loop over values of different types or shapes is not supported"
            )
        target = node.target
        if not isinstance(target, ast.Name) or self.holds_another_type(
            self.frame.prefix + target.id, elements[0]
        ):
            target = ast.copy_location(ast.Name(self.fresh_name(), ast.Store()), node)
            unpacking = ast.Assign([node.target], ast.Name(target.id, ast.Load()))
            body = [ast.fix_missing_locations(ast.copy_location(unpacking, node)), *node.body]
            node = ast.copy_location(ast.For(target, node.iter, body, []), node)
        key = self.frame.prefix + target.id
        unassigned = () if key in self.names and not self.names[key].partial else (key,)

        def follow() -> None:
            self.generalise(node)
            self.bind_name(key, elements[0].with_name(key))
            self.follow_to_fixpoint(node, (ast.Name(key, ast.Store()), code), unassigned)

        def peel() -> ast.stmt:
            list_name = self.fresh_name()
            self.store_name(
                self.frame.prefix + list_name, self.as_list(replace(values, code=code), pairs)
            )
            return peel_for(node, list_name, self.fresh_name())

        self.follow_or_peel(node, follow, peel)

    def holds_another_type(self, key: str, element: Value) -> bool:
        """Return whether a loop's variable holds another type before the loop, and keeps it if no
        iteration runs."""
        value = self.names.get(key)
        if value is None:
            return False
        is_own_name = isinstance(value.code, ast.Name) and value.code.id == key
        return not (is_own_name and value.kind == element.kind and same_type(value, element))

    def as_list(self, values: Value, pairs: list[tuple[Any, Any]]) -> Value:
        """Return what a loop runs over as a value that has a length, of which nothing is known."""
        if isinstance(values.example, (list, tuple, range, torch.Tensor)):
            return values
        examples, twins = ([pair[place] for pair in pairs] for place in (0, 1))
        self.ragged.update((id(inner_list), inner_list) for inner_list in (examples, twins))
        twin = SAME if values.twin is SAME else twins
        return replace(
            values, code=ast.Call(name("list"), [values.code], []), example=examples, twin=twin
        )

    def generalise(self, node: ast.While | ast.For) -> None:
        """Forget the constants of the names that the loop assigns, once the loop runs."""
        self.forget_constants(node, self.assigned_names(node))

    def forget_constants(self, node: ast.AST, keys: set[str]) -> None:
        """Let the host or regions hold the values of these names, whose constants are not known any
        more."""
        for key in sorted(keys):
            if key not in self.names:
                continue
            value = self.names[key] = replace(self.names[key], constant=False, among=None)
            if (
                value.kind in ("static", "host")
                and not isinstance(value.code, ast.Name)
                and not value.fields
            ):
                if value.kind == "static" and literal(value.example) is None:
                    self.names[key] = Value("lost", None, name(key))
                    continue
                self.steps.append(HostStep(assign(key, value.code)))
                self.bind_name(key, replace(value, kind="host"))
        for key, value in self.names.items():
            if self.has_part_names(key, value, self.names):
                self.names[key] = self.rebuild(key, value)

    def assigned_names(self, node: ast.AST) -> set[str]:
        """Return the names that a loop assigns, those of the elements of tuples among them."""
        keys = {self.frame.prefix + variable for variable in writes(node) | changed_names(node)}
        for key in sorted(keys):
            value = self.names.get(key)
            if value is not None:
                keys.update(part_name(key, place) for place in value.fields)
        return keys

    def follow_to_fixpoint(
        self,
        node: ast.While | ast.For,
        header: tuple[ast.expr, ast.expr] | None,
        unassigned: Collection[str] = (),
    ) -> None:
        """Follow the body until the names at its end fit those at its start, and append the loop.

        It is followed again where a tensor grew in it, whose size is open then, and where it
        changes a tensor in place, which another name may hold since an iteration before.
        unassigned: the loop's variable, if nothing is assigned to it before.
        """
        self.forget_dead_objects()
        varying = self.assigned_names(node) - self.varying_names
        self.varying_names |= varying
        changes_before, may_repeat = self.in_place_changes, True
        entered = self.not_entered
        for _ in range(MAX_OPENINGS + 1):
            for key in varying & self.names.keys():
                if self.names[key].kind == "tensor":
                    self.names[key] = self.merge_aliases(self.names[key], [self.names[key]])
            entry = dict(self.names)
            loop = FollowedLoop(False)
            (steps, after, ends), changed = self.track_changes(
                lambda: self.follow_iteration(node, loop, entry)  # noqa: B023
            )
            new_varying = changed - self.varying_names
            if new_varying & entry.keys():
                varying |= new_varying
                self.varying_names |= new_varying
                self.forget_constants(node, new_varying)
                continue
            target = (
                {header[0].id} if header is not None and isinstance(header[0], ast.Name) else set()
            )
            for _, end in ends or [(steps, after)]:
                self.names = {
                    key: value if key in target else self.carry_over(node, key, value, end.get(key))
                    for key, value in self.names.items()
                }
            if any(
                self.names[key].kind == "lost" and value.kind != "lost"
                for key, value in entry.items()
            ):
                continue
            if any(
                self.is_ragged(self.names[key].example) > self.is_ragged(value.example)
                for key, value in entry.items()
            ):
                continue
            if may_repeat and (
                self.in_place_changes > changes_before or self.not_entered > entered
            ):
                may_repeat = False
                continue
            if all(
                self.names[key].twin is value.twin or self.names[key].kind == "host"
                for key, value in entry.items()
            ):
                break
        else:
            raise self.refuse(node, "the shapes of tensors in this loop do not settle")
        self.varying_names -= varying
        if not leaves(steps):  # a `del` in the body may have deleted names
            self.names = {
                key: value
                for key, value in self.names.items()
                if key in after or key not in self.deleted_names
            }
        self.names.update(
            (key, replace(self.names[key], partial=True)) for key in unassigned if key in self.names
        )
        self.merge_exits(node, loop, ends, header is not None)
        self.steps.append(Loop(steps, header))

    def follow_iteration(
        self, node: ast.While | ast.For, loop: FollowedLoop, entry: Names
    ) -> tuple[list[Step], Names, list[tuple[list[Step], Names]]]:
        """Follow one iteration; return its steps, the names at its end, and all paths from it to
        the next one."""
        steps, after = self.specialise_apart(lambda: self.run_iteration(node, loop), self.names)
        ends = [*loop.continues, *([] if leaves(steps) else [(steps, after)])]
        unify(self, [([], entry), *ends])
        return steps, after, ends

    def carry_over(self, node: ast.AST, key: str, value: Value, end: Value | None) -> Value:
        """Return what a name holds at the start of any iteration, given its value at the start and
        the end of one."""
        if value.kind == "lost":
            return value
        if (
            self.has_part_names(key, value, self.names)
            and end is not None
            and list(end.fields) == list(value.fields)
        ):
            return self.rebuild(key, value)
        if (
            end is not None
            and end.kind == value.kind == "static"
            and not same_constant(value.example, end.example)
        ):
            raise self.refuse(
                node, f"{key} is an object and changes in a loop whose length is not known"
            )
        if (
            end is not None
            and end.kind == value.kind == "tensor"
            and end.example is not value.example
        ):
            self.alias_groups.append([value.example, end.example])
        if value.kind == "either" and end is not None and self.fits_either(value, end):
            return value
        if end is not None and end.kind == value.kind != "either" and same_type(value, end):
            self.note_ragged(end.example, [value.example])
            return replace(end, constant=False, among=None) if value.kind == "host" else value
        has_same_constant = (
            end is not None
            and end.kind == value.kind == "either"
            and same_constant(end.instead, value.instead)
        )
        can_widen = end is not None and (
            has_same_constant or (end.kind == "tensor" and value.kind in ("tensor", "either"))
        )
        widened = (
            open_differing_sizes(without_constant(value), without_constant(end))
            if end is not None and can_widen
            else None
        )
        if widened is not None:
            return replace(self.bind_name(key, widened), kind=value.kind)
        if end is not None or key in writes(ast.Module([node], [])) or value.kind != "static":  # type: ignore[list-item]
            if getattr(node, "peeled", False):
                return Value("lost", None, name(key))
            raise self.refuse(
                node, f"{key} changes its type or shape from one iteration to the next", NotSettled
            )
        return value

    def run_iteration(self, node: ast.While | ast.For, loop: FollowedLoop) -> None:
        """Specialise one iteration: the test of a `while` loop, and the body."""
        outer_loops, self.loops = self.loops, [*self.loops, loop]
        self.loop_depth += 1
        try:
            if isinstance(node, ast.While):
                test = self.truth(self.evaluate(node.test))
                if not (test.kind == "static" and test.example):
                    stop = replace(test, code=ast.UnaryOp(ast.Not(), test.code), among=None)
                    labels = ["the loop ends by its condition", "the loop goes on"]
                    self.decide(
                        node,
                        stop,
                        lambda: self.block([*node.orelse, ast.Break()]),
                        lambda: None,
                        labels,
                    )
            self.block(node.body)
        finally:
            self.loops = outer_loops
            self.loop_depth -= 1

    def merge_exits(
        self,
        node: ast.AST,
        loop: FollowedLoop,
        next_paths: list[tuple[list[Step], Names]],
        exhausted: bool,
    ) -> None:
        """Set the names after a loop of an unknown number of iterations.

        next_paths: the paths from an iteration to the next. exhausted: whether the loop also ends
        where no elements are left.
        """
        new_names: Names = {}
        for key in dict.fromkeys(key for _, names in next_paths for key in names):
            if key not in self.names and self.is_variable(key):
                assigning_paths = [(side, names) for side, names in next_paths if key in names]
                values = [(side, names[key]) for side, names in assigning_paths]
                is_single_tuple = len(assigning_paths) == 1 and self.has_part_names(
                    key, values[0][1], assigning_paths[0][1]
                )
                keeps_parts = is_single_tuple and key not in self.deleted_names
                new_names.update(
                    {key: values[0][1]} if keeps_parts else self.join_partial(key, values)
                )
        ends = [(side, {**new_names, **names}) for side, names in loop.exits]
        no_steps: list[Step] = []
        if exhausted or not ends:
            ends.insert(0, (no_steps, {**self.names, **new_names}))
        self.merge(ends, drop_leaving=False)
        if no_steps:
            raise self.refuse(
                node, "a variable that this loop leaves as several things is not supported"
            )

    def do_Break(self, node: ast.Break) -> None:
        self.steps.append(HostStep(ast.Break()))
        self.loops[-1].exits.append((self.steps, self.names))

    def do_Continue(self, node: ast.Continue) -> None:
        if self.loops[-1].unrolled:
            raise self.refuse(
                node, "continue inside with or try, in a loop that is unrolled, is not supported"
            )
        self.steps.append(HostStep(ast.Continue()))
        self.loops[-1].continues.append((self.steps, self.names))
