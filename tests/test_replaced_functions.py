"""Test that functions, layers and methods which a file replaces are not taken for PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from command_line import regraft
from conftest import source_of
from regraft.source.qualified_names import module_names
from regraft.source.replaced_attributes import attribute_stores

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import Linear

"""
CODE = """

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 9000)

    def forward(self, x, target):
        logits = self.head(x)
        return F.cross_entropy(logits, target)
"""
SELECT = ("--no-cache", "--select", "torch/linear-cross-entropy")


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("F.cross_entropy = mine", "torch.nn.functional.cross_entropy"),
        ("torch.nn.functional.linear = mine", "torch.nn.functional.linear"),
        ("F.cross_entropy: object = mine", "torch.nn.functional.cross_entropy"),
        ("F.cross_entropy, other = mine", "torch.nn.functional.cross_entropy"),
        ("for F.cross_entropy in mine: pass", "torch.nn.functional.cross_entropy"),
        ("with mine() as F.cross_entropy: pass", "torch.nn.functional.cross_entropy"),
        ("del F.cross_entropy", "torch.nn.functional.cross_entropy"),
        ("if mine: old = F.cross_entropy = mine", "torch.nn.functional.cross_entropy"),
        ('setattr(F, "cross_entropy", mine)', "torch.nn.functional.cross_entropy"),
        ('monkeypatch.setattr(F, "cross_entropy", mine)', "torch.nn.functional.cross_entropy"),
        ("for name in names: setattr(F, name, mine)", "torch.nn.functional"),
        ('F.__dict__["cross_entropy"] = mine', "torch.nn.functional.cross_entropy"),
        ('vars(F)["cross_entropy"] = mine', "torch.nn.functional.cross_entropy"),
        ("F.__dict__.update(mine)", "torch.nn.functional"),
        ("functions = torch.nn.functional\nfunctions.linear = 1", "torch.nn.functional.linear"),
        (
            "def patch():\n    import torch.nn.functional as G\n    G.linear = mine",
            "torch.nn.functional.linear",
        ),
        ("nn.Linear = mine", "torch.nn.Linear"),
        ("nn.Linear.forward = mine", "torch.nn.Linear.forward"),
        ("Linear.__call__ = mine", "torch.nn.Linear.__call__"),
        ("nn.Linear.weight = property(mine)", "torch.nn.Linear.weight"),
        ("nn.Module.__call__ = mine", "torch.nn.Module.__call__"),
        (
            "torch.nn.modules.linear.Linear.forward = mine",
            "torch.nn.modules.linear.Linear.forward",
        ),
        (
            "torch.nn.modules.module.Module._call_impl = mine",
            "torch.nn.modules.module.Module._call_impl",
        ),
    ],
)
def test_a_place_that_runs_a_replaced_name_is_withheld(
    tmp_path: Path, statement: str, name: str
) -> None:
    path = tmp_path / "model.py"
    path.write_text(HEAD + statement + CODE)
    result = regraft("check", *SELECT, path)
    line = HEAD.count("\n") + statement.count("\n") + 1
    reason = f"withheld: {name} is replaced in this file (line {line})"
    assert result.returncode == 0 and reason in result.stdout, result.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "torch.backends.cudnn.benchmark = True",
        "F.softmax = mine",
        "F.cross_entropy.__doc__ = mine",
        "F.other: object",
        "nn.Linear.reset_parameters = mine",
        "nn.Linear.__repr__ = mine",
        "nn.GELU.forward = mine",
        'setattr(torch.nn.init, "normal_", mine)',
        "settings = dict(linear=1)\nsettings['linear'] = 2",
        "class Settings:\n    pass\n\nSettings.linear = 1",
    ],
)
def test_other_assignments_withhold_nothing(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(HEAD + statement + CODE)
    result = regraft("check", *SELECT, path)
    assert result.returncode == 1 and "withheld" not in result.stdout, result.stdout


@pytest.mark.parametrize(
    "statement", ["torch.Tensor.__matmul__ = mine", "torch.Tensor.transpose = mine"]
)
def test_operators_and_methods_of_tensors_may_be_replaced(tmp_path: Path, statement: str) -> None:
    code = """

def attention(q, k, v):
    scores = (q @ k.transpose(-2, -1)) / 8.0
    return F.softmax(scores, dim=-1) @ v
"""
    path = tmp_path / "model.py"
    path.write_text(HEAD + code)
    select = ("--no-cache", "--select", "torch/attention", "--unsafe")
    before = regraft("check", *select, path)
    assert before.returncode == 1, before.stdout
    path.write_text(HEAD + statement + code)
    result = regraft("check", *select, path)
    assert result.returncode == 0 and "is replaced in this file" in result.stdout, result.stdout


def test_a_replaced_function_may_do_anything_beside_a_match(tmp_path: Path) -> None:
    code = CODE.replace(
        "        return F.cross_entropy(logits, target)",
        "        z = F.relu(x)\n        return F.cross_entropy(logits, target), z",
    )
    path = tmp_path / "model.py"
    path.write_text(HEAD + "F.relu = F.relu_" + code)
    result = regraft("check", *SELECT, path)
    assert "torch.nn.functional.relu is replaced in this file" in result.stdout, result.stdout


def test_a_file_whose_function_is_inlined_replaces_as_well(
    tmp_path: Path, write: Callable[[str, str], Path]
) -> None:
    write(
        "losses.py",
        "import torch.nn.functional as F\nF.cross_entropy = print\n\n"
        "def loss(logits, target):\n    return F.cross_entropy(logits, target)\n",
    )
    code = CODE.replace("F.cross_entropy(logits, target)", "loss(logits, target)")
    path = tmp_path / "model.py"
    path.write_text(HEAD + "from losses import loss" + code)
    result = regraft("check", "--explain", *SELECT, path)
    assert result.returncode == 0, result.stdout
    assert "torch.nn.functional.cross_entropy is replaced in losses.py (line 2)" in result.stdout


def test_names_and_lines_of_replacements() -> None:
    source = source_of(
        """
        from torch import nn as layers
        class Norm(layers.Module):
            def patch(self, layer):
                layer.p = 0
                self.weight.data = 1
                layers.GELU.forward = 2
        Norm.forward = 3
        layers.GELU.forward += 4
        """
    )
    names = module_names(source.tree, "")
    stores = attribute_stores(source.tree, source.text, names, "")
    assert stores.lines == {"torch.nn.GELU.forward": 7, "Norm.forward": 8}
    assert stores.paths == {"weight.data", "GELU.forward"}
    assert stores.names == {"p"}


def test_a_whole_body_with_a_replaced_function_is_withheld(tmp_path: Path) -> None:
    page = (files("regraft.rules") / "packs/torch/experts.md").read_text()
    code = page.partition("```python before\n")[2].partition("```")[0]
    path = tmp_path / "model.py"
    select = ("--no-cache", "--select", "torch/experts")
    path.write_text(code)
    before = regraft("check", *select, path)
    assert before.returncode == 1, before.stdout
    path.write_text(code + "\ntorch.nn.functional.linear = torch.Tensor.index_add_ = print\n")
    result = regraft("check", *select, path)
    assert result.returncode == 0 and "is replaced in this file" in result.stdout, result.stdout
