"""Small programs with `map` and `filter`, `torch.equal` of tensors of other lengths, and lists that
are read as a whole."""

import math

import torch

from split.containers import Small


class Mapped(Small):
    """The body of the first loop changes what the function of `map` reads."""

    def forward(self, x):
        scale, out = 1.0, []
        for v in map(lambda x: float(x.sum()) * scale, x):  # noqa: C417
            if v < -3:
                continue
            if v > 6:
                break
            scale = scale + abs(v)
            out.append(v)
        total = torch.zeros(6)
        for row in filter(lambda r: r[0] > 0, x):
            total = total + self.a(row)
        first, second = map(int, x[0, :2] * 3)
        return out, total, first // 2, second % 3


class MappedAtOnce(Small):
    def forward(self, x):
        p, q = self.a(x).argmax(1).tolist(), self.b(x).argmax(1).tolist()
        rows = list(filter(lambda r: r.sum() > 0, x))
        counts = sum(map(lambda a, b: a == b, p, q)), list(filter(None, p))
        if any(map(lambda v: v > 2, x.sum(1).tolist())):  # noqa: C417
            return counts, x.sum(0)
        return counts, torch.stack(rows).sum(0) if rows else self.a(x[0])


class EqualRows(Small):
    """Tensors of other lengths, of which some have the same elements."""

    def forward(self, x):
        a = self.a(x[x[:, 0] > 0]).argmax(1)
        b = self.b(x[x[:, 1] > 0]).argmax(1)
        n = 0
        while not torch.equal(a, b) and n < 4:
            a, b, n = b[1:], a, n + 1
        return n, x.equal(x[:1])


class ReadLists(Small):
    def forward(self, x):
        v, ints = x.sum(1).tolist(), [int(r.abs().sum()) for r in x]
        up = [a for a in v if a > 0]
        best = max(v), min(v), max(ints), sum(ints), sum(a > 0 for a in v), max(up) if up else 0.0
        total = 0.0
        for place, (a, b) in enumerate(zip(v, ints, strict=False)):
            total += place if a > b else b
        seen = []
        for token in x.argmax(1).tolist():
            if token not in seen:
                seen.append(token)
        return best, total, any(a > 2 for a in v), all(a > -2 for a in v), torch.tensor(seen)


class CutLists(Small):
    def forward(self, x):
        v = x.sum(1).tolist()
        w = [a for a in v if a > -1]
        n = int((x[0] > 0).sum())
        copies = list(v), v.copy()
        if n > 3:
            copies[0].append(1.0)
            copies[1].pop()
        rows = [row for row in x if row[0] > 0]
        state = x.sum(0)
        for row in reversed(rows):
            state = torch.tanh(state + row)
        cuts = v[1:], v[::-1], w[-2:], w[n:], w[: n - 3], v[n::-1], w[n - 3 : n]
        return cuts, copies, state, math.ceil(n / 2), math.floor(-n / 4), divmod(-n, 4)


class Queue(Small):
    def forward(self, x):
        queue = x.sum(1).argsort().tolist()
        also, out = queue, []
        while len(queue) > 1:
            out.append(queue.pop(0))
            if x[0, 0] > 0:
                out.append(queue.pop())
        return out, also, len(queue)


class MaskOrNone(Small):
    """A mask that is None for some inputs, and a number that is compared before it is one."""

    def hide(self, x, mask=None):
        y = self.a(x)
        return y if mask is None else y.masked_fill(mask, 0.0)

    def forward(self, x):
        last, out = None, []
        for token in x.argmax(1).tolist():
            if token != last and token > 0:
                out.append(token)
            last = token
        mask = x > 0 if x.sum() > 0 else None
        y = self.hide(x, mask)
        if mask is not None and mask.sum() > 8:
            y = y * 2
        return y, out


class ListsOfNumbers(Small):
    """A list that is written out, of a number of the host and a constant, as an index."""

    def forward(self, x):
        y, place = x.clone(), int(x[:, 0].argmax())
        y[[0, place]] = y[[place, 0]]
        return y, x[[place, 1]]


PROGRAMS = (ListsOfNumbers, Mapped, MappedAtOnce, EqualRows, ReadLists, CutLists, Queue)
