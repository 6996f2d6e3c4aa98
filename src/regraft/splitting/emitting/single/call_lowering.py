"""Calls in the host's expressions: builtins, NumPy's functions on lists, and methods."""

from __future__ import annotations

import ast
import builtins

from regraft.splitting.emitting.single import number_arithmetic
from regraft.splitting.emitting.single.element_lowering import MAX_LENGTH
from regraft.splitting.emitting.single.graph_values import (
    UNDEFINED,
    Const,
    Items,
    NestedList,
    Range,
    Rows,
    Sequence,
    Tensor,
    Value,
    Zip,
    describe_value,
    number_kind,
)
from regraft.splitting.emitting.single.list_changes import ListChanges
from regraft.splitting.emitting.single.number_functions import call_math
from regraft.splitting.emitting.single.path_types import (
    Inexpressible,
    add_sequence,
    can_be_sequence,
    is_list,
    sequence_type,
)

# builtins of a number, and those of elements that are known one by one
NUMBER_FUNCTIONS = {
    "abs": number_arithmetic.absolute_value,
    "round": number_arithmetic.round_number,
}
ADDED_DTYPES = frozenset({"float32", "float64", "int32", "int64"})
ITEM_FUNCTIONS = frozenset({"sum", "min", "max", "list", "tuple"})


class Calls(ListChanges):
    """Evaluates calls: adds nodes to `graph`, and reads and changes `names`, the values of the
    host's names; raises Inexpressible for calls that no node can express."""

    def evaluate_optional(self, node: ast.expr) -> Value:
        """Return the value of an expression, which may be None at run time; `Expressions`
        implements it."""
        raise NotImplementedError

    def evaluate_call(self, node: ast.Call) -> Value:
        """Return the value of a call of `numpy.concatenate` or `numpy.stack`, a method, a class
        with named fields or a builtin; raise Inexpressible for other calls."""
        value = None
        match node:
            case ast.Call(ast.Attribute(ast.Name("numpy" | "math"))):
                value = self.evaluate_library_call(node)
            case ast.Call(ast.Attribute(base, "sort"), [], keywords):
                value = self.sort_in_place(self.evaluate(base), keywords)
            case ast.Call(ast.Attribute(base, method), args, []):
                operands = [self.evaluate_optional(arg) for arg in args]
                value = self.call_method(method, self.evaluate(base), operands)
            case ast.Call(ast.Name(class_name), [], [_, *_] as fields):
                values = (self.evaluate_optional(field.value) for field in fields)
                value = Items(class_name, tuple(values), tuple(field.arg for field in fields))
            case ast.Call(ast.Name(function)) if self.is_builtin(function):
                value = self.evaluate_order(node) or self.evaluate_builtin_call(node)
        if value is None:
            raise Inexpressible(f"the call {ast.unparse(node)}")
        return value

    def evaluate_builtin_call(self, node: ast.Call) -> Value | None:
        """Return the value of a call of a builtin of Python, whose keyword may be the `strict` of
        `zip`; None for other keywords."""
        match node:
            case ast.Call(ast.Name("zip"), args, [ast.keyword("strict", ast.Constant(strict))]):
                value = self.evaluate_builtin("zip", self.evaluate_all(args))
                return Zip(value.values, strict is True) if isinstance(value, Zip) else None
            case ast.Call(ast.Name(function), args, []):
                return self.evaluate_builtin(function, self.evaluate_all(args))
        return None

    def evaluate_library_call(self, node: ast.Call) -> Value | None:
        """Return the value of a call of a function of NumPy or `math`; None for other calls."""
        match node:
            case ast.Call(
                ast.Attribute(ast.Name("numpy"), "concatenate" | "stack" as function),
                [arrays],
                [] | [ast.keyword("axis")] as keywords,
            ):
                axis = self.evaluate(keywords[0].value) if keywords else Const(0)
                return self.concatenate(self.evaluate(arrays), axis, function == "stack")
            case ast.Call(
                ast.Attribute(ast.Name("numpy"), "asarray"), [numbers, ast.Constant(str(dtype))], []
            ):
                return self.array_of(self.evaluate(numbers), dtype)
            case ast.Call(ast.Attribute(ast.Name("math"), "ceil" | "floor" as function), [number]):
                return number_arithmetic.round_towards(self.graph, function, self.evaluate(number))
            case ast.Call(ast.Attribute(ast.Name("math"), function), [number], []):
                return call_math(self.graph, function, self.evaluate(number))
        return None

    def evaluate_all(self, nodes: list[ast.expr]) -> list[Value]:
        """Return the values of expressions."""
        return [self.evaluate(node) for node in nodes]

    def is_builtin(self, function_name: str) -> bool:
        """Return whether a name means a builtin of Python: one that no variable of the host
        hides."""
        is_variable = self.names.get(function_name, UNDEFINED) is not UNDEFINED
        return not is_variable and hasattr(builtins, function_name)

    def evaluate_builtin(self, function_name: str, args: list[Value]) -> Value:
        """Return what a builtin of Python, such as `range` or `max`, gives for arguments
        (`call_builtin`); raise Inexpressible for a call that no node can express."""
        value = self.call_builtin(function_name, args)
        if value is None:
            described_args = ", ".join(map(describe_value, args)) or "nothing"
            raise Inexpressible(f"{function_name}() of {described_args}")
        return value

    def call_builtin(self, function_name: str, args: list[Value]) -> Value | None:
        """Return what a builtin of Python (`range`, `min`, `max`, `int`, `float`, `bool`, `len`,
        `abs`, `round`, `sum`, `list`, `tuple`, `any`, `all`, `reversed`, `enumerate`, `zip`,
        `divmod`) gives for arguments; None where no node can express the call."""
        if function_name == "range":
            return self.call_range(args)
        if function_name in ("min", "max") and len(args) >= 2:
            best = args[0]
            for arg in args[1:]:
                best = number_arithmetic.min_or_max(self.graph, function_name, best, arg)
            return best
        if function_name in ("zip", "enumerate", "divmod"):
            return self.call_pairing(function_name, args)
        if function_name == "sum" and len(args) == 2:
            return self.sum_of_floats(*args)
        return self.call_on_value(function_name, args[0]) if len(args) == 1 else None

    def call_on_value(self, function_name: str, value: Value) -> Value | None:
        """Return what a builtin of Python of one argument gives; None where no node can express the
        call."""
        if function_name in ("int", "float", "bool"):
            return self.convert(function_name, value)
        if function_name == "len":
            return self.length(value)
        if function_name in NUMBER_FUNCTIONS and number_kind(value):
            return NUMBER_FUNCTIONS[function_name](self.graph, value)
        if function_name in ITEM_FUNCTIONS and isinstance(value, Items) and value.kind != "dict":
            return self.call_on_items(function_name, value)
        return self.call_on_list(function_name, value)

    def call_on_list(self, function_name: str, value: Value) -> Value | None:
        """Return what a builtin of Python gives for a list whose length is known only at run time;
        None where no node can express the call."""
        if function_name in ("min", "max") and isinstance(value, Rows):
            place = self.first_extreme(function_name, value)
            return None if place is None else self.element_at(value, place)
        if function_name in ("min", "max"):
            return self.extreme_of_list(function_name, value)
        if function_name == "sum":
            return self.sum_of_list(value)
        if function_name in ("any", "all"):
            return self.any_or_all(function_name, value)
        if function_name == "list":
            return self.snapshot_rows(value) if isinstance(value, Zip) else self.copy_list(value)
        return self.reversed_list(value) if function_name == "reversed" else None

    def call_pairing(self, function_name: str, args: list[Value]) -> Value | None:
        """Return `zip` or `enumerate`, over which a loop may run, as a Zip, or the pair that
        `divmod` gives; None for other arguments."""
        if function_name == "divmod":
            if len(args) != 2:
                return None
            parts = [number_arithmetic.arithmetic(self.graph, op, *args) for op in ("//", "%")]
            return Items("tuple", tuple(parts))
        if function_name == "zip":
            return Zip(tuple(args)) if args else None
        start = args[1] if len(args) > 1 else Const(0)
        if number_kind(start) != "int" or not 1 <= len(args) <= 2:
            return None
        stop = number_arithmetic.arithmetic(self.graph, "+", start, Const(MAX_LENGTH))
        return Zip((Range(start, stop, 1), args[0]))

    def convert(self, kind: str, value: Value) -> Value:
        """Return `int(value)`, `float(value)` or `bool(value)`, as `kind` says: of a number, of the
        one element of a tensor, and for "bool" also of a list by its length."""
        if isinstance(value, Tensor):
            value = self.item_of(value)
        elif kind == "bool" and isinstance(value, (Items, Sequence, NestedList)):
            value = self.length(value)
        return number_arithmetic.convert_number(self.graph, kind, value)

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
        sum_of_tensors = self.sum_of_tensors(value.values)
        if sum_of_tensors is not None:
            return sum_of_tensors
        total: Value = Const(0)
        for element in value.values:
            total = number_arithmetic.arithmetic(self.graph, "+", total, element)
        return total

    def sum_of_tensors(self, values: tuple[Value, ...]) -> Tensor | None:
        """Return the sum of the whole number 0 and tensors, added from the first to the last, as
        Python does; None unless all values are tensors of one type that ONNX Runtime adds."""
        tensors = [value for value in values if isinstance(value, Tensor)]
        dtypes = {tensor.dtype for tensor in tensors}
        if len(tensors) < len(values) or len(dtypes) != 1 or not dtypes <= ADDED_DTYPES:
            return None
        (dtype,) = dtypes
        total = self.graph.constant(0, dtype)
        for tensor in tensors:
            total = self.graph.add("Add", total, tensor.name)
        ranks = [tensor.rank for tensor in tensors if tensor.rank is not None]
        return Tensor(total, dtype, max(ranks) if len(ranks) == len(tensors) else None)

    def call_range(self, args: list[Value]) -> Value | None:
        """Return `range(*args)`, or None unless all arguments are ints and the step is a constant
        other than 0."""
        parts = [Const(0), *args] if len(args) == 1 else args
        step = parts[2] if len(parts) == 3 else Const(1)
        kinds = {number_kind(part) for part in parts}
        if kinds != {"int"} or not isinstance(step, Const) or not step.value:
            return None
        return Range(parts[0], parts[1], step.value)

    def concatenate(self, arrays: Value, axis: Value, stack: bool) -> Value | None:
        """Return a list of arrays as one array, along the axis `axis` that they have, or along a
        new one with `stack`. None for an axis that is no constant, and for a value that is no list
        of arrays."""
        if not isinstance(axis, Const) or not is_list(arrays):
            return None
        template = sequence_type([arrays])
        if not isinstance(template, Sequence) or not isinstance(template.element, Tensor):
            return None
        rank = None if template.element.rank is None else template.element.rank + stack
        name = add_sequence(self.graph, arrays, template)
        self.graph.may_fail = True
        return Tensor(
            self.graph.add("ConcatFromSequence", name, axis=axis.value, new_axis=int(stack)),
            template.element.dtype,
            rank,
        )

    def call_method(self, method: str, base: Value, args: list[Value]) -> Value | None:
        """Return what `item` or `tolist` of a tensor gives, or a method of a list, which may then
        be changed under all its names; None for other methods and values."""
        if not isinstance(base, Tensor):
            return self.call_list_method(method, base, args)
        if method == "item" and not args:
            return self.item_of(base)
        return self.tolist(base) if method == "tolist" and not args else None

    def call_list_method(self, method: str, base: Value, args: list[Value]) -> Value | None:
        """Return what a method of a list gives, which is then changed under all its names by
        `append`, `extend`, `pop` and `reverse`; None for other methods and values."""
        match method, args:
            case "count", [value]:
                return self.count_in_list(value, base)
            case "index", [value]:
                return self.index_in_list(value, base)
            case "copy", []:
                return self.copy_list(base)
            case "reverse", [] if can_be_sequence(base):
                new_list = self.reversed_list(base)
                return None if new_list is None else self.replace_list(base, new_list, Const(None))
            case "append" | "extend" | "pop", _ if can_be_sequence(base):
                return self.mutate_list(method, base, args)
        return None
