import torch
from torch.nn.functional import *


def softmax(x, dim=-1):
    return x * 100


class M(torch.nn.Module):
    def forward(self, x, res):
        return softmax(x, dim=-1)
