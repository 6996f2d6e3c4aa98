"""A call with its function and operands, and what is asked of them."""

from __future__ import annotations

import ast
import functools
import inspect
from dataclasses import dataclass
from typing import Any

import torch

from regraft.splitting.program.record_classes import is_namedtuple, is_record
from regraft.splitting.program.residual_expressions import is_display, is_torch
from regraft.splitting.program.value_kinds_and_parts import has_kind
from regraft.splitting.program.values import HostValue, RecordValue, StaticValue, TensorValue, Value

# built-in functions that read the elements of a sequence
ITERATING_BUILTINS: tuple[Any, ...] = (
    all,
    any,
    bool,
    enumerate,
    list,
    max,
    min,
    reversed,
    set,
    sorted,
    sum,
    tuple,
    zip,
)
# functions whose result the type of a tensor decides, not its values
TYPE_TESTS = (torch.is_tensor, torch.is_floating_point, torch.is_complex)


@dataclass(frozen=True)
class Call:
    """A call whose function is known: its residual function, its arguments, and what they hold.

    holds_local: the function or an argument is a function or an object that forward makes.
    has_either: an argument is a tensor on some paths and a constant on others.
    """

    node: ast.Call
    callee: StaticValue
    args: list[Value]
    keywords: dict[str, Value]
    holds_local: bool
    has_either: bool

    @property
    def function(self) -> Any:
        """Return the function itself."""
        return self.callee.example

    @property
    def function_name(self) -> str:
        """Return the name of the function; "" where it has none."""
        return getattr(self.function, "__name__", "")

    @property
    def operands(self) -> list[Value]:
        """Return the positional and the keyword arguments."""
        return [*self.args, *self.keywords.values()]

    @property
    def has_mutable_record(self) -> bool:
        """Return whether an argument is an object of a dataclass, which may change, unlike a
        namedtuple."""
        return any(
            isinstance(operand, RecordValue) and not is_namedtuple(type(operand.example))
            for operand in self.operands
        )

    @property
    def takes_host_list(self) -> bool:
        """Return whether the first argument is a list that the host holds."""
        return bool(
            self.args and isinstance(self.args[0].example, list) and not is_display(self.args[0])
        )

    @property
    def takes_host_container(self) -> bool:
        """Return whether an argument is a list, tuple or dictionary that the host holds."""
        return any(
            isinstance(operand, HostValue)
            and isinstance(operand.example, (list, tuple, dict))
            and not is_display(operand)
            for operand in self.operands
        )

    @functools.cached_property
    def code(self) -> ast.Call:
        """Return the residual expression of the call."""
        return ast.Call(
            self.callee.code,
            [argument.code for argument in self.args],
            [ast.keyword(keyword, value.code) for keyword, value in self.keywords.items()],
        )


def is_python_function(function: Any) -> bool:
    """Return whether a function or method is written in Python."""
    return inspect.isfunction(function) or inspect.ismethod(function)


def takes_either(function: Any) -> bool:
    """Return whether an argument of a function may be an EitherValue: True for Python functions
    outside of torch, records, `max` and `min`."""
    is_followable = is_python_function(function) and not is_torch(function)
    return is_followable or is_record(function) or function in (max, min)


def has_tensor(call: Call) -> bool:
    """Return whether an argument is a tensor that a region computes."""
    return has_kind(call.operands, TensorValue)
