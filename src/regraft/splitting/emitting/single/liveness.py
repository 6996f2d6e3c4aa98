"""Liveness: the names of the host that are needed at each place."""

from __future__ import annotations

from collections.abc import Mapping

from regraft.splitting.program.residual import (
    Branch,
    HostStep,
    Loop,
    RegionStep,
    Step,
)
from regraft.splitting.program.statements import (
    Break,
    Continue,
    Raise,
    Return,
    Statement,
    assigned_names,
    read_names,
)

# names by the way to leave: "fall", "break", "continue", "return"
Needs = Mapping[str, frozenset[str]]


def live_names(steps: list[Step], needs: Needs) -> frozenset[str]:
    """Return the names whose values are needed before `steps` run. needs: the names needed after
    each way to leave them."""
    needed = needs["fall"]
    for step in reversed(steps):
        if isinstance(step, RegionStep):
            needed = (needed - frozenset(step.outputs)) | frozenset(step.inputs)
        elif isinstance(step, HostStep):
            needed = _live_before_statement(step.statement, needed, needs)
        elif isinstance(step, Branch):
            arms = [live_names(body, {**needs, "fall": needed}) for _, body in step.arms]
            tests = [read_names(test) for test, _ in step.arms if test is not None]
            has_else = any(test is None for test, _ in step.arms)
            needed = frozenset().union(*arms, *tests, frozenset() if has_else else needed)
        elif isinstance(step, Loop):
            needed = live_at_head(step, {**needs, "fall": needed})
    return needed


def live_at_head(step: Loop, needs: Needs) -> frozenset[str]:
    """Return the names whose values are needed at the start of each iteration of a loop. needs:
    those needed after each way to leave the block around the loop; `needs["fall"]` are those needed
    after the loop."""
    after = needs["fall"]
    needed = after if step.header else frozenset()
    while True:
        needed_before = live_names(
            step.body, {**needs, "fall": needed, "continue": needed, "break": after}
        )
        if step.header is not None:
            target, values = step.header
            needed_before = (needed_before - {target}) | read_names(values) | after
        if needed_before <= needed:
            return needed
        needed |= needed_before


def _live_before_statement(
    statement: Statement, needed: frozenset[str], needs: Needs
) -> frozenset[str]:
    """Return the names needed before a statement, from those needed after it (`needed`), or after
    the way by which it leaves the block (`needs`)."""
    if isinstance(statement, (Return, Raise)):
        needed = frozenset()
    elif isinstance(statement, Break):
        needed = needs["break"]
    elif isinstance(statement, Continue):
        needed = needs["continue"]
    return (needed - assigned_names(statement)) | read_names(statement)


_WAYS_OF_STATEMENTS = {
    Return: frozenset({"return"}),
    Break: frozenset({"break"}),
    Continue: frozenset({"continue"}),
    Raise: frozenset[str](),
}


def exit_ways(steps: list[Step]) -> frozenset[str]:
    """Return the ways in which control may leave `steps`: "fall" (past the last step), "return",
    "break" and "continue". A path that raises adds none, and a loop absorbs "break" and
    "continue" of its body."""
    leaving_ways: frozenset[str] = frozenset()
    for step in steps:
        step_ways = frozenset({"fall"})
        if isinstance(step, HostStep):
            step_ways = _WAYS_OF_STATEMENTS.get(type(step.statement), step_ways)
        elif isinstance(step, Branch):
            step_ways = frozenset().union(*(exit_ways(body) for _, body in step.arms))
            step_ways |= {"fall"} if all(test is not None for test, _ in step.arms) else set()
        elif isinstance(step, Loop):
            step_ways = frozenset({"fall"}) | (exit_ways(step.body) & {"return"})
        leaving_ways |= step_ways - {"fall"}
        if "fall" not in step_ways:
            return leaving_ways
    return leaving_ways | {"fall"}
