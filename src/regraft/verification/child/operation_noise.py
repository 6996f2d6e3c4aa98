"""The roundings of a computation as random numbers: each operation's result is moved by one
rounding (stochastic arithmetic; J. Vignes, "A stochastic arithmetic for reliable scientific
computation", 1993)."""

from __future__ import annotations

from typing import Any

import torch

from regraft.verification.child.call_variants import move_by_rounding
from regraft.verification.child.operation_result_mode import ResultMode

# operations of ATen that round; others copy numbers, choose some or are exact
_ROUNDING = frozenset(
    """
    add addbmm addcdiv addcmul addmm addmv baddbmm bmm convolution convolution_backward cumsum div
    dot einsum erf exp expm1 gelu gelu_backward linear log log1p log_softmax logsumexp matmul mean
    mkldnn_linear mm mul mv native_batch_norm native_batch_norm_backward native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward norm pow prod
    reciprocal rsqrt rsub scaled_dot_product_flash_attention_for_cpu
    scaled_dot_product_flash_attention_for_cpu_backward sigmoid sigmoid_backward silu silu_backward
    softmax sqrt std sub sum tanh tanh_backward var
    """.split()  # noqa: SIM905  a list of 55 lines says no more
)


class OperationNoise(ResultMode):
    """Moves the results of operations that round by one unit in the last place, up or down, while
    it is active; whole numbers, which are mostly exact, stay."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def pass_on(self, operation: Any, result: Any) -> Any:
        """Return the results of an operation, moved by a rounding if the operation rounds."""
        if operation.overloadpacket.__name__.lstrip("_") not in _ROUNDING:
            return result
        if isinstance(result, tuple):
            return tuple(map(self._moved, result))
        return self._moved(result)

    def _moved(self, result: Any) -> Any:
        """Return a result with each of its numbers moved by a rounding, except those that would
        become infinite; anything but a dense floating tensor that is not all whole numbers stays as
        it is."""
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return result
        if (
            not result.numel()
            or result.layout != torch.strided
            or bool((result == result.round()).all())
        ):
            return result
        moved = move_by_rounding(result, self._generator)
        return torch.where(moved.isfinite(), moved, result)
