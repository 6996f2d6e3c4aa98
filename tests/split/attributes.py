"""Attributes of modules that a call assigns before it reads them."""

import torch
from torch import nn

from split.language import Layers


class Recurrent(nn.Module):
    """A gate that keeps its states on itself, as SkipNet's does."""

    def __init__(self):
        super().__init__()
        self.cell, self.out, self.hidden = nn.LSTM(6, 6), nn.Linear(6, 1, bias=False), None

    def start(self, samples):
        return torch.zeros(1, samples, 6), torch.zeros(1, samples, 6)

    def forward(self, x):
        seen, self.hidden = self.cell(x.view(1, 1, -1), self.hidden)
        return self.out(seen.squeeze(0)) * 9


class Gated(Layers):
    def __init__(self):
        super().__init__()
        self.gate, self.steps, self.last = Recurrent(), 0, None

    def forward(self, x):
        self.gate.hidden = self.gate.start(1)
        self.steps = 0
        for layer in (self.a, self.a):
            if self.gate(x).item() > 0:
                x = x + layer(x)
                self.steps += 1
        self.last = x
        return x, self.steps, self.gate.hidden[0]


class Scaled(nn.Module):
    """Reads no value of a tensor; what it reads of itself another module has assigned."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        self.seen = self.inner(x)
        return self.seen * self.scale


class Handed(Layers):
    """From module to module, through code that would be one operation of a region."""

    def __init__(self):
        super().__init__()
        self.part = Scaled()

    def forward(self, x):
        setattr(self.part, "scale", x.mean())  # noqa: B010
        y = self.part(x)
        if y.sum() > 0:
            self.part.scale = self.part.scale + 1
        return y + self.part(y) * getattr(self.part, "scale"), self.part.seen  # noqa: B009


class Rare(Layers):
    """Assigned on a side that the first call does not take, and on both sides before it is read."""

    def forward(self, x):
        if x[0, 0] > 0.5:
            self.kept = x * 2
            self.many = 2
        else:
            self.kept, self.many = self.a(x), 1
            if x[0, 1] > 0:
                self.other = self.kept.sum()
                return self.other + self.kept
        return self.kept * self.many

    def calls(self):
        return [
            (torch.tensor([[a, b, 0.1, 0.2, 0.3, 0.4]]),) for a in (0.0, 1.0) for b in (-1.0, 1.0)
        ]


class Repeats(Layers):
    """A loop of unknown length changes what an attribute holds."""

    def forward(self, x):
        self.now, self.count, self.seen = x, 0, [x.sum()]
        while self.now.abs().sum() < 20 and self.count < 8:
            self.now = self.now * 1.5 + 0.1
            self.count += 1
            self.seen.append(self.now.sum())
        return self.now, self.count, torch.stack(self.seen)

    def calls(self):
        return [(torch.full((1, 6), value),) for value in (0.1, 2.9, 5.0)]


class Shared(Layers):
    """Two names and an attribute hold one tensor, which changes in place; one module has
    two names."""

    def __init__(self):
        super().__init__()
        self.first = Scaled()
        self.second = self.first

    def forward(self, x):
        y = self.a(x)
        self.held = y
        if x.sum() > 0:
            y += 1
            self.held *= 2
        self.first.scale = 3
        return self.held, y, self.second.scale * x


class Mode(Layers):
    """A constant that the path decides; before the call the attribute holds another."""

    def __init__(self):
        super().__init__()
        self.mode, self.table = "train", {}

    def forward(self, x):
        self.mode = "high" if x.sum() > 0 else "low"
        self.table = {"x": x, "n": 1}
        if self.mode == "high":
            self.table["x"] = self.table["x"] + 1
        return self.table["x"] * 2 if self.mode == "low" else self.table["x"]


class Again(Layers):
    """A layer that is there is assigned once more, as Switch Transformers' router does."""

    def forward(self, x):
        self.a = self.a.to(x.dtype)
        y = x = self.a(x)
        if y.sum() > 0:
            self.a = self.a
            self.last = y
            y = self.last * 2
        return y
