"""Other values for the arguments of a constructor."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.verification.child.checks.option_values_in_source import other_forms
from regraft.verification.child.drivers import config_variations, source_hints
from regraft.verification.child.drivers.configuration_objects import fields_of, is_config
from regraft.verification.child.drivers.standalone_parts import Part
from regraft.verification.child.running_classes import is_module_class

VALUES = 5  # the most other values of a number, flag or unset option that changed lines read
_LARGEST_NUMBER = 8  # the largest integer that is no size
TOKEN = re.compile(r"(^|_)(id|idx|index|token)$")  # the names of options that are tokens

# The format and the device that parameters can be made with, by the names of arguments for them.
_OF_TENSORS = {"dtype": torch.float64, "device": torch.device("cpu")}


def plain_values(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a name and a value: the arguments of a constructor, with the fields of
    configurations, nested ones included, in their place. A mapping whose name ends with "config" is
    a configuration, too."""
    for name, value in arguments.items():
        if is_config(value):
            yield from plain_values(fields_of(value))
        elif isinstance(value, Mapping) and name.endswith("config"):
            yield from plain_values({str(key): nested_value for key, nested_value in value.items()})
        else:
            yield name, value


def is_size(value: Any) -> bool:
    """Return whether an option's value is an integer that is large enough for a size."""
    return type(value) is int and value > _LARGEST_NUMBER


def plain_value(part: Part, name: str) -> Any:
    """Return the value of an option in the arguments of a part, fields of configurations included;
    None where it has none."""
    return dict(plain_values(part.arguments)).get(name)


def _substitutes(name: str, value: Any) -> tuple[Any, ...]:
    """Return what can stand for a class of layers, a partial call of one, a function of PyTorch, or
    an absent format or device; () for any other value of the argument `name`."""
    cls = value.func if isinstance(value, functools.partial) else value
    if is_module_class(cls):
        is_activation = cls.__module__.endswith("activation")
        return (nn.ReLU, nn.Tanh) if is_activation else (nn.Identity,)
    if _is_function_of_torch(value):
        return functional.silu, functional.relu
    return (_OF_TENSORS[name],) if value is None and name in _OF_TENSORS else ()


def other_values(
    name: str, value: Any, choices: source_hints.Choices, tree: ast.Module
) -> Iterator[Any]:
    """Yield other values for the argument `name` whose value is `value`: for a class of layers, or
    a partial call of it, another class; for a function of PyTorch another one; where there is no
    format or device of parameters those of `_OF_TENSORS`; then those of
    `config_variations.second_values`, such as the opposite of a flag, with `other_forms` behind the
    first. `tree` is the syntax tree of the file."""
    yield from (candidate for candidate in _substitutes(name, value) if candidate is not value)

    def second_values(key: str, plain_value: Any) -> tuple[Any, ...]:
        """Return the second values of a plain value."""
        overrides = config_variations.second_values({key: plain_value}, frozenset({key}), choices)
        return tuple(override[key] for override in overrides)

    values = second_values(name, value)
    yield from (*values[:1], *other_forms(name, value, tree, second_values), *values[1:])


def _is_function_of_torch(value: Any) -> bool:
    """Return whether a value is a function, but no class, of PyTorch or built into Python."""
    if isinstance(value, BuiltinFunctionType):
        return True
    module = getattr(value, "__module__", None) or ""
    return callable(value) and not isinstance(value, type) and module.split(".")[0] == "torch"
