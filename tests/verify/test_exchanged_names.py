"""Test that a variable in the place of another one once differs from it, that an expression differs
from the number in its place, and which variables and expressions these are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.checks.exchanged_names import (  # noqa: E402
    exchanged_names,
    have_differed,
)
from regraft.verification.child.checks.fixed_values import (  # noqa: E402
    fixed_expressions,
    is_unlike,
)

pytestmark = pytest.mark.usefixtures("here")

WINDOWS = """\
import torch


def joined(windows: torch.Tensor, window: int, h: int, w: int):
    b = windows.shape[0] // (h * w // window // window)
    x = windows.view(b, h // window, w // window, window, window, -1)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, -1)
"""
EDITS = {
    "arguments": ("f(a, b)", "f(b, a)", ["b", "a"]),
    "an object": ("a.view(2)", "b.view(2)", ["b"]),
    "a function": ("a(x)", "b(x)", []),
    "a sum": ("a + 2 * b", "b * 2 + a", []),
    "a longer product": ("a * b * c", "c * a * b", []),
    "an equation": ("a == b", "b == a", []),
    "an order": ("a < b", "b < a", ["b", "a"]),
    "keywords": ("f(x=a, y=b)", "f(y=b, x=a)", []),
    "keywords with others": ("f(x=a, y=b)", "f(y=a, x=b)", ["b", "a"]),
    "a global variable": ("a[first]", "a[second]", ["second"]),
}


@pytest.mark.parametrize("name", EDITS)
def test_names_are_exchanged(name: str) -> None:
    before, after, expected = EDITS[name]
    trees = (ast.parse(f"def g(a, b, c, x):\n    return {text}") for text in (before, after))
    assert list(exchanged_names(*trees).values()) == expected


def test_renamed_variables_and_moved_statements_are_not_exchanged() -> None:
    texts = (
        "def g(x, y):\n    z = x.abs()\n    u = f(y)\n    return z + u",
        "def g(x, y):\n    u = f(y)\n    x = x.abs()\n    return x + u",
    )
    for own, other in (texts, texts[::-1]):
        assert not exchanged_names(ast.parse(own), ast.parse(other))


def test_values_differ() -> None:
    ones = torch.ones(2)
    assert not have_differed(4, 4) and have_differed(4, 5)
    assert not have_differed(ones, torch.ones(2)) and have_differed(ones, torch.ones(3))
    assert have_differed(ones, torch.zeros(2)) and have_differed([1], [1])


@pytest.mark.slow
def test_sides_that_are_always_equal_are_no_proof(tmp_path: Path) -> None:
    before, after = "b, h // window, w // window", "b, w // window, h // window"
    wrong = verdict_on(tmp_path, WINDOWS, before, after)
    assert wrong.status == "unproven" and "never differed from the other version's" in wrong.reason
    right = verdict_on(tmp_path, WINDOWS, "(h * w // window", "(w * h // window")
    assert right.status == "proved", right


FIXED = {
    "an argument": ("f(x, stride=int(1 / a))", "f(x, stride=2)", ["2"]),
    "an attribute": ("x + x.eps", "x + 1e-6", ["1e-06"]),
    "a negative number": ("f(x, a)", "f(x, -1)", ["-1"]),
    "a flag": ("f(x, a)", "f(x, True)", ["True"]),
    "a constant of the file": ("f(x, SIZE)", "f(x, 2)", []),
    "nothing": ("f(x, a)", "f(x, None)", []),
    "a text with a value": ("f(f'{a}')", "f('a')", []),
    "another number": ("f(x, 3)", "f(x, 2)", []),
    "a computed number": ("f(x, 2)", "f(x, a)", []),
}


@pytest.mark.parametrize("name", FIXED)
def test_expressions_become_literals(name: str) -> None:
    before, after, expected = FIXED[name]
    trees = (ast.parse(f"def g(a, b, c, x):\n    return {text}") for text in (before, after))
    literals = fixed_expressions(*trees).values()
    assert [ast.unparse(literal) for literal in literals] == expected


def test_values_are_unlike_literals() -> None:
    assert not is_unlike(2, 2) and is_unlike(3, 2) and is_unlike("a", "b")
    assert is_unlike(None, 0) and is_unlike(torch.ones(1), 1)


PYRAMID = """\
import torch
from torch import nn


class Resize(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        if factor >= 1:
            self.resize = nn.Identity()
        else:
            self.resize = nn.Conv2d(3, 3, kernel_size=3, stride=int(1 / factor), padding=1)

    def forward(self, images):
        return self.resize(images)


class Pyramid(nn.Module):
    def __init__(self, factors=(2, 1, 0.5)):
        super().__init__()
        self.layers = nn.ModuleList([Resize(factor) for factor in factors])

    def forward(self, images):
        return [layer(images) for layer in self.layers]
"""


@pytest.mark.slow
def test_a_number_for_an_option_that_always_equals_it_is_no_proof(tmp_path: Path) -> None:
    wrong = verdict_on(tmp_path, PYRAMID, "stride=int(1 / factor)", "stride=2")
    assert wrong.status == "unproven", wrong
    assert "`int(1 / factor)` never differed from the other version's `2`" in wrong.reason
