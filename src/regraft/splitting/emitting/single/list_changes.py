"""Changes of lists: each name and container that holds the list holds the changed one then."""

from __future__ import annotations

import ast

from regraft.splitting.emitting.single.element_lowering import changed_items
from regraft.splitting.emitting.single.graph import Graph
from regraft.splitting.emitting.single.graph_values import (
    Const,
    Items,
    Names,
    NestedList,
    Rows,
    Sequence,
    Value,
    number_kind,
    substitute,
)
from regraft.splitting.emitting.single.number_arithmetic import add_length_if_negative
from regraft.splitting.emitting.single.order_lowering import Ordering, read_reverse
from regraft.splitting.emitting.single.path_types import (
    is_list,
    name_of,
    retype,
    sequence_type,
)


class ListChanges(Ordering):
    """Adds nodes to `graph` for changes of lists, and changes `names`, the values of the host's
    names; a method returns None for what it cannot change."""

    def __init__(self, graph: Graph, names: Names) -> None:
        super().__init__(graph)
        self.names = names

    def mutate_list(self, function_name: str, base: Value, args: list[Value]) -> Value:
        """Apply `append`, `extend` or `pop` to the list `base`; return what the call gives. In
        `names` every value that is this list, or contains it, becomes the changed one."""
        new_list = self.copy_list(base) if isinstance(base, NestedList) else base
        if function_name == "pop" and args and isinstance(base, Items):
            new_list = self.as_sequence(base)
        if isinstance(base, Items) and (function_name != "pop" or not args):
            result, new_list = changed_items(function_name, base, args)
        else:
            result, new_list = self.changed_sequence(function_name, new_list or base, args)
        return self.replace_list(base, new_list, result)

    def sort_in_place(self, base: Value, keywords: list[ast.keyword]) -> Value | None:
        """Apply `sort` to a list; return the constant None, or None itself for other
        values and keywords."""
        reverse = read_reverse(keywords)
        new_list = None if reverse is None else self.sort_list(base, reverse)
        return None if new_list is None else self.replace_list(base, new_list, Const(None))

    def replace_list(self, base: Value, new_list: Value, result: Value) -> Value:
        """Put the changed list in the place of the list `base` under all its names; return
        `result`, what the call that changes it gives."""
        for key, value in self.names.items():
            self.names[key] = substitute(value, base, new_list)
        return result

    def store_item(self, base: Value, index: ast.expr, value: Value) -> Value | None:
        """Apply `base[index] = value` or `base[:] = value` to a list; return the constant None, or
        None itself for other indices and values."""
        new_list: Value | None = None
        if isinstance(index, ast.Slice):
            if not (index.lower or index.upper or index.step):
                new_list = self.copy_list(value)
        else:
            new_list = self.with_element(base, self.evaluate(index), value)
        return None if new_list is None else self.replace_list(base, new_list, Const(None))

    def with_element(self, base: Value, index: Value, value: Value) -> Value | None:
        """Return a list with `value` in the place of the element `index`, which fails at run time
        where the list has no such element; None where that is known now, and for other values.
        """
        if number_kind(index) != "int" or not (is_list(base) or isinstance(base, NestedList)):
            return None
        if isinstance(base, Items) and isinstance(index, Const):
            values, place = list(base.values), index.value
            if not -len(values) <= place < len(values):
                return None
            values[place] = value
            return Items("list", tuple(values))
        changed = retype(self.graph, base, sequence_type([base, Items("list", (value,))]))
        length = self.length(changed)
        from_start = add_length_if_negative(self.graph, index, length)
        place = self.check(name_of(self.graph, from_start), from_start, ">=", "no such element")
        return self.exchange(changed, place, value)

    def exchange(self, values: Value, place: str, value: Value) -> Value:
        """Return a list of run time in which `value` is at a place that exists."""
        if isinstance(values, Rows):
            assert isinstance(value, Items)
            pairs = zip(values.values, value.values, strict=True)
            return Rows(tuple(self.exchange(part, place, element) for part, element in pairs))
        assert isinstance(values, Sequence)
        shorter = self.graph.add("SequenceErase", values.name, place)
        longer = self.graph.add("SequenceInsert", shorter, name_of(self.graph, value), place)
        return Sequence(longer, values.element)
