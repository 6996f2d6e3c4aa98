"""Glue between models and kernels that no library offers: pure functions, each with the composition
that it replaces.

The ops take the model's own modules; see docs/decisions/0001-ops-take-modules.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

from regraft.ops.activation_recognition import is_gelu as is_gelu
from regraft.ops.add_rms_norm import add_rms_norm as add_rms_norm
from regraft.ops.apex_norm import apex_layer_norm as apex_layer_norm
from regraft.ops.apex_norm import apex_rms_norm as apex_rms_norm
from regraft.ops.attention import attention as attention
from regraft.ops.attention_without_weights import (
    attention_without_weights as attention_without_weights,
)
from regraft.ops.channels_first_layer_norm import (
    channels_first_layer_norm as channels_first_layer_norm,
)
from regraft.ops.conv_batch_norm import conv_batch_norm as conv_batch_norm
from regraft.ops.conv_of_patches import conv_of_patches as conv_of_patches
from regraft.ops.cross_entropy import cross_entropy as cross_entropy
from regraft.ops.diagonal import between_diagonals as between_diagonals
from regraft.ops.diagonal import diagonal_matmul as diagonal_matmul
from regraft.ops.diagonal import diagonals_matmul as diagonals_matmul
from regraft.ops.diagonal import matmul_diagonal as matmul_diagonal
from regraft.ops.diagonal import matmul_diagonals as matmul_diagonals
from regraft.ops.diagonal import product_diagonal as product_diagonal
from regraft.ops.diagonal import product_trace as product_trace
from regraft.ops.dropout_add_layer_norm import dropout_add_layer_norm as dropout_add_layer_norm
from regraft.ops.enlarged_parts import expanded_part as expanded_part
from regraft.ops.enlarged_parts import interleaved_part as interleaved_part
from regraft.ops.enlarged_parts import interleaved_rows_part as interleaved_rows_part
from regraft.ops.enlarged_parts import repeated_part as repeated_part
from regraft.ops.enlarged_parts import rows_part as rows_part
from regraft.ops.experts import experts as experts
from regraft.ops.flash_attention import flash_attention as flash_attention
from regraft.ops.flash_norm import flash_add_layer_norm as flash_add_layer_norm
from regraft.ops.flash_norm import flash_add_layer_norm_pair as flash_add_layer_norm_pair
from regraft.ops.functional_layer_norm import functional_layer_norm as functional_layer_norm
from regraft.ops.fused_rotary import te_rotary as te_rotary
from regraft.ops.gated_activation import gated_activation as gated_activation
from regraft.ops.gated_activation import gated_product as gated_product
from regraft.ops.gated_activation import open_gate as open_gate
from regraft.ops.gated_halves import gated_halves as gated_halves
from regraft.ops.gated_linear import gated_linear as gated_linear
from regraft.ops.gelu_mlp import apex_gelu_mlp as apex_gelu_mlp
from regraft.ops.gelu_mlp import flash_gelu_mlp as flash_gelu_mlp
from regraft.ops.group_norm import group_norm as group_norm
from regraft.ops.grouped_experts import grouped_experts as grouped_experts
from regraft.ops.interleaved_rotary import interleaved_rotary as interleaved_rotary
from regraft.ops.layer_norm import layer_norm as layer_norm
from regraft.ops.length_normalize import length_normalize as length_normalize
from regraft.ops.linear_at import linear_at as linear_at
from regraft.ops.linear_batch_norm import linear_batch_norm as linear_batch_norm
from regraft.ops.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from regraft.ops.linear_gelu import linear_gelu as linear_gelu
from regraft.ops.linear_of_parts import linear_of_parts as linear_of_parts
from regraft.ops.linear_qkv import linear_qkv as linear_qkv
from regraft.ops.linear_recurrence import linear_recurrence as linear_recurrence
from regraft.ops.logits_cross_entropy import logits_cross_entropy as logits_cross_entropy
from regraft.ops.memory_efficient_attention import (
    memory_efficient_attention as memory_efficient_attention,
)
from regraft.ops.one_hot import one_hot_matmul as one_hot_matmul
from regraft.ops.one_hot import one_hot_rows as one_hot_rows
from regraft.ops.one_hot import one_hot_select as one_hot_select
from regraft.ops.pairwise_cosine import pairwise_cosine as pairwise_cosine
from regraft.ops.pairwise_cosine import pairwise_product as pairwise_product
from regraft.ops.pairwise_distance import distances as distances
from regraft.ops.pairwise_distance import squared_distances as squared_distances
from regraft.ops.postponed_linear import postponed_linear as postponed_linear
from regraft.ops.postponed_matmul import postponed_baddbmm as postponed_baddbmm
from regraft.ops.postponed_matmul import postponed_einsum as postponed_einsum
from regraft.ops.postponed_matmul import postponed_matmul as postponed_matmul
from regraft.ops.quick_gelu import quick_gelu as quick_gelu
from regraft.ops.recurrent_steps import recurrent_steps as recurrent_steps
from regraft.ops.repeated_heads import expanded_heads as expanded_heads
from regraft.ops.repeated_heads import repeated_heads as repeated_heads
from regraft.ops.rms_norm import rms_norm as rms_norm
from regraft.ops.rms_normalize import rms_normalize as rms_normalize
from regraft.ops.rolled_rotary import rolled_rotary as rolled_rotary
from regraft.ops.rotary import rotary as rotary
from regraft.ops.rotary import rotary_pair as rotary_pair
from regraft.ops.rotated_pairs import rotated_pairs as rotated_pairs
from regraft.ops.rounded_softmax import rounded_softmax as rounded_softmax
from regraft.ops.row_softmax import row_softmax as row_softmax
from regraft.ops.sequential import sequential as sequential
from regraft.ops.slices_along import slices_along as slices_along
from regraft.ops.smoothed_select import smoothed_select as smoothed_select
from regraft.ops.softmax import softmax as softmax
from regraft.ops.sorted_head import sorted_head as sorted_head
from regraft.ops.sorted_indices import sorted_indices as sorted_indices
from regraft.ops.standardize import standardize as standardize
from regraft.ops.standardize_along import standardize_along as standardize_along
from regraft.ops.substitute_rows import substitute_rows as substitute_rows
from regraft.ops.unfold_conv import unfold_conv as unfold_conv
from regraft.ops.unfold_conv import unfold_einsum as unfold_einsum
from regraft.ops.unfold_conv import unfold_linear as unfold_linear
from regraft.ops.variance import standard_deviation as standard_deviation
from regraft.ops.variance import variance as variance
from regraft.ops.variance import variance_and_mean as variance_and_mean

# The file of each op: of an exported function NAME beside which NAME_implementation is defined.
_FILES = {
    name: sys.modules[function.__module__]
    for name, function in sorted(globals().items())
    if isinstance(function, FunctionType)
    and hasattr(sys.modules[function.__module__], f"{name}_implementation")
}
REFERENCES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: getattr(file, f"{name}_reference") for name, file in _FILES.items()}
)
_IMPLEMENTATIONS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {name: getattr(file, f"{name}_implementation") for name, file in _FILES.items()}
)


def implementation(name: str, *arguments: Any, **options: Any) -> str:
    """Name the implementation of the op `name` for these arguments, such as "folded",
    "torch-native" or "liger".

    The name is "reference" for the composition that the op replaces. An unknown op raises KeyError.
    """
    return _IMPLEMENTATIONS[name](*arguments, **options)
