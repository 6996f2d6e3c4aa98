"""Assignments to names and to the elements of tuples."""

from __future__ import annotations

import ast
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.calls import Calls
from regraft.splitting.codes import assign, holds_tensor, is_named_result, name
from regraft.splitting.records import FIXED, fields_of, is_record
from regraft.splitting.residual import HostStep, TensorStep, reads, writes
from regraft.splitting.values import SAME, Names, Value, literal

ARITHMETIC = (
    ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Subscript, ast.Attribute, ast.Name, ast.Constant, ast.Load,
)  # fmt: skip


class Assignments(Calls):
    """Stores values in the targets of the source."""

    def store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value)
        elif isinstance(target, ast.Subscript):
            self.put(target, value)
        elif isinstance(target, ast.Name):
            self.store_name(self.frame.prefix + target.id, value)
        else:
            assert isinstance(target, ast.Attribute)
            self.pending.append([value])
            base = self.evaluate(target.value)
            self.pending.pop()
            if isinstance(base.example, torch.nn.Module):
                self.put_scratch(target, base.example, target.attr, value)
            elif self.is_made(base.example):
                self.put_attribute(target, base.example, target.attr, value)
            elif base.kind == "record":
                raise self.no_record(target, type(base.example), FIXED)
            else:
                raise self.refuse(target, "assigning to an attribute is not supported in a network that is split")

    @abstractmethod
    def put(self, target: ast.Subscript, value: Value) -> None:
        """Assign to an element."""

    def store_name(self, key: str, value: Value) -> None:
        self.implied = {one: test for one, test in self.implied.items() if key not in reads(test)}
        if value.kind == "static" and (key not in self.varying or literal(value.example) is None):
            self.names[key] = value
            return
        if value.kind == "either":
            assert isinstance(value.code, ast.Name)
            self.copies[key] = value.code.id
            self.assign(key, value.code, False)
            self.names[key] = value.named(key)
            return
        if value.kind == "tensor" and (type(value.example) is tuple or is_named_result(value.example)):
            codes = [one.code for one in self.taken_apart(value)]
            value = Value("host", value.example, ast.Tuple(codes, ast.Load()), value.twin)
        if value.kind == "tensor" and type(value.example) is list:
            value = self.dissolved(value)
        if value.kind == "tensor" and is_record(type(value.example)):
            value = self.opened_record(value)
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
        taken = {part_name(key, place) for place in value.fields} & self.reserved
        if taken:
            raise self.refuse(value.code, f"{min(taken)} is also the name for an element of {key}; call it another")
        for place, one in zip(value.fields, elements, strict=True):
            self.store_name(part_name(key, place), one)
        self.names[key] = self.rebuilt(key, value)

    def rebuilt(self, key: str, value: Value) -> Value:
        """A tuple or a record from what the names of its elements hold now."""
        return value.with_fields([self.names[part_name(key, place)].code for place in value.fields])

    def is_kept_apart(self, key: str, value: Value, names: Names) -> bool:
        return bool(value.fields) and all(part_name(key, place) in names for place in value.fields)

    def dissolved(self, value: Value) -> Value:
        """A list or tuple that a region makes, as the host's list or tuple of what it holds."""
        parts = []
        for place, (example, other) in enumerate(value.parts()):
            code = ast.Subscript(value.code, ast.Constant(place), ast.Load())
            part = Value("tensor", example, code, SAME if other is SAME else other)
            if type(example) in (list, tuple):
                parts.append(self.dissolved(part))
            elif isinstance(example, torch.Tensor):
                parts.append(self.kept(part))
            elif literal(example) is not None and example == part.other:
                parts.append(self.static(example))
            else:
                raise self.refuse(value.code, f"a {type(example).__name__} in a list that cannot be followed")
        return self.listed(value.code, parts) if type(value.example) is list else self.together(parts)

    def opened_record(self, value: Value) -> Value:
        """What a region's object of named fields holds, field by field; the object itself cannot leave the region."""
        whole = self.fresh()
        self.assign(whole, value.code, True)
        codes = []
        for field in fields_of(type(value.example)):
            example, other = getattr(value.example, field), getattr(value.other, field)
            code: ast.expr = ast.Attribute(name(whole), field, ast.Load())
            if holds_tensor(example):
                part = self.fresh()
                self.store_name(part, Value("tensor", example, code, SAME if value.twin is SAME else other))
                code = name(part)
            elif literal(example) is not None and type(example) is type(other) and example == other:
                code = literal(example) or code
            codes.append(ast.keyword(field, code))
        self.hold(whole, value)
        made = ast.Call(self.aliased(type(value.example).__name__, type(value.example)), [], codes)
        return Value("record", value.example, made, value.twin)

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
        starred = [place for place, one in enumerate(target.elts) if isinstance(one, ast.Starred)]
        known_length = value.fields or self.has_length(value) or isinstance(value.code, ast.List)
        unknown = bool(starred) and value.kind == "host" and not known_length
        if not parts or unknown or (len(parts) + 1 < len(target.elts) if starred else len(parts) != len(target.elts)):
            raise self.refuse(target, "this cannot be unpacked")
        if value.kind == "static":
            held = [self.static(part) for part, _ in parts]
        elif value.fields:  # element by element, through names of their own where they might clash
            held = [self.before_stores(target, self.element(value, place)) for place in range(len(parts))]
        else:
            held = self.taken_apart(value)
        targets = list(target.elts)
        for place in starred:
            targets[place] = target.elts[place].value  # type: ignore[attr-defined]
            after = len(held) - (len(targets) - place - 1)
            held[place:after] = [self.listed(target, held[place:after])]
        self.pending.append(list(held))
        for element, made in zip(targets, held, strict=True):
            if self.pending[-1]:
                self.pending[-1].pop(0)
            self.store(element, made)
        self.pending.pop()

    def before_stores(self, target: ast.expr, value: Value) -> Value:
        """An element of the right side, under a name of its own where the targets may change what it reads."""
        if value.kind in ("static", "lost"):
            return value
        stored = {self.frame.prefix + one for one in writes(target)}
        others = any(isinstance(one, (ast.Attribute, ast.Subscript)) for one in ast.walk(target))
        if others or any(key in stored or key.partition("__")[0] in stored for key in reads(value.code)):
            return self.under_a_name(value)
        return self.copied(value)

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
        several = kind == "tensor" and holds_tensor(example)  # such as the states of an LSTM
        held = "tensor" if several or isinstance(example, torch.Tensor) else "host"
        return self.hold(key, Value(held, example, name(key), twin))

    def copied(self, value: Value) -> Value:
        return self.under_a_name(value) if isinstance(value.code, ast.Name) and value.kind != "static" else value

    def keep(self, key: str, value: Value) -> None:
        self.store_name(key, value)


def part_name(key: str, place: Any) -> str:
    return f"{key}__{place}"
