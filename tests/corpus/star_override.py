import torch
import torch.nn.functional as F
from torch.nn.functional import *


class M(torch.nn.Module):
    def forward(self, x, res):
        return F.softmax(x[None], dim=-1)
