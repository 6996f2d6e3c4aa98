"""Test inputs in number formats that a definition names, layers in another format than the others,
and options without a value or as iterators."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdicts import verdict_on

pytest.importorskip("torch")

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.checks.format_variants import (
    calls_in_other_formats,
    formats_to_try,
)

pytestmark = pytest.mark.usefixtures("here")

HEAD = "import torch\nfrom torch import nn\nfrom torch.utils.checkpoint import checkpoint\n\n\n"
POWER = """\
def power(spectrum, floor=1e-10):
    return torch.log(spectrum.abs() ** 2 + floor)
"""
SUM = """\
class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, residual):
        residual = residual + x.to(residual.dtype)
        return self.norm(residual), residual
"""
IMAGES = """\
class Model(nn.Module):
    def forward(self, images):
        if images.dtype == torch.uint8:
            images = images.float() / 255
        return images - 0.5
"""
BINS = """\
class Model(nn.Module):
    def __init__(self, bins=8, width=16):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, bins - 1))
        self.table = nn.Embedding(bins, width)

    def forward(self, pitch):
        return self.table(torch.bucketize(pitch, self.edges))
"""
MIXED = """\
class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        h = self.up(x.to(self.up.weight.dtype)).relu()
        return self.down(h.to(self.down.weight.dtype))
"""
FIELD = """\
class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.fc = nn.Linear(size, 2 * size, bias=getattr(config, "attention_bias", False))

    def forward(self, hidden_states):
        return self.fc(hidden_states)
"""
TOWER = """\
class Model(nn.Module):
    def __init__(self, sizes=(16, 32, 8)):
        super().__init__()
        sizes = tuple(sizes)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x
"""
EXPERTS = """\
class Model(nn.Module):
    def __init__(self, width=8, experts=4):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(experts)])

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        chosen = self.router(flat).argmax(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(flat[rows]))
        return out.view_as(x)
"""
ORDER = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.act = nn.ReLU()
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return self.fc(self.drop(self.act(x)))
"""
HISTORY = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.history = []

    def forward(self, x):
        h = self.fc(x).tanh()
        self.history.append(h.detach().clone())
        return h
"""
CHECKPOINTED = """\
class Model(nn.Module):
    def __init__(self, width=16, recompute=False):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(width, width), nn.Dropout(0.1), nn.GELU())
        self.recompute = recompute

    def forward(self, x):
        if self.recompute and self.training:
            return x + checkpoint(self.block, x, use_reentrant=False)
        return x + self.block(x)
"""
PLACED = """\
class Model(nn.Module):
    def __init__(self, width=8, device="cpu"):
        super().__init__()
        self.device = device
        self.fc = nn.Linear(width, width).to(device)

    def forward(self, x):
        length = x.shape[1]
        mask = torch.tril(torch.ones(length, length)).to(self.device)
        return mask @ self.fc(x)
"""
WRONG = {
    "complex numbers": (POWER, "spectrum.abs() ** 2", "spectrum * spectrum"),
    "one input in another format": (
        SUM,
        "residual + x.to(residual.dtype)",
        "(residual + x).to(x.dtype)",
    ),
    "whole numbers": (IMAGES, "images.dtype == torch.uint8", "not images.is_floating_point()"),
    "numbers at the edges of bins": (BINS, "self.edges)", "self.edges, right=True)"),
    "a layer in another format": (MIXED, "h.to(self.down.weight.dtype)", "h"),
    "a field that is missing": (
        FIELD,
        'getattr(config, "attention_bias", False)',
        "config.attention_bias",
    ),
    "an iterator": (TOWER, "        sizes = tuple(sizes)\n", ""),
    "gradients that are absent": (
        EXPERTS,
        "            if rows.numel() == 0:\n                continue\n",
        "",
    ),
    "the order of submodules": (
        ORDER,
        "        self.act = nn.ReLU()\n        self.drop = nn.Dropout(0.1)\n",
        "        self.drop = nn.Dropout(0.1)\n        self.act = nn.ReLU()\n",
    ),
    "state that shares memory": (HISTORY, "h.detach().clone()", "h.detach()"),
    "state that keeps a graph": (HISTORY, "h.detach().clone()", "h.clone()"),
    "a device": (PLACED, ".to(self.device)\n", "\n"),
    "random numbers of a recomputation": (
        CHECKPOINTED,
        "use_reentrant=False",
        "use_reentrant=False, preserve_rng_state=False",
    ),
}
RIGHT = {
    "complex numbers": (POWER, "spectrum.abs() ** 2", "spectrum.abs().square()"),
    "one input in another format": (
        SUM,
        "residual + x.to(residual.dtype)",
        "x.to(residual.dtype) + residual",
    ),
    "numbers at the edges of bins": (
        BINS,
        "torch.bucketize(pitch, self.edges)",
        "(pitch.unsqueeze(-1) > self.edges).sum(-1)",
    ),
    "a layer in another format": (MIXED, ".relu()", ".clamp(min=0)"),
    "a field that is missing": (
        FIELD,
        'getattr(config, "attention_bias", False)',
        'bool(getattr(config, "attention_bias", False))',
    ),
    "an iterator": (TOWER, "tuple(sizes)", "list(sizes)"),
    "gradients that are absent": (EXPERTS, "rows.numel() == 0", "not rows.numel()"),
    "a device": (
        PLACED,
        "torch.tril(torch.ones(length, length)).to(self.device)",
        "torch.ones(length, length, device=self.device).tril()",
    ),
    "state": (HISTORY, "h.detach().clone()", "h.clone().detach()"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_difference_under_other_conditions_is_refuted(tmp_path: Path, name: str) -> None:
    text, before, after = WRONG[name]
    verdict = verdict_on(tmp_path, HEAD + text, before, after)
    assert verdict.status == "refuted", verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_equal_code_is_proved_under_other_conditions(tmp_path: Path, name: str) -> None:
    text, before, after = RIGHT[name]
    verdict = verdict_on(tmp_path, HEAD + text, before, after)
    assert verdict.status == "proved", verdict.reason


def test_the_text_of_a_definition_gives_reasons_for_formats() -> None:
    assert formats_to_try("return x + y") == frozenset()
    assert formats_to_try("return (ids.int() * 7919) % self.buckets") == {
        "integers in int32",
        "integers above 2**30",
    }
    assert "one input as a list" in formats_to_try("weights = torch.as_tensor(weights)")


def test_calls_in_other_formats_change_what_they_name_only() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    call = Call((torch.linspace(-1, 1, 6).view(2, 3), torch.arange(3)), {"mask": mask})
    kinds = formats_to_try("x.dtype == torch.uint8, .int(), complex, as_tensor(x)")
    formats = {
        varied_call.label: [getattr(argument, "dtype", list) for argument in varied_call.args]
        for varied_call in calls_in_other_formats(call, kinds)
    }
    assert formats == {
        "input 0 as a list": [list, torch.int64],
        "input 1 as a list": [torch.float32, list],
        "integers in int32": [torch.float32, torch.int32],
        "integers above 2**30": [torch.float32, torch.int64],
        "inputs in uint8": [torch.uint8, torch.int64],
        "inputs in int32": [torch.int32, torch.int64],
        "complex numbers": [torch.complex64, torch.int64],
    }
    assert all(
        varied_call.kwargs["mask"] is mask for varied_call in calls_in_other_formats(call, kinds)
    )
