"""Test the measurement of what rules are worth: every rule has a subject that it rewrites into one
with the same results, and measurements are stored beside those of other rules and devices."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.benchmarking.median_intervals import FEWEST, Interval  # noqa: E402
from regraft.rules.loading import rule_paths  # noqa: E402
from regraft.source.object_reference import load_source  # noqa: E402

FOLDER = Path(__file__).parent.parent / "benchmarks" / "worth"
CPU = torch.device("cpu")


def load_command() -> Any:
    """Return the command's module; its own imports are on the path while it loads."""
    name = "worth_rules"
    if name in sys.modules:
        return sys.modules[name]
    path = list(sys.path)
    try:
        module: Any = load_source(FOLDER / "rules.py", name)
        module.ALL = {
            subject.title: subject
            for device in ("cpu", "cuda")
            for subject in module.subjects(device)
        }
    finally:
        sys.path[:] = path
    return module


COMMAND = load_command()


@pytest.mark.parametrize("title", sorted(COMMAND.ALL))
def test_a_rule_rewrites_its_subject_into_an_equal_module(title: str, tmp_path: Path) -> None:
    subject = COMMAND.ALL[title]
    if requirement := COMMAND.lacking(subject.rule):
        pytest.skip(f"needs {requirement}")
    loaded = COMMAND.modules(subject, tmp_path)
    both = COMMAND.versions(subject, loaded, "small", CPU)
    both.check(COMMAND.tolerance_of(subject, "small", CPU), subject.modes)
    for size in COMMAND.SIZES:
        assert COMMAND.shape_of(subject, size, torch.float32)


def test_every_rule_of_a_measured_pack_has_a_subject() -> None:
    measured = {subject.rule for subject in COMMAND.ALL.values()}
    packs = {name.partition("/")[0] for name in measured}
    assert packs == {"adopter", "idioms", "liger", "torch"}
    assert {name for name in rule_paths() if name.partition("/")[0] in packs} == measured


def test_a_subject_that_is_not_rewritten_is_an_error(tmp_path: Path) -> None:
    text = "from torch import nn\n\n\nclass Subject(nn.Module):\n    pass\n"
    with pytest.raises(COMMAND.WorthError, match="torch/silu rewrites nothing"):
        COMMAND.rewritten(text, ["torch/silu"], tmp_path)


def test_versions_that_differ_are_not_close() -> None:
    both = COMMAND.Versions(
        torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False), (torch.ones(1, 2),)
    )
    with pytest.raises(AssertionError, match="not close"):
        both.check(1e-4)


def test_a_measurement_has_the_stored_form(tmp_path: Path) -> None:
    subject = COMMAND.ALL["torch/silu"]
    options = COMMAND.Options(CPU, FEWEST, 0.1, ("small",))
    problems: list[str] = []
    measured = list(COMMAND.cases(subject, options, tmp_path, problems.append))
    assert not problems and [case["mode"] for case in measured] == ["inference", "training"]
    case = measured[0]
    assert set(case) == {"size", "shape", "mode", "time", "memory"}
    assert case["shape"] == "2 x 16 x 128" and case["memory"] < 1
    assert case["time"] == sorted(case["time"]) and COMMAND.line("torch/silu", case)


def test_a_subject_that_fails_is_reported(tmp_path: Path) -> None:
    subject = COMMAND.Subject("torch/silu", "", {}, "x = 1\n")
    problems: list[str] = []
    options = COMMAND.Options(CPU, FEWEST, 0.1, ("small",))
    assert not list(COMMAND.cases(subject, options, tmp_path, problems.append))
    assert "torch/silu rewrites nothing" in problems[0]


def entry(rule: str, device: str, time: float) -> dict[str, Any]:
    case = {"size": "small", "shape": "2", "mode": "inference", "time": [time] * 3, "memory": 1.0}
    return {"rule": rule, "device": device, "machine": 'a "b"', "cases": [case, case]}


def test_stored_measurements_replace_those_of_the_rule_and_device(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    entries = [entry("torch/silu", "cpu", 1.0), entry("torch/gelu", "cuda", 2.0)]
    for stored in [*entries, entry("torch/silu", "cuda", 3.0), entry("torch/silu", "cpu", 4.0)]:
        COMMAND.store(stored, tmp_path)
    content = json.loads((tmp_path / "torch" / "worth.json").read_text())
    assert (content["schema"], content["command"]) == (1, COMMAND.COMMAND)
    assert content["measurements"] == [
        entry("torch/gelu", "cuda", 2.0),
        entry("torch/silu", "cpu", 4.0),
        entry("torch/silu", "cuda", 3.0),
    ]


@pytest.mark.parametrize(
    ("ends", "decided"),
    [
        ((1.11, 1.2), True),
        ((0.8, 0.94), True),
        ((0.98, 1.02), True),
        ((1.0, 1.2), False),
        ((0.9, 1.0), False),
    ],
)
def test_an_interval_is_decided(ends: tuple[float, float], decided: bool) -> None:
    low, high = ends
    assert COMMAND.is_decided(Interval(low, (low + high) / 2, high)) is decided


def run_main(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Run the command and return its exit status and what it stores."""
    stored: list[dict[str, Any]] = []
    monkeypatch.setattr(sys, "argv", ["rules.py", *options])
    monkeypatch.setattr(COMMAND, "store", stored.append)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    return COMMAND.main(), stored


def test_a_rule_of_which_a_case_is_lacking_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, other = (
        COMMAND.Subject(rule, "", {}, "", name=name)
        for rule, name in (("torch/silu", "a"), ("torch/silu", "b"), ("torch/gelu", "a"))
    )
    monkeypatch.setattr(COMMAND, "subjects", lambda _: [good, bad, other])

    def cases(subject: Any, _: Any, __: Any, report: Any) -> list[dict[str, Any]]:
        if subject is bad:
            report("torch/silu (b): out of memory")
            return []
        case: dict[str, Any] = entry("", "", 1.0)["cases"][0]
        return [case]

    monkeypatch.setattr(COMMAND, "cases", cases)
    status, stored = run_main(monkeypatch, "--write")
    assert (status, [measurement["rule"] for measurement in stored]) == (1, ["torch/gelu"])


def test_some_sizes_alone_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        run_main(monkeypatch, "--write", "--sizes", "large", "--only", "nothing")


def test_stored_measurements_are_those_of_the_command() -> None:
    for path in COMMAND.PACKS.glob("*/worth.json"):
        content = json.loads(path.read_text("utf-8"))
        assert path.read_text("utf-8") == COMMAND.document(content["measurements"])
        rules = [measurement["rule"] for measurement in content["measurements"]]
        assert rules == sorted(rules) and set(rules) <= set(rule_paths())
