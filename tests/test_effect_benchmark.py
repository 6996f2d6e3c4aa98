"""Test the benchmark of the requested effects: the counted cases, and the words for models that are
not rewritten."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parent.parent / "benchmarks" / "effect"


@pytest.fixture
def acceptance(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the benchmark's module."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("effect_acceptance", FOLDER / "acceptance.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "effect_acceptance", module)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("models", None)


def gelu(module: Any, size: int = 64) -> Any:
    """Return a function that builds a model and its input."""
    return lambda: (module.models.HandGelu(), torch.randn(size, 512))


def test_a_case_that_is_as_asked(acceptance: Any, capsys: pytest.CaptureFixture[str]) -> None:
    case = acceptance.Case("by hand", gelu(acceptance), "inference", "torch/gelu", 0.01)
    assert acceptance.measured(case, 6, False) and "NOT" not in capsys.readouterr().out


@pytest.mark.parametrize(("speed", "memory"), [(1000.0, 0.0), (0.01, 0.01)])
def test_cases_that_are_not(
    acceptance: Any, speed: float, memory: float, capsys: pytest.CaptureFixture[str]
) -> None:
    case = acceptance.Case("by hand", gelu(acceptance), "inference", "torch/gelu", speed, memory)
    assert not acceptance.measured(case, 6, False) and "NOT as asked" in capsys.readouterr().out


def test_nothing_to_rewrite_is_not_as_asked(
    acceptance: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    case = acceptance.Case("by hand", gelu(acceptance), "inference", "torch/silu", 1.0)
    assert (
        not acceptance.measured(case, 6, False)
        and "nothing was rewritten" in capsys.readouterr().out
    )


def test_every_case_names_a_rule_that_rewrites_its_model(acceptance: Any) -> None:
    rules, problems = acceptance.load_rules([case.rule for case in acceptance.cases(1)])
    assert not problems
    from regraft.scanning import check_file, compile_rules

    report = check_file(FOLDER / "models.py", compile_rules(rules)[0])
    rewriting_rules = {finding.rule.id for finding in report.findings if finding.fixable}
    assert rewriting_rules == {case.rule for case in acceptance.cases(1)}
