"""Small programs with deques, sets, sorts by a key and slices that are deleted."""

import collections
import contextlib
import operator
from collections import deque

import torch

from split.language import Layers

ALLOWED = {1, 3, 5}


class Small(Layers):
    @staticmethod
    def inputs(number):
        return (torch.randn(2 + number % 5, 6) * (0.3, 1, 3)[number % 3],)


class Queue(Small):
    """A breadth-first walk whose length the data decide."""

    def forward(self, x):
        queue = deque([0])
        order = []
        while queue:
            node = queue.popleft()
            order.append(node)
            for child in (2 * node + 1, 2 * node + 2):
                if child < 12 and x.sum().item() * child > -1:
                    queue.append(child)
        return order, x * len(order)


class Window(Small):
    """A window of the last three tensors."""

    def forward(self, x):
        window = collections.deque(maxlen=3)
        for row in x:
            if row.sum() > 0:
                window.append(row)
            else:
                window.append(-row)
        return torch.stack(list(window)), len(window)


class KnownWindow(Small):
    def forward(self, x):
        window = deque([x, x + 1], 2)
        for layer in (self.a, self.b):
            window.append(layer(window[-1]))
        window.appendleft(window[0] * 2)
        if x.sum() > 0:
            window.pop()
        return sum(window) * len(window), window[0]


class Recent(Small):
    """Numbers of the host in a window with `in`."""

    def forward(self, x):
        recent = deque(maxlen=2)
        kept = []
        for token in (x.abs().sum(1) * 2).long().tolist():
            if token in recent:
                continue
            recent.append(token)
            kept.append(token)
        return kept, list(recent), bool(recent)


class Visited(Small):
    def forward(self, x):
        visited = set()
        steps = []
        position = 0
        while position not in visited and len(visited) < 20:
            visited.add(position)
            steps.append(position)
            position = (position * 3 + int(x.abs().sum().item())) % 11
        return steps, x * len(visited)


class Banned(Small):
    """Tokens that were taken before are left out."""

    def forward(self, x):
        scores = self.a(x)[0]
        seen, order = {5}, []
        for _ in range(4):
            for token in scores.argsort(descending=True).tolist():
                if token not in seen:
                    order.append(token)
                    seen.add(token)
                    break
        seen.discard(5)
        return order, sorted(seen), len(seen | ALLOWED), len(seen & ALLOWED)


class KnownSet(Small):
    def forward(self, x):
        done = set()
        for name in ("a", "b", "a"):
            if name in done:
                continue
            done.add(name)
            x = getattr(self, name)(x)
        if len(done) == 2 and x.sum() > 0:
            return x * 2
        return x


class AliasedSet(Small):
    def forward(self, x):
        first = set()
        second = first
        if x.sum() > 0:
            second.add(1)
        second |= {2}
        return x * len(first), 1 in first, len(first - {2})


class SetOfList(Small):
    def forward(self, x):
        labels = x.argmax(1).tolist()
        total = x.new_zeros(6)
        for label in sorted(set(labels)):
            total = total + x.sum(0) * label
        return total, len({label % 2 for label in labels})


class DeletesSlice(Small):
    def forward(self, x):
        rows = [row for row in x if row.sum() > 0]
        numbers = x.sum(1).tolist()
        del numbers[1:]
        del rows[2:]
        known = [1, 2, 3, 4]
        del known[:2]
        return len(rows), numbers, known, x * known[0]


class TrimsHistory(Small):
    def forward(self, x):
        history, alias = [], None
        for value in x.sum(1).tolist():
            history.append(value)
            alias = history
            del history[:-2]
        return history, alias, len(history)


class SortsByKey(Small):
    def forward(self, x):
        pairs = [(row.sum().item(), place) for place, row in enumerate(x)]
        pairs.sort(key=lambda pair: pair[0], reverse=True)
        best = max(pairs, key=lambda pair: abs(pair[0]))
        order = [place for _, place in sorted(pairs, key=operator.itemgetter(0))]
        return pairs, best, x[order]


class SortsKnown(Small):
    def forward(self, x):
        layers = sorted([("b", 2), ("a", 1)], key=lambda pair: pair[1])
        for name, scale in layers:
            x = getattr(self, name)(x) * scale
        return x if x.sum() > 0 else -x


class SortsTensors(Small):
    """Rows of tensors in the order of numbers, ties in their own order."""

    def forward(self, x):
        items = [(int(row.sum().item()), row) for row in x if row.abs().max() > 0.1]
        items = sorted(items, key=lambda item: -item[0])
        if len(items) == 0:
            return x
        return torch.stack([row for _, row in items])


class Suppresses(Small):
    def forward(self, x):
        with contextlib.suppress(AttributeError):
            hook = self.missing  # noqa: F841
        scale = 1
        with contextlib.suppress(ImportError, KeyError):
            import math

            scale = math.floor
        return x if x.sum() > 0 else x * (scale is not None)


class ChangesDictionary(Small):
    def forward(self, x):
        state = {"x": x, "steps": 0}
        state.setdefault("steps", 5)
        state.setdefault("scale", 2)
        state.update({"y": self.a(x)}, steps=3)
        if state.pop("steps") == 3 and x.sum() > 0:
            return state["x"] * state["scale"]
        return state.pop("y") + state.pop("none", 1)


class ChosenList(Small):
    """A list that a condition chooses gets the next element."""

    def forward(self, x):
        large, small = [], []
        for row in x:
            (large if row.sum() > 0 else small).append(row * len(small))
        return [*small, *large], len(large)


PROGRAMS = tuple(
    kind
    for kind in vars().copy().values()
    if isinstance(kind, type) and issubclass(kind, Small) and kind is not Small
)
