import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.dense = nn.Linear(4, 4)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.dense(x))


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.block.act = nn.ReLU()

    def forward(self, x, res):
        return self.block(x)
