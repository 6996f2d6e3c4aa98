"""Evaluation of the host's expressions, which adds nodes to a graph."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from regraft.splitting.emitting.single import numbers
from regraft.splitting.emitting.single.graph import Graph, element_type
from regraft.splitting.emitting.single.join import (
    Inexpressible,
    add_sequence,
    is_list,
    name_of,
    sequence_type,
)
from regraft.splitting.emitting.single.values import (
    UNDEFINED,
    Const,
    Items,
    Names,
    NestedList,
    Number,
    Range,
    Sequence,
    Tensor,
    Text,
    Value,
    describe_value,
    number_kind,
    substitute,
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


class Expressions:
    """Evaluates expressions: adds nodes to `graph`, and reads and changes `names`, the values of
    the host's names.

    Raises Inexpressible for what no ONNX node can express.
    """

    def __init__(self, graph: Graph, names: Names) -> None:
        self.graph, self.names = graph, names

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            raise Inexpressible(f"{ast.unparse(node)}, a {type(node).__name__},")
        return method(node)  # type: ignore[no-any-return]

    def evaluate_truth(self, node: ast.expr) -> Value:
        """Return the truth of an expression, as a bool."""
        if isinstance(node, ast.BoolOp):
            return self.evaluate_bool_op(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.negate(self.evaluate_truth(node.operand))
        value = self.evaluate(node)
        if isinstance(value, (Items, Sequence, NestedList)):
            value = self.length(value)
        return (
            Const(value.value is not None and bool(value.value))
            if isinstance(value, Const)
            else numbers.truth(self.graph, value)
        )

    def negate(self, value: Value) -> Value:
        """Return `not value` of a bool."""
        return (
            Const(not value.value)
            if isinstance(value, Const)
            else Number(self.graph.add("Not", name_of(self.graph, value)), "bool")
        )

    def evaluate_bool_op(self, node: ast.BoolOp) -> Value:
        """Return `and` or `or` of the truths of the operands.

        An operand that may fail is computed only where Python computes it, in a branch of an `If`.
        """
        conjunction = isinstance(node.op, ast.And)
        left = self.evaluate_truth(node.values[0])
        remaining = (
            node.values[1] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[1:])
        )
        if isinstance(left, Const):
            return self.evaluate_truth(remaining) if left.value == conjunction else left
        operand_graph = self.graph.new_child()
        names_before = dict(self.names)
        right = Expressions(operand_graph, self.names).evaluate_truth(remaining)
        if any(self.names[key] is not value for key, value in names_before.items()):
            raise Inexpressible(
                f"{ast.unparse(node)}, which changes a list in a part that may be left out,"
            )
        if not operand_graph.may_fail:
            right = self.evaluate_truth(remaining)
            names = [name_of(self.graph, value) for value in (left, right)]
            return Number(self.graph.add("And" if conjunction else "Or", *names), "bool")
        operand_graph.add_output(name_of(operand_graph, right), Number("", "bool"))
        constant_graph = self.graph.new_child()
        constant_graph.add_output(
            constant_graph.number(not conjunction, "bool"), Number("", "bool")
        )
        self.graph.may_fail = True
        then_branch, else_branch = (
            (operand_graph, constant_graph) if conjunction else (constant_graph, operand_graph)
        )
        name = self.graph.add(
            "If", name_of(self.graph, left), then_branch=then_branch, else_branch=else_branch
        )
        return Number(name, "bool")

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        kinds = [
            number_kind(Expressions(self.graph.new_child(), dict(self.names)).evaluate(operand))
            for operand in node.values
        ]
        if set(kinds) != {"bool"}:
            raise Inexpressible(f"{ast.unparse(node)}, whose type its values decide,")
        return self.evaluate_bool_op(node)

    def on_Constant(self, node: ast.Constant) -> Value:
        return Const(node.value)

    def on_Name(self, node: ast.Name) -> Value:
        if self.names.get(node.id, UNDEFINED) is UNDEFINED:
            raise Inexpressible(f"the name {node.id}")
        return self.names[node.id]

    def on_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.evaluate_truth(node)
        value = self.evaluate(node.operand)
        if number_kind(value) is None or isinstance(node.op, ast.Invert):
            raise Inexpressible(ast.unparse(node))
        return numbers.negate_number(self.graph, value) if isinstance(node.op, ast.USub) else value

    def on_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        if (
            isinstance(left, Items)
            and isinstance(right, Items)
            and left.kind == right.kind != "dict"
        ):
            if not isinstance(node.op, ast.Add):
                raise Inexpressible(ast.unparse(node))
            return Items(left.kind, (*left.values, *right.values))
        return numbers.arithmetic(self.graph, node.op, left, right)

    def on_Compare(self, node: ast.Compare) -> Value:
        if len(node.ops) != 1:
            raise Inexpressible(f"{ast.unparse(node)}, a comparison of several,")
        left, op, right = self.evaluate(node.left), node.ops[0], self.evaluate(node.comparators[0])
        if (
            isinstance(op, (ast.Eq, ast.NotEq))
            and isinstance(left, Text)
            and isinstance(right, Const)
        ):
            is_equal = self.is_same_text(left, right.value)
            return is_equal if isinstance(op, ast.Eq) else self.negate(is_equal)
        return numbers.compare_numbers(self.graph, op, left, right)

    def is_same_text(self, text: Text, constant: Any) -> Value:
        """Return whether a string made at run time equals a constant, as a bool."""
        if (
            isinstance(constant, str)
            and constant.startswith(text.before)
            and constant.endswith(text.after)
        ):
            middle = constant[len(text.before) : len(constant) - len(text.after)]
            if middle.lstrip("-").isdecimal() and str(int(middle)) == middle and len(middle) < 18:
                return numbers.compare_numbers(
                    self.graph, ast.Eq(), text.number, Const(int(middle))
                )
        return Const(False)

    def on_Tuple(self, node: ast.Tuple) -> Value:
        return Items("tuple", tuple(self.evaluate(element) for element in node.elts))

    def on_List(self, node: ast.List) -> Value:
        return Items("list", tuple(self.evaluate(element) for element in node.elts))

    def on_Dict(self, node: ast.Dict) -> Value:
        keys = [self.evaluate(key) if key is not None else None for key in node.keys]
        if not all(isinstance(key, Const) for key in keys):
            raise Inexpressible(f"{ast.unparse(node)}, a dict of keys that are not constant,")
        constant_keys = tuple(key.value for key in keys if isinstance(key, Const))
        if len(set(constant_keys)) != len(constant_keys) or not all(
            isinstance(key, str) for key in constant_keys
        ):
            raise Inexpressible(f"{ast.unparse(node)}, a dict of keys that are not single strings,")
        return Items("dict", tuple(self.evaluate(value) for value in node.values), constant_keys)

    def on_JoinedStr(self, node: ast.JoinedStr) -> Value:
        formatted = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        if (
            len(formatted) == 1
            and formatted[0].conversion == -1
            and formatted[0].format_spec is None
        ):
            index = node.values.index(formatted[0])
            before, after = (
                "".join(str(part.value) for part in literals)  # type: ignore[attr-defined]
                for literals in (
                    node.values[:index],
                    node.values[index + 1 :],
                )
            )
            number = self.evaluate(formatted[0].value)
            if isinstance(number, Number) and number.kind == "int":
                return Text(before, number, after)
        raise Inexpressible(f"{ast.unparse(node)}, a string that is made at run time,")

    # -- elements

    def on_Attribute(self, node: ast.Attribute) -> Value:
        raise Inexpressible(f"{ast.unparse(node)}, an attribute,")

    def on_Subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            base, axis = self.evaluate(node.value.value), self.evaluate(node.slice)
            if isinstance(base, Tensor) and isinstance(axis, Const) and isinstance(axis.value, int):
                return self.dimension(base, axis.value)
        base = self.evaluate(node.value)
        if isinstance(node.slice, ast.Slice):
            return self.slice_items(node, base)
        return self.element_at(base, self.evaluate(node.slice))

    def dimension(self, base: Tensor, axis: int) -> Number:
        """Return the size of a tensor along an axis."""
        shape = self.graph.add("Shape", base.name)
        return Number(
            self.graph.add("Gather", shape, self.graph.number(axis, "int")), "int", MAX_LENGTH
        )

    def slice_items(self, node: ast.Subscript, base: Value) -> Value:
        """Return a slice of a list or tuple whose elements are known one by one."""
        assert isinstance(node.slice, ast.Slice)
        bounds = [
            self.evaluate(limit) if limit else Const(None)
            for limit in (node.slice.lower, node.slice.upper, node.slice.step)
        ]
        if (
            not isinstance(base, Items)
            or base.kind == "dict"
            or not all(isinstance(limit, Const) for limit in bounds)
        ):
            raise Inexpressible(f"{ast.unparse(node)}, a slice of {describe_value(base)},")
        return Items(
            base.kind,
            base.values[slice(*(limit.value for limit in bounds if isinstance(limit, Const)))],
        )

    def element_at(self, base: Value, index: Value) -> Value:
        """Return the element of a list, tuple, dict or nested list at an index."""
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
            template = sequence_type([base])
            assert isinstance(template, Sequence)
            base = Sequence(add_sequence(self.graph, base, template), template.element)
        if isinstance(base, Sequence):
            self.graph.may_fail = True
            return with_name(base.element, self.graph.add("SequenceAt", base.name, position))
        if isinstance(base, NestedList):
            self.graph.may_fail = True
            return self.row_of(base, position)
        raise Inexpressible(f"{describe_value(base)} indexed by {describe_value(index)}")

    def unpack(self, value: Value, count: int) -> list[Value]:
        """Return the elements of a value that is assigned to `count` targets."""
        if isinstance(value, Items) and value.kind != "dict" and len(value.values) == count:
            return list(value.values)
        if not isinstance(value, (Sequence, NestedList)):
            raise Inexpressible(f"{describe_value(value)} taken apart into {count}")
        has_count = numbers.compare_numbers(self.graph, ast.Eq(), self.length(value), Const(count))
        zero = self.graph.add_check(
            name_of(self.graph, has_count), f"ValueError: not {count} values to unpack"
        )
        positions = [
            self.graph.add("Add", self.graph.number(position, "int"), zero)
            for position in range(count)
        ]
        return [self.element_at(value, Number(position, "int")) for position in positions]

    def row_of(self, base: NestedList | Tensor, index_name: str) -> Value:
        """Return the element of the first dimension of a tensor, or of lists, at the index that
        `index_name` names."""
        name = self.graph.add("Gather", base.name, index_name, axis=0)
        if isinstance(base, Tensor):
            return Tensor(name, base.dtype, None if base.rank is None else base.rank - 1)
        if base.depth > 1:
            return NestedList(name, base.kind, base.dtype, base.depth - 1)
        return self.python_number(name, base.dtype)

    def python_number(self, name: str, dtype: str) -> Number:
        """Return a tensor without dimensions as Python's number."""
        kind = python_kind(dtype)
        python_dtype = "bool" if kind == "bool" else "float64" if kind == "float" else "int64"
        if dtype != python_dtype:
            name = self.graph.add("Cast", name, to=element_type(python_dtype))
        return Number(name, kind, MAGNITUDE_BOUNDS.get(dtype, 0))

    def length(self, value: Value) -> Value:
        """Return `len(value)`."""
        if isinstance(value, Items):
            return Const(len(value.values))
        if isinstance(value, Sequence):
            return Number(self.graph.add("SequenceLength", value.name), "int", MAX_LENGTH)
        if isinstance(value, (NestedList, Tensor)):
            return self.dimension(Tensor(value.name, value.dtype, None), 0)
        raise Inexpressible(f"len() of {describe_value(value)}")

    # -- calls

    def on_Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "numpy":
                return self.concatenate(node)
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "math":
                raise Inexpressible(f"the call {ast.unparse(node)}")
            return self.call_method(node, node.func)
        function_name = node.func.id if isinstance(node.func, ast.Name) else ""
        if node.keywords and function_name and not node.args:  # an object that forward returns
            fields = {word.arg: self.evaluate(word.value) for word in node.keywords}
            return Items(function_name, tuple(fields.values()), tuple(fields))
        if (
            self.names.get(function_name, UNDEFINED) is not UNDEFINED
            or not hasattr(builtins, function_name)
            or node.keywords
        ):
            raise Inexpressible(f"the call {ast.unparse(node)}")
        args = [self.evaluate(arg) for arg in node.args]
        result = self.call_builtin(function_name, args)
        if result is None:
            raise Inexpressible(
                f"{function_name}() of {', '.join(map(describe_value, args)) or 'nothing'}"
            )
        return result

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
            if isinstance(value, Tensor):
                value = self.item_of(value)
            elif function_name == "bool" and isinstance(value, (Items, Sequence, NestedList)):
                value = self.length(value)
            return numbers.convert_number(self.graph, function_name, value)
        if function_name == "len":
            return self.length(value)
        if function_name == "abs" and number_kind(value):
            return numbers.absolute_value(self.graph, value)
        if function_name == "round" and number_kind(value):
            return numbers.round_number(self.graph, value)
        if (
            function_name in ("sum", "min", "max", "list", "tuple")
            and isinstance(value, Items)
            and value.kind != "dict"
        ):
            return self.call_on_items(function_name, value)
        return None

    def call_on_items(self, function_name: str, value: Items) -> Value | None:
        """Return a builtin of elements that are known one by one; None for `min` and `max` of fewer
        than two."""
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

    def item_of(self, value: Value) -> Number:
        """Return `value.item()`, which fails at run time unless the tensor has one element."""
        if not isinstance(value, Tensor):
            raise Inexpressible(f"item() of {describe_value(value)}")
        if value.rank == 0:
            return self.python_number(value.name, value.dtype)
        self.graph.may_fail = True
        return self.python_number(
            self.graph.add("Reshape", value.name, self.graph.constant([], "int64")), value.dtype
        )

    def concatenate(self, node: ast.Call) -> Value:
        """Return `numpy.concatenate(list, axis=n)` or `numpy.stack(list, axis=n)`."""
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

    def tolist(self, base: Tensor) -> Value:
        """Return `base.tolist()`."""
        if base.rank is None:
            raise Inexpressible("tolist() of a tensor whose number of dimensions the paths decide")
        if not base.rank:
            return self.python_number(base.name, base.dtype)
        return NestedList(base.name, python_kind(base.dtype), base.dtype, base.rank)

    def mutate_list(self, function_name: str, base: Value, args: list[Value]) -> Value:
        """Change a list, under all its names, by `append`, `extend` or `pop`; return what the call
        gives."""
        result: Value = Const(None)
        if isinstance(base, Items) and (function_name != "pop" or not args):
            if function_name == "pop" and not base.values:
                raise Inexpressible("pop() of an empty list")
            if function_name == "pop":
                new_list: Value = Items("list", base.values[:-1])
                result = base.values[-1]
            elif function_name == "append":
                new_list = Items("list", (*base.values, args[0]))
            elif isinstance(args[0], Items) and args[0].kind != "dict":
                new_list = Items("list", (*base.values, *args[0].values))
            else:
                raise Inexpressible(f"extend() by {describe_value(args[0])}")
        elif isinstance(base, Sequence) and function_name == "append":
            template = sequence_type([base, Items("list", (args[0],))])
            assert isinstance(template, Sequence)
            name = self.graph.add("SequenceInsert", base.name, name_of(self.graph, args[0]))
            new_list = Sequence(name, template.element)
        elif isinstance(base, Sequence) and function_name == "pop" and not args:
            self.graph.may_fail = True
            result = self.element_at(base, Const(-1))
            new_list = Sequence(self.graph.add("SequenceErase", base.name), base.element)
        else:
            raise Inexpressible(f"{function_name}() of {describe_value(base)}")
        for key, value in self.names.items():
            self.names[key] = substitute(value, base, new_list)
        return result


def with_name(element: Number | Tensor, name: str) -> Value:
    """Return a number or tensor of the type of `element` with the name `name`."""
    return (
        Number(name, element.kind)
        if isinstance(element, Number)
        else Tensor(name, element.dtype, element.rank)
    )


def python_kind(dtype: str) -> str:
    """Return the type of Python's number that `item()` of a tensor of `dtype` gives."""
    if dtype in MAGNITUDE_BOUNDS:
        return PYTHON_KINDS.get(dtype, "int")
    if dtype in PYTHON_KINDS:
        return PYTHON_KINDS[dtype]
    raise Inexpressible(f"a value of {dtype}")
