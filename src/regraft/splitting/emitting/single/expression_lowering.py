"""Evaluation of the host's expressions, which adds nodes to a graph."""

from __future__ import annotations

import ast
from typing import Any

from regraft.splitting.emitting.single import number_arithmetic
from regraft.splitting.emitting.single.call_lowering import Calls
from regraft.splitting.emitting.single.graph_values import (
    UNDEFINED,
    Const,
    Items,
    Maybe,
    NestedList,
    Number,
    Rows,
    Sequence,
    Tensor,
    Text,
    Value,
    describe_value,
    number_kind,
)
from regraft.splitting.emitting.single.number_functions import power
from regraft.splitting.emitting.single.optional_values import (
    join_with_presence,
    require_present,
    test_presence,
)
from regraft.splitting.emitting.single.path_types import Inexpressible, name_of

SYMBOLS: dict[type[ast.operator | ast.cmpop], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Mod: "%",
    ast.FloorDiv: "//",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def take_comparisons_apart(node: ast.Compare) -> ast.BoolOp:
    """Return `a < b and b < c` for `a < b < c`; the operands in between are written twice."""
    operands = [node.left, *node.comparators]
    pairs = zip(operands, node.ops, node.comparators, strict=False)
    return ast.BoolOp(ast.And(), [ast.Compare(left, [op], [right]) for left, op, right in pairs])


class Expressions(Calls):
    """Evaluates expressions: adds nodes to `graph`, and reads and changes `names`, the values of
    the host's names.

    Raises Inexpressible for what no ONNX node can express.
    """

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression of the host; raise Inexpressible for one that no node
        expresses."""
        match node:
            case ast.Constant(constant):
                return Const(constant)
            case ast.Name(key):
                return require_present(self.graph, self.read(key))
            case ast.BoolOp():
                return self.evaluate_bool_value(node)
            case ast.UnaryOp(ast.Not()):
                return self.evaluate_truth(node)
            case ast.UnaryOp(ast.USub(), operand):
                return number_arithmetic.negate_number(self.graph, self.evaluate(operand))
            case ast.BinOp(ast.Call(ast.Name("sum"), [values], []), ast.Div(), right) if (
                self.is_builtin("sum")
            ):
                return self.divide_sum(self.evaluate(values), right)
            case ast.BinOp(left, op, right):
                return self.operate(symbol(op), self.evaluate(left), self.evaluate(right))
            case ast.Compare():
                return self.evaluate_comparison(node)
            case ast.Tuple(elements):
                return Items("tuple", tuple(map(self.evaluate_optional, elements)))
            case ast.List(elements):
                return Items("list", tuple(map(self.evaluate_optional, elements)))
            case ast.Dict():
                return self.make_dict(node)
            case ast.JoinedStr():
                return self.format_text(node)
            case ast.Subscript():
                return self.evaluate_subscript(node)
            case ast.Call():
                return self.evaluate_call(node)
        raise Inexpressible(f"the expression {ast.unparse(node)}")

    def divide_sum(self, values: Value, right: ast.expr) -> Value:
        """Return the quotient of the sum of a list, a float also where the list is empty, and
        another number."""
        total = self.sum_of_floats(values, Const(0.0)) or self.evaluate_builtin("sum", [values])
        return self.operate("/", total, self.evaluate(right))

    def evaluate_comparison(self, node: ast.Compare) -> Value:
        """Return the truth of a comparison, of which `is` tells None alone."""
        match node:
            case ast.Compare(left, [ast.Is() | ast.IsNot() as test], [ast.Constant(None)]):
                value = self.evaluate_optional(left)
                return test_presence(self.graph, value, isinstance(test, ast.Is))
            case ast.Compare(left, [ast.Eq() | ast.NotEq() as test], [right]):
                operands = self.evaluate_optional(left), self.evaluate_optional(right)
                return self.compare_optional(symbol(test), *operands)
            case ast.Compare(left, [comparison], [right]):
                return self.compare(symbol(comparison), self.evaluate(left), self.evaluate(right))
        return self.evaluate_bool_op(take_comparisons_apart(node))

    def evaluate_optional(self, node: ast.expr) -> Value:
        """Return the value of an expression of the host, which may be None at run time where the
        expression is a name."""
        return self.read(node.id) if isinstance(node, ast.Name) else self.evaluate(node)

    def compare_optional(self, op: str, left: Value, right: Value) -> Value:
        """Return `left == right` or `left != right`, as `op` says, of values of which one may be
        None; raise Inexpressible where both may."""
        if isinstance(right, Maybe) or (isinstance(left, Const) and left.value is None):
            left, right = right, left
        if isinstance(right, Maybe):
            raise Inexpressible(f"the comparison of {describe_value(left)} with another")
        is_optional = isinstance(left, Maybe) or number_kind(left) is not None
        if is_optional and isinstance(right, Const) and right.value is None:
            return test_presence(self.graph, left, op == "==")
        if not isinstance(left, Maybe):
            return self.compare(op, left, right)
        is_equal = self.compare("==", left.value, right)
        is_equal = join_with_presence(self.graph, left, is_equal)
        return is_equal if op == "==" else self.negate(is_equal)

    def evaluate_truth(self, node: ast.expr) -> Value:
        """Return the truth of an expression, as `bool()` gives it: a Const of True or False, or a
        Number of the kind bool that nodes compute."""
        if isinstance(node, ast.BoolOp):
            return self.evaluate_bool_op(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.negate(self.evaluate_truth(node.operand))
        value = self.evaluate_optional(node)
        if isinstance(value, Maybe):
            return join_with_presence(self.graph, value, self.truth_of(value.value))
        return self.truth_of(value)

    def truth_of(self, value: Value) -> Value:
        """Return `bool(value)`: a Const, or a Number of the kind bool."""
        if isinstance(value, (Items, Sequence, NestedList, Rows)):
            value = self.length(value)
        return (
            Const(value.value is not None and bool(value.value))
            if isinstance(value, Const)
            else number_arithmetic.truth(self.graph, value)
        )

    def negate(self, value: Value) -> Value:
        """Return `not value` of a truth value, a constant or a Number of the kind bool."""
        return (
            Const(not value.value)
            if isinstance(value, Const)
            else Number(self.graph.add("Not", name_of(self.graph, value)), "bool")
        )

    def evaluate_bool_op(self, node: ast.BoolOp) -> Value:
        """Return the truth of an `and` or `or`, a constant or a Number of the kind bool.

        An operand that may fail is computed only where Python computes it, in a branch of an `If`.
        Raises Inexpressible where an operand after the first changes a list.
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
            self.graph.take_over(operand_graph)
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

    def evaluate_bool_value(self, node: ast.BoolOp) -> Value:
        """Return the value of an `and` or `or` whose operands are all truth values, so that the
        result is one, too; raise Inexpressible for other operands, between whose types the values
        would choose."""
        kinds = [
            number_kind(Expressions(self.graph.new_child(), dict(self.names)).evaluate(operand))
            for operand in node.values
        ]
        if set(kinds) != {"bool"}:
            raise Inexpressible(f"{ast.unparse(node)}, whose type its values decide,")
        return self.evaluate_bool_op(node)

    def read(self, key: str) -> Value:
        """Return the value of the name `key`; raise Inexpressible where it has none."""
        value = self.names.get(key, UNDEFINED)
        if value is UNDEFINED:
            raise Inexpressible(f"the name {key}")
        return value

    def operate(self, op: str, left: Value, right: Value) -> Value:
        """Return `left op right` of two numbers, of powers the square, or the sum of two lists or
        two tuples of known elements; raise Inexpressible for other values."""
        match op, left, right:
            case "+", Items("list" | "tuple" as kind, values), Items(other_kind, more_values) if (
                kind == other_kind
            ):
                return Items(kind, values + more_values)
            case "Pow", _, _ if (squared := power(self.graph, left, right)) is not None:
                return squared
        return number_arithmetic.arithmetic(self.graph, op, left, right)

    def compare(self, op: str, left: Value, right: Value) -> Value:
        """Return `left op right` for a comparison of two numbers, with "==" or "!=" of a string of
        run time with a constant, or for `in` of a list; raise Inexpressible for other values."""
        if op in ("==", "!=") and isinstance(left, Text) and isinstance(right, Const):
            is_equal = self.compare_text(left, right.value)
            return is_equal if op == "==" else self.negate(is_equal)
        if op in ("In", "NotIn"):
            count = self.count_in_list(left, right)
            if count is not None:
                return number_arithmetic.compare_numbers(
                    self.graph, ">" if op == "In" else "==", count, Const(0)
                )
        return number_arithmetic.compare_numbers(self.graph, op, left, right)

    def compare_text(self, text: Text, constant: Any) -> Value:
        """Return whether a string of run time (two texts around a whole number) equals a constant:
        the constant False where it cannot, else a comparison of the number."""
        if (
            isinstance(constant, str)
            and constant.startswith(text.before)
            and constant.endswith(text.after)
        ):
            middle = constant[len(text.before) : len(constant) - len(text.after)]
            if middle.lstrip("-").isdecimal() and str(int(middle)) == middle and len(middle) < 18:
                return number_arithmetic.compare_numbers(
                    self.graph, "==", text.number, Const(int(middle))
                )
        return Const(False)

    def make_dict(self, node: ast.Dict) -> Value:
        """Return a dictionary display as Items; raise Inexpressible unless its keys are different
        constant strings."""
        keys = [self.evaluate(key) for key in node.keys if key is not None]
        texts = [key.value for key in keys if isinstance(key, Const) and isinstance(key.value, str)]
        if len({*texts}) < len(node.keys):
            raise Inexpressible(f"{ast.unparse(node)}, a dict of keys that are not single strings,")
        return Items("dict", tuple(map(self.evaluate_optional, node.values)), tuple(texts))

    def format_text(self, node: ast.JoinedStr) -> Value:
        """Return an f-string of constant text around one whole number as Text; raise Inexpressible
        for other f-strings."""
        match [part for part in node.values if not isinstance(part, ast.Constant)]:
            case [ast.FormattedValue(value, -1, None) as part]:
                number, place = self.evaluate(value), node.values.index(part)
                if isinstance(number, Number) and number.kind == "int":
                    before, after = (
                        "".join(str(text.value) for text in texts if isinstance(text, ast.Constant))
                        for texts in (node.values[:place], node.values[place + 1 :])
                    )
                    return Text(before, number, after)
        raise Inexpressible(f"{ast.unparse(node)}, a string that is made at run time,")

    def evaluate_subscript(self, node: ast.Subscript) -> Value:
        """Return a size (`array.shape[0]`), a slice of a list or tuple, or an element of a list,
        tuple, dict or array; raise Inexpressible for other subscripts."""
        match node:
            case ast.Subscript(ast.Attribute(array, "shape"), index):
                match self.evaluate(array), self.evaluate(index):
                    case Tensor() as base, Const(int(axis)):
                        return self.dimension(base, axis)
                raise Inexpressible(f"the size {ast.unparse(node)}")
            case ast.Subscript(value, ast.Slice() as limits):
                return self.slice_items(node, self.evaluate(value), limits)
        return self.element_at(self.evaluate(node.value), self.evaluate(node.slice))

    def slice_items(self, node: ast.Subscript, base: Value, limits: ast.Slice) -> Value:
        """Return the slice `limits` of `base`: a list of run time, or a list or tuple of known
        elements, with constant bounds; raise Inexpressible, with the text of `node`, for other
        values and bounds."""
        bounds = [
            self.evaluate(limit) if limit else Const(None)
            for limit in (limits.lower, limits.upper, limits.step)
        ]
        sliced = self.slice_list(base, bounds)
        if sliced is not None:
            return sliced
        if (
            not isinstance(base, Items)
            or base.kind not in ("list", "tuple")
            or not all(isinstance(limit, Const) for limit in bounds)
        ):
            raise Inexpressible(f"{ast.unparse(node)}, a slice of {describe_value(base)},")
        numbers = (limit.value for limit in bounds if isinstance(limit, Const))
        return Items(base.kind, base.values[slice(*numbers)])


def symbol(op: ast.operator | ast.cmpop) -> str:
    """Return an operator as Python writes it, such as "+"; the name of its class, such as "Pow",
    for an operator that is not in SYMBOLS."""
    return SYMBOLS.get(type(op), type(op).__name__)
