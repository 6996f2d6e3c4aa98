"""Code as people write it: objects as results, lists that change, totals that start at 0, values
that may be None."""

import dataclasses
from collections import OrderedDict, namedtuple
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from split.language import Layers

Pair = namedtuple("Pair", ["first", "second"])


class Typed(NamedTuple):
    first: torch.Tensor
    second: object = None


@dataclasses.dataclass
class Fields:
    logits: torch.Tensor
    exits: int = 0
    hidden: object = None


@dataclasses.dataclass
class ModelOutput(OrderedDict):
    """After the outputs of transformers."""

    logits: torch.Tensor
    hidden: object = None
    loss: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]


class Held:
    def __init__(self, value):
        self.value, self.steps = value, 0

    def step(self, layer):
        self.value, self.steps = torch.tanh(layer(self.value)), self.steps + 1


def attributes(value):
    return value._asdict() if isinstance(value, tuple) else vars(value)


@dataclasses.dataclass
class Marker:
    pass


class WithoutFields(Layers):
    def forward(self, x):
        marker = Marker()
        y = self.a(x)
        if x.sum() > 0:
            return y
        return y if marker is None else y + 1


class Named(Layers):
    def forward(self, x):
        pair = Pair(self.a(x), x.sum())
        first, total = pair
        if total > 0:
            return pair
        return Pair(second=pair[1], first=first + 1)


class TypedNamed(Layers):
    def forward(self, x):
        made = Typed(self.a(x))
        if x.sum() > 0:
            made = Typed(made.first, made.first.sum())
        return sum(one.sum() for one in made if one is not None), made


class Data(Layers):
    def forward(self, x):
        if x.sum() > 0:
            return Fields(self.a(x), exits=1)
        return Fields(self.b(x), 2)


class Output(Layers):
    def forward(self, x):
        hidden = self.a(x) if x.sum() > 0 else self.b(x)
        return ModelOutput(hidden + 1, hidden=hidden)


class Ordered(Layers):
    def forward(self, x):
        result = OrderedDict()
        result["out"] = self.a(x)
        result["aux"] = self.b(x) if x.sum() > 0 else x
        return result


class Plain(Layers):
    def forward(self, x):
        held = Held(x)
        while held.value.abs().sum() > 1.2 and held.steps < 4:
            held.step(self.a)
        return held


class SeenList(Layers):
    def forward(self, x):
        seen, totals = [False] * 3, [0.0] * 3
        for place in range(3):
            if self.heads[place](x).sum() > 0:
                seen[place] = True
            totals[place] = x[0, place].item()
        return x, seen, max(totals)


class ExtendedList(Layers):
    def forward(self, x):
        kept = []
        for head in self.heads:
            y = head(x)
            if y.sum() > 0:
                kept += [y]
        return torch.cat(kept) if kept else x


class ChosenRows(Layers):
    def forward(self, x):
        y = x.reshape(3, 2)
        kept = [place for place in range(3) if y[place].sum() > 0]
        weights = torch.tensor([float(place) for place in kept])
        return y[kept].sum(0), weights, torch.tensor(kept, dtype=torch.int32)


class Suppressed(Layers):
    def forward(self, x):
        points = x.reshape(3, 2)
        kept = []
        for place in points[:, 0].argsort(descending=True).tolist():
            near = False
            for other in kept:
                if (points[place] - points[other]).abs().sum() < 1.5:
                    near = True
                    break
            if not near:
                kept.append(place)
        return points[kept]


class Best(Layers):
    def forward(self, x):
        best, which = float("-inf"), 0
        for place, head in enumerate(self.heads):
            score = head(x).sum().item()
            if score > best:
                best, which = score, place
        return self.heads[which](x), best


class Extremes(Layers):
    def forward(self, x):
        scores = [head(x).sum() for head in self.heads]
        low, high = min(scores[0], scores[1]), max(scores)
        return (x * high, abs(low)) if sum(scores) > 0 else (x, high)


class TakenApart(Layers):
    def forward(self, x):
        first, *others, last = x.reshape(3, 2).unbind(0)
        rows = list(x.reshape(3, 2).unbind(0))
        if first.sum() > 0:
            rows[1] = last
        return torch.stack(rows), others


class TensorRange(Layers):
    def forward(self, x):
        for _ in range((x > 0).sum()):
            x = x + 0.1
        return x


class Total(Layers):
    def forward(self, x):
        total, count = 0, 0.0
        for head in self.heads:
            y = head(x)
            if y.sum() > 0:
                total = total + y
                count += y.max()
        return total, count


class TotalAsked(Layers):
    def forward(self, x):
        total = 0
        if x.sum() > 0:
            total = self.a(x).sum()
        return x if total > 0.2 else x * total


class Latest(Layers):
    def forward(self, x):
        latest = None
        for head in self.heads:
            y = head(x)
            if latest is not None and (y - latest).abs().sum() < 0.5:
                break
            if y.sum() > 0:
                latest = y if latest is None else latest + y
        shown = torch.tanh(latest) if latest is not None else y
        return shown, latest


class HelpsWithNone(Layers):
    def add(self, left, right):
        if left is None:
            return right
        return left + right

    def forward(self, x):
        total = None
        for head in self.heads:
            if head(x).sum() > 0:
                total = self.add(total, head(x))
        return Pair(total, x)


class Previous(Layers):
    def forward(self, x):
        previous, steps = None, 0
        while steps < 6:
            steps += 1
            x = torch.tanh(self.a(x))
            if previous is not None and (x - previous).abs().max() < 0.1:
                break
            previous = x
        return x, steps


class SumOfRows(Layers):
    def forward(self, x):
        total = 0
        for row in x.reshape(3, 2)[x.reshape(3, 2)[:, 0] > -0.5]:
            if row.sum() > 1.5:
                continue
            total = total + row
        return total


class Carried(Layers):
    def forward(self, x):
        state = (x, 0)
        while state[0].sum() < 3 and state[1] < 5:
            state = (state[0] + 0.5, state[1] + 1)
        return state


class Ties(Layers):
    def forward(self, x):
        values, places = x.topk(2)
        return (values, places) if values[0, 0] > 0.5 else (-values, places)


def positive(value):
    return value if value.sum() > 0 else None


class BothNone(Layers):
    def forward(self, x):
        left, right = positive(self.a(x)), positive(self.b(x))
        if left is None and right is None:
            return x
        if left is None:
            return right
        return left if right is None else left * right


class NoneAndMore(Layers):
    def forward(self, x):
        found, marks = None, 0
        if x[0, 0] > 0:
            found = self.a(x)
        if found is None and x[0, 1] > 0:
            marks = 1
        return found, marks


class ReadTwice(Layers):
    def forward(self, x):
        y, total = self.a(x) * 2, None
        if x[0, 0] > 0:
            total = self.b(x)
        elif x[0, 1] > 0:
            total = x
        if x[0, 0] > 0 or x[0, 1] > 0:
            return y + total, y * total
        return y, total


class TotalAliased(Layers):
    def forward(self, x):
        total = 0
        if x[0, 0] > 0:
            total = x * 1
        before = total
        total += self.a(x)
        return total, before


class FractionAsked(Layers):
    def forward(self, x):
        found = 0.5
        if x[0, 0] > 0:
            found = x[0].argmax()
        return x if found > 0 else -x


class AverageLoss(Layers):
    def forward(self, x):
        loss, count = 0, 0
        for head in self.heads:
            y = head(x)
            if y.sum() > 0:
                loss, count = loss + (y * y).mean(), count + 1
        return loss / max(count, 1), -loss, {"loss": loss}


class Chosen(Layers):
    def forward(self, x):
        which = None
        for place, head in enumerate(self.heads):
            if head(x).sum() > 0.2:
                which = place
        return x if which is None else self.heads[which](x)


class ThroughLayer(Layers):
    def forward(self, x):
        hidden = None
        for layer in (self.a, self.b):
            if layer(x).sum() > 0:
                hidden = layer(x if hidden is None else hidden)
        return F.relu(hidden) if hidden is not None and hidden.sum() > 0.5 else x


class JoinedLists(Layers):
    def forward(self, x):
        rows = [self.a(x), self.b(x)]
        rows = [*rows, x]
        while len(rows) < 6 and rows[-1].sum() < 3:
            rows = [*rows, rows[-1] + x.abs()]
        if x.sum() > 0:
            rows = rows[::-1]
        return torch.cat(rows), len(rows)


class Parser(Layers):
    """A stack that grows and shrinks, after shift-reduce parsers."""

    def forward(self, x):
        waiting = [self.a(x[:, :]) * place for place in range(4)]
        stack, place = [], 0
        while place < len(waiting) or len(stack) > 1:
            if len(stack) < 2:
                shift = True
            elif place >= len(waiting):
                shift = False
            else:
                shift = bool((stack[-1] + stack[-2]).sum() > x.sum())
            if shift:
                stack.append(waiting[place])
                place += 1
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(torch.tanh(self.b(left) - right))
        return stack[0]


class Halting(Layers):
    """Bytes as truth values, after adaptive computation time."""

    def forward(self, x):
        total, steps = torch.zeros(1, 6), 0
        while ((total < 0.9) & (total > -1)).byte().any() and steps < 6:
            total = total + torch.sigmoid(self.a(x)).data
            steps += 1
        return total, steps


class Suppresses(Layers):
    """A function whose loop takes as many turns as the data leave."""

    def suppress(self, points):
        order, kept = points[:, 0].argsort(descending=True), []
        while order.numel() > 0:
            kept.append(order[0])
            near = (points[order[1:]] - points[order[0]]).abs().sum(1) < 1.5
            order = order[1:][~near]
        return torch.stack(kept)

    def forward(self, x):
        points = x.reshape(3, 2)
        points = points[points[:, 0] > -0.5]
        if points.shape[0] == 0:
            return x
        return points[self.suppress(points)]


class ByLists(Layers):
    def forward(self, x):
        kept = [place for place in range(6) if x[0, place] > 0]
        y = x.clone()
        y[:, kept] = 0
        return x[:, kept], y, x[0][[(x[0, place] > 0.5).item() for place in range(6)]]


class BestTensor(Layers):
    def forward(self, x):
        best = float("-inf")
        for head in self.heads:
            score = head(x).sum()
            best = max(best, score)
        return best


class Starred(Layers):
    def forward(self, x):
        rows = [x, self.a(x)]
        if x.sum() > 0:
            rows = [*rows, self.b(x), *rows]
        pair = (x.sum(), x.max())
        return torch.cat(rows), (*pair, 1), max(0.1, x.sum())


class Cached(Layers):
    """Keys and values in a list that a method makes, after decoders."""

    def step(self, x, cache):
        made = []
        for place, layer in enumerate((self.a, self.b)):
            keys = layer(x)
            if cache is not None:
                keys = torch.cat([cache[place][0], keys])
            made.append((keys, keys * 2))
            x = x + torch.softmax(x @ keys.T, -1) @ made[-1][1]
        return x, made

    def forward(self, x):
        x, cache = self.step(x, None)
        for _ in range(4):
            if x.sum() > 0:
                break
            x, cache = self.step(x, cache)
        return x


class Predicts(nn.Module):
    """A layer of torch that decides by values."""

    def __init__(self):
        super().__init__()
        self.layer = nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 6], div_value=2.0)

    def forward(self, x):
        return self.layer.predict(x.reshape(-1, 6))


class Empty(Layers):
    """The first example leaves no points on the side that it does not take."""

    def forward(self, x):
        points = x[0][x[0] > 0]
        if points.numel() > 2:
            return points[points.argmax()] * x
        return x


class ListsInLists(Layers):
    def forward(self, x):
        marks = [[0] * 2] * 3
        if x.sum() > 0:
            marks[0][0] = 1
        return self.a(x), marks


class AskedByType(Layers):
    def forward(self, x):
        found = None
        if x[0, 0] > 0:
            found = self.a(x)
        if isinstance(found, torch.Tensor):
            return found
        return x


class Detections(Layers):
    """A dictionary for each image, in a list, after detectors."""

    def forward(self, x):
        results = []
        for row in x.reshape(2, 3):
            kept = row > 0
            results.append({"scores": row[kept], "labels": kept.nonzero()[:, 0]})
        if all(len(one["scores"]) == 0 for one in results):
            return None
        return [*results, {"scores": self.a(x)}]


class LoopOverNames(Layers):
    """A loop over variables that it assigns itself."""

    def forward(self, x):
        first, second, total = x[:, :3], x[:, 3:], 0.0
        for part in [first, second]:
            if part.sum() > 0:
                second = first * 3
            total = total + part.sum()
        for place, (part, other) in enumerate(zip((first, second), (second, first), strict=True)):
            if part.sum() > 1:
                first = second + place
            total = total + part.sum() * other.max()
        return total, first, second
