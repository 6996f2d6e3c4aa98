"""Test changes that show only once other code has assigned an attribute of the module."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

from regraft.verification import verify
from regraft.verification.child.checks.stores_after_construction import late_stores

pytestmark = pytest.mark.usefixtures("here")

PROJ = """\
import torch
from torch import nn

OPS = {{"relu": torch.relu, "tanh": torch.tanh}}


class Proj(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.state = {initial}

    def set_state(self, state):
        self.state = state

    def forward(self, x):
        y = self.fc(x)
        return {result}
"""
ATTENTION = """\
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.head_dim = dim // heads
        self.q = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def prune(self, keep):
        size = keep * self.head_dim
        self.q = nn.Linear(self.q.in_features, size)
        self.out = nn.Linear(size, self.out.out_features)
        self.heads = keep

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(x).view(b, n, self.heads, self.head_dim)
        return self.out(F.normalize(q, dim=-1).flatten(2))
"""
NET = """

class Net(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = Proj(dim)

    def forward(self, x):
        self.proj.state = x.shape[1]
        return self.proj(x)
"""
# the initial value, the result of the original, a wrong one, a right one, words of the verdict
CASES = {
    "a whole number": ("0", "y.roll(self.state, 1)", "y", "torch.roll(y, self.state, 1)", "= 1,"),
    "a string": (
        '"relu"',
        "OPS[self.state](y)",
        "torch.relu(y)",
        "OPS.get(self.state)(y)",
        "self.state = 'tanh'",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_attributes_that_methods_assign_take_a_second_value(case: str, tmp_path: Path) -> None:
    initial, result, wrong, right, words = CASES[case]
    text = PROJ.format(initial=initial, result=result)
    refuted = verdict_on(tmp_path, text, result, wrong)
    assert (refuted.status, words in refuted.reason) == ("refuted", True), refuted
    script = [sys.executable, str(refuted.evidence["reproducer"])]
    run = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (run.returncode, "differs" in run.stdout) == (1, True), run
    verdict = verdict_on(tmp_path, text, result, right)
    assert verdict.status == "proved", verdict


def test_strings_that_the_file_compares_are_values(tmp_path: Path) -> None:
    result = 'y.tanh() if self.state == "tanh" else y'
    text = PROJ.format(initial='"relu"', result=result)
    verdict = verdict_on(tmp_path, text, result, "y")
    words = "self.state = 'tanh'"
    assert (verdict.status, words in verdict.reason) == ("refuted", True), verdict


def test_an_attribute_without_a_second_value_is_named(tmp_path: Path) -> None:
    text = PROJ.format(initial='"relu"', result="getattr(torch, self.state)(y)")
    verdict = verdict_on(tmp_path, text, "getattr(torch, self.state)(y)", "torch.relu(y)")
    words = "self.state kept its value from construction, and set_state assigns it"
    assert (verdict.status, words in verdict.reason) == ("unproven", True), verdict


@pytest.mark.slow
def test_an_attribute_that_changes_with_submodules_is_named(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path, ATTENTION, "self.heads, self.head_dim)", "self.heads, c // self.heads)"
    )
    words = "self.heads kept its value from construction, and prune assigns it"
    assert (verdict.status, words in verdict.reason) == ("unproven", True), verdict
    right = verdict_on(tmp_path, ATTENTION, "F.normalize(q, dim=-1)", "F.normalize(q, 2.0, -1)")
    assert right.status == "proved", right


@pytest.mark.slow
def test_a_value_that_another_model_assigns_when_it_runs_counts(tmp_path: Path) -> None:
    result = "y.reshape(y.shape[0], self.state, -1).flatten(1)"
    text = PROJ.format(initial="0", result=result) + NET
    text = text.replace("    def set_state(self, state):\n        self.state = state\n\n", "")
    verdict = verdict_on(tmp_path, text, result, f"({result})")
    assert verdict.status == "proved", verdict
    right = "y.reshape(len(y), self.state, -1).flatten(1)"
    verdict = verdict_on(tmp_path, text, result, right)
    assert verdict.status == "proved", verdict


GATE = """\
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, dim, kind="tanh"):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.kind = kind

    def set_kind(self, kind):
        self.kind = kind

    def forward(self, x):
        y = self.fc(x)
        return getattr(y, self.kind)()


class Gates(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.first = Gate(dim)
        self.second = Gate(dim, "relu")

    def forward(self, x):
        return self.second(self.first(x))
"""


@pytest.mark.slow
def test_two_values_from_construction_are_enough_for_tested_rules(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(GATE)
    result = "getattr(y, self.kind)()"
    changed = GATE.replace(result, "getattr(torch.Tensor, self.kind)(y)").encode()
    verdicts = {flag: verify(path, changed, by_rules=flag)[0] for flag in (False, True)}
    words = "self.kind kept its value from construction, and set_kind assigns it"
    assert (verdicts[False].status, words in verdicts[False].reason) == ("unproven", True)
    assert verdicts[True].status == "proved", verdicts[True]


STORES = """\
class Base:
    def configure(self, mode, rate):
        self.mode, self.rate = mode, rate


class Net(Base):
    size = 3

    def __init__(self):
        self.mode = "a"
        self._reset()

    def _reset(self):
        self.fixed = 1

    def resize(self, size):
        self.size = size
        self.area = size * size

    @property
    def level(self):
        return self._level

    def set_level(self, value):
        object.__setattr__(self, "_level", value)

    @classmethod
    def shift(cls, offset):
        cls.offset = offset


class Other:
    def __init__(self):
        self.fixed = 2
        self.net = Net()

    def grow(self):
        self.net.depth += 1
        self.net.config.width = 2
"""


def test_stores_after_construction() -> None:
    names = frozenset(
        {"mode", "rate", "size", "area", "fixed", "level", "offset", "depth", "width"}
    )
    stores = late_stores(ast.parse(STORES), "Net", names, frozenset())
    assert {
        name: (store.function, store.independent, store.initial) for name, store in stores.items()
    } == {
        "mode": ("configure", True, "'a'"),
        "rate": ("configure", True, ""),
        "size": ("resize", False, "3"),
        "area": ("resize", False, ""),
        "_level": ("set_level", True, ""),
        "offset": ("shift", True, ""),
        "depth": ("grow", True, ""),
    }
    assert "size" in late_stores(ast.parse(STORES), "Net", frozenset({"size"}), frozenset())
    assert late_stores(ast.parse(STORES), "absent", names, frozenset()) == {}


SCALED = """\
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = 2.0
        self.wide = False

    def set_scale(self, scale):
        self.scale = scale

    def forward(self, x: torch.Tensor, bias=None, flag: bool = False):
        s = self.linear(x)
        if TEST:
            s = s + s * self.scale
        return s
"""
LEADING = {
    "an optional input": "bias is not None",
    "a flag": "flag",
    "a size": "x.shape[1] > 8",
    "a value": "x.min() < -50.0",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", LEADING)
def test_an_attribute_takes_a_second_value_where_a_line_reads_it(case: str, tmp_path: Path) -> None:
    text = SCALED.replace("TEST", LEADING[case])
    verdict = verdict_on(tmp_path, text, "s * self.scale", "s * 2.0")
    words = "self.scale = 1.25"
    assert (verdict.status, words in verdict.reason) == ("refuted", True), verdict
    verdict = verdict_on(tmp_path, text, "s * self.scale", "self.scale * s")
    assert verdict.status == "proved", verdict


@pytest.mark.slow
def test_a_second_value_that_no_line_reads_does_not_count(tmp_path: Path) -> None:
    text = SCALED.replace("TEST", "self.wide")
    verdict = verdict_on(tmp_path, text, "s * self.scale", "s * 2.0")
    words = "`self.scale` never took a second value"
    assert (verdict.status, words in verdict.reason) == ("unproven", True), verdict


LOSS = """\
import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, dim: int = 16):
        super().__init__()
        self.head = nn.Linear(dim, dim)
        self.last_loss = None
        self.calls = 0

    def forward(self, x, targets):
        logits = self.head(x)
        self.last_loss = F.cross_entropy(logits.view(-1, 16), targets.view(-1))
        self.calls += 1
        return logits
"""


def test_an_attribute_that_changed_lines_only_assign_needs_no_second_value(tmp_path: Path) -> None:
    before, after = "logits.view(-1, 16)", "logits.reshape(-1, logits.shape[-1])"
    verdict = verdict_on(tmp_path, LOSS, before, after)
    assert verdict.status == "proved", verdict.reason


@pytest.mark.slow
def test_an_attribute_that_a_changed_line_increments_is_read(tmp_path: Path) -> None:
    step = "0 * self.last_loss.dim()"
    verdict = verdict_on(tmp_path, LOSS, "self.calls += 1", f"self.calls += 1 + {step}")
    assert "self.calls kept" not in verdict.reason  # it changes from call to call
    assert verdict.status != "proved"
