"""Assignments: names, tuples, and changes in place, which become new values where nothing else holds the old one."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import torch

from regraft.dynamic.calls import Calls
from regraft.dynamic.codes import assign, name, tensors_in
from regraft.dynamic.residual import HostStep, TensorStep
from regraft.dynamic.values import SAME, Value, literal

ARITHMETIC = (
    ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Subscript, ast.Attribute, ast.Name, ast.Constant, ast.Load,
)  # fmt: skip


def changed(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """What `tensor[index] = value` makes of a tensor."""
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


class Assignments(Calls):
    """Stores values in the targets of the source."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.sizes: set[str] = set()  # names of sizes that regions compute

    def store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value)
        elif isinstance(target, ast.Subscript):
            self.put(target, value)
        elif isinstance(target, ast.Name):
            self.store_name(self.frame.prefix + target.id, value)
        else:
            raise self.refuse(target, "assigning to an attribute is not supported in a network that is split")

    def store_name(self, key: str, value: Value) -> None:
        if value.kind == "static" and (key not in self.varying or literal(value.example) is None):
            self.names[key] = value
            return
        if value.kind == "tensor" and type(value.example) is tuple:
            codes = [one.code for one in self.taken_apart(value)]
            value = Value("host", value.example, ast.Tuple(codes, ast.Load()), value.twin)
        if value.fields:
            self.store_fields(key, value)
            return
        size = self.is_size(value)
        self.assign(key, value.code, value.kind == "tensor" or size)
        (self.sizes.add if size else self.sizes.discard)(key)
        held = self.hold(key, replace(value, kind="host") if value.kind == "static" else value)
        if value.kind == "static":
            self.names[key] = replace(held, constant=True)

    def assign(self, key: str, code: ast.expr, by_region: bool) -> None:
        self.steps.append(TensorStep(assign(key, code), self.place) if by_region else HostStep(assign(key, code)))

    def store_fields(self, key: str, value: Value) -> None:
        """A tuple or a record is kept as its elements, under names of their own."""
        elements = [self.copied(self.element(value, place)) for place in value.fields]
        for place, one in zip(value.fields, elements, strict=True):
            self.store_name(part_name(key, place), one)
        self.names[key] = self.rebuilt(key, value)

    def rebuilt(self, key: str, value: Value) -> Value:
        """A tuple or a record from what the names of its elements hold now."""
        return value.with_fields([self.names[part_name(key, place)].code for place in value.fields])

    def is_size(self, value: Value) -> bool:
        """Whether a number is computed from shapes alone, which a region can do."""
        if value.kind != "host" or type(value.example) is not int or value.twin is SAME:
            return False
        nodes = list(ast.walk(value.code))
        shaped = {id(one.value) for one in nodes if isinstance(one, ast.Attribute) and one.attr == "shape"}
        return all(
            isinstance(one, ARITHMETIC)
            and not isinstance(one, (ast.Div, ast.Pow))
            and (not isinstance(one, ast.Name) or id(one) in shaped or one.id in self.sizes)
            for one in nodes
        )

    def unpack(self, target: ast.Tuple | ast.List, value: Value) -> None:
        known = isinstance(value.example, (tuple, list, torch.Tensor))
        parts = value.parts() if known else []
        if not parts or len(parts) != len(target.elts) or any(isinstance(e, ast.Starred) for e in target.elts):
            raise self.refuse(target, "this cannot be unpacked")
        if value.kind == "static":
            held = [self.static(part) for part, _ in parts]
        elif value.fields:  # element by element, through names of their own where they might clash
            held = [self.copied(self.element(value, place)) for place in range(len(parts))]
        else:
            held = self.taken_apart(value)
        for element, made in zip(target.elts, held, strict=True):
            self.store(element, made)

    def taken_apart(self, value: Value) -> list[Value]:
        """The elements of what one expression gives, under names of their own."""
        parts = value.parts()
        fresh = [self.fresh() for _ in parts]
        pattern = ast.Tuple([ast.Name(one, ast.Store()) for one in fresh], ast.Store())
        statement = ast.fix_missing_locations(ast.Assign([pattern], value.code, lineno=1))
        tensor = value.kind == "tensor"
        self.steps.append(TensorStep(statement, self.place) if tensor else HostStep(statement))
        return [self.unpacked(one, *part, value.kind) for one, part in zip(fresh, parts, strict=True)]

    def unpacked(self, key: str, example: Any, twin: Any, kind: str) -> Value:
        if kind == "tensor" and example is None and twin in (None, SAME):
            return self.static(None)
        return self.hold(
            key, Value("tensor" if isinstance(example, torch.Tensor) else "host", example, name(key), twin)
        )

    def copied(self, value: Value) -> Value:
        if isinstance(value.code, ast.Name) and value.kind != "static":
            key = self.fresh()
            self.store_name(key, value)
            return self.names[key]
        return value

    def keep(self, key: str, value: Value) -> None:
        self.store_name(key, value)

    # -- changes in place

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Attribute):
            raise self.refuse(node, "an augmented assignment to an attribute is not supported")
        made = ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else None
        read = made or ast.Subscript(target.value, target.slice, ast.Load())  # type: ignore[union-attr]
        if isinstance(target, ast.Name):
            old = self.evaluate(ast.copy_location(read, node))
            if isinstance(old.example, list):
                raise self.refuse(node, f"{target.id} is changed in place while something else may hold it")
            if isinstance(old.example, torch.Tensor):
                self.check_private(node, self.frame.prefix + target.id)
        value = self.evaluate(ast.fix_missing_locations(ast.copy_location(ast.BinOp(read, node.op, node.value), node)))
        self.store(target, value)

    def put(self, target: ast.Subscript, value: Value) -> None:
        """`tensor[index] = value`."""
        base = self.evaluate(target.value)
        if base.kind != "tensor" or not isinstance(target.value, ast.Name):
            raise self.refuse(target, "assigning to an element of anything but a local tensor is not supported")
        key = self.frame.prefix + target.value.id
        self.check_private(target, key)
        index = self.evaluate(without_slices(target.slice))
        code = ast.Call(self.aliased("changed", changed), [base.code, index.code, value.code], [])
        self.store_name(key, self.result(target, code, [base, value]))

    def changed_in_place(self, node: ast.Call) -> bool:
        """A statement such as `x.index_add_(...)` on a local tensor, as the assignment of the new value."""
        method = node.func
        if not (isinstance(method, ast.Attribute) and method.attr.endswith("_") and not method.attr.endswith("__")):
            return False
        if not isinstance(method.value, ast.Name) or not hasattr(torch.Tensor, method.attr[:-1]):
            return False
        if self.evaluate(method.value).kind != "tensor":
            return False
        key = self.frame.prefix + method.value.id
        self.check_private(node, key)
        made = ast.Call(ast.Attribute(method.value, method.attr[:-1], ast.Load()), node.args, node.keywords)
        self.store_name(key, self.evaluate(ast.fix_missing_locations(ast.copy_location(made, node))))
        return True

    def check_private(self, node: ast.AST, key: str) -> None:
        """A tensor that changes in place must not be visible through anything else."""
        if key not in self.names:
            raise self.refuse(node, "a function made in another changes a tensor of that one")
        place = self.names[key].example.untyped_storage().data_ptr()
        others = [value.example for other, value in self.names.items() if other != key and other not in self.own]
        held = [*tensors_in(others), *self.model.parameters(), *self.model.buffers(), *self.inputs]
        if place and any(one.untyped_storage().data_ptr() == place for one in held):
            raise self.refuse(node, f"{key} is changed in place while something else may hold it")


def part_name(key: str, place: Any) -> str:
    return f"{key}__{place}"


def without_slices(index: ast.expr) -> ast.expr:
    """An index that can be an argument: `1:2` becomes `slice(1, 2, None)`."""
    if isinstance(index, ast.Slice):
        bounds = [one or ast.Constant(None) for one in (index.lower, index.upper, index.step)]
        made: ast.expr = ast.Call(ast.Name("slice", ast.Load()), bounds, [])
    elif isinstance(index, ast.Tuple):
        made = ast.Tuple([without_slices(one) for one in index.elts], ast.Load())
    else:
        return index
    return ast.fix_missing_locations(ast.copy_location(made, index))
