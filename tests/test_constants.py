"""Test the numbers of a rule against the ways in which a source writes them."""

from __future__ import annotations

import pytest

from regraft.dsl import parse_rule
from regraft.dsl.syntax import RuleSyntax
from regraft.matching.compiling import compile_rule
from regraft.matching.matcher import find_matches
from regraft.matching.result import Match
from regraft.rules import load_rules
from regraft.scanning import check_source, compile_rules
from regraft.source.text import SourceFile, parse
from regraft.structure.module_structures import Module

RULE = """rule r
  summary "s"
  safety numeric
  needs torch >= 2.8
forward
  torch.exp($x * {}) -> $y
  => torch.exp($x) -> $y
"""


def matches(constant: str, written: str) -> bool:
    """Return whether the number of a rule matches an expression."""
    rule = parse_rule(RULE.format(constant))
    assert isinstance(rule, RuleSyntax)
    (pattern,) = compile_rule(rule)
    text = (
        "import math\nimport numpy as np\nimport torch\n\n\ndef f(x: torch.Tensor, n):\n"
        f"    return torch.exp(x * ({written}))\n"
    )
    source = parse("m.py", text.encode())
    assert isinstance(source, SourceFile)
    module = Module(source)
    attempts = (
        attempt
        for structure in module.structures()
        for body in structure.bodies
        for attempt in find_matches(pattern, (), module, structure, body)
    )
    return any(isinstance(attempt, Match) for attempt in attempts)


@pytest.mark.parametrize(
    "written",
    [
        "1.4142135623730951",
        "1.41421356",
        "math.sqrt(2)",
        "math.sqrt(2.0)",
        "2 / math.sqrt(2)",
        "2 ** 0.5",
        "1 + 0.4142135623730951",
        "np.sqrt(2)",
        "np.sqrt(6 * np.pi / (3 * torch.pi))",
        "torch.tensor(1.4142135623730951)",
        "torch.sqrt(torch.tensor(2.0, device=x.device))",
    ],
)
def test_a_number_with_a_point_is_known_in_every_spelling(written: str) -> None:
    assert matches("1.4142135623730951", written)


@pytest.mark.parametrize(
    "written",
    [
        "1.414",
        "n",
        "math.sqrt(n)",
        "math.sqrt(-2)",
        "1 / 0",
        "math.floor(2.0)",
        "np.sqrt(n)",
        "torch.tensor(n)",
        "torch.sqrt(torch.tensor(2))",
        "torch.tensor([1.4142135623730951])",
        "torch.tensor(1.4142135623730951, dtype=torch.int64)",
        "torch.tensor(1.4142135623730951, requires_grad=True)",
        "True",
        "10 ** 10 ** 10",
        "1" + "0" * 400,
    ],
)
def test_another_number_is_not(written: str) -> None:
    assert not matches("1.4142135623730951", written)


def test_an_integer_stands_for_a_float_but_not_the_other_way_round() -> None:
    assert matches("1.0", "1")
    assert matches("1", "1")
    assert not matches("1", "1.0")
    assert not matches("1.0", "True")


def test_arithmetic_with_numbers_of_libraries_runs_no_operator_of_the_file() -> None:
    text = """
import math

import torch


def gelu(x: torch.Tensor) -> torch.Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Table(dict):
    def __getitem__(self, key):
        return super().__getitem__(key)()
"""
    source = parse("m.py", text.encode())
    assert isinstance(source, SourceFile)
    rules, _ = compile_rules(load_rules(["torch/gelu"])[0])
    (finding,) = check_source(source, rules).findings
    assert finding.fixable, finding.reason
