"""Small programs that mislead a split: names that share a container, effects of keys and
generators, values and sizes beyond the examples."""

import functools
from collections import deque

import torch

from split.containers import Small


class AliasedDeque(Small):
    def forward(self, x):
        q = deque([1, 2])
        p = q
        if x.sum() > 0:
            p.append(3)
        p.popleft()
        return list(q), x * len(q)


class AliasedSlice(Small):
    def forward(self, x):
        numbers = x.sum(1).tolist()
        other = numbers
        del numbers[:1]
        return other, len(other)


class ChangesTensor(Small):
    def gen(self, y):
        for i in range(3):
            y[0] = i
            yield y.sum()

    def forward(self, x):
        y = x.clone()
        t = 0
        for s in self.gen(y):
            t = t + s
        return t, y if x.sum() > 0 else y * 2


class LongerWindow(Small):
    def forward(self, x):
        q = deque(maxlen=4)
        for v in x.sum(1).tolist():
            q.appendleft(v)
        return list(q), q[-1]

    EXAMPLES = 3


class PassedDeque(Small):
    def push(self, q, v):
        q.append(v)
        return len(q)

    def forward(self, x):
        q = deque(maxlen=3)
        n = []
        for v in x.sum(1).tolist():
            if v > 0:
                n.append(self.push(q, v))
        return list(q), n


class EqualMembers(Small):
    def forward(self, x):
        s = {1}
        s.add(True)
        s.add(1.0)
        s.add(x.shape[0])
        return len(s), 1.0 in s, (2 in s)


class Ties(Small):
    def forward(self, x):
        p = [(int(v) % 2, i) for i, v in enumerate(x.sum(1).tolist())]
        a = sorted(p, key=lambda e: e[0], reverse=True)
        b = sorted(p, key=lambda e: e[0])
        p.sort(key=lambda e: (-e[0], -e[1]))
        return a, b, p, min(p, key=lambda e: e[0]), max(p, key=lambda e: e[0])


class AliasedSort(Small):
    def forward(self, x):
        p = x.sum(1).tolist()
        q = p
        p.sort(key=lambda v: -v)
        return q


class KeyWithEffect(Small):
    def forward(self, x):
        calls = []

        def key(v):
            calls.append(v)
            return -v

        p = sorted(x.sum(1).tolist(), key=key)
        return p, calls


class BreaksLate(Small):
    def gen(self, x):
        h = x
        while True:
            h = h * 0.5
            yield h

    def forward(self, x):
        n = 0
        for h in self.gen(x):
            n += 1
            last = h
            if h.abs().max() < 0.1:
                break
        return last, n


class SetOrder(Small):
    def forward(self, x):
        s = set()
        for v in x.sum(1).tolist():
            s.add(int(v * 10))
        return [v for v in s], sum(s)  # noqa: C416


class CopiedSet(Small):
    def forward(self, x):
        s = {int(v) for v in x.sum(1).tolist()}
        t = s.copy()
        u = s | set()
        t.add(99)
        s.discard(0)
        s -= {1}
        return sorted(s), sorted(t), sorted(u)


def clampdeco(f):
    @functools.wraps(f)
    def w(self, x):
        y = f(self, x)
        return y.clamp(max=50.0)

    return w


class WrapperBeyondExamples(Small):
    @clampdeco
    def forward(self, x):
        return x * 3 if x.sum() > 0 else x

    @staticmethod
    def inputs(n):
        return (torch.randn(2 + n % 5, 6) * (1 if n < 12 else 100),)


class WrappedPartBeyondExamples(Small):
    @clampdeco
    def part(self, x):
        return x * 3 if x.sum() > 0 else x

    def forward(self, x):
        return self.part(x)

    inputs = WrapperBeyondExamples.inputs


class BreaksBeyondExamples(Small):
    def forward(self, x):
        for i in range(40):  # noqa: B007
            x = x * 0.9
            if x.abs().max() < 0.3:
                break
        return x, i

    @staticmethod
    def inputs(n):
        return (torch.randn(3, 6) * (0.5 if n < 12 else 5),)


class ElseOfRange(Small):
    def forward(self, x):
        found = -1
        for i in range(6):
            if x[:, i % 6].sum() > 2:
                found = i
                break
        else:
            found = 100
        return found, x


class TwoDeques(Small):
    def forward(self, x):
        q = deque(x.sum(1).tolist())
        r = deque()
        while q:
            v = q.pop()
            if v > 0 and len(r) < 2:
                r.append(v)
            elif not r:
                r.appendleft(-1.0)
        return list(r), len(q), bool(q)


class SetInTuple(Small):
    def forward(self, x):
        s = set()
        pair = (s, 1)
        for v in x.argmax(1).tolist():
            pair[0].add(v)
        return len(s), sorted(s)


class Finally(Small):
    def forward(self, x):
        n = []
        try:
            if x.sum() > 1e9:
                raise ValueError("no")
            n.append(1)
        finally:
            n.append(2)
        return n, x if x.sum() > 0 else -x


class AliasedKnownSet(Small):
    def forward(self, x):
        a = {1, 2}
        b = a
        a |= {3}
        return x * 2 if 3 in b and x.sum() > 0 else x


PROGRAMS = tuple(
    kind
    for kind in vars().copy().values()
    if isinstance(kind, type) and issubclass(kind, Small) and kind is not Small
)
