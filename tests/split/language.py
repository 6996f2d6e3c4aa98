"""One network for each way to write a decision."""

import dataclasses
import math
from math import sqrt

import torch
from torch import nn

from split import networks


class Layers(nn.Module):
    """Two layers, three heads, and one decision."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 2) for _ in range(3)])

    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.b(x)


class Conditional(Layers):
    def forward(self, x):
        y = self.a(x) if x.sum() > 0 else x
        return y * (2 if y.max().item() > 1 else 3)


class Chained(Layers):
    def forward(self, x):
        return self.b(x) if -1 < self.a(x).sum() < 1 else x


class NoGrad(Layers):
    def forward(self, x):
        with torch.no_grad():
            if x.sum() > 0:
                return self.a(x)
        return x


class Both(Layers):
    def forward(self, x):
        seen = []
        if x[0, 0] > 0:
            seen.append(x)
        if (len(seen) > 0 and seen.pop().sum() > 1) or x[0, 1] > 1:
            x = self.a(x)
        return x, not seen and x.sum().item() > 0


class Comprehension(Layers):
    def forward(self, x):
        scores = [head(x) for head in self.heads if head is not self.heads[1]]
        best = max([score.max().item() for score in scores])
        return torch.cat(scores), [n * n for n in range(4)] if best > 0.5 else [0]


class Continue(Layers):
    def forward(self, x):
        done = []
        for number, head in enumerate(self.heads):
            if head(x).sum() < 0:
                done.append(-number)
                continue
            x = x + self.a(x)
            if x[0, number] > 0.3:
                if x[0, 4] > x[0, 5]:
                    continue
                x = x * 0.5
            done.append(number)
        return x, done


def cheap(x, layer, least):
    if x.sum() > least:
        return x * 2, 1
    y = layer(x)
    if y.sum() > least:
        return y, 2
    return x - y, 3


def sign(x):
    if x.sum() > 0:
        return 1
    if x.sum() > -1:
        return 0
    return -1


class Returns(Layers):
    def forward(self, x):
        x, way = cheap(x, self.a, 0.5)
        y, other = cheap(x, self.b, -0.5)
        return y, way, other, sign(y)


def doubled(x, least):
    return x * 2 if x.sum() > least else x


doubled.__module__ = "torchother"  # a package that only starts like torch


class Foreign(Layers):
    def forward(self, x):
        return doubled(self.a(x), 0.3)


class Lists(Layers):
    def forward(self, x):
        places = (x > 0).int().tolist()
        total = 0
        for place in places[0]:
            total = total + place
        return self.a(x) if total > 3 else x, total


@dataclasses.dataclass
class Scores:
    best: torch.Tensor
    sure: bool = False


class Records(Layers):
    def score(self, x):
        scores = Scores(self.heads[0](x))
        if scores.best.sum() > 0:
            return Scores(best=self.heads[1](x), sure=True)
        return scores

    def forward(self, x):
        first = self.score(x)
        y = x * 2
        del y
        return first.best if first.sure else self.score(self.a(x)).best


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({f"head_{number}": nn.Linear(6, 3) for number in range(3)})

    def forward(self, x):
        place = x[0, :3].argmax()
        assert place.item() < 3
        return self.heads[f"head_{place}"](x)


class Arguments(Layers):
    def pick(self, *values, least=0.0, **rest):
        for value in values:
            if value.sum() > least:
                x = value
                break
        else:
            x = values[0] * rest["factor"]
        return x

    def forward(self, x):
        state = (x, self.a(x), 1)
        return self.pick(*state[:2], least=0.5, factor=3), state[2]


class State(Layers):
    def forward(self, x):
        state, steps = (x, torch.zeros(1)), 0
        while steps < 4 and state[0].sum() < 2:
            state = (self.a(state[0]) + 0.4, state[1] + 1)
            steps = steps + 1
        return state, steps


class Weights(Layers):
    """Decisions on weights are known; a value can be named where it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.least = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        if self.least > 0.1:
            x = x * self.least.exp()
        if (y := self.a(x)).sum() > self.least.item():
            return y, x.shape
        return x, y.size()


class Constants(Layers):
    """Tensors that start as constants."""

    def forward(self, x):
        least, total = torch.zeros(1), torch.zeros(1)
        if x.sum() > 0:
            least = torch.ones(1)
        elif least > 0.5:
            x = x * 5
        if least > 0.5:
            x = self.a(x)
        while total < 3:
            total = total + x.abs().max() + 0.1
        for item in (x > 0.5).nonzero():
            if item[1] > 2:
                x = x + 1
        return x, total


class Bounds(Layers):
    """Whole numbers in tensors as the bounds of slices."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("most", torch.tensor([5]))

    def forward(self, x):
        count = (x[0] > 0).sum()
        rows, total = [x * number for number in range(1, 7)], torch.zeros(1, 6)
        for row in reversed(rows[: count + 1]):
            total = total * 0.5 + self.a(row)
        ends = x[0, count:].sum() + x[0, -count - 1 :].sum() + x[0, : self.most].sum()
        return total, ends, x[0, count - 3 : -1], [1, 2, 3, 4, 5, 6][:count]


class Traces(Layers):
    """What is made of no input is known: a mask of ones. Lists of numbers, of which one goes into a
    region."""

    def forward(self, x):
        mask = x.new_ones(x.shape, dtype=torch.uint8)
        assert mask.all()
        ways = [torch.stack([head(x)[0].argmax(), x[0, :2].argmax()]) for head in self.heads]
        found = [x[0].argmax().item() % 2]
        for way in reversed(ways[: mask[0].sum() - 4]):
            found.append(way[found[-1]].item() % 2)
        found.reverse()
        return found, x[0, found[0] :].sum(), x[0, : found[1] + 1]


class Varies(Layers):
    """A tensor that starts as a constant and is made again in a loop is none."""

    def forward(self, x):
        total = start = torch.zeros(1, dtype=torch.int64)
        for row in (x > 0.3).nonzero():
            made = torch.zeros_like(start) + total
            total = total + 1
            x = x + made * row[1]
        return x[0, : total[0]], start, torch.zeros(1) < total


class Factories(Layers):
    """Operations that read a tensor of one whole number, as a size or a place; what is made of no
    input decides."""

    def forward(self, x):
        count = (x[0] > 0).sum()
        places = torch.arange(count) * 2
        made = x.new_zeros(1, count).sum() + x.narrow(-1, 0, count).sum() + torch.full((2,), count)
        if x.new_ones(3).sum().item() > 2 and int(torch.zeros(1)) == 0:
            made = made + 1
        made = made * 2 if torch.is_tensor(made) and torch.is_floating_point(made) else places
        return places, made, torch.add(x, count), torch.arange(start=0, end=count + 1)


def applied(function, x, times=2):
    for _ in range(times):
        x = function(x)
    return x


class Closures(Layers):
    """Lambdas and inner functions see the variables around them as they are when they run."""

    def __init__(self) -> None:
        super().__init__()
        self.solver = networks.Solver()

    def forward(self, x):
        scale, seen = 1, []

        def step(y, least=0.2, *, shift=0.1):
            if y.sum() > least:
                seen.append(y.sum().item())
                return self.a(y) * scale
            return y + shift

        first = step(x)
        scale = 3
        bias = self.b(x)
        found, steps = self.solver(lambda z: torch.tanh(self.a(z) * 0.5 + bias) * scale, first)
        bias = x
        twice = applied(lambda x: step(x, shift=scale) + bias, found)
        return twice, steps, (lambda y: y + bias)(found), len(seen)  # noqa: PLC3002


class Hides(Layers):
    """A parameter hides the variable of the function around, an inner function's variables are its
    own."""

    def forward(self, x):
        y = x * 2

        def inner(x):
            y = self.a(x)
            return (lambda x: x - y)(y * 2) if y.sum() > 0 else y  # noqa: PLC3002

        z = inner(y)
        while y.sum() < 4 and y.abs().max() < 9:
            y = (lambda y: y * 1.5 + 0.3)(y) + inner(x).abs() + 0.2  # noqa: PLC3002
        return x, y, z


class Later(Layers):
    """A function made in a loop sees the loop's variable as it is when it runs, also through two
    others."""

    def forward(self, x):
        step = None
        for number in range(1, 4):
            if step is not None and x[0, number] > -0.2:
                x = step(x) + 0.5

            def step(y):
                def scaled(z):
                    return (lambda w: w * number + self.a(z))(z)  # noqa: B023, PLC3002

                return scaled(y) if y[0, 0] > 0 else scaled(-y)

        number = 5
        total = applied(step, x, times=1)
        while total.abs().sum() < 30:
            grow = lambda y: y * 1.4 + x.abs() + number  # noqa: B023, E731
            total, number = grow(total), number + 1
        return total, number


class Marks(Layers):
    """A tensor that starts as a constant and changes in a loop is none; a filtered one's size is
    not known."""

    def forward(self, x):
        mask, total, turns = torch.zeros(1), torch.zeros(1), 0
        while x.sum() < 9 and turns < 5:
            if mask.sum() > 0:
                x = x + 0.5
            mask[0] = 1
            total.add_(1)
            x = x + 1 if total > 2 else self.a(x)
            turns = turns + 1
        kept = x[0][x[0] > 0]
        return x[0, : torch.full((1,), kept.shape[0])], torch.ones_like(kept).sum().item(), total


def capped(values, most):
    if values.sum() > 1:
        values[values > most] = most
    return values.mean()


class Aliases(Layers):
    """A change in place is seen under every name that holds the tensor, also in the caller."""

    def forward(self, x):
        y = held = self.a(x)
        pair = (held, 1)
        mean = capped(y, 0.3)
        for number in range(3):
            other = y
            other += number * mean
            if y[0, 0] > 0.2:
                y[0, number] = 0
        return y, held, pair[0] * 2, mean


class Rows(Layers):
    """Loops over the rows of tensors together, whose names are assigned meanwhile."""

    def forward(self, x):
        found, rows = [], torch.cat([x, self.a(x), self.b(x)])
        for number, (row, (head, other)) in enumerate(
            zip(rows, zip(self.heads, rows.flip(0), strict=False), strict=False)
        ):
            rows = row + other
            if head(rows).sum() > 0:
                found.append(number)
                x = x + rows
        for number, row in enumerate(x):
            x = row * number
        return x, found


class Outputs(Layers):
    """A submodule that is one operation gives an object, which is used on both sides of a
    decision."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = networks.Encoder()

    def forward(self, x):
        found = self.encoder(x)
        if found.last.sum() > 0:
            x = x + found.states[0]
        return x + found.states[1] if found.first is None else x, found.last


class Counter:
    """A plain object: attributes, a property, methods that change it and call each other."""

    order = 2

    def __init__(self, layer, least, **rest):
        self.layer, self.least = layer, least
        self.count, self.last = 0, torch.zeros(1, 6)
        self.rest = rest

    @property
    def doubled(self):
        return self.count * 2

    @classmethod
    def of(cls, layer, **rest):
        return cls(layer, 0.1, **rest)

    def bump(self, x):
        self.count = self.count + 1
        self.last = x
        return self.layer(x) * self.order

    def __call__(self, x):
        if x.sum() > self.least:
            return self.bump(x)
        return x + self.rest.get("shift", 0.5)


class Loud(Counter):
    order = 3

    def __init__(self, layer, least):
        super().__init__(layer, least)
        self.volume = layer(torch.ones(1, 6)).abs().sum()

    def bump(self, x):
        self.volume += 1
        return super().bump(x) * 0.5


class Objects(Layers):
    """Objects of plain classes, held under several names and in each other."""

    def forward(self, x):
        counter, loud = Counter.of(self.a, shift=x.mean()), Loud(lambda y: self.b(y) + 1, -0.2)
        same, pair = counter, (loud, counter)
        x = loud(counter(x)) + 0.3
        y = pair[0](pair[1](x))
        assert isinstance(loud, Counter) and hasattr(loud, "volume") and not hasattr(same, "volume")
        if loud.rest is not None and counter is same:
            y = y * 2
        return y, same.doubled, loud.volume, getattr(loud, "count", 7) + getattr(same, "missing", 3)


class Solves(Layers):
    """An object that changes in a loop whose length is not known, and one that is made in each
    turn."""

    def forward(self, x):
        state = Counter(self.a, 0.0)
        state.last, state.mark = x, torch.zeros(1)
        while state.last.abs().sum() < 20 and state.count < 9:
            if state.mark.sum() > 2:
                state.last = state.last * 1.5
            turn = Loud(self.b, 0.1)
            state.bump(turn(state.last) + 1 + state.last.abs())
            state.mark += 1
        return state.last, state.count, state.mark


class Found(dict):
    """A dictionary with a constructor of its own."""

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self["steps"] = self.get("steps", -1)


class Dictionaries(Layers):
    """Dictionaries with known keys: filled, read, handed on and returned."""

    def note(self, found, key, **values):
        found[key] = {**values, "sum": values["y"].sum()}
        found["last"] = key
        return found

    def forward(self, x):
        found = {"first": x, 3: dict(way=1)}  # noqa: C408
        if x.sum() > 0:
            found["first"] = self.a(x)
            found[3]["way"] = 2
        self.note(found, "a", y=found["first"] * 2)
        del found["first"]
        several = Found(
            {key: one.max() for key, one in zip(("p", "q"), x.view(2, 3), strict=True)}, steps=4
        )
        several.update(r=several.pop("q") + 1)
        total = torch.zeros(())
        for key, one in several.items():
            total = total + (one if key not in ("steps", "missing") else 1)
        if "first" not in found and len(several) == 3 and found.setdefault("last", None) == "a":
            total = total + several["steps"]
        return {
            "y": found["a"]["y"],
            "total": total,
            "way": found[3]["way"],
            "of": (found["a"], several.get("none")),
        }


class Masks(Layers):
    """Truth values of tensors combined with constants."""

    def forward(self, x):
        mask = (x > 0) + False
        same = mask
        same[0, 0] = True
        y = x * mask + ~(mask | True) + (True & (x > 1)) * 3 + (mask * False)
        return (self.a(y) if y.sum() > 0.3 else y), mask


class Skipped(Layers):
    """What is changed in an operand that is skipped stays as it is."""

    def forward(self, x):
        counter, y = Counter(self.a, 0.0), x
        if x.sum() > 0 and counter.bump(x).sum() > -0.5:
            x = x * 2
        if x[0, 0] > 0 or (y := self.b(x)).sum() > 0:
            x = x + 1
        return x, y, counter.count, counter.last


class Orders(Layers):
    """What is evaluated first keeps its value: several targets, swaps, elements."""

    def forward(self, x):
        made = Counter(self.a, 0.0)
        made.last = made.other = x
        x = y = x * 2 + 1
        made.last, made.other = made.other * 2, made.last + y
        made.last = made.third = made.last + x
        seen = same = []
        if made.last.sum() > 0:
            seen.append(1)
        x += y
        return x, y, made.last, made.other, made.third, len(same)


class Names(Layers):
    """Variables that hide what Python has built in, or are called what names made for the host are
    called."""

    def scaled(self, y):
        t1, t2, t3 = 1, 2, 3
        several = [one for one in range(3)]  # noqa: C416
        return y * (t1 + t2 * 10 + t3) * len(several) if y.sum() > 0 else y

    def forward(self, x):
        max, input, g_tanh = self.a(x), x * 2, x * 3
        f1_result, f2_result, t1_one, t2_one, o1_last, d1_a = x * 5, x * 4, x, x + 1, x, x
        several = [one for one in range(3)]  # noqa: C416
        y = self.scaled(x) + torch.tanh(x)
        counter, found = (
            Counter(self.b, 0.1),
            {"a": x, "a__0": x * 5, "a b": x + 1, 0: x * 6, "0": x * 7},
        )
        counter.last__0, counter.last = x * 8, (x, 1)
        while max.sum() < 2 and len(several) < 6:
            max = max + 0.5
            several.append(1)
        found["a"] = (counter.last[0], x) if x.sum() > 0 else (x * 2, x)
        first = f1_result + f2_result if x.sum() > 0 else x
        return max, input, g_tanh, first, t1_one, t2_one, o1_last, d1_a, y, counter.last__0, found


class Products(Layers):
    """There is no product of matrices in place: the other name keeps the old tensor."""

    def forward(self, x):
        y = held = self.a(x)
        y @= torch.ones(6, 6)
        return held if x.sum() > 0 else y * 2


class Negated(Layers):
    """`not` of a tensor, and functions that give a truth of tensors."""

    def forward(self, x):
        kept, rows = x[x > 0], x.reshape(3, 2)
        signs, ones = (rows > 0).float(), torch.ones(2)
        done, total = x > 1, x * 0
        if not (x > 1.5).any() and not (len(kept) == 0 or kept.max() < 0.5):
            x = self.a(x)
        for row in rows:
            if not torch.any(row > 0.2):
                continue
            total = total + row.sum()
        while not done.all():
            done, total = done | (total > 0.5), total + 0.5
        if torch.equal(signs[0], signs[1]) or signs[2].equal(ones):
            total = total * 2
        if not torch.allclose(rows[0], rows[1], atol=0.9) and not rows[1].allclose(
            rows[2], 0.1, 0.8
        ):
            total = total - 1
        return x, total, not total.sum() > 2, bool(torch.allclose(self.a.weight, self.b.weight))


class Mathematics(Layers):
    """Functions of `math` on numbers that are read from tensors, and on tensors of one number."""

    def forward(self, x):
        count = int((x > 0).sum())
        most, rest = divmod(count, 4)
        if count > 0 and math.sqrt(count) + 1 > 2.5:
            return x * math.exp(x.max() / 10), most, rest, sqrt(count)
        rows = x.reshape(6, 1)[: math.ceil(count / 2) + 1]
        return (
            rows * math.pow(x.mean().item(), 2),
            most,
            math.isclose(count, 2.0, rel_tol=0.1),
            math.log(4),
        )


class Refuses(Layers):
    """What the network raises, the host raises; no example has to show it."""

    def forward(self, x):
        if x.max() > 3:
            raise ValueError(f"too large for {tuple(x.shape)}")
        for head in self.heads:
            if head(x).sum() > 4:
                raise ArithmeticError
        return self.a(x) if x.sum() > 0 else self.b(x)


class NamedResults(Layers):
    """What `sort` and `max` give is kept whole, across decisions."""

    def forward(self, x):
        best, ordered = x.reshape(2, 3).max(1), x.sort(dim=1)
        if best.values.sum() > 1:
            x = self.a(x)
        return ordered.values * x, best.indices, ordered[1]


class _Counter:
    def __init__(self, value) -> None:
        self.value = value


class Counted(Layers):
    """An attribute of an object varies in a loop that goes on after a choice of modules."""

    def forward(self, x):
        counter = _Counter(torch.zeros(1))
        while counter.value < 4 + x.sum().abs():
            x = x * 0.5 if counter.value > 2 else x + 0.1
            counter.value = counter.value + 1
            index = int(x.sum().abs() * 10) % 3
            if x.sum() > 0 and self.heads[index](x).sum() > 0:
                x = x + 0.05
        return x


class Formatted(Layers):
    """A format specification holds a value."""

    def forward(self, x):
        width, count = 5, int(x.sum())
        return self.a(x), f"{count:{width}}|{count:>{width + 1}}"
