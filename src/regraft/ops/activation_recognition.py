"""Proofs of the function that a model's activation computes, without calling the activation."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn import functional

from regraft.ops.plain import is_hooked, is_plain


def is_gelu(activation: Any) -> bool:
    """Return whether a call of `activation` provably computes the exact (erf) GELU of its one
    argument.

    The answer is True for `torch.nn.functional.gelu` itself, a `functools.partial` of it that
    leaves `approximate` at "none", `torch.nn.GELU()`, and a module whose class's `forward` only
    returns the result of an attribute that is `torch.nn.functional.gelu`. It is False for a module
    with hooks.
    """
    if activation is functional.gelu:
        return True
    if type(activation) is functools.partial:
        is_exact = activation.keywords in ({}, {"approximate": "none"})
        return activation.func is functional.gelu and not activation.args and is_exact
    if not isinstance(activation, nn.Module) or is_hooked(activation):
        return False
    if type(activation) is nn.GELU:
        return is_plain(activation, nn.GELU) and bool(activation.approximate == "none")
    name = _called_attribute(type(activation))
    return name is not None and getattr(activation, name) is functional.gelu


def _stays_constant(
    function: Callable[[type[nn.Module]], str | None],
) -> Callable[[type[nn.Module]], str | None]:
    """Mark a function whose result a compiler may take for a constant.

    `torch.compiler.assume_constant_result` does it, too, and imports the compiler first: seconds
    that every program with an op would wait for.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


@_stays_constant
def _called_attribute(kind: type[nn.Module]) -> str | None:
    """Return the name `a` of a class whose `forward` is `return self.a(x)`, without overridden
    calls; else None."""
    code = getattr(kind.forward, "__code__", None)
    template = _calls_its_attribute.__code__
    # Byte code holds no names and constants, so it is equal for code of one shape, in every version
    # of Python.
    if code is None or _shape(code) != _shape(template):
        return None
    return None if _is_overridden(kind) else code.co_names[0]


def _is_overridden(kind: type[nn.Module]) -> bool:
    """Return whether a class overrides the call of its modules, or the access to their
    attributes."""
    names = ("__call__", "__getattr__", "__getattribute__")
    return any(getattr(kind, name) is not getattr(nn.Module, name) for name in names)


# A template whose byte code is that of a `forward` with one call of an attribute; it is never
# called.
def _calls_its_attribute(self: Any, x: Any) -> Any:
    return self.act(x)


def _shape(code: types.CodeType) -> tuple[object, ...]:
    """Return the properties of a code object that are equal for code that differs only in its
    names."""
    kind_flags = (
        inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
    )
    return (
        code.co_code,
        code.co_flags & kind_flags,
        code.co_argcount,
        code.co_kwonlyargcount,
        len(code.co_names),
    )


def activation_kind(activation: Any, approximate: str = "none") -> str:
    """Name the function that a call of `activation` provably computes: "silu", "gelu-tanh", or ""
    for any other.

    `approximate` is the option with which `torch.nn.functional.gelu` is called. A module with hooks
    gives "".
    """
    if isinstance(activation, nn.Module):
        return "" if is_hooked(activation) else _module_kind(activation)
    if (
        type(activation) is functools.partial
        and not activation.args
        and activation.keywords.keys() <= {"approximate"}
    ):
        return activation_kind(activation.func, activation.keywords.get("approximate", "none"))
    if activation is functional.silu:
        return "silu"
    return "gelu-tanh" if activation is functional.gelu and approximate == "tanh" else ""


def _module_kind(module: nn.Module) -> str:
    """Return the result of `activation_kind` for a module without hooks."""
    if type(module) is nn.SiLU:
        return "silu" if is_plain(module, nn.SiLU) and not module.inplace else ""
    if type(module) is nn.GELU:
        return "gelu-tanh" if is_plain(module, nn.GELU) and module.approximate == "tanh" else ""
    function = _called_function(type(module))
    if function is not None:
        return activation_kind(function)
    name = _called_attribute(type(module))
    attribute = getattr(module, name) if name is not None else None
    return "" if isinstance(attribute, nn.Module) else activation_kind(attribute)


def _called_function(kind: type[nn.Module]) -> Any:
    """Return the function `f` of a class whose `forward` is `return f(x)`, `a.f(x)` or `a.b.f(x)`;
    else None."""
    code = getattr(kind.forward, "__code__", None)
    shapes = (
        _shape(template.__code__)
        for template in (_calls_a_function, _calls_a_module_function, _calls_a_package_function)
    )
    if code is None or _shape(code) not in shapes or _is_overridden(kind):
        return None
    function = kind.forward.__globals__.get(code.co_names[0])
    for name in code.co_names[1:]:
        function = getattr(function, name, None)
    return function


# Templates whose byte code is that of a `forward` with one call of a function; they are never
# called.
def _calls_a_function(self: Any, x: Any) -> Any:
    return is_gelu(x)


def _calls_a_module_function(self: Any, x: Any) -> Any:
    return functional.silu(x)


def _calls_a_package_function(self: Any, x: Any) -> Any:
    return nn.functional.silu(x)
