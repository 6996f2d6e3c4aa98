"""Records that forward makes, namedtuples and objects of dataclasses: each field is a value of its
own."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
from abc import abstractmethod
from typing import Any

from regraft.splitting.program.codes import holds_tensor
from regraft.splitting.program.records import FIXED, fields_of, holds_only_arguments, is_namedtuple
from regraft.splitting.program.values import Value, literal
from regraft.splitting.specialising.dictionaries import Dictionaries


class Fields(Dictionaries):
    """Makes records and evaluates operations on them."""

    def make_record(
        self, node: ast.Call, callee: Value, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Return an object of a dataclass that forward makes, known field by field."""
        record_class = callee.example
        fields = fields_of(record_class)
        if not holds_only_arguments(record_class):
            raise self.record_error(
                node, record_class, f"a {record_class.__name__} does not hold what it is made of"
            )
        field_values = {**dict(zip(fields, args, strict=False)), **keywords}
        try:
            example = record_class(**{key: value.example for key, value in field_values.items()})
            twin = record_class(
                **{key: value.second_example for key, value in field_values.items()}
            )
        except Exception as problem:
            reason = f"cannot be made: {type(problem).__name__}: {problem}"
            raise self.record_error(node, record_class, reason) from problem
        if any(
            getattr(example, key, field_values) is not value.example
            for key, value in field_values.items()
        ):
            raise self.record_error(
                node, record_class, f"a {record_class.__name__} does not hold what it is made of"
            )
        for key in fields:
            field_value = getattr(example, key)
            if (
                key not in field_values
                and literal(field_value) is None
                and not callable(field_value)
            ):
                raise self.record_error(
                    node,
                    record_class,
                    f"{key} of a {record_class.__name__} is made by its constructor",
                )
            field_values.setdefault(key, self.static(field_value))
        codes = {
            key: self.bind_result(value) if value.kind == "tensor" else value.code
            for key, value in field_values.items()
        }
        code = ast.Call(callee.code, [], [ast.keyword(key, codes[key]) for key in fields])
        return Value("record", example, code, twin)

    def replace_fields(self, node: ast.Call, value: Value, keywords: dict[str, Value]) -> Value:
        """Return another object of a dataclass or namedtuple, with other values of some fields."""
        record_class = type(value.example)
        if not (value.kind == "record" or self.is_stand_in(value.example)):
            raise self.refuse(
                node, f"a {record_class.__name__} that forward did not make is not supported here"
            )
        init_fields = (
            fields_of(record_class)
            if is_namedtuple(record_class)
            else [field.name for field in dataclasses.fields(record_class) if field.init]
        )
        for key in init_fields:
            if key not in keywords:
                field_value = (
                    self.element(value, key)
                    if value.kind == "record"
                    else self.attribute(node, value.example, key)
                )
                keywords = {**keywords, **({key: field_value} if field_value is not None else {})}
        if record_class in self.mutable:
            return self.construct(node, record_class, [], keywords)
        return self.make_record(node, self.static(record_class), [], keywords)

    def record_field(self, node: ast.AST, base: Value, attribute: str) -> Value:
        """Return a field of a record, or the attribute of its class with this name."""
        record_class = type(base.example)
        class_attribute = inspect.getattr_static(record_class, attribute, self)
        if attribute in base.fields:
            return self.require_one_type(node, attribute, self.element(base, attribute))
        if isinstance(class_attribute, property) and class_attribute.fget is not None:
            return self.inline(node, class_attribute.fget, None, [base], {})
        if literal(class_attribute) is None and not isinstance(
            class_attribute, (classmethod, staticmethod)
        ):
            raise self.record_error(
                node,
                record_class,
                f"{record_class.__name__} has no field {attribute} that is known here",
            )
        return self.static(getattr(record_class, attribute))

    def method_of_record(self, base: Value, attribute: str) -> Any:
        """Return the function of a record's class with this name; None if there is none, or a field
        has the name."""
        class_attribute = inspect.getattr_static(type(base.example), attribute, None)
        return (
            class_attribute
            if inspect.isfunction(class_attribute) and attribute not in base.fields
            else None
        )

    def as_tuple(self, value: Value) -> Value:
        """Return a namedtuple as a plain tuple."""
        return self.make_tuple([self.element(value, place) for place in value.fields])

    def builtin_on_record(
        self, node: ast.AST, function: Any, args: list[Value], keywords: dict[str, Value]
    ) -> Value | None:
        """Evaluate a built-in of Python for objects on a record; None for any other call."""
        if not args or args[0].kind != "record":
            return None
        record = args[0].example
        attribute = args[1].example if len(args) > 1 else None
        if type(attribute) is str and function in (getattr, hasattr, setattr):
            if function is setattr:
                raise self.record_error(node, type(record), FIXED)
            exists = attribute in args[0].fields or hasattr(type(record), attribute)
            if function is hasattr or (not exists and len(args) > 2):
                return self.static(exists) if function is hasattr else args[2]
            return self.record_field(node, args[0], attribute)
        if not keywords and all(argument.kind == "static" for argument in args[1:]):
            if function in (isinstance, type):
                return self.static(function(*(argument.example for argument in args)))
            if is_namedtuple(type(record)) and function in (len, tuple, list):
                if function is len:
                    return self.static(len(args[0].fields))
                parts = [self.element(args[0], place) for place in args[0].fields]
                return self.make_list(node, parts) if function is list else self.make_tuple(parts)
        return None

    def operate_on_records(self, node: ast.expr, operands: list[Value]) -> Value:
        """Evaluate an operator on records: a namedtuple without tensors is a tuple, and no record
        is None."""
        is_identity = isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        if is_identity and any(
            operand.kind == "static" and operand.example is None for operand in operands
        ):
            return self.static(isinstance(node.ops[0], ast.IsNot))  # type: ignore[attr-defined]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.static(not self.truth(operands[0]).example)
        if is_identity or not isinstance(node, (ast.BinOp, ast.Compare)):
            raise self.refuse(
                node, "a list of objects, or whether one is another, is not supported"
            )
        for operand in operands:
            if operand.kind == "record" and (
                not is_namedtuple(type(operand.example)) or holds_tensor(operand.example)
            ):
                raise self.refuse(
                    node, f"an operator on a {type(operand.example).__name__} is not supported"
                )
        keys = [self.fresh_name() for _ in operands]
        for key, operand in zip(keys, operands, strict=True):
            self.store_name(
                self.frame.prefix + key,
                self.as_tuple(operand) if operand.kind == "record" else operand,
            )
        names = [ast.copy_location(ast.Name(key, ast.Load()), node) for key in keys]
        operation = copy.copy(node)
        if isinstance(operation, ast.BinOp):
            operation.left, operation.right = names
        elif isinstance(operation, ast.Compare):
            operation.left, operation.comparators = names[0], list(names[1:])
        return self.evaluate(operation)

    @abstractmethod
    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression."""

    @abstractmethod
    def make_list(self, node: ast.AST, values: list[Value]) -> Value:
        """Return a list of values, as the host writes it down."""
