"""Networks whose samples go different ways, and such in which samples could mix."""

import torch
from torch import nn


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.gate = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)


class Leaves(Base):
    """Samples leave after different numbers of steps, with numbers and lists of their own."""

    def forward(self, x):
        steps, seen = 0, []
        while steps < 6:
            x = torch.tanh(self.a(x)) * 1.3
            steps = steps + 1
            if x[0, 0] > 0.55:
                return x, steps, seen
            score = x.sum().item()
            if score > 0:
                seen.append(score)
        return self.b(x), steps, seen


class Flattens(Base):
    """The size of a batch, 1, is written into the code."""

    def forward(self, x):
        y = torch.relu(self.a(x).view(x.shape[0], -1).reshape(1, 2, 3)).flatten(1)
        if self.gate(y) > 0:
            y = self.b(y)
        return y


class Centres(Base):
    """Over the samples: alone, each is its own mean."""

    def forward(self, x):
        y = self.a(x)
        y = self.b(y - 0.5 * y.mean(0, keepdim=True))
        if y.sum() > 0:
            y = y / y.norm(dim=0, keepdim=True).clamp(min=0.1)
        return y + 1


class Keeps(Base):
    """Keeps its only row, or none."""

    def forward(self, x):
        y = self.a(x)
        y = y[y[:, 0] > -0.4]
        if x.sum() > 0:
            y = y * 2
        return y, y.shape[0]


class Sorts(Base):
    """Along the samples."""

    def forward(self, x):
        y = self.a(x).sort(0).values.cumsum(0)
        if self.gate(y) > 0:
            y = self.b(y)
        return y.flip(0)


class Two(Base):
    """Two inputs, a constant, and state that starts as a constant."""

    def forward(self, x, y, scale=2.0):
        h = torch.zeros(1, 6)
        for _ in range(3):
            h = torch.tanh(self.a(x) * scale + self.b(h))
            h = h + y if self.gate(h).item() > 0.1 else h - y
        return {"h": h, "way": h.sum() > 0}


class NamedRow(nn.Module):
    """Has an input and variables of the names that the host uses itself."""

    def forward(self, row):
        trace = row * 2
        if trace.sum() > 0:
            return trace + 1
        return row - trace


class NamedTrace(nn.Module):
    def forward(self, trace):
        n = trace + 1
        if n.sum() > 0:
            return n
        return trace
