"""Small programs that leave a function early: loops over stages of different widths, stages that
have a forward of their own, and positions of extremes."""

import functools

import numpy as np
import torch
from torch import nn

from split.language import Layers


class Stage(nn.Module):
    """A layer that also classifies, or only passes its result on."""

    def __init__(self, width: int, classifies: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width + 2)
        self.layer.weight.data.mul_(3)
        if classifies:
            self.head = nn.Linear(width + 2, 3)
        else:
            self.forward = self.pass_on

    def forward(self, x):
        if x[0, 0] > 0:
            x = x / 2
        y = torch.tanh(self.layer(x))
        return y, 1, 3 * self.head(y)

    def pass_on(self, x):
        return torch.tanh(self.layer(x)), 0, None


class Stages(Layers):
    """Stages of growing width, of which every second classifies."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([Stage(6 + 2 * n, n % 2 == 1) for n in range(4)])
        self.last = nn.Linear(14, 3)


class OwnForward(Stages):
    def forward(self, x):
        total = x.sum()
        for stage in self.stages:
            x, classifies, scores = stage(x)
            if classifies:
                total = total + scores.sum()
        return x if total > 0 else self.last(x)


class LeavesInMethod(Stages):
    def classify(self, x):
        sure, results = [], []
        place = 0
        for stage in self.stages:
            x, classifies, scores = stage(x)
            if classifies:
                results.append(scores)
                chance = torch.max(torch.softmax(scores[0], dim=0))
                sure.append(chance)
                if chance >= 0.6:
                    return scores, place, True
                place += classifies
        scores = self.last(x)
        results.append(scores)
        sure.append(torch.max(torch.softmax(scores[0], dim=0)))
        place = np.argmax(sure)
        return results[place], place, False

    def forward(self, x):
        return self.classify(x)


def narrow(x, stages, last):
    for stage in stages[:2]:
        x = stage(x)[0]
        if x[0, 0] > 0.4:
            return x[:, :3], "wide"
    if x[1, 1] < -0.4:
        return x[:, 1:4] * 2, "low"
    for stage in stages[2:]:
        x = stage(x)[0]
        if x[0, 1] > 0.4:
            return x[:, 2:5], "high"
    x = last(x)
    return x, "end"


class LeavesTwoLoops(Stages):
    def forward(self, x):
        y, way = narrow(x, self.stages, self.last)
        return (y + 1, way) if y.sum() > 0 else (y, way)


class BreaksOrReturns(Layers):
    def choose(self, x):
        for layer in (self.a, self.b, self.a):
            y = layer(x)
            if y[0, 0] > 0.4:
                return y[:, :2]
            if y[0, 1] < -0.4:
                break
            x = torch.cat([x, y], 1)[:, 1:7]
        return x[:, :2] * 3

    def forward(self, x):
        return self.choose(x)


class ReturnsInHostLoop(Layers):
    def search(self, x, rows):
        for row in rows:
            if row > 1.5:
                return x * row
        x = self.a(x)
        if x.sum() > 0:
            return x
        return self.b(x)

    def forward(self, x):
        return self.search(x, x[:, 0].tolist())


class PositionOfDisplay(Layers):
    def forward(self, x):
        # where the first two are largest, it is the first
        place = np.argmax([x[:, 0].sum(), x[:, 0].sum(), x.mean(), x[0, 3:4].sum()])
        return self.a(x) if place == 0 else x * 2, place


class PositionOfGrownList(Layers):
    def forward(self, x):
        scores = [x.sum()]
        while x.abs().max() > 0.5:
            x = x * 0.5
            scores.append((x - 0.3).abs().sum())
        place = np.argmin(scores)
        return x + place, int(place) * 2, scores[place]


class PositionOfVectors(Layers):
    def forward(self, x):
        return x if np.argmax([x[0], x[1]]) > 2 else self.a(x)


class PositionOfNumbers(Layers):
    def forward(self, x):
        return x if np.argmax([x.sum().item(), x.max().item()]) > 0 else self.a(x)


class WorksInPlace(Layers):
    """Activations in place, as residual networks have them, of tensors with several names."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True)

    def forward(self, x):
        x = self.a(x)
        same = x
        other = x * 1
        x = self.relu(x)
        if same.sum() > 2:
            x = self.drop(self.b(x) + same)
            nn.functional.elu(x, inplace=True)
        y = nn.functional.relu(other, inplace=True) + other
        return x + other, same, y


class WorksInPlaceInLoop(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.a(x)
        while x.sum() > 1:
            self.relu(y)
            x = x - y.abs() - 0.3
            y = self.b(y)
        return self.relu(y) + y


class DropsInput(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5, inplace=True)

    def forward(self, x):
        kept = [x]
        y = self.drop(x)
        return self.a(y) + kept[0] if x.sum() > 0 else nn.functional.dropout(x, 0.5, False, True)


class ReadsAndWorksInPlace(Layers):
    def forward(self, x):
        y = self.a(x)
        return y + nn.functional.relu(y, inplace=True) if x.sum() > 0 else y


class ChangesInput(Layers):
    def forward(self, x):
        return self.a(nn.functional.relu(x, inplace=True)) if x.sum() > 0 else x


class Replaced(Layers):
    """A network with a layer that decides, whose forward a test replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layers()

    def forward(self, x):
        return self.layer(x)


def double(layer, x):
    return layer.a(x) * 2 if x.sum() > 0 else x


def replace_by_partial(layer):
    layer.forward = functools.partial(double, layer)


def replace_by_function(layer):
    layer.forward = lambda x: layer.a(x) * 2 if x.sum() > 0 else x


def replace_by_wrapper(layer):
    inner = layer.forward

    @functools.wraps(inner)
    def forward(x):
        return inner(x) + 1

    layer.forward = forward
