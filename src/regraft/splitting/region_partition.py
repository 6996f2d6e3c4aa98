"""Partition of a residual program into regions: maximal straight-line tensor code between
decisions, with its inputs and outputs."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from regraft.splitting.program.residual import (
    Branch,
    HostStep,
    Loop,
    Region,
    RegionStep,
    Step,
    TensorStep,
    all_steps,
    blocks,
    leaves_block,
)
from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.statements import (
    Assign,
    Break,
    Computation,
    Continue,
    Raise,
    Return,
    Statement,
    Terminator,
    assigned_names,
    read_names,
)

MAX_COPIES = 2  # sides of a branch into which the code after it may be copied


def partition(steps: list[Step], outside: frozenset[str]) -> tuple[list[Step], list[Region]]:
    """Return the program with its tensor statements gathered into regions, and the regions.

    outside: names that are no variables of the program.
    """
    steps = gather(steps)
    partitioner = _Partitioner(outside)
    steps = partitioner.group(steps)
    partitioner.live_before(steps, set(), set(), set())
    steps = partitioner.drop_unneeded(steps)
    for number, region in enumerate(partitioner.regions):
        region.number = number
    return partitioner.renumber_calls(steps), partitioner.regions


def convert_sizes(steps: list[Step], sizes: frozenset[str]) -> None:
    """Insert, in place and at any depth, a step `n = int(n)` of the host after each region that
    computes a size `n` which the host reads, too: regions give arrays, and what the host computes
    with a size is a number of Python.

    sizes: the names of sizes that regions compute.
    """
    read = sizes & {key for step in all_steps(steps) for key in read_by_host(step)}
    for block in blocks(steps):
        for place in range(len(block) - 1, -1, -1):
            step = block[place]
            outputs = step.outputs if isinstance(step, RegionStep) else ()
            block[place + 1 : place + 1] = [
                HostStep(Assign(key, ast.Call(name("int"), [name(key)], [])))
                for key in outputs
                if key in read
            ]


def read_by_host(step: Step) -> set[str]:
    """Return the names that the host itself reads in a step, apart from the steps in its bodies."""
    if isinstance(step, HostStep):
        return read_names(step.statement)
    if isinstance(step, Branch):
        return {key for test, _ in step.arms if test is not None for key in read_names(test)}
    return read_names(step.header[1]) if isinstance(step, Loop) and step.header else set()


def gather(steps: list[Step]) -> list[Step]:
    """Return the steps with tensor statements moved up over host statements that they commute with,
    and from behind a branch into copies at the ends of its sides (at most `MAX_COPIES`), so that
    regions become larger. Bodies of branches and loops are changed in place."""
    gathered = copy_into_sides(move_up(steps))
    for step in gathered:
        if isinstance(step, Branch):
            step.arms = [(test, gather(body)) for test, body in step.arms]
        elif isinstance(step, Loop):
            step.body = gather(step.body)
    return gathered


def move_up(steps: list[Step]) -> list[Step]:
    """Return the steps in an order in which each tensor statement stands directly behind the tensor
    statement or branch before it, if only host statements with which it commutes are in between;
    others stay."""
    placed: list[Step] = []
    for step in steps:
        place = len(placed)
        if isinstance(step, TensorStep):
            while place and _commute(step, placed[place - 1]):
                place -= 1
        joins_region = place > 0 and isinstance(placed[place - 1], (TensorStep, Branch))
        placed.insert(place if joins_region else len(placed), step)
    return placed


def copy_into_sides(steps: list[Step]) -> list[Step]:
    """Return the steps with the tensor statements directly after a branch moved into it: each is
    appended, in place, to the sides that `bodies_for_copies` gives."""
    remaining: list[Step] = []
    for step in steps:
        may_move = bool(remaining) and isinstance(step, TensorStep)
        bodies = bodies_for_copies(remaining[-1]) if may_move else None
        if bodies is None:
            remaining.append(step)
        else:
            for body in bodies:
                body.append(step)
    return remaining


def bodies_for_copies(step: Step) -> list[list[Step]] | None:
    """Return the sides of a branch that get a copy of what follows it: those that fall through.

    Returns None for other steps, for a branch with a side that is not checked, and where there are
    more than `MAX_COPIES` of these sides.
    """
    if not isinstance(step, Branch) or not all(step.labels):
        return None
    bodies = [body for _, body in step.arms if not leaves_block(body)]
    return bodies if len(bodies) <= MAX_COPIES else None


def _commute(step: TensorStep, previous: Step) -> bool:
    """Return whether a tensor statement may move up over the step before it: that is a host
    statement which does not leave, and neither assigns what the other reads or assigns."""
    if not isinstance(previous, HostStep) or isinstance(previous.statement, Terminator):
        return False
    written, written_before = assigned_names(step.statement), assigned_names(previous.statement)
    return not (
        read_names(step.statement) & written_before
        or written & (read_names(previous.statement) | written_before)
    )


@dataclass
class _Partitioner:
    """Makes regions of runs of tensor statements, and drops those whose results nothing needs.

    outside: names that are no variables of the program. A name is live where something reads its
    value later.
    """

    outside: frozenset[str]
    candidates: list[Region] = field(default_factory=list)  # all runs of tensor statements
    regions: list[Region] = field(default_factory=list)  # the candidates with outputs
    # the regions' numbers by those of the candidates
    new_numbers: dict[int, int] = field(default_factory=dict)
    # by the candidates' numbers
    needed_statements: dict[int, list[Computation]] = field(default_factory=dict)

    def group(self, steps: list[Step]) -> list[Step]:
        """Return the steps with each run of tensor statements, at any depth, replaced by a call of
        a new region in `candidates`, still without inputs and outputs.

        A run that only copies variables becomes host statements.
        """
        result: list[Step] = []
        run: list[Computation] = []
        places: list[tuple[str, int]] = []

        def close() -> None:
            """Append the run of tensor statements so far to the result, as a call of a new region
            or as host statements, and begin a new run."""
            if run and all(isinstance(statement.value, ast.Name) for statement in run):
                result.extend(HostStep(statement) for statement in run)
            elif run:
                number = len(self.candidates)
                self.candidates.append(Region(number, list(run), (), (), places[0], tuple(places)))
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

    def live_before(
        self, steps: list[Step], after: set[str], on_break: set[str], on_continue: set[str]
    ) -> set[str]:
        """Return the names that are live before `steps`, and set the inputs and outputs of their
        regions.

        after, on_break, on_continue: the names that are live after the steps, after the loop
        around, and before its next iteration.
        """
        live = set(after)
        for step in reversed(steps):
            if isinstance(step, RegionStep):
                live = self.live_before_region(step, live)
            elif isinstance(step, HostStep):
                live = self.live_before_statement(step.statement, live, on_break, on_continue)
            elif isinstance(step, Branch):
                live = self.live_before_branch(step, live, on_break, on_continue)
            elif isinstance(step, Loop):
                live = self.live_before_loop(step, live)
        return live

    def live_before_statement(
        self, statement: Statement, live: set[str], on_break: set[str], on_continue: set[str]
    ) -> set[str]:
        """Return the names that are live before a statement of the host.

        live, on_break, on_continue: the names that are live after it, after the loop around, and
        before its next iteration; a statement that leaves goes to the latter two, or to no name.
        """
        if isinstance(statement, (Return, Raise)):
            live = set()
        elif isinstance(statement, Break):
            live = on_break
        elif isinstance(statement, Continue):
            live = on_continue
        return (live - assigned_names(statement)) | self.variables_read(statement)

    def live_before_branch(
        self, step: Branch, live: set[str], on_break: set[str], on_continue: set[str]
    ) -> set[str]:
        """Return the names that are live before a branch, and set the inputs and outputs of the
        regions in it. live: those after it."""
        tests = [self.variables_read(test) for test, _ in step.arms if test is not None]
        arms = [self.live_before(body, live, on_break, on_continue) for _, body in step.arms]
        has_else = step.arms[-1][0] is None
        return set().union(*tests, *arms, set() if has_else else live)

    def live_before_region(self, step: RegionStep, live: set[str]) -> set[str]:
        """Return the names that are live before a region, given those after it; set its inputs and
        outputs, and note in `needed_statements` those of its statements that compute them."""
        region = self.candidates[step.number]
        inputs, defined = set(live), set()
        needed_statements: list[Computation] = []
        for statement in reversed(region.statements):
            if assigned_names(statement) & inputs:
                needed_statements.append(statement)
                defined |= assigned_names(statement)
                inputs = (inputs - assigned_names(statement)) | self.variables_read(statement)
        self.needed_statements[step.number] = needed_statements[::-1]
        inputs = {
            key for statement in needed_statements for key in self.variables_read(statement)
        } & inputs
        region.inputs, region.outputs = tuple(sorted(inputs)), tuple(sorted(defined & live))
        step.inputs, step.outputs = region.inputs, region.outputs
        return (live - defined) | inputs if region.outputs else live

    def live_before_loop(self, step: Loop, after: set[str]) -> set[str]:
        """Return the names that are live before a loop, given those after it: names needed at the
        start of any iteration, which are collected until no more are added."""
        live_at_head: set[str] = set(after) if step.header else set()
        while True:
            before = self.live_before(step.body, live_at_head, after, live_at_head)
            if step.header is not None:
                target, values = step.header
                before = (before - {target}) | self.variables_read(values) | after
            if before <= live_at_head:
                return live_at_head
            live_at_head |= before

    def variables_read(self, code: ast.AST | Statement) -> set[str]:
        """Return the program's variables that the code reads."""
        return read_names(code) - self.outside

    def drop_unneeded(self, steps: list[Step]) -> list[Step]:
        """Return the steps without regions that have no outputs, at any depth; strip the statements
        that nobody needs from the other regions, and append these to `self.regions`."""
        result: list[Step] = []
        for step in steps:
            if isinstance(step, RegionStep):
                region = self.candidates[step.number]
                if not region.outputs:
                    continue
                self.new_numbers[step.number] = len(self.regions)
                region.statements = self.needed_statements[step.number]
                self.regions.append(region)
            elif isinstance(step, Branch):
                step.arms = [(test, self.drop_unneeded(body)) for test, body in step.arms]
            elif isinstance(step, Loop):
                step.body = self.drop_unneeded(step.body)
            result.append(step)
        return result

    def renumber_calls(self, steps: list[Step]) -> list[Step]:
        """Set the numbers of the calls of regions, in place and at any depth, to those of
        `new_numbers`, and return the steps."""
        for step in steps:
            if isinstance(step, RegionStep):
                step.number = self.new_numbers[step.number]
            elif isinstance(step, Branch):
                for _, body in step.arms:
                    self.renumber_calls(body)
            elif isinstance(step, Loop):
                self.renumber_calls(step.body)
        return steps
