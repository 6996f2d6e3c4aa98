"""Glue between models and kernels that no library offers: pure functions, each with the composition
that it replaces.

The ops take the model's own modules; see docs/decisions/0001-ops-take-modules.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from regraft.ops.activations import is_gelu
from regraft.ops.add_rms_norm import (
    add_rms_norm,
    add_rms_norm_implementation,
    add_rms_norm_reference,
)
from regraft.ops.apex_norm import (
    apex_layer_norm,
    apex_layer_norm_implementation,
    apex_rms_norm,
    apex_rms_norm_implementation,
)
from regraft.ops.attention import attention, attention_implementation, attention_reference
from regraft.ops.channels_first_layer_norm import (
    channels_first_layer_norm,
    channels_first_layer_norm_implementation,
    channels_first_layer_norm_reference,
)
from regraft.ops.conv_batch_norm import (
    conv_batch_norm,
    conv_batch_norm_implementation,
    conv_batch_norm_reference,
)
from regraft.ops.cross_entropy import (
    cross_entropy,
    cross_entropy_implementation,
    cross_entropy_reference,
)
from regraft.ops.dropout_add_layer_norm import (
    dropout_add_layer_norm,
    dropout_add_layer_norm_implementation,
    dropout_add_layer_norm_reference,
)
from regraft.ops.experts import experts, experts_implementation, experts_reference
from regraft.ops.flash_attention import (
    flash_attention,
    flash_attention_implementation,
    flash_attention_reference,
)
from regraft.ops.flash_norm import (
    flash_add_layer_norm,
    flash_add_layer_norm_implementation,
    flash_add_layer_norm_pair,
    flash_add_layer_norm_pair_implementation,
    flash_add_layer_norm_pair_reference,
)
from regraft.ops.fused_rotary import (
    te_rotary,
    te_rotary_implementation,
    te_rotary_reference,
)
from regraft.ops.gated_activation import (
    gated_activation,
    gated_activation_implementation,
    gated_activation_reference,
    gated_product,
    gated_product_implementation,
    gated_product_reference,
    open_gate,
)
from regraft.ops.gated_linear import (
    gated_linear,
    gated_linear_implementation,
    gated_linear_reference,
)
from regraft.ops.gelu_mlp import (
    apex_gelu_mlp,
    apex_gelu_mlp_implementation,
    flash_gelu_mlp,
    flash_gelu_mlp_implementation,
    gelu_mlp_reference,
)
from regraft.ops.group_norm import group_norm, group_norm_implementation, group_norm_reference
from regraft.ops.grouped_experts import grouped_experts, grouped_experts_implementation
from regraft.ops.layer_norm import layer_norm, layer_norm_implementation, layer_norm_reference
from regraft.ops.linear_batch_norm import (
    linear_batch_norm,
    linear_batch_norm_implementation,
    linear_batch_norm_reference,
)
from regraft.ops.linear_cross_entropy import (
    linear_cross_entropy,
    linear_cross_entropy_implementation,
    linear_cross_entropy_reference,
)
from regraft.ops.linear_gelu import linear_gelu, linear_gelu_implementation, linear_gelu_reference
from regraft.ops.linear_qkv import linear_qkv, linear_qkv_implementation, linear_qkv_reference
from regraft.ops.memory_efficient_attention import (
    memory_efficient_attention,
    memory_efficient_attention_implementation,
    memory_efficient_attention_reference,
)
from regraft.ops.postponed_linear import (
    postponed_linear,
    postponed_linear_implementation,
    postponed_linear_reference,
)
from regraft.ops.postponed_matmul import (
    postponed_baddbmm,
    postponed_baddbmm_implementation,
    postponed_baddbmm_reference,
    postponed_einsum,
    postponed_einsum_implementation,
    postponed_einsum_reference,
    postponed_matmul,
    postponed_matmul_implementation,
    postponed_matmul_reference,
)
from regraft.ops.quick_gelu import quick_gelu, quick_gelu_implementation, quick_gelu_reference
from regraft.ops.rms_norm import rms_norm, rms_norm_implementation, rms_norm_reference
from regraft.ops.rolled_rotary import rolled_rotary, rolled_rotary_implementation
from regraft.ops.rotary import (
    rotary,
    rotary_implementation,
    rotary_pair,
    rotary_pair_implementation,
    rotary_pair_reference,
    rotary_reference,
)
from regraft.ops.rounded_softmax import (
    rounded_softmax,
    rounded_softmax_implementation,
    rounded_softmax_reference,
)
from regraft.ops.row_softmax import row_softmax, row_softmax_implementation, row_softmax_reference
from regraft.ops.softmax import softmax, softmax_implementation, softmax_reference

__all__ = [
    "REFERENCES",
    "add_rms_norm",
    "apex_gelu_mlp",
    "apex_layer_norm",
    "apex_rms_norm",
    "attention",
    "channels_first_layer_norm",
    "conv_batch_norm",
    "cross_entropy",
    "dropout_add_layer_norm",
    "experts",
    "flash_add_layer_norm",
    "flash_add_layer_norm_pair",
    "flash_attention",
    "flash_gelu_mlp",
    "gated_activation",
    "gated_linear",
    "gated_product",
    "group_norm",
    "grouped_experts",
    "implementation",
    "is_gelu",
    "layer_norm",
    "linear_batch_norm",
    "linear_cross_entropy",
    "linear_gelu",
    "linear_qkv",
    "memory_efficient_attention",
    "open_gate",
    "postponed_baddbmm",
    "postponed_einsum",
    "postponed_linear",
    "postponed_matmul",
    "quick_gelu",
    "rms_norm",
    "rolled_rotary",
    "rotary",
    "rotary_pair",
    "rounded_softmax",
    "row_softmax",
    "softmax",
    "te_rotary",
]

REFERENCES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add_rms_norm": add_rms_norm_reference,
        "apex_gelu_mlp": gelu_mlp_reference,
        "apex_layer_norm": layer_norm_reference,
        "apex_rms_norm": rms_norm_reference,
        "attention": attention_reference,
        "channels_first_layer_norm": channels_first_layer_norm_reference,
        "conv_batch_norm": conv_batch_norm_reference,
        "cross_entropy": cross_entropy_reference,
        "dropout_add_layer_norm": dropout_add_layer_norm_reference,
        "experts": experts_reference,
        "flash_add_layer_norm": dropout_add_layer_norm_reference,
        "flash_add_layer_norm_pair": flash_add_layer_norm_pair_reference,
        "flash_attention": flash_attention_reference,
        "flash_gelu_mlp": gelu_mlp_reference,
        "gated_activation": gated_activation_reference,
        "gated_linear": gated_linear_reference,
        "gated_product": gated_product_reference,
        "group_norm": group_norm_reference,
        "grouped_experts": experts_reference,
        "layer_norm": layer_norm_reference,
        "linear_batch_norm": linear_batch_norm_reference,
        "linear_cross_entropy": linear_cross_entropy_reference,
        "linear_gelu": linear_gelu_reference,
        "linear_qkv": linear_qkv_reference,
        "memory_efficient_attention": memory_efficient_attention_reference,
        "postponed_baddbmm": postponed_baddbmm_reference,
        "postponed_einsum": postponed_einsum_reference,
        "postponed_linear": postponed_linear_reference,
        "postponed_matmul": postponed_matmul_reference,
        "quick_gelu": quick_gelu_reference,
        "rms_norm": rms_norm_reference,
        "rolled_rotary": rotary_reference,
        "rotary": rotary_reference,
        "rotary_pair": rotary_pair_reference,
        "rounded_softmax": rounded_softmax_reference,
        "row_softmax": row_softmax_reference,
        "softmax": softmax_reference,
        "te_rotary": te_rotary_reference,
    }
)
_IMPLEMENTATIONS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {
        "add_rms_norm": add_rms_norm_implementation,
        "apex_gelu_mlp": apex_gelu_mlp_implementation,
        "apex_layer_norm": apex_layer_norm_implementation,
        "apex_rms_norm": apex_rms_norm_implementation,
        "attention": attention_implementation,
        "channels_first_layer_norm": channels_first_layer_norm_implementation,
        "conv_batch_norm": conv_batch_norm_implementation,
        "cross_entropy": cross_entropy_implementation,
        "dropout_add_layer_norm": dropout_add_layer_norm_implementation,
        "experts": experts_implementation,
        "flash_add_layer_norm": flash_add_layer_norm_implementation,
        "flash_add_layer_norm_pair": flash_add_layer_norm_pair_implementation,
        "flash_attention": flash_attention_implementation,
        "flash_gelu_mlp": flash_gelu_mlp_implementation,
        "gated_activation": gated_activation_implementation,
        "gated_linear": gated_linear_implementation,
        "gated_product": gated_product_implementation,
        "group_norm": group_norm_implementation,
        "grouped_experts": grouped_experts_implementation,
        "layer_norm": layer_norm_implementation,
        "linear_batch_norm": linear_batch_norm_implementation,
        "linear_cross_entropy": linear_cross_entropy_implementation,
        "linear_gelu": linear_gelu_implementation,
        "linear_qkv": linear_qkv_implementation,
        "memory_efficient_attention": memory_efficient_attention_implementation,
        "postponed_baddbmm": postponed_baddbmm_implementation,
        "postponed_einsum": postponed_einsum_implementation,
        "postponed_linear": postponed_linear_implementation,
        "postponed_matmul": postponed_matmul_implementation,
        "quick_gelu": quick_gelu_implementation,
        "rms_norm": rms_norm_implementation,
        "rolled_rotary": rolled_rotary_implementation,
        "rotary": rotary_implementation,
        "rotary_pair": rotary_pair_implementation,
        "rounded_softmax": rounded_softmax_implementation,
        "row_softmax": row_softmax_implementation,
        "softmax": softmax_implementation,
        "te_rotary": te_rotary_implementation,
    }
)


def implementation(name: str, *arguments: Any, **options: Any) -> str:
    """Name the implementation of the op `name` for these arguments, such as "folded",
    "torch-native" or "liger".

    The name is "reference" for the composition that the op replaces. An unknown op raises KeyError.
    """
    return _IMPLEMENTATIONS[name](*arguments, **options)
