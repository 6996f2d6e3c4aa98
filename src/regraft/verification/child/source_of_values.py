"""Write values as Python source: arguments of constructors, configurations, and example inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from regraft.verification.child.drivers.configuration_objects import (
    field_defaults,
    fields_of,
    is_config,
)

UNKNOWN = "..."


@dataclass(slots=True)
class SourceWriter:
    """Writes values as expressions that refer to a file's own classes as `module.NAME`.

    `imports` are the statements that the expressions need, `unknown` the names of the types whose
    values have no expression: they are written as `...`.
    """

    module: ModuleType
    imports: set[str] = field(default_factory=lambda: {"import torch"})
    unknown: list[str] = field(default_factory=list)

    def expression(self, value: Any) -> str:
        """Return the source of a value, and add the statements that it needs to `imports`; `...`
        for a type without an expression, which is added to `unknown`."""
        if is_config(value):
            return self._configuration(value)
        if isinstance(value, type | FunctionType):
            return self._definition(value)
        for kind, write in _WRITERS.items():
            if isinstance(value, kind):
                return write(self, value)
        self.unknown.append(type(value).__name__)
        return UNKNOWN

    def keywords(self, values: Mapping[str, Any]) -> str:
        """Return values by name as the keyword arguments of a call: "a=1, b=2", "" for none."""
        return ", ".join(f"{name}={self.expression(value)}" for name, value in values.items())

    def _configuration(self, config: Any) -> str:
        """Return the call that makes a configuration, without the fields that keep their default; a
        SimpleNamespace for an object that the verifier invented, and `...` for one of a class
        without a signature, which is added to `unknown`."""
        cls = type(config)
        fields = fields_of(config)
        if issubclass(cls, SimpleNamespace):  # invented from the fields that the file reads
            self.imports.add("from types import SimpleNamespace")
            return f"SimpleNamespace({self.keywords(fields)})"
        try:
            parameters = field_defaults(cls)
        except (TypeError, ValueError):  # a class without a signature
            self.unknown.append(cls.__name__)
            return UNKNOWN
        if parameters:  # else the class takes any field
            fields = {
                name: value
                for name, value in fields.items()
                if name in parameters and not _is_default(value, parameters[name].default)
            }
        return f"{self._definition(cls)}({self.keywords(fields)})"

    def _definition(self, value: Any) -> str:
        """Return the name of a class or function: as an attribute of `module` where the file
        defines it, else by its own module, which is added to `imports`; `...` for a definition
        inside a function."""
        name = value.__qualname__
        if value.__module__ == self.module.__name__:
            return f"module.{name}"
        if value.__module__ == "builtins":
            return str(name)
        if "<" in name:  # defined inside a function
            self.unknown.append(name)
            return UNKNOWN
        self.imports.add(f"import {value.__module__}")
        return f"{value.__module__}.{name}"

    def _sequence(self, values: Any) -> str:
        """Return the source of a list, tuple or set, with that of its elements."""
        items = ", ".join(self.expression(value) for value in values)
        if isinstance(values, tuple):
            return f"({items},)" if len(values) == 1 else f"({items})"
        if isinstance(values, list):
            return f"[{items}]"
        return f"{{{items}}}" if values else "set()"

    def _mapping(self, values: Any) -> str:
        """Return the source of a dictionary, with that of its keys and values."""
        entries = (f"{self.expression(k)}: {self.expression(v)}" for k, v in values.items())
        return f"{{{', '.join(entries)}}}"


def _is_default(value: Any, default: Any) -> bool:
    """Return whether a value is the default of its field: the same object, or an equal plain value
    of the same type."""
    is_plain = type(value) is type(default) and isinstance(value, _PLAIN)
    return value is default or (is_plain and value == default)


def _number(_: SourceWriter, value: float) -> str:
    """Return the source of a number; `float("nan")` or `float("inf")` where it is not finite."""
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def _tensor(_: SourceWriter, value: torch.Tensor) -> str:
    """Return the source of a call that makes a tensor with the shape, the dtype and, of integers,
    the range of `value`, with random content; a tensor of equal elements is written as such, an
    empty tensor as one of zeros."""
    shape = ", ".join(map(str, value.shape))
    size = f"({shape},)" if value.dim() == 1 else f"({shape})"
    lowest, highest = (value.min().item(), value.max().item()) if value.numel() else (0, 0)
    dtype = "" if value.dtype is torch.float32 else f", dtype={value.dtype}"
    if lowest == highest:
        return f"torch.full({size}, {highest!r}{dtype})"
    if value.dtype is torch.bool:
        return f"torch.randint(0, 2, {size}).bool()"
    if value.is_floating_point():
        return f"torch.randn({size}{dtype})"
    dtype = "" if value.dtype is torch.int64 else dtype
    return f"torch.randint({lowest}, {highest + 1}, {size}{dtype})"


_PLAIN = (bool, int, float, str, type(None))
_WRITERS: Mapping[Any, Callable[[SourceWriter, Any], str]] = {
    bool | str | None: lambda _, value: repr(value),
    int | float: _number,
    torch.Tensor: _tensor,
    torch.dtype: lambda _, value: str(value),
    torch.device: lambda _, value: f'torch.device("{value}")',
    list | tuple | set: SourceWriter._sequence,
    dict: SourceWriter._mapping,
}
