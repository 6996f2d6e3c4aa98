"""What is left of a network after specialisation: tensor statements, host statements and the control between them."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch


@dataclass
class TensorStep:
    """One statement that a region computes; no control flow, no Python state. place: file and line in the source."""

    statement: ast.stmt
    place: tuple[str, int] = ("", 0)


@dataclass
class HostStep:
    """One statement that stays in the host. place: file and line in the source, where there is one."""

    statement: ast.stmt
    place: tuple[str, int] = ("", 0)


@dataclass
class Branch:
    """`if`/`elif` on values: the arms' tests (None: else) and bodies.

    labels: when each arm is taken; "" where it only leaves out an operand of `and` or `or`. numbers: each arm's number
    among the network's sides; -1 where it only raises or leaves out an operand, which no input has to show.
    """

    arms: list[tuple[ast.expr | None, list[Step]]]
    line: int
    path: str
    labels: list[str]
    numbers: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Side:
    """One side of a decision, where it stands in the source, and when it is taken."""

    path: str
    line: int
    label: str


@dataclass
class Loop:
    """`while True` (header None) or `for target in values`; its body leaves by `break`."""

    body: list[Step]
    header: tuple[ast.expr, ast.expr] | None = None


@dataclass
class RegionStep:
    """A call of region `number` with the names it reads and the names it gives."""

    number: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class Region:
    """A static sub-network: straight-line statements, what goes in and what comes out.

    place: file and line of its first statement.
    samples: inputs that were seen, of different sizes. open: the dimensions of each input whose size may differ.
    measured: whether torch may take it because it is faster.
    """

    number: int
    statements: list[ast.stmt]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    place: tuple[str, int] = ("", 0)
    samples: list[tuple[torch.Tensor, ...]] = field(default_factory=list)
    open: tuple[frozenset[int], ...] = ()
    measured: bool = False


Step = TensorStep | HostStep | Branch | Loop | RegionStep


def reads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def writes(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def leaves(steps: list[Step]) -> bool:
    """Whether control never falls out of the end of these steps."""
    if not steps:
        return False
    last = steps[-1]
    if isinstance(last, HostStep):
        return isinstance(last.statement, (ast.Return, ast.Break, ast.Continue, ast.Raise))
    return isinstance(last, Branch) and last.arms[-1][0] is None and all(leaves(body) for _, body in last.arms)


def all_steps(steps: list[Step]) -> Iterator[Step]:
    """These steps, and those inside of them."""
    return (step for block in blocks(steps) for step in block)


def blocks(steps: list[Step]) -> Iterator[list[Step]]:
    """These steps, and the bodies inside of them."""
    yield steps
    for step in steps:
        for body in [step.body] if isinstance(step, Loop) else [one for _, one in getattr(step, "arms", ())]:
            yield from blocks(body)


def at_the_end(steps: list[Step], step: Step) -> None:
    """Add a step to a path, before it leaves."""
    steps.insert(len(steps) - leaves(steps), step)


def number_sides(steps: list[Step]) -> list[Side]:
    """Number the arms of all branches, in the order of the host's text; a line that was unrolled has several."""
    sides: list[Side] = []

    def walk(steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Loop):
                walk(step.body)
            elif isinstance(step, Branch):
                step.numbers = []
                for (_, body), label in zip(step.arms, step.labels, strict=True):
                    counts = bool(label) and not raises(body)
                    step.numbers.append(len(sides) if counts else -1)
                    if counts:
                        sides.append(Side(step.path, step.line, label))
                    walk(body)

    walk(steps)
    return sides


def beyond_numbers(steps: list[Step], regions: list[Region]) -> set[int]:
    """The sides of decisions that compare with infinity, which no ordinary input takes."""
    statements = [one for region in regions for one in region.statements]
    found = [one for one in statements if isinstance(one, ast.Assign) and isinstance(one.value, ast.Compare)]
    compared = {key for one in found if has_infinity(one) for key in writes(one)}
    return _beyond(steps, compared)


def has_infinity(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Constant) and one.value == math.inf for one in ast.walk(node))


def _beyond(steps: list[Step], compared: set[str]) -> set[int]:
    found: set[int] = set()
    for step in steps:
        if isinstance(step, Loop):
            found |= _beyond(step.body, compared)
        elif isinstance(step, Branch):
            tests = [test for test, _ in step.arms if test is not None]
            if any(has_infinity(test) or reads(test) & compared for test in tests):
                found |= set(step.numbers) - {-1}
            for _, body in step.arms:
                found |= _beyond(body, compared)
    return found


def close_sides(steps: list[Step], taken: set[int]) -> None:
    """Let every side that is not among those taken raise an error."""
    for step in steps:
        if isinstance(step, Loop):
            close_sides(step.body, taken)
        elif isinstance(step, Branch):
            for place, number in enumerate(step.numbers):
                test, body = step.arms[place]
                if number >= 0 and number not in taken:
                    reason = f"{step.path}:{step.line}: the side where {step.labels[place]} was never checked"
                    error = ast.parse(f"raise RuntimeError({reason!r})").body[0]
                    step.arms[place], step.numbers[place] = (test, [HostStep(error)]), -1
                else:
                    close_sides(body, taken)


def close_regions(steps: list[Step], regions: list[Region]) -> list[Region]:
    """Let an error be raised where a region without a sample stands; the other regions, numbered anew."""
    kept = [one for one in regions if one.samples]
    numbers = {one.number: place for place, one in enumerate(kept)}
    for block in list(blocks(steps)):
        for place, step in enumerate(block):
            if isinstance(step, RegionStep) and step.number not in numbers:
                reason = "{}:{}: what stands here was never checked".format(*regions[step.number].place)
                block[place:] = [HostStep(ast.parse(f"raise RuntimeError({reason!r})").body[0])]
                break
            if isinstance(step, RegionStep):
                step.number = numbers[step.number]
    for place, one in enumerate(kept):
        one.number = place
    return kept


def raises(body: list[Step]) -> bool:
    return bool(body) and isinstance(body[0], HostStep) and isinstance(body[0].statement, ast.Raise)
