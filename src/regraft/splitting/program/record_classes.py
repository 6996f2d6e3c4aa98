"""Classes whose objects consist of named fields: dataclasses and namedtuples."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from types import FunctionType
from typing import Any

# why an assignment is refused
FIXED = "assigning to a field of a namedtuple, a frozen dataclass or the like is not supported"


class Mutable(BaseException):
    """Signals that objects of a dataclass change, or have methods: they have to be followed
    attribute by attribute. It is a BaseException, so that no `except Exception` on the way stops
    it.

    kind: the dataclass.
    """

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind


def is_namedtuple(kind: type) -> bool:
    """Return whether a class is one of namedtuples: a subclass of `tuple` that has `_fields`."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_record(kind: Any) -> bool:
    """Return whether `kind` is a dataclass or a class of namedtuples."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or is_namedtuple(kind))


def fields_of(kind: type) -> list[str]:
    """Return the names of the fields of a dataclass or namedtuple, in order."""
    return (
        list(kind._fields)  # type: ignore[attr-defined]
        if is_namedtuple(kind)
        else [field.name for field in dataclasses.fields(kind)]
    )


def init_owner(kind: Any, init: Any) -> Any:
    """Return the base of `kind` whose constructor `init` was written by `dataclass`, so that it has
    no source.

    Returns None where `init` is another constructor.
    """
    for base in kind.__mro__:
        if vars(base).get("__init__") is init and "__dataclass_params__" in vars(base):
            return base if init.__code__.co_filename == "<string>" else None
    return None


def only_stores_arguments(kind: Any) -> bool:
    """Return whether the constructor of a dataclass or namedtuple does nothing, whatever its
    arguments, but store each argument, or its default, in the field of the same name.

    A subclass of `dict`, such as an output of transformers, is taken for such a class.
    """
    if is_namedtuple(kind):
        return str(kind.__new__.__code__.co_filename).startswith("<")
    if issubclass(kind, dict):
        return True
    are_arguments = all(field.init and not field.kw_only for field in dataclasses.fields(kind))
    names = list(inspect.signature(kind.__init__).parameters)[1:]
    has_plain_init = (
        are_arguments and names == fields_of(kind) and not hasattr(kind, "__post_init__")
    )
    return (
        has_plain_init
        and kind.__new__ is object.__new__
        and init_owner(kind, kind.__init__) is not None
    )


def write_init(kind: type) -> tuple[FunctionType, ast.FunctionDef, dict[str, Any]]:
    """Write the constructor of a dataclass as source, as it would be written by hand, with
    factories, init-only arguments and `__post_init__`, and execute it; the class is not changed.
    Returns the function (of which `inspect` finds no source), its syntax tree and its globals,
    which hold the defaults and factories."""
    scope: dict[str, Any] = {}
    signature = inspect.signature(kind.__init__)  # type: ignore[misc]
    arguments = list(signature.parameters.values())[1:]
    fields = dataclasses.fields(kind)
    parameters = write_parameters(arguments, scope)
    body = [line for field in fields for line in write_assignment(field, scope)]
    if hasattr(kind, "__post_init__"):
        field_names = [field.name for field in fields]
        init_only = [argument.name for argument in arguments if argument.name not in field_names]
        body.append(f"self.__post_init__({', '.join(init_only)})")
    text = f"def __init__({', '.join(parameters)}):\n" + "".join(
        f"    {line}\n" for line in body or ["pass"]
    )
    exec(text, scope)
    return scope["__init__"], ast.parse(text).body[0], scope  # type: ignore[return-value]


def write_parameters(arguments: list[inspect.Parameter], scope: dict[str, Any]) -> list[str]:
    """Return the parameters of a constructor as text, from `self` on and with `*`; their defaults
    are added to `scope`."""
    parameters = ["self"]
    for argument in arguments:
        if argument.kind is argument.KEYWORD_ONLY and "*" not in parameters:
            parameters.append("*")
        default_name = f"default_{argument.name}_"
        scope[default_name] = argument.default
        has_default = argument.default is not argument.empty
        parameters.append(f"{argument.name}={default_name}" if has_default else argument.name)
    return parameters


def write_assignment(field: dataclasses.Field[Any], scope: dict[str, Any]) -> list[str]:
    """Return the line that sets a field in a constructor as a list, empty if none sets the field.

    A field's factory is added to `scope`.
    """
    if field.default_factory is dataclasses.MISSING:
        return [f"self.{field.name} = {field.name}"] if field.init else []
    scope[f"factory_{field.name}_"] = field.default_factory
    value = f"factory_{field.name}_()"
    if field.init:
        value = f"{value} if {field.name} is default_{field.name}_ else {field.name}"
    return [f"self.{field.name} = {value}"]
