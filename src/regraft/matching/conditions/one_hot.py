"""The conditions that a tensor holds one-hot vectors: zeros, into which ones were scattered, or
what `one_hot` returns."""

from __future__ import annotations

from collections.abc import Callable

from regraft.matching.conditions.values_for_conditions import Arguments, Scope, variable_text
from regraft.matching.shared_memory_of_tensors import SHARING_OPS
from regraft.structure.values_and_nodes import Node, Value

# Operations that make tensors of zeros; `torch.zeros` is a function without tensors.
_ZEROS_OPS = frozenset({"new_zeros", "zeros_like"})
_SCATTER_OPS = frozenset({"scatter", "scatter_"})


def scattered_ones(args: Arguments, scope: Scope) -> str:
    """Return a reason unless all that the function writes into a new tensor of zeros are ones, by
    `scatter`."""
    value = scope.value(args[0])
    steps = _steps_since(_makes_zeros, value) if value is not None else ()
    if not steps or not all(map(_is_written_by_scatter_alone, steps)):
        return f"{variable_text(args[0])} is not known to be zeros with scattered ones"
    writers = [use for step in steps for use in step.every_use() if use.op in _SCATTER_OPS]
    return "" if writers else f"nothing is scattered into {variable_text(args[0])}"


def encoded_ones(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is what `one_hot` returns, cast or not, and the function
    writes nothing into it but ones, by `scatter`."""
    value = scope.value(args[0])
    steps = _steps_since(_encodes, value) if value is not None else ()
    is_known = steps and all(map(_is_written_by_scatter_alone, steps))
    return "" if is_known else f"{variable_text(args[0])} is not known to be of one_hot"


def _steps_since(makes_first: Callable[[Node], bool], value: Value) -> tuple[Value, ...]:
    """Return a value and those of which casts and `scatter` made it, back to the first, which a
    certain operation makes; () where none of them is such a value."""
    steps = [value]
    while steps[-1].node is not None:
        node = steps[-1].node
        if makes_first(node):
            return tuple(steps)
        if node.op != "to" and not _scatters_ones(node):
            return ()
        steps.append(node.args["input"])
    return ()


def _makes_zeros(node: Node) -> bool:
    """Return whether a node makes a new tensor of zeros."""
    return node.op in _ZEROS_OPS or (node.op == "py.call" and node.spelling == "torch.zeros")


def _encodes(node: Node) -> bool:
    """Return whether a node makes one-hot vectors of indices."""
    return node.op == "one_hot"


def _is_written_by_scatter_alone(value: Value) -> bool:
    """Return whether no use of a tensor, or of what may share its memory, has effects but for those
    that scatter ones, and no function inside this one reads it."""
    visited, pending = {value}, [value]
    while pending:
        for use in pending.pop().every_use():
            if use.op == "py.lambda" or (use.effect and not _scatters_ones(use)):
                return False
            if use.op in SHARING_OPS and use.output not in visited:
                visited.add(use.output)
                pending.append(use.output)
    return True


def _scatters_ones(node: Node) -> bool:
    """Return whether a node writes ones at indices of a dimension."""
    value = node.args.get("value")
    return node.op in _SCATTER_OPS and value is not None and value.const == 1
