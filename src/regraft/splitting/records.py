"""Classes whose objects are made of named fields: dataclasses and namedtuples."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from types import FunctionType
from typing import Any

FIXED = "assigning to a field of a namedtuple, a frozen dataclass or the like is not supported"


class Mutable(BaseException):
    """Objects of a dataclass change, or have methods: from the start they are followed attribute by attribute."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind


def is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or is_namedtuple(kind))


def fields_of(kind: type) -> list[str]:
    return list(kind._fields) if is_namedtuple(kind) else [one.name for one in dataclasses.fields(kind)]  # type: ignore[attr-defined]


def init_owner(kind: Any, init: Any) -> Any:
    """The dataclass whose constructor this is, where `dataclass` wrote it and there is no source."""
    for one in kind.__mro__:
        if vars(one).get("__init__") is init and "__dataclass_params__" in vars(one):
            return one if init.__code__.co_filename == "<string>" else None
    return None


def holds_what_it_is_given(kind: Any) -> bool:
    """Whether an object's fields are the arguments, or their defaults, and it has nothing else; for all arguments.

    Outputs in the manner of transformers, which are dictionaries too, are taken for such.
    """
    if is_namedtuple(kind):
        return str(kind.__new__.__code__.co_filename).startswith("<")
    if issubclass(kind, dict):
        return True
    plain = all(one.init and not one.kw_only for one in dataclasses.fields(kind))
    names = list(inspect.signature(kind.__init__).parameters)[1:]
    whole = plain and names == fields_of(kind) and not hasattr(kind, "__post_init__")
    return whole and kind.__new__ is object.__new__ and init_owner(kind, kind.__init__) is not None


def made_init(kind: type) -> tuple[FunctionType, ast.FunctionDef, dict[str, Any]]:
    """Such a constructor as it would be written by hand, its definition and its globals."""
    scope: dict[str, Any] = {}
    fields = dataclasses.fields(kind)
    parts, only = ["self"], []
    for one in list(inspect.signature(kind.__init__).parameters.values())[1:]:  # type: ignore[misc]
        if one.kind is one.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        scope[f"default_{one.name}_"] = one.default
        parts.append(one.name if one.default is one.empty else f"{one.name}=default_{one.name}_")
        if one.name not in [field.name for field in fields]:  # an InitVar
            only.append(one.name)
    body = []
    for field in fields:
        made = f"factory_{field.name}_()"
        if field.default_factory is not dataclasses.MISSING:
            scope[f"factory_{field.name}_"] = field.default_factory
            missing = f"{field.name} is default_{field.name}_"
            body.append(f"self.{field.name} = {f'{made} if {missing} else {field.name}' if field.init else made}")
        elif field.init:
            body.append(f"self.{field.name} = {field.name}")
    if hasattr(kind, "__post_init__"):
        body.append(f"self.__post_init__({', '.join(only)})")
    text = f"def __init__({', '.join(parts)}):\n" + "".join(f"    {line}\n" for line in body or ["pass"])
    exec(text, scope)
    return scope["__init__"], ast.parse(text).body[0], scope  # type: ignore[return-value]
