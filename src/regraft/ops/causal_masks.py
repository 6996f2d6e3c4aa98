"""Recognition of causal masks by their elements."""

from __future__ import annotations

import math

import torch

from regraft.ops.plain import are_kernels_forced, are_tensors, can_read

# On CPU, PyTorch's kernel looks at 512 keys at a time, and leaves out blocks that no query sees;
# with fewer keys the mask costs nothing.
_FEWEST_KEYS = 513
_BLOCK = 128  # number of rows that are looked at together
VANISHING = -750.0  # the exponential of this is zero in every dtype


def is_causal(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float
) -> bool:
    """Return whether `softmax(scale * query @ key.transpose(-1, -2) + mask, -1) @ value` is causal
    attention, and faster as such.

    Shapes: `query` is `(..., L, E)`, `key` `(..., S, E)`, `value` `(..., S, V)`, and the mask
    broadcasts to `(..., L, S)`. It has to be 0 up to its diagonal, and above so low that no weight
    is left, whatever the scores. Query, key and value have to be finite: the kernel does not look
    at hidden keys, whose NaN or infinity reaches every result of the composition. On other devices
    than CPU, where elements cannot be read, and for a scale that is not above 0, with which the
    kernel of PyTorch 2.13 gives NaN, the answer is False.
    """
    if not mask.is_cpu or scale <= 0 or not can_read() or not are_tensors(query, key, value, mask):
        return False
    if mask.dim() < 2 or mask.shape[-2] != mask.shape[-1] or mask.requires_grad:
        return False
    if mask.shape[-1] < (2 if are_kernels_forced() else _FEWEST_KEYS):
        return False
    mask = _without_repetitions(mask)
    if bool((mask[..., 0, -1] > VANISHING).any()) or bool((mask[..., -1, 0] != 0).any()):
        return False
    if not bool(value.detach().sum().isfinite()):
        return False
    largest_score = scale * query.shape[-1] * _largest(query) * _largest(key)
    return math.isfinite(largest_score) and _hides_later_keys(mask, VANISHING - 2 * largest_score)


def _largest(tensor: torch.Tensor) -> float:
    """Return the largest absolute value of the elements; NaN if an element is NaN."""
    lowest, highest = tensor.detach().aminmax()
    return float(torch.maximum(-lowest, highest))


def _without_repetitions(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask with a single entry in the place of equal entries in the leading dimensions."""
    for dimension in range(mask.dim() - 2):
        if not mask.stride(dimension):
            mask = mask.narrow(dimension, 0, 1)
    return mask


def _hides_later_keys(mask: torch.Tensor, highest: float) -> bool:
    """Return whether a square mask is 0 up to its diagonal, and at most `highest` above."""
    above = torch.ones(_BLOCK, _BLOCK, dtype=torch.bool, device=mask.device).triu(1)
    for start in range(0, mask.shape[-1], _BLOCK):
        rows = mask[..., start : start + _BLOCK, :]
        size = rows.shape[-2]
        diagonal = rows[..., start : start + size]
        is_right = torch.where(above[:size, :size], diagonal <= highest, diagonal == 0)
        before, after = rows[..., :start], rows[..., start + size :]
        if (
            not bool(is_right.all())
            or (before.numel() and any(float(number) for number in before.aminmax()))  # NaN is true
            or (after.numel() and not float(after.amax()) <= highest)
        ):
            return False
    return True
