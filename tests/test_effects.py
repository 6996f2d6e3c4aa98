"""Test that nothing is moved past a statement that writes into a tensor, however it does so."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import regraft

CODE = """
import operator

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 9000)
        self.table = nn.{layer}(9000, 16, max_norm={max_norm})
        self.table.weight = self.head.weight

    def forward(self, x, target, y):
        logits = self.head(x)
        z = {statement}
        return F.cross_entropy(logits, target), z
"""
SELECT = ("--no-cache", "--select", "torch/linear-cross-entropy")


def result_of(
    folder: Path, statement: str, max_norm: str = "None", layer: str = "Embedding"
) -> tuple[int, str]:
    """Return the exit code and the output for a model with a statement between head and loss, and
    a layer that looks up rows of the head."""
    path = folder / "model.py"
    path.write_text(CODE.format(statement=statement, max_norm=max_norm, layer=layer))
    result = regraft("check", *SELECT, path)
    return result.returncode, result.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "x.mul_(2)",
        "F.relu(x, inplace=True)",
        "F.normalize(x, out=x)",
        "torch.add(x, 1, out=x)",
        "F.embedding(target, self.head.weight, max_norm=1.0)",
        "F.embedding(target, self.head.weight, None, 1.0)",
        "F.embedding_bag(y, self.head.weight, max_norm=1.0)",
        "F.embedding_bag(y, self.head.weight, None, 1.0)",
        "nn.Sequential(nn.EmbeddingBag(9000, 16, None, 1.0))(y)",
        "F.instance_norm(y, x[0], x[1])",
        "F.batch_norm(y, x[0], x[1], training=True)",
        "operator.imul(x, 2)",
        "operator.setitem(x, 0, 1.0)",
    ],
)
def test_a_layer_is_not_moved_past_a_write(tmp_path: Path, statement: str) -> None:
    code, output = result_of(tmp_path, statement)
    assert code == 0 and "(withheld)" in output, output


def test_an_embedding_that_renormalises_its_rows_writes(tmp_path: Path) -> None:
    assert "(withheld)" in result_of(tmp_path, "self.table(target)", "1.0")[1]
    assert "(withheld)" not in result_of(tmp_path, "self.table(target)")[1]


def test_a_bag_of_embeddings_that_renormalises_its_rows_writes(tmp_path: Path) -> None:
    assert "(withheld)" in result_of(tmp_path, "self.table(y)", "1.0", "EmbeddingBag")[1]


@pytest.mark.parametrize("target", ["self.table", "table"])
def test_a_norm_that_is_set_after_construction_counts(tmp_path: Path, target: str) -> None:
    layer = "Embedding(9000, 16)\n        table = self.table"
    path = tmp_path / "model.py"
    code = CODE.replace(
        "{layer}(9000, 16, max_norm={max_norm})", f"{layer}\n        {target}.max_norm = 1.0"
    )
    path.write_text(code.format(statement="self.table(target)", layer="Embedding"))
    assert "(withheld)" in regraft("check", *SELECT, path).stdout


@pytest.mark.parametrize(
    "statement",
    [
        "x.mul(2)",
        "F.normalize(x)",
        "F.embedding(target, self.head.weight)",
        "F.embedding_bag(y, self.head.weight)",
        "operator.mul(x, 2)",
    ],
)
def test_a_layer_is_moved_past_what_only_reads(tmp_path: Path, statement: str) -> None:
    code, output = result_of(tmp_path, statement)
    assert code == 1 and "(withheld)" not in output, output
