"""Small networks that decide by values, and ill-formed ones."""

import dataclasses

import torch
from torch import nn


class Exits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])
        self.heads = nn.ModuleList([nn.Linear(6, 3) for _ in range(4)])

    def forward(self, x):
        seen = []
        for number, (block, head) in enumerate(zip(self.blocks, self.heads, strict=True)):
            x = torch.tanh(block(x)) * 2
            y = head(x)
            seen.append(number)
            if torch.softmax(y, 1).max() >= 0.5:
                return y, seen
        return y, seen


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(5)])
        self.gate = nn.Linear(6, 1)

    def forward(self, x):
        taken = []
        for block in self.blocks:
            if self.gate(x).item() > 0:
                x = x + torch.relu(block(x))
                taken.append(1)
            else:
                taken.append(0)
        return x, taken


class Tower(nn.Module):
    """Twelve equal blocks, each of which may be the last."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 6)) for _ in range(12)]
        )

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = (block(x) + x) % 3
            if x.sum() > 13:
                return x, number
        return x, -1


class Bessel(nn.Module):
    """A region that ONNX has no operator for, behind one that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        x = torch.tanh(self.a(x))
        if x.sum() > 0:
            return torch.special.bessel_j0(x * 2)
        return x


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(9, 8), nn.GRUCell(8, 8), nn.Linear(8, 9)

    def forward(self, h):
        token = torch.zeros(1, dtype=torch.long)
        words = []
        while len(words) < 12:
            h = self.cell(self.embed(token), h)
            token = self.out(h * 5).argmax(1)
            words.append(token)
            if token.item() == 3:
                break
        return torch.cat(words)


class ExpertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 4)
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])

    def forward(self, x):
        p = torch.softmax(self.router(x), -1)
        i = int(p.argmax(-1))
        return x + p[:, i] * self.experts[i](x), i


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([ExpertLayer() for _ in range(2)])

    def forward(self, x):
        used = []
        for layer in self.layers:
            x, i = layer(x)
            used.append(i)
        return x.sum(1), used


class Rare(nn.Module):
    def forward(self, x):
        if x.abs().sum() > 1e9:
            return x * 2
        return x


class Gate(nn.Module):
    def forward(self, x):
        if x.item() > 0:
            return x * 2
        return x


class Note(nn.Module):
    def forward(self, x):
        self.seen = x.dtype
        return x + 1


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.note = Note()

    def forward(self, x):
        x = self.note(x)
        if x.sum().item() > 0:
            return x * 2
        return x


class Twins(nn.Module):
    def forward(self, x):
        if x.sum().item() >= 1.0:
            return x * 2
        return x + x


class Doubles(nn.Module):
    def forward(self, x):
        while x.item() < 9.0:
            x = x * 2
        return x


class Solver(nn.Module):
    """Goes on until a function of its caller changes little."""

    def forward(self, function, x):
        steps = 0
        while steps < 9:
            y = function(x)
            near = (y - x).abs().max() < 0.2
            x, steps = y, steps + 1
            if near:
                break
        return x, steps


@dataclasses.dataclass
class Output:
    last: torch.Tensor
    states: tuple
    first: torch.Tensor | None = None


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        y = self.inner(x)
        return Output(torch.tanh(y), (x, y))


# a file with a network that decides once, for the command
ROWS_FILE = """
import torch

class Rows(torch.nn.Module):
    def forward(self, x):
        return x.exp() if x.sum() > 0 else x

def build():
    return Rows().eval(), [(torch.ones(3, 2),), (-torch.ones(3, 2),)]
"""


class OneDecision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else x
