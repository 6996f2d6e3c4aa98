"""Which names of the host are needed where."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from regraft.splitting.residual import Branch, HostStep, Loop, RegionStep, Step, reads, writes

Needs = Mapping[str, frozenset[str]]  # of each way to leave: "fall", "break", "continue", "return"


def live(steps: list[Step], needs: Needs) -> frozenset[str]:
    """The names needed before `steps`."""
    needed = needs["fall"]
    for step in reversed(steps):
        if isinstance(step, RegionStep):
            needed = (needed - frozenset(step.outputs)) | frozenset(step.inputs)
        elif isinstance(step, HostStep):
            needed = _host(step.statement, needed, needs)
        elif isinstance(step, Branch):
            arms = [live(body, {**needs, "fall": needed}) for _, body in step.arms]
            tests = [reads(test) for test, _ in step.arms if test is not None]
            whole = any(test is None for test, _ in step.arms)
            needed = frozenset().union(*arms, *tests, frozenset() if whole else needed)
        elif isinstance(step, Loop):
            needed = head(step, {**needs, "fall": needed})
    return needed


def head(step: Loop, needs: Needs) -> frozenset[str]:
    """The names needed at the start of each iteration of a loop; `needs["fall"]`: those needed after it."""
    after = needs["fall"]
    found = after if step.header else frozenset()
    while True:
        again = live(step.body, {**needs, "fall": found, "continue": found, "break": after})
        if step.header is not None:
            again = (again - writes(step.header[0])) | reads(step.header[1]) | after
        if again <= found:
            return found
        found |= again


def _host(statement: ast.stmt, needed: frozenset[str], needs: Needs) -> frozenset[str]:
    if isinstance(statement, (ast.Return, ast.Raise)):
        needed = frozenset()
    elif isinstance(statement, ast.Break):
        needed = needs["break"]
    elif isinstance(statement, ast.Continue):
        needed = needs["continue"]
    return (needed - writes(statement)) | reads(statement)


def ways(steps: list[Step]) -> frozenset[str]:
    """The ways in which control may leave `steps`; a path that raises has none."""
    found: frozenset[str] = frozenset()
    for step in steps:
        here = frozenset({"fall"})
        if isinstance(step, HostStep):
            kinds = {ast.Return: {"return"}, ast.Break: {"break"}, ast.Continue: {"continue"}, ast.Raise: set()}
            here = frozenset(kinds.get(type(step.statement), {"fall"}))
        elif isinstance(step, Branch):
            here = frozenset().union(*(ways(body) for _, body in step.arms))
            here |= {"fall"} if all(test is not None for test, _ in step.arms) else set()
        elif isinstance(step, Loop):
            here = frozenset({"fall"}) | (ways(step.body) & {"return"})
        found |= here - {"fall"}
        if "fall" not in here:
            return found
    return found | {"fall"}
