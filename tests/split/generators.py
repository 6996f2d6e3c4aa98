"""Small programs with generators that a loop uses up, and with decorated functions."""

import functools

import torch

from split.containers import Small


def halves(value, limit=0.1):
    while value > limit:
        yield value
        value = value / 2


def evaluating(function):
    """Run a method in evaluation mode, and restore the mode."""

    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        was_training = self.training
        self.eval()
        try:
            return function(self, *args, **kwargs)
        finally:
            self.train(was_training)

    return wrapper


def limited(function):
    """Clamp what a function gives."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs).clamp(-1, 1)

    return wrapper


def scaled(factor):
    def decorate(function):
        def wrapper(self, x):
            return function(self, x * factor) * factor

        return wrapper

    return decorate


class Steps(Small):
    def steps(self, h):
        for layer in (self.a, self.b):
            h = layer(h)
            yield h

    def forward(self, x):
        total = x
        for h in self.steps(x):
            if h.sum() > 0:
                continue
            total = total + h
        return total


class StepsUntil(Steps):
    """Leaves the generator early, by a value."""

    def steps(self, h):
        count = 0
        while count < 3:
            h = torch.tanh(self.a(h)) * 2
            yield h, count
            count += 1

    def forward(self, x):
        taken = []
        for h, number in self.steps(x):
            taken.append(number)
            if h.sum() > 3:
                break
        return h, taken


class Halves(Small):
    def forward(self, x):
        sizes = []
        for size in halves(x.abs().sum().item(), limit=0.5):
            sizes.append(size)
        return sizes, x * len(sizes)


class Enumerates(Steps):
    def forward(self, x):
        for place, h in enumerate(self.steps(x), 1):
            if h.sum() > 0:
                x = x + place * h
        return x


class Zips(Steps):
    def forward(self, x):
        for h, scale in zip(self.steps(x), (2, 3)):  # noqa: B905
            x = x + h * scale if h.sum() > 0 else x
        return x


class Collects(Steps):
    def forward(self, x):
        if x.sum() > 0:
            return torch.stack(list(self.steps(x)))
        return torch.stack([h * 2 for h in self.steps(x)])


class YieldsFrom(Steps):
    def both(self, x):
        yield x
        yield from self.steps(x)
        if x.sum() > 0:
            yield x * 2

    def forward(self, x):
        total = 0
        for h in self.both(x):
            total = total + h.sum()
        return total, sum(self.both(x))


class InnerGenerator(Small):
    def forward(self, x):
        def rows():
            for row in x:
                if row.sum() > 0:
                    yield row

        total = x.new_zeros(6)
        for row in rows():
            total = total + row
        return total


class UsesTheSameNames(Small):
    """The generators use the name of the parameter that a followed generator gets."""

    def steps(self, h, consume=2):
        for layer in (self.a, self.b)[:2]:
            h = layer(h)
            yield h

    def doubles(self, h):
        def consume(value):
            return value * 2

        for layer in (self.a, self.b):
            h = layer(h)
            yield h if h.sum() > 0 else consume(h)

    def first_steps(self, h):
        import math as consume  # noqa: F401

        yield self.a(h)

    def forward(self, x):
        total = x
        for steps in (self.steps, self.doubles, self.first_steps):
            for h in steps(x):
                if h.sum() > 0:
                    total = total + h
        return total


class ChangesArgument(Small):
    """The generator changes a list that the loop reads."""

    def fill(self, x, numbers):
        for value in x.sum(1).tolist():
            numbers.append(value)
            yield value

    def forward(self, x):
        numbers, lengths = [], []
        for _ in self.fill(x, numbers):
            lengths.append(len(numbers))
        return numbers, lengths


class NoGrad(Small):
    @torch.no_grad()
    def forward(self, x):
        return self.a(x) if x.sum() > 0 else x


class EvaluatingForward(Small):
    @evaluating
    def forward(self, x):
        return self.a(x) if x.sum() > 0 else x


class EvaluatingLoop(Small):
    @torch.no_grad()
    @evaluating
    def generate(self, x, steps):
        for _ in range(steps):
            x = self.a(x)
            if x.sum() > 0:
                break
        return x

    def forward(self, x):
        return self.generate(x, steps=4)


class Limited(Small):
    @limited
    def part(self, x):
        return self.a(x) if x.sum() > 0 else x * 3

    def forward(self, x):
        return self.part(x * 0.01) + self.part(x)


class LimitedForward(Small):
    @limited
    def forward(self, x):
        return self.a(x) if x.sum() > 0 else x * 3


class Scaled(Small):
    @scaled(2)
    def part(self, x):
        return self.a(x) if x.sum() > 0 else x

    def forward(self, x):
        return self.part(x)


PROGRAMS = tuple(
    kind
    for kind in vars().copy().values()
    if isinstance(kind, type) and issubclass(kind, Small) and kind is not Small
)
