"""A Linear layer, GELU by tanh and a Linear layer, by fused kernels of NVIDIA's Apex or
flash-attn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.activation_recognition import activation_kind
from regraft.ops.plain import differentiable_once, is_plain, library_function, on_one_gpu

_MLP_DTYPES = (torch.float16, torch.bfloat16)


def apex_gelu_mlp(
    x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None
) -> torch.Tensor:
    """Return `down(dropout(activation(up(x))))`, by the kernel of
    `apex.fused_dense.FusedDenseGeluDense`.

    Shapes: `x` is `(..., up.in_features)`, the result `(..., down.out_features)`. `up`, `down`,
    `activation` and `dropout` are the model's own; None for `activation` stands for
    `torch.nn.functional.gelu` by tanh, None for `dropout` for no dropout. The kernel takes plain
    `torch.nn.Linear` with a bias, a GELU by tanh, a dropout that does nothing, and half precision
    on CUDA; it applies bias and GELU within the first product. Any other arguments, and all
    arguments where Apex is not installed, run as the model's own calls.
    """
    if apex_gelu_mlp_implementation(x, up, down, activation, dropout) != "apex":
        return gelu_mlp_reference(x, up, down, activation, dropout)
    return mlp_through_apex(_apex_mlp_kernel(), x, up, down)


def flash_gelu_mlp(
    x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None
) -> torch.Tensor:
    """Return the result of `apex_gelu_mlp` for the same arguments, by
    `flash_attn.ops.fused_dense.fused_mlp_func`."""
    if flash_gelu_mlp_implementation(x, up, down, activation, dropout) != "flash-attn":
        return gelu_mlp_reference(x, up, down, activation, dropout)
    return mlp_through_flash_attn(_flash_mlp_kernel(), x, up, down)


def gelu_mlp_reference(
    x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None
) -> torch.Tensor:
    """Compute the composition that the ops replace, with all modules called as the model calls
    them."""
    hidden = up(x)
    hidden = (
        functional.gelu(hidden, approximate="tanh") if activation is None else activation(hidden)
    )
    result: torch.Tensor = down(hidden if dropout is None else dropout(hidden))
    return result


apex_gelu_mlp_reference = gelu_mlp_reference
flash_gelu_mlp_reference = gelu_mlp_reference


def mlp_through_apex(
    kernel: Callable[..., torch.Tensor], x: torch.Tensor, up: Any, down: Any
) -> torch.Tensor:
    """Call Apex' kernel, which takes an input of two dimensions; `x` is `(..., up.in_features)`.

    Source: https://github.com/NVIDIA/apex, `apex/fused_dense/fused_dense.py` and
    `csrc/fused_dense.cpp`
    """
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    result = kernel(rows, up.weight.contiguous(), up.bias, down.weight.contiguous(), down.bias)
    return differentiable_once(result).view(*x.shape[:-1], down.out_features)


def mlp_through_flash_attn(
    kernel: Callable[..., torch.Tensor], x: torch.Tensor, up: Any, down: Any
) -> torch.Tensor:
    """Call flash-attn's kernel, which saves the input of the activation if gradients are enabled.

    Source: https://github.com/Dao-AILab/flash-attention, `flash_attn/ops/fused_dense.py`
    """
    saves_input = torch.is_grad_enabled()
    weights = up.weight, down.weight, up.bias, down.bias
    return differentiable_once(
        kernel(x, *weights, activation="gelu_approx", save_pre_act=saves_input)
    )


def apex_gelu_mlp_implementation(
    x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None
) -> str:
    """Name the implementation for these arguments: "apex" or "reference"."""
    fits = _mlp_fits(x, up, down, activation, dropout)
    return "apex" if fits and _apex_mlp_kernel() is not None else "reference"


def flash_gelu_mlp_implementation(
    x: torch.Tensor, up: Any, down: Any, activation: Any = None, dropout: Any = None
) -> str:
    """Name the implementation for these arguments: "flash-attn" or "reference"."""
    fits = _mlp_fits(x, up, down, activation, dropout)
    return "flash-attn" if fits and _flash_mlp_kernel() is not None else "reference"


def _mlp_fits(x: torch.Tensor, up: Any, down: Any, activation: Any, dropout: Any) -> bool:
    """Return whether the kernels take these arguments: cuBLASLt computes GELU by tanh, for sizes of
    multiples of 8."""
    dropout_is_idle = dropout is None or (
        is_plain(dropout, nn.Dropout) and not (dropout.training and dropout.p)
    )
    if not dropout_is_idle or not all(
        is_plain(layer, nn.Linear) and layer.bias is not None for layer in (up, down)
    ):
        return False
    if not on_one_gpu(x, up.weight, up.bias, down.weight, down.bias) or x.dtype not in _MLP_DTYPES:
        return False
    fits = x.shape[-1] == up.in_features and up.out_features == down.in_features
    fits = fits and not any(
        size % 8 for size in (up.in_features, up.out_features, down.out_features)
    )
    return fits and (activation is None or activation_kind(activation) == "gelu-tanh")


def _apex_mlp_kernel() -> Any:
    """Return Apex' kernel; None where it is not installed or does not load."""
    function = library_function(
        "apex.fused_dense.fused_dense", "FusedDenseGeluDenseFunc", "fused_dense_cuda"
    )
    return None if function is None else function.apply  # type: ignore[attr-defined]


def _flash_mlp_kernel() -> Any:
    """Return flash-attn's kernel; None where it is not installed or does not load."""
    return library_function("flash_attn.ops.fused_dense", "fused_mlp_func", "fused_dense_lib")
