"""Test modules and numbers that all models of a file share: held by a class, a default value or the
file."""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.verification import Verdict, verify

pytest.importorskip("torch")

CONVOLUTION = """
import torch
from torch import nn

TABLE = {"silu": nn.SiLU()}
UNUSED = [nn.LazyLinear(3), nn.Linear(2, 2, device="meta")]


class Conv(nn.Module):
    default_act = nn.SiLU()
    built = 0

    def __init__(self, channels, act=True):
        super().__init__()
        Conv.built += 1
        self.reverse = Conv.built % 2 == 0
        self.conv = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.act = self.default_act if act is True else act if isinstance(act, nn.Module) else nn.Identity()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Scaled(nn.Module):
    def __init__(self, channels, act=nn.PReLU()):
        super().__init__()
        self.conv = Conv(channels)
        self.scale = nn.Parameter(torch.ones(1))
        self.act = act

    def forward(self, x):
        y = self.act(self.conv(x)) * self.scale
        return -y if self.conv.reverse else y


class Tabled(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = Conv(channels)
        self.act = TABLE["silu"]

    def forward(self, x):
        return self.act(self.conv(x)) + x
"""  # noqa: E501
CONV = "return self.act(self.bn(self.conv(x)))"
EQUAL_CONV = "y = self.bn(self.conv(x))\n        return self.act(y)"


def statuses(tmp_path: Path, text: str, *edits: tuple[str, str]) -> dict[str, Verdict]:
    """Return the verdicts on an edited text by definition."""
    path = tmp_path / "conv.py"
    path.write_text(text, encoding="utf-8")
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return {verdict.definition: verdict for verdict in verify(path, text.encode(), effort="low")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("Conv", CONV, EQUAL_CONV),
        (
            "Scaled",
            "y = self.act(self.conv(x)) * self.scale",
            "y = self.scale * self.act(self.conv(x))",
        ),
        ("Tabled", "return self.act(self.conv(x)) + x", "return x + self.act(self.conv(x))"),
    ],
)
def test_an_equal_edit_beside_shared_modules_is_proved(
    name: str, before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = statuses(tmp_path, CONVOLUTION, (before, after))[name]
    assert verdict.status == "proved", verdict.reason


@pytest.mark.slow
def test_a_wrong_edit_beside_shared_modules_is_refuted_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = "self.act(self.conv(x)) + x", "self.act(self.conv(x)) - x"
    verdicts = statuses(tmp_path, CONVOLUTION, wrong, (CONV, EQUAL_CONV))
    assert verdicts["Tabled"].status == "refuted"
    assert verdicts["Conv"].status == "proved", verdicts["Conv"].reason


@pytest.mark.parametrize(
    ("after", "status"), [("2 * self.linear(x)", "proved"), ("self.linear(x) * 3", "refuted")]
)
def test_a_module_with_a_lock_which_has_no_copy_is_compared(
    after: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
import threading

from torch import nn


class Locked(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.lock = threading.Lock()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        with self.lock:
            return self.linear(x) * 2
"""
    verdict = statuses(tmp_path, text, ("self.linear(x) * 2", after))["Locked"]
    assert verdict.status == status, verdict
