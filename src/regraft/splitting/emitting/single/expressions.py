"""Evaluation of the host's expressions, which adds nodes to a graph."""

from __future__ import annotations

import ast
from typing import Any

from regraft.splitting.emitting.single import numbers
from regraft.splitting.emitting.single.calls import Calls
from regraft.splitting.emitting.single.join import (
    Inexpressible,
    name_of,
)
from regraft.splitting.emitting.single.values import (
    UNDEFINED,
    Const,
    Items,
    NestedList,
    Number,
    Sequence,
    Tensor,
    Text,
    Value,
    describe_value,
    number_kind,
)


class Expressions(Calls):
    """Evaluates expressions: adds nodes to `graph`, and reads and changes `names`, the values of
    the host's names; `on_X` returns the value of a syntax node of the type X.

    Raises Inexpressible for what no ONNX node can express.
    """

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            raise Inexpressible(f"{ast.unparse(node)}, a {type(node).__name__},")
        return method(node)  # type: ignore[no-any-return]

    def evaluate_truth(self, node: ast.expr) -> Value:
        """Return the truth of an expression, a constant or number of the kind bool."""
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
        """Return whether a string made at run time equals a constant, as a value of the kind
        bool."""
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

    def slice_items(self, node: ast.Subscript, base: Value) -> Value:
        """Return a slice, with constant bounds, of a list or tuple whose elements are known one by
        one."""
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
