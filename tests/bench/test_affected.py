"""Test which lines a rewrite makes faster, and the parts of the measured modules that they took."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from regraft.benchmarking.affected_lines import affected_lines
from regraft.rules import load_rules
from regraft.rules.loading import BUILT_IN
from regraft.rules.worth import worth_of
from regraft.scanning import check_file, compile_rules

ATTENTION = """\
import torch
from torch import nn


class Attention(nn.Module):
    def forward(self, q, k, v, mask=None):
        scores = q @ k.transpose(-2, -1)
        width = q.shape[-1]
        if mask is not None:
            scores = scores + mask
        weights = torch.softmax(
            scores, dim=-1
        )
        scores = width
        mixed = torch.matmul(weights, v)
        mixed = mixed * 2
        return mixed + scores
"""
GELU = """\
import math

import torch
from torch import nn


class Gelu(nn.Module):
    def forward(self, x):
        y = x * 0.5
        y = y * (1.0 + torch.erf(x / math.sqrt(2.0)))
        return y
"""


def lines_of(folder: Path, text: str, rule: str) -> list[int]:
    """Return the lines that a rule makes faster in a text where it has one finding."""
    path = folder / "model.py"
    path.write_text(text)
    compiled, _ = compile_rules(load_rules([rule])[0])
    (finding,) = check_file(path, compiled).findings
    return sorted(affected_lines(finding, ast.parse(text)))


def test_postponed_product_makes_faster_what_leads_to_the_next_product(tmp_path: Path) -> None:
    assert lines_of(tmp_path, ATTENTION, "torch/attention") == [7, 10, 11, 12, 13, 15]


def test_other_rewrites_make_the_matched_lines_faster(tmp_path: Path) -> None:
    assert lines_of(tmp_path, GELU, "torch/gelu") == [9, 10]


@pytest.mark.parametrize("pack", ["adopter", "idioms", "torch"])
def test_stored_parts_are_of_measured_cases(pack: str) -> None:
    rules = {rule.id: rule for rule in load_rules([f"{pack}/*"])[0]}
    for entry in json.loads((BUILT_IN / pack / "parts.json").read_text("utf-8"))["parts"]:
        worth = worth_of(rules[entry["rule"]], entry["device"])
        assert worth is not None
        measured = {(case.size, case.mode, case.subject): case for case in worth.cases}
        for part in entry["cases"]:
            case = measured[part["size"], part["mode"], part.get("subject", "")]
            assert 0 < case.part <= 1
            assert case.part == part["part"]
