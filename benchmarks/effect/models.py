"""Models as people write them by hand, which `acceptance.py` measures before and after Regraft
rewrites them.

regraft bench benchmarks/effect/models.py:encoder_512
regraft bench benchmarks/effect/models.py:encoder_2048 --mode both
regraft bench benchmarks/effect/models.py:vocabulary_head --mode training --packs torch --unsafe
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LAYERS = 768, 12, 12  # BERT base
VOCABULARY = 128_000


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            self.split(self.query(x)),
            self.split(self.key(x)),
            self.split(self.value(x)),
        )
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
        scores = scores + mask
        weights = functional.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        mixed = torch.matmul(weights, value)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Attention as in transformers: the weights are always returned."""
    weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    weights = weights + mask
    weights = functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = functional.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights, value)
    return output.transpose(1, 2).contiguous(), weights


class WeightsAttention(Attention):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            self.split(self.query(x)),
            self.split(self.key(x)),
            self.split(self.value(x)),
        )
        mixed, _ = eager_attention(self, query, key, value, mask, query.shape[-1] ** -0.5, 0.0)
        return self.out(mixed.reshape(x.shape))


class Block(nn.Module):
    def __init__(
        self, width: int, heads: int, dropout: float, attention: type[Attention] = Attention
    ) -> None:
        super().__init__()
        self.attention = attention(width, heads, dropout)
        self.norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(x + self.dropout(self.attention(x, mask)))
        hidden = functional.gelu(self.up(x))
        return self.output_norm(x + self.dropout(self.down(hidden)))


class Encoder(nn.Module):
    """An encoder with eager attention: `x` is `(batch, T, width)`, `mask` is added to scores of
    `(T)` keys."""

    def __init__(
        self,
        layers: int = LAYERS,
        width: int = WIDTH,
        heads: int = HEADS,
        dropout: float = 0.0,
        attention: type[Attention] = Attention,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads, dropout, attention) for _ in range(layers))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, mask)
        return x


class VocabularyHead(nn.Module):
    """The end of a language model in training: the loss of `(N, width)` hidden states and `(N)`
    class numbers."""

    def __init__(self, width: int = 256, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        logits = self.head(x)
        return functional.cross_entropy(logits, labels)


class HandLayerNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5)


class HandGelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (
            0.5
            * x
            * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
        )


class HandSoftmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        shares = torch.exp(x - x.amax(-1, keepdim=True))
        return shares / shares.sum(-1, keepdim=True)


def encoder(
    length: int, layers: int = LAYERS, dropout: float = 0.0, attention: type[Attention] = Attention
) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    mask = torch.zeros(1, 1, 1, length)
    mask[..., -length // 8 :] = torch.finfo(torch.float32).min  # padding
    return Encoder(layers, dropout=dropout, attention=attention), (
        torch.randn(1, length, WIDTH),
        mask,
    )


def encoder_512() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return encoder(512)


def encoder_2048() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return encoder(2048)


def vocabulary_head() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return VocabularyHead(), (
        torch.randn(1024, 256, requires_grad=True),
        torch.randint(0, VOCABULARY, (1024,)),
    )


def layer_norm() -> tuple[nn.Module, Tensor]:
    return HandLayerNorm(), torch.randn(32, 512, WIDTH)


def gelu() -> tuple[nn.Module, Tensor]:
    return HandGelu(), torch.randn(32, 512, WIDTH)


def softmax() -> tuple[nn.Module, Tensor]:
    return HandSoftmax(), torch.randn(8, HEADS, 512, 512)
