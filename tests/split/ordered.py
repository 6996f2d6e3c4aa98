"""Small programs for single files: lists of tuples that grow, lists that are ordered and changed by
index, sums and functions of floats, and results that may be None."""

import math

import torch

from split.containers import Small


class Beams(Small):
    """The two best of pairs of a score and the last token."""

    def forward(self, x):
        beams = [(0.0, 0)]
        for row in x:
            scores = self.a(row).log_softmax(-1)
            longer = []
            for score, last in beams:
                for token in range(3):
                    longer.append((score + scores[token].item(), last + token))
            beams = sorted(longer, key=lambda beam: -beam[0])[:2]
        return beams[0][1], beams, len(beams)


class Stack(Small):
    """Pairs that are pushed and popped, also under another name, and rows in pairs of pairs."""

    def forward(self, x):
        stack, order, rows = [(0, 1.0)], [], []
        same = stack
        first, second = x.sum(1).tolist()[:2]
        while stack:
            depth, weight = same.pop()
            order.append(weight)
            rows.append((depth, (x[0] * weight, weight)))
            if depth < 3 and first * weight > -1:
                stack.append((depth + 1, weight * 0.5))
                if depth < 2 and second > 0:
                    same.append((depth + 2, -weight))
        total = x.new_zeros(6)
        for depth, (row, weight) in rows:
            total = total + row * weight * depth
        return order, total, rows


class Orders(Small):
    """Ties stay in their own order, also where the largest come first."""

    def forward(self, x):
        labels = x.argmax(1).tolist()
        pairs = list(enumerate(labels))
        by_parity = sorted(pairs, key=lambda pair: -(pair[1] % 2))
        later = sorted([]) if len(labels) < 4 else [0.25]
        later += [1.5, 0.5]
        best, least = max(pairs, key=lambda p: p[1]), min(pairs, key=lambda p: p[1] % 2)
        scores = [score for score in x.sum(1).tolist() if score > 1]
        alias = scores
        scores.sort(reverse=True)
        order = sorted(range(len(labels)), key=lambda i: labels[i])
        scores.extend((0.5, sum(later, 1.0)))
        return by_parity, later, sorted(labels, reverse=True), best, least, alias, x[order]


class Changed(Small):
    """Elements that are assigned by an index, counts, the reverse order, and the place of one."""

    def forward(self, x):
        counts, labels = [0] * 6, []
        for label in x.argmax(1).tolist():
            counts[label] += 1
            labels.append(label)
        alias = labels
        labels.reverse()
        sums = x.sum(1).tolist()
        sums[-1] = 3.0
        sums[labels[0] % 2 - 1] = sums[0] * 2
        return counts, alias, labels.index(alias[-1]), sums


class Statistics(Small):
    """Sums of floats, of which some may have no terms, squares, and functions of `math`."""

    def forward(self, x):
        values = x.sum(1).tolist()
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / len(values)
        large = [value for value in values if value > 1]
        total = 0.0
        for row, value in zip(x, values, strict=True):
            total += row[0].item() * value
        average = sum(large) / max(len(large), 1)
        return math.sqrt(variance), math.exp(-variance), average, sum(large, 0.5), total


class MayBeNone(Small):
    """A box, a score and a mean that are there for some inputs only."""

    def forward(self, x):
        box = score = None
        for row in x:
            if row[0] > 0.5:
                box, score = row[:4], row[5].item()
        kept = x[x[:, 1] > 1]
        mean = kept.mean(0) if len(kept) > 0 else None
        return {"box": box, "pair": (score, x), "mean": mean}


class Runs(Small):
    """Tuples that are exchanged, replaced, taken from the front, and sorted place by place."""

    def forward(self, x):
        labels = x.argmax(1).tolist()
        runs = []
        for label in labels:
            if runs and runs[-1][0] == label:
                runs[-1] = (label, runs[-1][1] + 1)
            else:
                runs.append((label, 1))
        rows = [(value, place) for place, value in enumerate(x.sum(1).tolist())]
        for place in range(len(rows) - 1):
            if rows[place][0] > rows[place + 1][0]:
                rows[place], rows[place + 1] = rows[place + 1], rows[place]
        pairs = sorted([(label % 2, -place) for place, label in enumerate(labels)], reverse=True)
        by_two = sorted(runs, key=lambda run: (-run[1], run[0]))
        return runs, rows.pop(0), rows, pairs, by_two, max(pairs), min(runs)


PROGRAMS = (Beams, Stack, Orders, Changed, Statistics, MayBeNone, Runs)


class SumOfNone(Small):
    """The sum of no floats is a whole number."""

    def forward(self, x):
        return sum(value for value in x.sum(1).tolist() if value > 0)


class SortsNaN(Small):
    def forward(self, x):
        return sorted((x.sum(1) / x.sum(1).clamp(min=0)).tolist())


class Rare(Small):
    """What raises beyond the examples: lists of other lengths side by side, an index before the
    start, the root of a negative number, the place of what is not there."""

    def forward(self, x, kind):
        values = x.sum(1).tolist()
        small = [value for value in values if value < 100]
        kind = kind.item()
        if kind == 0:
            return sum([a * b for a, b in zip(values, small, strict=True)], 0.0)
        if kind == 1:
            small[-int(values[0]) - 1] = 1.0
            return small[0]
        if kind == 2:
            return math.sqrt(values[0])
        return float([int(value) for value in values].index(int(values[0]) // 200 * 7))

    @staticmethod
    def inputs(number):
        x = torch.tensor([[0.25], [0.5], [1.0]]) * (1 + number % 2)
        return x, torch.tensor(number % 4)
