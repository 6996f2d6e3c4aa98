"""The residual program that specialisation leaves of a network: tensor statements, host statements
and control."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from regraft.splitting.program.statements import (
    Assign,
    Computation,
    Raise,
    Statement,
    Terminator,
    raise_message,
    read_names,
    rename,
)

_SHOWN = 200  # characters of a region's limits in an error
BEYOND_LIMITS = "no example has such sizes"  # in the error that a region raises beyond its limits


@dataclass
class TensorStep:
    """A statement that a region computes, without control flow or Python state. place: its file and
    line."""

    statement: Computation
    place: tuple[str, int] = ("", 0)


@dataclass
class HostStep:
    """A statement that stays in the host. place: file and line in the source, ("", 0) where there
    is none."""

    statement: Statement
    place: tuple[str, int] = ("", 0)


@dataclass
class Branch:
    """An `if`/`elif` on values: the tests (None: else) and bodies of its arms.

    labels: the conditions on which the arms are taken; "" for an arm that only leaves out an
    operand of `and` or `or`. numbers: each arm's number among the network's sides; -1 for an arm
    that only raises or leaves out an operand, which no input has to show. by_size: whether sizes of
    inputs alone decide.
    """

    arms: list[tuple[ast.expr | None, list[Step]]]
    line: int
    path: str
    labels: list[str]
    numbers: list[int] = field(default_factory=list)
    by_size: bool = False


@dataclass(frozen=True)
class Side:
    """A side of a decision: its place in the source, and the condition on which it is taken.

    by_size: whether sizes of inputs alone decide.
    """

    path: str
    line: int
    label: str
    by_size: bool = False


@dataclass
class Loop:
    """A `while True` loop (header None) or a loop `for target in values`, whose body leaves by
    `break`."""

    body: list[Step]
    header: tuple[str, ast.expr] | None = None


@dataclass
class RegionStep:
    """A call of region `number`: the names that it reads and the names that it assigns."""

    number: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class Region:
    """A static sub-network: straight-line statements, and the names of its inputs and outputs.

    place: file and line of its first statement. places: those of all statements that it was made
    of. samples: inputs of different sizes that runs gave
    it. open: the dimensions of each input whose size may differ. measured: whether the region stays
    eager where torch is faster. limits: conditions on sizes of the inputs, as Python expressions,
    outside of which the compiled region was not traced. sized_by_data: whether values decide the
    size of a tensor in it, as far as its comparison with torch has seen. seconds: the shortest
    times of the compiled region and of torch; None where they were not measured. sizes: the inputs
    that are sizes of tensors, which another region or the host has computed. numbers: the inputs
    that are Python numbers of the host. made_up: how many
    samples, the last ones, no run gave: they are of sizes that no run has. further: inputs of other
    sizes, on which the compiled region is compared beside the samples.
    """

    number: int
    statements: list[Computation]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    place: tuple[str, int] = ("", 0)
    places: tuple[tuple[str, int], ...] = ()
    samples: list[tuple[torch.Tensor, ...]] = field(default_factory=list)
    open: tuple[frozenset[int], ...] = ()
    measured: bool = False
    limits: list[str] = field(default_factory=list)
    sized_by_data: bool = False
    seconds: tuple[float, float] | None = None
    sizes: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    made_up: int = 0
    further: list[tuple[torch.Tensor, ...]] = field(default_factory=list)


Step = TensorStep | HostStep | Branch | Loop | RegionStep


def leaves_block(steps: list[Step]) -> bool:
    """Return whether control never falls out of the end of these steps: the last is a statement
    that leaves, or an `if` with an `else` whose arms all leave. False for no steps, and after any
    loop."""
    if not steps:
        return False
    last = steps[-1]
    if isinstance(last, HostStep):
        return isinstance(last.statement, Terminator)
    return (
        isinstance(last, Branch)
        and last.arms[-1][0] is None
        and all(leaves_block(body) for _, body in last.arms)
    )


def all_steps(steps: list[Step]) -> Iterator[Step]:
    """Yield these steps and those in their bodies, block by block."""
    return (step for block in blocks(steps) for step in block)


def blocks(steps: list[Step]) -> Iterator[list[Step]]:
    """Yield these steps and the bodies in them at any depth, each as a list that may be changed."""
    yield steps
    for step in steps:
        for body in (
            [step.body] if isinstance(step, Loop) else [arm for _, arm in getattr(step, "arms", ())]
        ):
            yield from blocks(body)


def append_before_exit(steps: list[Step], step: Step) -> None:
    """Insert a step at the end of a path's steps, in place: before the last one if that leaves
    (`leaves_block`), else after it."""
    steps.insert(len(steps) - leaves_block(steps), step)


def number_sides(steps: list[Step]) -> list[Side]:
    """Number the arms of all branches, in the order of the host's text, and return the sides in
    this order; the numbers are set in the branches. An arm without a label, or that only raises,
    gets -1.

    A line that was unrolled has several sides.
    """
    sides: list[Side] = []

    def walk(steps: list[Step]) -> None:
        """Set `numbers` of the branches in these steps, and append their sides to `sides`."""
        for step in steps:
            if isinstance(step, Loop):
                walk(step.body)
            elif isinstance(step, Branch):
                step.numbers = []
                for (_, body), label in zip(step.arms, step.labels, strict=True):
                    is_numbered = bool(label) and not begins_with_raise(body)
                    step.numbers.append(len(sides) if is_numbered else -1)
                    if is_numbered:
                        sides.append(Side(step.path, step.line, label, step.by_size))
                    walk(body)

    walk(steps)
    return sides


def sides_at_infinity(steps: list[Step], regions: list[Region]) -> set[int]:
    """Return the numbers of the sides of decisions that compare with infinity, which no ordinary
    input takes: the test does so itself, or reads the result of such a comparison in a region."""
    statements = [statement for region in regions for statement in region.statements]
    compared = {
        statement.target
        for statement in statements
        if isinstance(statement, Assign)
        and isinstance(statement.value, ast.Compare)
        and has_infinity(statement.value)
    }
    return _sides_at_infinity(steps, compared)


def has_infinity(node: ast.AST) -> bool:
    """Return whether infinity is a constant in the code, also behind a minus sign."""
    return any(
        isinstance(child, ast.Constant) and child.value == math.inf for child in ast.walk(node)
    )


def _sides_at_infinity(steps: list[Step], compared: set[str]) -> set[int]:
    """Return the numbers of the sides whose branch compares with infinity or reads one of the names
    `compared`."""
    numbers: set[int] = set()
    for step in steps:
        if isinstance(step, Loop):
            numbers |= _sides_at_infinity(step.body, compared)
        elif isinstance(step, Branch):
            tests = [test for test, _ in step.arms if test is not None]
            if any(has_infinity(test) or read_names(test) & compared for test in tests):
                numbers |= set(step.numbers) - {-1}
            for _, body in step.arms:
                numbers |= _sides_at_infinity(body, compared)
    return numbers


def close_sides(steps: list[Step], taken: set[int]) -> None:
    """Let every numbered side that is not in `taken` raise a RuntimeError; the steps are changed,
    and such a side gets the number -1."""
    for step in steps:
        if isinstance(step, Loop):
            close_sides(step.body, taken)
        elif isinstance(step, Branch):
            for position, number in enumerate(step.numbers):
                test, body = step.arms[position]
                if number >= 0 and number not in taken:
                    reason = (
                        f"{step.path}:{step.line}: the side where {step.labels[position]} was never"
                        " checked"
                    )
                    error = HostStep(raise_message("RuntimeError", reason))
                    step.arms[position], step.numbers[position] = (test, [error]), -1
                else:
                    close_sides(body, taken)


def guard_regions(steps: list[Step], regions: list[Region]) -> None:
    """Let the program raise a ValueError in front of a region that gets sizes beyond its limits;
    the steps are changed."""
    for block in list(blocks(steps)):
        for position, step in reversed(list(enumerate(block))):
            if isinstance(step, RegionStep) and regions[step.number].limits:
                block.insert(position, _limit_test(step, regions[step.number]))


def _limit_test(step: RegionStep, region: Region) -> Branch:
    """Return the branch that raises ValueError where the sizes of the inputs that `step` gives to a
    region are outside of its limits."""
    host_names = dict(zip(region.inputs, step.inputs, strict=True))
    conditions = " and ".join(f"({limit})" for limit in region.limits)
    test = rename(ast.parse(f"not ({conditions})", mode="eval").body, host_names)
    path, line = region.place
    reason = (
        f"{path}:{line}: {BEYOND_LIMITS}; sizes decide what is computed here, and this network was"
        f" split for {_shown_limits(region.limits)}: split again with an example call of these"
        " sizes"
    )
    error = HostStep(raise_message("ValueError", reason))
    return Branch([(test, [error])], line, path, [""], [-1])


def _shown_limits(limits: Sequence[str]) -> str:
    """Return limits of sizes as one condition; for a long one the sizes that it compares."""
    text = " and ".join(limits)
    if len(text) <= _SHOWN:
        return text
    sizes = list(dict.fromkeys(re.findall(r"[\w.]+\.shape\[\d+\]", text)))
    named = f" on {', '.join(sizes)}" if sizes else ""
    return f"{len(limits)} conditions{named}, which the report lists"


def regions_decided_by_sizes(steps: list[Step]) -> set[int]:
    """Return the numbers of the regions in the arms of branches that sizes of inputs alone decide,
    at any depth: also those inside of a branch on values in such an arm, and those of an `else`."""
    bodies = [
        body
        for step in all_steps(steps)
        if isinstance(step, Branch) and step.by_size
        for _, body in step.arms
    ]
    return {
        step.number for body in bodies for step in all_steps(body) if isinstance(step, RegionStep)
    }


def close_regions(steps: list[Step], regions: list[Region]) -> list[Region]:
    """Replace each region without a sample, and the steps after it in its block, by a step that
    raises RuntimeError; return the other regions. The steps are changed, and the regions numbered
    anew in place."""
    sampled_regions = [region for region in regions if region.samples]
    numbers = {region.number: position for position, region in enumerate(sampled_regions)}
    for block in list(blocks(steps)):
        for position, step in enumerate(block):
            if isinstance(step, RegionStep) and step.number not in numbers:
                reason = "{}:{}: what stands here was never checked".format(
                    *regions[step.number].place
                )
                block[position:] = [HostStep(raise_message("RuntimeError", reason))]
                break
            if isinstance(step, RegionStep):
                step.number = numbers[step.number]
    for position, region in enumerate(sampled_regions):
        region.number = position
    return sampled_regions


def begins_with_raise(body: list[Step]) -> bool:
    """Return whether the first of the steps is a `raise`."""
    return bool(body) and isinstance(body[0], HostStep) and isinstance(body[0].statement, Raise)
