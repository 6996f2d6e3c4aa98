"""Calls in the host's expressions: builtins, NumPy's functions on lists, and methods."""

from __future__ import annotations

import ast
import builtins

from regraft.splitting.emitting.single import numbers
from regraft.splitting.emitting.single.elements import Elements, changed_items
from regraft.splitting.emitting.single.graph import Graph
from regraft.splitting.emitting.single.join import (
    Inexpressible,
    add_sequence,
    is_list,
    sequence_type,
)
from regraft.splitting.emitting.single.values import (
    UNDEFINED,
    Const,
    Items,
    Names,
    NestedList,
    Range,
    Sequence,
    Tensor,
    Value,
    describe_value,
    number_kind,
    substitute,
)

# builtins of a number, and those of elements that are known one by one
NUMBER_FUNCTIONS = {"abs": numbers.absolute_value, "round": numbers.round_number}
ITEM_FUNCTIONS = frozenset({"sum", "min", "max", "list", "tuple"})


class Calls(Elements):
    """Evaluates calls: adds nodes to `graph`, and reads and changes `names`, the values of the
    host's names; raises Inexpressible for calls that no node can express."""

    def __init__(self, graph: Graph, names: Names) -> None:
        super().__init__(graph)
        self.names = names

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        raise NotImplementedError

    def on_Call(self, node: ast.Call) -> Value:
        """Return the value of a call of a class with named fields, a builtin, a function of NumPy
        or a method."""
        if isinstance(node.func, ast.Attribute):
            return self.call_attribute(node, node.func)
        function_name = node.func.id if isinstance(node.func, ast.Name) else ""
        if node.keywords and function_name and not node.args:  # an object that forward returns
            fields = {word.arg: self.evaluate(word.value) for word in node.keywords}
            return Items(function_name, tuple(fields.values()), tuple(fields))
        if node.keywords or not self.is_builtin(function_name):
            raise Inexpressible(f"the call {ast.unparse(node)}")
        args = [self.evaluate(arg) for arg in node.args]
        result = self.call_builtin(function_name, args)
        if result is None:
            raise Inexpressible(
                f"{function_name}() of {', '.join(map(describe_value, args)) or 'nothing'}"
            )
        return result

    def call_attribute(self, node: ast.Call, method: ast.Attribute) -> Value:
        """Return what a call of NumPy's `concatenate` or `stack`, or of a method, gives."""
        module = method.value.id if isinstance(method.value, ast.Name) else ""
        if module == "numpy":
            return self.concatenate(node)
        if module == "math":
            raise Inexpressible(f"the call {ast.unparse(node)}")
        return self.call_method(node, method)

    def is_builtin(self, function_name: str) -> bool:
        """Return whether a name is that of a function of Python's builtins, not of a variable."""
        is_variable = self.names.get(function_name, UNDEFINED) is not UNDEFINED
        return not is_variable and hasattr(builtins, function_name)

    def call_builtin(self, function_name: str, args: list[Value]) -> Value | None:
        """Return what a function of Python's builtins gives; None where no node can express the
        call."""
        if function_name == "range":
            return self.call_range(args)
        if function_name in ("min", "max") and len(args) >= 2:
            best = args[0]
            for arg in args[1:]:
                best = numbers.min_or_max(self.graph, function_name, best, arg)
            return best
        if len(args) != 1:
            return None
        (value,) = args
        if function_name in ("int", "float", "bool"):
            return self.convert(function_name, value)
        if function_name == "len":
            return self.length(value)
        if function_name in NUMBER_FUNCTIONS and number_kind(value):
            return NUMBER_FUNCTIONS[function_name](self.graph, value)
        if function_name in ITEM_FUNCTIONS and isinstance(value, Items) and value.kind != "dict":
            return self.call_on_items(function_name, value)
        return None

    def convert(self, kind: str, value: Value) -> Value:
        """Return `int(value)`, `float(value)` or `bool(value)` of a tensor or number, and
        `bool(value)` of a list."""
        if isinstance(value, Tensor):
            value = self.item_of(value)
        elif kind == "bool" and isinstance(value, (Items, Sequence, NestedList)):
            value = self.length(value)
        return numbers.convert_number(self.graph, kind, value)

    def call_on_items(self, function_name: str, value: Items) -> Value | None:
        """Return `list`, `tuple`, `sum`, `min` or `max` of elements that are known one by one; None
        for `min` and `max` of fewer than two."""
        if function_name in ("list", "tuple"):
            return Items(function_name, value.values)
        if function_name != "sum":
            return (
                self.call_builtin(function_name, list(value.values))
                if len(value.values) > 1
                else None
            )
        total: Value = Const(0)
        for element in value.values:
            total = numbers.arithmetic(self.graph, ast.Add(), total, element)
        return total

    def call_range(self, args: list[Value]) -> Value | None:
        """Return the range of the arguments; None unless they are ints and the step is a constant
        other than 0."""
        parts = [Const(0), *args] if len(args) == 1 else args
        step = parts[2] if len(parts) == 3 else Const(1)
        kinds = {number_kind(part) for part in parts}
        if kinds != {"int"} or not isinstance(step, Const) or not step.value:
            return None
        return Range(parts[0], parts[1], step.value)

    def concatenate(self, node: ast.Call) -> Value:
        """Return `numpy.concatenate(list, axis=n)` or `numpy.stack(list, axis=n)` of arrays; n is 0
        where it is not given."""
        assert isinstance(node.func, ast.Attribute)
        arrays = self.evaluate(node.args[0])
        axis = self.evaluate(node.keywords[0].value) if node.keywords else Const(0)
        if (
            node.func.attr not in ("concatenate", "stack")
            or not isinstance(axis, Const)
            or not is_list(arrays)
        ):
            raise Inexpressible(f"the call {ast.unparse(node)}")
        template = sequence_type([arrays])
        assert isinstance(template, Sequence)
        if not isinstance(template.element, Tensor):
            raise Inexpressible(f"the call {ast.unparse(node)} on numbers")
        stack = node.func.attr == "stack"
        rank = (
            template.element.rank
            if template.element.rank is None
            else template.element.rank + stack
        )
        name = add_sequence(self.graph, arrays, template)
        self.graph.may_fail = True
        return Tensor(
            self.graph.add("ConcatFromSequence", name, axis=axis.value, new_axis=int(stack)),
            template.element.dtype,
            rank,
        )

    def call_method(self, node: ast.Call, method: ast.Attribute) -> Value:
        """Return what a call of `item`, `tolist` or a method that changes a list gives."""
        base = self.evaluate(method.value)
        args = [self.evaluate(arg) for arg in node.args]
        if method.attr == "item" and isinstance(base, Tensor) and not args:
            return self.item_of(base)
        if method.attr == "tolist" and isinstance(base, Tensor) and not args:
            return self.tolist(base)
        if method.attr in ("append", "extend", "pop") and is_list(base):
            return self.mutate_list(method.attr, base, args)
        raise Inexpressible(f"the call {ast.unparse(node)}")

    def mutate_list(self, function_name: str, base: Value, args: list[Value]) -> Value:
        """Change a list, under all its names in `names`, by `append`, `extend` or `pop`; return
        what the call gives."""
        if isinstance(base, Items) and (function_name != "pop" or not args):
            result, new_list = changed_items(function_name, base, args)
        else:
            result, new_list = self.changed_sequence(function_name, base, args)
        for key, value in self.names.items():
            self.names[key] = substitute(value, base, new_list)
        return result
