"""Operations that split the last dimension of a tensor into halves or pairs, or join the last two:
`view`, `reshape` and einops as `unflatten` and `flatten`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence

from regraft.structure.values_and_nodes import Node, Value

# The operations that take the sizes of their result, as a sequence or one by one, and the parameter
# with these sizes.
SIZE_PARAMETERS = {"view": "size", "reshape": "shape"}
# Whether nothing since a node can have changed the shape of a tensor, as `transpose_` does.
IsCurrent = Callable[[Node], bool]
# Operations whose result has the shape of their input.
_KEEPING_SHAPE = frozenset({"clone", "contiguous", "detach", "to"})
_PAIR = 2
_AXIS_NAME = re.compile(r"[a-zA-Z]\w*|\.\.\.")
_GROUP = re.compile(r"\(\s*([a-zA-Z]\w*)\s+([a-zA-Z]\w*)\s*\)\s*$")

REARRANGE = "einops.rearrange"
# The functions that may become each operation here.
SPELLINGS: Mapping[str, frozenset[str]] = {
    "unflatten": frozenset({"torch.Tensor.view", "torch.reshape", REARRANGE}),
    "flatten": frozenset({REARRANGE}),
}


def split_sizes(
    op: str, args: Mapping[str, Value], is_current: IsCurrent
) -> tuple[int, int] | None:
    """Return the sizes `(2, -1)` or `(-1, 2)` into which an operation splits the last dimension of
    its input; None where it certainly does nothing of the kind or that is not known.

    A shape counts only where `is_current` holds for the node that reads it.
    """
    shape = args.get(SIZE_PARAMETERS.get(op, ""))
    parts = _leading_and_last(shape) if shape is not None else None
    if parts is None:
        return None
    leading, last = parts
    tensor = _without_last_size(leading, is_current)
    if tensor is None:
        return None
    source = _shape_source(tensor, is_current)
    if source is not _shape_source(args["input"], is_current):
        return None
    return _as_pair(last, source, is_current)


def rearrangement(
    pattern: object, sizes: Mapping[str, object]
) -> tuple[str, tuple[int, int] | None] | None:
    """Return the operation that a pattern of einops is, and the sizes into which it splits. It is
    "unflatten" where the pattern splits the last axis into halves or pairs, "flatten" where it
    joins the last two, else None. `sizes` has the sizes of axes that the call gives, where they are
    constants."""
    sides = pattern.split("->") if isinstance(pattern, str) else []
    if len(sides) != 2:
        return None
    for op, (grouped, single) in (("unflatten", sides), ("flatten", sides[::-1])):
        group = _GROUP.search(grouped)
        if group is None or not _have_same_axes(grouped[: group.start()], group, single):
            continue
        if op == "flatten":
            return None if sizes else (op, None)
        split = _split_axes(group.groups(), sizes)
        return (op, split) if split is not None else None
    return None


def _split_axes(names: Sequence[str], sizes: Mapping[str, object]) -> tuple[int, int] | None:
    """Return `(2, -1)` or `(-1, 2)` for two axes of which a call gives the size 2 to one, and no
    other sizes; None where it gives others."""
    if len(sizes) != 1:
        return None
    ((name, size),) = sizes.items()
    if name not in names or type(size) is not int or size != _PAIR:
        return None
    return (_PAIR, -1) if name == names[0] else (-1, _PAIR)


def _have_same_axes(leading: str, group: re.Match[str], single: str) -> bool:
    """Return whether the side of a pattern without the group has the same axes in the same order;
    every axis has a name of its own."""
    axes = [*leading.split(), *group.groups()]
    has_names = all(_AXIS_NAME.fullmatch(axis) for axis in axes)
    return has_names and axes == single.split() and len(set(axes)) == len(axes)


def _leading_and_last(shape: Value) -> tuple[Value, tuple[Value, Value]] | None:
    """Return the value before the last two sizes of `(*sizes, a, b)` or `sizes + (a, b)`, and these
    two; None for another shape."""
    node = shape.node
    if node is None or shape.origin == "phi" or isinstance(node.inner or node.expr, ast.List):
        return None  # a list may change before its use
    parts = tuple(node.args.values())
    if node.op == "py.tuple" and len(parts) == 3:
        star = parts[0].node
        if star is not None and star.op == "py.star":
            return star.args["0"], (parts[1], parts[2])
    if node.op == "py.binary" and _is_sum(node) and len(parts) == 2:
        items = parts[1].items or ()
        if len(items) == 2:
            return parts[0], (items[0], items[1])
    return None


def _is_sum(node: Node) -> bool:
    """Return whether an operator of Python is `+`."""
    expr = node.inner or node.expr
    return isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add)


def _without_last_size(sizes: Value, is_current: IsCurrent) -> Value | None:
    """Return the tensor of which sizes are `tensor.shape[:-1]`; None for other sizes."""
    tensor, index = _read_of_shape(sizes, is_current) or (None, None)
    part = index.node if index is not None else None
    if part is None or part.op != "py.slice":
        return None
    start, stop, step = (part.args[name].const for name in ("start", "stop", "step"))
    return tensor if start in (None, 0) and stop == -1 and step is None else None


def _read_of_shape(value: Value, is_current: IsCurrent) -> tuple[Value, Value] | None:
    """Return a tensor and an index where a value is `tensor.shape[index]`, and that shape has not
    changed since; else None."""
    node = value.node
    if node is None or value.origin == "phi" or node.op != "py.item" or "index" not in node.args:
        return None
    shape = node.args["base"]
    attribute = shape.attribute()
    if attribute is None or attribute[1] != "shape" or shape.node is None:
        return None
    return (attribute[0], node.args["index"]) if is_current(shape.node) else None


def _shape_source(tensor: Value, is_current: IsCurrent) -> Value:
    """Return the value behind operations that leave the shape as it is."""
    node = tensor.node
    while tensor.origin != "phi" and node is not None and node.op in _KEEPING_SHAPE:
        if not is_current(node):
            break
        tensor = node.args["input"]
        node = tensor.node
    return tensor


def _as_pair(
    sizes: tuple[Value, Value], source: Value, is_current: IsCurrent
) -> tuple[int, int] | None:
    """Return two sizes as `(2, -1)` or `(-1, 2)`; None where they are others."""
    first, second = sizes
    if _is_number(first, _PAIR) and _is_rest(second, source, is_current):
        return _PAIR, -1
    is_pair_last = _is_number(second, _PAIR) and _is_rest(first, source, is_current)
    return (-1, _PAIR) if is_pair_last else None


def _is_rest(size: Value, source: Value, is_current: IsCurrent) -> bool:
    """Return whether a size is -1 or half of the last size of a tensor."""
    if _is_number(size, -1):
        return True
    half = size.node
    if half is None or half.op != "py.binary" or half.spelling != "//":
        return False
    whole = _read_of_shape(half.args["0"], is_current)
    if whole is None or not _is_number(half.args["1"], _PAIR):
        return False
    tensor, index = whole
    return _is_number(index, -1) and _shape_source(tensor, is_current) is source


def _is_number(value: Value, number: int) -> bool:
    """Return whether a value is this constant integer."""
    return type(value.const) is int and value.const == number
