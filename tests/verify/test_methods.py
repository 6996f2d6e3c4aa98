"""Test that methods of models beside `forward` are run and compared, too."""

import subprocess
import sys
from pathlib import Path

import pytest

from regraft.verification import Verdict, verify

pytest.importorskip("torch")

SOURCE = """
import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Linear(width, 2)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        return self.head(x.mean((2, 3)))

    @torch.no_grad()
    def forward_intermediates(self, x, normed: bool = False, sign=None):
        y = self.stem(x)
        if normed:
            y = self.norm(y) + 1
        return [x, y * 2]

    def prune(self, names: list):
        return [name.upper() for name in names]


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = Backbone(width)

    def forward(self, x):
        return self.body(x)
"""  # noqa: E501
RELU = ("self.norm(self.stem(x)).relu()", "torch.relu(self.norm(self.stem(x)))")


def verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str], source: str = SOURCE
) -> Verdict:
    """Return the verdict on an edited text."""
    monkeypatch.chdir(folder)
    path, text = folder / "model.py", source
    path.write_text(source)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (outcome,) = verify(path, text.encode(), time_limit=100)
    return outcome


@pytest.mark.slow
def test_a_method_with_its_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = verdict(
        tmp_path, monkeypatch, RELU, ("self.norm(y) + 1", "1 + self.norm(y)"), ("y * 2", "2 * y")
    )
    assert (outcome.status, outcome.reason) == ("proved", "")


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [("self.norm(y) + 1", "self.norm(y) - 1"), ("y * 2", "y * 3")])
def test_a_wrong_method_is_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, str]
) -> None:
    outcome = verdict(tmp_path, monkeypatch, RELU, wrong)
    assert outcome.status == "refuted"
    assert "forward_intermediates of " in outcome.reason
    script = [sys.executable, str(outcome.evidence["reproducer"])]
    run = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "")
    assert "differs" in run.stdout


CHOSEN = """
from typing import List, Optional
from torch import nn


class Backbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, width, 3), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)))

    def forward_intermediates(self, x, indices: Optional[List[int]] = None, doubled: bool = False):
        kept = range(2) if indices is None else indices
        found = [self.stem(x), x]
        return [found[index] * 2 if doubled else found[index] for index in kept]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("found[index] + found[index] if doubled else found[index]", "proved"),
        ("found[index] * 3 if doubled else found[index]", "refuted"),
        ("found[index] * 2 if doubled else found[index - (len(kept) < 2)]", "refuted"),
    ],
)
def test_a_method_takes_whole_numbers_and_flags_that_callers_may_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, status: str
) -> None:
    before = "found[index] * 2 if doubled else found[index]"
    outcome = verdict(tmp_path, monkeypatch, (before, after), source=CHOSEN)
    assert outcome.status == status, outcome


@pytest.mark.slow
def test_a_method_that_takes_what_nobody_can_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = verdict(tmp_path, monkeypatch, RELU, ("name.upper() for", "name.upper().upper() for"))
    line = SOURCE[: SOURCE.index("return [name")].count("\n") + 1
    assert (outcome.status, outcome.reason) == (
        "unproven",
        f"line {line} never ran; in the original, line {line} never ran. Write a driver:"
        f" regraft driver {tmp_path / 'model.py'} --class Backbone",
    )


WRAPPER = """
import torch
from torch import nn


def in_eval_mode(function):
    def inner(model, *args, **kwargs):
        model.eval()
        return function(model, *args, **kwargs)

    return inner


class Wrapper(nn.Module):
    def __init__(self, net, max_seq_len=16):
        super().__init__()
        self.net, self.max_seq_len = net, max_seq_len
        self.predict = net

    def forward(self, tokens):
        return self.predict(tokens).log_softmax(-1)

    @torch.no_grad()
    @in_eval_mode
    def generate(self, start_tokens, seq_len, temperature=1.0):
        out = start_tokens
        for _ in range(seq_len):
            logits = self.predict(out)[:, -1] / temperature
            out = torch.cat((out, logits.argmax(-1, keepdim=True)), dim=-1)
        return out
"""


def check_outcome(outcome: Verdict, status: str) -> None:
    """Assert the status of a verdict, and that the script of a refutation shows a difference."""
    assert outcome.status == status, outcome.reason
    if status == "refuted":
        script = str(outcome.evidence["reproducer"])
        process = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, check=False
        )
        assert process.returncode == 1, process.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("logits.argmax(-1, keepdim=True)", "logits.max(-1, keepdim=True).indices"), "proved"),
        (("for _ in range(seq_len):", "for _ in range(seq_len + 1):"), "refuted"),
    ],
)
def test_a_wrapper_gets_a_network_and_its_decorated_method_runs(
    change: tuple[str, str], status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = verdict(tmp_path, monkeypatch, change, source=WRAPPER)
    check_outcome(outcome, status)


LAYER_OF_TWO_RESULTS = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, attention, width=16):
        super().__init__()
        self.attention = attention
        self.first, self.second = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x, mask=None):
        mixed, weights = self.attention(x, x, x, mask=mask)
        x = x + mixed
        return x + self.second(torch.relu(self.first(x))), weights
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("x = x + mixed", "x = torch.add(x, mixed)"), "proved"),
        (("x = x + mixed", "x = x + mixed - weights"), "refuted"),
        (("), weights", "), mixed * 1.5"), "refuted"),
    ],
)
def test_a_stand_in_gives_as_many_results_as_are_unpacked(
    change: tuple[str, str], status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = verdict(tmp_path, monkeypatch, change, source=LAYER_OF_TWO_RESULTS)
    check_outcome(outcome, status)


WHOLE = """
import torch
from torch import nn


def rotate(x, tables):
    (table,) = tables.values()
    return x * table[None, :, None]


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads, self.proj = heads, nn.Linear(width, width)

    def forward(self, x, tables):
        x = self.proj(x).view(*x.shape[:2], self.heads, -1)
        return rotate(x, tables).flatten(2)


class Model(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.table = nn.Parameter(torch.randn(64, width // heads))
        self.attention = Attention(width, heads)

    def forward(self, x):
        return self.attention(x, {"rotary": self.table[: x.shape[1]]})
"""


@pytest.mark.slow
def test_a_whole_model_runs_what_its_parts_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = ("x * table[None, :, None]", "table[None, :, None] * x")
    outcome = verdict(tmp_path, monkeypatch, change, source=WHOLE)
    assert outcome.status == "proved", outcome.reason
    assert "Model(" in str(outcome.evidence["models"])
