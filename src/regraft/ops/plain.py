"""Whether tensors and modules are the ordinary ones of PyTorch, run as they stand, and where compiling pays."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_internals

_TENSORS = (torch.Tensor, nn.Parameter)


def is_plain(module: Any, kind: type[nn.Module]) -> bool:
    """True if calling `module` does exactly what the class `kind` of PyTorch does with the module's parameters.

    False for a subclass or a wrapper (LoRA, quantisation, parametrizations), hooks of any kind, a `forward` of the
    instance (weight offloading), a patched class, a module with its own compiled call, or parameters that are not
    ordinary tensors (sharded or quantised).
    """
    return (
        type(module) is kind
        and kind.forward.__module__ == kind.__module__
        and not is_hooked(module)
        and all(parameter is None or type(parameter) in _TENSORS for parameter in module._parameters.values())
    )


def are_tensors(*given: Any) -> bool:
    """True if these are tensors or parameters, and of no subclass (sharded, quantised, postponed)."""
    return all(type(one) in _TENSORS for one in given)


def is_transformed() -> bool:
    """True while somebody traces, under transformations of functions, and in forward mode."""
    return bool(
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def is_hooked(module: nn.Module) -> bool:
    """True if a call of `module` runs anything beside its class's `forward`."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
        or module._compiled_call_impl is not None
        or module_internals._global_forward_hooks
        or module_internals._global_forward_pre_hooks
        or module_internals._global_backward_hooks
        or module_internals._global_backward_pre_hooks
    )


def forced() -> bool:
    """True where kernels are wanted for inputs, too, that are so small that they do not pay: in verification."""
    return os.environ.get("REGRAFT_KERNELS") == "always"


def compiles(*tensors: torch.Tensor) -> bool:
    """True where an operation on these tensors should run as a compiled region: CUDA, and nobody traces already.

    Not under transformations of functions and in forward mode, which see through the composition only, and not before
    PyTorch 2.13: the nodes that 2.4 and 2.6 compile cannot run a second backward pass.
    """
    cuda = all(type(tensor) in _TENSORS and tensor.is_cuda for tensor in tensors)
    return cuda and not is_transformed() and torch.__version__ >= (2, 13) and _has_triton()


def on_one_gpu(*tensors: torch.Tensor) -> bool:
    """Whether a fused kernel of another library runs on these: one floating point dtype, one CUDA device, not empty.

    Not under autocast, while a compiler traces, under transformations of functions, and in forward mode.
    """
    first = tensors[0]
    if not are_tensors(*tensors):  # nor what stands for them while `torch.fx` traces
        return False
    if not first.is_cuda or first.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return False
    if any(not one.numel() for one in tensors):
        return False
    alike = all(one.device == first.device and one.dtype == first.dtype for one in tensors)
    return alike and not is_transformed() and not torch.is_autocast_enabled("cuda")


@functools.cache
def library_function(module: str, name: str, extension: str = "") -> Callable[..., Any] | None:
    """A function of another library; None where that or its `extension` is missing or does not load here."""
    try:
        if extension and importlib.util.find_spec(extension) is None:
            return None
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, OSError, AttributeError):
        return None
    return found


def differentiable_once(result: torch.Tensor) -> torch.Tensor:
    """The result of another library's kernel, with a backward pass that gets contiguous gradients and runs once.

    Such a kernel may read the memory of a gradient without asking for its strides: that of a sum is a single number,
    expanded. It may also run what autograd does not see: a second derivative would lack a term without a word.
    """
    if result.grad_fn is not None:
        result.grad_fn.register_prehook(_checked_gradients)
    return result


def _checked_gradients(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
    """The gradients in memory of their own; raises RuntimeError where they are to be differentiated."""
    if torch.is_grad_enabled():
        raise RuntimeError("a second derivative of another library's kernel is not implemented")
    return tuple(one if one is None else one.contiguous() for one in gradients)


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
