"""The model and its loss."""

import torch
from torch import nn
from torch.nn import functional as F

from .config import Config
from .layers import MLP, Attention, Norm


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.attention_norm = Norm(config.width, config.eps)
        self.attention = Attention(config)
        self.mlp_norm = Norm(config.width, config.eps)
        self.mlp = MLP(config)

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.attention_norm(x), cos, sin, mask)
        return x + self.mlp(self.mlp_norm(x))


class Storyteller(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.table = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = Norm(config.width, config.eps)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        size = config.width // config.heads
        frequencies = 10000.0 ** -(torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(config.context), frequencies).repeat(1, 2)
        mask = torch.full((config.context, config.context), float("-inf")).triu(1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens, targets=None):
        length = tokens.shape[1]
        x = self.table(tokens)
        cos, sin, mask = self.cos[:length], self.sin[:length], self.mask[:length, :length]
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
        return logits, loss
