import torch
from torch.nn.functional import *


softmax = lambda x, dim=-1: x * 100


class M(torch.nn.Module):
    def forward(self, x, res):
        return softmax(x, dim=-1)
