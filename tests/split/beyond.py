"""Networks that compute right on the examples if a number or a size that values decide is taken for
a constant.

Each class has `calls`, and `rare`: inputs that no example is like.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Beyond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.embed = nn.Embedding(50, 4)

    def calls(self):
        return [(torch.randn(5, 4),) for _ in range(8)]

    def rare(self):
        return [torch.full((5, 4), 2e6), torch.cat([torch.full((2, 4), 2e6), torch.randn(3, 4)])]

    def number(self, x):
        return int(x.abs().amax() > 1e6)


class InATensor(Beyond):
    def forward(self, x):
        k = self.number(x)
        return self.embed(torch.tensor([k, 3])) + torch.tensor([float(k)])


class AsAShift(Beyond):
    def forward(self, x):
        return x.roll(self.number(x), 1)


class LeftPadded(Beyond):
    def calls(self):
        return [(torch.randint(1, 40, (1, 6)),) for _ in range(8)]

    def rare(self):
        return [torch.tensor([[0, 0, 49, 7, 8, 9]])]

    def forward(self, ids):
        return self.embed(ids).roll(-int((ids == 0).sum()), 1)


class NoMean(Beyond):
    def forward(self, x):
        kept = x[x[:, 0].abs() < 1e6]
        return kept.mean(0), kept.std(0)


class Attended(Beyond):
    def forward(self, x):
        kept = x[x[:, 0].abs() < 1e6]
        return self.layer(kept[None]), self.layer.self_attn(kept, kept, kept)[0]


class FirstOfSome(Beyond):
    def forward(self, x):
        kept = x[x[:, 0] > 1]
        if kept.shape[0] > 0:
            return kept[0]
        return x[0]


class Suppressed(Beyond):
    """Writes to a slice that is empty in the last step."""

    def forward(self, x):
        keep = x[:, 0] > 0
        for i in range(5):
            if keep[i]:
                keep[i + 1 :] &= (x[i + 1 :] - x[i]).norm(dim=1) > 2
        return keep


class OfAPool(Beyond):
    """ONNX has the size of a window as a constant only."""

    def forward(self, x):
        return F.avg_pool1d(x[None], self.number(x) + 1)
