"""Where Liger's kernels run, and how they take part in autograd."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from regraft.ops.plain import are_tensors, is_transformed
from regraft.ops.triton_interpreter import interprets, is_drawn, prepare_interpreter

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MAX_COLUMNS = 65536  # of one row that Liger's kernels take at once


@dataclass(frozen=True, slots=True)
class LigerKernel:
    """A kernel of Liger with what autograd needs of it.

    forward    inputs → the result and what to keep of the computation
    backward   inputs, what was kept, the gradient of the result → one gradient for each input, or None
    reference  inputs → the result by PyTorch's operations, where a gradient is to be differentiated again; None where
               the inputs are too large to be kept for that
    """

    forward: Callable[..., tuple[torch.Tensor, tuple[torch.Tensor, ...]]]
    backward: Callable[..., tuple[torch.Tensor | None, ...]]
    reference: Callable[..., torch.Tensor] | None

    def __call__(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        result: torch.Tensor = _LigerFunction.apply(self, *inputs)
        return result


class _LigerFunction(torch.autograd.Function):  # type: ignore[misc]
    """Liger's own functions overwrite gradients and inputs in the backward pass; here nothing is overwritten."""

    @staticmethod
    def forward(ctx: Any, kernel: LigerKernel, *inputs: torch.Tensor | None) -> torch.Tensor:
        with torch.cuda.device_of(inputs[0]):  # Triton launches on the current device
            result, kept = kernel.forward(*inputs)
        known = inputs if kernel.reference is not None else ()
        ctx.kernel, ctx.number = kernel, len(known)
        ctx.save_for_backward(*known, *kept)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors  # which checkpoints give only once
        inputs, kept = saved[: ctx.number], saved[ctx.number :]
        needed = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():
            if ctx.kernel.reference is None:
                raise RuntimeError("derivative for liger_backward is not implemented")
            return None, *_reference_gradients(ctx.kernel.reference, inputs, gradient, needed)
        with torch.cuda.device_of(gradient):
            slopes = ctx.kernel.backward(inputs, kept, gradient.contiguous())  # kernels do not ask for strides
        return None, *(slope if wanted else None for slope, wanted in zip(slopes, needed, strict=True))


def _reference_gradients(
    reference: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor | None, ...], gradient: torch.Tensor,
    needed: tuple[bool, ...],
) -> list[torch.Tensor | None]:  # fmt: skip
    """Gradients that can be differentiated again."""
    wanted = [one for one, need in zip(inputs, needed, strict=True) if need and one is not None]
    slopes = iter(torch.autograd.grad(reference(*inputs), wanted, gradient, create_graph=True))
    return [next(slopes) if need else None for need in needed]


def takes(*tensors: torch.Tensor | None, columns: int = _MAX_COLUMNS) -> bool:
    """Whether Liger's kernels run on these tensors: floating point on CUDA, or on CPU in Triton's interpreter.

    Not while a compiler traces (it fuses by itself), and not under transformations of functions or in forward mode,
    which Liger does not know. The interpreter's bfloat16 is not to be relied on, and it may be told to take only some
    calls. A row has `columns` at the most.
    """
    given = [one for one in tensors if one is not None]
    first = given[0]
    if not are_tensors(*given):  # nor what stands for them while `torch.fx` traces
        return False
    if not first.is_cuda and not (interprets() and first.device.type == "cpu"):
        return False
    if any(one.device != first.device for one in given):
        return False
    if any(one.dtype not in _DTYPES or not one.numel() or one.shape[-1] > columns for one in given):
        return False
    if is_transformed() or liger("rms_norm") is None:
        return False
    return first.is_cuda or (all(one.dtype != torch.bfloat16 for one in given) and is_drawn(given))


@functools.cache
def liger(name: str) -> Any | None:
    """A module of `liger_kernel.ops`; None where the package is missing or does not load."""
    try:
        prepare_interpreter()
        return importlib.import_module(f"liger_kernel.ops.{name}")
    except (ImportError, OSError):
        return None
