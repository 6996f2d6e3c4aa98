"""Networks that decide by the size of a slice between numbers that the host computes.

Each class has `calls`, the examples, and `rare`: calls that give other sizes. `Bounds` and its
classes have examples of both outcomes, `Hidden` and its classes of one outcome only: their examples
are right where the size is taken for a constant.
"""

import itertools

import torch
from torch import nn

PLACES = (-9, -8, -3, -1, 0, 1, 2, 5, 7, 8, 12)  # of eight rows


def pairs(bounds):
    return [(torch.randn(8, 4), torch.tensor(pair)) for pair in bounds]


class Bounds(nn.Module):
    def calls(self):
        return pairs([(0, 3), (2, 3), (1, 6), (5, 5), (4, 12), (-3, -1)])

    def rare(self):
        return pairs(itertools.product(PLACES, repeat=2))


class SingleRow(Bounds):
    def forward(self, x, b):
        s, e = b.tolist()
        y = x[s:e]
        if y.shape[0] == 1:
            return y * 2
        return y.sum(0, keepdim=True)


class LengthOfSlice(Bounds):
    def forward(self, x, b):
        y = x[int(b[0]) : int(b[1])]
        return y.sum(0) if len(y) > 2 else 3 - y.sum(0)


class NumberOfElements(Bounds):
    def forward(self, x, b):
        s, e = b.tolist()
        y = x[s:e]
        return y.sum(0) if y.numel() > 8 else x[0] * y.numel()


class RowByRow(Bounds):
    def forward(self, x, b):
        s, e = b.tolist()
        y, total = x[s:e], x[0] * 0
        for i in range(y.shape[0]):
            total = total + y[i] * (i + 1)
        return total


class EveryOther(Bounds):
    def forward(self, x, b):
        s, e = b.tolist()
        y = x[s:e:2]
        return y.sum(0) if y.size(0) == 1 else x[1] - y.sum(0)


class OfColumns(Bounds):
    def forward(self, x, b):
        s, e = b.tolist()
        y = x.t()[..., s:e]
        return y.sum(1) if y.shape[-1] > 2 else 3 - y.sum(1)


class FromTheStart(Bounds):
    def forward(self, x, b):
        n = int(b[1])
        y = x[:n]
        return y.sum(0) if len(y) > 4 else y.sum(0) * 2


class Narrowed(Bounds):
    def rare(self):
        return pairs([(1, 0), (0, 1), (4, 3), (2, 2), (-2, 9), (3, 4)])

    def forward(self, x, b):
        s, length = b.clamp(0, 4).tolist()
        y = x.narrow(0, s, length)
        return y.sum(0) if y.shape[0] == 3 else x[2] + y.sum(0)


class PairAfterPair(Bounds):
    def calls(self):
        return [(torch.randn(8, 4), torch.tensor(b)) for b in ([[0, 3], [2, 3]], [[1, 1], [0, 7]])]

    def rare(self):
        corners = list(itertools.product(PLACES[::2], repeat=2))
        return [(torch.randn(8, 4), torch.tensor(b)) for b in zip(corners, reversed(corners))]  # noqa: B905

    def forward(self, x, b):
        total = x[0] * 0
        for s, e in b.tolist():
            y = x[s:e]
            total = total + (y[0] * 3 if y.shape[0] == 1 else y.sum(0))
        return total


class Hidden(nn.Module):
    """Examples that give slices of one size each."""

    def calls(self):
        return pairs([(0, 3), (2, 5), (1, 4), (4, 7)])

    def rare(self):
        return pairs(itertools.product(PLACES, repeat=2))


class OneSize(Hidden):
    def forward(self, x, b):
        s, e = b.tolist()
        y = x[s:e]
        return y.sum(0) if y.shape[0] == 3 else y.sum(0) * 2


class BeyondTheEnd(Hidden):
    def calls(self):
        return pairs([(0, 9), (0, 12), (-20, 30)])

    def forward(self, x, b):
        s, e = b.tolist()
        y = x[s:e]
        return y.sum(0) if len(y) == 8 else y.sum(0) * 2


class PrefixBeyondTheEnd(BeyondTheEnd):
    def forward(self, x, b):
        y = x[: int(b[1])]
        return y.sum(0) if len(y) == 8 else y.sum(0) * 2


class SuffixBeyondTheStart(Hidden):
    def calls(self):
        return pairs([(-30, 0), (-20, 1), (-10, 2)])

    def forward(self, x, b):
        y = x[int(b[0]) :]
        return y.sum(0) if y.size(0) == 8 else y.sum(0) * 2


class InSteps(Hidden):
    """One number more or less gives as many rows."""

    def calls(self):
        return pairs([(6, 6), (6, 7), (7, 6)])

    def forward(self, x, b):
        y = x[: int(b[0]) : 4]
        return y.sum(0) if len(y) == 2 else y.sum(0) * 2


class AlwaysEmpty(Hidden):
    """Each number alone gives no row either."""

    def calls(self):
        return pairs([(30, -30), (20, -20)])

    def forward(self, x, b):
        s, e = b.tolist()
        y = x[s:e]
        return x[0] if y.numel() == 0 else y.sum(0)


class StepOfNumber(Hidden):
    def calls(self):
        return pairs([(9, 0), (10, 0), (12, 0)])

    def rare(self):
        return pairs([(step, 0) for step in range(1, 13)])

    def forward(self, x, b):
        y = x[:: int(b[0])]
        return y.sum(0) if y.shape[0] == 1 else y.sum(0) * 2


class Window(Hidden):
    def forward(self, x, b):
        n = int(b[0])
        y = x[n : n + 3]
        return y.sum(0) if y.shape[0] == 3 else y.sum(0) * 2


class BehindThreshold(Hidden):
    """No input near an example changes the bounds."""

    def calls(self):
        return [(torch.randn(8, 4),) for _ in range(6)]

    def rare(self):
        return [(torch.randn(8, 4) + shift,) for shift in (0.0, 2.5e6, 4.5e6, 6.5e6)]

    def forward(self, x):
        n = (x.abs().mean(1, keepdim=True)[:2, 0] / 1e6).long().tolist()
        y = x[n[0] : 2 + n[1] * 2]
        return y.sum(0) if y.shape[0] == 2 else y.sum(0) * 2


class RowsOfView(Hidden):
    """The number decides the size of a view."""

    def calls(self):
        return pairs([(4, 4), (4, 4)])

    def rare(self):
        return pairs([(rows, 0) for rows in (1, 2, 4, 8, 16, 32)])

    def forward(self, x, b):
        y = x.reshape(int(b[0]), -1)
        return y.sum() if y.shape[0] == 4 else y.sum() * 2


class AsManyAsChosen(Hidden):
    """The number is a size that values decide, larger than the tensor that is cut."""

    def calls(self):
        return [
            (torch.randn(3, 4), torch.where(torch.arange(12) < n, 1.0, -1.0)) for n in (9, 8, 7)
        ]

    def rare(self):
        return [
            (torch.randn(3, 4), torch.where(torch.arange(12) < n, 1.0, -1.0)) for n in range(13)
        ]

    def forward(self, x, weights):
        chosen = weights[weights > 0]
        y = x[: len(chosen)]
        return y.sum(0) if y.shape[0] == 3 else y.sum(0) * 2


class BehindChosen(Hidden):
    """The slice grows with what is not chosen, of the same input."""

    def calls(self):
        return [(torch.randn(8, 4), torch.tensor(3)), (torch.randn(8, 4), torch.tensor(3))]

    def rare(self):
        return [(torch.randn(8, 4), torch.tensor(n)) for n in (-2, 0, 1, 3, 5, 8, 9)]

    def forward(self, x, n):
        chosen = x[x[:, 0] > 0]
        s = len(chosen)
        e = s + int(n)
        y = x[s:e]
        return y.sum(0) if len(y) == 3 else y.sum(0) * 2


class AroundChosen(Hidden):
    """The bounds are sizes that values decide, and the tensor that is cut has such a size."""

    def calls(self):
        return [(torch.cat([torch.rand(n, 4) + 1, -torch.rand(5, 4)]),) for n in (4, 3, 6)]

    def rare(self):
        return [(torch.randn(n, 4),) for n in (1, 2, 3, 4, 9, 12, 15)]

    def forward(self, x):
        chosen = x[x[:, 0] > 0]
        y = x[chosen.shape[0] - 1 : chosen.shape[0] + 2]
        return y.sum(0) if len(y) == 3 else y.sum(0) * 2
