"""Networks whose submodules decide, in Python, by a size or a value in a way that their examples do
not show, and operations that compilers define differently from torch.

Each class has `calls`, and `rare`: inputs that no example is like. A network that is split gives
what the original gives for these, or raises.
"""

import numpy as np
import torch
from torch import nn


class Rows(nn.Module):
    """A network of rows with a decision on a value, so that there is something to split."""

    def __init__(self):
        super().__init__()
        self.inner = self.Inner()

    def calls(self):
        return [(torch.randn(rows, 4),) for rows in (3, 4, 5, 7, 3, 6)]

    def rare(self):
        return [torch.randn(60, 4), torch.randn(1, 4), torch.randn(257, 4), torch.randn(64, 4)]

    def forward(self, x):
        y = self.inner(x)
        if x.sum() > 0:
            return y + 1
        return y


class Threshold(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 50 else x


class ShortestOfTwo(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            return x.topk(min(x.shape[0], 30), 0).values.sum(0)


class Chunks(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            return torch.cat([chunk.cumsum(0) for chunk in x.split(32)])


class Padded(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            if x.shape[0] % 4:
                x = torch.nn.functional.pad(x, (0, 0, 0, 4 - x.shape[0] % 4))
            return x.reshape(x.shape[0] // 4, 4, 4).sum(1)

    def calls(self):
        return [(torch.randn(rows, 4),) for rows in (5, 6, 7, 9, 10)]

    def rare(self):
        return [torch.randn(rows, 4) for rows in (8, 12, 1, 64, 257)]


class LoopOverBlocks(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            total = x[:0].sum(0)
            for start in range(0, x.shape[0], 16):
                total = total.tanh() + x[start : start + 16].sum(0)
            return total


class CachedLength(Rows):
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(48.0)[:, None])

        def forward(self, x):
            if x.shape[0] > self.table.shape[0]:
                return x + torch.arange(float(x.shape[0]))[:, None] * 2
            return x + self.table[: x.shape[0]]


class Words(nn.Module):
    """A network of whole numbers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = self.Inner()

    def calls(self):
        return [(torch.randint(3, 40, (1, 6)),) for _ in range(6)]

    def rare(self):
        return [
            torch.tensor([[5, 0, 7, 8, 9, 3]]),
            torch.tensor([[20000, 20000, 7, 8, 9, 3]]),
            torch.tensor([[-4, 7, -1, -3, 5, 11]]),
        ]

    def forward(self, ids):
        y = self.inner(ids)
        if ids.sum() % 2 == 0:
            return y, 1
        return y, 0


class ContainsInAList(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids * 2 if 0 in ids[0].tolist() else ids


class ContainsInAnArray(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids * 2 if (ids.numpy() == 0).any() else ids


class SmallestOfAnArray(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids * int(np.asarray(ids).min() > 0)


class LargestOfAList(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return -ids if max(ids[0].tolist()) > 1e4 else ids


class ContainsInATensor(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids * 2 if 0 in ids else ids


class FloorDivision(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids // 3


class FloorDivide(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return torch.floor_divide(ids, 3)


class FloorDivisionOfFloats(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids.float() // 3


class Remainder(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids % 3


class RemainderOfFloats(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids.float() * 1e4 % 3, 7.5 % (ids * 1e-6), (ids * 1e4).remainder(-2.5)


class ChangedByDivision(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            rest, quotient, floor = ids * 1e4, ids * 1.0, ids.clone()
            rest %= 3
            quotient //= 0.1
            floor.floor_divide_(3)
            return rest, quotient, floor


class LogOfSigmoid(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return torch.nn.functional.logsigmoid(ids * -0.4)


class TruncatedRemainder(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return torch.fmod(ids, 3)


class NarrowWords(Words):
    """32-bit numbers, whose sums are 64-bit numbers in torch."""

    def calls(self):
        return [(call[0].int(),) for call in super().calls()]

    def rare(self):
        large = torch.tensor([[2**31 - 1, 2**31 - 1, 5, 7, 2**30, 9]], dtype=torch.int32)
        return [large, -large, torch.tensor([[70000, 70000, 3, 1, 1, 1]], dtype=torch.int32)]

    def forward(self, ids):
        y = self.inner(ids)
        if ids[0, 5] % 2 == 0:
            return y + 1
        return y


class RunningSum(NarrowWords):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids.cumsum(1)


class Sum(NarrowWords):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids.sum(1)


class Product(NarrowWords):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids[:, :2].prod(1)


class LargeSum(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids.sum(1)

    def rare(self):
        return [torch.tensor([[2**53, 1, 1, 1, 2, 4]]), torch.tensor([[2**60, 3, 5, 7, 9, 11]])]


class SizeAsAKey(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            return x * {60: 2.0}.get(x.shape[0], 1.0)


class SizeAsText(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2 if str(x.shape[0]).startswith("6") and x.shape[0] > 9 else x


class RemainderAndThreshold(Rows):
    """One guard differs between the samples, the other one does not."""

    class Inner(nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] % 4 == 3 and x.shape[0] > 8 else x

    def rare(self):
        return [torch.randn(rows, 4) for rows in (8, 11, 15, 63, 259)]


class BroadcastHides(nn.Module):
    """A size of one leads to a decision on the other size."""

    class Inner(nn.Module):
        def forward(self, x, y):
            if x.shape[0] == 1 and y.shape[0] == 3:
                return 5 * x.sum(0)
            return x.sum(0) + y.sum(0)

    def __init__(self):
        super().__init__()
        self.inner = self.Inner()

    def calls(self):
        return [(torch.randn(n, 4), torch.randn(n, 4)) for n in (2, 4, 5, 6)]

    def rare(self):
        return [(torch.randn(1, 4), torch.randn(3, 4)), (torch.randn(1, 4), torch.randn(1, 4))]

    def forward(self, x, y):
        z = self.inner(x, y)
        if x.sum() > 0:
            return z + 1
        return z


class SingleRowsTogether(BroadcastHides):
    """Two parts of one row each lead to a decision; either alone does not."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, y):
            rows = torch.cat([self.layer(x), self.layer(y)])
            return rows * 2 if len(x) == 1 and len(y) == 1 else rows

    def calls(self):
        return [(torch.randn(n, 4), torch.randn(m, 4)) for n, m in ((3, 3), (1, 3), (3, 1), (2, 2))]

    def rare(self):
        return [
            (torch.randn(n, 4), torch.randn(m, 4)) for n, m in ((1, 1), (1, 9), (12, 1), (9, 6))
        ]


class LengthsApart(BroadcastHides):
    """One input is a row longer than the other."""

    class Inner(nn.Module):
        def forward(self, x, y):
            z = x + y[1:]
            return z * 2 if x.shape[0] > 10 else z

    def calls(self):
        return [(torch.randn(n, 4), torch.randn(n + 1, 4)) for n in (2, 4, 5, 6)]

    def rare(self):
        return [(torch.randn(n, 4), torch.randn(n + 1, 4)) for n in (1, 12, 100, 300)]


class RowsOfAMask(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            kept = x[x > 0]
            return kept.sum() if kept.shape[0] < 2 else 2 * kept.sum()

    def calls(self):
        return [(torch.randn(3, 4),) for _ in range(5)]

    def rare(self):
        return [
            torch.full((3, 4), -1.0).index_fill(0, torch.tensor([0]), -2.0) + value
            for value in (
                torch.zeros(3, 4),
                torch.eye(3, 4) * 9,
                torch.eye(3, 4)[:1].expand(3, 4) * 9,
            )
        ]


class ValueAsText(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids * 2 if "20000" in str(ids) else ids


class ShiftedRight(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids >> 1


class RoundedDown(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            return torch.div(x, 0.1, rounding_mode="floor")

    def rare(self):
        return [torch.tensor([[1.0, 0.3, -0.3, 0.7]]).expand(3, 4)]


class ClampedToAFraction(Words):
    class Inner(nn.Module):
        def forward(self, ids):
            return ids.clamp(min=2.5)


class AskedForItsClass(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            rows = x.shape[0]
            return x * 2 if isinstance(rows, int) and rows > 250 else x


class AskedForItsType(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            rows = x.shape[0]
            return x * 2 if type(rows) is int and rows > 250 else x


class SqueezedMask(Rows):
    class Inner(nn.Module):
        def forward(self, x):
            chosen = x[:, 0][x[:, 0] > 0].squeeze()
            return x * (chosen.dim() + 1)

    def calls(self):
        return [(rows_with(positive),) for positive in (2, 3, 4, 5)]

    def rare(self):
        return [rows_with(1), rows_with(6)]


class Floats(nn.Module):
    """A network of numbers with a decision on their sum."""

    def __init__(self):
        super().__init__()
        self.inner = self.Inner()

    def calls(self):
        return [(torch.randn(2, 6),) for _ in range(6)]

    def rare(self):
        return [
            torch.tensor([[1e4, -1e4, 0.0, 3.0, 900.0, 1.0], [-0.0, 0.0, 1.0, -1.0, 1e-30, 2.0]])
        ]

    def forward(self, x):
        y = self.inner(x)
        if x.sum() > 0:
            return y + 1
        return y


class AddedInTheExponent(Floats):
    class Inner(nn.Module):
        def forward(self, x):
            return torch.logaddexp(x, x.flip(1))


class RunningSumInTheExponent(Floats):
    class Inner(nn.Module):
        def forward(self, x):
            return x.logcumsumexp(1)


class SignOfZero(Floats):
    class Inner(nn.Module):
        def forward(self, x):
            return torch.signbit(x).float() + x


class StridesDecide(Floats):
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2 if not x.is_contiguous() else x

    def rare(self):
        return [torch.randn(6, 2).t()]


class GradientsDecide(StridesDecide):
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2 if x.requires_grad else x

    def rare(self):
        return [torch.randn(2, 6).requires_grad_()]


class OffsetDecides(StridesDecide):
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2 if x.storage_offset() else x

    def rare(self):
        return [torch.randn(3, 6)[1:]]


def rows_with(positive):
    """Return six rows, of which `positive` have a positive first number."""
    x = -torch.rand(6, 4) - 0.1
    x[:positive, 0] *= -1
    return x
