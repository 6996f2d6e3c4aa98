"""Types of the values where paths meet, and the expression of each path's value in the type.

A type is a template: a value whose leaves (numbers, tensors and lists, as `graph_values.leaves`
gives them) have the name "" where they are to get one when the paths have met. Other leaves are the
same value on all paths.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy

from regraft.splitting.emitting.single.graph import Graph, dtype_of, element_type
from regraft.splitting.emitting.single.graph_values import (
    KINDS,
    UNDEFINED,
    Const,
    Items,
    Maybe,
    NestedList,
    Number,
    Rows,
    Sequence,
    Tensor,
    Value,
    bound,
    describe_value,
    leaves,
    number_kind,
)

T = TypeVar("T", Tensor, Items, NestedList)


class Inexpressible(Exception):
    """The error for a value or an operation that ONNX cannot express; the text names it."""


def unify(values: list[Value], outer: Value = UNDEFINED) -> Value:
    """Return the type, a template, of a name that holds one of `values`, the values of the paths
    that meet.

    UNDEFINED values are ignored; UNDEFINED is returned where all values are. The value itself is
    returned where all values are the same constant, or all are `outer`, the value before the paths
    parted. Tensors of several ranks get the rank None, lists of several lengths become a sequence.
    Raises Inexpressible where the values have no type in common.
    """
    present = [value for value in values if value is not UNDEFINED]
    if not present:
        return UNDEFINED
    first = present[0]
    is_unchanged = all(value is outer for value in values)
    if is_unchanged or all(is_same_constant(value, first) for value in present):
        return first
    if any(map(may_be_none, present)):
        return unify_optional(present)
    template = unify_numbers(present)
    if template is not None:
        return template
    if tensors := all_of_type(present, Tensor):
        return unify_tensors(tensors)
    if items := all_of_type(present, Items):
        return unify_items(items, outer)
    if any(map(is_list, present)) and all(map(can_be_sequence, present)):
        return sequence_type(present)
    return unify_nested_lists(present)


def may_be_none(value: Value) -> bool:
    """Return whether a value is None, or may be None at run time."""
    return isinstance(value, Maybe) or (isinstance(value, Const) and value.value is None)


def unify_optional(values: list[Value]) -> Maybe:
    """Return the type of values of which some may be None; raise Inexpressible where the others
    have no type in common, and for lists."""
    alternatives = [
        value.value if isinstance(value, Maybe) else value
        for value in values
        if isinstance(value, Maybe) or not may_be_none(value)
    ]
    template = unify(alternatives)
    if not is_plain(template):
        raise disagreement(values)
    return Maybe(Number("", "bool"), template)


def is_plain(value: Value) -> bool:
    """Return whether a value is a number, a tensor or a tuple of these."""
    if isinstance(value, Items):
        return value.kind == "tuple" and all(map(is_plain, value.values))
    return isinstance(value, Tensor) or number_kind(value) is not None


def all_of_type(values: list[Value], kind: type[T]) -> list[T]:
    """Return the values if all of them are of the type `kind`; else an empty list."""
    chosen = [value for value in values if isinstance(value, kind)]
    return chosen if len(chosen) == len(values) else []


def unify_numbers(values: list[Value]) -> Number | None:
    """Return the type that numbers of one kind have in common, with the largest of their bounds;
    None for numbers of several kinds, and where a value is no number."""
    kinds = {number_kind(value) for value in values}
    if None in kinds or len(kinds) > 1:
        return None
    kind = kinds.pop() or ""
    return Number("", kind, max(map(bound, values)) if kind == "int" else 0)


def unify_nested_lists(values: list[Value]) -> NestedList:
    """Return the type of lists that `tolist()` gave, of one dtype and depth; raise Inexpressible
    for other values."""
    nested_lists = all_of_type(values, NestedList)
    if len({(value.dtype, value.depth) for value in nested_lists}) != 1:
        raise disagreement(values)
    return replace(nested_lists[0], name="")


def disagreement(values: list[Value]) -> Inexpressible:
    """Return the error, for the caller to raise, for values that have no type in common."""
    descriptions = sorted({describe_value(value) for value in values})
    return Inexpressible(
        " and ".join(descriptions)
        if len(descriptions) > 1
        else f"several values of {descriptions[0]}"
    )


def is_same_constant(left: Value, right: Value) -> bool:
    """Return whether two values are constants of the same type and `repr`: NaN equals NaN, and
    0.0 differs from -0.0. False where a value is no constant."""
    if not (isinstance(left, Const) and isinstance(right, Const)):
        return False
    return type(left.value) is type(right.value) and repr(left.value) == repr(right.value)


def is_list(value: Value) -> bool:
    """Return whether a value is a list, except one that `tolist()` gave."""
    return isinstance(value, (Sequence, Rows)) or (
        isinstance(value, Items) and value.kind == "list"
    )


def can_be_sequence(value: Value) -> bool:
    """Return whether a value is a list that an ONNX sequence can hold, also one of `tolist()`."""
    return is_list(value) or (isinstance(value, NestedList) and value.depth == 1)


def unify_tensors(values: list[Tensor]) -> Tensor:
    """Return the type of tensors of one dtype; its rank is None where the ranks differ. Raises
    Inexpressible for several dtypes."""
    if len({tensor.dtype for tensor in values}) > 1:
        raise disagreement(list(values))
    ranks = {tensor.rank for tensor in values}
    return Tensor("", values[0].dtype, ranks.pop() if len(ranks) == 1 else None)


def unify_items(values: list[Items], outer: Value) -> Value:
    """Return the type of lists, tuples, dicts or objects of known elements, element by element;
    lists of several lengths or types become a sequence. Raises Inexpressible for other structures
    that differ.

    outer: the value before the paths parted; its elements stay where no path changes them.
    """
    first = values[0]
    have_equal_structure = (
        len({(value.kind, len(value.values), value.keys) for value in values}) == 1
    )
    outer_values = (
        outer.values
        if isinstance(outer, Items) and len(outer.values) == len(first.values)
        else None
    )
    try:
        if have_equal_structure:
            columns = zip(*(value.values for value in values), strict=True)
            outer_columns = outer_values or [UNDEFINED] * len(first.values)
            parts = tuple(
                unify(list(column), outer_value)
                for column, outer_value in zip(columns, outer_columns, strict=True)
            )
            return Items(first.kind, parts, first.keys)
    except Inexpressible:
        if first.kind != "list":
            raise
    if not all(value.kind == "list" for value in values):
        raise disagreement(list(values))
    return sequence_type(list(values))


def sequence_type(values: list[Value]) -> Value:
    """Return the type, a Sequence without a name or Rows of such ones, of a list that is one of
    `values`, whose lengths may differ.

    Raises Inexpressible unless all elements are numbers of one kind, tensors of one dtype, or
    tuples of these.
    """
    elements = [element for value in values for element in element_types(value)]
    kinds = {number_kind(element) for element in elements}
    if elements and None not in kinds and len(kinds) == 1:
        return Sequence("", Number("", kinds.pop() or ""))
    tensors = [element for element in elements if isinstance(element, Tensor)]
    if elements and len(tensors) == len(elements):
        return Sequence("", unify_tensors(tensors))
    return rows_type(elements or values)


def rows_type(elements: list[Value]) -> Rows:
    """Return the type of a list of such tuples, a list for each place of a tuple; raise
    Inexpressible for other elements, and tuples that differ in length or types."""
    parts = [element.values for element in elements if isinstance(element, Items)]
    widths = {len(part) for part in parts}
    are_tuples = all(is_plain(element) and isinstance(element, Items) for element in elements)
    if not are_tuples or len(widths) != 1 or widths == {0}:
        raise disagreement(elements)
    columns = zip(*parts, strict=True)
    return Rows(tuple(sequence_type([Items("list", column)]) for column in columns))


def element_types(value: Value) -> list[Value]:
    """Return the elements of a list where they are known one by one, else a single value that has
    the type of all of them; [] for what is no list, and for lists of lists."""
    if isinstance(value, Items):
        return list(value.values)
    if isinstance(value, Sequence):
        return [value.element]
    if isinstance(value, Rows):
        return [Items("tuple", tuple(element_of_column(part) for part in value.values))]
    return [Number("", value.kind)] if can_be_sequence(value) else []  # type: ignore[union-attr]


def element_of_column(part: Value) -> Value:
    """Return the type that the elements of one place of a list of tuples have; raise Inexpressible
    where these are lists."""
    if isinstance(part, Tensor):
        return Tensor("", part.dtype, None if part.rank is None else part.rank - 1)
    elements = element_types(part)
    if not elements:
        raise Inexpressible("a list of tuples of lists")
    return elements[0]


def express(graph: Graph, value: Value | None, template: Value) -> list[str]:
    """Return the names in `graph` of the parts of `value`, one for each leaf of the template whose
    name is ""; nodes for constants and lists are added.

    value: UNDEFINED on a path that never assigns it, where a placeholder is named; None on a path
    that raises, where the computation of the placeholder fails.
    """
    if isinstance(template, Items) and isinstance(value, Items):
        pairs = zip(value.values, template.values, strict=True)
        return [name for pair in pairs for name in express(graph, *pair)]
    unnamed_leaves = [leaf for leaf in leaves(template) if not leaf.name]
    if value is None or value is UNDEFINED:
        zero = graph.add_failure() if value is None and unnamed_leaves else None
        return [add_placeholder(graph, leaf, zero) for leaf in unnamed_leaves]
    if not unnamed_leaves:
        return []
    if isinstance(template, Maybe):
        return express_optional(graph, value, template)
    return express_list(graph, value, template)


def express_list(graph: Graph, value: Value, template: Value) -> list[str]:
    """Return what `express` does for a list, of tuples or not, or a value of a single name."""
    if isinstance(template, Rows):
        columns = columns_of(value, len(template.values))
        pairs = zip(columns, template.values, strict=True)
        return [name for pair in pairs for name in express(graph, *pair)]
    if isinstance(template, Sequence):
        return [add_sequence(graph, value, template)]
    return [name_of(graph, value)]


def columns_of(value: Value, width: int) -> tuple[Value, ...]:
    """Return the parts of a list of tuples of this width: for each place a list, or a tensor of as
    many rows."""
    if isinstance(value, Rows):
        return value.values
    assert isinstance(value, Items)
    rows = [row.values for row in value.values if isinstance(row, Items)]
    return tuple(Items("list", tuple(row[place] for row in rows)) for place in range(width))


def express_optional(graph: Graph, value: Value, template: Maybe) -> list[str]:
    """Return what `express` does where the value may be None: whether it is not, and the names of
    its parts, placeholders for None."""
    if isinstance(value, Maybe):
        return [value.present.name, *express(graph, value.value, template.value)]
    present = graph.number(not may_be_none(value), "bool")
    return [present, *express(graph, UNDEFINED if may_be_none(value) else value, template.value)]


def add_placeholder(graph: Graph, leaf: Value, zero: str | None) -> str:
    """Add a value of the type `leaf` for an output whose value is never read; return its name. The
    value is zero, for a tensor with one element, in as many dimensions as the tensor has.

    zero: the name of an int64 from which the value is computed, so that it fails with it, for a
    sequence as its only element; None for a constant, or an empty sequence.
    """
    if isinstance(leaf, Sequence):
        if zero is None:
            return graph.add("SequenceEmpty", dtype=element_type(dtype_of(leaf.element)))
        return graph.add("SequenceConstruct", add_placeholder(graph, leaf.element, zero))
    assert isinstance(leaf, (Number, Tensor, NestedList))
    dtype = dtype_of(leaf)
    shape = [1] * (leaf.rank or 0) if isinstance(leaf, Tensor) else []
    if zero is None:
        return graph.constant(numpy.zeros(shape), dtype)
    scalar = graph.add("Cast", zero, to=element_type(dtype))
    return graph.add("Reshape", scalar, graph.constant(shape, "int64")) if shape else scalar


def add_sequence(graph: Graph, value: Value, template: Sequence) -> str:
    """Return the name of a list as an ONNX sequence of the type `template`: its own, or that of a
    new node where the elements are known one by one."""
    if isinstance(value, Sequence):
        return value.name
    if isinstance(value, NestedList):
        return split_into_sequence(graph, value)
    if isinstance(value, Tensor):
        return graph.add("SplitToSequence", value.name, axis=0, keepdims=0)
    assert isinstance(value, Items)
    if not value.values:
        return graph.add("SequenceEmpty", dtype=element_type(dtype_of(template.element)))
    return graph.add("SequenceConstruct", *(name_of(graph, element) for element in value.values))


def split_into_sequence(graph: Graph, value: NestedList) -> str:
    """Return the name of the ONNX sequence of the numbers of a list that `tolist()` gave."""
    return graph.add("SplitToSequence", numbers_of(graph, value), axis=0, keepdims=0)


def numbers_of(graph: Graph, value: NestedList) -> str:
    """Return the name of the tensor of the numbers of a list that `tolist()` gave, in the format of
    Python's numbers."""
    dtype = KINDS[value.kind]
    is_same = value.dtype == dtype
    return value.name if is_same else graph.add("Cast", value.name, to=element_type(dtype))


def name_of(graph: Graph, value: Value) -> str:
    """Return the name of the ONNX value of a number, a tensor or a list; a constant is added to the
    graph. Raises Inexpressible for a constant that is no number of 64 bits."""
    if isinstance(value, Const):
        kind = number_kind(value)
        if kind is None:
            raise Inexpressible(f"{describe_value(value)}, which is no number,")
        if kind == "int" and abs(value.value) >= 2**63:
            raise Inexpressible(f"the whole number {value.value}, which has more than 64 bits,")
        return graph.number(value.value, kind)
    assert isinstance(value, (Number, Tensor, Sequence, NestedList))
    return value.name


def retype(graph: Graph, value: Value, template: Value) -> Value:
    """Return a value in the form of a template, whose leaves have no name yet; nodes for constants
    and lists are added."""
    return fill_template(template, express(graph, value, template))


def fill_template(template: Value, names: list[str]) -> Value:
    """Return a copy of the template in which each leaf with the name "" gets the first of `names`,
    from which it is removed."""
    if isinstance(template, Items):
        return Items(
            template.kind,
            tuple(fill_template(element, names) for element in template.values),
            template.keys,
        )
    if isinstance(template, Rows):
        return Rows(tuple(fill_template(part, names) for part in template.values))
    if isinstance(template, Maybe):
        present = fill_template(template.present, names)
        assert isinstance(present, Number)
        return Maybe(present, fill_template(template.value, names))
    if isinstance(template, (Number, Tensor, Sequence, NestedList)) and not template.name:
        return replace(template, name=names.pop(0))
    return template


def has_unnamed_leaves(template: Value) -> bool:
    """Return whether a template has leaves with the name "", which are to get one."""
    return any(not leaf.name for leaf in leaves(template))
