"""Test loops that call the cell of an LSTM: which of them stay because of what else they do."""

from __future__ import annotations

import pytest

from conftest import source_of
from regraft.rules import load_rules
from regraft.scanning import check_source, compile_rules, rewrite_file

HEAD = """\
import contextlib
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)
        self.factors = [1.0, 2.0]

    def forward(self, x, h, c, n):
"""
LOOP = """\
for t in range(x.shape[1]):
    h, c = self.cell(x[:, t], (h, c))
"""
CHANGED = "the loop may change the layer or its input"
CARRIED = "$state is not $result of the step before"
LAST = "the cell state may be read before the last step"


def rewritten(body: str) -> tuple[bool, str]:
    """Return whether a method with this body changes, and the reason of a place that stays."""
    rules = compile_rules(load_rules(("idioms/recurrent-cell",))[0])[0]
    lines = "".join(f"        {line}\n" for line in body.strip().split("\n"))
    source = source_of(HEAD + lines)
    report = check_source(source, rules, explain=True)
    changed, _ = rewrite_file(report, rules)
    reasons = [finding.reason for finding in report.findings if finding.patch is None]
    reasons += [miss.reason for miss in report.misses]
    return b"recurrent_steps" in changed, " ".join(reasons)


@pytest.mark.parametrize(
    "body",
    [
        f"{LOOP}return h, c",
        f"o = x.new_zeros(n, 4, 4)\n{LOOP}    o[t] = h\nreturn o, c",
        f"o = [None] * n\n{LOOP}    o[t] = h * 2\nreturn o, c",
        f"y = x.clone()\n{LOOP}    y[:, t] = h\nreturn y",
        f"{LOOP}    self.step = t\nreturn h, c",
        f"with torch.no_grad(), torch.autocast('cpu'):\n    {LOOP.replace('    ', '        ')}"
        "return h, c",
        f"{LOOP}    assert t < n, t\nreturn h, c",
        "for t in range(0, n, 2):\n    h, c = self.cell(x[:, t], (h, c))\nreturn h",
        "for t in range(n):\n    h, c = self.cell(x[:, t // 2], (h, c))\nreturn h",
    ],
)
def test_loops_that_change(body: str) -> None:
    assert rewritten(body) == (True, "")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{LOOP}    self.cell.weight_hh.detach().mul_(0.5)\nreturn h", CHANGED),
        (f"w = self.cell.bias_hh.detach()\n{LOOP}    w[0] = t\nreturn h", CHANGED),
        (f"{LOOP}    self.cell.weight_hh.requires_grad_(t > 3)\nreturn h", CHANGED),
        (f"{LOOP}    self.cell.weight_hh.requires_grad = False\nreturn h", CHANGED),
        (f"{LOOP}    self.cell.bias_hh = self.cell.bias_ih\nreturn h", CHANGED),
        (f"{LOOP}    self.cell.forward = lambda *_: _\nreturn h", CHANGED),
        (
            f"y = h.new_zeros(9, 4, 4)\nx = y.transpose(0, 1)\n{LOOP}    y[-1] = h\nreturn h",
            CHANGED,
        ),
        (f"y = torch.zeros(4, 9, 4)\nx = y.relu_()\n{LOOP}    y[:, -1] = h\nreturn h", CHANGED),
        (f"y = {{'x': x}}\n{LOOP}    y['x'][:, -1] = h\nreturn h", CHANGED),
        (f"y = [n, x]\n{LOOP}    y[1][:, -1] = h\nreturn h", "changed in place"),
        (f"{LOOP}    assert t < n, c.sum()\nreturn h", "a message of an assertion reads the state"),
        (f"{LOOP}assert n, c\nreturn h", "a message of an assertion reads the state"),
        (
            f"with contextlib.suppress(IndexError):\n    {LOOP.replace('    ', '        ')}"
            "        h2 = h * self.factors[t]\nreturn h, c",
            LAST,
        ),
        (f"{LOOP.replace('h, c =', 'h, *rest =')}    (c,) = rest\nreturn h", CARRIED),
    ],
)
def test_loops_that_stay(body: str, reason: str) -> None:
    changed, actual_reason = rewritten(body)
    assert not changed
    assert reason in actual_reason
