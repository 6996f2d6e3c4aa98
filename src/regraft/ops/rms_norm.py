"""Root mean square normalisation with its weight."""

from __future__ import annotations

import functools
from typing import Any

import torch

from regraft.ops.liger import LigerKernel, liger, takes
from regraft.ops.postponed import elements
from regraft.ops.postponed_sum import Sum, sum_of


def rms_norm(
    x: torch.Tensor, *, weight: torch.Tensor | None = None, eps: float = 1e-6, offset: float = 0.0,
    casting: str = "llama",
) -> torch.Tensor:  # fmt: skip
    """`x / sqrt(mean(x ** 2, -1) + eps) * (offset + weight)`, by Liger's kernel.

    Shapes: `x` is `(..., H)`, `weight` `(H,)`, the result as `x`. `casting` says what is rounded where: "llama"
    computes in float32, rounds to the dtype of `x`, then multiplies by the weight, in the wider of both dtypes;
    "gemma" computes everything in float32 and rounds the product to the dtype of `x`; "none" computes in the dtype of
    `x`. What the kernel does not take as the composition would (another device or dtype, a weight of another shape)
    runs as the composition. Unlike Liger's own function, it never writes into a gradient that others may hold. Of a
    postponed sum, it computes the sum as well.
    """
    total = sum_of(x)
    if total is not None and weight is not None and _takes_sum(total, weight, offset, casting):
        result, total.value = _AddRmsNorm.apply(*total.terms, weight, float(eps), float(offset), casting)
        return result
    x = elements(x)
    if rms_norm_implementation(x, weight, casting) != "liger":
        return rms_norm_reference(x, weight=weight, eps=eps, offset=offset, casting=casting)
    if weight is not None and _scales_apart(x, weight, offset, casting):
        return rms_norm(x, eps=eps) * (offset + weight if offset else weight)
    return _rms_norm_kernel(float(eps), float(offset), casting)(x, weight)


def rms_norm_reference(
    x: torch.Tensor, *, weight: torch.Tensor | None = None, eps: float = 1e-6, offset: float = 0.0,
    casting: str = "llama",
) -> torch.Tensor:  # fmt: skip
    """The composition that the op replaces."""
    wide = x if casting == "none" else x.to(torch.float32)
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if casting == "llama":
        normed = normed.to(x.dtype)
    if weight is not None:
        scale = weight.to(torch.float32) if casting == "gemma" else weight
        normed = normed * (offset + scale if offset else scale)
    return normed.to(x.dtype) if casting == "gemma" else normed


def rms_norm_implementation(x: torch.Tensor, weight: torch.Tensor | None = None, casting: str = "llama") -> str:
    """Name of what runs for these arguments: "liger" or "reference"."""
    return "liger" if _norm_fits((x,), weight, casting) else "reference"


def _norm_fits(given: tuple[torch.Tensor, ...], weight: torch.Tensor | None, casting: str) -> bool:
    """Whether a kernel takes tensors of one shape and dtype, and their weight."""
    x = given[0]
    if casting == "none" and x.dtype != torch.float32:
        return False  # the composition rounds every step
    return takes(*given, weight) and (weight is None or weight.shape == x.shape[-1:])


def _scales_apart(x: torch.Tensor, weight: torch.Tensor, offset: float, casting: str) -> bool:
    """Whether the weight multiplies after the kernel: that adds the offset in float32, and returns the dtype of x."""
    return casting == "llama" and (offset != 0 or weight.dtype != x.dtype)


def _takes_sum(total: Sum, weight: torch.Tensor, offset: float, casting: str) -> bool:
    """Whether one kernel computes the sum and its norm."""
    if (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) != (total.gradients, total.inference):
        return False
    return not _scales_apart(total.terms[0], weight, offset, casting) and _norm_fits(total.terms, weight, casting)


@functools.lru_cache(maxsize=64)
def _rms_norm_kernel(eps: float, offset: float, casting: str) -> LigerKernel:
    module = liger("rms_norm")
    assert module is not None

    def forward(x: torch.Tensor, weight: torch.Tensor | None) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        weight = weight if weight is None else weight.contiguous()
        result, _, scale, *_ = module.rms_norm_forward(x.contiguous(), weight, eps, offset, casting, None)
        return result, (scale,)

    def backward(
        inputs: tuple[torch.Tensor, torch.Tensor | None], kept: tuple[torch.Tensor], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        x, weight = inputs
        rows = x.contiguous().view(-1, x.shape[-1])
        size, warps = module.calculate_settings(x.shape[-1])
        mode = module._str_to_casting_mode[casting]
        weight = weight if weight is None else weight.contiguous()
        in_place, by_row = False, None
        slopes: tuple[torch.Tensor | None, ...] = module.rms_norm_backward(
            gradient.contiguous(), rows, weight, kept[0], offset, mode, size, warps, in_place, by_row
        )
        return slopes

    def reference(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return rms_norm_reference(x, weight=weight, eps=eps, offset=offset, casting=casting)

    return LigerKernel(forward, backward, reference)


def _fused_module() -> Any:
    return liger("fused_add_rms_norm")


class _AddRmsNorm(torch.autograd.Function):  # type: ignore[misc]
    """Liger's kernel of a sum and its norm; the sum is all that is kept of the terms, as in the composition."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, eps: float, offset: float, casting: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        given = (one.contiguous() for one in (x, y, weight))
        with torch.cuda.device_of(x):  # Triton launches on the current device
            results = _fused_module().fused_add_rms_norm_forward(*given, eps, offset, casting)
        result, total, scale, *ctx.launch = results
        ctx.save_for_backward(total, weight, scale)
        ctx.eps, ctx.offset, ctx.casting = eps, offset, casting
        return result, total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, more: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        total, weight, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # it will be differentiated again
            options = {"eps": ctx.eps, "offset": ctx.offset, "casting": ctx.casting}
            aliases = total.view_as(total), weight.view_as(weight)  # the sum leads to the weight, too
            normed = rms_norm_reference(aliases[0], weight=aliases[1], **options)
            wanted = [one for one in aliases if one.requires_grad]
            found = torch.autograd.grad(normed, wanted, gradient, create_graph=True)
            slope, own = found[0] + more, found[1] if len(found) > 1 else None
        else:
            size, warps, stages, mode = ctx.launch
            with torch.cuda.device_of(gradient):
                slope, _, own = _fused_module().fused_add_rms_norm_backward(
                    gradient.contiguous(), more.contiguous(), total.view(-1, total.shape[-1]), weight.contiguous(),
                    scale, ctx.offset, mode, size, warps, stages, False,
                )  # fmt: skip
        return slope, slope, own, None, None, None
