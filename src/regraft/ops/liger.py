"""Liger's kernels: the tensors on which they run, and their part in autograd."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from regraft.ops.plain import are_tensors, is_transformed
from regraft.ops.triton_interpreter import is_call_drawn, is_interpreting, prepare_interpreter

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_MAX_COLUMNS = 65536  # columns of one row that Liger's kernels take at once


@dataclass(frozen=True, slots=True)
class LigerKernel:
    """A kernel of Liger with the functions that autograd needs.

    forward    inputs → the result and the tensors of the computation to save for the backward pass
    backward   inputs, saved tensors, the gradient of the result → for each input its gradient or
               None
    reference  inputs → the result by PyTorch's operations, for second derivatives; None if the
               inputs are too large to be saved for that: then there are no second derivatives, and
               `backward` gets no inputs
    """

    forward: Callable[..., tuple[torch.Tensor, tuple[torch.Tensor, ...]]]
    backward: Callable[..., tuple[torch.Tensor | None, ...]]
    reference: Callable[..., torch.Tensor] | None

    def __call__(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        result: torch.Tensor = _LigerFunction.apply(self, *inputs)
        return result


class _LigerFunction(torch.autograd.Function):  # type: ignore[misc]
    """The call of a kernel in autograd; unlike Liger's own functions, it overwrites neither
    gradients nor inputs."""

    @staticmethod
    def forward(ctx: Any, kernel: LigerKernel, *inputs: torch.Tensor | None) -> torch.Tensor:
        with torch.cuda.device_of(inputs[0]):  # Triton launches on the current device
            result, saved = kernel.forward(*inputs)
        saved_inputs = inputs if kernel.reference is not None else ()
        ctx.kernel, ctx.number = kernel, len(saved_inputs)
        ctx.save_for_backward(*saved_inputs, *saved)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors  # read once, because checkpoints give saved tensors only once
        inputs, computed = saved[: ctx.number], saved[ctx.number :]
        needed = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():
            if ctx.kernel.reference is None:
                raise RuntimeError("derivative for liger_backward is not implemented")
            return None, *_reference_gradients(ctx.kernel.reference, inputs, gradient, needed)
        with torch.cuda.device_of(gradient):
            # kernels do not read strides
            gradients = ctx.kernel.backward(inputs, computed, gradient.contiguous())
        return None, *(
            input_gradient if is_needed else None
            for input_gradient, is_needed in zip(gradients, needed, strict=True)
        )


def _reference_gradients(
    reference: Callable[..., torch.Tensor],
    inputs: tuple[torch.Tensor | None, ...],
    gradient: torch.Tensor,
    needed: tuple[bool, ...],
) -> list[torch.Tensor | None]:
    """Compute the gradients of the reference, which can be differentiated again; None for an input
    that needs none."""
    differentiated = [
        tensor
        for tensor, is_needed in zip(inputs, needed, strict=True)
        if is_needed and tensor is not None
    ]
    gradients = iter(
        torch.autograd.grad(reference(*inputs), differentiated, gradient, create_graph=True)
    )
    return [next(gradients) if is_needed else None for is_needed in needed]


def can_run_liger(*tensors: torch.Tensor | None, columns: int = _MAX_COLUMNS) -> bool:
    """Return whether Liger's kernels run on these tensors: floating point on CUDA, or on CPU in
    Triton's interpreter.

    The tensors are not empty, on one device, and have at most `columns` elements in a row; None
    stands for no tensor. The answer is False while a compiler traces (it fuses by itself), and
    under transformations of functions or in forward mode, which Liger does not support. The
    interpreter does not get bfloat16, which it computes unreliably, and it may be configured to run
    only some calls.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    first = present[0]
    if not are_tensors(*present):  # `torch.fx` traces with proxies in the place of tensors
        return False
    if not first.is_cuda and not (is_interpreting() and first.device.type == "cpu"):
        return False
    if not _do_rows_fit(present, columns):
        return False
    if is_transformed() or liger_module("rms_norm") is None:
        return False
    return first.is_cuda or (
        all(tensor.dtype != torch.bfloat16 for tensor in present) and is_call_drawn(present)
    )


def _do_rows_fit(tensors: list[torch.Tensor], columns: int) -> bool:
    """Return whether floating point tensors, none of them empty or without dimensions, are on one
    device and have at most `columns` elements in a row."""
    device = tensors[0].device
    if any(tensor.device != device for tensor in tensors):
        return False
    return all(
        tensor.dtype in _FLOATS
        and tensor.dim() > 0
        and tensor.numel()
        and tensor.shape[-1] <= columns
        for tensor in tensors
    )


@functools.cache
def liger_module(name: str) -> Any | None:
    """Import a module of `liger_kernel.ops`; return None if the package is missing or does not
    load."""
    try:
        prepare_interpreter()
        return importlib.import_module(f"liger_kernel.ops.{name}")
    except (ImportError, OSError):
        return None
