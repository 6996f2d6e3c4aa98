"""Elements, lengths and sizes of tensors, tuples and lists, as nodes of a graph."""

from __future__ import annotations

from regraft.splitting.emitting.single import number_arithmetic
from regraft.splitting.emitting.single.graph import Graph, element_type
from regraft.splitting.emitting.single.graph_values import (
    Const,
    Items,
    NestedList,
    Number,
    Rows,
    Sequence,
    Tensor,
    Value,
    describe_value,
    number_kind,
)
from regraft.splitting.emitting.single.path_types import (
    Inexpressible,
    name_of,
    retype,
    sequence_type,
)

PYTHON_KINDS = {"bool": "bool", "float16": "float", "float32": "float", "float64": "float"}
MAGNITUDE_BOUNDS = {
    "bool": 1,
    "int8": 2**7,
    "uint8": 2**8,
    "int16": 2**15,
    "int32": 2**31,
    "int64": 2**63,
}
MAX_LENGTH = 2**40  # no tensor and no list has more elements


class Elements:
    """Adds nodes to `graph` that take values apart; raises Inexpressible for what no ONNX node can
    express."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def length(self, value: Value) -> Value:
        """Return `len(value)` of known elements, a sequence, a nested list or a tensor, whose first
        dimension is not checked to exist; raise Inexpressible for any other value."""
        if isinstance(value, Items):
            return Const(len(value.values))
        if isinstance(value, Sequence):
            return Number(self.graph.add("SequenceLength", value.name), "int", MAX_LENGTH)
        if isinstance(value, (NestedList, Tensor)):
            return self.dimension(Tensor(value.name, value.dtype, None), 0)
        if isinstance(value, Rows):
            return self.length(value.values[0])
        raise Inexpressible(f"len() of {describe_value(value)}")

    def shortest(self, counts: list[str], strict: bool) -> str:
        """Return the name of the smallest of numbers of elements; with `strict`, the file fails at
        run time where they differ."""
        if len(counts) == 1:
            return counts[0]
        least = self.graph.add("Min", *counts)
        if not strict:
            return least
        are_equal = self.graph.add("Equal", least, self.graph.add("Max", *counts))
        message = "ValueError: zip() of lists of different lengths"
        return self.graph.add("Add", least, self.graph.add_check(are_equal, message))

    def dimension(self, base: Tensor, axis: int) -> Number:
        """Add nodes that compute the size of a tensor along an axis, also of one of unknown rank;
        return it as a Number of at most MAX_LENGTH."""
        shape = self.graph.add("Shape", base.name)
        return Number(
            self.graph.add("Gather", shape, self.graph.number(axis, "int")), "int", MAX_LENGTH
        )

    def element_at(self, base: Value, index: Value) -> Value:
        """Return `base[index]` of a list, tuple, dict or nested list, where the index is a constant
        or an int of run time.

        An index that does not exist raises Inexpressible where it and the elements are known now,
        and else fails at run time. Raises Inexpressible for other values.
        """
        if isinstance(base, Items) and isinstance(index, Const):
            try:
                position = base.keys.index(index.value) if base.kind == "dict" else index.value
                return base.values[position]
            except (IndexError, ValueError, TypeError) as problem:
                raise Inexpressible(f"an element that is not there ({problem})") from problem
        if number_kind(index) != "int":
            raise Inexpressible(f"{describe_value(base)} indexed by {describe_value(index)}")
        position = name_of(self.graph, index)
        if isinstance(base, Items) and base.kind == "list":
            base = retype(self.graph, base, sequence_type([base]))
        if isinstance(base, Rows):
            return Items("tuple", tuple(self.element_of_part(part, index) for part in base.values))
        if isinstance(base, Sequence):
            self.graph.may_fail = True
            return with_name(base.element, self.graph.add("SequenceAt", base.name, position))
        if isinstance(base, NestedList):
            self.graph.may_fail = True
            return self.row_of(base, position)
        raise Inexpressible(f"{describe_value(base)} indexed by {describe_value(index)}")

    def element_of_part(self, part: Value, index: Value) -> Value:
        """Return an element of a part of a list of tuples, which may be a tensor."""
        if not isinstance(part, Tensor):
            return self.element_at(part, index)
        self.graph.may_fail = True
        return self.row_of(part, name_of(self.graph, index))

    def row_of(self, base: NestedList | Tensor, index_name: str) -> Value:
        """Return row number `index_name` (the name of an int) of a tensor or of nested lists: with
        one dimension less, or a number where none remains in the lists."""
        name = self.graph.add("Gather", base.name, index_name, axis=0)
        if isinstance(base, Tensor):
            return Tensor(name, base.dtype, None if base.rank is None else base.rank - 1)
        if base.depth > 1:
            return NestedList(name, base.kind, base.dtype, base.depth - 1)
        return self.python_number(name, base.dtype)

    def unpack(self, value: Value, count: int) -> list[Value]:
        """Return the elements of a value that is assigned to `count` targets. A list whose length
        is known only at run time fails then if it is not `count`; Inexpressible is raised for
        another known length, and for what is no list or tuple."""
        if isinstance(value, Items) and value.kind != "dict" and len(value.values) == count:
            return list(value.values)
        if not isinstance(value, (Sequence, NestedList)):
            raise Inexpressible(f"{describe_value(value)} taken apart into {count}")
        has_count = number_arithmetic.compare_numbers(
            self.graph, "==", self.length(value), Const(count)
        )
        zero = self.graph.add_check(
            name_of(self.graph, has_count), f"ValueError: not {count} values to unpack"
        )
        positions = [
            self.graph.add("Add", self.graph.number(position, "int"), zero)
            for position in range(count)
        ]
        return [self.element_at(value, Number(position, "int")) for position in positions]

    def item_of(self, value: Value) -> Number:
        """Return `value.item()` of a tensor as a Number, which fails at run time unless the tensor
        has one element; raise Inexpressible for what is no tensor."""
        if not isinstance(value, Tensor):
            raise Inexpressible(f"item() of {describe_value(value)}")
        if value.rank == 0:
            return self.python_number(value.name, value.dtype)
        self.graph.may_fail = True
        return self.python_number(
            self.graph.add("Reshape", value.name, self.graph.constant([], "int64")), value.dtype
        )

    def tolist(self, base: Tensor) -> Value:
        """Return `base.tolist()`: nested lists, or a number for a tensor without dimensions. Raises
        Inexpressible where the paths decide how many dimensions there are."""
        if base.rank is None:
            raise Inexpressible("tolist() of a tensor whose number of dimensions the paths decide")
        if not base.rank:
            return self.python_number(base.name, base.dtype)
        return NestedList(base.name, python_kind(base.dtype), base.dtype, base.rank)

    def python_number(self, name: str, dtype: str) -> Number:
        """Return the tensor named `name`, of `dtype` and without dimensions, as the Number that
        Python's `item()` gives; its dtype becomes int64, float64 or bool."""
        kind = python_kind(dtype)
        python_dtype = "bool" if kind == "bool" else "float64" if kind == "float" else "int64"
        if dtype != python_dtype:
            name = self.graph.add("Cast", name, to=element_type(python_dtype))
        return Number(name, kind, MAGNITUDE_BOUNDS.get(dtype, 0))

    def changed_sequence(
        self, function_name: str, base: Value, args: list[Value]
    ) -> tuple[Value, Value]:
        """Return what `append`, `pop`, or `extend` by known elements, gives for a list of run time,
        and the changed list; `base` stays as it is. Raises Inexpressible for other methods and
        values."""
        if isinstance(base, Sequence) and function_name == "append":
            template = sequence_type([base, Items("list", (args[0],))])
            assert isinstance(template, Sequence)
            name = self.graph.add("SequenceInsert", base.name, name_of(self.graph, args[0]))
            return Const(None), Sequence(name, template.element)
        if isinstance(base, Sequence) and function_name == "pop" and len(args) < 2:
            place = args[0] if args else Const(-1)
            element = self.element_at(base, place)
            shorter = self.graph.add("SequenceErase", base.name, name_of(self.graph, place))
            return element, Sequence(shorter, base.element)
        added = args[0] if function_name == "extend" else None
        if isinstance(added, Items) and added.kind in ("list", "tuple"):
            for element in added.values:
                base = self.changed_sequence("append", base, [element])[1]
            return Const(None), base
        if isinstance(base, Rows):
            return self.changed_rows(function_name, base, args)
        raise Inexpressible(f"{function_name}() of {describe_value(base)}")

    def changed_rows(
        self, function_name: str, base: Rows, args: list[Value]
    ) -> tuple[Value, Value]:
        """Return what `append` or `pop` gives for a list of tuples, and the changed list; raise
        Inexpressible for other methods, and for elements of other types."""
        added = Items("list", tuple(args)) if function_name == "append" else Items("list", ())
        rows = retype(self.graph, base, sequence_type([base, added]))
        assert isinstance(rows, Rows)
        columns: list[list[Value]] = [args] * len(rows.values)
        if function_name == "append" and isinstance(args[0], Items):
            columns = [[element] for element in args[0].values]
        pairs = zip(rows.values, columns, strict=True)
        changes = [self.changed_sequence(function_name, part, values) for part, values in pairs]
        taken, parts = zip(*changes, strict=True)
        result = Const(None) if function_name == "append" else Items("tuple", taken)
        return result, Rows(parts)


def changed_items(function_name: str, base: Items, args: list[Value]) -> tuple[Value, Value]:
    """Return what `append`, `extend` or `pop` gives for a list of known elements, and the changed
    list; `base` stays as it is. Raises Inexpressible for `pop` of an empty list and `extend` by
    unknown elements."""
    if function_name == "pop":
        if not base.values:
            raise Inexpressible("pop() of an empty list")
        return base.values[-1], Items("list", base.values[:-1])
    if function_name == "append":
        return Const(None), Items("list", (*base.values, args[0]))
    added = args[0]
    if not isinstance(added, Items) or added.kind == "dict":
        raise Inexpressible(f"extend() by {describe_value(added)}")
    return Const(None), Items("list", (*base.values, *added.values))


def with_name(element: Number | Tensor, name: str) -> Value:
    """Return a number or tensor of the type of `element` whose name is `name`; nothing is known
    about the size of the number."""
    return (
        Number(name, element.kind)
        if isinstance(element, Number)
        else Tensor(name, element.dtype, element.rank)
    )


def python_kind(dtype: str) -> str:
    """Return the type of Python's number that `item()` of a tensor of `dtype` gives: "int", "float"
    or "bool"; raise Inexpressible for other dtypes."""
    if dtype in MAGNITUDE_BOUNDS:
        return PYTHON_KINDS.get(dtype, "int")
    if dtype in PYTHON_KINDS:
        return PYTHON_KINDS[dtype]
    raise Inexpressible(f"a value of {dtype}")
