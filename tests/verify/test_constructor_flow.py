"""Test changes that act for other values of constructor arguments which reach the changed lines
through items, lists, tables, keywords and local variables."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from verdicts import verdict_on

from regraft.verification import verify

pytest.importorskip("torch")

from regraft.verification.child.checks.constructor_flow import (
    base_classes,
    flow_of,
    keyword_defaults,
)
from regraft.verification.child.drivers.source_hints import compared_strings

pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Net(nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
        {construction}

    def forward(self, x):
        {body}
"""
LOOP = "for block in self.blocks:\n            x = block(x)\n        return x"
TWO_CALLS = "x = self.blocks[0](x)\n        x = self.blocks[-1](x)\n        return x"
ROLL = "return torch.roll(x + 1, self.shift, 1)"
NO_ROLL = "return x + 1"
# By name: parameters and body of the constructor, then the line before and after the change.
WRONG = {
    "the length of a list": (
        "widths=(8, 8)",
        "self.blocks = nn.ModuleList([Block(width) for width in widths])",
        LOOP,
        TWO_CALLS,
    ),
    "the length of a list that fills another": (
        "widths=[8, 8]",
        "self.blocks = nn.ModuleList()\n"
        "        for width in widths:\n"
        "            self.blocks.append(Block(width))",
        LOOP,
        TWO_CALLS,
    ),
    "the lengths of lists in a list": (
        "stages=((8,), (8,))",
        "self.blocks = nn.ModuleList(Block(w) for stage in stages for w in stage)",
        LOOP,
        TWO_CALLS,
    ),
    "the first item": ("shifts=(0, 0)", "self.shift = shifts[0]", ROLL, NO_ROLL),
    "an unpacked item": ("shifts=(0, 1)", "self.shift, _ = shifts", ROLL, NO_ROLL),
    "an item in a local variable": (
        "shifts=(0, 0)",
        "first = shifts[0]\n        self.shift = first",
        ROLL,
        NO_ROLL,
    ),
    "a length that is stored": (
        "shifts=(0, 0)",
        "self.count = len(shifts)",
        "for _ in range(self.count):\n            x = torch.tanh(x)\n        return x",
        "return torch.tanh(torch.tanh(x))",
    ),
    "an option of **kwargs": (
        "**kwargs",
        "self.shift = kwargs.get('shift', 0)",
        ROLL,
        NO_ROLL,
    ),
    "a product of two zeros": ("a=0, b=0", "self.shift = a * b", ROLL, NO_ROLL),
    "a name in a table": (
        "act='relu'",
        "self.act = {'relu': nn.ReLU, 'tanh': nn.Tanh}[act]()",
        "return self.act(x)",
        "return torch.relu(x)",
    ),
    "a function of PyTorch": (
        "act=torch.relu",
        "self.act = act",
        "return self.act(x)",
        "return torch.relu(x)",
    ),
    "dropout that there is for other rates only": (
        "p=0.0",
        "self.drop = nn.Dropout(p) if p > 0 else nn.Identity()",
        "return self.drop(x + 1)",
        NO_ROLL,
    ),
    "a number that is a key": (
        "depth=18",
        "self.counts = {18: (2, 2), 34: (3, 4)}[depth]",
        "for _ in range(self.counts[0]):\n            x = torch.tanh(x)\n        return x",
        "return torch.tanh(torch.tanh(x))",
    ),
    "two rates with the same default": (
        "first=0.5, second=0.5",
        "self.first, self.second = first, second",
        "return x * self.first + 1",
        "return x * self.second + 1",
    ),
    "two flags that matter together": (
        "scaled=False, shifted=False",
        "self.scaled, self.shifted = scaled, shifted",
        "x = x * 2 if self.scaled else x\n        return x + 1 if self.shifted else x * 1",
        "x = x + 1 if self.shifted else x\n        return x * 2 if self.scaled else x * 1",
    ),
    "an odd number": (
        "count=4",
        "self.count = count",
        "return x * (self.count // 2)",
        "return x * ((self.count + 1) // 2)",
    ),
    "a number that is not set": (
        "index=None",
        "self.index = index",
        "return x + 1 if self.index is not None else x * 2",
        "return x + 1 if self.index else x * 2",
    ),
    "an infinity by default": (
        "limit=None",
        "self.limit = float('inf') if limit is None else limit",
        "return (x + 1).clamp(max=self.limit)",
        NO_ROLL,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_a_change_for_one_value_of_an_option_is_refuted(case: str, tmp_path: Path) -> None:
    arguments, construction, before, after = WRONG[case]
    text = MODEL.format(arguments=arguments, construction=construction, body=before)
    verdict = verdict_on(tmp_path, text, before, after)
    assert verdict.status == "refuted", verdict


def test_an_object_among_the_arguments_is_named(tmp_path: Path) -> None:
    text = MODEL.format(
        arguments="act=nn.ReLU()", construction="self.act = act", body="return self.act(x)"
    )
    path = tmp_path / "model.py"
    path.write_text(text)
    changed = text.replace("return self.act(x)", "return torch.relu(x)")
    (verdict,) = verify(path, changed.encode(), contract="results")
    assert (verdict.status, "the constructor's act" in verdict.reason) == ("unproven", True), (
        verdict
    )


def test_a_renamed_loop_over_a_list_is_proved(tmp_path: Path) -> None:
    text = MODEL.format(
        arguments="widths=(8, 8)",
        construction="self.blocks = nn.ModuleList([Block(width) for width in widths])",
        body=LOOP,
    )
    after = "for layer in self.blocks:\n            x = layer(x)\n        return x"
    verdict = verdict_on(tmp_path, text, LOOP, after)
    assert verdict.status == "proved", verdict


def test_classes_that_take_each_others_names_are_followed_once() -> None:
    tree = ast.parse("class A(M): ...\nclass B(A): ...\nclass A(B): ...\n")
    assert [cls.name for cls in base_classes(tree.body[2], tree)] == ["B"]
    assert [cls.name for cls in base_classes(tree.body[1], tree)] == ["A"]


def test_attributes_are_followed_through_methods_loops_and_tests() -> None:
    tree = ast.parse(
        "class Net:\n"
        "    def __init__(self, depth, flag, **options):\n"
        "        self.setup(depth, scale=flag)\n"
        "        if flag:\n"
        "            self.extra = make()\n"
        "        setattr(self, 'late', options.pop('late', 3))\n"
        "    def setup(self, count, scale):\n"
        "        for index in range(count):\n"
        "            self.blocks.append(index)\n"
        "        self.scale: float = scale\n"
    )
    flow = flow_of(tree.body)

    def read(key: str) -> set[str]:
        return {
            node.id
            for source in flow.expressions(key, through_objects=True)
            for node in ast.walk(source)
            if isinstance(node, ast.Name)
        }

    assert "depth" in read("self.blocks")
    assert "flag" in read("self.scale") and "depth" not in read("self.scale")
    assert "flag" in read("self.extra")
    assert "options" in read("self.late")
    plain = list(flow.expressions("self.extra", through_objects=False))
    assert [ast.unparse(source) for source in plain] == ["make()"]
    (constructor,) = (node for node in ast.walk(tree) if getattr(node, "name", "") == "__init__")
    assert isinstance(constructor, ast.FunctionDef)
    assert keyword_defaults(constructor) == {"late": 3}


def test_keys_of_tables_are_values_of_the_name_that_is_looked_up() -> None:
    source = "TABLE = {'a': 1, 'b': 2}\nx = TABLE[kind]\ny = {'c': 3, 5: 5}.get(self.mode, 0)\n"
    assert compared_strings(source) == {"kind": ("a", "b"), "mode": ("c", 5)}
