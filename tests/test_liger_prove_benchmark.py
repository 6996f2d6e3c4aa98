"""Test places proved through the interpreter: the verdicts of places, the stored results, and the
table."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from regraft.verification import Verdict

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
CODE = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


class Other(nn.Module):
    def forward(self, x):
        h = x.to(torch.float32)
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
"""
KERNEL = ["rms_norm.forward", "rms_norm.backward"]


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield the benchmark's module."""
    for name in ("run", "prove"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS / "liger_coverage"), *sys.path])
    yield importlib.import_module("prove")
    for name in ("run", "prove"):
        sys.modules.pop(name, None)


def task(prove: Any, folder: Path, *names: str) -> Any:
    """Return the task of a file with places."""
    path = folder / "models" / "a.py"
    path.parent.mkdir()
    path.write_text(CODE)
    package = prove.packages.Package("p==1", folder, (path,), ())
    lines = {"Norm": (6, 15), "Other": (18, 21), "nothing": (1, 3)}
    places = [prove.Place("rmsnorm", "models/a.py", *lines[name], name) for name in names]
    return prove._task(package, "models/a.py", places)


def verdict(name: str, status: Any, reason: str = "", functions: Any = KERNEL) -> Verdict:
    """Return a verdict with the functions that ran."""
    return Verdict("a.py", name, (1,), status, reason, {"implementations": functions})


def test_only_definitions_with_a_place_are_rewritten(prove: Any, tmp_path: Path) -> None:
    proof_task = task(prove, tmp_path, "Norm", "nothing")
    assert [len(findings) for _, findings in proof_task.places] == [1, 0]
    assert (
        proof_task.changed.count(b"rms_norm(") == 1 and b"1e-6)).to(x.dtype)" in proof_task.changed
    )


def test_a_place_has_the_verdict_of_its_definition(prove: Any, tmp_path: Path) -> None:
    proof_task = task(prove, tmp_path, "Norm", "Other", "nothing")
    proofs = prove.judged(
        proof_task, [verdict("Norm", "proved"), verdict("Other", "unproven", "late", ())]
    )
    assert [(proof.status, proof.ran, proof.reason) for proof in proofs] == [
        ("proved", True, ""),
        ("unproven", False, "late"),
        ("not found", False, ""),
    ]


def test_a_proof_by_the_composition_does_not_count_as_one_by_the_kernel(
    prove: Any, tmp_path: Path
) -> None:
    proof_task = task(prove, tmp_path, "Norm", "Other")
    forward_alone = verdict(
        "Other", "proved", functions=["rms_norm.forward", "rms_norm.rms_norm_reference"]
    )
    lines = list(prove.report(prove.judged(proof_task, [verdict("Norm", "proved"), forward_alone])))
    assert lines[-2].split() == ["total", "2", "2", "2", "1", "0", "0", "0"]
    assert lines[-1].endswith("Other rmsnorm: proved: by the composition alone")


def test_results_survive_a_run_that_was_killed(prove: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    proof = (
        '{"file": "a", "line": 1, "name": "N", "kernel": "rmsnorm", "status": "proved", "ran":'
        ' true, "reason": ""}'
    )
    path.write_text(f'{{"key": "k", "seconds": 1, "proofs": [{proof}]}}\n{{"key": "other", "pro')
    assert prove._read(path) == {"k": (prove.Proof("a", 1, "N", "rmsnorm", "proved", True),)}
    assert path.read_text().endswith("}\n")


def test_it_does_not_start_without_the_interpreter(
    prove: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(SystemExit, match="TRITON_INTERPRET=1"):
        prove.main(["--sites", "none.json"])
