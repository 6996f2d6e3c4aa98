"""Linear, GELU by tanh and Linear through NVIDIA's Apex or flash-attn, whose first product applies bias and GELU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.activations import activation_kind
from regraft.ops.plain import differentiable_once, is_plain, library_function, on_one_gpu

_HALF = (torch.float16, torch.bfloat16)


def apex_gelu_mlp(x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None) -> torch.Tensor:
    """`down(dropout(activation(up(x))))`, by the kernel of `apex.fused_dense.FusedDenseGeluDense`.

    Shapes: `x` is `(..., up.in_features)`, the result `(..., down.out_features)`. `up`, `down`, `activation` and
    `dropout` are the model's own; without `activation`, it is `torch.nn.functional.gelu` by tanh; without `dropout`
    there is none. Whatever is not a plain `torch.nn.Linear` with a bias, a GELU by tanh or a dropout that does
    nothing is called as the model does. So is everything but half precision on CUDA, and where Apex is not installed.
    """
    if apex_gelu_mlp_implementation(x, up, down, activation, dropout) != "apex":
        return gelu_mlp_reference(x, up, down, activation, dropout)
    return mlp_through_apex(_apex_mlp_kernel(), x, up, down)


def flash_gelu_mlp(x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None) -> torch.Tensor:
    """What `apex_gelu_mlp` computes, with the same arguments, by `flash_attn.ops.fused_dense.fused_mlp_func`."""
    if flash_gelu_mlp_implementation(x, up, down, activation, dropout) != "flash-attn":
        return gelu_mlp_reference(x, up, down, activation, dropout)
    return mlp_through_flash_attn(_flash_mlp_kernel(), x, up, down)


def gelu_mlp_reference(
    x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None
) -> torch.Tensor:
    """The composition that the ops replace, with everything called as the model calls it."""
    h = up(x)
    h = functional.gelu(h, approximate="tanh") if activation is None else activation(h)
    result: torch.Tensor = down(h if dropout is None else dropout(h))
    return result


def mlp_through_apex(kernel: Callable[..., torch.Tensor], x: torch.Tensor, up: Any, down: Any) -> torch.Tensor:
    """Call Apex' kernel, which takes two dimensions.

    Source: https://github.com/NVIDIA/apex, `apex/fused_dense/fused_dense.py` and `csrc/fused_dense.cpp`
    """
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    result = kernel(rows, up.weight.contiguous(), up.bias, down.weight.contiguous(), down.bias)
    return differentiable_once(result).view(*x.shape[:-1], down.out_features)


def mlp_through_flash_attn(kernel: Callable[..., torch.Tensor], x: torch.Tensor, up: Any, down: Any) -> torch.Tensor:
    """Call flash-attn's kernel; the activation's input is kept where a backward pass will ask for it.

    Source: https://github.com/Dao-AILab/flash-attention, `flash_attn/ops/fused_dense.py`
    """
    kept = torch.is_grad_enabled()
    weights = up.weight, down.weight, up.bias, down.bias
    return differentiable_once(kernel(x, *weights, activation="gelu_approx", save_pre_act=kept))


def apex_gelu_mlp_implementation(
    x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None
) -> str:
    """Name of what runs for these arguments: "apex" or "reference"."""
    fits = _mlp_fits(x, up, down, activation, dropout)
    return "apex" if fits and _apex_mlp_kernel() is not None else "reference"


def flash_gelu_mlp_implementation(
    x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None
) -> str:
    """Name of what runs for these arguments: "flash-attn" or "reference"."""
    fits = _mlp_fits(x, up, down, activation, dropout)
    return "flash-attn" if fits and _flash_mlp_kernel() is not None else "reference"


def _mlp_fits(x: torch.Tensor, up: Any, down: Any, activation: Any, dropout: Any) -> bool:
    """Whether the kernels compute this: cuBLASLt's GELU is that by tanh, of sizes that are multiples of 8."""
    idle = dropout is None or (is_plain(dropout, nn.Dropout) and not (dropout.training and dropout.p))
    if not idle or not all(is_plain(one, nn.Linear) and one.bias is not None for one in (up, down)):
        return False
    if not on_one_gpu(x, up.weight, up.bias, down.weight, down.bias) or x.dtype not in _HALF:
        return False
    fits = x.shape[-1] == up.in_features and up.out_features == down.in_features
    fits = fits and not any(one % 8 for one in (up.in_features, up.out_features, down.out_features))
    return fits and (activation is None or activation_kind(activation) == "gelu-tanh")


def _apex_mlp_kernel() -> Any:
    found = library_function("apex.fused_dense.fused_dense", "FusedDenseGeluDenseFunc", "fused_dense_cuda")
    return None if found is None else found.apply  # type: ignore[attr-defined]


def _flash_mlp_kernel() -> Any:
    return library_function("flash_attn.ops.fused_dense", "fused_mlp_func", "fused_dense_lib")
