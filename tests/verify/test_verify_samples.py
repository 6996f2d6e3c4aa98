"""Test that right rewrites are proved and wrong ones refuted, on a model file of our own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from verify_samples import DRIVER, EQUAL, SOURCE, WRONG, rewritten

from regraft.verification import to_json, verify

pytest.importorskip("torch")

WRONG_GROUPS = [
    (
        "other eps",
        "no norm weight",
        "approximate gelu",
        "twice the rate",
        "swapped operands",
        "no mask",
    ),
    (
        "no residual",
        "root norm other eps",
        "other activation",
        "drops rows",
        "other softmax dimension",
    ),
    ("no norm bias", "overwrites its input", "no gradient", "unscaled dropout", "no scale"),
    ("dropout always on", "returns float32", "new parameter", "fails"),
    ("dropout always off",),
    ("hooks bypassed", "gradients where no key is visible", "one number format"),
    ("other cast order",),
]
EQUAL_GROUPS = [
    (
        "sum in the other order",
        "library root norm",
        "gelu by hand",
        "fused attention",
        "subtraction as addition",
    ),
    ("one statement", "factor first", "dropout in another order"),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the working directory, with a model and a driver."""
    (tmp_path / "model.py").write_text(SOURCE)
    (tmp_path / "driver.py").write_text(DRIVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(project: Any, changed: Any, driver: Any = "driver.py:block", **options: Any) -> Any:
    """Return the verdicts on a changed file by definition."""
    verdicts = verify(project / "model.py", changed, driver=driver, time_limit=120, **options)
    return {verdict.definition: verdict for verdict in verdicts}


def test_groups_cover_all_samples() -> None:
    assert sorted(name for group in WRONG_GROUPS for name in group) == sorted(WRONG)
    assert sorted(name for group in EQUAL_GROUPS for name in group) == sorted(EQUAL)


SEEN_BY_DEFAULT_EFFORT = {"gradients where no key is visible", "other cast order"}
REPRODUCED = {"other eps", "twice the rate", "no mask", "new parameter", "hooks bypassed"}


@pytest.mark.slow
@pytest.mark.parametrize("names", WRONG_GROUPS, ids=", ".join)
def test_wrong_rewrites_are_refuted(project: Any, names: Any) -> None:
    effort = "low" if SEEN_BY_DEFAULT_EFFORT.isdisjoint(names) else "default"
    verdicts = run(project, rewritten(WRONG, names), effort=effort)
    for name in names:
        verdict = verdicts[WRONG[name][0]]
        assert verdict.status == "refuted", (name, verdict.reason, verdict.evidence)
        assert verdict.reason
        if name in REPRODUCED:
            assert_reproduced(verdict)


def assert_reproduced(verdict: Any) -> None:
    """Run the reproducer of a verdict on its own: it says what the verdict says."""
    process = subprocess.run(
        [sys.executable, "-I", verdict.evidence["reproducer"]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1, process.stderr
    assert verdict.reason in process.stdout


@pytest.mark.slow
@pytest.mark.parametrize("names", EQUAL_GROUPS, ids=", ".join)
def test_equal_rewrites_are_proved(project: Any, names: Any) -> None:
    verdicts = run(project, rewritten(EQUAL, names))
    assert {name: (v.status, v.reason) for name, v in verdicts.items()} == {
        EQUAL[name][0]: ("proved", "") for name in names
    }
    for verdict in verdicts.values():
        assert verdict.evidence["levels"][-1] == "lines executed"
        assert verdict.evidence["dtypes"] == ["bfloat16", "float16", "float32", "float64"]
        kernels = {name.partition(".")[0] for name in verdict.evidence["implementations"]}
        assert ("attention" in kernels) == ("fused attention" in names)


@pytest.mark.slow
def test_inference_alone(project: Any) -> None:
    verdicts = run(
        project, rewritten(EQUAL, ("sum in the other order", "library root norm")), driver=None
    )
    assert {v.status for v in verdicts.values()} == {"proved"}, [
        v.reason for v in verdicts.values()
    ]
    verdicts = run(
        project, rewritten(WRONG, ("other eps", "no norm weight", "no scale")), driver=None
    )
    assert {v.status for v in verdicts.values()} == {"refuted"}, [
        (v.reason, v.evidence) for v in verdicts.values()
    ]


def test_json(project: Any) -> None:
    document = to_json(run(project, rewritten(WRONG, ("no residual",)), effort="low").values())
    assert document["version"] == 1
    assert set(document["verdicts"][0]) == {
        "file",
        "class",
        "lines",
        "status",
        "reason",
        "evidence",
    }
