"""A Linear layer and the GELU after it: bias and activation in one pass over memory."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import compiles, is_hooked, is_plain


def linear_gelu(x: torch.Tensor, linear: Any, gelu: Any = None, *, approximate: str = "none") -> torch.Tensor:
    """`gelu(linear(x))`, or `torch.nn.functional.gelu(linear(x), approximate=approximate)` without `gelu`.

    Shapes: `x` is `(..., linear.in_features)`, the result `(..., linear.out_features)`. `linear` and `gelu` are the
    model's own modules: whatever is not a plain `torch.nn.Linear` with a bias, or provably a GELU, is called like the
    original does. On CUDA plain ones run as a compiled region; everywhere else the bits are those of the original.
    """
    if linear_gelu_implementation(x, linear, gelu) != "torch.compile":
        return linear_gelu_reference(x, linear, gelu, approximate=approximate)
    if gelu is not None:
        approximate = getattr(gelu, "approximate", "none")
    result: torch.Tensor = _compiled_linear_gelu()(x, linear.weight, linear.bias, approximate)
    return result


def linear_gelu_reference(
    x: torch.Tensor, linear: Any, gelu: Any = None, *, approximate: str = "none"
) -> torch.Tensor:
    """The composition that the op replaces, with the modules called as the model calls them."""
    h = linear(x)
    result: torch.Tensor = functional.gelu(h, approximate=approximate) if gelu is None else gelu(h)
    return result


def linear_gelu_implementation(x: torch.Tensor, linear: Any, gelu: Any = None) -> str:
    """Name of what runs for these arguments: "torch.compile", "torch-native" or "reference"."""
    plain = is_plain(linear, nn.Linear) and linear.bias is not None
    if torch.compiler.is_compiling() or not plain or not (gelu is None or is_plain(gelu, nn.GELU) or is_gelu(gelu)):
        return "reference"  # the compiler around it fuses, and sees the hooks
    return "torch.compile" if compiles(x) else "torch-native"


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
    overridden = any(
        getattr(kind, name) is not getattr(nn.Module, name) for name in ("__call__", "__getattr__", "__getattribute__")
    )
    return None if overridden else code.co_names[0]


def _calls_its_attribute(self: Any, x: Any) -> Any:
    return self.act(x)


def _shape(code: types.CodeType) -> tuple[object, ...]:
    kinds = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
    return code.co_code, code.co_flags & kinds, code.co_argcount, code.co_kwonlyargcount, len(code.co_names)


@functools.cache
def _compiled_linear_gelu() -> Any:
    return torch.compile(_linear_gelu, dynamic=True)


def _linear_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    return functional.gelu(functional.linear(x, weight, bias), approximate=approximate)
