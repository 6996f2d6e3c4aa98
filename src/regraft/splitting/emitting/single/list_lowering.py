"""Lists whose length is known only at run time: what Python's functions, slices and `in` give for
them."""

from __future__ import annotations

from dataclasses import replace

from regraft.splitting.emitting.single import number_arithmetic
from regraft.splitting.emitting.single.element_lowering import MAX_LENGTH, Elements
from regraft.splitting.emitting.single.graph import dtype_of, element_type
from regraft.splitting.emitting.single.graph_values import (
    SAFE_BOUND,
    Const,
    Items,
    NestedList,
    Number,
    Range,
    Rows,
    Sequence,
    Tensor,
    Value,
    Zip,
    number_kind,
)
from regraft.splitting.emitting.single.path_types import (
    add_sequence,
    name_of,
    numbers_of,
    sequence_type,
    split_into_sequence,
)

FIRST, LAST = -(2**63), 2**63 - 1  # places before and after all elements


class Lists(Elements):
    """Adds nodes to `graph` that read lists as a whole; a method returns None for a list that it
    cannot read."""

    def vector_of(self, values: Value) -> tuple[str, str] | None:
        """Return the numbers of a list, as the name of a tensor of one dimension, and their kind;
        None for other values, and for a list or tuple of no elements."""
        if isinstance(values, NestedList) and values.depth == 1:
            return numbers_of(self.graph, values), values.kind
        if isinstance(values, Items) and values.kind in ("list", "tuple"):
            kinds = {number_kind(element) for element in values.values}
            if len(kinds) != 1 or None in kinds:
                return None
            template = sequence_type([Items("list", values.values)])
            assert isinstance(template, Sequence)
            items = Items("list", values.values)
            values = Sequence(add_sequence(self.graph, items, template), template.element)
        if not isinstance(values, Sequence) or not isinstance(values.element, Number):
            return None
        kind = values.element.kind
        # a node that joins a sequence takes no empty one
        zero = self.graph.number(0, kind)
        longer = self.graph.add("SequenceInsert", values.name, zero)
        joined = self.graph.add("ConcatFromSequence", longer, axis=0, new_axis=1)
        return self.slice_vector(joined, 0, -1, 1), kind

    def slice_vector(self, name: str, start: int, stop: int, step: int) -> str:
        """Return the name of the slice of a tensor between constant bounds, along its first
        dimension."""
        bounds = [self.graph.constant([bound], "int64") for bound in (start, stop)]
        axis = self.graph.constant([0], "int64")
        return self.graph.add("Slice", name, *bounds, axis, self.graph.constant([step], "int64"))

    def extreme_of_list(self, function_name: str, values: Value) -> Value | None:
        """Return `min` or `max` of a list of ints or floats; of a list without elements it fails at
        run time. NaN is the result where it comes first, and else left out, as in Python. None for
        other values, and for a list that is known to be empty."""
        vector = self.vector_of(values)
        if vector is None or vector[1] == "bool":
            return None
        name, kind = vector
        has_elements = self.compare_length(values, ">", 0)
        message = f"ValueError: {function_name}() of an empty list"
        zero = self.graph.add_check(name_of(self.graph, has_elements), message)
        first = self.graph.add("Gather", name, zero)
        operation = "ReduceMin" if function_name == "min" else "ReduceMax"
        if kind == "int":
            best = self.graph.add(operation, name, keepdims=0)
            return Number(self.graph.add("Add", best, zero), "int")
        worst = self.graph.number(float("inf" if function_name == "min" else "-inf"), "float")
        numbers = self.graph.add("Where", self.graph.add("IsNaN", name), worst, name)
        best = self.graph.add(operation, numbers, keepdims=0)
        return Number(self.graph.add("Where", self.graph.add("IsNaN", first), first, best), "float")

    def compare_length(self, values: Value, op: str, count: int) -> Value:
        """Return the truth of a comparison of a list's length with a constant."""
        return number_arithmetic.compare_numbers(self.graph, op, self.length(values), Const(count))

    def sum_of_list(self, values: Value) -> Value | None:
        """Return the sum of a list of ints or truth values, which fails at run time where it may
        not fit into 64 bits, or of floats, which fails for none of these: that is the whole number
        0 in Python. None for other values."""
        vector = self.vector_of(values)
        if vector is None:
            return None
        name, kind = vector
        if kind == "float":
            has_elements = self.compare_length(values, ">", 0)
            message = "ValueError: sum() of no floats, which is the whole number 0"
            zero = self.graph.add_check(name_of(self.graph, has_elements), message)
            start = self.graph.add("Cast", zero, to=element_type("float64"))
            return self.sum_of_floats(values, Number(start, "float"))
        if kind == "bool":
            name = self.graph.add("Cast", name, to=element_type("int64"))
        size = self.graph.add("Abs", self.graph.add("Cast", name, to=element_type("float64")))
        total = self.graph.add("ReduceSum", name, keepdims=0)
        total_size = self.graph.add("ReduceSum", size, keepdims=0)
        return number_arithmetic.require_fit(self.graph, total, total_size)

    def sum_of_floats(self, values: Value, start: Value) -> Value | None:
        """Return the sum of a float and the floats of a list, which a loop adds from the first to
        the last; None for other values."""
        if isinstance(values, Items) and values.kind in ("list", "tuple") and not values.values:
            return start
        vector = self.vector_of(values)
        if vector is None or vector[1] != "float" or number_kind(start) != "float":
            return None
        inner = self.graph.new_child()
        number, goes_on, total = (inner.new_name() for _ in range(3))
        kinds = (Number("", "int"), Number("", "bool"), Number("", "float"))
        inner.inputs = list(zip((number, goes_on, total), kinds, strict=True))
        inner.condition = goes_on
        inner.add_output(goes_on, Number("", "bool"))
        element = inner.add("Gather", vector[0], number, axis=0)
        inner.add_output(inner.add("Add", total, element), Number("", "float"))
        count = name_of(self.graph, self.length(values))
        entry = [count, self.graph.number(True, "bool"), name_of(self.graph, start)]
        return Number(self.graph.add_node("Loop", entry, 1, body=inner)[0], "float")

    def any_or_all(self, function_name: str, values: Value) -> Value | None:
        """Return `any` or `all` of a list of numbers, as a truth value; None for other values, and
        for a list that is known to be empty."""
        vector = self.vector_of(values)
        if vector is None:
            return None
        name, kind = vector
        is_zero = self.graph.add("Equal", name, self.graph.number(0, kind))
        counted = self.graph.add("Not", is_zero) if function_name == "any" else is_zero
        count = self.count_truths(counted)
        return number_arithmetic.compare_numbers(
            self.graph, ">" if function_name == "any" else "==", count, Const(0)
        )

    def count_truths(self, name: str) -> Number:
        """Return how many elements of a tensor of truth values hold."""
        numbers = self.graph.add("Cast", name, to=element_type("int64"))
        return Number(self.graph.add("ReduceSum", numbers, keepdims=0), "int", SAFE_BOUND)

    def count_in_list(self, value: Value, values: Value) -> Value | None:
        """Return how often an int or truth value occurs in a list or tuple; None for floats, among
        which NaN is found by its identity."""
        if isinstance(values, Items) and not values.values and values.kind in ("list", "tuple"):
            return Const(0)
        vector = self.vector_of(values)
        kinds = {number_kind(value), vector[1] if vector is not None else None}
        if vector is None or not kinds <= {"int", "bool"}:
            return None
        integers = self.graph.add("Cast", vector[0], to=element_type("int64"))
        sought = name_of(self.graph, number_arithmetic.as_int(self.graph, value))
        return self.count_truths(self.graph.add("Equal", integers, sought))

    def slice_list(self, values: Value, bounds: list[Value]) -> Value | None:
        """Return the slice of a list, or of the rows of a tensor, between bounds, which are whole
        numbers or None; the step is a constant."""
        lower, upper, step = bounds
        if isinstance(values, Rows):
            return self.slice_rows(values, bounds)
        if not isinstance(values, (Sequence, NestedList, Tensor)) or not isinstance(step, Const):
            return None
        stride = 1 if step.value is None else step.value
        if not isinstance(stride, int) or stride == 0:
            return None
        start, end = (0, LAST) if stride > 0 else (LAST, FIRST)
        first, last = self.bound_as_vector(lower, start), self.bound_as_vector(upper, end)
        if first is None or last is None:
            return None
        name = self.positions_of(values) if isinstance(values, Sequence) else values.name
        constants = [self.graph.constant([number], "int64") for number in (0, stride)]
        sliced = self.graph.add("Slice", name, first, last, *constants)
        if isinstance(values, Sequence):
            return self.take_positions(values, sliced)
        return replace(values, name=sliced)

    def slice_rows(self, rows: Rows, bounds: list[Value]) -> Rows | None:
        """Return the slice of a list of tuples; None where a part has none."""
        parts = [self.slice_list(part, bounds) for part in rows.values]
        present = tuple(part for part in parts if part is not None)
        return Rows(present) if len(present) == len(parts) else None

    def bound_as_vector(self, bound: Value, default: int) -> str | None:
        """Return the name of a bound of a slice, `default` for None, as a tensor of one element;
        None for what is no whole number."""
        if isinstance(bound, Const) and bound.value is None:
            return self.graph.constant([default], "int64")
        if number_kind(bound) != "int":
            return None
        shape = self.graph.constant([1], "int64")
        return self.graph.add("Reshape", name_of(self.graph, bound), shape)

    def positions_of(self, values: Sequence) -> str:
        """Return the name of the positions of a list's elements: 0, 1, 2 and so on."""
        start, step = (self.graph.number(number, "int") for number in (0, 1))
        return self.graph.add("Range", start, name_of(self.graph, self.length(values)), step)

    def take_positions(self, values: Sequence, positions: str) -> Sequence:
        """Return the list of the elements at these positions, which a loop puts together."""
        inner = self.graph.new_child()
        number, goes_on, taken = (inner.new_name() for _ in range(3))
        inner.inputs = [
            (number, Number("", "int")),
            (goes_on, Number("", "bool")),
            (taken, Sequence("", values.element)),
        ]
        inner.condition = goes_on
        position = inner.add("Gather", positions, number, axis=0)
        element = inner.add("SequenceAt", values.name, position)
        inner.add_output(goes_on, Number("", "bool"))
        longer = inner.add("SequenceInsert", taken, element)
        inner.add_output(longer, Sequence("", values.element))
        graph = self.graph
        count = self.dimension(Tensor(positions, "int64", 1), 0).name
        empty = graph.add("SequenceEmpty", dtype=element_type(dtype_of(values.element)))
        start = [count, graph.number(True, "bool"), empty]
        return Sequence(graph.add_node("Loop", start, 1, body=inner)[0], values.element)

    def copy_list(self, values: Value) -> Value | None:
        """Return a new list of the same elements, that changes apart from the old one; the numbers
        of a range as a list. None for other values, tuples among them."""
        if isinstance(values, Sequence):
            return Sequence(values.name, values.element)
        if isinstance(values, Rows):
            return Rows(values.values)
        if isinstance(values, Range) and (count := self.count_rows(values)) is not None:
            return self.first_elements(values, Number(count, "int", MAX_LENGTH))
        if isinstance(values, Items) and values.kind == "list":
            return Items("list", values.values)
        if not isinstance(values, NestedList):
            return None
        if values.depth > 1:
            return NestedList(values.name, values.kind, values.dtype, values.depth)
        return Sequence(split_into_sequence(self.graph, values), Number("", values.kind))

    def snapshot_rows(self, pairs: Zip) -> Rows | None:
        """Return `list(zip(...))` or `list(enumerate(...))`; None where one of the parts is no
        list, range or tensor of run time."""
        counted = [self.count_rows(part) for part in pairs.values]
        if None in counted:
            return None
        counts = [name for name in counted if name is not None]
        length = Number(self.shortest(counts, pairs.strict), "int", MAX_LENGTH)
        parts = [self.first_elements(part, length) for part in pairs.values]
        return None if None in parts else Rows(tuple(part for part in parts if part))

    def count_rows(self, part: Value) -> str | None:
        """Return the name of the number of elements of a list, range or tensor; None for other
        values."""
        if isinstance(part, Range) and part.step == 1:
            span = number_arithmetic.arithmetic(self.graph, "-", part.stop, part.start)
            return name_of(
                self.graph, number_arithmetic.min_or_max(self.graph, "max", span, Const(0))
            )
        if isinstance(part, Tensor) and not part.rank:
            return None
        if isinstance(part, (Sequence, NestedList, Tensor)):
            return name_of(self.graph, self.length(part))
        return None

    def first_elements(self, part: Value, count: Number) -> Value | None:
        """Return the first `count` elements of a list or range, or rows of a tensor, as a value
        that changes apart from it; None for other values."""
        if isinstance(part, Range):
            start = name_of(self.graph, part.start)
            stop = self.graph.add("Add", start, count.name)
            numbers = self.graph.add("Range", start, stop, self.graph.number(1, "int"))
            return NestedList(numbers, "int", "int64", 1)
        return self.slice_list(part, [Const(None), count, Const(None)])

    def array_of(self, values: Value, dtype: str) -> Tensor | None:
        """Return a list of numbers as an array, as `numpy.asarray` does: ints and floats of 64 bits
        or floats of 32, truth values of any type. None for other dtypes and values."""
        vector = self.vector_of(values)
        allowed = {
            "int": ("int64", "float32", "float64"),
            "float": ("float32", "float64"),
            "bool": ("bool", "int64", "float32", "float64"),
        }
        if vector is None or dtype not in allowed[vector[1]]:
            return None
        return Tensor(self.graph.add("Cast", vector[0], to=element_type(dtype)), dtype, 1)
