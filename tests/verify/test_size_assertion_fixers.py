"""Test that tests of sizes in a model tell the sizes of its inputs, and windows those of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from verdicts import verdict_on

torch = pytest.importorskip("torch")

from regraft.verification.child.drivers import input_guesses  # noqa: E402


class Tokens(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Takes as many tokens as an image of `sides` has, with a message that has no numbers."""

    def __init__(self, *sides: int) -> None:
        super().__init__()
        self.sides, self.norm = sides, torch.nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        height, width = self.sides
        _batch, length, _channels = x.shape
        assert length == height * width, "input feature has wrong size"
        return self.norm(x).view(-1, height, width, 16)


class Image(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Takes images whose sides windows divide."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window, self.conv = window, torch.nn.Conv2d(3, 8, 1)

    def forward(self, pixels: Any) -> Any:
        if pixels.size(-1) % self.window != 0:
            raise ValueError("windows do not fit")
        if pixels.shape[2] % self.window:
            raise ValueError("windows do not fit")
        return self.conv(pixels).unflatten(-1, (-1, self.window))


@pytest.mark.parametrize("model", [Tokens(8, 8), Tokens(5, 11), Image(7), Image(11)])
def test_a_test_of_sizes_tells_the_sizes_of_an_input(model: Any) -> None:
    accepted = input_guesses.find_accepted(model.eval())
    assert accepted.calls(model)(0)


WINDOWS = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, window_size, num_heads):
        super().__init__()
        self.heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        tokens = window_size[0] * window_size[1]
        self.bias = nn.Parameter(torch.zeros(num_heads, tokens, tokens))

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) * self.scale + self.bias
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, input_resolution, num_heads, window_size=7):
        super().__init__()
        self.input_resolution, self.window_size = input_resolution, window_size
        self.attn = Attention(dim, (window_size, window_size), num_heads)

    def forward(self, x):
        h, w = self.input_resolution
        b, n, c = x.shape
        assert n == h * w, "input feature has wrong size"
        g = self.window_size
        y = x.view(b, h // g, g, w // g, g, c).transpose(2, 3).reshape(-1, g * g, c)
        y = self.attn(y).reshape(b, h // g, w // g, g, g, c).transpose(2, 3)
        return x + y.reshape(b, n, c)
"""


@pytest.mark.slow
def test_attention_in_windows_is_proved_with_few_tokens_and_in_its_block(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, WINDOWS, "scores.softmax(-1)", "torch.softmax(scores, dim=-1)")
    assert verdict.status == "proved", verdict.reason
    models = str(verdict.evidence["models"])
    assert "window_size=(4, 4)" in models
    assert "input_resolution=(7, 7)" in models
