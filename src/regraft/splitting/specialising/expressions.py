"""Evaluation of expressions: constants are computed, tensors become statements of regions, the host
keeps the rest."""

from __future__ import annotations

import ast
import builtins
import copy
import operator
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.codes import (
    assign,
    is_literal,
    is_named_result,
    is_single_integer,
    kind_of,
    method_call,
    name,
)
from regraft.splitting.program.normal import mark_uses
from regraft.splitting.program.possible import TRUTHS, outcomes, possible_constants
from regraft.splitting.program.records import is_record
from regraft.splitting.program.residual import HostStep, TensorStep
from regraft.splitting.program.values import SAME, Value, literal, open_dimensions
from regraft.splitting.specialising.either import Either
from regraft.splitting.specialising.interpreter import Frame
from regraft.splitting.specialising.objects import BOUND_TYPES

SHAPE_ATTRIBUTES = frozenset({"ndim", "dtype", "device"})
MODULE_CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
MASK_OPERATORS = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
MAX_LIST_LENGTH = 4096  # most elements of a list that are written down
VIEW_ATTRIBUTES = frozenset({"T", "mT", "real", "imag"})


class Choice(Exception):
    """Signals that a value of the host chooses a module: the statement is specialised once for each
    module."""

    def __init__(self, index: ast.expr, keys: list[Any]) -> None:
        super().__init__()
        self.index, self.keys = index, keys


def is_flat_list(code: ast.expr) -> bool:
    """Return whether `code` is a list display of constants and names only."""
    return isinstance(code, ast.List) and all(
        isinstance(element, (ast.Constant, ast.Name)) for element in code.elts
    )


class Expressions(Either):
    """Evaluates expressions on the example and builds the residual expressions."""

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression; raise Cases if it has two kinds and its node is not
        marked `either`."""
        self.pending.append([])
        try:
            value = self.evaluate_by_type(node)
        finally:
            self.pending.pop()
        if not getattr(node, "either", False):
            self.require_one_kind(node, value)
        if self.pending and self.pending[-1] is not None:
            self.pending[-1].append(value)
        return value

    def evaluate_by_type(self, node: ast.expr) -> Value:
        """Evaluate an expression by the `on_` method for the type of its node."""
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is not None:
            return method(node)  # type: ignore[no-any-return]
        if isinstance(
            node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Slice, ast.Tuple, ast.List, ast.Dict)
        ):
            return self.evaluate_operator(node)
        raise self.refuse(node, f"{type(node).__name__} is not supported")

    def on_Constant(self, node: ast.Constant) -> Value:
        return Value("static", node.value, node)

    def on_Name(self, node: ast.Name) -> Value:
        frame: Frame | None = self.frame
        while frame is not None:
            key = frame.prefix + node.id
            value = self.names.get(key)
            if value is not None and (frame is self.frame or node.id in frame.own_names):
                self.require_one_type(node, node.id, value)
                if value.partial and key not in self.guarded_names:
                    self.assert_assigned(node, key)
                    value = self.names[key]
                if value.kind == "host" and value.constant and literal(value.example) is not None:
                    # what an iteration assigns before it reads it
                    return self.static(value.example)
                return value
            if node.id in frame.own_names:  # a global of this name is another variable
                raise self.refuse(
                    node, f"{node.id} is not defined on this path, or its function has ended"
                )
            frame = frame.outer
        if node.id in self.frame.scope:
            return self.static(
                self.frame.scope[node.id], self.alias_global(node.id, self.frame.scope[node.id])
            )
        if hasattr(builtins, node.id):
            return Value("static", getattr(builtins, node.id), name(node.id))
        raise self.refuse(node, f"{node.id} is not defined on this path")

    def assert_assigned(self, node: ast.Name, key: str) -> None:
        """Let the host raise where a variable that only some of the paths here assign has
        no value."""
        subject = f"{node.id}, which only some of the paths here assign,"
        if not self.allows_partial:
            raise self.refuse(node, f"{subject} cannot be part of a single ONNX file")
        if self.frame.may_repeat and self.frame.prefix:
            raise self.refuse(node, f"{subject} is not supported in a function that a loop calls")
        for variable in (
            key,
            *(part.id for part in ast.walk(self.names[key].code) if isinstance(part, ast.Name)),
        ):
            value = self.names.get(variable)
            if value is not None and value.partial:
                self.names[variable] = replace(value, partial=False)
                if not value.fields:
                    self.steps.append(HostStep(ast.Expr(name(variable))))

    def on_Attribute(self, node: ast.Attribute) -> Value:
        return self.attribute_of(node, self.evaluate(node.value))

    def attribute_of(self, node: ast.Attribute, base: Value) -> Value:
        """Return the attribute of `base` that `node` names."""
        base = self.as_tensor(node, base, "AttributeError")
        if base.kind == "tensor":
            if node.attr == "data":  # a change of `data` in place is refused, as of any view
                return self.result(node, method_call(base.code, "detach"), [base])
            if node.attr == "shape":
                return self.shape_of(base)
            if node.attr in SHAPE_ATTRIBUTES:
                return self.static(getattr(base.example, node.attr))
            if node.attr in VIEW_ATTRIBUTES or not isinstance(base.example, torch.Tensor):
                return self.result(node, ast.Attribute(base.code, node.attr, ast.Load()), [base])
            raise self.refuse(node, f"the attribute {node.attr} of a tensor is not supported")
        if base.kind == "record":
            return self.record_field(node, base, node.attr)
        if (
            base.fields
            and is_named_result(base.example)
            and node.attr in type(base.example).__match_args__
        ):
            return self.require_one_type(
                node,
                node.attr,
                self.element(base, type(base.example).__match_args__.index(node.attr)),
            )
        if base.kind == "host":
            raise self.refuse(
                node,
                f"the attribute {node.attr} of a value known only at run time is not supported",
            )
        if self.is_stand_in(base.example):
            attribute = self.attribute(node, base.example, node.attr)
            if attribute is None:
                raise self.refuse(
                    node, f"this {type(base.example).__name__} has no attribute {node.attr} here"
                )
            return attribute
        if isinstance(base.example, super) and self.holds_stand_in(base.example):
            inherited = getattr(base.example, node.attr, None)
            if not isinstance(inherited, BOUND_TYPES):
                raise self.refuse(node, f"super().{node.attr} is no method")
            return self.static(inherited)
        if self.holds_local_function(base.example):
            raise self.refuse(
                node, "an attribute of a function that forward makes is not supported"
            )
        if node.attr == "data" and isinstance(base.example, torch.Tensor):
            return base  # changes of `data` in place cannot be seen, changes of the tensor can
        if self.is_scratch(base.example, node.attr):
            return self.scratch_value(node, base.example, node.attr)
        try:
            value = getattr(base.example, node.attr)
        except AttributeError as problem:
            raise self.refuse(node, str(problem)) from problem
        return self.static(value, ast.Attribute(base.code, node.attr, ast.Load()))

    def shape_of(self, base: Value) -> Value:
        """Return a tensor's shape as a tuple of constants and, for sizes that differ between the
        worlds, look-ups."""
        if base.twin is SAME or base.example.shape == base.second_example.shape:
            return self.static(tuple(base.example.shape))
        shape_code = ast.Attribute(self.bind_result(base), "shape", ast.Load())
        sizes = enumerate(zip(base.example.shape, base.second_example.shape, strict=True))
        elements: list[ast.expr] = [
            (
                ast.Constant(size)
                if size == second_size
                else ast.Subscript(shape_code, ast.Constant(dim), ast.Load())
            )
            for dim, (size, second_size) in sizes
        ]
        code = ast.Tuple(elements, ast.Load())
        return Value("host", tuple(base.example.shape), code, tuple(base.second_example.shape))

    def element(self, value: Value, place: Any) -> Value:
        """Return an element of a tuple that is known or written in place, or a field of a
        record."""
        if value.kind == "static":
            return self.static(
                value.example[place] if isinstance(place, int) else getattr(value.example, place)
            )
        code = [*value.fields.values()][place] if isinstance(place, int) else value.fields[place]
        if isinstance(code, ast.Constant):
            return self.static(code.value)
        if isinstance(code, ast.UnaryOp) and isinstance(
            code.operand, ast.Constant
        ):  # a number below 0
            return self.static(ast.literal_eval(code))
        if isinstance(code, ast.Name) and code.id in self.names:
            return self.names[code.id]
        if isinstance(code, ast.Name) and code.id in self.globals:
            return self.static(self.globals[code.id])
        example, twin = (
            container[place] if isinstance(place, int) else getattr(container, place)
            for container in (value.example, value.second_example)
        )
        if isinstance(example, torch.nn.Module):
            return self.static(example, code)
        record = isinstance(code, ast.Call) and is_record(type(example))
        return Value(
            "record" if record else kind_of(example),
            example,
            code,
            SAME if value.twin is SAME else twin,
        )

    def elements(self, node: ast.AST, values: Value) -> list[Value] | None:
        """Return the elements that a loop over `values` visits; None if their number is not
        known."""
        if self.is_dict_stand_in(values.example):
            return [self.static(key) for key in self.item_keys(node, values.example)]
        if values.kind == "static":
            return [self.static(element) for element in values.example]
        if isinstance(values.code, ast.List):
            values = replace(values, code=ast.Tuple(values.code.elts, ast.Load()))
        if values.fields and (values.kind == "host" or isinstance(values.example, tuple)):
            return [self.element(values, place) for place in values.fields]
        if (
            values.kind == "tensor"
            and isinstance(values.example, torch.Tensor)
            and 0 not in open_dimensions(values)
        ):
            # the source may assign to the tensor's name before the loop ends
            rows = self.fresh_name()
            self.steps.append(TensorStep(assign(rows, values.code), self.location))
            self.bind_name(rows, values)
            places = map(ast.Constant, range(len(values.example)))
            return [
                self.run(node, ast.Subscript(name(rows), place, ast.Load())) for place in places
            ]
        return None

    def make_tuple(self, values: list[Value]) -> Value:
        """Return a tuple of the values."""
        examples = tuple(value.example for value in values)
        if all(value.kind == "static" for value in values):
            return self.static(examples)
        code = ast.Tuple([value.code for value in values], ast.Load())
        return Value("host", examples, code, tuple(value.second_example for value in values))

    def evaluate_operator(self, node: ast.expr) -> Value:
        """Evaluate an operator, slice or display; its kind is the strongest kind of its
        operands."""
        residual = copy.copy(node)
        is_sequence = isinstance(node, (ast.List, ast.Tuple))
        if isinstance(node, ast.Dict):
            return self.make_dictionary(node)
        if is_sequence and any(isinstance(element, ast.Starred) for element in node.elts):  # type: ignore[attr-defined]
            return self.evaluate_starred(node)  # type: ignore[arg-type]
        operand_nodes = [
            child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        ]
        operands = [self.evaluate(operand_node) for operand_node in operand_nodes]
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) and any(
            operand.kind == "either" for operand in operands
        ):
            none_check = self.none_test(node, operands)
            if none_check is not None:
                return none_check
            operands = self.as_tensors(node, operands)
        if any(operand.kind == "record" for operand in operands) and not isinstance(
            node, ast.Tuple
        ):
            return self.operate_on_records(node, operands)
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.Not)
            and operands[0].kind == "tensor"
        ):
            operands = [self.truth(operands[0])]
        if isinstance(node, ast.Slice):
            operands = [
                self.slice_bound(operand_node, operand)
                for operand_node, operand in zip(operand_nodes, operands, strict=True)
            ]
        if isinstance(node, ast.Slice) or (
            not is_sequence and any(operand.kind == "tensor" for operand in operands)
        ):
            operands = [self.bind_number(operand) for operand in operands]
        if isinstance(node, ast.List):
            operands = [
                self.display_new_dictionary(operand_node, operand)
                for operand_node, operand in zip(operand_nodes, operands, strict=True)
            ]
        operand_codes = [
            self.bind_result(operand) if is_sequence and operand.kind == "tensor" else operand.code
            for operand in operands
        ]
        codes = {
            id(operand_node): code
            for operand_node, code in zip(operand_nodes, operand_codes, strict=True)
        }
        for field, child in ast.iter_fields(node):
            if isinstance(child, ast.expr):
                setattr(residual, field, codes[id(child)])
            elif isinstance(child, list):
                setattr(residual, field, [codes.get(id(child), child) for child in child])
        if isinstance(node, ast.Tuple) and any(
            self.holds_stand_in(operand.example) for operand in operands
        ):
            return self.make_tuple(operands)
        if is_sequence and (
            not isinstance(node, ast.Tuple) or any(operand.kind != "static" for operand in operands)
        ):
            if any(
                operand.kind == "static" and not is_literal(operand) for operand in operands
            ) and not isinstance(node, ast.Tuple):
                raise self.refuse(
                    node,
                    "a container of modules or other objects, made in forward, is not supported",
                )
            container_type = tuple if isinstance(node, ast.Tuple) else list
            worlds_agree = isinstance(node, ast.Tuple) and all(
                operand.twin is SAME for operand in operands
            )
            twin = (
                SAME
                if worlds_agree
                else container_type(operand.second_example for operand in operands)
            )
            return Value(
                "host", container_type(operand.example for operand in operands), residual, twin
            )
        if isinstance(node, ast.Compare) and any(
            isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops
        ):
            if all(operand.kind == "static" for operand in operands):
                return self.static(
                    (operands[0].example is operands[1].example) == isinstance(node.ops[0], ast.Is)
                )
            numbers = [
                operand
                for operand in operands
                if operand.kind == "host" and isinstance(operand.example, (int, float))
            ]
            if numbers and not any(operand.example is None for operand in operands):
                return replace(self.run(node, residual), kind="host")  # `flag is True`
            if not any(
                value.kind == "static"
                and not isinstance(value.example, torch.Tensor)
                and (value.example is None or literal(value.example) is None)
                for value in operands
            ):
                raise self.refuse(
                    node,
                    "whether two values known only at run time are one object is not supported",
                )
            return self.static(self.run(node, residual).example)
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.Not)
            and self.is_stand_in(operands[0].example)
        ):
            return self.static(not self.truth_of_stand_in(node, operands[0].example))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            key, container = operands
            if self.is_dict_stand_in(container.example) and key.kind == "static":
                is_contained = ("item", key.example) in self.places(node, container.example)
                return self.static(is_contained == isinstance(node.ops[0], ast.In))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            tuples = [self.tuple_elements(operand) for operand in operands]
            if (
                tuples[0] is not None
                and tuples[1] is not None
                and any(operand.kind == "host" for operand in operands)
            ):
                residual = ast.Tuple([*tuples[0], *tuples[1]], ast.Load())
                return replace(self.run(node, residual), kind="host")
            lists = [operand.code for operand in operands if isinstance(operand.code, ast.List)]
            if len(lists) == 2:
                residual = ast.List([*lists[0].elts, *lists[1].elts], ast.Load())
            if all(isinstance(operand.example, list) for operand in operands) and any(
                operand.kind == "host" for operand in operands
            ):
                return replace(self.run(node, residual), kind="host")
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mult)
            and is_flat_list(operands[0].code)
        ):
            repeats = operands[1].example
            if operands[1].kind == "static" and type(repeats) is int and repeats <= MAX_LIST_LENGTH:
                residual = ast.List(operands[0].code.elts * repeats, ast.Load())  # type: ignore[attr-defined]
                return replace(self.run(node, residual), kind="host")
        if isinstance(node, ast.Slice):
            kind = "host" if any(operand.kind == "host" for operand in operands) else "static"
            return Value(kind, None, residual)
        if isinstance(node, ast.BinOp) and type(node.op) in MASK_OPERATORS:
            table = self.combine_mask(node, operands)
            if table is not None:
                return table
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Pow)
            and operands[1].kind == "host"
        ):
            is_integral = all(isinstance(operand.example, int) for operand in operands)
            if is_integral and min(possible_constants(operands[1]) or (-1,)) < 0:
                raise self.refuse(
                    node,
                    "a power of whole numbers is none if the exponent is negative: use a float",
                )
        among = outcomes(node, operand_nodes, operands)
        if among is None and (
            isinstance(node, ast.Compare) or isinstance(getattr(node, "op", None), ast.Not)
        ):
            among = TRUTHS  # for what the host computes; a tensor has no `among`
        if among is not None and len(among) == 1:
            return self.static(among[0])
        return replace(self.result(node, residual, operands), among=among)

    def evaluate_starred(self, node: ast.List | ast.Tuple) -> Value:
        """Evaluate a display with `*` as a sum: `[*rows, x]` is `[*rows] + [x]`.

        An operand of known length is taken element by element.
        """
        display_type = type(node)
        parts: list[ast.expr] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                parts.append(
                    ast.Call(
                        name("list" if display_type is ast.List else "tuple"), [element.value], []
                    )
                )
            elif parts and isinstance(parts[-1], display_type):
                parts[-1].elts.append(element)
            else:
                parts.append(display_type([element], ast.Load()))
        total = parts[0]
        for part in parts[1:]:
            total = ast.BinOp(total, ast.Add(), part)
        mark_uses(total)
        return self.evaluate(ast.fix_missing_locations(ast.copy_location(total, node)))

    def combine_mask(self, node: ast.BinOp, operands: list[Value]) -> Value | None:
        """Combine a mask with one constant, such as `mask + False`, by its truth table; None for
        other operands.

        The exporter to ONNX fails on the constant.
        """
        masks = [
            operand
            for operand in operands
            if operand.kind == "tensor" and getattr(operand.example, "dtype", 0) == torch.bool
        ]
        if len(masks) != 1 or not any(
            operand.kind == "static" and type(operand.example) is bool for operand in operands
        ):
            return None
        truths = torch.tensor([False, True])
        table = MASK_OPERATORS[type(node.op)](
            *(truths if operand is masks[0] else operand.example for operand in operands)
        )
        if table.dtype != torch.bool:
            return None
        mask = self.bind_result(masks[0])
        inverted = ast.UnaryOp(ast.Invert(), mask)
        codes: dict[tuple[bool, ...], ast.expr] = {
            (False, True): method_call(mask, "clone"),
            (True, False): inverted,
            (True, True): ast.BinOp(mask, ast.BitOr(), inverted),
            (False, False): ast.BinOp(mask, ast.BitAnd(), inverted),
        }
        return self.run(node, codes[tuple(table.tolist())])

    def display_new_dictionary(self, node: ast.expr, value: Value) -> Value:
        """Write a dictionary that stands in a list display as the host's display, because nothing
        else holds it."""
        is_new = isinstance(node, (ast.Dict, ast.DictComp)) and self.is_dict_stand_in(value.example)
        return self.as_host_display(node, value) if is_new else value

    def make_dictionary(self, node: ast.Dict) -> Value:
        """Return a dictionary: an object that forward makes if all keys are known, else one that
        the host makes."""
        keys = [
            self.static(None) if key_node is None else self.evaluate(key_node)
            for key_node in node.keys
        ]
        values = [self.evaluate(value_node) for value_node in node.values]
        if any(key.kind != "static" for key in keys):
            codes = [
                self.bind_result(value) if value.kind == "tensor" else value.code
                for value in values
            ]
            return replace(self.run(node, ast.Dict([key.code for key in keys], codes)), kind="host")
        dictionary = self.make_object(dict)
        for key_node, key, value in zip(node.keys, keys, values, strict=True):
            items = {key.example: value} if key_node is not None else self.items_of(node, value)
            for item_key, item_value in items.items():
                self.set_place(node, dictionary.example, ("item", item_key), item_value)
        return dictionary

    def slice_bound(self, node: ast.expr, value: Value) -> Value:
        """Return a bound of a slice: the host reads a tensor of one integer, which is known if no
        input decides it."""
        if value.kind != "tensor" and not isinstance(value.example, torch.Tensor):
            return value
        if not is_single_integer(value.example):
            raise self.refuse(node, "a bound of a slice is a tensor, but not a single whole number")
        if value.kind == "static" or self.is_constant_tensor(value):
            return self.static(value.example.item())
        return self.bind_in_host(self.read_number(value))

    def on_JoinedStr(self, node: ast.JoinedStr) -> Value:
        parts: list[ast.expr] = []
        is_static = True
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.evaluate(part.value)
                if value.kind == "tensor":
                    value = self.read_number(value)
                is_static = is_static and value.kind == "static"
                parts.append(ast.FormattedValue(value.code, part.conversion, part.format_spec))
            else:
                parts.append(part)
        value = self.run(node, ast.JoinedStr(parts))
        return self.static(value.example) if is_static else value

    def tuple_elements(self, value: Value) -> list[ast.expr] | None:
        """Return the expressions of a tuple's elements; None if they are not known one by one."""
        if not isinstance(value.example, tuple):
            return None
        if isinstance(value.code, ast.Tuple):
            return list(value.code.elts)
        items = (
            [literal(element) for element in value.example] if value.kind == "static" else [None]
        )
        return (
            None
            if any(item is None for item in items)
            else [item for item in items if item is not None]
        )

    def result(self, node: ast.expr, code: ast.expr, operands: list[Value]) -> Value:
        """Run an operation and return its value: a tensor if an operand is one, and static if all
        operands are."""
        value = self.run(node, code)
        kinds = {operand.kind for operand in operands}
        if value.kind == "tensor":
            return value
        if "tensor" in kinds and not (value.example is None and value.second_example is None):
            raise self.refuse(
                node, f"gives a {type(value.example).__name__} from tensors, which is not supported"
            )
        return value if kinds & {"host", "record"} else self.static(value.example, code)
