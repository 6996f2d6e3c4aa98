"""Test the JSON of `regraft verify`, `bench`, `split` and `rules` against the schemas in the
package; also where the user's code prints, which is no part of the document."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from command_line import regraft
from regraft.report import formats
from test_formats import closed

MODEL = """import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        print("a step")
        return x * torch.sigmoid(x)


class Cascade(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(2):
            x = self.layer(x)
            if x.sum() > 0:
                break
        return x


print("imported")


def build():
    print("built")
    return Gate(), torch.randn(64, 64)


def build_cascade():
    torch.manual_seed(0)
    return Cascade().eval(), [(torch.randn(1, 4),) for _ in range(9)]
"""


def fitting(name: str, text: str) -> Any:
    """Return a document that fits its schema and has no key that the schema does not state."""
    schema = json.loads(
        Path(formats.__file__).with_name("schemas").joinpath(f"{name}.schema.json").read_text()
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(text)
    jsonschema.validate(document, closed(copy.deepcopy(schema)))
    return document


def checked(name: str, text: str) -> dict[str, Any]:
    """Return a document as `fitting` does, which has a version."""
    document: dict[str, Any] = fitting(name, text)
    assert document["version"] == 1
    return document


def test_the_list_of_rules_fits_its_schema() -> None:
    rules = fitting("rules", regraft("rules", "--output-format", "json").stdout)
    assert {"torch/gelu", "adopter/softmax"} <= {rule["rule"] for rule in rules}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file of models that print."""
    pytest.importorskip("torch")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


@pytest.mark.slow
def test_verify_fits_its_schema(folder: Path) -> None:
    (folder / "changed.py").write_text(MODEL.replace("x * torch.sigmoid(x)", "x * x"))
    result = regraft(
        *("verify", "--effort", "low", "--output-format", "json", "model.py", "changed.py"),
        cwd=folder,
    )
    (verdict,) = checked("verify", result.stdout)["verdicts"]
    assert verdict["status"] == "refuted" and verdict["evidence"]["reproducer"]
    nothing = regraft("verify", "--output-format", "json", "model.py", "model.py", cwd=folder)
    assert checked("verify", nothing.stdout)["verdicts"] == []


@pytest.mark.slow
def test_bench_and_profile_fit_their_schemas_where_the_model_prints(folder: Path) -> None:
    options = ("--packs", "torch/silu", "--output-format", "json")
    result = regraft(
        *("bench", "model.py:build", "--no-verify", "--rounds", "6", "--select", "fastest"),
        *options,
        cwd=folder,
    )
    document = checked("bench", result.stdout)
    assert document["rows"] and document["chosen"] is not None
    assert {"imported", "built", "a step"} <= {*result.stderr.splitlines()}
    profile = regraft("profile", "model.py:build", *options, cwd=folder)
    assert checked("profile", profile.stdout)["definitions"]
    assert "a step" in profile.stderr


@pytest.mark.slow
def test_split_fits_its_schema_where_the_function_prints(folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    result = regraft(
        *("split", "model.py:build_cascade", "-o", "net", "--unseen", "raise"),
        *("--output-format", "json"),
        cwd=folder,
    )
    document = checked("split", result.stdout)
    assert document["regions"] and "imported" in result.stderr
