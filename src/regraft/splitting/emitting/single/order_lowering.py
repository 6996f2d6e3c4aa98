"""Lists in another order: `sorted`, also by a key, the first largest or smallest by a key, and the
place of an element."""

from __future__ import annotations

import ast

from regraft.splitting.emitting.single import number_arithmetic
from regraft.splitting.emitting.single.element_lowering import MAX_LENGTH
from regraft.splitting.emitting.single.graph_values import (
    KINDS,
    Const,
    Items,
    NestedList,
    Number,
    Rows,
    Sequence,
    Tensor,
    Value,
    number_kind,
)
from regraft.splitting.emitting.single.list_lowering import Lists
from regraft.splitting.emitting.single.path_types import (
    is_list,
    name_of,
    retype,
    sequence_type,
)


class Ordering(Lists):
    """Adds nodes to `graph` that order lists; a method returns None for a list that it cannot
    order."""

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression; `Expressions` implements it."""
        raise NotImplementedError

    def evaluate_order(self, node: ast.Call) -> Value | None:
        """Return what `sorted` of a list gives, or what the host writes for `sorted`, `max` or
        `min` with a key; None for other calls."""
        match node:
            case ast.Call(ast.Name("sorted"), [values], keywords) if (
                reverse := read_reverse(keywords)
            ) is not None:
                return self.sort_list(self.evaluate(values), reverse)
            case ast.Call(
                ast.Name("list"),
                [
                    ast.Call(
                        ast.Name("map"),
                        [
                            ast.Attribute(values),
                            ast.Call(
                                ast.Name("sorted"),
                                [_],
                                [ast.keyword("key", ast.Attribute(keys)), *keywords],
                            ),
                        ],
                    )
                ],
            ) if (reverse := read_reverse(keywords)) is not None:
                positions = self.order_of(self.evaluate(keys), reverse)
                return self.take(self.evaluate(values), positions) if positions else None
            case ast.Call(
                ast.Name("max" | "min" as function),
                [ast.Call(ast.Name("range"))],
                [ast.keyword("key", ast.Attribute(keys, "__getitem__"))],
            ):
                return self.first_extreme(function, self.evaluate(keys))
        return None

    def sort_list(self, values: Value, reverse: bool) -> Value | None:
        """Return `sorted(values)` of a list of ints or floats, or of tuples of these; None for
        other values. An empty list stays empty."""
        if isinstance(values, Items) and values.kind == "list" and not values.values:
            return Items("list", ())
        vector = self.sortable_vector(values)
        if vector is not None:
            return NestedList(self.sort_vector(vector, reverse)[0], vector[1], KINDS[vector[1]], 1)
        positions = self.order_of(values, reverse)
        return None if positions is None else self.take(values, positions)

    def order_of(self, keys: Value, reverse: bool) -> str | None:
        """Return the name of the positions of a list of ints or floats, or of tuples of these, in
        their order; None for other keys. Tuples are sorted by each of their places, by the first
        place last, since equal ones stay in their order."""
        columns: tuple[Value, ...] = (self.as_sequence(keys),)
        if isinstance(columns[0], Rows):
            columns = columns[0].values
        vectors = [self.sortable_vector(column) for column in columns]
        positions: str | None = None
        for vector in reversed(vectors):
            if vector is None:
                return None
            if positions is None:
                positions = self.sort_vector(vector, reverse)[1]
            else:
                taken = self.graph.add("Gather", vector[0], positions)
                order = self.sort_vector((taken, vector[1]), reverse)[1]
                positions = self.graph.add("Gather", positions, order)
        return positions

    def as_sequence(self, values: Value) -> Value:
        """Return a list of known elements as one of run time; any other value as it is."""
        if not isinstance(values, Items) or values.kind != "list" or not values.values:
            return values
        return retype(self.graph, values, sequence_type([values]))

    def sortable_vector(self, values: Value) -> tuple[str, str] | None:
        """Return the ints or floats of a list as the name of a tensor, and their kind; None for
        other values."""
        vector = self.vector_of(values)
        return None if vector is None or vector[1] == "bool" else vector

    def sort_vector(self, vector: tuple[str, str], reverse: bool) -> list[str]:
        """Return the names of the numbers of a vector in their order, and of their positions.

        The smallest is first, or with `reverse` the largest, and of equal ones the first, as in
        Python. The file fails at run time where NaN is among floats.
        """
        name, kind = vector
        size = self.graph.add("Shape", name)
        if kind == "float":
            numbers_of_nan = self.count_truths(self.graph.add("IsNaN", name))
            size = self.check(size, numbers_of_nan, "==", "NaN among the numbers of a sort")
        self.graph.may_fail = True
        return self.graph.add_node("TopK", [name, size], 2, axis=0, largest=int(reverse))

    def check(self, name: str, number: Value, op: str, message: str) -> str:
        """Return the name of a copy of the int `name` that fails at run time, with a ValueError,
        unless the number compares so with 0."""
        holds = number_arithmetic.compare_numbers(self.graph, op, number, Const(0))
        zero = self.graph.add_check(name_of(self.graph, holds), f"ValueError: {message}")
        return self.graph.add("Add", name, zero)

    def take(self, values: Value, positions: str) -> Value | None:
        """Return the list of the elements of a list at these positions; None for other values."""
        values = self.as_sequence(values)
        if isinstance(values, Sequence):
            return self.take_positions(values, positions)
        if isinstance(values, NestedList):
            name = self.graph.add("Gather", values.name, positions, axis=0)
            return NestedList(name, values.kind, values.dtype, values.depth)
        return self.take_rows(values, positions) if isinstance(values, Rows) else None

    def take_rows(self, rows: Rows, positions: str) -> Rows | None:
        """Return the list of the tuples at these positions; None where a part has none."""
        parts: list[Value] = []
        for part in rows.values:
            if isinstance(part, Tensor):
                name = self.graph.add("Gather", part.name, positions, axis=0)
                parts.append(Tensor(name, part.dtype, part.rank))
            elif (taken := self.take(part, positions)) is not None:
                parts.append(taken)
        return Rows(tuple(parts)) if len(parts) == len(rows.values) else None

    def first_extreme(self, function_name: str, keys: Value) -> Number | None:
        """Return the position of the first largest or smallest number or tuple of a list, which
        fails at run time where there is none; None for other values."""
        positions = self.order_of(keys, function_name == "max")
        if positions is None:
            return None
        self.graph.may_fail = True
        first = self.graph.add("Gather", positions, self.graph.number(0, "int"))
        return Number(first, "int", MAX_LENGTH)

    def index_in_list(self, value: Value, values: Value) -> Number | None:
        """Return the first place of an int in a list of ints, which fails at run time where it has
        none; None for other values."""
        vector = self.vector_of(values)
        if vector is None or vector[1] != "int" or number_kind(value) != "int":
            return None
        are_equal = self.graph.add("Equal", vector[0], name_of(self.graph, value))
        count = self.count_truths(are_equal)
        first = self.check(self.graph.number(0, "int"), count, ">", "index() of a missing element")
        flat = self.graph.constant([-1], "int64")
        places = self.graph.add("Reshape", self.graph.add("NonZero", are_equal), flat)
        return Number(self.graph.add("Gather", places, first), "int", MAX_LENGTH)

    def reversed_list(self, values: Value) -> Value | None:
        """Return the elements of a list from the last to the first, as a list of its own; None for
        other values."""
        if isinstance(values, Items):
            return Items("list", values.values[::-1]) if values.kind == "list" else None
        if not is_list(values) and not isinstance(values, NestedList):
            return None
        return self.slice_list(values, [Const(None), Const(None), Const(-1)])


def read_reverse(keywords: list[ast.keyword]) -> bool | None:
    """Return what the keywords of a sort say of its direction; None for other keywords."""
    match keywords:
        case []:
            return False
        case [ast.keyword("reverse", ast.Constant(bool(reverse)))]:
            return reverse
    return None
