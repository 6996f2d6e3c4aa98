"""Networks whose calls leave a state to the next one."""

import torch
from torch import nn

from split.language import Layers


class HiddenBuffer(Layers):
    """A hidden state in a buffer, a counter, and a decision on each."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 6)
        self.register_buffer("h", torch.zeros(1, 6))
        self.count = 0

    def forward(self, x):
        self.h = self.cell(x, self.h)
        if self.h.sum() > 0:
            self.h = self.h * 0.5
        self.count += 1
        return self.h if self.count > 2 else self.h * 2


class CounterBuffer(Layers):
    """A buffer that is changed in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps += 1
        return x * 2 if self.steps > 3 else x


class GrowingCache(Layers):
    """Keys that grow with every call, none at first."""

    def __init__(self):
        super().__init__()
        self.keys = nn.Linear(6, 6)
        self.past = None

    def forward(self, x):
        keys = self.keys(x)
        if self.past is not None:
            keys = torch.cat([self.past, keys])
        self.past = keys
        mixed = (x @ keys.T).softmax(-1) @ keys
        return mixed if mixed.sum() > 0 else -mixed


class PreallocatedCache(Layers):
    """A cache that is filled in place, and its position."""

    def __init__(self):
        super().__init__()
        self.keys = nn.Linear(6, 6)
        self.register_buffer("cache", torch.zeros(64, 6))
        self.position = 0

    def forward(self, x):
        self.cache[self.position : self.position + 1] = self.keys(x)
        self.position += 1
        keys = self.cache[: self.position]
        return (x @ keys.T).softmax(-1) @ keys


class CachePerLayer(Layers):
    """A list with what each layer keeps."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.past = [None, None]

    def forward(self, x):
        for place, layer in enumerate(self.layers):
            keys = layer(x)
            if self.past[place] is not None:
                keys = torch.cat([self.past[place], keys])
            self.past[place] = keys
            x = (x @ keys.T).softmax(-1) @ keys
        return x


class Recurrent(nn.Module):
    """A layer that keeps the two tensors of an LSTM."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(6, 6)
        self.state = None

    def forward(self, x):
        if self.state is None:
            zeros = x.new_zeros(x.shape[0], 6)
            self.state = (zeros, zeros)
        self.state = self.cell(x, self.state)
        return self.state[0]


class RecurrentLayers(Layers):
    """Two such layers within another module."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Recurrent(), Recurrent()])
        self.head = nn.Linear(6, 3)

    def forward(self, x, state=1.0):
        for layer in self.layers:
            x = layer(x)
        return self.head(x) * state


class LastToken(Layers):
    """A decoder that gives a token, and begins the next call with it."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.cell = nn.GRUCell(6, 6)
        self.head = nn.Linear(6, 20)
        self.h = self.token = None

    def forward(self, x):
        if self.h is None:
            self.h = x
            self.token = torch.zeros(x.shape[0], dtype=torch.long)
        self.h = self.cell(self.embedding(self.token), self.h)
        self.token = self.head(self.h).argmax(-1)
        return self.token


class Gate(Layers):
    """A truth and a number of Python that the next call reads."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.is_open, self.scale = False, 0.5

    def forward(self, x):
        y = self.layer(x)
        if self.is_open:
            y = y * self.scale
        self.is_open = bool(y.mean() > 0)
        self.scale = float(y.abs().max())
        return y


class StreamingConvolution(Layers):
    """The end of the signal is the beginning of the next call's."""

    ROWS = (4, 5, 3, 7)

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(6, 6, 3)
        self.register_buffer("end", torch.zeros(6, 2))

    def forward(self, x):
        signal = torch.cat([self.end, x.T], -1)
        self.end = signal[:, -2:]
        y = self.convolution(signal[None])[0]
        return y if y.mean() > 0 else y.relu()


class ScratchOnly(Layers):
    """An attribute that each call assigns before it reads it, and a table that the first one
    makes."""

    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(6.0)
        self.doubled = x * 2
        return self.doubled + self.table if x.sum() > 0 else self.doubled


class ReplacedBuffer(Layers):
    """A buffer that is assigned anew."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(1))

    def forward(self, x):
        self.state = self.state + 1
        return x if x.sum() > 0 else x * self.state


class Alternates(Layers):
    """A state that comes back to what it was."""

    def __init__(self):
        super().__init__()
        self.turn = 0

    def forward(self, x):
        self.turn = 1 - self.turn
        if x.sum() > 0:
            x = x * 2
        self.turn = 1 - self.turn
        return x + self.turn


class PreparesAgain(Layers):
    """A mask that the first call makes, and some of the later ones make anew."""

    def __init__(self):
        super().__init__()
        self.mask = None

    def forward(self, x):
        if self.mask is None or x.sum() > 0:
            self.mask = x
        return x + self.mask


class FirstFrame(Layers):
    """The mean of the first frame, by which all are moved."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.mean = None

    def forward(self, x):
        if self.mean is None:
            self.mean = x.mean()
        y = self.layer(x - self.mean)
        return y if y.sum() > 0 else -y


class RunningPeak(Layers):
    """The largest number so far, which few calls change."""

    def __init__(self):
        super().__init__()
        self.peak = 0.0

    def forward(self, x):
        self.peak = max(self.peak, float(x.max()))
        return x / (self.peak + 1)


class EmptyAtFirst(Layers):
    """A tuple that is empty before the first call, and a number."""

    def __init__(self):
        super().__init__()
        self.last, self.ratio = (), 1.0

    def forward(self, x):
        y = x + self.last[0] if self.last else x
        self.last = (x,)
        y = y * self.ratio
        self.ratio = float(x.mean())
        return y


class FirstCall(Layers):
    """A counter that tells the first call from the others."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.calls = 0

    def forward(self, x):
        y = self.layer(x) if self.calls == 0 else x
        self.calls += 1
        return y


class FirstSign(Layers):
    """A text that the first call chooses, which is no state that can be carried."""

    def __init__(self):
        super().__init__()
        self.sign = ""

    def forward(self, x):
        if not self.sign:
            self.sign = "+" if x.sum() > 0 else "-"
        return x if self.sign == "+" else -x


class QuotedPath(Layers):
    """A state in a module whose name is no identifier."""

    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleDict({"a-b": Recurrent()})

    def forward(self, x):
        return self.cells["a-b"](x)


class LastFour(nn.Module):
    """A list that grows up to a length, which is no state that can be carried."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def forward(self, x):
        self.kept.append(x)
        if len(self.kept) > 4:
            self.kept.pop(0)
        return torch.stack(self.kept).mean(0)


class SharedTensor(nn.Module):
    """Two states that are one tensor, which is changed in place."""

    def __init__(self):
        super().__init__()
        self.total = self.shown = torch.zeros(1, 6)

    def forward(self, x):
        self.total += x
        return self.shown * 2


class SeenInParts(nn.Module):
    """A state that is a part of another one; only long sequences show it."""

    def __init__(self):
        super().__init__()
        self.table = torch.zeros(64, 6)
        self.late = self.table[32:]
        self.position = 0

    def forward(self, x):
        self.table[self.position : self.position + 1] = x
        self.position += 1
        self.late = self.late + 0
        return self.late.sum(0) + x


class MeetLater(nn.Module):
    """A state that becomes the tensor of another one, which is changed in place, at the fifth
    call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 6))
        self.start, self.count = torch.zeros(1, 6), 0

    def forward(self, x):
        self.total += x
        y = self.total - self.start
        self.count += 1
        if self.count % 5 == 0:
            self.start = self.total
        return y


class ListsMeetLater(nn.Module):
    """A state that becomes the list of another one, which changes, at the fifth call."""

    def __init__(self):
        super().__init__()
        self.totals, self.starts, self.count = [torch.zeros(1, 6)], [torch.zeros(1, 6)], 0

    def forward(self, x):
        self.totals[0] = self.totals[0] + x
        y = self.totals[0] - self.starts[0]
        self.count += 1
        if self.count % 5 == 0:
            self.starts = self.totals
        return y


class FirstMean(nn.Module):
    """An object that keeps the mean of the first call, which is no state that can be carried."""

    def __init__(self):
        super().__init__()
        self.norms = [Mean()]

    def forward(self, x):
        return x - self.norms[0](x)


class Mean(nn.Module):
    """The mean of the first input that it gets."""

    def __init__(self):
        super().__init__()
        self.mean = None

    def forward(self, x):
        if self.mean is None:
            self.mean = x.mean()
        return self.mean


class CountsDown(nn.Module):
    """A loop over whole numbers that does not end for those below zero."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x, steps):
        left = int(steps)
        while left != 0:
            left -= 1
        return self.layer(x) if x.sum() > 0 else x + left
