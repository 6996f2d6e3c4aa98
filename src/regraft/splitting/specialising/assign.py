"""Assignments to names, attributes and the elements of tuples."""

from __future__ import annotations

import ast
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.codes import assign, holds_tensor, is_named_result, name
from regraft.splitting.program.records import FIXED, fields_of, is_record
from regraft.splitting.program.residual import HostStep, TensorStep, reads, writes
from regraft.splitting.program.values import SAME, Names, Value, literal
from regraft.splitting.specialising.calls import Calls

ARITHMETIC_NODES = (
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.Subscript,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.Load,
)


class Assignments(Calls):
    """Stores values in the targets of the source."""

    def store(self, target: ast.expr, value: Value) -> None:
        """Assign a value to a target of the source."""
        if isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value)
        elif isinstance(target, ast.Subscript):
            self.store_element(target, value)
        elif isinstance(target, ast.Name):
            self.store_name(self.frame.prefix + target.id, value)
        else:
            assert isinstance(target, ast.Attribute)
            self.pending.append([value])
            base = self.evaluate(target.value)
            self.pending.pop()
            if isinstance(base.example, torch.nn.Module):
                self.put_scratch(target, base.example, target.attr, value)
            elif self.is_stand_in(base.example):
                self.put_attribute(target, base.example, target.attr, value)
            elif base.kind == "record":
                raise self.record_error(target, type(base.example), FIXED)
            else:
                raise self.refuse(
                    target, "assigning to an attribute is not supported in a network that is split"
                )

    @abstractmethod
    def store_element(self, target: ast.Subscript, value: Value) -> None:
        """Assign to an element of a tensor, list or dictionary."""

    def store_name(self, key: str, value: Value) -> None:
        """Assign a value to a name; a tuple or a record is stored as its elements."""
        self.implied_tests = {
            condition: test
            for condition, test in self.implied_tests.items()
            if key not in reads(test)
        }
        if value.kind == "static" and (
            key not in self.varying_names or literal(value.example) is None
        ):
            self.names[key] = value
            return
        if value.kind == "either":
            assert isinstance(value.code, ast.Name)
            self.copied_from[key] = value.code.id
            self.assign(key, value.code, False)
            self.names[key] = value.with_name(key)
            return
        if value.kind == "tensor" and (
            type(value.example) is tuple or is_named_result(value.example)
        ):
            codes = [element.code for element in self.take_apart(value)]
            value = Value("host", value.example, ast.Tuple(codes, ast.Load()), value.twin)
        if value.kind == "tensor" and type(value.example) is list:
            value = self.dissolve(value)
        if value.kind == "tensor" and is_record(type(value.example)):
            value = self.open_record(value)
        if value.fields:
            self.store_fields(key, value)
            return
        is_size = self.is_size(value)
        self.assign(key, value.code, value.kind == "tensor" or is_size)
        (self.size_names.add if is_size else self.size_names.discard)(key)
        bound_value = self.bind_name(
            key, replace(value, kind="host") if value.kind == "static" else value
        )
        if value.kind == "static":
            self.names[key] = replace(bound_value, constant=True)

    def assign(self, key: str, code: ast.expr, by_region: bool) -> None:
        """Append the step that assigns to a name, in a region or in the host."""
        self.steps.append(
            TensorStep(assign(key, code), self.location)
            if by_region
            else HostStep(assign(key, code))
        )

    def store_fields(self, key: str, value: Value) -> None:
        """Store a tuple or a record as its elements, under names of their own."""
        elements = [self.bind_copy(self.element(value, place)) for place in value.fields]
        clashing_names = {part_name(key, place) for place in value.fields} & self.reserved_names
        if clashing_names:
            raise self.refuse(
                value.code,
                f"{min(clashing_names)} is also the name for an element of {key}; call it another",
            )
        for place, element in zip(value.fields, elements, strict=True):
            self.store_name(part_name(key, place), element)
        self.names[key] = self.rebuild(key, value)

    def rebuild(self, key: str, value: Value) -> Value:
        """Return a tuple or a record with what the names of its elements hold now."""
        return value.with_fields([self.names[part_name(key, place)].code for place in value.fields])

    def has_part_names(self, key: str, value: Value, names: Names) -> bool:
        """Return whether a value is a tuple or a record whose elements have names of their own."""
        return bool(value.fields) and all(part_name(key, place) in names for place in value.fields)

    def dissolve(self, value: Value) -> Value:
        """Return a list or tuple that a region makes as the host's list or tuple of its
        elements."""
        parts = []
        for place, (example, second_example) in enumerate(value.parts()):
            code = ast.Subscript(value.code, ast.Constant(place), ast.Load())
            part = Value(
                "tensor", example, code, SAME if second_example is SAME else second_example
            )
            if type(example) in (list, tuple):
                parts.append(self.dissolve(part))
            elif isinstance(example, torch.Tensor):
                parts.append(self.bind_if_tensor(part))
            elif literal(example) is not None and example == part.second_example:
                parts.append(self.static(example))
            else:
                raise self.refuse(
                    value.code, f"a {type(example).__name__} in a list that cannot be followed"
                )
        return (
            self.make_list(value.code, parts)
            if type(value.example) is list
            else self.make_tuple(parts)
        )

    def open_record(self, value: Value) -> Value:
        """Return a region's object of named fields as a record; the object itself cannot leave the
        region."""
        object_name = self.fresh_name()
        self.assign(object_name, value.code, True)
        codes = []
        for field in fields_of(type(value.example)):
            example, second_example = (
                getattr(value.example, field),
                getattr(value.second_example, field),
            )
            code: ast.expr = ast.Attribute(name(object_name), field, ast.Load())
            if holds_tensor(example):
                field_name = self.fresh_name()
                self.store_name(
                    field_name,
                    Value("tensor", example, code, SAME if value.twin is SAME else second_example),
                )
                code = name(field_name)
            elif (
                literal(example) is not None
                and type(example) is type(second_example)
                and example == second_example
            ):
                code = literal(example) or code
            codes.append(ast.keyword(field, code))
        self.bind_name(object_name, value)
        construction = ast.Call(
            self.alias_global(type(value.example).__name__, type(value.example)), [], codes
        )
        return Value("record", value.example, construction, value.twin)

    def is_size(self, value: Value) -> bool:
        """Return whether a number is computed from shapes alone, which a region can do."""
        if value.kind != "host" or type(value.example) is not int or value.twin is SAME:
            return False
        nodes = list(ast.walk(value.code))
        shape_bases = {
            id(node.value)
            for node in nodes
            if isinstance(node, ast.Attribute) and node.attr == "shape"
        }
        return all(
            isinstance(node, ARITHMETIC_NODES)
            and not isinstance(node, (ast.Div, ast.Pow))
            and (
                not isinstance(node, ast.Name)
                or id(node) in shape_bases
                or node.id in self.size_names
            )
            for node in nodes
        )

    def unpack(self, target: ast.Tuple | ast.List, value: Value) -> None:
        """Assign the elements of a value to the elements of a tuple or list of targets."""
        is_sequence = isinstance(value.example, (tuple, list, torch.Tensor))
        parts = value.parts() if is_sequence else []
        starred = [
            place
            for place, element_target in enumerate(target.elts)
            if isinstance(element_target, ast.Starred)
        ]
        has_known_length = (
            value.fields or self.has_length(value) or isinstance(value.code, ast.List)
        )
        is_unpredictable = bool(starred) and value.kind == "host" and not has_known_length
        if (
            not parts
            or is_unpredictable
            or (len(parts) + 1 < len(target.elts) if starred else len(parts) != len(target.elts))
        ):
            raise self.refuse(target, "this cannot be unpacked")
        if value.kind == "static":
            elements = [self.static(part) for part, _ in parts]
        elif value.fields:  # element by element, through names of their own where they might clash
            elements = [
                self.save_from_stores(target, self.element(value, place))
                for place in range(len(parts))
            ]
        else:
            elements = self.take_apart(value)
        targets = list(target.elts)
        for place in starred:
            targets[place] = target.elts[place].value  # type: ignore[attr-defined]
            after = len(elements) - (len(targets) - place - 1)
            elements[place:after] = [self.make_list(target, elements[place:after])]
        self.pending.append(list(elements))
        for element_target, element in zip(targets, elements, strict=True):
            if self.pending[-1]:
                self.pending[-1].pop(0)
            self.store(element_target, element)
        self.pending.pop()

    def save_from_stores(self, target: ast.expr, value: Value) -> Value:
        """Return an element of the right side, under a name of its own where the targets may change
        what it reads."""
        if value.kind in ("static", "lost"):
            return value
        stored_names = {self.frame.prefix + target_name for target_name in writes(target)}
        stores_in_containers = any(
            isinstance(node, (ast.Attribute, ast.Subscript)) for node in ast.walk(target)
        )
        if stores_in_containers or any(
            key in stored_names or key.partition("__")[0] in stored_names
            for key in reads(value.code)
        ):
            return self.bind_fresh(value)
        return self.bind_copy(value)

    def take_apart(self, value: Value) -> list[Value]:
        """Return the elements of what one expression gives, under names of their own."""
        parts = value.parts()
        element_names = [self.fresh_name() for _ in parts]
        pattern = ast.Tuple(
            [ast.Name(element_name, ast.Store()) for element_name in element_names], ast.Store()
        )
        statement = ast.fix_missing_locations(ast.Assign([pattern], value.code, lineno=1))
        is_tensor = value.kind == "tensor"
        self.steps.append(
            TensorStep(statement, self.location) if is_tensor else HostStep(statement)
        )
        return [
            self.unpacked_part(element_name, *part, value.kind)
            for element_name, part in zip(element_names, parts, strict=True)
        ]

    def unpacked_part(self, key: str, example: Any, twin: Any, kind: str) -> Value:
        """Return the value of an element that was unpacked into the name `key`."""
        if kind == "tensor" and example is None and twin in (None, SAME):
            return self.static(None)
        has_tensors = kind == "tensor" and holds_tensor(example)  # such as the states of an LSTM
        element_kind = "tensor" if has_tensors or isinstance(example, torch.Tensor) else "host"
        return self.bind_name(key, Value(element_kind, example, name(key), twin))

    def bind_copy(self, value: Value) -> Value:
        """Copy a value that has a name to a name of its own, unless the value is static."""
        return (
            self.bind_fresh(value)
            if isinstance(value.code, ast.Name) and value.kind != "static"
            else value
        )

    def keep(self, key: str, value: Value) -> None:
        self.store_name(key, value)


def part_name(key: str, place: Any) -> str:
    """Return the name for an element of the tuple, or a field of the record, that `key` holds."""
    return f"{key}__{place}"
