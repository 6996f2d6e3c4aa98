"""Values in loops: numbers of steps, and what is computed before a loop."""

from __future__ import annotations

import ast

from regraft.matching.uses import is_branching
from regraft.structure.containers import NUMBERED_STEP
from regraft.structure.values_and_nodes import Node, Value

_ARITHMETIC = frozenset(
    {"py.binary", "py.unary", "add", "sub", "mul", "neg", "floor_divide", "remainder"}
)
_CALLS = frozenset({"call", "py.call"})


def step_nodes(value: Value) -> tuple[Node, ...]:
    """Return the nodes that give the numbers of steps, of loops over `range` or `enumerate`, from
    which a value is computed by arithmetic of numbers, that of the outermost loop first; () for
    any other value."""
    node = value.node
    if node is None:
        return ()
    if node.op == NUMBERED_STEP:
        return (node,) if value.kind == "int" else ()
    if node.op not in _ARITHMETIC or not all(map(_may_be_number, node.args.values())):
        return ()
    if isinstance(node.expr, ast.UnaryOp) and not isinstance(node.expr.op, ast.USub):
        return ()
    steps = {step for argument in node.args.values() for step in step_nodes(argument)}
    return tuple(sorted(steps, key=lambda step: step.time))


def _may_be_number(value: Value) -> bool:
    """Return whether nothing says that a value is a tensor, an array or a list: the result of a
    call is a number only where the function is known to return one."""
    if value.kind in ("int", "scalar"):
        return True
    is_result = value.node is not None and value.node.op in _CALLS
    return value.kind not in ("tensor", "tuple", "module") and not is_result


def time_before_loop(step: Node) -> int:
    """Return the time of the statement that holds a loop whose steps a node numbers (the `for`
    itself, or the statement with a comprehension): values computed earlier exist before the
    loop."""
    return step.statement.time


def is_carried(value: Value, step: Value) -> bool:
    """Return whether `value` is what a loop carries to the next step where a step results in
    `step`: in the first step it is the value from before the loop, later the result. A tuple is
    carried where each element is the same element of the result."""
    elements = tuple_elements(value)
    if elements:
        return all(
            any(
                is_element(option, step, number) and is_carried(element, option)
                for _, option in element.options
            )
            for number, element in enumerate(elements)
        )
    if value.origin != "phi" or is_branching(value) or step.node is None:
        return False
    return any(option is step for _, option in value.options)


def tuple_elements(value: Value) -> tuple[Value, ...]:
    """Return the elements of a tuple that the source writes in one place; () for others."""
    is_display = value.node is not None and isinstance(value.node.expr, ast.Tuple)
    return tuple(value.node.args.values()) if value.node is not None and is_display else ()


def is_element(value: Value, whole: Value, number: int) -> bool:
    """Return whether a value is `whole[number]`, written with this constant number; False for the
    part of a starred name."""
    node = value.node
    if node is None or node.op != "py.item" or node.args.get("base") is not whole:
        return False
    index = node.args.get("index")  # absent for a starred name, which takes several elements
    return index is not None and index.const == number


def is_before(value: Value, step: Node) -> bool:
    """Return whether a value is computed before the statement of a loop, and is the same in all of
    its steps."""
    return value.origin == "const" or value.born < time_before_loop(step)
