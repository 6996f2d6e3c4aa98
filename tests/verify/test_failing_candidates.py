"""Test that a candidate that raises while models are built, called or searched for is skipped for
the next one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regraft.verification import Verdict, verify

torch = pytest.importorskip("torch")

from regraft.verification.child.checks import whole_models  # noqa: E402
from regraft.verification.child.drivers.driver_protocol import yield_until_error  # noqa: E402
from regraft.verification.child.evidence_record import Ledger  # noqa: E402

NEVER = math.inf
SOURCE = """
import torch
from torch import nn


class Odd(nn.Module):
    __signature__ = "none that can be read"

    def __init__(self, width=8):
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x):
        return self.dense(x) + x


class Patches(nn.Module):
    def __init__(self, image_size, width=8):
        super().__init__()
        height, width_of_image = image_size
        self.image_size = image_size
        self.proj = nn.Conv2d(3, width, 8, 8)

    def forward(self, x):
        return self.proj(x) + 1


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.dense(x))


def patches(**kwargs):
    return Patches(image_size={"height": 32, "width": 32}, **kwargs)


def square_patches(**kwargs):
    return Patches(image_size=[32], **kwargs)


def unreadable():
    return Mlp(16)


unreadable.__signature__ = 3
"""
MLP = "return torch.relu(self.dense(x))"


def verdicts(tmp_path: Path, *edits: tuple[str, str]) -> dict[str, Verdict]:
    """Return the verdicts on an edited text by definition."""
    path, text = tmp_path / "net.py", SOURCE
    path.write_text(text, encoding="utf-8")
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return {verdict.definition: verdict for verdict in verify(path, text.encode())}


@pytest.mark.slow
def test_candidates_that_raise_do_not_end_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdicts_by_name = verdicts(
        tmp_path,
        ("return self.dense(x) + x", "return x + self.dense(x)"),
        ("return self.proj(x) + 1", "return 1 + self.proj(x)"),
        (MLP, "h = self.dense(x)\n        return torch.relu(h)"),
    )
    assert verdicts_by_name["Mlp"].status == "proved", verdicts_by_name["Mlp"].reason
    assert verdicts_by_name["Odd"].status == "unproven"
    reasons = verdicts_by_name["Odd"].evidence["skipped"]
    assert isinstance(reasons, list)
    skipped = " ".join(map(str, reasons))
    for name in (
        "unreadable (builders) stopped",
        "Odd (inference) stopped",
        "patches (inference): cannot be built",
    ):
        assert name in skipped


def test_what_raises_ends_only_its_own_candidates(tmp_path: Path) -> None:
    def candidates() -> Iterator[int]:
        yield 1
        raise ValueError("not enough values to unpack (expected 2, got 1)")

    ledger = Ledger(tmp_path, (), NEVER)
    assert [
        *yield_until_error(candidates(), ledger, "a model"),
        *yield_until_error(iter([2]), ledger, "another"),
    ] == [
        1,
        2,
    ]
    assert ledger.skipped == [
        "a model stopped: ValueError: not enough values to unpack (expected 2, got 1)"
    ]


def test_a_condition_that_raises_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(subject: Any, definitions: tuple[str, ...], session: Any) -> Iterator[Any]:
        yield from subject.calls

    makers = (
        "_other_calls",
        "decoding",
        "generating",
        "in_turn",
        "checkpointed",
        "_alone",
        "with_a_layer_in_bfloat16",
        "_with_other_fields",
    )
    for name in makers:
        monkeypatch.setattr(whole_models, name, raises)
    ledger = Ledger(tmp_path, ("Mlp",), NEVER)
    ledger.records["Mlp"].models.add("model")
    session: Any = SimpleNamespace(ledger=ledger, widened=set(), thorough=False)
    subject: Any = SimpleNamespace(name="model", light=False, recipe={})
    assert list(whole_models.subjects_beyond(subject, session)) == []
    assert ["has no attribute 'calls'" in reason for reason in ledger.skipped] == [True]
