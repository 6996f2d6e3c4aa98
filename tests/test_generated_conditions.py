"""Test random programs whose fast path depends on conditions: original against rewritten, for every
choice of arguments."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from regraft.rules import load_rules
from regraft.scanning import check_source, compile_rules, rewrite_file
from regraft.source.text import SourceFile, parse

RULES, _ = compile_rules(load_rules()[0])
HEAD = """import math

import torch
import torch.nn.functional as F
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.fc2, self.fc3 = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm, self.drop = nn.LayerNorm(8), nn.Dropout(0.0)
        self.kind, self.seen = "a", None

    def cache(self, x):
        self.seen = x.sum()
        self.kind = "b" if self.seen > 0 else "a"

    def forward(self, x, mask=None, head=None, flag=False, other=0):
        r = extra = x
        q, k, v = self.fc(x), self.fc2(x), self.fc3(x)
"""
STEPS = [
    ["s = torch.matmul(q, k.transpose(-1, -2))", "s = q @ k.transpose(-2, -1)"],
    ["s = s / math.sqrt(8)", "s = s * 0.5", "s = s / 3.0", ""],
    ["if mask is not None:\n    s = s + mask", "s = s + r.mean()", ""],
    [
        "s = F.softmax(s, dim=-1)",
        "p = torch.softmax(s.float(), -1).type_as(s)\ns = p",
        "s = s.softmax(-1)",
    ],
    ["s = self.drop(s)", ""],
    ["if head is not None:\n    s = s * head", ""],
    ["y = torch.matmul(s, v)", "y = s @ v"],
]
BETWEEN = [
    "if flag:\n    s = s * 2",
    "if flag:\n    extra = s.sum()",
    "if self.kind == 'b':\n    s = s + 1",
    "s *= 1.5",
    "self.cache(x)",
    "if flag:\n    self.cache(r)",
    "t = q * 2",
    "if other == 1:\n    v = v + 1",
    "q = k",
    "if other == 2:\n    return s",
    "if other == 2:\n    raise ValueError(other)",
    "assert other < 3",
    "print(other)",
    "if flag and other == 1:\n    extra = s",
    "flag = not flag",
    "n = s.shape[-1]",
    "r = r.to(s.dtype)",
    "if other:\n    for i in range(2):\n        s = s + i",
    "z = s if flag else x",
    "x = x + 1",
    "del r\nr = x",
    "# a comment",
    "if mask is None:\n    mask = 0.5",
    "w = lambda: s",
    "other, flag = other + 1, other == 1",
]
AFTER = [
    "if flag:\n    extra = extra + s.sum()",
    "extra = s",
    "y = y + v",
    "y = y + t",
    "y = self.norm(self.drop(y) + r)",
    "if other == 1:\n    y = y + s.mean()",
    "return (y, s) if flag else (y,)",
    "y = y * (self.seen or 1)",
]


def program(seed: int) -> str:
    """Return a random program."""
    generator = random.Random(seed)
    lines = []
    for step in STEPS:
        lines.append(generator.choice(step))
        if generator.random() < 0.15:
            lines.append(generator.choice(BETWEEN))
    lines += generator.sample(AFTER, generator.randint(0, 3))
    text = "\n".join(line for line in lines if line) + "\nreturn y, extra"
    if "t" not in text.replace("torch", "") or ("y = y + t" in text and "t = q * 2" not in text):
        text = "t = x\n" + text
    return HEAD + "".join(f"        {line}\n" for line in text.split("\n"))


def outcome(
    torch: Any, code: str, choice: tuple[Any, ...], capsys: pytest.CaptureFixture[str]
) -> Any:
    """Return the result or exception of a call, the model's attributes, and the printed text."""
    names: dict[str, Any] = {"__name__": "m"}
    exec(compile(code, "m.py", "exec"), names)
    torch.manual_seed(0)
    model, x = names["M"](), torch.randn(2, 4, 8)
    mask, head, flag, other = choice
    values = [None if shape is None else torch.randn(shape) for shape in (mask, head)]
    try:
        result: Any = model(x, *values, flag=flag, other=other)
    except (ValueError, AssertionError, TypeError, UnboundLocalError) as error:
        result = repr(error)
    return result, model.seen, model.kind, capsys.readouterr().out


def leaves(value: Any) -> list[Any]:
    """Return the elements of nested tuples."""
    return (
        [leaf for element in value for leaf in leaves(element)]
        if isinstance(value, tuple)
        else [value]
    )


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 200, 50))
def test_every_choice_gives_the_same(start: int, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    rewritten = 0
    for seed in range(start, start + 50):
        code = program(seed)
        source = parse("m.py", code.encode())
        assert isinstance(source, SourceFile)
        changed, applied = rewrite_file(check_source(source, RULES), RULES)
        rewritten += any(finding.rule.id.endswith("attention") for finding in applied)
        if not applied:
            continue
        rewritten_source = parse("m.py", changed)
        assert isinstance(rewritten_source, SourceFile)
        assert rewrite_file(check_source(rewritten_source, RULES), RULES)[0] == changed, (
            "a second run changes something"
        )
        for choice in itertools.product(
            (None, (4, 4)), (None, (2, 1, 1)), (False, True), (0, 1, 2)
        ):
            before, after = (
                outcome(torch, text, choice, capsys) for text in (code, changed.decode())
            )
            where = f"{changed.decode()}\n{choice}"
            for old, new in zip(leaves(before), leaves(after), strict=True):
                if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
                    close = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}
                    torch.testing.assert_close(
                        new, old, **close, msg=lambda m, w=where: f"{w}\n{m}"
                    )
                else:
                    assert type(new) is type(old) and new == old, where
    assert rewritten >= 5
