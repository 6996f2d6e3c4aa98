import torch
import torch.nn as nn
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import torch.nn.functional as F


class M(nn.Module):
    # layers

    def forward(self, x, res):
        v = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(v + 1e-6)
