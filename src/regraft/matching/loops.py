"""Values in loops: numbers of steps, and what is computed before a loop."""

from __future__ import annotations

from regraft.structure.containers import NUMBERED_STEP
from regraft.structure.model import Node, Value

_ARITHMETIC = frozenset({"py.binary", "add", "sub", "mul", "neg", "floor_divide", "remainder"})


def step_node(value: Value) -> Node | None:
    """Return the node that gives the number of a step, of a loop over `range` or `enumerate`, from
    which a value is computed by arithmetic of numbers; None for any other value.

    Of several such loops it is that of the innermost.
    """
    node = value.node
    if node is None:
        return None
    if node.op == NUMBERED_STEP:
        return node if value.kind == "int" else None
    if node.op not in _ARITHMETIC or any(
        argument.kind == "tensor" for argument in node.args.values()
    ):
        return None
    steps = [step for argument in node.args.values() if (step := step_node(argument)) is not None]
    return max(steps, key=lambda step: step.time, default=None)


def start_of(step: Node) -> int:
    """Return the time at which a loop starts whose steps a node numbers: before the first step,
    after what it goes over is computed."""
    source = step.args["source"].node
    return source.time if source is not None else step.time


def is_before(value: Value, step: Node) -> bool:
    """Return whether a value is computed before a loop, and is the same in all of its steps."""
    return value.born < start_of(step)
