"""Expressions: what is known is computed, a tensor becomes a region's statement, the rest stays in the host."""

from __future__ import annotations

import ast
import builtins
import copy
import operator
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.codes import (
    assign,
    held_as,
    is_named_result,
    is_single,
    method_call,
    name,
    plain,
)
from regraft.splitting.either import Either
from regraft.splitting.interpreter import Frame
from regraft.splitting.normal import mark
from regraft.splitting.objects import BOUND
from regraft.splitting.possible import TRUTHS, outcomes, possible
from regraft.splitting.records import is_record
from regraft.splitting.residual import HostStep, TensorStep
from regraft.splitting.values import SAME, Value, literal, open_sizes

SHAPE_ATTRIBUTES = frozenset({"ndim", "dtype", "device"})
MODULES = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
OPERATORS = {ast.Add: operator.add, ast.Mult: operator.mul, ast.BitOr: operator.or_, ast.BitAnd: operator.and_}
LONGEST = 4096  # elements of a list that are written down
VIEW_ATTRIBUTES = frozenset({"T", "mT", "real", "imag"})


class Choice(Exception):
    """A module is chosen by a value of the host: the statement is specialised once for each module."""

    def __init__(self, index: ast.expr, keys: list[Any]) -> None:
        super().__init__()
        self.index, self.keys = index, keys


def is_flat_list(code: ast.expr) -> bool:
    """Whether it is a list written down that holds no other."""
    return isinstance(code, ast.List) and all(isinstance(one, (ast.Constant, ast.Name)) for one in code.elts)


class Expressions(Either):
    """Evaluates expressions on the example and writes down what is left of them."""

    def evaluate(self, node: ast.expr) -> Value:
        self.pending.append([])
        try:
            value = self.evaluated(node)
        finally:
            self.pending.pop()
        if not getattr(node, "either", False):
            self.sure(node, value)
        if self.pending and self.pending[-1] is not None:
            self.pending[-1].append(value)
        return value

    def evaluated(self, node: ast.expr) -> Value:
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is not None:
            return method(node)  # type: ignore[no-any-return]
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Slice, ast.Tuple, ast.List, ast.Dict)):
            return self.composed(node)
        raise self.refuse(node, f"{type(node).__name__} is not supported")

    def on_Constant(self, node: ast.Constant) -> Value:
        return Value("static", node.value, node)

    def on_Name(self, node: ast.Name) -> Value:
        frame: Frame | None = self.frame
        while frame is not None:
            key = frame.prefix + node.id
            found = self.names.get(key)
            if found is not None and (frame is self.frame or node.id in frame.own):
                self.whole(node, node.id, found)
                if found.partial and key not in self.guarded:
                    self.assert_assigned(node, key)
                    found = self.names[key]
                if found.kind == "host" and found.constant and literal(found.example) is not None:
                    return self.static(found.example)  # what an iteration assigns before it reads it
                return found
            if node.id in frame.own:  # a global of the same name is another
                raise self.refuse(node, f"{node.id} is not defined on this path, or its function has ended")
            frame = frame.outer
        if node.id in self.frame.scope:
            return self.static(self.frame.scope[node.id], self.aliased(node.id, self.frame.scope[node.id]))
        if hasattr(builtins, node.id):
            return Value("static", getattr(builtins, node.id), name(node.id))
        raise self.refuse(node, f"{node.id} is not defined on this path")

    def assert_assigned(self, node: ast.Name, key: str) -> None:
        """A variable that only some of the paths here assign is read: where it has no value, the host raises."""
        what = f"{node.id}, which only some of the paths here assign,"
        if not self.partial:
            raise self.refuse(node, f"{what} cannot be part of a single ONNX file")
        if self.frame.again and self.frame.prefix:
            raise self.refuse(node, f"{what} is not supported in a function that a loop calls")
        for one in (key, *(each.id for each in ast.walk(self.names[key].code) if isinstance(each, ast.Name))):
            value = self.names.get(one)
            if value is not None and value.partial:
                self.names[one] = replace(value, partial=False)
                if not value.fields:
                    self.steps.append(HostStep(ast.Expr(name(one))))

    def on_Attribute(self, node: ast.Attribute) -> Value:
        return self.attribute_of(node, self.evaluate(node.value))

    def attribute_of(self, node: ast.Attribute, base: Value) -> Value:
        base = self.as_tensor(node, base, "AttributeError")
        if base.kind == "tensor":
            if node.attr == "data":  # a change of it in place is refused, as that of any view
                return self.result(node, method_call(base.code, "detach"), [base])
            if node.attr == "shape":
                return self.shape(base)
            if node.attr in SHAPE_ATTRIBUTES:
                return self.static(getattr(base.example, node.attr))
            if node.attr in VIEW_ATTRIBUTES or not isinstance(base.example, torch.Tensor):
                return self.result(node, ast.Attribute(base.code, node.attr, ast.Load()), [base])
            raise self.refuse(node, f"the attribute {node.attr} of a tensor is not supported")
        if base.kind == "record":
            return self.field(node, base, node.attr)
        if base.fields and is_named_result(base.example) and node.attr in type(base.example).__match_args__:
            return self.whole(node, node.attr, self.element(base, type(base.example).__match_args__.index(node.attr)))
        if base.kind == "host":
            raise self.refuse(node, f"the attribute {node.attr} of a value known only at run time is not supported")
        if self.is_made(base.example):
            found = self.attribute(node, base.example, node.attr)
            if found is None:
                raise self.refuse(node, f"this {type(base.example).__name__} has no attribute {node.attr} here")
            return found
        if isinstance(base.example, super) and self.holds_made(base.example):
            inherited = getattr(base.example, node.attr, None)
            if not isinstance(inherited, BOUND):
                raise self.refuse(node, f"super().{node.attr} is no method")
            return self.static(inherited)
        if self.holds_local(base.example):
            raise self.refuse(node, "an attribute of a function that forward makes is not supported")
        if node.attr == "data" and isinstance(base.example, torch.Tensor):
            return base  # changes of `data` in place cannot be seen, those of the tensor can
        if self.is_scratch(base.example, node.attr):
            return self.scratch_value(node, base.example, node.attr)
        try:
            value = getattr(base.example, node.attr)
        except AttributeError as problem:
            raise self.refuse(node, str(problem)) from problem
        return self.static(value, ast.Attribute(base.code, node.attr, ast.Load()))

    def shape(self, base: Value) -> Value:
        """The shape of a tensor, element by element: constants, and sizes that the region or the host looks up."""
        if base.twin is SAME or base.example.shape == base.other.shape:
            return self.static(tuple(base.example.shape))
        of = ast.Attribute(self.held(base), "shape", ast.Load())
        sizes = enumerate(zip(base.example.shape, base.other.shape, strict=True))
        elements: list[ast.expr] = [
            ast.Constant(one) if one == two else ast.Subscript(of, ast.Constant(dim), ast.Load())
            for dim, (one, two) in sizes
        ]
        code = ast.Tuple(elements, ast.Load())
        return Value("host", tuple(base.example.shape), code, tuple(base.other.shape))

    def element(self, value: Value, place: Any) -> Value:
        """One element of a tuple that is known or written in place, or one field of a record."""
        if value.kind == "static":
            return self.static(value.example[place] if isinstance(place, int) else getattr(value.example, place))
        code = [*value.fields.values()][place] if isinstance(place, int) else value.fields[place]
        if isinstance(code, ast.Constant):
            return self.static(code.value)
        if isinstance(code, ast.UnaryOp) and isinstance(code.operand, ast.Constant):  # a number below 0
            return self.static(ast.literal_eval(code))
        if isinstance(code, ast.Name) and code.id in self.names:
            return self.names[code.id]
        if isinstance(code, ast.Name) and code.id in self.globals:
            return self.static(self.globals[code.id])
        example, twin = (
            one[place] if isinstance(place, int) else getattr(one, place) for one in (value.example, value.other)
        )
        if isinstance(example, torch.nn.Module):
            return self.static(example, code)
        record = isinstance(code, ast.Call) and is_record(type(example))
        return Value("record" if record else held_as(example), example, code, SAME if value.twin is SAME else twin)

    def elements(self, node: ast.AST, values: Value) -> list[Value] | None:
        """What a loop runs over, where its length is known."""
        if self.is_made_dict(values.example):
            return [self.static(one) for one in self.keys(node, values.example)]
        if values.kind == "static":
            return [self.static(one) for one in values.example]
        if isinstance(values.code, ast.List):
            values = replace(values, code=ast.Tuple(values.code.elts, ast.Load()))
        if values.fields and (values.kind == "host" or isinstance(values.example, tuple)):
            return [self.element(values, place) for place in values.fields]
        if values.kind == "tensor" and isinstance(values.example, torch.Tensor) and 0 not in open_sizes(values):
            rows = self.fresh()  # the source may assign to the tensor's name before the loop ends
            self.steps.append(TensorStep(assign(rows, values.code), self.place))
            self.hold(rows, values)
            places = map(ast.Constant, range(len(values.example)))
            return [self.run(node, ast.Subscript(name(rows), place, ast.Load())) for place in places]
        return None

    def together(self, values: list[Value]) -> Value:
        """A tuple of values, as they stand."""
        examples = tuple(one.example for one in values)
        if all(one.kind == "static" for one in values):
            return self.static(examples)
        code = ast.Tuple([one.code for one in values], ast.Load())
        return Value("host", examples, code, tuple(one.other for one in values))

    def composed(self, node: ast.expr) -> Value:
        """An operator or a display: its kind is the strongest kind of its operands."""
        made = copy.copy(node)
        display = isinstance(node, (ast.List, ast.Tuple))
        if isinstance(node, ast.Dict):
            return self.dictionary(node)
        if display and any(isinstance(one, ast.Starred) for one in node.elts):  # type: ignore[attr-defined]
            return self.with_starred(node)  # type: ignore[arg-type]
        parts = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        operands = [self.evaluate(part) for part in parts]
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) and any(one.kind == "either" for one in operands):
            asked = self.asked_for_none(node, operands)
            if asked is not None:
                return asked
            operands = self.as_tensors(node, operands)
        if any(one.kind == "record" for one in operands) and not isinstance(node, ast.Tuple):
            return self.of_records(node, operands)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and operands[0].kind == "tensor":
            operands = [self.truth(operands[0])]
        if isinstance(node, ast.Slice):
            operands = [self.bound(part, one) for part, one in zip(parts, operands, strict=True)]
        if isinstance(node, ast.Slice) or (not display and any(one.kind == "tensor" for one in operands)):
            operands = [self.number_name(one) for one in operands]
        if isinstance(node, ast.List):
            operands = [self.written(part, one) for part, one in zip(parts, operands, strict=True)]
        held = [self.held(one) if display and one.kind == "tensor" else one.code for one in operands]
        codes = {id(part): code for part, code in zip(parts, held, strict=True)}
        for field, part in ast.iter_fields(node):
            if isinstance(part, ast.expr):
                setattr(made, field, codes[id(part)])
            elif isinstance(part, list):
                setattr(made, field, [codes.get(id(one), one) for one in part])
        if isinstance(node, ast.Tuple) and any(self.holds_made(one.example) for one in operands):
            return self.together(operands)
        if display and (not isinstance(node, ast.Tuple) or any(one.kind != "static" for one in operands)):
            if any(one.kind == "static" and not plain(one) for one in operands) and not isinstance(node, ast.Tuple):
                raise self.refuse(node, "a container of modules or other objects, made in forward, is not supported")
            make = tuple if isinstance(node, ast.Tuple) else list
            same = isinstance(node, ast.Tuple) and all(one.twin is SAME for one in operands)
            twin = SAME if same else make(one.other for one in operands)
            return Value("host", make(one.example for one in operands), made, twin)
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            if all(one.kind == "static" for one in operands):
                return self.static((operands[0].example is operands[1].example) == isinstance(node.ops[0], ast.Is))
            numbers = [one for one in operands if one.kind == "host" and isinstance(one.example, (int, float))]
            if numbers and not any(one.example is None for one in operands):
                return replace(self.run(node, made), kind="host")  # `flag is True`
            if not any(one.kind == "static" and not isinstance(one.example, torch.Tensor) and
                       (one.example is None or literal(one.example) is None) for one in operands):  # fmt: skip
                raise self.refuse(node, "whether two values known only at run time are one object is not supported")
            return self.static(self.run(node, made).example)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and self.is_made(operands[0].example):
            return self.static(not self.made_truth(node, operands[0].example))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            key, of = operands
            if self.is_made_dict(of.example) and key.kind == "static":
                found = ("item", key.example) in self.places(node, of.example)
                return self.static(found == isinstance(node.ops[0], ast.In))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            tuples = [self.tuple_of(one) for one in operands]
            if tuples[0] is not None and tuples[1] is not None and any(one.kind == "host" for one in operands):
                made = ast.Tuple([*tuples[0], *tuples[1]], ast.Load())
                return replace(self.run(node, made), kind="host")
            lists = [one.code for one in operands if isinstance(one.code, ast.List)]
            if len(lists) == 2:
                made = ast.List([*lists[0].elts, *lists[1].elts], ast.Load())
            if all(isinstance(one.example, list) for one in operands) and any(one.kind == "host" for one in operands):
                return replace(self.run(node, made), kind="host")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and is_flat_list(operands[0].code):
            times = operands[1].example
            if operands[1].kind == "static" and type(times) is int and times <= LONGEST:
                made = ast.List(operands[0].code.elts * times, ast.Load())  # type: ignore[attr-defined]
                return replace(self.run(node, made), kind="host")
        if isinstance(node, ast.Slice):
            kind = "host" if any(one.kind == "host" for one in operands) else "static"
            return Value(kind, None, made)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            table = self.of_masks(node, operands)
            if table is not None:
                return table
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and operands[1].kind == "host":
            whole = all(isinstance(one.example, int) for one in operands)
            if whole and min(possible(operands[1]) or (-1,)) < 0:
                raise self.refuse(node, "a power of whole numbers is none if the exponent is negative: use a float")
        among = outcomes(node, parts, operands)
        if among is None and (isinstance(node, ast.Compare) or isinstance(getattr(node, "op", None), ast.Not)):
            among = TRUTHS  # what the host computes; a tensor has none
        if among is not None and len(among) == 1:
            return self.static(among[0])
        return replace(self.result(node, made, operands), among=among)

    def with_starred(self, node: ast.List | ast.Tuple) -> Value:
        """`[*rows, x]`, which is `[*rows] + [x]`; of what has a known length element by element."""
        make = type(node)
        parts: list[ast.expr] = []
        for one in node.elts:
            if isinstance(one, ast.Starred):
                parts.append(ast.Call(name("list" if make is ast.List else "tuple"), [one.value], []))
            elif parts and isinstance(parts[-1], make):
                parts[-1].elts.append(one)
            else:
                parts.append(make([one], ast.Load()))
        whole = parts[0]
        for part in parts[1:]:
            whole = ast.BinOp(whole, ast.Add(), part)
        mark(whole)
        return self.evaluate(ast.fix_missing_locations(ast.copy_location(whole, node)))

    def of_masks(self, node: ast.BinOp, operands: list[Value]) -> Value | None:
        """A tensor of truth values combined with one constant, such as `mask + False`, by its truth table.

        The exporter to ONNX fails on the constant.
        """
        masks = [one for one in operands if one.kind == "tensor" and getattr(one.example, "dtype", 0) == torch.bool]
        if len(masks) != 1 or not any(one.kind == "static" and type(one.example) is bool for one in operands):
            return None
        both = torch.tensor([False, True])
        table = OPERATORS[type(node.op)](*(both if one is masks[0] else one.example for one in operands))
        if table.dtype != torch.bool:
            return None
        mask = self.held(masks[0])
        other = ast.UnaryOp(ast.Invert(), mask)
        codes: dict[tuple[bool, ...], ast.expr] = {
            (False, True): method_call(mask, "clone"),
            (True, False): other,
            (True, True): ast.BinOp(mask, ast.BitOr(), other),
            (False, False): ast.BinOp(mask, ast.BitAnd(), other),
        }
        return self.run(node, codes[tuple(table.tolist())])

    def written(self, node: ast.expr, value: Value) -> Value:
        """A dictionary that goes into a list of the host where it is written down: nothing else holds it."""
        new = isinstance(node, (ast.Dict, ast.DictComp)) and self.is_made_dict(value.example)
        return self.display(node, value) if new else value

    def dictionary(self, node: ast.Dict) -> Value:
        """A dictionary with known keys is an object that forward makes; with others the host makes it."""
        keys = [self.static(None) if one is None else self.evaluate(one) for one in node.keys]
        values = [self.evaluate(one) for one in node.values]
        if any(one.kind != "static" for one in keys):
            codes = [self.held(one) if one.kind == "tensor" else one.code for one in values]
            return replace(self.run(node, ast.Dict([one.code for one in keys], codes)), kind="host")
        made = self.make(dict)
        for of, key, value in zip(node.keys, keys, values, strict=True):
            items = {key.example: value} if of is not None else self.items_of(node, value)
            for label, one in items.items():
                self.put_in(node, made.example, ("item", label), one)
        return made

    def bound(self, node: ast.expr, value: Value) -> Value:
        """A bound of a slice: a tensor of one whole number is read by the host, or known where no input decides it."""
        if value.kind != "tensor" and not isinstance(value.example, torch.Tensor):
            return value
        if not is_single(value.example):
            raise self.refuse(node, "a bound of a slice is a tensor, but not a single whole number")
        if value.kind == "static" or self.is_known(value):
            return self.static(value.example.item())
        return self.held_by_host(self.number(value))

    def on_JoinedStr(self, node: ast.JoinedStr) -> Value:
        parts: list[ast.expr] = []
        known = True
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.evaluate(part.value)
                if value.kind == "tensor":
                    value = self.number(value)
                known = known and value.kind == "static"
                parts.append(ast.FormattedValue(value.code, part.conversion, part.format_spec))
            else:
                parts.append(part)
        value = self.run(node, ast.JoinedStr(parts))
        return self.static(value.example) if known else value

    def tuple_of(self, value: Value) -> list[ast.expr] | None:
        """The elements of a tuple as expressions, where they are known one by one."""
        if not isinstance(value.example, tuple):
            return None
        if isinstance(value.code, ast.Tuple):
            return list(value.code.elts)
        items = [literal(one) for one in value.example] if value.kind == "static" else [None]
        return None if any(one is None for one in items) else [one for one in items if one is not None]

    def result(self, node: ast.expr, code: ast.expr, operands: list[Value]) -> Value:
        """The value of an operation on `operands`: of tensors a tensor, known if all of them are."""
        value = self.run(node, code)
        kinds = {one.kind for one in operands}
        if value.kind == "tensor":
            return value
        if "tensor" in kinds and not (value.example is None and value.other is None):
            raise self.refuse(node, f"gives a {type(value.example).__name__} from tensors, which is not supported")
        return value if kinds & {"host", "record"} else self.static(value.example, code)
