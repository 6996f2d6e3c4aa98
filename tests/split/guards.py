"""`and`, `or` and conditional expressions whose left side keeps the right one from raising."""

import torch
from torch import nn


class Guarded(nn.Module):
    """`others` reach what no example does."""

    def calls(self):
        return [(torch.randn(5, 4),) for _ in range(16)]

    def others(self):
        return [torch.full((5, 4), value) for value in (2e6, -2e6, -0.01, 0.3)]


class Rows(Guarded):
    def forward(self, x):
        kept = x[x[:, 0].abs() < 1e6]
        if kept.shape[0] > 0 and kept[0].sum() > 0:
            return kept.sum(0)
        return x[0] * 0


class Or(Guarded):
    def forward(self, x):
        found = (x[:, 0] > 0).nonzero()[:, 0]
        if len(found) == 0 or x[found[0]].sum() > 0:
            return x * 2
        return x


class While(Guarded):
    def forward(self, x):
        i = torch.zeros((), dtype=torch.int64)
        while i < 5 and x[i].sum() < 1:
            i = i + 1
        return x.sum(0), i


class Number(Guarded):
    def forward(self, x):
        k = int((x[:, 0] > 0).sum())
        if k > 0 and x[k - 1].sum() > 0 and (k == 5 or x[k].sum() < 1):
            return x * 2
        return x


class Expression(Guarded):
    def forward(self, x):
        found = (x[:, 0] > 0).nonzero()[:, 0]
        return x[found[0]] if len(found) and x[found[0]].sum() > 0 else x[0]


class Largest(Guarded):
    """The largest of no values."""

    def forward(self, x):
        kept = x[(x.abs() < 1e6) & (x > 0.2)]
        small = len(kept) > 0 and kept.max() < 2
        return x * 2 if small else x


class Divided(Guarded):
    def forward(self, x):
        count = (x > 0).sum()
        if count > 0 and 60 // count > 5:
            return x * 2
        return x


class Values(Guarded):
    """Numbers on the right, asked for their truth or their value."""

    def forward(self, x):
        found = (x[:, 0] > 0).nonzero()[:, 0]
        first = len(found) and int(found[0])
        if len(found) and int(found[0]):
            x = x * 2
        return x, first, len(found) or int(x[(x[:4, 1] > 0).sum(), 0])


class Cheap(Guarded):
    """What cannot raise is computed together with what comes before it: one sub-network, and one
    for each side."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        if x.sum() > 0 and self.a(x).sum() > 0 and x[0, 1] < 0.5:
            return x * 2
        return x + 1
