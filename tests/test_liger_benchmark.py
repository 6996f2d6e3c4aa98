"""Test the benchmark of the pack liger: the matched places, and the places that maintainers
missed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
NORM = '''
class NAME(nn.Module):
    """A norm."""

    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)
'''


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the benchmark's module."""
    monkeypatch.syspath_prepend(BENCHMARKS / "adopter199")
    spec = importlib.util.spec_from_file_location(
        "liger_coverage_run", BENCHMARKS / "liger_coverage" / "run.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "liger_coverage_run", module)
    spec.loader.exec_module(module)
    return module


def package(run: Any, folder: Path, **files: str) -> Any:
    """Return a package of modeling files."""
    head = "import torch\nfrom torch import nn\n\n"
    for name, text in files.items():
        path = folder / name / f"modeling_{name}.py"
        path.parent.mkdir()
        path.write_text(head + text)
    return run.Package("p==1", folder, tuple(sorted(folder.glob("*/*.py"))), ())


def test_places_are_found_by_rule_and_line(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = (
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n       "
        " self.norm = nn.LayerNorm(\n"
    )
    layer += "            4\n        )\n\n    def forward(self, x):\n        return self.norm(x)\n"
    root = package(run, tmp_path, a=NORM.replace("NAME", "ANorm"), b=layer)
    rows = [
        {"category": "rmsnorm", "file": "a/modeling_a.py", "line": 5, "end": 17, "name": "ANorm"},
        {"category": "rope", "file": "a/modeling_a.py", "line": 5, "end": 17, "name": "not one"},
        {
            "category": "layernorm",
            "file": "b/modeling_b.py",
            "line": 7,
            "end": None,
            "name": "M.norm",
        },
        {
            "category": "tiled_mlp",
            "file": "b/modeling_b.py",
            "line": 4,
            "end": 9,
            "name": "no rule",
        },
    ]
    (tmp_path / "sites.json").write_text(json.dumps(rows))
    run.score(root, run.listed(tmp_path / "sites.json", root), run.findings(root), True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("found")[0].split() for line in lines if "found" in line] == [
        ["layernorm", "1", "of", "1"],
        ["rmsnorm", "1", "of", "1"],
        ["rope", "0", "of", "1"],
        ["tiled_mlp", "0", "of", "1"],
    ]
    assert any("no rule: the pack has no rule for it" in line for line in lines)


def test_a_copy_without_an_annotation_was_missed(run: Any, tmp_path: Path) -> None:
    annotated = '@use_kernel_forward_from_hub("RMSNorm")' + NORM.replace("NAME", "ANorm")
    renamed = NORM.replace("NAME", "BNorm").replace("dtype", "kind").replace(".kind", ".dtype")
    unlike = NORM.replace("NAME", "CNorm").replace("pow(2)", "abs()")
    root = package(run, tmp_path, a=annotated, b=renamed, c=unlike)
    row = {
        "kernel": "RMSNorm",
        "file_kind": "modeling",
        "file": "a/modeling_a.py",
        "target": "ANorm",
        "def_line": 5,
    }
    (tmp_path / "annotations.json").write_text(json.dumps([row, {**row, "kernel": "another"}]))
    places = run.annotated(tmp_path / "annotations.json", root)
    assert [place.name for place in places] == ["ANorm"]
    assert [place.name for place in run.missed(places, root)] == ["BNorm"]
