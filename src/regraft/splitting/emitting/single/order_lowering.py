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
    express,
    fill_template,
    is_list,
    name_of,
    sequence_type,
)


class Ordering(Lists):
    """Adds nodes to `graph` that order lists; a method returns None for a list that it cannot
    order."""

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression; `Expressions` implements it."""
        raise NotImplementedError

    def evaluate_order(self, node: ast.Call) -> Value | None:
        """Return what `sorted` of numbers gives, or what the host writes for `sorted`, `max` or
        `min` with a key; None for other calls."""
        match node:
            case ast.Call(ast.Name("sorted"), [values], keywords) if (
                reverse := read_reverse(keywords)
            ) is not None:
                return self.sort_numbers(self.evaluate(values), reverse)
            case ast.Call(
                ast.Name("list"), [ast.Call(ast.Name("map"), [ast.Attribute(values), order])]
            ):
                match order:
                    case ast.Call(
                        ast.Name("sorted"),
                        [_],
                        [ast.keyword("key", ast.Attribute(keys)), *keywords],
                    ) if (reverse := read_reverse(keywords)) is not None:
                        positions = self.top(self.evaluate(keys), None, reverse)
                        return self.take(self.evaluate(values), positions[1]) if positions else None
            case ast.Call(
                ast.Name("max" | "min" as function),
                [ast.Call(ast.Name("range"))],
                [ast.keyword("key", ast.Attribute(keys, "__getitem__"))],
            ):
                return self.first_extreme(function, self.evaluate(keys))
        return None

    def sort_numbers(self, values: Value, reverse: bool) -> Value | None:
        """Return `sorted(values)` of a list of ints or floats; None for other values."""
        ordered = self.top(values, None, reverse)
        vector = self.vector_of(values)
        if ordered is None or vector is None:
            return None
        return NestedList(ordered[0], vector[1], KINDS[vector[1]], 1)

    def top(self, values: Value, count: int | None, reverse: bool) -> list[str] | None:
        """Return the names of the first `count` ints or floats of a list in their order, or of all
        for None, and of their positions; None for other values.

        The smallest is first, or with `reverse` the largest, and of equal ones the first, as in
        Python. The file fails at run time where NaN is among floats, and for a list that has fewer.
        """
        vector = self.vector_of(values)
        if vector is None or vector[1] == "bool":
            return None
        name, kind = vector
        size = self.bound_as_vector(self.length(values) if count is None else Const(count), 0)
        assert size is not None
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
        if isinstance(values, Items) and values.kind == "list":
            template = sequence_type([values])
            values = fill_template(template, express(self.graph, values, template))
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
        """Return the position of the first largest or smallest number of a list, which fails at run
        time where there is none; None for other values."""
        ordered = self.top(keys, 1, function_name == "max")
        if ordered is None:
            return None
        scalar = self.graph.constant([], "int64")
        return Number(self.graph.add("Reshape", ordered[1], scalar), "int", MAX_LENGTH)

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
