"""Networks that are hard to write as one ONNX file."""

import math

import torch
from torch import nn


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)


class NestedReturn(Base):
    """Returns from two loops deep, breaks and continues in both, and what is only defined
    inside."""

    def forward(self, x):
        steps = 0
        while steps < 12:
            steps = steps + 1
            inner = 0
            while True:
                inner = inner + 1
                x = torch.tanh(self.a(x)) * 1.5
                if x[0, 0] > 0.9:
                    return x, steps, inner
                if x[0, 1] > 0.4:
                    break
                if inner > 3:
                    x = x + 0.1
                    if x[0, 2] > 0.3:
                        continue
                    x = x - 0.3
                if inner > 6:
                    break
            if x.sum() > 1.5:
                continue
            if x.sum() < -2.5:
                return x * 2, steps, -1
            x = self.b(x)
        return x, steps, 0


class NoTurns(Base):
    """Loops that may not run at all, over nothing, or not to their end."""

    def calls(self):
        return [(torch.full((1, 6), 1.5),), *((torch.randn(1, 6),) for _ in range(12))]

    def forward(self, x):
        count = int((x[0, 0] * 3).item())
        total = torch.zeros(1)
        for turn in range(count):
            total = total + turn * (x.sum() > 0.5)
        last = -1
        for last in range(0, count, 2):  # noqa: B007
            if total.sum() > 4:
                break
        for place in (x > 1.2).nonzero():
            total = total + place.sum()
        while total.sum() < x[0, 1]:
            total = total + 0.4
        return total, count, last


class ShortCircuit(Base):
    """What would fail is not computed where Python does not compute it."""

    def calls(self):
        return [(torch.full((1, 6), 1.5),), *((torch.randn(1, 6),) for _ in range(12))]

    def forward(self, x):
        n = int((x > 0.8).sum().item())
        total = x.sum().item()
        if n > 0 and total / n > 0.2:
            x = x * 2
        elif n == 0 or total % n > 0.5:
            x = x - 1
        return x, n > 1 and total > 0


class Arithmetic(Base):
    """Python's own rules for signs, halves, bools and mixed numbers."""

    def forward(self, x):
        n, f = int((x[0, 0] * 7).item()), (x[0, 1] * 3).item()
        k = n // 3 + n % 5 - (n % -4) + round(f) + int(f) + (f > 0) * 2 + abs(n)
        g = f % 0.7 - (f % -0.9) + n / 4 + max(f, 0.5) - min(f, f * f)
        if k > 2 and not g < 1:
            x = self.a(x)
        return x * k, k, g, k == 2.0, -n, bool(n)


class Counts(Base):
    """A whole number that grows beyond 64 bits if the loop runs for long."""

    def forward(self, x):
        n, turns, last = 1, 0, x.sum()
        while turns < last:
            turns = turns + 1
            n = n * 29
        return n, turns


class Lists(Base):
    """Lists under two names, that shrink, grow in functions, and are empty on some paths."""

    def note(self, found, x):
        if x.sum() > 0:
            found.append(x)
        return found

    def forward(self, x):
        found, marks = [], [1, 2]
        rest = marks
        for layer in (self.a, self.b, self.a):
            x = layer(x)
            self.note(found, x)
        turn = 0
        while turn < 5 and x.abs().sum() > 1:
            x = x * 0.7
            marks.append(turn)
            if x[0, 0] > 0:
                rest.append(9)
            turn = turn + 1
        size = len(marks)
        last = marks.pop() if size > 3 else marks[-1]
        best = found[-1] if len(found) > 0 else x
        return best.sum(0), marks, last, found, marks[0]


class Many(Base):
    """Forty exits and forty modules to choose from."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(40)])

    def forward(self, x):
        taken = []
        for number in range(40):
            x = torch.tanh(self.a(x)) + 0.05 * x
            if x[0, 0] > 1.02 - 0.005 * number:
                return x, taken
            if x[0, 1] > 0.5:
                taken.append(number)
        return self.layers[int(x.abs().sum().item() * 13) % 40](x), taken


class Shapes(Base):
    """Sizes that the values decide go around a loop, down to nothing."""

    def forward(self, x):
        rows = x.reshape(3, 2)
        turns = 0
        while rows.shape[0] > 0 and turns < 6:
            rows = torch.cat([rows[rows.sum(1) > 0], rows[:0]]) - 0.4
            turns = turns + 1
            if rows.shape[0] > 2:
                rows = rows[1:]
        return rows, turns, rows.shape[0]


class Structures(Base):
    """Results in a dictionary, with what is the same on all paths."""

    def forward(self, x):
        y = self.a(x)
        if y.sum() > 0.3:
            return {"y": y, "way": (1, "up", None), "sure": True}
        if y.sum() > 0:
            y = y * 2
        return {"y": y * 3, "way": (2, "up", None), "sure": False}


class Halves(Base):
    """Other types than float32."""

    def forward(self, x):
        n = (x * 2).to(torch.int32).sum()
        d = x.double().sum()
        if n.item() > d.item():
            return n.to(torch.uint8), d, x > 0
        k = n.item()
        while k > -3:
            k = k - 1
            d = d * 1.1
        return (n + k).to(torch.uint8), d, x < 0


class Asserts(Base):
    """Nothing depends on the assertion."""

    def forward(self, x):
        size = x.abs().max()
        assert size < 40
        return x * 2


class Shared(Base):
    """The same weights on both sides, and others on one."""

    def forward(self, x):
        y = torch.tanh(x)
        if y.sum() > 0:
            y = self.a(y)
            if y.sum() > 0.2:
                y = self.b(y)
        else:
            y = self.a(y * 2) + 1
        return y


class Passes(Base):
    """Nothing is computed but a number of the host."""

    def forward(self, x):
        turns = 0
        while turns < x.shape[0] and turns < 3:
            turns = turns + 1
        return x, turns


class Named(Base):
    """Parameters named like results and values."""

    def forward(self, result, v0, w0=2.0):
        if result.sum() > v0.sum():
            result = result * w0
        return result - v0


class Maybe(Base):
    def forward(self, x):
        if x.sum() > 0:
            return x, None
        return x, x


class SumOfTensors(Base):
    """Sums of tensors that are known one by one."""

    def forward(self, x):
        weights = x.softmax(-1)
        total = sum(weights[:, place : place + 1] * x for place in range(3))
        signs = sum((x > number).long() for number in (-1, 0, 1))
        return (total, signs) if total.sum() > 0 else (-total, signs)


class Sorted(Base):
    def forward(self, x):
        order = sorted(x[0].tolist())
        return x * 2 if order[0] > -1 else x


class Roots(Base):
    def forward(self, x):
        f = x.abs().sum().item()
        return x if math.sqrt(f) > 1.5 else -x


GOOD = [
    NestedReturn,
    NoTurns,
    ShortCircuit,
    Arithmetic,
    Lists,
    Many,
    SumOfTensors,
    Shapes,
    Structures,
    Halves,
    Passes,
    Maybe,
    Sorted,
    Roots,
]


class TwoTypes(Base):
    def forward(self, x):
        if x.sum() > 0:
            return x, 1
        return x, 1.5


class TwoStructures(Base):
    def forward(self, x):
        if x.sum() > 0:
            return x, x
        return x


class TwoDtypes(Base):
    def forward(self, x):
        if x.sum() > 0:
            return x.double()
        return x


class Ways(Base):
    def forward(self, x):
        if x.sum() > 0:
            return x, "up"
        return x, "down"


class Runaway(Base):
    def forward(self, x):
        found = [1, 2]
        for one in found:
            if x.sum() > one and len(found) < 6:
                found.append(3)
        return x, found


class Largest(Base):
    """Beyond 64 bits after one step, from a constant."""

    def forward(self, x):
        n, turns, last = 2**63 - 1, 0, x.sum().item()
        while turns < last:
            turns = turns + 1
            n = n + turns
        return x, n


class Powers(Base):
    def forward(self, x):
        f = x.abs().sum().item()
        return x if f**0.5 > 1.5 else -x


class Within(nn.Module):
    """A side that raises within one that is taken; nothing else differs between them."""

    def forward(self, x):
        y = x * 2
        if x[0, 0] > 0:  # noqa: SIM102
            if x[0, 1] > 2:
                raise ValueError("too large")
        return y


REFUSED = {
    TwoTypes: r"a number \(float\)|float",
    TwoStructures: "tuple of 2",
    TwoDtypes: "float64",
    Ways: "'down'",
    Runaway: "runs over it",
    Largest: "9223372036854775807",
    Powers: "Pow",
}


class Threshold(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() >= 7 else -x
