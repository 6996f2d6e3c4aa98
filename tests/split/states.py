"""State that a call keeps in objects, and constants that decide: some of their sides no input can
take."""

import dataclasses
from typing import NamedTuple

import torch
from torch import nn

from split.language import Layers


@dataclasses.dataclass
class State:
    hidden: torch.Tensor
    steps: int = 0
    done: bool = False
    log: list = dataclasses.field(default_factory=list)
    named: dict = dataclasses.field(default_factory=dict)

    @property
    def total(self):
        return self.hidden.sum()

    def advance(self, change, by=1):
        self.hidden, self.steps = self.hidden + change, self.steps + by
        self.log.append(self.hidden.sum().item())


@dataclasses.dataclass
class Derived(State):
    norm: object = dataclasses.field(init=False, default=None)
    scale: dataclasses.InitVar[int] = 1
    limit: int = dataclasses.field(default=3, kw_only=True)

    def __post_init__(self, scale):
        self.norm = self.hidden.norm() * scale


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    second: object = None


@dataclasses.dataclass(frozen=True)
class Step:
    hidden: torch.Tensor
    number: int = 0
    WIDTH = 6

    @property
    def total(self):
        return self.hidden.sum()

    def moved(self, change):
        return Step(self.hidden + change, self.number + 1)

    @classmethod
    def start(cls, hidden):
        return cls(hidden * 2)


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Changed(Layers):
    def forward(self, x):
        state = State(self.a(x))
        while state.steps < 4 and state.hidden.sum() > 0:
            state.hidden = state.hidden - 0.1
            state.steps += 1
        return state.hidden, state.steps


class ByMethods(Layers):
    def forward(self, x):
        state = State(self.a(x))
        while state.steps < 4 and state.total > 0:
            state.advance(-0.1)
        return state.hidden, state.log


class ByAFunction(Layers):
    def change(self, pair):
        pair.first = self.b(pair.first)
        return pair.first.mean()

    def forward(self, x):
        pair = Pair(x)
        mean = self.change(pair)
        return (pair.first, mean) if x.sum() > 0 else pair.first


class ByALayer(Layers):
    class Layer(nn.Module):
        def forward(self, pair):
            pair.first = pair.first * 2
            return pair.first.mean()

    def __init__(self):
        super().__init__()
        self.layer = ByALayer.Layer()

    def forward(self, x):
        pair = Pair(x)
        mean = self.layer(pair)
        if mean > 0:
            pair.second = mean
        return pair


class Constructed(Layers):
    def forward(self, x):
        state = Derived(x, scale=2, log=[1.0])
        state.named["sum"] = x.sum()
        for _ in range(2):
            if state.total > 0:
                state.advance(-state.norm / 9, by=2)
            else:
                state.done = True
        return state.hidden, state.done, state.limit, state.log, state.named["sum"]


class Aliased(Layers):
    def forward(self, x):
        pair = Pair(x, 1)
        same = pair
        if x.sum() > 0:
            same.first = self.a(x)
        setattr(pair, "sec" + "ond", 3)
        return pair.first, same.second


class FromBothPaths(Layers):
    def forward(self, x):
        if x.sum() > 0:
            state, other = State(self.a(x)), State(x)
        else:
            other, state = State(x * 3), State(self.b(x), 3)
        same = state
        same.steps += 1
        return state.hidden, state.steps, other.hidden, other.steps


class DictionaryFromBothPaths(Layers):
    def forward(self, x):
        result = (
            {"hidden": self.a(x), "exit": 1} if x.sum() > 0 else {"hidden": self.b(x), "exit": 2}
        )
        result["hidden"] = result["hidden"] * 2
        return result


class MadeAgain(Layers):
    def forward(self, x):
        state = State(x)
        while state.steps < 4:
            if state.total < 0:
                break
            after = State(state.hidden - 0.1)
            after.steps = state.steps + 1
            state = after
        return state.hidden, state.steps


class Shrinks(Layers):
    def forward(self, x):
        cache = {"rows": x[x > -0.2], "count": 0}
        while cache["rows"].shape[0] > 1:
            cache = {"rows": cache["rows"][1:], "count": cache["count"] + 1}
        return cache


class FoundInALoop(Layers):
    def forward(self, x):
        for place in range(3):
            if x[0, place] > 0:
                found = State(x[:, place], place)
                break
        else:
            found = State(x[:, 5], -1)
        found.hidden = found.hidden + 1
        return found.hidden, found.steps


class Replaced(Layers):
    def forward(self, x):
        pair, step = Pair(x, 0), Step.start(x)
        if x.sum() > 0:
            pair = dataclasses.replace(pair, first=self.a(pair.first), second=1)
        best = step
        while step.number < 3 and step.total > 0:
            step = step.moved(-0.3)
            if step.hidden.max() < 1.5:
                best = step
        return pair.first, pair.second, best.hidden, best.number, step.WIDTH


class WithSlots(Layers):
    def forward(self, x):
        held = Slots(x)
        if x.sum() > 0:
            held.value = self.a(x)
        return held.value * 2


class Patience(Layers):
    """Leaves where two heads in a row agree: not after the first one."""

    def forward(self, x):
        agreed, before = 0, None
        for head in self.heads:
            logits = head(x)
            if before is not None and logits.argmax() == before.argmax():
                agreed += 1
            else:
                agreed = 0
            before = logits
            if agreed == 2:
                break
        return before, agreed


class Names(Layers):
    """Layers by a name, which is a state: no example has to show a state that cannot be."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict(
            {"start": nn.Linear(6, 6), "left": nn.Linear(6, 6), "right": nn.Linear(6, 6)}
        )

    def forward(self, x):
        state = "start"
        for _ in range(2):
            x = self.layers[state](x)
            if state == "start":
                state = "left" if x.sum() > 0 else "right"
        return x, state


class Flags(Layers):
    def forward(self, x):
        done, used = False, 0
        for head in self.heads:
            if not done:
                used += 1
                done = bool(head(x).sum() > 0)
        if done and used == 0:
            return x.missing
        return x, used, done


class Computed(Layers):
    def forward(self, x):
        place = 1 if x.sum() > 0 else 2
        if place * 3 == 3:
            return self.a(x)
        if place * 3 == 6:
            return self.b(x)
        return x.missing


class Remainder(Layers):
    def forward(self, x):
        place = int(x.abs().sum()) % 3
        if place == 0:
            return x
        if place == 1:
            return self.a(x)
        if place == 2:
            return self.b(x)
        return x.missing


class ToZero(Layers):
    """What a loop carries may be anything."""

    def forward(self, x):
        left, turns = 1 if x[0, 0] > 0 else 2, 0
        while turns < 5:
            turns += 1
            if left == 0:
                break
            if x[0, turns] > -0.5:
                left -= 1
        return x, left, turns


class LeadsThere(Layers):
    """The first example chooses the last row, which has no next one."""

    def forward(self, x):
        rows = x.reshape(3, 2)
        place = int(rows[:, 0].argmax())
        if place == 2:
            return rows[0]
        return rows[place + 1]


class Continues(Layers):
    """What an iteration leaves that `continue` ends."""

    def forward(self, x):
        turns, y, state, last = 0, x, State(x), None
        while turns < 3:
            turns += 1
            if x[0, turns] > 0:
                state, last = State(y * 2, turns), self.a(y)
                y = torch.cat([y, last])
                continue
            y = y + 1 if last is None else y - last.mean()
        return y, state.hidden, state.steps, last


class ContinuesInLists(Layers):
    def forward(self, x):
        turns, kept = 0, {"rows": None, "count": 0}
        while turns < 4:
            turns += 1
            if self.heads[0](x)[0, 0] > turns - 2:
                if x[0, 0] > 0:
                    kept = {"rows": self.a(x), "count": kept["count"] + 1}
                    continue
                found = turns
            else:
                found = -turns
            x = x * 0.8
        return kept["rows"], kept["count"], found


class Counts(NamedTuple):
    first: int
    second: int = -1


@dataclasses.dataclass
class Clamped:
    hidden: torch.Tensor
    number: int = 0

    def __init__(self, hidden, number=0):
        self.hidden, self.number = hidden * 2, min(number, 2)


@dataclasses.dataclass
class Keyword:
    second: object = dataclasses.field(default=None, kw_only=True)
    first: object = None


@dataclasses.dataclass
class Computes:
    hidden: torch.Tensor
    large: bool = False
    fixed: int = dataclasses.field(init=False, default=4)

    def __post_init__(self):
        self.large = bool(self.hidden.abs().max() > 1.5)


class Subclass(Pair):
    def __init__(self, first):
        super().__init__(first, 3)


def positive(x):
    """How many of the first numbers are above 0."""
    found = 0
    for place in range(3):
        if x[0, place] > 0:
            found += 1
    return found


class AtOnce(Layers):
    """The right side of an assignment is read before any target changes."""

    def forward(self, x):
        a, b = 1, 1
        for place in range(5):
            if x[0, place] > 0:
                a, b = b, a + b
        state, other = (x, 1), (x * 2, 2)
        if x[0, 5] > 0:
            state, other = other, state
        pair, same = Pair(x), Pair(x * 3, 1)
        pair, same = same, pair
        before = [a, x]
        a, before = a + 1, [a, before[1]]
        return x * a, b, state, other, pair.first, same.second, before


class ValueOfAnd(Layers):
    def forward(self, x):
        found = positive(x)
        return (found > 1 and bool(x[0, 3] > 0)) or found == 0, found or 7, x


class AskedAndChanged(Layers):
    def forward(self, x):
        found = positive(x)
        if found > 0 and (found := found - 1) > x[0, 3]:
            if found == 0:
                return x * 2
            return x * 3
        return x + found


class MadeInnermost(Layers):
    def forward(self, x):
        held, turn = State(x, 1), 0
        while turn < 3 and x[0, turn] > -1:
            turn, inner = turn + 1, 0
            while inner < 2 and x[0, inner + 3] > 0:
                inner += 1
                held = State(x * 2, 5)
        return held.hidden, held.steps


class OfRecords(Layers):
    def forward(self, x):
        counts = Counts(positive(x), 1)
        if counts == (0, 1):
            return x * 2
        if counts[:1] < (2,) and Counts(0).second == -1:
            return x * 3
        return x * counts.second


class ByConstructors(Layers):
    def forward(self, x):
        clamped, keyword, computed = Clamped(x, positive(x)), Keyword(x, second=1), Computes(x)
        if computed.large:
            return clamped.hidden, clamped.number, keyword.first, keyword.second, computed
        return clamped.number, computed, Subclass(x).second


class SignOfZero(Layers):
    def forward(self, x):
        zero = 0.0
        if x[0, 0] > 0:
            zero = -0.0
        return x / (x * 0 + zero)


class FromTheEnd(Layers):
    def forward(self, x):
        place = 2
        if x[0, 0] > 0:
            place = -3
        return self.heads[place](x)


class OnlyOne(Layers):
    """A place that is read where there is one."""

    def forward(self, x):
        places = (x[:, 0] > 1).nonzero()
        if len(places) == 1:
            return x[places.item()]
        return x[0]


class OnlyTruth(Layers):
    """The value of `and` and `or` of tensors, of which the truth is asked."""

    def forward(self, x):
        done, turns = False, 0
        while not done and turns < 4:
            done = x[0, turns] > 0 and x[0, turns + 1] > 0
            turns += 1
        return x * turns, not done


class WholeOrNot(Layers):
    """A number of which the host asks what it is."""

    def forward(self, x):
        known = 2 if x[0, 0] > 0 else 3
        if isinstance(known, int) and not isinstance(known, (float, bool)):
            return x * 2**known
        return x
