"""Test changes that compute the same for all tensors."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

import torch
from verdicts import verdict_on

from regraft.verification.child.checks.tensor_equivalence import are_equal_for_tensors

pytestmark = pytest.mark.usefixtures("here")

EQUAL = {
    "a sum": ("x + y.exp()", "y.exp() + x"),
    "a product of parameters": ("x * y", "y * x"),
    "a product with a call": ("x * f(y)", "f(y) * x"),
    "an index for unsqueeze": ("x.unsqueeze(0) + x.unsqueeze(-1)", "x[None] + x[..., None]"),
    "an index with colons": ("x.unsqueeze(2)", "x[:, :, None]"),
    "a size": ("x.size(-1) * 2", "x.shape[-1] * 2"),
    "all sizes": ("f(x.size())", "f(x.shape)"),
    "a view": ("x.view(-1) + y.view(2)", "x.reshape(-1) + y.view(2)"),
    "an operator": ("torch.softmax(x.matmul(y), dim=-1)", "(x @ y).softmax(dim=-1)"),
    "a function of torch.nn": ("F.softmax(x, dim=-1)", "x.softmax(dim=-1)"),
    "a size of a sum": ("(x + f(y)).size(0)", "(f(y) + x).shape[0]"),
}
UNEQUAL = {
    "a difference": ("x - y", "y - x"),
    "a sum of parameters": ("x + y", "y + x"),
    "a sum of attributes": ("x.first + x.second", "x.second + x.first"),
    "a sum of lists": ("list(x) + list(y)", "list(y) + list(x)"),
    "a view that became a reshape and the other way round": (
        "x.view(-1) if y else x.reshape(-1)",
        "x.view(-1) if not y else x.reshape(-1)",
    ),
    "two calls": ("f(x) + f(y)", "f(y) + f(x)"),
    "a call that may rebind a global": ("z + f(y)", "f(y) + z"),
    "an assignment in a sum": ("x + (x := y)", "(x := y) + x"),
    "another dimension": ("x.unsqueeze(0)", "x[:, None]"),
    "a slice": ("x.unsqueeze(1)", "x[1:, None]"),
    "two dimensions": ("x.unsqueeze(0)", "x[None, None]"),
    "another size": ("x.size(1)", "x.shape[-1]"),
    "a reshape that became a view": ("x.reshape(-1)", "x.view(-1)"),
    "a softmax without a dimension": ("F.softmax(x)", "x.softmax()"),
    "a function of another module": ("math.exp(x)", "x.exp()"),
    "an activation in place": ("F.relu(x, True)", "x.relu(True)"),
    "operands of a matrix product": ("x @ y", "y @ x"),
    "another function": ("x.exp()", "x.log()"),
}
BLOCK = """\
import torch
from torch import nn


class Wrapped:
    def __init__(self, value):
        self.value = value


class Block(nn.Module):
    def __init__(self, width: int = 16, layer_index: int = 0):
        super().__init__()
        self.projection = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, skips: "dict[str, Wrapped]" = None):
        projected = self.projection(x)
        if skips is not None:
            projected = projected * skips["first"].value
        return x + projected
"""
JOINED = """\
def joined(first, second):
    if first.shape[0] > 2:
        first, second = [first], [second]
    return first + second


"""
NEVER_BUILT = """

class Model(nn.Module):
    def __init__(self, tokeniser):
        super().__init__()
        tokeniser.load(tokeniser.path)
        self.block = Block(layer_index=tokeniser.size())

    def forward(self, x):
        return self.block(x)
"""


def _equal(before: str, after: str, head: str = "def compute(x, y):\n") -> bool:
    """Return whether two functions are equal for tensors that return the two expressions after the
    same lines `head`."""
    module = ModuleType("example")
    vars(module).update(torch=torch, F=torch.nn.functional, math=math)
    definitions = [ast.parse(f"{head}    return {text}\n").body[0] for text in (before, after)]
    old, new = (node for node in definitions if isinstance(node, ast.FunctionDef))
    return are_equal_for_tensors(module, old, module, new)


@pytest.mark.parametrize("name", EQUAL)
def test_spellings_are_equal_for_tensors(name: str) -> None:
    assert _equal(*EQUAL[name])


@pytest.mark.parametrize("name", UNEQUAL)
def test_other_expressions_are_not_equal(name: str) -> None:
    assert not _equal(*UNEQUAL[name])


def test_a_local_variable_named_torch_is_no_module() -> None:
    assert not _equal("torch.exp(x)", "x.exp()", "def compute(x, torch):\n")


def test_a_local_import_named_torch_is_another_module() -> None:
    head = "def compute(x):\n    import numpy as torch\n"
    assert not _equal("torch.exp(x)", "x.exp()", head)


def test_a_residual_sum_is_no_sum_of_lists() -> None:
    head = "def compute(self, x):\n    residual = x\n    x = self.norm(x)\n    x = self.mix(x)\n"
    assert _equal("residual + x", "x + residual", head)


@pytest.mark.slow
def test_an_input_that_never_was_there_does_not_decide_a_sum_of_tensors(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, BLOCK, "x + projected", "projected + x")
    assert verdict.status == "proved", verdict.reason


@pytest.mark.slow
def test_it_decides_other_changes(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, BLOCK, "x + projected", "torch.add(x, projected)")
    assert verdict.status == "unproven"
    assert "`skips` never was given" in verdict.reason


def test_a_sum_of_lists_is_no_sum_of_tensors(tmp_path: Path) -> None:
    text = BLOCK.replace("return x + projected", "return [1] + [x.shape[0], projected]")
    text = text.replace("        return", "        number = [2] + [1]\n        return number, ")
    verdict = verdict_on(tmp_path, text, "[2] + [1]", "[1] + [2]")
    assert verdict.status == "refuted"


@pytest.mark.slow
def test_a_class_that_cannot_be_built_does_not_decide_a_sum_of_tensors(tmp_path: Path) -> None:
    text = BLOCK + NEVER_BUILT
    verdict = verdict_on(tmp_path, text, "x + projected", "projected + x")
    assert verdict.status == "proved", verdict.reason
    verdict = verdict_on(tmp_path, text, "x + projected", "torch.add(x, projected)")
    assert verdict.status == "unproven"


def test_a_sum_of_lists_in_a_later_run_decides(tmp_path: Path) -> None:
    text = BLOCK.replace("return x + projected", "return joined(x, projected)")
    text = text.replace("class Block", JOINED + "class Block")
    verdict = verdict_on(tmp_path, text, "first + second", "second + first")
    assert verdict.status == "refuted", verdict.reason


@pytest.mark.slow
def test_a_sum_of_lists_in_a_test_decides(tmp_path: Path) -> None:
    text = BLOCK.replace(
        "        self.projection =",
        "        self.kind = 1 if layer_index < 9 else 2\n        self.projection =",
    )
    text = text.replace(
        "        return x + projected",
        "        own = self.kinds()\n"
        "        if own + self.others() == [1, 1]:\n"
        "            projected = -projected\n"
        "        elif own + self.others() == [2, 1]:\n"
        "            projected = 3 * projected\n"
        "        return x + projected\n\n"
        "    def kinds(self):\n"
        "        return [self.kind]\n\n"
        "    def others(self):\n"
        "        return [1]",
    )
    verdict = verdict_on(
        tmp_path,
        text + NEVER_BUILT,
        "if own + self.others() == [1, 1]",
        "if self.others() + own == [1, 1]",
    )
    assert verdict.status != "proved"


@pytest.mark.slow
def test_a_branch_that_makes_lists_of_operands_decides(tmp_path: Path) -> None:
    text = BLOCK.replace(
        'projected = projected * skips["first"].value', "x, projected = [x], [projected]"
    )
    verdict = verdict_on(tmp_path, text, "x + projected", "projected + x")
    assert verdict.status != "proved"
