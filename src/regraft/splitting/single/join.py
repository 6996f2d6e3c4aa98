"""Where paths meet: one type for what each name holds on them, and how each path expresses its own value in it."""

from __future__ import annotations

from dataclasses import replace

from regraft.splitting.single.graph import Graph, dtype_of, element_type
from regraft.splitting.single.values import (
    MUTABLE,
    UNDEFINED,
    Const,
    Items,
    Listed,
    Names,
    Number,
    Sequence,
    Tensor,
    Value,
    bound,
    described,
    holders,
    leaves,
    number_kind,
)


class Disagree(Exception):
    """Values of two paths that no ONNX value can be."""


def unify(values: list[Value], outer: Value = UNDEFINED) -> Value:
    """The type of what is any of `values`: its leaves without a name are to be filled.

    outer: what held before the paths parted; where all still hold it, it stays as it is.
    """
    present = [one for one in values if one is not UNDEFINED]
    if not present:
        return UNDEFINED
    first = present[0]
    if all(one is outer for one in values) or all(same_constant(one, first) for one in present):
        return first
    kinds = {number_kind(one) for one in present}
    if None not in kinds and len(kinds) == 1:
        kind = kinds.pop() or ""
        return Number("", kind, max(map(bound, present)) if kind == "int" else 0)
    if all(isinstance(one, Tensor) for one in present):
        return unified_tensors([one for one in present if isinstance(one, Tensor)])
    if all(isinstance(one, Items) for one in present):
        return unified_items([one for one in present if isinstance(one, Items)], outer)
    if all(is_list(one) for one in present):
        return as_sequence(present)
    if isinstance(first, Listed) and all(
        isinstance(one, Listed) and (one.dtype, one.depth) == (first.dtype, first.depth) for one in present
    ):
        return replace(first, name="")
    raise disagreement(present)


def disagreement(values: list[Value]) -> Disagree:
    shown = sorted({described(one) for one in values})
    return Disagree(" and ".join(shown) if len(shown) > 1 else f"several values of {shown[0]}")


def same_constant(one: Value, other: Value) -> bool:
    if not (isinstance(one, Const) and isinstance(other, Const)):
        return False
    return type(one.value) is type(other.value) and repr(one.value) == repr(other.value)


def is_list(value: Value) -> bool:
    return isinstance(value, Sequence) or (isinstance(value, Items) and value.kind == "list")


def unified_tensors(values: list[Tensor]) -> Tensor:
    if len({one.dtype for one in values}) > 1:
        raise disagreement(list(values))
    ranks = {one.rank for one in values}
    return Tensor("", values[0].dtype, ranks.pop() if len(ranks) == 1 else None)


def unified_items(values: list[Items], outer: Value) -> Value:
    first = values[0]
    alike = len({(one.kind, len(one.values), one.keys) for one in values}) == 1
    known = outer.values if isinstance(outer, Items) and len(outer.values) == len(first.values) else None
    try:
        if alike:
            columns = zip(*(one.values for one in values), strict=True)
            outers = known or [UNDEFINED] * len(first.values)
            parts = tuple(unify(list(column), one) for column, one in zip(columns, outers, strict=True))
            return Items(first.kind, parts, first.keys)
    except Disagree:
        if first.kind != "list":
            raise
    if not all(one.kind == "list" for one in values):
        raise disagreement(list(values))
    return as_sequence(list(values))


def as_sequence(values: list[Value]) -> Value:
    """A list whose length the paths decide; its elements have to be numbers of one kind or tensors of one dtype."""
    elements: list[Value] = []
    for one in values:
        elements.extend(one.values if isinstance(one, Items) else [one.element] if isinstance(one, Sequence) else [])
    kinds = {number_kind(one) for one in elements}
    if elements and None not in kinds and len(kinds) == 1:
        return Sequence("", Number("", kinds.pop() or ""))
    tensors = [one for one in elements if isinstance(one, Tensor)]
    if elements and len(tensors) == len(elements):
        return Sequence("", unified_tensors(tensors))
    raise disagreement(elements or values)


def express(graph: Graph, value: Value | None, template: Value) -> list[str]:
    """The names of what `value` is in `graph`, one for each leaf of the template without a name.

    None: the path raises.
    """
    if isinstance(template, Items) and isinstance(value, Items):
        pairs = zip(value.values, template.values, strict=True)
        return [name for pair in pairs for name in express(graph, *pair)]
    holes = [one for one in leaves(template) if not one.name]
    if value is None or value is UNDEFINED:
        return [placeholder(graph, one, graph.failing() if value is None else None) for one in holes]
    if not holes:
        return []
    return [sequence_of(graph, value, template) if isinstance(template, Sequence) else name_of(graph, value)]


def placeholder(graph: Graph, leaf: Value, zero: str | None) -> str:
    """A value of the leaf's type that is never read; `zero`: a zero that it has to depend on."""
    if isinstance(leaf, Sequence):
        if zero is None:
            return graph.add("SequenceEmpty", dtype=element_type(dtype_of(leaf.element)))
        return graph.add("SequenceConstruct", placeholder(graph, leaf.element, zero))
    assert isinstance(leaf, (Number, Tensor, Listed))
    dtype = dtype_of(leaf)
    return graph.constant(0, dtype) if zero is None else graph.add("Cast", zero, to=element_type(dtype))


def sequence_of(graph: Graph, value: Value, template: Sequence) -> str:
    if isinstance(value, Sequence):
        return value.name
    assert isinstance(value, Items)
    if not value.values:
        return graph.add("SequenceEmpty", dtype=element_type(dtype_of(template.element)))
    return graph.add("SequenceConstruct", *(name_of(graph, one) for one in value.values))


def name_of(graph: Graph, value: Value) -> str:
    """The ONNX value that a number or a tensor is; constants become one."""
    if isinstance(value, Const):
        kind = number_kind(value)
        if kind is None:
            raise Disagree(f"{described(value)}, which is no number,")
        if kind == "int" and abs(value.value) >= 2**63:
            raise Disagree(f"the whole number {value.value}, which has more than 64 bits,")
        return graph.number(value.value, kind)
    assert isinstance(value, (Number, Tensor, Sequence, Listed))
    return value.name


def filled(template: Value, names: list[str]) -> Value:
    """The template with the next of `names` (which are taken out) for every leaf without one."""
    if isinstance(template, Items):
        return Items(template.kind, tuple(filled(one, names) for one in template.values), template.keys)
    if isinstance(template, (Number, Tensor, Sequence, Listed)) and not template.name:
        return replace(template, name=names.pop(0))
    return template


def aliases(found: list[Names]) -> dict[str, str]:
    """Names that hold the same list as another one on all paths on which they hold anything."""
    second: dict[str, str] = {}
    keys = sorted({key for one in found for key, value in one.items() if isinstance(value, MUTABLE)})
    for key in keys:
        for first in keys:
            if first != key and first not in second and all(agrees(one, key, first) for one in found):
                second.update({key: first, **{one: first for one, other in second.items() if other == key}})
                break
    return second


def agrees(names: Names, key: str, first: str) -> bool:
    value = names.get(key, UNDEFINED)
    return value is UNDEFINED or value is names.get(first, UNDEFINED)


def check_aliases(names: Names, templates: Names) -> None:
    """A list that changes where paths meet must have one name only: it becomes another object for each."""
    for key, template in templates.items():
        value = names.get(key, UNDEFINED)
        if isinstance(value, MUTABLE) and holes(template) and not (isinstance(value, Items) and value.kind == "tuple"):
            count = sum(holders(names[other], value) for other in templates if other in names)
            if count > 1 and (is_list(value) or isinstance(value, Listed)):
                raise Disagree(f"a list that is held twice ({key})")


def holes(template: Value) -> bool:
    return any(not one.name for one in leaves(template))
