"""What a model's activation computes, as far as that can be proved without calling it."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import is_hooked


def is_gelu(activation: Any) -> bool:
    """True only if calling `activation` provably computes the exact (erf) GELU of its one argument.

    So are `torch.nn.functional.gelu` itself, a `functools.partial` of it that leaves `approximate` at "none",
    `torch.nn.GELU()`, and a module whose class's `forward` only returns what its stored function of that identity
    gives. Anything hooked is not.
    """
    if activation is functional.gelu:
        return True
    if type(activation) is functools.partial:
        plain_keywords = activation.keywords in ({}, {"approximate": "none"})
        return activation.func is functional.gelu and not activation.args and plain_keywords
    if not isinstance(activation, nn.Module) or is_hooked(activation):
        return False
    if type(activation) is nn.GELU:
        return bool(activation.approximate == "none")
    name = _called_attribute(type(activation))
    return name is not None and getattr(activation, name) is functional.gelu


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _called_attribute(kind: type[nn.Module]) -> str | None:
    """The name `a` if the class's `forward` is `return self.a(x)` and calling a module is not overridden."""
    code = getattr(kind.forward, "__code__", None)
    wanted = _calls_its_attribute.__code__
    # Byte code without names and constants: equal for equal shapes of code, in every version of Python.
    if code is None or _shape(code) != _shape(wanted):
        return None
    return None if _is_overridden(kind) else code.co_names[0]


def _is_overridden(kind: type[nn.Module]) -> bool:
    """Whether a class changes how its modules are called, or how their attributes are read."""
    names = ("__call__", "__getattr__", "__getattribute__")
    return any(getattr(kind, name) is not getattr(nn.Module, name) for name in names)


def _calls_its_attribute(self: Any, x: Any) -> Any:
    return self.act(x)


def _shape(code: types.CodeType) -> tuple[object, ...]:
    kinds = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
    return code.co_code, code.co_flags & kinds, code.co_argcount, code.co_kwonlyargcount, len(code.co_names)


def activation_kind(activation: Any, approximate: str = "none") -> str:
    """What calling `activation` provably computes: "silu", "gelu-tanh", or "" for anything else.

    `approximate` is what `torch.nn.functional.gelu` is called with. Anything hooked is neither.
    """
    if isinstance(activation, nn.Module):
        return "" if is_hooked(activation) else _module_kind(activation)
    if type(activation) is functools.partial and not activation.args and activation.keywords.keys() <= {"approximate"}:
        return activation_kind(activation.func, activation.keywords.get("approximate", "none"))
    if activation is functional.silu:
        return "silu"
    return "gelu-tanh" if activation is functional.gelu and approximate == "tanh" else ""


def _module_kind(module: nn.Module) -> str:
    if type(module) is nn.SiLU:
        return "silu" if not module.inplace else ""
    if type(module) is nn.GELU:
        return "gelu-tanh" if module.approximate == "tanh" else ""
    function = _called_function(type(module))
    if function is not None:
        return activation_kind(function)
    name = _called_attribute(type(module))
    stored = getattr(module, name) if name is not None else None
    return "" if isinstance(stored, nn.Module) else activation_kind(stored)


def _called_function(kind: type[nn.Module]) -> Any:
    """The function `f` if the class's `forward` is `return f(x)`, whatever modules it is reached through."""
    code = getattr(kind.forward, "__code__", None)
    shapes = (_shape(one.__code__) for one in (_calls_a_function, _calls_of_a_module, _calls_of_a_package))
    if code is None or _shape(code) not in shapes or _is_overridden(kind):
        return None
    found = kind.forward.__globals__.get(code.co_names[0])
    for name in code.co_names[1:]:
        found = getattr(found, name, None)
    return found


def _calls_a_function(self: Any, x: Any) -> Any:
    return is_gelu(x)


def _calls_of_a_module(self: Any, x: Any) -> Any:
    return functional.silu(x)


def _calls_of_a_package(self: Any, x: Any) -> Any:
    return nn.functional.silu(x)
