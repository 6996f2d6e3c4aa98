"""Layer normalisation over the channels of images, which are dimension 1."""

from __future__ import annotations

import torch
from torch.nn import functional


def channels_first_layer_norm(x: torch.Tensor, *, eps: float) -> torch.Tensor:
    """`(x - mean(x, 1)) / sqrt(var(x, 1) + eps)` with the biased variance.

    Shapes: `x` is `(N, C, ...)`, the result as `x`, with its layout. Channels that do not lie together in memory are
    copied so that they do, and back. In training that pays, because the composition keeps five tensors for the
    backward pass and the kernel one; in inference it does not, so there the composition runs.
    """
    if channels_first_layer_norm_implementation(x) != "torch-native":
        return channels_first_layer_norm_reference(x, eps=eps)
    result = functional.layer_norm(x.movedim(1, -1), (x.shape[1],), eps=eps).movedim(-1, 1)
    return result.contiguous() if x.is_contiguous() else result


def channels_first_layer_norm_reference(x: torch.Tensor, *, eps: float) -> torch.Tensor:
    """The composition that the op replaces."""
    centred = x - torch.mean(x, 1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(1, keepdim=True) + eps)


def channels_first_layer_norm_implementation(x: torch.Tensor) -> str:
    """Name of what runs for this argument: "torch-native" or "reference"."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.dim() < 2 or not x.numel():
        return "reference"
    together = x.stride(1) == 1
    apart = x.is_contiguous() and torch.is_grad_enabled() and x.requires_grad
    return "torch-native" if together or apart else "reference"
