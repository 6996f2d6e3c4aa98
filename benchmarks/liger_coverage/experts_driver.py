"""For `regraft verify --driver`: experts with an index that chooses none of them, which no model by itself gives.

regraft verify modeling_qwen3_moe.py --select liger/experts --driver experts_driver.py:experts
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import nn
from transformers import Qwen3MoeConfig

SIZES = {"hidden_size": 16, "moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2}


class _Experts(nn.Module):
    """A block of experts, and its experts by themselves."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.block = module.Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**SIZES, experts_implementation="eager"))

    def forward(self, x: Any, index: Any, weights: Any) -> Any:
        return self.block(x), self.block.experts(x[0], index, weights)


def experts(module: ModuleType) -> tuple[nn.Module, list[Any]]:
    """The model, and calls without and with such an index."""
    torch.manual_seed(0)
    model = _Experts(module)
    for one in model.parameters():
        one.data.normal_(std=0.3)
    return model, [_call(6), _call(9), _call(5, none=True)]


def _call(rows: int, none: bool = False) -> tuple[Any, ...]:
    index = torch.stack([torch.randperm(4)[:2] for _ in range(rows)])
    if none:
        index[1, 0] = 4
    return torch.randn(1, rows, 16), index, torch.rand(rows, 2)
