"""Networks in which values or inputs decide the size of a tensor."""

import torch
from torch import nn


class Filters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)

    def calls(self):
        return [(torch.randn(9, 6),) for _ in range(8)]

    def forward(self, x):
        kept = x[x.sum(1) > 0]
        if len(kept) == 0:
            return x.sum(0)
        return torch.softmax(self.a(kept), 0).sum(0) * kept.shape[0]


class Grows(Filters):
    def forward(self, x):
        while x.abs().sum() < 80 and x.shape[0] < 14:
            x = torch.cat([x, self.a(x[:1]) + 1])
        return x, x.shape[0]


class Rows(Filters):
    def forward(self, x):
        y = 0
        for number, row in enumerate(x[:3]):
            if row.sum() > 0:
                y = y + number
        return y


class Places(Filters):
    def forward(self, x):
        total = torch.zeros(6)
        for place in (x[:, 0] > 0.5).nonzero():
            total = total + self.a(x[place[0]])
        return total


class Pairs(Filters):
    def forward(self, x):
        found = []
        for row, column in (x > 1.2).nonzero().tolist():
            found.append(row * 10 + column)
        return found


class Changes(Filters):
    def forward(self, x):
        y = torch.zeros_like(x)
        places = torch.where(x[:, 0] > 0)[0]
        y.index_add_(0, places, self.a(x[places]))
        y[:, 1] = 3
        y[2:4, 2] += x[2:4, 2]
        mask = y > 1
        y[mask] = y[mask] * 0.5
        return y


class Experts(Filters):
    """Each expert computes the rows that choose it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = (
            nn.Linear(6, 4),
            nn.ModuleList([nn.Linear(6, 6) for _ in range(4)]),
        )

    def forward(self, x):
        weights, chosen = torch.softmax(self.gate(x), -1).topk(2)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            if row.numel() == 0:
                continue
            result.index_add_(0, row, weights[row, place, None] * expert(x[row]))
        return result


class Lengths(Filters):
    """Inputs of several lengths."""

    def calls(self):
        return [(torch.randn(1, length, 6),) for length in (3, 5, 4, 8, 2, 3)]

    def forward(self, x):
        batch, length, width = x.shape
        y = self.a(x).view(batch * length, width)
        scores = (y @ y.T).softmax(-1)
        if scores.max() > 0.5:
            y = scores @ y
        return y.view(*x.shape[:-1], 2, 3).transpose(1, 2).reshape(batch, -1, 3), length


class Greedy(nn.Module):
    """A sequence that grows until a token ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(11, 8), nn.Embedding(40, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.out = nn.Linear(8, 11)

    def calls(self):
        return [(torch.randint(0, 11, (1, 4)),) for _ in range(8)]

    def forward(self, ids):
        while ids.shape[1] < 20:
            length = ids.shape[1]
            x = self.embed(ids) + self.place(torch.arange(length))
            mask = torch.full((length, length), float("-inf")).triu(1)
            token = self.out(self.layer(x, mask)[:, -1]).argmax(-1, keepdim=True)
            ids = torch.cat([ids, token], dim=1)
            if token.item() == 3:
                break
        return ids


class Cuts(Filters):
    """A number that is read decides a size."""

    def forward(self, x):
        count = int(x.argmax()) % 5 + 1
        y = self.a(x[:count])
        if y.sum() > 0:
            y = torch.cat([y, torch.zeros(count, 6)])
        return y.sum(0) / y.shape[0], x[int(x.argmin()) % 4]


class Repeats(Filters):
    """How often each row is repeated data decide, and so they do how long the result is."""

    def forward(self, x):
        counts = (x[:, :3].abs() * 2).long()
        held = counts
        if counts.sum() == 0:
            counts[counts.sum(1).eq(0)] = 1
        total = torch.zeros((x.shape[0], counts.sum(1).max(), 2), dtype=torch.float)
        for number, (row, count) in enumerate(zip(x, counts, strict=False)):
            repeated = torch.repeat_interleave(row.view(3, 2), count, dim=0)
            total[number, : repeated.size(0)] = repeated
        return total * 2 if total.sum() > 1 else total, held

    def calls(self):
        return [(torch.randn(1, 6) * (number % 4),) for number in range(16)]
