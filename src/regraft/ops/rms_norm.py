"""Root mean square normalisation with its weight, alone or after a residual addition."""

from __future__ import annotations

import functools
from typing import Any

import torch

from regraft.ops.liger import LigerKernel, can_run_liger, liger_module
from regraft.ops.postponed import materialise
from regraft.ops.postponed_sum import Sum, pending_sum_record


def rms_norm(
    x: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting: str = "llama",
) -> torch.Tensor:
    """Return `x / sqrt(mean(x ** 2, -1) + eps) * (offset + weight)`, by Liger's kernel.

    Shapes: `x` is `(..., H)`, `weight` `(H,)`, the result as `x`. `casting` sets the dtypes:
    "llama" computes in float32, rounds to the dtype of `x`, then multiplies by the weight, in the
    wider of both dtypes; "gemma" computes everything in float32 and rounds the product to the dtype
    of `x`; "statistics" computes the mean of squares in float32 and multiplies `x` as it is, in the
    wider of both dtypes; "none" computes in the dtype of `x`. Arguments that the kernel does not
    take as the composition does (another device or dtype, a weight of another shape) run as the
    composition. Unlike Liger's own function, the op never writes into a gradient that other code
    may hold. If `x` is a postponed sum, one kernel computes the sum as well.
    """
    total = pending_sum_record(x)
    if total is not None and weight is not None and _can_fuse_sum(total, weight, offset, casting):
        result, total.value = _AddRmsNorm.apply(
            *total.terms, weight, float(eps), float(offset), casting
        )
        return result
    x = materialise(x)
    if rms_norm_implementation(x, weight, casting) != "liger":
        return rms_norm_reference(x, weight=weight, eps=eps, offset=offset, casting=casting)
    if casting == "statistics":
        return rms_norm(x.to(torch.float32), weight=weight, eps=eps, offset=offset)
    if weight is not None and _scales_after_kernel(x, weight, offset, casting):
        return rms_norm(x, eps=eps) * (offset + weight if offset else weight)
    return _rms_norm_kernel(float(eps), float(offset), casting)(x, weight)


def rms_norm_reference(
    x: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting: str = "llama",
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    wide = x if casting == "none" else x.to(torch.float32)
    factor = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    normed = factor * (x if casting == "statistics" else wide)
    if casting == "llama":
        normed = normed.to(x.dtype)
    if weight is not None:
        scale = weight.to(torch.float32) if casting == "gemma" else weight
        normed = normed * (offset + scale if offset else scale)
    return normed.to(x.dtype) if casting == "gemma" else normed


def rms_norm_implementation(
    x: torch.Tensor, weight: torch.Tensor | None = None, casting: str = "llama"
) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    return "liger" if _norm_fits((x,), weight, casting) else "reference"


def _norm_fits(
    tensors: tuple[torch.Tensor, ...], weight: torch.Tensor | None, casting: str
) -> bool:
    """Return whether a kernel takes these tensors, which have one shape and dtype, and their
    weight."""
    x = tensors[0]
    if casting == "none" and x.dtype != torch.float32:
        return False  # the composition rounds every step
    return can_run_liger(*tensors, weight) and (weight is None or weight.shape == x.shape[-1:])


def _scales_after_kernel(
    x: torch.Tensor, weight: torch.Tensor, offset: float, casting: str
) -> bool:
    """Return whether the weight has to multiply after the kernel, which adds the offset in
    float32."""
    return casting == "llama" and (offset != 0 or weight.dtype != x.dtype)


def _can_fuse_sum(total: Sum, weight: torch.Tensor, offset: float, casting: str) -> bool:
    """Return whether one kernel can compute a postponed sum and its norm, in the modes of
    the sum."""
    if (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) != (
        total.gradients,
        total.inference,
    ):
        return False
    if casting == "statistics" or _scales_after_kernel(total.terms[0], weight, offset, casting):
        return False
    return _norm_fits(total.terms, weight, casting)


@functools.lru_cache(maxsize=64)
def _rms_norm_kernel(eps: float, offset: float, casting: str) -> LigerKernel:
    """Make the kernel for these options; Liger has to be installed."""
    module = liger_module("rms_norm")
    assert module is not None

    def forward(
        x: torch.Tensor, weight: torch.Tensor | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        weight = weight if weight is None else weight.contiguous()
        result, _, scale, *_ = module.rms_norm_forward(
            x.contiguous(), weight, eps, offset, casting, None
        )
        return result, (scale,)

    def backward(
        inputs: tuple[torch.Tensor, torch.Tensor | None],
        saved: tuple[torch.Tensor],
        gradient: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        x, weight = inputs
        rows = x.contiguous().view(-1, x.shape[-1])
        block_size, warps = module.calculate_settings(x.shape[-1])
        mode = module._str_to_casting_mode[casting]
        weight = weight if weight is None else weight.contiguous()
        in_place, by_row = False, None
        gradients: tuple[torch.Tensor | None, ...] = module.rms_norm_backward(
            gradient.contiguous(),
            rows,
            weight,
            saved[0],
            offset,
            mode,
            block_size,
            warps,
            in_place,
            by_row,
        )
        return gradients

    def reference(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return rms_norm_reference(x, weight=weight, eps=eps, offset=offset, casting=casting)

    return LigerKernel(forward, backward, reference)


def _fused_module() -> Any:
    """Return Liger's module of the fused addition and norm; None where it does not load."""
    return liger_module("fused_add_rms_norm")


class _AddRmsNorm(torch.autograd.Function):  # type: ignore[misc]
    """Liger's kernel of a sum and its norm; of the terms, only the sum is saved, as in the
    composition."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        offset: float,
        casting: str,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        operands = (tensor.contiguous() for tensor in (x, y, weight))
        with torch.cuda.device_of(x):  # Triton launches on the current device
            results = _fused_module().fused_add_rms_norm_forward(*operands, eps, offset, casting)
        result, total, scale, *ctx.launch = results
        ctx.save_for_backward(total, weight, scale)
        ctx.eps, ctx.offset, ctx.casting = eps, offset, casting
        return result, total

    @staticmethod
    def backward(
        ctx: Any, gradient: torch.Tensor, total_gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        total, weight, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated again
            options = {"eps": ctx.eps, "offset": ctx.offset, "casting": ctx.casting}
            # in the graph, the sum leads to the weight, too
            aliases = (
                total.view_as(total),
                weight.view_as(weight),
            )
            normed = rms_norm_reference(aliases[0], weight=aliases[1], **options)
            differentiated = [alias for alias in aliases if alias.requires_grad]
            gradients = torch.autograd.grad(normed, differentiated, gradient, create_graph=True)
            term_gradient, weight_gradient = (
                gradients[0] + total_gradient,
                gradients[1] if len(gradients) > 1 else None,
            )
        else:
            block_size, warps, stages, mode = ctx.launch
            with torch.cuda.device_of(gradient):
                term_gradient, _, weight_gradient = _fused_module().fused_add_rms_norm_backward(
                    gradient.contiguous(),
                    total_gradient.contiguous(),
                    total.view(-1, total.shape[-1]),
                    weight.contiguous(),
                    scale,
                    ctx.offset,
                    mode,
                    block_size,
                    warps,
                    stages,
                    False,
                )
        return term_gradient, term_gradient, weight_gradient, None, None, None
