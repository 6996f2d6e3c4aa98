"""Records that forward makes, namedtuples and objects of dataclasses: each field is a value of its own."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
from abc import abstractmethod
from typing import Any

from regraft.splitting.codes import holds_tensor
from regraft.splitting.dictionaries import Dictionaries
from regraft.splitting.records import FIXED, fields_of, holds_what_it_is_given, is_namedtuple
from regraft.splitting.values import Value, literal


class Fields(Dictionaries):
    """Makes records and answers what is asked of them."""

    def record(self, node: ast.Call, callee: Value, args: list[Value], words: dict[str, Value]) -> Value:
        """An object of a dataclass, made in forward: known field by field."""
        kind = callee.example
        fields = fields_of(kind)
        if not holds_what_it_is_given(kind):
            raise self.no_record(node, kind, f"a {kind.__name__} does not hold what it is made of")
        given = {**dict(zip(fields, args, strict=False)), **words}
        try:
            example = kind(**{key: one.example for key, one in given.items()})
            twin = kind(**{key: one.other for key, one in given.items()})
        except Exception as problem:
            reason = f"cannot be made: {type(problem).__name__}: {problem}"
            raise self.no_record(node, kind, reason) from problem
        if any(getattr(example, key, given) is not one.example for key, one in given.items()):
            raise self.no_record(node, kind, f"a {kind.__name__} does not hold what it is made of")
        for key in fields:
            held = getattr(example, key)
            if key not in given and literal(held) is None and not callable(held):
                raise self.no_record(node, kind, f"{key} of a {kind.__name__} is made by its constructor")
            given.setdefault(key, self.static(held))
        codes = {key: self.held(one) if one.kind == "tensor" else one.code for key, one in given.items()}
        code = ast.Call(callee.code, [], [ast.keyword(key, codes[key]) for key in fields])
        return Value("record", example, code, twin)

    def replaced(self, node: ast.Call, value: Value, words: dict[str, Value]) -> Value:
        """Another object of a dataclass or namedtuple, with other values of some fields."""
        kind = type(value.example)
        if not (value.kind == "record" or self.is_made(value.example)):
            raise self.refuse(node, f"a {kind.__name__} that forward did not make is not supported here")
        given = fields_of(kind) if is_namedtuple(kind) else [one.name for one in dataclasses.fields(kind) if one.init]
        for key in given:
            if key not in words:
                held = self.element(value, key) if value.kind == "record" else self.attribute(node, value.example, key)
                words = {**words, **({key: held} if held is not None else {})}
        if kind in self.mutable:
            return self.construct(node, kind, [], words)
        return self.record(node, self.static(kind), [], words)

    def field(self, node: ast.AST, base: Value, called: str) -> Value:
        """A field of a record, or what its class has under this name."""
        kind = type(base.example)
        of_class = inspect.getattr_static(kind, called, self)
        if called in base.fields:
            return self.whole(node, called, self.element(base, called))
        if isinstance(of_class, property) and of_class.fget is not None:
            return self.inline(node, of_class.fget, None, [base], {})
        if literal(of_class) is None and not isinstance(of_class, (classmethod, staticmethod)):
            raise self.no_record(node, kind, f"{kind.__name__} has no field {called} that is known here")
        return self.static(getattr(kind, called))

    def method_of_record(self, base: Value, called: str) -> Any:
        """A function that a record's class has under this name; None where it has none, or a field is called so."""
        of_class = inspect.getattr_static(type(base.example), called, None)
        return of_class if inspect.isfunction(of_class) and called not in base.fields else None

    def as_tuple(self, value: Value) -> Value:
        """A namedtuple as the tuple that it is."""
        return self.together([self.element(value, place) for place in value.fields])

    def asked_of_record(
        self, node: ast.AST, function: Any, args: list[Value], words: dict[str, Value]
    ) -> Value | None:
        """What Python has built in for objects, asked of a record."""
        if not args or args[0].kind != "record":
            return None
        first = args[0].example
        called = args[1].example if len(args) > 1 else None
        if type(called) is str and function in (getattr, hasattr, setattr):
            if function is setattr:
                raise self.no_record(node, type(first), FIXED)
            there = called in args[0].fields or hasattr(type(first), called)
            if function is hasattr or (not there and len(args) > 2):
                return self.static(there) if function is hasattr else args[2]
            return self.field(node, args[0], called)
        if not words and all(one.kind == "static" for one in args[1:]):
            if function in (isinstance, type):
                return self.static(function(*(one.example for one in args)))
            if is_namedtuple(type(first)) and function in (len, tuple, list):
                if function is len:
                    return self.static(len(args[0].fields))
                parts = [self.element(args[0], place) for place in args[0].fields]
                return self.listed(node, parts) if function is list else self.together(parts)
        return None

    def of_records(self, node: ast.expr, operands: list[Value]) -> Value:
        """What an operator gives for a record: a namedtuple of no tensors is a tuple, and none is None."""
        identity = isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        if identity and any(one.kind == "static" and one.example is None for one in operands):
            return self.static(isinstance(node.ops[0], ast.IsNot))  # type: ignore[attr-defined]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.static(not self.truth(operands[0]).example)
        if identity or not isinstance(node, (ast.BinOp, ast.Compare)):
            raise self.refuse(node, "a list of objects, or whether one is another, is not supported")
        for one in operands:
            if one.kind == "record" and (not is_namedtuple(type(one.example)) or holds_tensor(one.example)):
                raise self.refuse(node, f"an operator on a {type(one.example).__name__} is not supported")
        keys = [self.fresh() for _ in operands]
        for key, one in zip(keys, operands, strict=True):
            self.store_name(self.frame.prefix + key, self.as_tuple(one) if one.kind == "record" else one)
        names = [ast.copy_location(ast.Name(key, ast.Load()), node) for key in keys]
        made = copy.copy(node)
        if isinstance(made, ast.BinOp):
            made.left, made.right = names
        elif isinstance(made, ast.Compare):
            made.left, made.comparators = names[0], list(names[1:])
        return self.evaluate(made)

    @abstractmethod
    def evaluate(self, node: ast.expr) -> Value:
        """The value of an expression."""

    @abstractmethod
    def listed(self, node: ast.AST, values: list[Value]) -> Value:
        """A list of values, as the host writes it down."""
