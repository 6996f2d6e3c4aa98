"""Test that a change whose tensors stay on the CPU is not proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.verification import verify

pytest.importorskip("torch")

MODEL = """\
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.table = nn.Parameter(torch.randn(512, width))

    def forward(self, x):
        positions = torch.arange(x.shape[1], device=x.device)
        return x * 2 + self.table[positions], positions
"""
ARANGE = "torch.arange(x.shape[1], device=x.device)"
RETURN = "x * 2 + self.table[positions], positions"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (ARANGE, "torch.arange(x.shape[1])", "output[1] is on the CPU whatever the device"),
        (
            RETURN,
            "x * torch.full((x.shape[-1],), 2.0, dtype=x.dtype) + self.table[positions], positions",
            "mul gets tensors of two devices",
        ),
        (ARANGE, "torch.arange(0, x.shape[1], device=x.device)", ""),
        (ARANGE, "torch.arange(x.shape[1]).to(x.device)", ""),
        (RETURN, "x * torch.tensor(2.0) + self.table[positions], positions", ""),
        (RETURN, "x * 2 + self.table[torch.arange(x.shape[1])], positions", ""),
    ],
)
def test_tensors_of_another_device_are_a_difference(
    before: str, after: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    (verdict,) = verify(file, MODEL.replace(before, after).encode())
    assert verdict.status == ("refuted" if reason else "proved"), verdict.reason
    if reason:
        assert reason in verdict.reason
    else:
        assert "devices of tensors, without data" in verdict.evidence["also compared"]  # type: ignore[operator]
