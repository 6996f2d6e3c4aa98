"""Networks that cannot be split."""

import collections
import dataclasses
import math
import sys
import time

import torch
from torch import nn


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.register_buffer("state", torch.zeros(1))


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = {"all": [0]}

    def forward(self, x):
        self.calls["all"][0] += 1
        return x


class Hidden(Base):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), Counter())

    def forward(self, x):
        return self.inner(x)


class Noise(Base):
    def forward(self, x):
        return x + torch.randn_like(x)


class Seeds(Base):
    def forward(self, x):
        torch.manual_seed(1)
        return x + torch.rand(1)


class InPlace(Base):
    def forward(self, x):
        if x.sum() > 0:
            x[0] = 1
        return x


class Tries(Base):
    def forward(self, x):
        try:
            return self.a(x) if x.sum() > 0 else x
        except ValueError:
            return x


class Yields(Base):
    def forward(self, x):
        yield x


class Mixed(Base):
    def forward(self, x):
        y = (x, x)
        if x.sum() > 0:
            y = self.a(x)
        return y


class Shown(Base):
    def forward(self, x):
        total = 0
        if x.sum() > 0:
            total = self.a(x).sum()
        while total < 1:
            total = total + 1
        return x * total


class Alias(Base):
    def forward(self, x):
        total, y = 0, self.a(x)
        if x.sum() > 0:
            total = y
        total += x
        return total, y


class Lengths(Base):
    def forward(self, x):
        kept = [place for place in range(6) if x[0, place] > 0]
        return torch.tensor(kept)


class Unpacks(Base):
    def forward(self, x):
        kept = [place for place in range(6) if x[0, place] > 0]
        if len(kept) < 2:
            return x
        first, *_others = kept
        return x[:, first]


class TakenName(Base):
    def forward(self, x):
        return types(x if x.sum() > 0 else -x)


class types:
    def __init__(self, a):
        self.a = a


class Walrus(Base):
    def forward(self, x):
        found = positive(x)
        if found is not None and (found := positive(self.a(x))) is None:
            return x
        return self.a(x)


def positive(value):
    return value if value.sum() > 0 else None


class Largest(Base):
    def forward(self, x):
        return max(self.a(x)) if x.sum() > 0 else x


class Stars(Base):
    def forward(self, *x):
        return x[0]


class Lambdas(Base):
    def forward(self, x):
        several = [lambda y, number=number: y + number for number in range(2)]
        return several[0](x) if x.sum() > 0 else x


class Globals(Base):
    def forward(self, x):
        global COUNT  # noqa: PLW0603
        COUNT = 1
        return x


class Awaits(Base):
    async def forward(self, x):
        return x


class Clock(Base):
    def forward(self, x):
        return x * time.time()


def clock():
    return time.perf_counter_ns()


class HiddenClock(Base):
    def forward(self, x):
        return x * clock()


class Forever(Base):
    def forward(self, x):
        for _ in range(5000):
            x = x + 1
        return x if x.sum() > 0 else -x


class Recursive(Base):
    def down(self, x):
        return self.down(x - 1) if x.sum() > 0 else x

    def forward(self, x):
        return self.down(x)


class View(Base):
    def forward(self, x):
        y = self.a(x)
        row = y[0]
        row += 1
        return y if x.sum() > 0 else row


class Shares(Base):
    def forward(self, x):
        y = self.a(x)
        z = y if x.sum() > 0 else y * 2
        y[0, 0] = 1
        return z


class Around(Base):
    def forward(self, x):
        y = start = self.a(x)
        while start.sum() < 5:
            y[0, 0] = 1
            start = start + y.abs().sum() + 1
            y = y + 1
        return start, y


class Operands(Base):
    def mark(self, y):
        y[0, 0] = 3
        return y.sum() if y[0, 1] > 0 else y.mean()

    def forward(self, x):
        y = self.a(x)
        return y * 2 + self.mark(y)


class Starred(Base):
    def forward(self, x):
        first, *_ = {"a": x.sum(), "b": x.max()}
        return x if x.sum() > 0 else len(first) * x


class Inner(Base):
    def forward(self, x):
        @torch.no_grad()
        def twice(y):
            return y * 2

        return twice(x) if x.sum() > 0 else x


class Late(Base):
    def forward(self, x):
        def add(z, y=x + 1):
            return z + y

        return add(x) if x.sum() > 0 else x


class Outer(Base):
    def forward(self, x):
        y = self.a(x)

        def change():
            y.add_(1)

        if x.sum() > 0:
            change()
        return y


class Unbound(Base):
    def forward(self, x):
        y = self.a(x)  # noqa: F841

        def inner(early):
            if early:
                y = x
            return y

        return inner(False) if x.sum() > 1e30 else inner(True)


def names(function):
    return function.__code__.co_freevars[0]


class Looks(Base):
    def forward(self, x):
        y = self.a(x)
        return x * len(names(lambda: y)) if x.sum() > 0 else x


class Swaps(Base):
    def forward(self, x):
        step = torch.tanh
        while x.sum() > 0:
            x = step(x) - 0.1
            step = torch.sin
        return x


class Reads(Base):
    def forward(self, x):
        return x * len(open(__file__).read())


@dataclasses.dataclass
class Result:
    y: torch.Tensor


class Returns(Base):
    def forward(self, x):
        if x.sum() > 0:
            return Result(self.a)
        return x


class Dropout(Base):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


class Ragged(Base):
    def forward(self, x):
        y = self.a(x)
        if x.sum() > 0:
            y = y.int()
        return y + 1


class Truths(Base):
    def forward(self, x):
        return x[: (x.sum() > 0)]


class Close(Base):
    def forward(self, x):
        return x if torch.allclose(x[x > 0], x[x > 0.1]) else x * 2


class Product(Base):
    def forward(self, x):
        return x * math.prod(x[0].tolist())


class Several(Base):
    def forward(self, x):
        return [1, 2, 3][: (x[0, :2] > 0).long()]


class Fraction(Base):
    def forward(self, x):
        return torch.arange(x.abs().max() + 1)


class Plain:
    def __init__(self):
        self.count = 0

    def bump(self):
        self.count = self.count + 1
        return self.count


class Computed:
    def __getattr__(self, called):
        return 1


class Keyed(Base):
    def forward(self, x):
        found = {"a": x}
        return found["b" if x.sum() > 1e9 else "a"]


class Differs(Base):
    def forward(self, x):
        found = {}
        if x.sum() > 0:
            found["y"] = x
        return self.a(x) if "y" in found else x


class Disorder(Base):
    def forward(self, x):
        made = Plain()
        made.count = x[0, 0].item()
        return made.count * 2 + made.bump()


class Given(Base):
    def forward(self, x):
        made = Plain()
        made.y = self.a(x)
        return made.__class__, x if x.sum() > 0 else made.y


class Opaque(Base):
    def forward(self, x):
        return x * len(vars(Plain())) if x.sum() > 0 else x


class Magic(Base):
    def forward(self, x):
        return x * Computed().y if x.sum() > 0 else x


class Missing(Base):
    def forward(self, x):
        made = Plain()
        if x.sum() > 1e9:
            return x * made.total
        return self.a(x)


class Relinks(Base):
    def forward(self, x):
        made = Plain()
        made.step = torch.tanh
        while x.sum() > 0:
            x = made.step(x) - 0.1
            made.step = torch.sin
        return x


class Which(Base):
    def forward(self, x):
        first, second = Plain(), Plain()
        chosen = first if x.sum() > 0 else second
        return x * chosen.bump()


class Logs:
    log: list = []  # noqa: RUF012


class Shared(Base):
    def forward(self, x):
        made = Logs()
        made.log.append(1)
        return x if x.sum() > 0 else self.a(x)


class Turned(Base):
    def forward(self, x):
        found = {"a": x, "b": x + 1}
        for key, value in found.items():
            found["b"] = value * 2
            x = x + found[key]  # noqa: PLR1733
        return x if x.sum() > 0 else -x


class Unassigned(Base):
    def forward(self, x):
        if x.sum() > -1e9:
            names = self.a
        return x + names(x) if x.sum() > -1e9 else x


class Targets(Base):
    def forward(self, x):
        made, y = Plain(), self.a(x)
        made.count = x[0, 0]
        y[0, made.bump() > 0] = made.count * 2
        return y if x.sum() > 0 else x


class Twice(Base):
    def forward(self, x):
        made, y = Plain(), self.a(x)
        y[0, made.bump()] += 1
        return y if x.sum() > 0 else x


class HeldTwice(Base):
    """One list under two names, which differ on one path only."""

    def forward(self, x):
        one = [x.sum().item()]
        two = one
        if x[0, 0] > 0:
            two = [1.0]
        if x[0, 1] > 0:
            two.append(2.0)
        return len(one), two


class ChosenTwice(Base):
    def forward(self, x):
        one = [x * 2]
        two = [x] if x[0, 0] > 0 else one
        if x[0, 1] > 0:
            two[0] = x * 3
        return one[0] * len(one)


class InsideTwice(Base):
    def forward(self, x):
        one = [x * 2]
        several = {"all": one}
        if x[0, 0] > 0:
            several["all"] = [x]
        several["all"].append(x)
        while len(one) < 3:
            one = [*one, x]
        return len(one)


class OneLeft(Base):
    def forward(self, x):
        rows = x[x[:, 0] < 100].squeeze(0)
        return rows * 2 if rows.dim() == 1 else rows.sum(0)


class Elements(Base):
    def forward(self, x):
        several, y = [self.a(x), x * 2], x * 3
        if x[0, 0] > 0:
            y = several[0]
        several[0] += 1
        return y, several


class Power(Base):
    def forward(self, x):
        count = 0
        for row in x:
            count = count + 1 if row.sum() > 0 else count
        return x * 2**-count


class Positive(Base):
    def forward(self, x):
        return x * max(x.sum().item(), 0)


class OneOfTwo(Base):
    def forward(self, x):
        low, high = x[0, 0].abs(), x[0, 1].abs()
        best = x[0, 2] * 1
        if x[0, 0] > 0:
            best = max(low, high)
        best += 1
        return best, low, high


class OneRow(Base):
    def forward(self, x):
        rows = x[0][x[0] > -100]
        return float(rows) if rows.numel() == 1 else x


class Squeezed(Base):
    def forward(self, x):
        rows = x[x[:, 0] < 100]
        flat = rows.squeeze()
        if x[0, 1] > 0:
            return flat
        return rows.squeeze(0), rows.std(0)


class Flag(Base):
    def forward(self, x):
        large = x[0, 0] > 100 and x[0, 1] > 0
        return x, large


class FlagAsked(Base):
    def forward(self, x):
        large = x[0, 0] < 100 or x[0, 1] > 0
        return x if isinstance(large, bool) else x * 2


class Asked(Base):
    def forward(self, x):
        return x if type(x.sum().item()) is float else x * 2


class Pops(Base):
    def forward(self, x):
        several = [1, 2, x.sum().item()]
        return several[-1] + several.pop()


class Renames(Base):
    def forward(self, x):
        return x + (x := x * 2) if x.sum() > 0 else x


class Views(Base):
    def forward(self, x):
        found = {"a": x}
        keys = found.keys()
        found["b"] = x
        return x if x.sum() > 0 else x * len(keys)


class Parts(Base):
    def forward(self, x):
        y, y__0 = (x, x * 2), x * 9
        if x.sum() > 0:
            y = (x * 3, x * 4)
        return y[0], y__0


class Private:
    def __init__(self):
        self.__x = 1


class OfClass(Base):
    def forward(self, x):
        return x if x.sum() > 0 else x * hasattr(Private(), "__x")


class Promotes(Base):
    def forward(self, x):
        y = held = (x * 5).int()
        y.add_((x * 2).long())
        return held if x.sum() > 0 else y


class Halves(Base):
    def forward(self, x):
        y = held = x.half()
        y *= self.a(x)
        return held.float() if x.sum() > 0 else y.float()


class LaterAlias(Base):
    def forward(self, x):
        y, made, turns = self.a(x), Plain(), 0
        made.y = self.a(x) * 2
        while turns < 4 and x.sum() > 0:
            y.add_(1)
            if turns == 1:
                made.y = y
            turns = turns + 1
        return made.y, y


class LaterList(Base):
    def forward(self, x):
        y, several = self.a(x), []
        while len(several) < 3 and x.sum() > 0:
            y.add_(1)
            several.append(y)
        return several, y


class LaterTuple(Base):
    def forward(self, x):
        y, pair = self.a(x), (x, 0)
        for value in x[0].tolist():
            y += value
            if value > 0:
                pair = (y, 1)
        return pair, y


class SwapsViews(Base):
    def forward(self, x):
        y = self.a(x)
        y[0, 0], y[0, 1] = y[0, 1], y[0, 0]
        return y if x.sum() > 0 else x


class Lazy(Base):
    def forward(self, x):
        made = Plain()
        several = (made.count for _ in range(2))
        made.count = 5
        return sum(several) if x.sum() > 0 else 0


class AllBumps(Base):
    def forward(self, x):
        made = Plain()
        return all(one > 0 or made.bump() > 5 for one in x[0].tolist()), made.count


class Operand(Base):
    def forward(self, x):
        found = x.sum() or x.mean()
        return isinstance(found, torch.Tensor), x if x.sum() > 0 else -x


class Data(Base):
    def forward(self, x):
        if x.sum() > 0:
            self.a.weight.data.mul_(1.1)
        return self.a(x)


MODE = ["a"]


def choose(mode):
    MODE[0] = mode


class Mode(Base):
    def forward(self, x):
        if x.sum() > 0:
            choose("b")
        else:
            choose("a")
        return x * 2 if MODE[0] == "b" else x


class Numpy(Base):
    def forward(self, x):
        numpy = self.a(x)
        return numpy if x.sum() > 0 else x


class Asks(Base):
    def forward(self, x):
        y = x * 3 if hasattr(self, "seen") else 3 * x
        self.seen = y
        return y if x.sum() > 0 else self.seen + 1


class Sometimes(Base):
    def forward(self, x):
        if x.sum() > 0:
            self.kept = x * 2
        return self.a(self.kept) if x[0, 0] > 0 else x


class ClassDefault(Base):
    level = 0

    def forward(self, x):
        self.level = 1 if x.sum() > 0 else 2
        return x * self.level


class NewLayer(Base):
    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Linear(6, 6)

    def forward(self, x):
        kept = self.a
        self.a = self.b
        y = self.a(x) if x.sum() > 0 else x
        self.a = kept
        return y


class OwnError(Base):
    def forward(self, x):
        if x.sum() > 200:
            raise Refused("too large")
        return self.a(x)


class Refused(Exception):
    pass


class ErrorOfValues(Base):
    def forward(self, x):
        if x.sum() > 200:
            raise ValueError(f"{x.max()} is too large")
        return self.a(x)


class Unpacked(Base):
    def forward(self, x):
        entries = {"a": 1, "b": 2}
        return self.a(x) * len({**entries, int(x.sum()): 3})


SCALES = {
    "signed": lambda x: x * 2 if x.sum() > 0 else x,
}


class LambdaInATable(Base):
    def forward(self, x):
        return SCALES["signed"](self.a(x))


class LambdaInADictionary(Base):
    def forward(self, x):
        entries = {i: (lambda i: i + 1)(x) for i in range(2)}  # noqa: PLC3002
        return self.a(entries[0]) + entries[1]


class TriesTensor(Base):
    def forward(self, x):
        try:
            y = x.view(-1, 3).sum(1)
        except RuntimeError:
            y = x
        return y if x.sum() > 0 else x


class TriesNumber(Base):
    def forward(self, x):
        try:
            y = 1 / x.sum().item()
        except ZeroDivisionError:
            y = 0.0
        return x * y


class TriesUnused(Base):
    def forward(self, x):
        try:
            assert (x @ x.T) is not None
        except RuntimeError:
            return x
        return x * 2 if x.sum() > 0 else x


class TriesBreak(Base):
    def forward(self, x):
        for head in (self.a, self.a):
            try:
                scale = head.scale
            except AttributeError:
                break
            x = x * scale
        return x


class Precise(Base):
    def forward(self, x):
        with torch.autocast("cpu", enabled=True):
            return self.a(x) if x.sum() > 0 else x


class SortsTensors(Base):
    def forward(self, x):
        rows = [x.sum(), x.mean()]
        rows.sort()
        return rows[0]


class PrintsToFile(Base):
    def forward(self, x):
        print(x.shape, file=sys.stderr)
        return x


class MissingImport(Base):
    def forward(self, x):
        if x.sum() > 1e6:
            import a_package_that_is_not_installed

            return a_package_that_is_not_installed.run(x)
        return x


class ReturnsDeque(Base):
    def forward(self, x):
        queue = collections.deque([x.sum().item()])
        return queue


class SetOfTensors(Base):
    def forward(self, x):
        seen = set()
        seen.add(x.sum())
        return x * len(seen) if x.sum() > 0 else x


class KeepsGenerator(Base):
    def rows(self, x):
        yield x if x.sum() > 0 else -x

    def forward(self, x):
        rows = self.rows(x)
        return next(rows)


class ReturnsFromGenerator(KeepsGenerator):
    def forward(self, x):
        for row in self.rows(x):
            if row.sum() > 1:
                return row
        return x


class SortsByTensor(Base):
    def forward(self, x):
        rows = sorted([x, x + 1], key=torch.sum)
        return rows[0] if x.sum() > 0 else x


class DeletesEverySecond(Base):
    def forward(self, x):
        numbers = x[0].tolist()
        del numbers[::2]
        return numbers


class SlicesHeldTwice(Base):
    def forward(self, x):
        numbers = x[0].tolist()
        others = numbers if x.sum() > 0 else list(numbers)
        del others[1:]
        return numbers, others
