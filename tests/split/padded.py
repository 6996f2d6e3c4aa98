"""Small programs that pad rows to a multiple of four and look at them in fours."""

import torch
import torch.nn.functional as F

from split.containers import Small


class PaddedRows(Small):
    """Examples with two and six rows need the same padding."""

    def forward(self, x):
        x = F.pad(x, (0, 0, 0, (-x.shape[0]) % 4))
        x = x.view(-1, 4, 6).mean(1)
        return x if x.sum() > 0 else -x


class PaddedWindows(Small):
    def forward(self, x):
        x = x[x.sum(1) > -3]
        count = x.shape[0]
        missing = (4 - count % 4) % 4
        if missing > 0:
            x = torch.cat([x, x.new_zeros(missing, 6)])
        windows = x.reshape(x.shape[0] // 4, 4, 6)
        return self.a(windows).reshape(-1, 6)[:count]


class PaddedImage(Small):
    """Twelve examples with twelve pairs of paddings."""

    @staticmethod
    def inputs(number):
        scale = (0.3, 1, 3)[number % 3]
        return (torch.randn(1, 1, 4 + number % 3, 5 + number % 4) * scale,)

    def forward(self, x):
        height, width = x.shape[-2:]
        x = F.pad(x, (0, -width % 4, 0, -height % 4))
        return x if x.sum() > 0 else -x


class KeepsPrefix(Small):
    """ONNX has no cumulative product; the size of what is kept leaves the sub-network."""

    def forward(self, x):
        kept = torch.cat([x, x])[: (x[:, 0] > -1).long().cumprod(0).sum().item() + 1]
        return kept, kept.shape[0] * 2


PROGRAMS = (PaddedRows, PaddedWindows)
FURTHER_PROGRAMS = (PaddedImage, KeepsPrefix)
