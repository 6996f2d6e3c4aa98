"""Attention as models write it: by hand, with masks, heads and dropout."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def split_heads(x, heads):
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def merge_heads(x):
    batch, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * width)


class SelfAttention(nn.Module):
    """As in BERT: projections with bias, an additive mask, dropout of the weights."""

    def __init__(self, hidden_size=32, heads=4, p=0.1):
        super().__init__()
        self.heads = heads
        self.head_size = hidden_size // heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(p)

    def forward(self, hidden_states, mask=None):
        query = split_heads(self.query(hidden_states), self.heads)
        key = split_heads(self.key(hidden_states), self.heads)
        value = split_heads(self.value(hidden_states), self.heads)
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_size)
        if mask is not None:
            scores = scores + mask
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return merge_heads(torch.matmul(weights, value)), weights


class CausalAttention(nn.Module):
    """As in GPT-2: one projection, a triangle of the past kept in a buffer."""

    def __init__(self, hidden_size=32, heads=4, positions=64):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)
        past = torch.tril(torch.ones(positions, positions, dtype=torch.bool))
        self.register_buffer("past", past[None, None], persistent=False)

    def forward(self, x):
        length = x.shape[1]
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        scores = (query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5
        scores = torch.where(
            self.past[:, :, :length, :length], scores, torch.finfo(scores.dtype).min
        )
        return self.out(merge_heads(F.softmax(scores, dim=-1) @ value))


class CrossAttention(nn.Module):
    """As in an encoder-decoder: queries of the decoder, keys and values of the encoder, a boolean
    mask."""

    def __init__(self, hidden_size=32, heads=4):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.k_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.v_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, x, memory, padding):
        residual = x
        query = split_heads(self.q_proj(self.norm(x)), self.heads)
        key = split_heads(self.k_proj(memory), self.heads)
        value = split_heads(self.v_proj(memory), self.heads)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(padding[:, None, None, :], torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        return residual + merge_heads(weights @ value)


class GroupedAttention(nn.Module):
    """As in LLaMA: rotary positions, fewer keys than queries, softmax in float32."""

    def __init__(self, hidden_size=32, heads=4, kv_heads=2):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        self.head_size = hidden_size // heads
        self.q_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.k_proj = nn.Linear(hidden_size, kv_heads * self.head_size, bias=False)
        self.v_proj = nn.Linear(hidden_size, kv_heads * self.head_size, bias=False)
        self.register_buffer(
            "inverse", 100.0 ** -(torch.arange(0, self.head_size, 2) / self.head_size)
        )

    def rotate(self, x):
        angles = torch.arange(x.shape[-2], device=x.device)[:, None] * self.inverse.float()
        angles = torch.cat([angles, angles], dim=-1).to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()

    def forward(self, x):
        query = self.rotate(split_heads(self.q_proj(x), self.heads))
        key = self.rotate(split_heads(self.k_proj(x), self.kv_heads))
        value = split_heads(self.v_proj(x), self.kv_heads)
        key = key.repeat_interleave(self.heads // self.kv_heads, dim=1)
        value = value.repeat_interleave(self.heads // self.kv_heads, dim=1)
        scores = query @ key.transpose(2, 3) * self.head_size**-0.5
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        return merge_heads(weights @ value)


class WindowAttention(nn.Module):
    """As in Swin: a learned bias for each pair of places in a window, looked up by an index."""

    def __init__(self, hidden_size=32, heads=4, window=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.bias_table = nn.Parameter(torch.zeros(2 * window - 1, heads))
        place = torch.arange(window)
        self.register_buffer(
            "index", place[:, None] - place[None, :] + window - 1, persistent=False
        )

    def forward(self, x):
        batch, length, width = x.shape
        qkv = (
            self.qkv(x)
            .reshape(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        query, key, value = qkv.unbind(0)
        bias = self.bias_table[self.index[:length, :length]].permute(2, 0, 1)
        scores = (query * (width // self.heads) ** -0.5) @ key.transpose(-2, -1) + bias
        return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
