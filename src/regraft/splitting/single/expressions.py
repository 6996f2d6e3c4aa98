"""Expressions of the host as nodes of a graph."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from regraft.splitting.single import numbers
from regraft.splitting.single.graph import Graph, element_type
from regraft.splitting.single.join import Disagree, as_sequence, is_list, name_of, sequence_of
from regraft.splitting.single.values import (
    UNDEFINED,
    Const,
    Items,
    Listed,
    Names,
    Number,
    Range,
    Sequence,
    Tensor,
    Text,
    Value,
    described,
    number_kind,
    replaced,
)

PYTHON = {"bool": "bool", "float16": "float", "float32": "float", "float64": "float"}
SMALL = {"bool": 1, "int8": 2**7, "uint8": 2**8, "int16": 2**15, "int32": 2**31, "int64": 2**63}
LENGTH = 2**40  # elements that no tensor or list exceeds


class Expressions:
    """Evaluates expressions: adds nodes to `graph`, reads and changes `names`."""

    def __init__(self, graph: Graph, names: Names) -> None:
        self.graph, self.names = graph, names

    def value(self, node: ast.expr) -> Value:
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            raise Disagree(f"{ast.unparse(node)}, a {type(node).__name__},")
        return method(node)  # type: ignore[no-any-return]

    def test(self, node: ast.expr) -> Value:
        """The truth of an expression, as a bool."""
        if isinstance(node, ast.BoolOp):
            return self.both(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.inverted(self.test(node.operand))
        value = self.value(node)
        if isinstance(value, (Items, Sequence, Listed)):
            value = self.length(value)
        return (
            Const(value.value is not None and bool(value.value))
            if isinstance(value, Const)
            else numbers.truth(self.graph, value)
        )

    def inverted(self, value: Value) -> Value:
        return (
            Const(not value.value)
            if isinstance(value, Const)
            else Number(self.graph.add("Not", name_of(self.graph, value)), "bool")
        )

    def both(self, node: ast.BoolOp) -> Value:
        """`and` or `or` of truths; what may fail is computed only where Python computes it."""
        conjunction = isinstance(node.op, ast.And)
        left = self.test(node.values[0])
        rest = node.values[1] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[1:])
        if isinstance(left, Const):
            return self.test(rest) if left.value == conjunction else left
        apart = self.graph.child()
        before = dict(self.names)
        right = Expressions(apart, self.names).test(rest)
        if any(self.names[key] is not one for key, one in before.items()):
            raise Disagree(f"{ast.unparse(node)}, which changes a list in a part that may be left out,")
        if not apart.risky:
            right = self.test(rest)
            names = [name_of(self.graph, one) for one in (left, right)]
            return Number(self.graph.add("And" if conjunction else "Or", *names), "bool")
        apart.output(name_of(apart, right), Number("", "bool"))
        known = self.graph.child()
        known.output(known.number(not conjunction, "bool"), Number("", "bool"))
        self.graph.risky = True
        then, other = (apart, known) if conjunction else (known, apart)
        made = self.graph.add("If", name_of(self.graph, left), then_branch=then, else_branch=other)
        return Number(made, "bool")

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        kinds = [number_kind(Expressions(self.graph.child(), dict(self.names)).value(one)) for one in node.values]
        if set(kinds) != {"bool"}:
            raise Disagree(f"{ast.unparse(node)}, whose type its values decide,")
        return self.both(node)

    def on_Constant(self, node: ast.Constant) -> Value:
        return Const(node.value)

    def on_Name(self, node: ast.Name) -> Value:
        if self.names.get(node.id, UNDEFINED) is UNDEFINED:
            raise Disagree(f"the name {node.id}")
        return self.names[node.id]

    def on_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.test(node)
        value = self.value(node.operand)
        if number_kind(value) is None or isinstance(node.op, ast.Invert):
            raise Disagree(ast.unparse(node))
        return numbers.negative(self.graph, value) if isinstance(node.op, ast.USub) else value

    def on_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Items) and isinstance(right, Items) and left.kind == right.kind != "dict":
            if not isinstance(node.op, ast.Add):
                raise Disagree(ast.unparse(node))
            return Items(left.kind, (*left.values, *right.values))
        return numbers.arithmetic(self.graph, node.op, left, right)

    def on_Compare(self, node: ast.Compare) -> Value:
        if len(node.ops) != 1:
            raise Disagree(f"{ast.unparse(node)}, a comparison of several,")
        left, op, right = self.value(node.left), node.ops[0], self.value(node.comparators[0])
        if isinstance(op, (ast.Eq, ast.NotEq)) and isinstance(left, Text) and isinstance(right, Const):
            same = self.same_text(left, right.value)
            return same if isinstance(op, ast.Eq) else self.inverted(same)
        return numbers.compared(self.graph, op, left, right)

    def same_text(self, text: Text, other: Any) -> Value:
        if isinstance(other, str) and other.startswith(text.before) and other.endswith(text.after):
            middle = other[len(text.before) : len(other) - len(text.after)]
            if middle.lstrip("-").isdecimal() and str(int(middle)) == middle and len(middle) < 18:
                return numbers.compared(self.graph, ast.Eq(), text.number, Const(int(middle)))
        return Const(False)

    def on_Tuple(self, node: ast.Tuple) -> Value:
        return Items("tuple", tuple(self.value(one) for one in node.elts))

    def on_List(self, node: ast.List) -> Value:
        return Items("list", tuple(self.value(one) for one in node.elts))

    def on_Dict(self, node: ast.Dict) -> Value:
        keys = [self.value(one) if one is not None else None for one in node.keys]
        if not all(isinstance(one, Const) for one in keys):
            raise Disagree(f"{ast.unparse(node)}, a dict of keys that are not constant,")
        known = tuple(one.value for one in keys if isinstance(one, Const))
        if len(set(known)) != len(known) or not all(isinstance(one, str) for one in known):
            raise Disagree(f"{ast.unparse(node)}, a dict of keys that are not single strings,")
        return Items("dict", tuple(self.value(one) for one in node.values), known)

    def on_JoinedStr(self, node: ast.JoinedStr) -> Value:
        parts = [one for one in node.values if isinstance(one, ast.FormattedValue)]
        if len(parts) == 1 and parts[0].conversion == -1 and parts[0].format_spec is None:
            place = node.values.index(parts[0])
            before, after = ("".join(str(one.value) for one in side) for side in (  # type: ignore[attr-defined]
                node.values[:place], node.values[place + 1 :]
            ))  # fmt: skip
            number = self.value(parts[0].value)
            if isinstance(number, Number) and number.kind == "int":
                return Text(before, number, after)
        raise Disagree(f"{ast.unparse(node)}, a string that is made at run time,")

    # -- elements

    def on_Attribute(self, node: ast.Attribute) -> Value:
        raise Disagree(f"{ast.unparse(node)}, an attribute,")

    def on_Subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            base, place = self.value(node.value.value), self.value(node.slice)
            if isinstance(base, Tensor) and isinstance(place, Const) and isinstance(place.value, int):
                return self.size(base, place.value)
        base = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            return self.part(node, base)
        return self.element(base, self.value(node.slice))

    def size(self, base: Tensor, place: int) -> Number:
        shape = self.graph.add("Shape", base.name)
        return Number(self.graph.add("Gather", shape, self.graph.number(place, "int")), "int", LENGTH)

    def part(self, node: ast.Subscript, base: Value) -> Value:
        assert isinstance(node.slice, ast.Slice)
        bounds = [
            self.value(one) if one else Const(None) for one in (node.slice.lower, node.slice.upper, node.slice.step)
        ]
        if not isinstance(base, Items) or base.kind == "dict" or not all(isinstance(one, Const) for one in bounds):
            raise Disagree(f"{ast.unparse(node)}, a slice of {described(base)},")
        return Items(base.kind, base.values[slice(*(one.value for one in bounds if isinstance(one, Const)))])

    def element(self, base: Value, index: Value) -> Value:
        if isinstance(base, Items) and isinstance(index, Const):
            try:
                place = base.keys.index(index.value) if base.kind == "dict" else index.value
                return base.values[place]
            except (IndexError, ValueError, TypeError) as problem:
                raise Disagree(f"an element that is not there ({problem})") from problem
        if number_kind(index) != "int":
            raise Disagree(f"{described(base)} indexed by {described(index)}")
        place = name_of(self.graph, index)
        if isinstance(base, Items) and base.kind == "list":
            made = as_sequence([base])
            assert isinstance(made, Sequence)
            base = Sequence(sequence_of(self.graph, base, made), made.element)
        if isinstance(base, Sequence):
            self.graph.risky = True
            return renamed(base.element, self.graph.add("SequenceAt", base.name, place))
        if isinstance(base, Listed):
            self.graph.risky = True
            return self.row(base, place)
        raise Disagree(f"{described(base)} indexed by {described(index)}")

    def unpacked(self, value: Value, count: int) -> list[Value]:
        """The elements of what is assigned to `count` targets."""
        if isinstance(value, Items) and value.kind != "dict" and len(value.values) == count:
            return list(value.values)
        if not isinstance(value, (Sequence, Listed)):
            raise Disagree(f"{described(value)} taken apart into {count}")
        fits = numbers.compared(self.graph, ast.Eq(), self.length(value), Const(count))
        zero = self.graph.unless(name_of(self.graph, fits), f"ValueError: not {count} values to unpack")
        places = [self.graph.add("Add", self.graph.number(place, "int"), zero) for place in range(count)]
        return [self.element(value, Number(place, "int")) for place in places]

    def row(self, base: Listed | Tensor, place: str) -> Value:
        """One element of a tensor's first dimension."""
        name = self.graph.add("Gather", base.name, place, axis=0)
        if isinstance(base, Tensor):
            return Tensor(name, base.dtype, None if base.rank is None else base.rank - 1)
        if base.depth > 1:
            return Listed(name, base.kind, base.dtype, base.depth - 1)
        return self.python(name, base.dtype)

    def python(self, name: str, dtype: str) -> Number:
        """A tensor without dimensions as Python's number."""
        kind = python_kind(dtype)
        wide = "bool" if kind == "bool" else "float64" if kind == "float" else "int64"
        if dtype != wide:
            name = self.graph.add("Cast", name, to=element_type(wide))
        return Number(name, kind, SMALL.get(dtype, 0))

    def length(self, value: Value) -> Value:
        if isinstance(value, Items):
            return Const(len(value.values))
        if isinstance(value, Sequence):
            return Number(self.graph.add("SequenceLength", value.name), "int", LENGTH)
        if isinstance(value, (Listed, Tensor)):
            return self.size(Tensor(value.name, value.dtype, None), 0)
        raise Disagree(f"len() of {described(value)}")

    # -- calls

    def on_Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "numpy":
                return self.joined(node)
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "math":
                raise Disagree(f"the call {ast.unparse(node)}")
            return self.method(node, node.func)
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if node.keywords and called and not node.args:  # an object that forward returns
            fields = {word.arg: self.value(word.value) for word in node.keywords}
            return Items(called, tuple(fields.values()), tuple(fields))
        if self.names.get(called, UNDEFINED) is not UNDEFINED or not hasattr(builtins, called) or node.keywords:
            raise Disagree(f"the call {ast.unparse(node)}")
        args = [self.value(one) for one in node.args]
        made = self.builtin(called, args)
        if made is None:
            raise Disagree(f"{called}() of {', '.join(map(described, args)) or 'nothing'}")
        return made

    def builtin(self, called: str, args: list[Value]) -> Value | None:
        if called == "range":
            return self.range(args)
        if called in ("min", "max") and len(args) >= 2:
            best = args[0]
            for one in args[1:]:
                best = numbers.chosen(self.graph, called, best, one)
            return best
        if len(args) != 1:
            return None
        (value,) = args
        if called in ("int", "float", "bool"):
            if isinstance(value, Tensor):
                value = self.item(value)
            elif called == "bool" and isinstance(value, (Items, Sequence, Listed)):
                value = self.length(value)
            return numbers.converted(self.graph, called, value)
        if called == "len":
            return self.length(value)
        if called == "abs" and number_kind(value):
            return numbers.absolute(self.graph, value)
        if called == "round" and number_kind(value):
            return numbers.rounded(self.graph, value)
        if called in ("sum", "min", "max", "list", "tuple") and isinstance(value, Items) and value.kind != "dict":
            return self.of_items(called, value)
        return None

    def of_items(self, called: str, value: Items) -> Value | None:
        if called in ("list", "tuple"):
            return Items(called, value.values)
        if called != "sum":
            return self.builtin(called, list(value.values)) if len(value.values) > 1 else None
        total: Value = Const(0)
        for one in value.values:
            total = numbers.arithmetic(self.graph, ast.Add(), total, one)
        return total

    def range(self, args: list[Value]) -> Value | None:
        parts = [Const(0), *args] if len(args) == 1 else args
        step = parts[2] if len(parts) == 3 else Const(1)
        kinds = {number_kind(one) for one in parts}
        if kinds != {"int"} or not isinstance(step, Const) or not step.value:
            return None
        return Range(parts[0], parts[1], step.value)

    def item(self, value: Value) -> Number:
        if not isinstance(value, Tensor):
            raise Disagree(f"item() of {described(value)}")
        if value.rank == 0:
            return self.python(value.name, value.dtype)
        self.graph.risky = True
        return self.python(self.graph.add("Reshape", value.name, self.graph.constant([], "int64")), value.dtype)

    def joined(self, node: ast.Call) -> Value:
        """`numpy.concatenate(list, axis=n)` and `numpy.stack`."""
        assert isinstance(node.func, ast.Attribute)
        several = self.value(node.args[0])
        axis = self.value(node.keywords[0].value) if node.keywords else Const(0)
        if node.func.attr not in ("concatenate", "stack") or not isinstance(axis, Const) or not is_list(several):
            raise Disagree(f"the call {ast.unparse(node)}")
        made = as_sequence([several])
        assert isinstance(made, Sequence)
        if not isinstance(made.element, Tensor):
            raise Disagree(f"the call {ast.unparse(node)} on numbers")
        stack = node.func.attr == "stack"
        rank = made.element.rank if made.element.rank is None else made.element.rank + stack
        name = sequence_of(self.graph, several, made)
        self.graph.risky = True
        return Tensor(
            self.graph.add("ConcatFromSequence", name, axis=axis.value, new_axis=int(stack)), made.element.dtype, rank
        )

    def method(self, node: ast.Call, method: ast.Attribute) -> Value:
        base = self.value(method.value)
        args = [self.value(one) for one in node.args]
        if method.attr == "item" and isinstance(base, Tensor) and not args:
            return self.item(base)
        if method.attr == "tolist" and isinstance(base, Tensor) and not args:
            return self.listed(base)
        if method.attr in ("append", "extend", "pop") and is_list(base):
            return self.changed(method.attr, base, args)
        raise Disagree(f"the call {ast.unparse(node)}")

    def listed(self, base: Tensor) -> Value:
        if base.rank is None:
            raise Disagree("tolist() of a tensor whose number of dimensions the paths decide")
        if not base.rank:
            return self.python(base.name, base.dtype)
        return Listed(base.name, python_kind(base.dtype), base.dtype, base.rank)

    def changed(self, called: str, base: Value, args: list[Value]) -> Value:
        """A list in a new state, under all its names; what the call gives."""
        result: Value = Const(None)
        if isinstance(base, Items) and (called != "pop" or not args):
            if called == "pop" and not base.values:
                raise Disagree("pop() of an empty list")
            if called == "pop":
                new: Value = Items("list", base.values[:-1])
                result = base.values[-1]
            elif called == "append":
                new = Items("list", (*base.values, args[0]))
            elif isinstance(args[0], Items) and args[0].kind != "dict":
                new = Items("list", (*base.values, *args[0].values))
            else:
                raise Disagree(f"extend() by {described(args[0])}")
        elif isinstance(base, Sequence) and called == "append":
            added = as_sequence([base, Items("list", (args[0],))])
            assert isinstance(added, Sequence)
            name = self.graph.add("SequenceInsert", base.name, name_of(self.graph, args[0]))
            new = Sequence(name, added.element)
        elif isinstance(base, Sequence) and called == "pop" and not args:
            self.graph.risky = True
            result = self.element(base, Const(-1))
            new = Sequence(self.graph.add("SequenceErase", base.name), base.element)
        else:
            raise Disagree(f"{called}() of {described(base)}")
        for key, one in self.names.items():
            self.names[key] = replaced(one, base, new)
        return result


def renamed(element: Number | Tensor, name: str) -> Value:
    return Number(name, element.kind) if isinstance(element, Number) else Tensor(name, element.dtype, element.rank)


def python_kind(dtype: str) -> str:
    """What `item()` of a tensor gives."""
    if dtype in SMALL:
        return PYTHON.get(dtype, "int")
    if dtype in PYTHON:
        return PYTHON[dtype]
    raise Disagree(f"a value of {dtype}")
