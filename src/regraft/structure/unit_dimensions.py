"""The dimensions of size one that the source gives a tensor to broadcast it."""

from __future__ import annotations

from dataclasses import dataclass

from regraft.structure.values_and_nodes import MISSING, Value

# Operations whose result has the dimensions of their first operand.
_KEEPING = frozenset({"clone", "contiguous", "detach", "neg", "normalize", "sigmoid", "tanh", "to"})
# Operations that are given the sizes of their result, with the parameter.
_SHAPED = {"view": "size", "reshape": "shape"}
# The argument of an operation that decides where its result has a dimension of size one.
_DECIDING_ARGUMENTS = {
    **dict.fromkeys(_KEEPING, "input"),
    "unsqueeze": "dim",
    "py.item": "index",
    **_SHAPED,
}
_REARRANGING = frozenset({"einops.rearrange"})
_UNIT_AXES = ("1", "()")


@dataclass(frozen=True, slots=True)
class UnitDimensions:
    """The places of a tensor's dimensions of size one, as far as the source writes them.

    from_start  places counted from the first dimension, 0
    from_end    places counted from the last dimension, -1
    """

    from_start: frozenset[int] = frozenset()
    from_end: frozenset[int] = frozenset()


def unit_dimensions(value: Value, *, expanded: bool = False) -> UnitDimensions:
    """Return the dimensions of size one that the last operation on a tensor adds; none where the
    source does not say so.

    expanded  return those that an `expand` then stretches, of a tensor that is used once
    """
    node = value.node
    if node is None or value.origin == "phi":
        return UnitDimensions()
    if expanded:
        is_stretched = node.op == "expand" and len(value.every_use()) == 1
        return unit_dimensions(node.args["input"]) if is_stretched else UnitDimensions()
    if node.op == "call" and node.spelling in _REARRANGING:
        return _rearranged(node.args.get("1"))
    deciding = node.args.get(_DECIDING_ARGUMENTS.get(node.op, ""))
    if deciding is None:  # an element of what is unpacked, for example
        return UnitDimensions()
    if node.op in _KEEPING:
        return unit_dimensions(deciding)
    if node.op == "unsqueeze":
        return _unsqueezed(deciding.const)
    return _indexed(deciding) if node.op == "py.item" else _among(_sizes(deciding))


def are_crossed(first: Value, second: Value, *, expanded: bool = False) -> bool:
    """Return whether two tensors are certainly broadcast against each other: each is given a
    dimension of size one at another place, or one of them is the other with such a dimension.

    expanded  `expand` has stretched these dimensions, of tensors that nothing else uses
    """
    ours, theirs = (unit_dimensions(value, expanded=expanded) for value in (first, second))
    if _is_source(second, first, ours) or _is_source(first, second, theirs):
        return True
    return _differ(ours.from_start, theirs.from_start) or _differ(ours.from_end, theirs.from_end)


def meets_rows(value: Value) -> bool:
    """Return whether the source gives a tensor a dimension of size one, behind its first, that may
    be the last but one, so that it is broadcast against the rows of a matrix."""
    added = unit_dimensions(value)
    return bool(added.from_start - {0} or -2 in added.from_end) and -1 not in added.from_end


def _differ(ours: frozenset[int], theirs: frozenset[int]) -> bool:
    """Return whether each of two sets has a place that the other has not."""
    return bool(ours - theirs) and bool(theirs - ours)


def _is_source(source: Value, value: Value, added: UnitDimensions) -> bool:
    """Return whether `value` is `source` with added dimensions alone, behind its first."""
    if value.node is None or not (added.from_start - {0} or added.from_end):
        return False
    operand = value.node.args.get("input", value.node.args.get("base"))
    return operand is source and value.node.op in ("unsqueeze", "py.item")


def _unsqueezed(place: object) -> UnitDimensions:
    """Return the dimension that `unsqueeze` adds at a place."""
    if type(place) is not int:
        return UnitDimensions()
    places = frozenset({place})
    return UnitDimensions(from_end=places) if place < 0 else UnitDimensions(from_start=places)


def _sizes(shape: Value) -> tuple[object, ...]:
    """Return the sizes of a shape, MISSING where a size is no constant; none for an unknown
    shape."""
    return tuple(size.const for size in shape.items or ())


def _among(sizes: tuple[object, ...]) -> UnitDimensions:
    """Return the places of the ones among the sizes of a whole shape."""
    places = [place for place, size in enumerate(sizes) if type(size) is int and size == 1]
    return UnitDimensions(frozenset(places), frozenset(place - len(sizes) for place in places))


def _indexed(index: Value) -> UnitDimensions:
    """Return the dimensions that `None` adds in a subscript of slices, `None` and `...` alone."""
    parts = (index,) if index.items is None else index.items
    kinds = [_kind_of_index(part) for part in parts]
    if "" in kinds:
        return UnitDimensions()
    before = kinds.index("ellipsis") if "ellipsis" in kinds else len(kinds)
    places = [place for place, kind in enumerate(kinds) if kind == "none"]
    return UnitDimensions(
        frozenset(place for place in places if place < before),
        frozenset(place - len(kinds) for place in places if place > before),
    )


def _kind_of_index(part: Value) -> str:
    """Return "slice", "none" or "ellipsis" for a part of a subscript; "" for another one."""
    if part.const is None:
        return "none"
    if part.const is ...:
        return "ellipsis"
    is_slice = part.node is not None and part.node.op == "py.slice"
    return "slice" if is_slice and part.const is MISSING else ""


def _rearranged(pattern: Value | None) -> UnitDimensions:
    """Return the axes of size one on the right side of a pattern of einops, such as
    "n d -> n 1 d"."""
    if pattern is None or not isinstance(pattern.const, str):
        return UnitDimensions()
    axes = pattern.const.partition("->")[2].replace("( )", "()").split()
    if "..." in axes:
        return UnitDimensions()
    return _among(tuple(1 if axis in _UNIT_AXES else axis for axis in axes))
