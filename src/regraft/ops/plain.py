"""Tests of tensors, modules and modes for the plain ones of PyTorch, and access to the kernels of
other libraries."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import _C, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as module_internals
from torch.overrides import _get_current_function_mode_stack, has_torch_function
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

# a tuple: the compilers of PyTorch before 2.9 know no unions
NUMBERS = (int, float)
_TENSORS = (torch.Tensor, nn.Parameter)
# The modules of modes that leave functions as they are: that of a default device, which names it to
# functions that make tensors, and those by which `make_fx` and `torch.export` note what they see.
_HARMLESS_MODES = ("torch.utils._device", "torch.fx.experimental.proxy_tensor")
_NOT_OVERRIDING = (torch._C._disabled_torch_function_impl, torch.Tensor.__torch_function__)


def is_plain(module: Any, kind: type[nn.Module]) -> bool:
    """Return whether a call of `module` does exactly what the class `kind` of PyTorch does with its
    parameters.

    The answer is False for a subclass or a wrapper (LoRA, quantisation, parametrizations), hooks of
    any kind, a `forward` of the instance (weight offloading), a patched class, a module with its
    own compiled call, or parameters that are not ordinary tensors (sharded or quantised).
    """
    if type(module) is not kind or is_hooked(module):
        return False
    for parameter in module._parameters.values():
        if parameter is not None and type(parameter) not in _TENSORS:
            return False
    return is_defined_in(kind.forward, kind.__module__) and is_defined_in(
        kind.__call__, nn.Module.__module__
    )


def is_defined_in(function: Any, module_name: str) -> bool:
    """Return whether a method is the one that a module defines: a function that replaces it may
    copy its name and `__module__`, by `functools.wraps`."""
    return function.__module__ == module_name and not hasattr(function, "__wrapped__")


def are_tensors(*values: Any) -> bool:
    """Return whether all values are tensors or parameters, and of no subclass (sharded, quantised,
    postponed)."""
    for value in values:  # noqa: SIM110  a generator takes longer than this loop
        if type(value) not in _TENSORS:
            return False
    return True


def versions_of(tensors: tuple[torch.Tensor | None, ...]) -> tuple[int, ...]:
    """Return the version counters of tensors, which count changes in place; 0 for None and for a
    tensor of inference mode, which has none."""
    return tuple(
        0 if tensor is None or tensor.is_inference() else tensor._version for tensor in tensors
    )


def linear_operands(x: torch.Tensor, linear: Any) -> tuple[torch.Tensor, ...]:
    """Return the input of a Linear layer with its weight and, if there is one, its bias."""
    return (x, linear.weight) if linear.bias is None else (x, linear.weight, linear.bias)


def is_transformed() -> bool:
    """Return whether the caller is traced or compiled, under a transformation of functions or a
    mode that overrides functions of PyTorch, or in forward mode."""
    return bool(
        torch.compiler.is_compiling()
        or _C._is_tracing()
        or _C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or (_C._len_torch_function_stack() and are_functions_overridden())
    )


def are_functions_overridden() -> bool:
    """Return whether a mode overrides functions of PyTorch: it has to see those of the model."""
    return any(
        type(mode).__module__ not in _HARMLESS_MODES for mode in _get_current_function_mode_stack()
    )


def are_overridden(*values: Any) -> bool:
    """Return whether a mode, or the class of one of the values, overrides functions of PyTorch.

    The answer is False while a compiler traces, which follows the functions that override others.
    """
    if torch.compiler.is_compiling() or not has_torch_function(values):
        return False
    return are_functions_overridden() or any(
        getattr(type(value), "__torch_function__", _NOT_OVERRIDING[0]) not in _NOT_OVERRIDING
        for value in values
    )


def can_read() -> bool:
    """Return whether elements of tensors may decide what runs: outside of tracing, transformations
    and modes that dispatch operations, such as those of `make_fx` and of fake tensors, but for
    modes that only observe, whose class has a true `only_observes`."""
    if is_transformed():
        return False
    return not _C._len_torch_dispatch_stack() or all(
        getattr(type(mode), "only_observes", False) for mode in _get_current_dispatch_mode_stack()
    )


def is_batched(tensor: torch.Tensor) -> bool:
    """Return whether a tensor stands for a batch of tensors, under `vmap` or as one of many
    gradients that are propagated together."""
    functorch = torch._C._functorch
    return bool(functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor))


def is_forward_mode() -> bool:
    """Return whether the caller is differentiated in forward mode, outside of a compiler.

    Then the kernels of PyTorch 2.13 have no gradients in reverse mode, or wrong ones.
    """
    is_compiling = torch.compiler.is_compiling()
    return not is_compiling and bool(forward_ad._current_level >= 0)


def is_hooked(module: nn.Module) -> bool:
    """Return whether a call of `module` runs more than its class's `forward`."""
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


def are_kernels_forced() -> bool:
    """Return whether the environment demands kernels even for inputs too small to pay, as
    verification does."""
    return os.environ.get("REGRAFT_KERNELS") == "always"


def compiles(*tensors: torch.Tensor) -> bool:
    """Return whether an operation on these tensors should run as a compiled region: on CUDA,
    outside of tracing.

    The answer is False under transformations of functions and in forward mode, which need the
    composition, and before PyTorch 2.13: the nodes that 2.4 and 2.6 compile cannot run a second
    backward pass.
    """
    for tensor in tensors:
        if type(tensor) not in _TENSORS or not tensor.is_cuda:
            return False
    return not is_transformed() and torch.__version__ >= (2, 13) and _has_triton()


def on_one_gpu(*tensors: torch.Tensor) -> bool:
    """Return whether a fused kernel of another library can run on these tensors.

    They have one dtype (float32, float16 or bfloat16) and one CUDA device, and are not empty. The
    answer is False under autocast, while a compiler traces, under transformations of functions, and
    in forward mode.
    """
    first = tensors[0]
    if not are_tensors(*tensors):  # `torch.fx` traces with proxies in the place of tensors
        return False
    if not first.is_cuda or first.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return False
    if any(not tensor.numel() for tensor in tensors):
        return False
    are_uniform = all(
        tensor.device == first.device and tensor.dtype == first.dtype for tensor in tensors
    )
    return are_uniform and not is_transformed() and not torch.is_autocast_enabled("cuda")


def library_function(module: str, name: str, extension: str = "") -> Callable[..., Any] | None:
    """Import a function of another library; return None if it or the `extension` is missing or
    fails to load, and while a compiler traces."""
    return None if torch.compiler.is_compiling() else _load_function(module, name, extension)


@functools.cache
def _load_function(module: str, name: str, extension: str) -> Callable[..., Any] | None:
    try:
        if extension and importlib.util.find_spec(extension) is None:
            return None
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, OSError, AttributeError):
        return None
    return function


def without_view(result: torch.Tensor) -> torch.Tensor:
    """Return a new result, which is the view of a tensor that no other code has, as an ordinary
    tensor, if it needs no gradients; else return it as it is.

    A view that was made in `torch.no_grad()` cannot be changed in place by operands that need
    gradients, nor detached in place, where the composition's result can.
    """
    return result if result.requires_grad else result.detach()


def differentiable_once(result: torch.Tensor) -> torch.Tensor:
    """Return the result of another library's kernel, made differentiable once, by contiguous
    gradients.

    Such a kernel may read the memory of a gradient without reading its strides, and the gradient of
    a sum is a single number, expanded. The kernel may also run operations that autograd does not
    see, so that a second derivative would silently lack a term; it raises RuntimeError instead.
    """
    if result.grad_fn is not None:
        result.grad_fn.register_prehook(_check_gradients)
    return result


def _check_gradients(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
    """Return contiguous gradients; raise RuntimeError if they are to be differentiated again."""
    if torch.is_grad_enabled():
        raise RuntimeError("a second derivative of another library's kernel is not implemented")
    return tuple(gradient if gradient is None else gradient.contiguous() for gradient in gradients)


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
