"""Test that a rule that changes results on the user's inputs is shown as such and never chosen,
however fast it is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.benchmarking import Goal, Options, as_text, bench, calls_of  # noqa: E402
from regraft.rules import load_rules  # noqa: E402
from regraft.scanning import compile_rules  # noqa: E402

MODEL = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 4)

    def forward(self, x):
        return torch.erfinv(torch.sigmoid(self.dense(x)))
"""
RULE = """\
rule no-inverse
  summary "The inverse of the error function is slow"
  safety  numeric
  needs   torch >= 2.8
forward
  torch.erfinv($x) -> $y
  => torch.relu($x) -> $y
"""
UNCHANGED = 'python unchanged reason="nothing like it"\nimport torch\n'
PAGE = f"""\
```python before
import torch
y = torch.erfinv(x)
```
```python after
import torch
y = torch.relu(x)
```
```{UNCHANGED}```
```{UNCHANGED}```
"""


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Any]:
    """Yield a model whose module is loaded from a file."""
    path = tmp_path / "wrongly_rewritten.py"
    path.write_text(MODEL)
    spec = importlib.util.spec_from_file_location("wrongly_rewritten", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["wrongly_rewritten"] = module
    spec.loader.exec_module(module)
    yield module.Model()
    del sys.modules["wrongly_rewritten"]


@pytest.mark.slow
def test_it_is_shown_and_never_chosen(model: Any, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "no-inverse.rule").write_text(RULE)
    (tmp_path / "own" / "no-inverse.md").write_text(PAGE)
    rules, problems = compile_rules(load_rules(["own"], (), (tmp_path,))[0])
    assert len(rules) == 1 and not problems
    options = Options(rounds=6, verify=False, goal=Goal("fastest"))
    result = bench(model, calls_of(torch.randn(512, 4)), rules, options)
    (row,) = result.rows
    assert row.name == "own/no-inverse" and row.differs
    assert result.chosen is not None and not result.chosen.rules
    text = "\n".join(as_text(result, options, lambda text, **_: text))
    assert f"other results: {row.differs}" in text and "chosen (fastest): no rule" in text


@pytest.mark.parametrize(
    ("inputs", "calls"),
    [
        ({"x": 1}, (((), {"x": 1}),)),
        ((1, 2), (((1, 2), {}),)),
        (3, (((3,), {}),)),
        ([{"x": 1}, (2,), 3], (((), {"x": 1}), ((2,), {}), ((3,), {}))),
        ([], ()),
    ],
)
def test_inputs_as_they_may_be_given(inputs: Any, calls: Any) -> None:
    assert calls_of(inputs) == calls
