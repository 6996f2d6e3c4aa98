"""Small programs with variables that are None before a loop of the host, or again within one, and
hold a number or a tensor otherwise."""

import torch

from split.containers import Small

SCALES = {0: 0.5, 2: 2.0, 4: -1.0}


class Segments(Small):
    """The runs of rows above zero."""

    def forward(self, x):
        segments, start = [], None
        active = (x.mean(1) > 0).tolist()
        for place, is_active in enumerate(active):
            if is_active and start is None:
                start = place
            elif not is_active and start is not None:
                segments.append((start, place))
                start = None
        if start is not None:
            segments.append((start, len(active)))
        return segments


class FirstAbove(Small):
    """A place that a loop leaves by `break`, in a function that is called twice."""

    def find(self, values, limit):
        found = None
        for place, value in enumerate(values):
            if value > limit:
                found = place
                break
        return found

    def forward(self, x):
        row = self.find(x.sum(1).tolist(), 0.3)
        other = self.find(x[:, 0].tolist(), 0.0)
        if row is None:
            row = 0
        return x[row] + (0 if other is None else other), other


class GreedyPairs(Small):
    def forward(self, x):
        pairs, taken = [], set()
        for place, scores in enumerate((x @ x.flip(0).T).tolist()):
            best = None
            for other, score in enumerate(scores):
                if other not in taken and (best is None or score > scores[best]):
                    best = other
            if best is not None and scores[best] > 0:
                taken.add(best)
                pairs.append((place, best))
        return pairs


class NoneAgain(Small):
    """None after the loop on one path, where another path has a number of it."""

    def forward(self, x):
        last = None
        for place, value in enumerate(x.sum(1).tolist()):
            if value > 0.5:
                last = place
            elif value < -1:
                last = None
        if x.sum() > 1:
            last = None
        return (x.sum(0), -1) if last is None else (x[last], last)


class PairsOfRows(Small):
    """A row that waits for the next one."""

    def forward(self, x):
        waiting, place, rows = None, 0, [x[0]]
        while place < x.shape[0]:
            row = x[place]
            if row.sum() > 2:
                break
            if waiting is None:
                waiting = row
            else:
                rows.append(self.a(waiting) - row)
                waiting = None
            place += 1
        if waiting is not None:
            rows.append(waiting)
        return torch.stack(rows)


class Labels(Small):
    """One of two constants, or None."""

    def forward(self, x):
        label = None
        for value in x.sum(1).tolist():
            if value > 2:
                label = 3
            elif value < -2:
                label = 7
        return x * (label or 1), label


class RowsWithNumbers(Small):
    """Rows of tensors beside numbers of a list, and beside rows of weights."""

    def forward(self, x):
        total, places = torch.zeros(6), []
        for row, label in zip(x, x.argmax(1).tolist(), strict=True):
            total = total + (self.a(row) if label > 2 else row * label)
        kept = x[x[:, 0] > 0]
        for place, (row, weight) in enumerate(zip(kept.softmax(1), self.a.weight, strict=False)):
            if row.max() > 0.3:
                total = total + row * weight
                places.append(place)
        return total, places


class RowsWithRows(Small):
    def forward(self, x):
        accepted = 0
        for guess, answer in zip(self.a(x).argmax(1), self.b(x).argmax(1), strict=False):
            if guess != answer:
                break
            accepted += 1
        return x[: accepted + 1], accepted


class Bits(Small):
    def forward(self, x):
        number = 0
        for bit in bin(int(x[0].argmax()))[2:]:
            number = 2 * number + int(bit)
        return x * number


class LooksUp(Small):
    def forward(self, x):
        return x * SCALES.get(int(x.sum(0).argmax()), 1.0)


class BestRow(Small):
    """The best row so far, with its score, or None."""

    def best(self, rows, limit):
        best = None
        for place, row in enumerate(rows):
            score = float(self.a(row).max())
            if score > limit and (best is None or score > best[0]):
                best = (score, place, row)
        return best

    def forward(self, x):
        best = self.best(x, 0.9)
        if best is None:
            return x.mean(0), -1
        score, place, row = best
        return self.b(row) * score, place


class StateOfTwo(Small):
    """A state of two tensors that begins as None and becomes None again."""

    def forward(self, x):
        state = None
        for row in x:
            if row.sum() > 0:
                if state is None:
                    state = (self.a(row), row)
                else:
                    h, c = state
                    state = (self.b(h) + c, c * 0.5)
            elif row.sum() < -3:
                state = None
        return x.sum(0) if state is None else state[0] * state[1]


PROGRAMS = tuple(
    kind
    for kind in vars().copy().values()
    if isinstance(kind, type) and issubclass(kind, Small) and kind is not Small
)
