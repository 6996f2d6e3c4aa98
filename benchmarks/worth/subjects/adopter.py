"""The subjects of pack `adopter`."""

from subjects import ATTENTION, ATTENTION_SHAPE, SEQUENCE_SHAPE, Subject, scaled

IMAGES = scaled(
    {"batch": 2, "channels": 8, "side": 8},
    {"batch": 8, "channels": 64, "side": 56},
    {"batch": 16, "channels": 128, "side": 56},
)
IMAGES_SHAPE = "{batch} x {channels} x {side} x {side}"
LAYERS = scaled(
    {"batch": 2, "length": 16, "width": 32},
    {"batch": 4, "length": 256, "width": 768},
    {"batch": 2, "length": 512, "width": 1024},
)
FEATURES = scaled(
    {"rows": 32, "width": 64, "out": 64},
    {"rows": 256, "width": 2048, "out": 2048},
    {"rows": 4096, "width": 2048, "out": 512},
)
SCORES = scaled(
    {"batch": 2, "heads": 4, "length": 16},
    {"batch": 4, "heads": 12, "length": 512},
    {"batch": 1, "heads": 16, "length": 2048},
)
SCORES_SHAPE = "{batch} x {heads} x {length} x {length}"
ROWS_INPUT = """

def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
"""
MASKED_INPUT = """

def inputs(batch, length, width):
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[:, length - length // 8 :] = 0
    return torch.randn(batch, length, width), mask
"""
SUBJECTS = [
    Subject(
        "adopter/bert-attention",
        ATTENTION_SHAPE,
        ATTENTION,
        """
import math

import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def heads_of(self, x):
        return x.view(*x.shape[:2], self.heads, self.size).transpose(1, 2)

    def forward(self, x, attention_mask, head_mask=None, output_attentions=False):
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        query, key, value = (
            self.heads_of(layer(x)) for layer in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(-1, -2))
        scores = scores / math.sqrt(self.size)
        if mask is not None:
            scores = scores + mask
        weights = nn.functional.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        if head_mask is not None:
            weights = weights * head_mask
        context = torch.matmul(weights, value)
        context = context.transpose(1, 2).flatten(2)
        return (context, weights) if output_attentions else (context,)
"""
        + MASKED_INPUT,
    ),
    Subject(
        "adopter/biased-gelu",
        SEQUENCE_SHAPE,
        LAYERS,
        """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))
"""
        + ROWS_INPUT,
        name="function",
    ),
    Subject(
        "adopter/biased-gelu",
        SEQUENCE_SHAPE,
        LAYERS,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
        )

    def forward(self, x):
        return x + self.net(x)
"""
        + ROWS_INPUT,
        name="container",
    ),
    Subject(
        "adopter/conv-batchnorm",
        IMAGES_SHAPE,
        IMAGES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.normalization = nn.BatchNorm2d(channels)
        self.activation = nn.ReLU()

    def forward(self, hidden_state):
        hidden_state = self.convolution(hidden_state)
        hidden_state = self.normalization(hidden_state)
        hidden_state = self.activation(hidden_state)
        return hidden_state


def inputs(batch, channels, side):
    return (torch.randn(batch, channels, side, side),)
""",
        name="3 x 3",
    ),
    Subject(
        "adopter/conv-batchnorm",
        IMAGES_SHAPE,
        IMAGES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, x):
        return self.layers(x)


def inputs(batch, channels, side):
    return (torch.randn(batch, channels, side, side),)
""",
        name="1 x 1, container",
    ),
    Subject(
        "adopter/conv-batchnorm",
        "{batch} x 3 x {side} x {side} -> {channels}",
        scaled(
            {"batch": 2, "side": 32, "channels": 8},
            {"batch": 4, "side": 224, "channels": 64},
            {"batch": 8, "side": 448, "channels": 64},
        ),
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu(x)
        return x


def inputs(batch, side):
    return (torch.randn(batch, 3, side, side),)
""",
        name="stem",
    ),
    Subject(
        "adopter/dropout-layernorm",
        SEQUENCE_SHAPE,
        LAYERS,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, hidden_states, residual):
        hidden_states = self.dense(hidden_states)
        hidden_states = self.dropout(hidden_states)
        hidden_states = self.norm(hidden_states + residual)
        return hidden_states


def inputs(batch, length, width):
    return torch.randn(batch, length, width), torch.randn(batch, length, width)
""",
    ),
    Subject(
        "adopter/fused-qkv",
        SEQUENCE_SHAPE,
        LAYERS,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, hidden_states):
        query = self.query(hidden_states)
        key = self.key(hidden_states)
        value = self.value(hidden_states)
        return torch.stack((query, key, value))
"""
        + ROWS_INPUT,
    ),
    Subject(
        "adopter/gpt2-attention",
        ATTENTION_SHAPE,
        ATTENTION,
        """
import math

import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        self.register_buffer("bias", causal.view(1, 1, length, length))

    def heads_of(self, x):
        return x.view(*x.shape[:2], self.heads, self.size).transpose(1, 2)

    def forward(self, x, mask=None, output_attentions=False):
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        query, key, value = self.heads_of(query), self.heads_of(key), self.heads_of(value)
        length = x.shape[1]
        causal = self.bias[:, :, :length, :length]
        lowest = torch.finfo(x.dtype).min
        weights = torch.matmul(query, key.transpose(-1, -2))
        weights = weights / math.sqrt(self.size)
        weights = torch.where(causal, weights, lowest)
        if mask is not None:
            weights = weights + mask
        weights = nn.functional.softmax(weights, dim=-1)
        weights = self.dropout(weights)
        context = torch.matmul(weights, value)
        outputs = (self.proj(context.transpose(1, 2).flatten(2)),)
        if output_attentions:
            outputs = outputs + (weights,)
        return outputs
"""
        + ROWS_INPUT,
    ),
    Subject(
        "adopter/linear-batchnorm",
        "{rows} x {width} -> {out}",
        FEATURES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.dense = nn.Linear(width, out, bias=False)
        self.norm = nn.BatchNorm1d(out)

    def forward(self, pooled):
        pooled = self.dense(pooled)
        pooled = self.norm(pooled)
        return pooled.relu()


def inputs(rows, width):
    return (torch.randn(rows, width),)
""",
    ),
    Subject(
        "adopter/softmax",
        SCORES_SHAPE,
        SCORES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self):
        super().__init__()
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, scores):
        return self.softmax(scores)


def inputs(batch, heads, length):
    return (torch.randn(batch, heads, length, length),)
""",
    ),
    Subject(
        "adopter/t5-attention",
        ATTENTION_SHAPE,
        ATTENTION,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.relative_attention_bias = nn.Embedding(32, heads)
        distance = torch.arange(length)[None] - torch.arange(length)[:, None]
        self.register_buffer("buckets", distance.abs().clamp(max=31))

    def heads_of(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.size).transpose(1, 2)

    def forward(self, x, head_mask=None, output_attentions=False):
        query = self.heads_of(self.q(x))
        key = self.heads_of(self.k(x))
        value = self.heads_of(self.v(x))
        position_bias = self.relative_attention_bias(self.buckets).permute(2, 0, 1).unsqueeze(0)
        scores = torch.matmul(query, key.transpose(3, 2))
        scores += position_bias
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        weights = nn.functional.dropout(weights, p=0.1, training=self.training)
        if head_mask is not None:
            weights = weights * head_mask
        context = torch.matmul(weights, value)
        outputs = (self.o(context.transpose(1, 2).flatten(2)),)
        if output_attentions:
            outputs = outputs + (weights,)
        return outputs
"""
        + ROWS_INPUT,
    ),
]
