"""Test the methods of classes that are no modules, where no model of the file runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from regraft.verification import verify

SOURCE = """\
import torch


class Sampler:
    def __init__(self, factor: float = 2.0, generator: torch.Generator | None = None):
        self.factor = factor

    @staticmethod
    def probabilities(logits: torch.Tensor, temperature: float, generator: torch.Generator | None):
        if temperature == 0.0:
            return logits.argmax(-1)
        if generator is not None:
            raise ValueError("not given here")
        return torch.softmax(logits / temperature, dim=-1)

    @staticmethod
    def chosen(logits: torch.Tensor, *, use_mean: bool):
        if not use_mean:
            return logits.argmax(-1)
        return torch.tanh(logits).mean(-1)

    def scaled(self, logits: torch.Tensor):
        return torch.sigmoid(logits * self.factor)


class Schedule:
    def __init__(self):
        self.times = None

    def set_times(self, num_steps: int, device: torch.device = None):
        self.times = torch.arange(num_steps, device=device).flip(0)

    def step(self, noise: torch.Tensor, timestep: int):
        place = (self.times == timestep).nonzero()[0]
        return torch.sigmoid(noise) * (place + 1) / len(self.times)


class ScoresMixin:
    def scores(self, query: torch.Tensor):
        if self.upcast:
            query = query.double()
        return torch.sigmoid(self.scale * query)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "by_rules", "status"),
    [
        ("(logits / temperature, dim=-1)", "(logits / temperature, -1)", False, "proved"),
        ("temperature, dim=-1)", "temperature, dim=-2)", False, "refuted"),
        ("sigmoid(logits * self.factor)", "sigmoid(self.factor * logits)", True, "proved"),
        ("logits * self.factor)", "logits * self.factor * 1.01)", True, "refuted"),
        ("logits * self.factor)", "logits * 2.0)", False, "unproven"),
        ("torch.tanh(logits)", "logits.tanh()", True, "proved"),
        ("torch.sigmoid(noise)", "noise.sigmoid()", True, "proved"),
        ("sigmoid(noise) * (place", "sigmoid(noise) * (1.01 * place", True, "refuted"),
        ("sigmoid(self.scale * query)", "sigmoid(query * self.scale)", True, "proved"),
        ("sigmoid(self.scale * query)", "sigmoid(query)", True, "refuted"),
    ],
)
def test_methods_of_plain_classes_are_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    by_rules: bool,
    status: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "sampler.py"
    path.write_text(SOURCE)
    changed = SOURCE.replace(before, after).encode()
    (verdict,) = verify(path, changed, time_limit=120, by_rules=by_rules)
    assert verdict.status == status, verdict.reason


NORMALIZER = """\
import torch


class Normalizer:
    def __init__(self, x, eps=1e-5):
        self.mean = torch.mean(x, 0)
        self.spread = torch.std(x, 0)
        self.eps = eps

    def encode(self, x):
        return (x - self.mean) / (self.spread + self.eps)
"""


@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("torch.sqrt(torch.var(x, 0))", "proved"),
        ("torch.std(x, 0, correction=0)", "refuted"),
        ("torch.std(x, 0)\n        self.further = 3", "refuted"),
    ],
)
@pytest.mark.slow
def test_a_constructor_is_compared_by_the_attributes_that_it_leaves(
    tmp_path: Path, after: str, status: str
) -> None:
    path = tmp_path / "normalizer.py"
    path.write_text(NORMALIZER)
    changed = NORMALIZER.replace("torch.std(x, 0)", after).encode()
    (verdict,) = verify(path, changed, time_limit=120, by_rules=True)
    assert verdict.status == status, verdict.reason
