"""Networks that take elements of constant containers by keys that values decide."""

import torch
from torch import nn
from torch.nn import functional as F


class Table(nn.Module):
    """A network of a matrix and a key, with the elements that a container has for the keys. The
    examples show the keys 0 to 2."""

    def __init__(self):
        super().__init__()
        self.table = self.make_table()

    def make_table(self):
        return [[0, 1], [1, 2], [3, 1], [2, 0, 1], [], [4]]

    def inputs(self, number):
        return torch.randn(2, 6), torch.tensor(number)


class LengthOfAList(Table):
    def forward(self, x, number):
        chosen = self.table[int(number)]
        return x * len(chosen), chosen


class LengthOfACopy(Table):
    def forward(self, x, number):
        chosen = list(self.table[int(number)])
        chosen.append(7)
        return x * len(chosen), chosen


class LengthOfATuple(Table):
    def make_table(self):
        return tuple(map(tuple, super().make_table()))

    def forward(self, x, number):
        chosen = self.table[int(number)]
        return x * len(list(chosen)), len(chosen)


class LengthOfAWord(Table):
    def make_table(self):
        return ["to", "be", "or", "not", "", "a"]

    def forward(self, x, number):
        letters = list(self.table[int(number)])
        return x * len(letters), letters


class LettersOfANumber(Table):
    def forward(self, x, number):
        digits = list(str(int(number) * 4))
        return x * len(digits), len(digits)


class ListsByKey(Table):
    def make_table(self):
        return dict(enumerate(super().make_table()))

    def forward(self, x, number):
        for column in self.table[int(number)]:
            x = x + x[:, column : column + 1]
        return x


class NumbersByKey(Table):
    def make_table(self):
        return {0: 0.5, 1: 2.0, 2: 3.0, 3: -1.0}

    def forward(self, x, number):
        return x * self.table[int(number)]


class NumbersByWord(Table):
    def make_table(self):
        return {"scale 0": 0.5, "scale 1": 2.0, "scale 2": 3.0, "scale 3": -1.0}

    def forward(self, x, number):
        return x * self.table[f"scale {int(number)}"]


class NumbersByPair(Table):
    def make_table(self):
        return {(row, sign): row + 0.5 * sign for row in range(4) for sign in (False, True)}

    def forward(self, x, number):
        return x * self.table[int(number), bool(x[0, 0] > 0)]


class IsAKey(Table):
    def make_table(self):
        return {0: "first", 3: "last"}

    def forward(self, x, number):
        return x + 1 if int(number) in self.table else x - 1


class NumbersOfARange(Table):
    def make_table(self):
        return range(3, 11, 2)

    def forward(self, x, number):
        return x * self.table[int(number)]


class Tensors(Table):
    def make_table(self):
        return [torch.full((6,), 1.5 * number) for number in range(3)]

    def forward(self, x, number):
        return x * self.table[int(number)]


class TensorsByKey(Tensors):
    def make_table(self):
        return dict(enumerate(super().make_table()))


class Functions(Table):
    def make_table(self):
        return {0: torch.relu, 1: torch.tanh, 2: F.silu}

    def forward(self, x, number):
        return self.table[int(number)](x)


class Modules(Functions):
    def make_table(self):
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        return {0: self.first, 1: self.second, 2: self.first}


class Parameters(Table):
    def make_table(self):
        return nn.ParameterDict({f"scale {number}": torch.randn(6) for number in range(3)})

    def forward(self, x, number):
        return x * self.table[f"scale {int(number)}"]
