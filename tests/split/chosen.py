"""Small programs in which paths choose a module, a function or a weight, or in which functions
decide by sizes that values decide."""

import torch
from torch import nn

from split.widths import Rows


class ChosenLayer(Rows):
    def forward(self, x):
        layer = self.a if x.sum() > 0 else self.b
        return layer(x).relu() + layer(x * 2)


class LastHead(Rows):
    """The head of the layer at which a loop ended."""

    def forward(self, x):
        for layer, head in zip((self.a, self.b), self.heads, strict=False):
            x = layer(x)
            if head(x).softmax(-1).max() > 0.7:
                break
        return head(x)


class OptionalLayer(Rows):
    def forward(self, x):
        adapter = None
        if x.sum() > 0:
            adapter = self.b
        y = self.a(x)
        if adapter is not None:
            y = y + adapter(y)
        return y


class BestHead(Rows):
    """None at first, which the call of it excludes."""

    def forward(self, x):
        most, chosen = -1e9, None
        for head in self.heads:
            score = head(x).mean().item()
            if score > most:
                most, chosen = score, head
        return chosen(x), most


class ChosenAgain(Rows):
    """A choice among choices, in functions and under a second name."""

    def run(self, layer, x):
        return layer(x).tanh()

    def forward(self, x):
        layer = self.a if x[0, 0] > 0 else torch.relu
        if x[0, 1] > 0:
            layer = torch.sigmoid
        other = layer
        layer = self.b if x[0, 2] > 0 else layer
        return self.run(layer, x) - other(x)


class ChosenWeight(Rows):
    def forward(self, x):
        weight = self.a.weight if x.sum() > 0 else self.b.weight
        return torch.nn.functional.linear(x, weight * 2)


class HelperDecides(Rows):
    """A method that leaves early where a mask chose no row."""

    def run(self, layer, rows):
        if rows.shape[0] == 0:
            return rows
        return layer(rows)

    def forward(self, x):
        chosen = self.heads[0](x).argmax(1)
        result = torch.zeros_like(x)
        for number, layer in enumerate((self.a, self.b)):
            mask = chosen == number
            result[mask] = self.run(layer, x[mask])
        return result


class Expert(nn.Module):
    """A layer that leaves early where it gets no row."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, rows):
        return rows if rows.numel() == 0 else self.layer(rows).relu()


class ModuleDecides(Rows):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([Expert(self.a), Expert(self.b)])

    def forward(self, x):
        chosen = self.heads[0](x).argmax(1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            result[chosen == number] = expert(x[chosen == number])
        return result


class Tree(Rows):
    """A recursion that ends where no row is left."""

    def descend(self, x, depth):
        if depth == 2 or x.shape[0] == 0:
            return self.heads[depth](x).sum(0)
        mask = x[:, depth] > 0
        return self.descend(x[mask], depth + 1) - self.descend(x[~mask], depth + 1)

    def forward(self, x):
        return self.descend(x, 0)


class CausalWhereLong(Rows):
    """A keyword of torch that selects what it does, decided by a size."""

    def forward(self, x):
        query = x[x[:, 0] > 0][None, None]
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, query, query, is_causal=query.shape[2] > 1)[0, 0]


class BestPair(Rows):
    """A pair that only some iterations make anew."""

    def forward(self, x):
        best, count = None, int(x.sum())
        for number in x.argmax(1).tolist():
            if count > 1:
                continue
            best = (0.5, count)
            count = number - 2
        return best


PROGRAMS = [
    ChosenLayer,
    LastHead,
    OptionalLayer,
    BestHead,
    ChosenAgain,
    ChosenWeight,
    HelperDecides,
    ModuleDecides,
    Tree,
    CausalWhereLong,
    BestPair,
]


class ChangesInALoop(Rows):
    """A layer that an iteration chooses for the next one."""

    def forward(self, x):
        layer, count = self.a, 0
        while x.abs().max() > 0.5 and count < 5:
            x, count = layer(x) * 0.7, count + 1
            layer = self.b if x.mean() > 0 else self.a
        return layer(x)


class HeldTwiceLater(Rows):
    """Two lists that are one from the second iteration on."""

    def forward(self, x):
        values = x.sum(1).tolist()
        other = [0.0]
        for number in x.argmax(1).tolist():
            if number > 3:
                other.append(1.0)
            other = values
        return other
