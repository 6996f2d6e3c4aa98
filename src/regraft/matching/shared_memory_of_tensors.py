"""The memory of tensors, as far as the source says: what a write may change."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.matching.uses import METADATA
from regraft.structure.calls import PURE_FUNCTIONS, changes_input
from regraft.structure.optable import SPLITTING_OPS
from regraft.structure.values_and_nodes import Node, Value

# Operations whose result is new, so that writing into it changes no argument.
_MAKING_OPS = frozenset(
    {"add", "cat", "clone", "div", "empty_like", "full_like", "matmul", "mean", "mul", "neg"}
    | {"new_empty", "new_full", "new_ones", "new_zeros", "ones_like", "rand_like", "randn_like"}
    | {"stack", "sub", "sum", "zeros_like"}
)
# Operations whose result may share the memory of their input: views, and those that return their
# input itself in evaluation, or where its format or layout already fits.
SHARING_OPS = SPLITTING_OPS | frozenset(
    [
        "alpha_dropout",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "broadcast_to",
        "contiguous",
        "detach",
        "dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "expand",
        "expand_as",
        "feature_alpha_dropout",
        "flatten",
        "identity",
        "movedim",
        "narrow",
        "permute",
        "positive",
        "py.item",
        "ravel",
        "real",
        "reshape",
        "reshape_as",
        "select",
        "squeeze",
        "sum_to_size",
        "to",
        "transpose",
        "type",
        "type_as",
        "unflatten",
        "unsqueeze",
        "view",
        "view_as",
    ]
)
# Python's operations that hold nothing of what they are given.
_LOOKING = frozenset({"py.attr", "py.compare", "py.item", "py.return", "py.test"})
_WRAPPING = frozenset({"torch.as_tensor", "torch.from_numpy"})


def written_values(writer: Node) -> Iterator[Value]:
    """Yield the value that a node in place writes into, its first argument, and all values of which
    that may be a view, a part or a branch."""
    value = next(iter(writer.args.values()), None)
    visited: set[Value] = set()
    pending = [value] if value is not None else []
    while pending:
        current = pending.pop()
        if current in visited:
            continue
        visited.add(current)
        yield current
        pending += [option for _, option in current.options]
        if current.node is not None and not makes_new_memory(current.node):
            pending += list(current.node.args.values())[:1]


def possible_sources(value: Value) -> set[Value]:
    """Return a value with all values of which it may be a part, a view or a container, constants
    left out."""
    sources, pending = {value}, [value]
    while pending:
        current = pending.pop()
        node = current.node
        following = [option for _, option in current.options]
        if node is not None and not makes_new_memory(node):
            args = list(node.args.values())
            lists = [arg for arg in args if arg.node and isinstance(arg.node.expr, ast.List)]
            is_repetition = isinstance(node.expr, ast.BinOp) and isinstance(node.expr.op, ast.Mult)
            following += lists if is_repetition and len(lists) == 1 else args
        pending += [source for source in following if source not in sources]
        sources.update(pending)
    return {source for source in sources if source.origin != "const"}


def makes_new_memory(node: Node) -> bool:
    """Return whether the result of a node shares no memory with its arguments."""
    if node.op == "py.attr":
        return node.spelling in METADATA
    if node.op == "py.call":
        return node.spelling in PURE_FUNCTIONS - _WRAPPING
    return node.op in _MAKING_OPS and not changes_input(node.op, node.args)


def freshly_written_values(writer: Node) -> frozenset[Value]:
    """Return the tensors that a node in place may write into, if operations of PyTorch made all of
    them anew, with their views: only what is computed from these can see the write. Return none
    where the source does not show that, or where something may hold one of them."""
    values: set[Value] = set()
    pending = list(writer.args.values())[:1]
    while pending:
        value = pending.pop()
        if value in values:
            continue
        values.add(value)
        pending += [option for _, option in value.options]
        if value.options or (value.node is not None and makes_new_memory(value.node)):
            continue
        if value.node is None or not _returns_its_memory(value.node):
            return frozenset()
        pending += list(value.node.args.values())[:1]
    is_kept = any(_may_keep(use, value) for value in values for use in value.every_use())
    return frozenset() if is_kept else frozenset(values)


def _may_keep(use: Node, value: Value) -> bool:
    """Return whether a node may hold a tensor where the source does not show it: in a container, an
    attribute or a function."""
    if use.op == "py.setitem":
        return use.args["value"] is value
    return use.op == "call" or (use.op.startswith("py.") and use.op not in _LOOKING)


def _returns_its_memory(node: Node) -> bool:
    """Return whether the result of a node is its first argument, written into, or a view of it; an
    element of what is not known to be a tensor may be that of a list."""
    is_element = node.op == "py.item" and node.args["base"].kind != "tensor"
    is_view = node.op in SHARING_OPS and not is_element
    return is_view or (node.op != "call" and changes_input(node.op, node.args))
