"""Mixture of gated experts, in a few grouped products of all experts by Liger's kernels."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch

from regraft.ops.activation_recognition import activation_kind
from regraft.ops.liger import LigerKernel, can_run_liger, liger_module

_ANY_SIZE = 1 << 30
_CONTEXT_SIZES = ("T", "K", "E", "H", "intermediate_dim", "TK", "num_m_tiles")


def experts(
    x: torch.Tensor,
    index: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    activation: Any,
    number: int,
) -> torch.Tensor:
    """Sum `weight * (down @ (activation(gate @ row) * (up @ row)))` for each row over its experts.

    Shapes: `x` and the result are `(T, H)`, `index` (numbers of experts) and `weights` are `(T,
    K)`, `gate_up` is `(E, 2 * I, H)` with the gate first, `down` `(E, H, I)`. `number` is E; the
    index E chooses no expert. `activation` is the model's own module or function, called as the
    model calls it unless it provably is SiLU. Liger's kernels take float32 (on CUDA only if
    PyTorch's products may use TF32, too) and half precision; they sum in float32.
    """
    if experts_implementation(x, index, weights, gate_up, down, activation, number) != "liger":
        return experts_reference(x, index, weights, gate_up, down, activation, number)
    return _experts_kernel()(x, gate_up, down, index, weights)


def experts_reference(
    x: torch.Tensor,
    index: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    activation: Any,
    number: int,
) -> torch.Tensor:
    """Compute the composition that the op replaces: one expert after the other, on the rows that
    chose it."""
    result = torch.zeros_like(x)
    with torch.no_grad():
        mask = torch.nn.functional.one_hot(index, num_classes=number + 1).permute(2, 1, 0)
        chosen = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for entry in chosen:
        expert = entry[0]
        if expert == number:
            continue
        choice, row = torch.where(mask[expert])
        gate, up = torch.nn.functional.linear(x[row], gate_up[expert]).chunk(2, dim=-1)
        contribution = (
            torch.nn.functional.linear(activation(gate) * up, down[expert])
            * weights[row, choice, None]
        )
        result.index_add_(0, row, contribution.to(result.dtype))
    return result


def experts_implementation(
    x: torch.Tensor,
    index: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    activation: Any,
    number: int,
) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    tensors = (x, gate_up, down, weights)
    if not all(isinstance(tensor, torch.Tensor) for tensor in (*tensors, index)):
        return "reference"
    if not can_run_liger(*tensors, columns=_ANY_SIZE) or not _liger_takes_dtypes(*tensors):
        return "reference"
    if activation_kind(activation, "none") != "silu":
        return "reference"
    if type(index) is not torch.Tensor or index.dtype != torch.int64 or index.device != x.device:
        return "reference"
    if torch.is_autocast_enabled(x.device.type) or not do_choices_fit(x, index, weights):
        return "reference"
    if not expert_width(x, gate_up, down, number) or liger_module("fused_moe") is None:
        return "reference"
    return "liger" if chooses_experts(index, number) else "reference"


def _liger_takes_dtypes(x: torch.Tensor, *tensors: torch.Tensor) -> bool:
    """Return whether all tensors have the dtype of `x`, and products of float32 on CUDA may use
    TF32, as Liger's do."""
    if any(tensor.dtype != x.dtype for tensor in tensors):
        return False
    needs_tf32 = x.is_cuda and x.dtype == torch.float32
    return not needs_tf32 or torch.backends.cuda.matmul.allow_tf32


def do_choices_fit(x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> bool:
    """Return whether `x` is `(T, H)`, and the indices of experts and their weights are `(T, K)`."""
    if x.dim() != 2 or index.dim() != 2:
        return False
    return bool(weights.shape == index.shape and index.shape[0] == x.shape[0])


def expert_width(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, number: int) -> int:
    """Return I for `gate_up` of the shape `(number, 2 * I, H)` and `down` of `(number, H, I)`; 0 if
    the shapes differ."""
    if gate_up.dim() != 3:
        return 0
    features, width = x.shape[1], gate_up.shape[1] // 2
    do_shapes_fit = gate_up.shape == (number, 2 * width, features)
    return width if do_shapes_fit and down.shape == (number, features, width) else 0


def chooses_experts(index: torch.Tensor, number: int) -> bool:
    """Return whether all indices, of which there is at least one, are less than `number` and not
    negative; the device is asked."""
    lowest_index, highest_index = index.aminmax()
    return bool(lowest_index.item() >= 0 and highest_index.item() < number)


class _LigerContext(SimpleNamespace):
    """The part of an autograd context that Liger's function uses; it holds tensors and sizes."""

    def save_for_backward(self, *tensors: torch.Tensor) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        pass


@functools.cache
def _experts_kernel() -> LigerKernel:
    """Make the kernel of the experts with SiLU; Liger has to be installed."""
    module = liger_module("fused_moe")
    assert module is not None
    function = module.LigerFusedMoEFunction

    def forward(
        x: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        index: torch.Tensor,
        weights: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        context = _LigerContext()
        result = function.forward(context, x, gate_up, down, index.to(torch.int32), weights)
        sizes = torch.tensor([getattr(context, name) for name in _CONTEXT_SIZES])
        return result, (*context.saved_tensors[3:], sizes)  # the first three are inputs

    def backward(
        inputs: tuple[torch.Tensor, ...], saved: tuple[torch.Tensor, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        *tensors, sizes = saved
        context = _LigerContext(
            saved_tensors=(*(tensor.contiguous() for tensor in inputs[:3]), *tensors)
        )
        for name, size in zip(_CONTEXT_SIZES, sizes.tolist(), strict=True):
            setattr(context, name, size)
        *gradients, _, weights = function.backward(context, gradient)
        return *gradients, None, weights

    def reference(
        x: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        index: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        silu = torch.nn.functional.silu
        return experts_reference(x, index, weights, gate_up, down, silu, gate_up.shape[0])

    return LigerKernel(forward, backward, reference)
