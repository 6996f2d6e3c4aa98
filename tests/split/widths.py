"""Small programs with slices of a known width, elements at numbers of the host where values decide
sizes, and caches of tuples in tuples."""

import torch

from split.language import Layers


class Rows(Layers):
    """A program whose inputs have several rows."""

    @staticmethod
    def inputs(number):
        return (torch.randn(2 + number % 4, 6) * (0.3, 1, 3)[number % 3],)


class LabelsOfSingleRows(Rows):
    def forward(self, x):
        labels = []
        for step in range(x.shape[0]):
            label = self.heads[0](x[step : step + 1]).argmax(-1)
            if int(label) == 0:
                continue
            labels.append(int(label) + step)
        return labels


class RowsBeforeThePeak(Rows):
    def forward(self, x):
        x = torch.cat([x.new_ones(2, 6), x])
        end = int(x.sum(1).argmax()) + 1
        last = x[max(end, 2) - 2 : max(end, 2)]
        return self.a(last.reshape(1, 12)[:, 3:9]) + last.view(2, 6)


class LastToken(Rows):
    def forward(self, x):
        tokens, state = [1], x.mean(0, keepdim=True)
        for _ in range(4):
            last = torch.tensor(tokens[-1:])
            state = torch.tanh(self.a(state) + last.view(1, 1))
            tokens.append(int(state.argmax()))
            if state.sum() > 1:
                break
        return tokens


class ExpertsByNumber(Rows):
    """A mixture as transformers writes it: the rows of each expert that was chosen at all."""

    def forward(self, x):
        weights, chosen = self.heads[1](x).softmax(-1).topk(1, -1)
        mask = torch.nn.functional.one_hot(chosen, 2).permute(2, 1, 0)
        total = torch.zeros_like(x)
        for expert in mask.sum((-1, -2)).nonzero():
            number = int(expert)
            slot, row = torch.where(mask[number])
            result = (self.a, self.b)[number](x[row])
            total.index_add_(0, row, result * weights[row, slot, None])
        return total


class BoxesByScore(Rows):
    """Suppression: the element at a number, and the others."""

    def forward(self, x):
        order = x.sum(1).argsort(descending=True)
        kept = []
        while order.numel() > 0:
            first = order[0].item()
            kept.append(first)
            others = order[1:]
            near = (x[others] - x[first]).abs().amax(1) < 2.0
            order = others[~near]
        return x[kept], len(kept)


class PicksInPlace(Rows):
    def forward(self, x):
        scores, picked = x.sum(1), []
        for _ in range(2):
            best, place = scores.max(0)
            if best < 0:
                break
            picked.append(place)
            scores[place] = -1.0
        return torch.stack(picked) if picked else None


class CacheOfPairs(Rows):
    """Keys and values of a layer, a pair in a tuple, which a method takes and gives."""

    def step(self, x, past):
        key, value = self.a(x), self.b(x)
        if past is not None:
            key = torch.cat([past[0][0], key])
            value = torch.cat([past[0][1], value])
        return (x @ key.t()).softmax(-1) @ value, ((key, value),)

    def forward(self, x):
        past = None
        for _ in range(4):
            x, past = self.step(x.tanh(), past)
            if x.mean() > 0:
                break
        return x, past[0][0].shape[0]


PROGRAMS = [
    LabelsOfSingleRows,
    RowsBeforeThePeak,
    LastToken,
    ExpertsByNumber,
    BoxesByScore,
    PicksInPlace,
    CacheOfPairs,
]
