"""Test originals that are hard to compare with: noise in half precision, arguments of classes of
the file itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.rules import load_rules, page_examples
from regraft.verification import Verdict, verify

pytest.importorskip("torch")

NOISE = """
import torch
import torch.nn.functional as F
from torch import nn


class Overflows(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(8, 8)

    def forward(self, x):
        y = F.gelu(self.dense(x))
        if x.dtype == torch.bfloat16:
            y = y * 1e6
        return y


def make(module):
    return module.Overflows(), [(torch.randn(2, 8),), (torch.randn(3, 8),)]
"""

CACHE = """
import torch
from torch import nn


class Cache:
    def __init__(self, state):
        self.states = [state]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, cache):
        if not isinstance(cache, Cache):
            raise TypeError(f"a cache of another kind: {type(cache)}")
        return self.dropout(self.dense(x)) + cache.states[0]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x, Cache(x))


def make(module):
    return module.Model(), [(torch.randn(2, 8),), (torch.randn(3, 8),)]
"""


def verdict(
    source: str,
    old: str,
    new: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    driver: str | None = "model.py:make",
    time_limit: float = 60,
) -> Verdict:
    """Return the verdict on an edited text."""
    monkeypatch.chdir(folder)
    path = folder / "model.py"
    path.write_text(source)
    assert source.count(old) == 1
    (outcome,) = verify(
        path, source.replace(old, new).encode(), driver=driver, time_limit=time_limit
    )
    return outcome


@pytest.mark.slow
def test_noise_of_the_original_is_no_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = verdict(NOISE, "y * 1e6", "y * 2e6", tmp_path, monkeypatch)
    assert outcome.status == "unproven"
    assert "bfloat16" in outcome.reason
    assert "nothing to do with the exact one" in str(outcome.evidence["notes"])


def test_what_is_no_noise_in_half_precision_is_held_against_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = NOISE.replace("y * 1e6", "y * 1")
    outcome = verdict(source, "y * 1", "y * 2", tmp_path, monkeypatch)
    assert outcome.status == "refuted"
    assert "bfloat16" in outcome.reason


def test_objects_of_a_class_of_the_file_belong_to_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = "self.dropout(self.dense(x)) + cache.states[0]"
    outcome = verdict(
        CACHE, old, "cache.states[0] + self.dropout(self.dense(x))", tmp_path, monkeypatch
    )
    assert (outcome.status, outcome.reason) == ("proved", "")


EMPTY = """
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(16, 16))
        self.bias = nn.Parameter(torch.empty(16).normal_())

    def forward(self, x):
        return torch.softmax(x @ self.weight + self.bias, dim=-1)


def make(module):
    return module.Gate(), [(torch.randn(2, 16),), (torch.randn(3, 16),)]
"""


@pytest.mark.slow
def test_weights_that_nobody_initialises_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = verdict(
        EMPTY, "x @ self.weight + self.bias", "self.bias + x @ self.weight", tmp_path, monkeypatch
    )
    assert (outcome.status, outcome.reason) == ("proved", "")


def test_a_weight_that_is_no_longer_initialised_is_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = verdict(EMPTY, "torch.empty(16).normal_()", "torch.empty(16)", tmp_path, monkeypatch)
    assert outcome.status == "refuted"
    assert "bias starts with values of another distribution" in outcome.reason


HOOKED = """
import torch
from torch import nn


class Collects(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.installed = False

    def forward(self, x):
        if not self.installed:
            self.inner.register_forward_hook(lambda module, args, result: COLLECTED.append(result))
            self.installed = True
        COLLECTED.clear()
        x = self.inner(x)
        (only,) = COLLECTED
        return torch.relu(x + only)


COLLECTED = []
"""


@pytest.mark.slow
def test_hooks_that_a_call_registers_are_taken_back_with_the_attribute_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(HOOKED)
    (verdict,) = verify(path, HOOKED.replace("torch.relu(x + only)", "(x + only).relu()").encode())
    assert (verdict.status, verdict.reason) == ("proved", "")
    second_hook = (
        "self.inner.register_forward_pre_hook(lambda *_: None)\n            self.installed = True"
    )
    (verdict,) = verify(
        path,
        HOOKED.replace(
            "self.installed = True\n        COLLECTED", second_hook + "\n        COLLECTED"
        ).encode(),
    )
    assert verdict.status == "refuted"
    assert "number of hooks" in verdict.reason


CANCELS = '''import torch
from torch import nn


class Pooled(nn.Module):
    """Attention to one position: what is asked for does not matter, and its gradient is zero."""

    def __init__(self, size=32):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, hidden_states):
        only = hidden_states.mean(1, keepdim=True)
        scores = torch.tanh(self.query(hidden_states) @ self.key(only).transpose(1, 2))
        return scores.softmax(-1) @ self.value(only)
'''  # noqa: E501


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rewrite", "status"),
    [
        ("(scores.exp() / scores.exp().sum(-1, keepdim=True))", "proved"),
        ("torch.exp(scores - scores.exp().sum(-1, keepdim=True).log())", "proved"),
        ("(scores.softmax(-1) + 1e-7 * scores)", "refuted"),
    ],
)
def test_a_gradient_that_cancels_to_nothing_is_rounding_in_both_versions(
    rewrite: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = verdict(
        CANCELS, "scores.softmax(-1)", rewrite, tmp_path, monkeypatch, driver=None, time_limit=100
    )
    assert outcome.status == status, outcome.reason


STARTS_GRADIENTS = """
import random

import numpy
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        hidden = torch.tanh(x)
        if self.training:
            hidden = hidden * (numpy.random.random() > 0.5) + random.random()
            hidden.requires_grad = True  # as gradient checkpointing wants it; an error if x has a gradient
        return torch.relu(self.head(self.first(hidden)))
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rewrite", "status"),
    [
        ("self.head(self.first(hidden)).relu()", "proved"),
        ("self.head(self.first(hidden).detach()).relu()", "refuted"),
    ],
)
def test_code_that_starts_gradients_and_draws_from_any_source_is_compared(
    rewrite: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = "torch.relu(self.head(self.first(hidden)))"
    outcome = verdict(
        STARTS_GRADIENTS, old, rewrite, tmp_path, monkeypatch, driver=None, time_limit=300
    )
    assert outcome.status == status, outcome.reason
    if status == "proved":
        assert outcome.evidence["modes"] == ["eval", "train"]


NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, size=32, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight.float()).type_as(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rewrite", "status"),
    [
        ("x.double().float()", "proved"),
        ("x.float() if x.dtype != torch.bfloat16 else x", "unproven"),
    ],
)
def test_results_that_are_less_precise_in_half_precision_are_not_proved(
    rewrite: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = verdict(NORM, "x.float()", rewrite, tmp_path, monkeypatch, driver=None)
    assert outcome.status == status, outcome.reason
    if status == "unproven":
        assert "results in bfloat16 are less precise: they are" in outcome.reason


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["adopter/gpt2-attention", "torch/exp-softmax"])
def test_rewrites_on_pages_are_proved(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Biases of -100 enlarge roundings of attention, one of whose lines needs a mask and a flag; an
    infinite exponent gives NaN at one place only, unlike the kernel."""
    (loaded,), _ = load_rules([rule])
    example = next(
        example for example in reversed(page_examples(loaded.page)) if example.kind == "rewrite"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(example.before)
    (outcome,) = verify(tmp_path / "model.py", example.after.encode(), by_rules=True)
    assert outcome.status == "proved", outcome.reason
