"""Networks that cut, pad or divide rows which values choose, with constant bounds.

All examples keep enough rows, so that a size which the bound decides is the same in each of them;
`rare` gives calls that keep fewer. Each class keeps rows by the first number of each.
"""

import torch
from torch import nn
from torch.nn import functional as F

FAR = 2e6  # beyond what perturbed inputs reach


class Rows(nn.Module):
    """Six rows, of which those below `FAR` are kept: all in the examples."""

    count, width = 6, 4

    def calls(self):
        return [(torch.randn(self.count, self.width),) for _ in range(6)]

    def rare(self):
        return [(self.with_rows(kept),) for kept in range(self.count + 1)]

    def with_rows(self, kept):
        return torch.cat(
            [torch.randn(kept, self.width), torch.full((self.count - kept, self.width), FAR)]
        )

    def keep(self, x):
        return x[x[:, 0].abs() < FAR / 2]


class FirstThree(Rows):
    def forward(self, x):
        y = self.keep(x)[:3]
        return y * 2 if len(y) == 3 else y.sum(0, keepdim=True)


class LastTwo(Rows):
    def forward(self, x):
        y = self.keep(x)[-2:]
        return y.sum(0) * y.shape[0]


class EverySecond(Rows):
    def forward(self, x):
        y = self.keep(x)[:6:2]
        return y.sum(0) * y.numel()


class RowAfterRow(Rows):
    def forward(self, x):
        total = torch.zeros(4)
        for row in self.keep(x)[:3]:
            total = total * 0.5 + row
        return total


class UnpackedRows(Rows):
    def forward(self, x):
        first, second = self.keep(x)[:2]
        return first - 2 * second


class UnpackedOrSummed(Rows):
    def forward(self, x):
        y = self.keep(x)
        if len(y) == 2:
            first, second = y
            return first - 2 * second
        return y.sum(0)


class Diagonal(Rows):
    def forward(self, x):
        diagonal = self.keep(x).diagonal()
        return diagonal.sum() * len(diagonal)


class Strided(Rows):
    """A convolution of stride 8 has two steps for the nine rows of each example and one more."""

    count = 9

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(4, 4, 3, stride=8, padding=1)

    def forward(self, x):
        rows = torch.cat([self.keep(x), x.new_zeros(1, 4)])
        y = self.convolution(rows.t()[None])[0]
        return y.sum(1) if y.shape[-1] == 2 else y.sum(1) * 2 + 1


class InFunction(Rows):
    def forward(self, x):
        first, second = halves(self.keep(x))
        return first.sum(0) * len(first) - second.sum(0) * len(second)


def halves(rows):
    return rows[:3], rows[3:5]


class PaddedToSize(Rows):
    """The size is four whatever values choose: the layer takes nothing else."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, x):
        y = torch.cat([self.keep(x), x.new_zeros(4, 4)])[:4]
        return self.layer(y.reshape(-1)) * len(y)


class CutToSize(Rows):
    """The original raises for less than four rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, x):
        return self.layer(self.keep(x)[:4].reshape(-1))


class TwoCuts(Rows):
    def forward(self, x):
        first, second = self.keep(x)[:3], x[x[:, 1].abs() < FAR / 2][:2]
        return first.sum(0) - second.sum(0) if len(first) > len(second) else second.sum(0) * 3


class CutInLoop(Rows):
    """The rows that a loop begins with are always two, those of later iterations are not."""

    def forward(self, x):
        y, total, step = x[:2], torch.zeros(4), 0
        while step < 3 and total.abs().sum() < FAR / 100:
            total = total + y.clamp(max=9).sum(0) * len(y)
            y = self.keep(x)[:2]
            step += 1
        return total


class PartOrCut(Rows):
    """`narrow` raises for less than two rows, on one side alone."""

    def forward(self, x):
        rows, total = self.keep(x), torch.zeros(4)
        if x[0, 1] > 50:
            total = rows.narrow(0, 0, 2).sum(0)
        y = rows[:2]
        return y.sum(0) * len(y) + total


class Halves(Rows):
    """One row is one part, not two."""

    def forward(self, x):
        rows, shift = self.keep(x), 0
        if rows.sum() > -FAR:
            shift = 1
        first, second = rows.chunk(2)
        if rows.sum() > -FAR:
            shift = 2
        return first.sum(0) * 2 - second.sum(0) + shift


class Detection(Rows):
    """The best boxes above a threshold, padded to five."""

    count, width = 12, 5

    def forward(self, x):
        boxes = self.keep(x)
        boxes = boxes[boxes[:, 4].argsort(descending=True)[:5]]
        number = boxes.shape[0]
        if number < 5:
            boxes = torch.cat([boxes, boxes.new_zeros(5 - number, 5)])
        return boxes, number


class Pruned(Rows):
    """A transformer layer on the first token and at most four that are kept."""

    count, width = 7, 8

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        chosen = (x[:, 0].abs() < FAR / 2).nonzero()[:, 0][:4]
        tokens = torch.cat([x[:1] * 0, x[chosen]])[None]
        return self.encoder(tokens)[:, 0] * tokens.shape[1]


class Capacity(Rows):
    """Two experts that take three rows at most; those far away go to the second."""

    count = 8

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        near, result = x[:, 0].abs() < FAR / 2, torch.zeros_like(x)
        for expert, mask in zip(self.experts, (near, ~near), strict=True):
            rows = mask.nonzero()[:, 0][:3]
            y = expert(x[rows].clamp(max=9))
            result = result.index_add(0, rows, y * rows.shape[0])
        return result


class Points(Rows):
    """Farthest of the points that are kept, from the first four."""

    count = 9

    def forward(self, x):
        points = self.keep(x)
        if len(points) == 0:
            return x.new_zeros(4)
        first = points[:4]
        far = (first[:, None] - points[None]).norm(dim=-1).amin(0).topk(1).indices
        return torch.cat([first, points[far]]).amax(0) * first.shape[0]


class Spread(Rows):
    """The variance of what is kept, a call of one row aside."""

    def forward(self, x):
        y = self.keep(x)[:5]
        return y.var(0) if y.shape[0] > 1 else x.new_zeros(4)


class PaddedUpwards(Rows):
    """At least four rows, and more where there are more."""

    def forward(self, x):
        y = F.pad(x, (0, 0, 0, max(0, 4 - x.shape[0])))[:8]
        if x[0, 1] > -FAR:
            y = y * 2
        return y.sum(0) * y.shape[0]

    def calls(self):
        return [(torch.randn(rows, 4),) for rows in (5, 6, 7)]

    def rare(self):
        return [(torch.randn(rows, 4),) for rows in range(1, 11)]


class CountedNumbers(Rows):
    """How often each number occurs, of at least six; more where a larger number is among them."""

    least = 6

    def forward(self, numbers):
        occurs_again = torch.bincount(numbers, minlength=self.least) > 1
        return torch.arange(self.least).masked_fill(occurs_again, -1) * occurs_again.shape[0]

    def calls(self):
        return [(torch.randint(self.least, (8,)),) for _ in range(6)]

    def rare(self):
        return [(torch.tensor([0, 2, 2, largest]),) for largest in range(10)]


class CountedZeros(CountedNumbers):
    """The number of zeros, which is one number for each where others are among them."""

    least = 1

    def calls(self):
        return [(torch.zeros(count, dtype=torch.int64),) for count in (2, 5, 8)]


NETWORKS = [
    network
    for network in list(vars().values())
    if isinstance(network, type) and issubclass(network, Rows) and network is not Rows
]
# networks that give what the original gives wherever that does not raise
ALWAYS_EQUAL = {
    "LastTwo",
    "EverySecond",
    "RowAfterRow",
    "Diagonal",
    "InFunction",
    "PaddedToSize",
    "CutToSize",
    "Pruned",
    "Capacity",
}
