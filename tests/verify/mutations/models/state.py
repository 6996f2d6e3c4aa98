"""What a module has besides its outputs: weights that are shared, caches, hooks, random numbers,
graphs."""

import torch
import torch.nn.functional as F
from torch import nn


class TiedHead(nn.Module):
    """The head is the embedding."""

    def __init__(self, vocab_size=29, hidden_size=32):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, hidden_size)
        self.head = nn.Linear(hidden_size, vocab_size, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


class TwoHeads(nn.Module):
    """Two heads of one shape with weights of their own."""

    def __init__(self, hidden_size=32):
        super().__init__()
        self.left = nn.Linear(hidden_size, 8)
        self.right = nn.Linear(hidden_size, 8)

    def forward(self, x):
        return self.left(x) * torch.sigmoid(self.right(x))


class Positions(nn.Module):
    """Positions in a persistent buffer, added to what comes in."""

    def __init__(self, hidden_size=32, positions=64):
        super().__init__()
        angle = torch.arange(positions)[:, None] / 10.0 ** torch.linspace(0, 4, hidden_size)[None]
        self.register_buffer("table", torch.sin(angle))
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, x):
        return self.norm(x + self.table[: x.shape[1]].to(x.dtype))


class Gate(nn.Module):
    def __init__(self, hidden_size=32):
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.gate = nn.Linear(hidden_size, hidden_size)
        self.act = nn.Sigmoid()

    def forward(self, x):
        h = self.norm(x)
        return x * self.act(self.gate(h))


class Mixer(nn.Module):
    """Mixes along the length by a fixed decay; its result is viewed by its user."""

    def __init__(self, hidden_size=32):
        super().__init__()
        self.decay = nn.Parameter(torch.full((hidden_size,), 0.5))
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        weights = torch.sigmoid(self.decay)
        h = torch.cumsum(x * weights, dim=1)
        return self.out(h)


class Flattened(nn.Module):
    """The later view needs what the projection returns to be contiguous."""

    def __init__(self, hidden_size=32, heads=4):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(hidden_size, hidden_size)

    def states(self, x):
        return self.project(x).tanh()

    def forward(self, x):
        return self.states(x).view(x.shape[0] * x.shape[1] * self.heads, -1).sum(-1)


class Smooth(nn.Module):
    """Smooth everywhere: second derivatives exist, as gradient penalties need."""

    def __init__(self, hidden_size=32):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        return F.softplus(self.dense(x)) * torch.tanh(x)


class Noisy(nn.Module):
    """Random only while it trains."""

    def __init__(self, hidden_size=32, p=0.3):
        super().__init__()
        self.p = p
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        return self.dense(F.dropout(x, self.p, self.training))
