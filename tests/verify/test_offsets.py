"""Test that changes by hand are compared on numbers far from zero, and with whole numbers for
arguments that lie between those of the tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

pytestmark = [pytest.mark.usefixtures("here"), pytest.mark.slow]

NORM = """\
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, h):
        mu = h.mean(dim=-1, keepdim=True)
        var = ((h - mu) ** 2).mean(dim=-1, keepdim=True)
        return (h - mu) / torch.sqrt(var + self.eps) * self.gamma
"""
LOSS = """\
import torch


def masked_loss(logits, target, smoothing=0.1, pad_id=0):
    logp = torch.log_softmax(logits.float(), dim=-1)
    nll = -logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    loss = (1 - smoothing) * nll - smoothing * logp.mean(dim=-1)
    keep = (target != pad_id).float()
    return (loss * keep).sum() / keep.sum().clamp(min=1)
"""


@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("var = (h * h).mean(dim=-1, keepdim=True) - mu * mu", "refuted"),
        ("var = h.var(dim=-1, keepdim=True, unbiased=False)", "proved"),
        ("var = torch.square(h - mu).mean(dim=-1, keepdim=True)", "proved"),
    ],
)
def test_a_variance_is_as_precise_far_from_zero(tmp_path: Path, after: str, status: str) -> None:
    before = "var = ((h - mu) ** 2).mean(dim=-1, keepdim=True)"
    verdict = verdict_on(tmp_path, NORM, before, after)
    assert verdict.status == status, verdict.reason


@pytest.mark.parametrize(
    ("after", "status"), [("target > pad_id", "refuted"), ("target.ne(pad_id)", "proved")]
)
def test_a_number_of_a_token_has_smaller_ones_beside_it(
    tmp_path: Path, after: str, status: str
) -> None:
    verdict = verdict_on(tmp_path, LOSS, "target != pad_id", after)
    assert verdict.status == status, verdict.reason
