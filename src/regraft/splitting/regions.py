"""Regions: maximal straight-line tensor code between decisions, with what goes in and what comes out."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from regraft.splitting.residual import (
    Branch,
    HostStep,
    Loop,
    Region,
    RegionStep,
    Step,
    TensorStep,
    leaves,
    reads,
    writes,
)

COPIES = 2  # sides of a branch into which the code after it may be copied


def partition(steps: list[Step], outside: frozenset[str]) -> tuple[list[Step], list[Region]]:
    """The program with its tensor statements gathered into regions; `outside` are names that are no variables."""
    steps = gather(steps)
    maker = _Maker(outside)
    steps = maker.group(steps)
    maker.live(steps, set(), set(), set())
    steps = maker.drop(steps)
    for number, region in enumerate(maker.kept):
        region.number = number
    return maker.numbered(steps), maker.kept


def gather(steps: list[Step]) -> list[Step]:
    """Move tensor statements up over host statements that they do not touch, and into the sides of a branch before."""
    placed: list[Step] = []
    for step in steps:
        if not isinstance(step, TensorStep):
            placed.append(step)
            continue
        place = len(placed)
        while place and _commute(step, placed[place - 1]):
            place -= 1
        if place != len(placed) and place and isinstance(placed[place - 1], (TensorStep, Branch)):
            placed.insert(place, step)
        else:
            placed.append(step)
    result: list[Step] = []
    for step in placed:
        target = result[-1] if result else None
        if isinstance(step, TensorStep) and isinstance(target, Branch) and all(target.labels):  # each is checked
            open_arms = [body for _, body in target.arms if not leaves(body)]
            if len(open_arms) <= COPIES:
                for body in open_arms:
                    body.append(step)
                continue
        result.append(step)
    for step in result:
        if isinstance(step, Branch):
            step.arms = [(test, gather(body)) for test, body in step.arms]
        elif isinstance(step, Loop):
            step.body = gather(step.body)
    return result


def _commute(step: TensorStep, other: Step) -> bool:
    if not isinstance(other, HostStep) or isinstance(
        other.statement, (ast.Return, ast.Break, ast.Continue, ast.Raise)
    ):
        return False
    mine, theirs = writes(step.statement), writes(other.statement)
    return not (reads(step.statement) & theirs or mine & (reads(other.statement) | theirs))


@dataclass
class _Maker:
    outside: frozenset[str]
    found: list[Region] = field(default_factory=list)
    kept: list[Region] = field(default_factory=list)
    renumber: dict[int, int] = field(default_factory=dict)
    used: dict[int, list[ast.stmt]] = field(default_factory=dict)  # of each region: the statements that somebody needs

    def group(self, steps: list[Step]) -> list[Step]:
        result: list[Step] = []
        run: list[ast.stmt] = []
        places: list[tuple[str, int]] = []

        def close() -> None:
            if run and all(isinstance(one, ast.Assign) and isinstance(one.value, ast.Name) for one in run):
                result.extend(HostStep(one) for one in run)
            elif run:
                number = len(self.found)
                self.found.append(Region(number, list(run), (), (), places[0]))
                result.append(RegionStep(number, (), ()))
            run.clear()
            places.clear()

        for step in steps:
            if isinstance(step, TensorStep):
                run.append(step.statement)
                places.append(step.place)
                continue
            close()
            if isinstance(step, Branch):
                step.arms = [(test, self.group(body)) for test, body in step.arms]
            elif isinstance(step, Loop):
                step.body = self.group(step.body)
            result.append(step)
        close()
        return result

    def live(self, steps: list[Step], after: set[str], on_break: set[str], on_continue: set[str]) -> set[str]:
        """The names needed before `steps`, given those needed after them; sets what regions take and give."""
        needed = set(after)
        for step in reversed(steps):
            if isinstance(step, RegionStep):
                needed = self.at_region(step, needed)
            elif isinstance(step, HostStep):
                statement = step.statement
                if isinstance(statement, (ast.Return, ast.Raise)):
                    needed = set()
                elif isinstance(statement, ast.Break):
                    needed = set(on_break)
                elif isinstance(statement, ast.Continue):
                    needed = set(on_continue)
                needed = (needed - writes(statement)) | self.variables(statement)
            elif isinstance(step, Branch):
                tests = {key for test, _ in step.arms if test is not None for key in self.variables(test)}
                around = needed if step.arms[-1][0] is not None else set()  # what follows where no arm is taken
                arms = (self.live(body, needed, on_break, on_continue) for _, body in step.arms)
                needed = around.union(tests, *arms)
            elif isinstance(step, Loop):
                needed = self.at_loop(step, needed)
        return needed

    def at_region(self, step: RegionStep, needed: set[str]) -> set[str]:
        region = self.found[step.number]
        inputs, defined = set(needed), set()
        used: list[ast.stmt] = []
        for statement in reversed(region.statements):
            if writes(statement) & inputs:
                used.append(statement)
                defined |= writes(statement)
                inputs = (inputs - writes(statement)) | self.variables(statement)
        self.used[step.number] = used[::-1]
        inputs = {key for one in used for key in self.variables(one)} & inputs
        region.inputs, region.outputs = tuple(sorted(inputs)), tuple(sorted(defined & needed))
        step.inputs, step.outputs = region.inputs, region.outputs
        return (needed - defined) | inputs if region.outputs else needed

    def at_loop(self, step: Loop, after: set[str]) -> set[str]:
        head: set[str] = set(after) if step.header else set()
        while True:
            again = self.live(step.body, head, after, head)
            if step.header is not None:
                again = (again - writes(step.header[0])) | self.variables(step.header[1]) | after
            if again <= head:
                return head
            head |= again

    def variables(self, node: ast.AST) -> set[str]:
        return reads(node) - self.outside

    def drop(self, steps: list[Step]) -> list[Step]:
        """Without regions that give nothing anybody needs."""
        result: list[Step] = []
        for step in steps:
            if isinstance(step, RegionStep):
                region = self.found[step.number]
                if not region.outputs:
                    continue
                self.renumber[step.number] = len(self.kept)
                region.statements = self.used[step.number]
                self.kept.append(region)
            elif isinstance(step, Branch):
                step.arms = [(test, self.drop(body)) for test, body in step.arms]
            elif isinstance(step, Loop):
                step.body = self.drop(step.body)
            result.append(step)
        return result

    def numbered(self, steps: list[Step]) -> list[Step]:
        for step in steps:
            if isinstance(step, RegionStep):
                step.number = self.renumber[step.number]
            elif isinstance(step, Branch):
                for _, body in step.arms:
                    self.numbered(body)
            elif isinstance(step, Loop):
                self.numbered(step.body)
        return steps
