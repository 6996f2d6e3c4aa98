from __future__ import annotations; from torch import nn
import torch


class M(nn.Module):
    def forward(self, x, res):
        return torch.softmax(x, dim=-1)
