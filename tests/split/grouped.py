"""Experts that get groups of rows, detection heads, and constructors as public repositories write
them.

`inputs(number)` gives the arguments of call `number`; the first ones are the examples.
"""

import torch
import torch.nn.functional as F
from torch import nn


def make_expert(width=6):
    """Return a small network for rows."""
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, width), nn.Softmax(1))


class GroupedExperts(nn.Module):
    """Rows sorted by their expert, in groups of sizes that the host reads."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList([make_expert() for _ in range(4)])

    @staticmethod
    def inputs(number):
        return (torch.randn(9 - number % 9, 6),)

    def forward(self, x):
        chosen = self.gate(x).argmax(1)
        order = chosen.argsort(stable=True)
        counts = (chosen[:, None] == torch.arange(4)).sum(0)
        groups = x[order].split(counts.tolist())
        outputs = torch.cat([expert(group) for expert, group in zip(self.experts, groups)])  # noqa: B905
        return torch.zeros_like(x).index_add(0, order, outputs)


class GroupsByEnds(GroupedExperts):
    """The same with the ends of the groups."""

    def forward(self, x):
        chosen = self.gate(x).argmax(1)
        order = chosen.argsort(stable=True)
        counts = (chosen[:, None] == torch.arange(4)).sum(0)
        ends = counts.cumsum(0)
        groups = torch.tensor_split(x[order], ends[:-1].tolist(), dim=0)
        outputs = torch.cat([expert(group) for expert, group in zip(self.experts, groups)])  # noqa: B905
        return torch.zeros_like(x).index_add(0, order, outputs)


class Dispatcher:
    """Groups of rows, and sums of what experts make of them, by gates."""

    def __init__(self, gates):
        self.expert_index = gates.t().nonzero()
        self.sizes = (gates > 0).sum(0).tolist()
        self.gates = gates

    def dispatch(self, rows):
        return torch.split(rows[self.expert_index[:, 1]], self.sizes, dim=0)

    def combine(self, outputs):
        weights = self.gates[self.expert_index[:, 1], self.expert_index[:, 0]]
        zeros = torch.zeros(self.gates.size(0), outputs[-1].size(1))
        return zeros.index_add(0, self.expert_index[:, 1], torch.cat(outputs) * weights[:, None])


class DispatchedExperts(GroupedExperts):
    """The two best experts of each row."""

    def forward(self, x):
        values, indices = self.gate(x).softmax(1).topk(2, dim=1)
        gates = torch.zeros(x.size(0), 4).scatter(1, indices, values)
        dispatcher = Dispatcher(gates)
        inputs = dispatcher.dispatch(x)
        return dispatcher.combine([self.experts[i](inputs[i]) for i in range(4)])


class ColumnGroups(nn.Module):
    """Columns in two groups, of which values decide the sizes."""

    @staticmethod
    def inputs(number):
        return torch.randn(2, 4 + number % 3), torch.tensor(
            [number % 4, 4 + number % 3 - number % 4]
        )

    def forward(self, x, sizes):
        left, right = x.split(sizes.tolist(), dim=1)
        return left.sum(1) - right.sum(1), left.size(1)


class WrittenSizes(nn.Module):
    """The sizes of the parts written out."""

    @staticmethod
    def inputs(number):
        return torch.randn(5 + number % 3, 2), torch.tensor(number % 5)

    def forward(self, x, count):
        n = count.item()
        first, second = torch.split(x, [n, x.size(0) - n])
        return first.sum(0), second * 2


class TypedConstructors(nn.Module):
    """Tensors of a type, by size and by values."""

    @staticmethod
    def inputs(number):
        return torch.randn(2 + number % 3, 3), torch.tensor(number % 3)

    def forward(self, x, count):
        n = count.item()
        mask = torch.BoolTensor(x.size()).fill_(0)
        mask[:, 1] = True
        corners = x.new(x.shape)
        corners[:, 0] = x[:, 0] - x[:, 1]
        corners[:, 1:] = x[:, 1:] * 2
        start = torch.LongTensor([n] * 3) + torch.LongTensor([[1, 2, 3]])
        return x.masked_fill(mask, 0.0), corners, start, x.new([n, 2]), torch.FloatTensor([n])


class KindsOfLayers(nn.Module):
    """A loop that decides by known texts in lists."""

    def __init__(self):
        super().__init__()
        self.kinds = [{"kind": "linear"}, {"kind": "add"}, {"kind": "linear"}]
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Identity(), nn.Linear(3, 2)])

    @staticmethod
    def inputs(number):
        return (torch.randn(1, 3) * (1 + number),)

    def forward(self, x):
        outputs = []
        for kind, layer in zip(self.kinds, self.layers):  # noqa: B905
            if kind["kind"] in ["linear", "conv"]:
                x = layer(x)
            elif kind["kind"] not in ["pool"]:
                x = x + outputs[-1]
            outputs.append(x)
        return x if x.sum() > 0 else -x


class Scales(nn.Module):
    """A layer that takes and gives a list of scales."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = x if isinstance(x, list) else [x, x * 2]
        return [torch.relu(self.layer(scale)) for scale in x]


class ScalesInSequence(nn.Module):
    """Blocks of such layers in `nn.Sequential`, with an exit."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(Scales(), Scales()) for _ in range(3)])

    @staticmethod
    def inputs(number):
        return (torch.randn(1, 4),)

    def forward(self, x):
        signs = x[0]
        for number in range(3):
            x = self.blocks[number](x)
            if number == 2 or signs[number] > 0.3:
                break
        return x[-1], number


class Suppression(nn.Module):
    """Boxes taken one by one, with results written into tensors that were made before."""

    @staticmethod
    def inputs(number):
        corners = torch.rand(3 + number % 8, 2) * 3
        return torch.cat([corners, corners + 1], 1), torch.rand(3 + number % 8)

    def forward(self, boxes, scores):
        mask = scores > 0.3
        boxes = boxes[mask.unsqueeze(1).expand_as(boxes)].view(-1, 4)
        scores = scores[mask]
        keep = scores.new(scores.size(0)).zero_().long()
        _, order = scores.sort(0)
        left, width = boxes.new(), boxes.new()
        count = 0
        while order.numel() > 0:
            best = order[-1]
            keep[count] = best
            count += 1
            order = order[:-1]
            torch.index_select(boxes[:, 0], 0, order, out=left)
            left = torch.clamp(left, min=boxes[best, 0])
            width.resize_as_(left)
            width = (boxes[order, 2].clamp(max=boxes[best, 2]) - left).clamp(min=0)
            order = order[width <= 0.5]
        return boxes[keep[:count]], count


class PositionsInExperts(nn.Module):
    """`one_hot` of as many classes as the largest position asks for, at least four."""

    @staticmethod
    def inputs(number):
        return (torch.randint(0, 2 + number % 7, (2, 5)),)

    def forward(self, positions):
        largest = positions.max() + 1
        return F.one_hot(positions, max(largest, 4))[..., :4] * (2 if positions.is_cuda else 3)


class TwoBounds(nn.Module):
    """A slice between two numbers that the host reads."""

    @staticmethod
    def inputs(number):
        start = number % 3
        return torch.randn(8, 2), torch.tensor([start, start + number % 5])

    def forward(self, x, bounds):
        start, end = bounds.tolist()
        return torch.tanh(x[start:end]).sum(0)


PROGRAMS = (
    GroupedExperts,
    GroupsByEnds,
    DispatchedExperts,
    ColumnGroups,
    WrittenSizes,
    TypedConstructors,
    KindsOfLayers,
    ScalesInSequence,
    Suppression,
    PositionsInExperts,
    TwoBounds,
)


class NoSuchDimension(nn.Module):
    """Asks for the size of a dimension that is not there."""

    @staticmethod
    def inputs(number):
        return (torch.rand(2, 3),)

    def forward(self, x):
        return x * 2 if x.sum() > 0 else x * x.mean(1).size(1)


class SizeOrValues(nn.Module):
    """A tuple under a name, which may be a size or values."""

    @staticmethod
    def inputs(number):
        return (torch.randn(2, 3),)

    def forward(self, x):
        shape = x.shape
        return x + torch.FloatTensor(shape).fill_(0)


class UnknownParts(nn.Module):
    """A number of parts that values decide."""

    @staticmethod
    def inputs(number):
        return (torch.tensor([1, 0, 1, 1, 0, 1][: 3 + number % 3]),)

    def forward(self, x):
        sizes = x[x > 0]
        return torch.stack(
            [part.sum() for part in torch.ones(int(sizes.sum())).split(sizes.tolist())]
        )


class PartsOverlap(nn.Module):
    """Changes a part, which is a view of what was split."""

    @staticmethod
    def inputs(number):
        return torch.randn(4, 2), torch.tensor([number % 4, 4 - number % 4])

    def forward(self, x, sizes):
        y = x * 2
        first, second = y.split(sizes.tolist())
        first.mul_(3)
        return y, second


class ReadAfterResize(nn.Module):
    """Reads what the memory of a resized tensor holds."""

    @staticmethod
    def inputs(number):
        return (torch.randn(4),)

    def forward(self, x):
        y = x * 2
        y.resize_(2)
        return y if x.sum() > 0 else y + 1


class OutOfAnotherType(nn.Module):
    """Writes a result into a tensor of another type."""

    @staticmethod
    def inputs(number):
        return (torch.randn(4),)

    def forward(self, x):
        out = torch.zeros(4, dtype=torch.float64)
        torch.add(x, x, out=out)
        return out if x.sum() > 0 else -out


# with the words of the refusal
REFUSED = {
    NoSuchDimension: "cannot be run on the example: IndexError",
    SizeOrValues: "a tuple that may be a size or values",
    UnknownParts: "a number of parts that is known only at run time",
    PartsOverlap: "is changed in place while something else may hold it",
    ReadAfterResize: "holds what its memory held before it was resized",
    OutOfAnotherType: "another type than the result",
}
