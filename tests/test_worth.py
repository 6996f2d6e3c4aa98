"""Test the worth of rules: what the measurements say, and that only what pays is applied by
default."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from command_line import regraft
from regraft.rules import BUILT_IN, load_rules
from regraft.rules import worth as worth_module
from regraft.rules.worth import Case, Worth, chosen_target, worth_of

Write = Callable[[str, str], Path]
CODE = """
    import torch

    def weights(scores):
        return torch.softmax(scores, dim=-1)

    def swish(x):
        return x * torch.sigmoid(x)

    def head(x):
        return torch.sort(x, dim=-1)[0][..., :3]
    """


def case(
    low: float, high: float, memory: float = 1.0, size: str = "typical", mode: str = "training"
) -> Case:
    return Case(size, "4 x 512", mode, (low, (low + high) / 2, high), memory)


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ([], "unknown"),
        ([case(3, 4, size="small")], "unknown"),
        ([case(1.1, 1.3)], "pays"),
        ([case(1.1, 1.3, size="large"), case(0.97, 1.02)], "pays"),
        ([case(1.01, 1.3)], "gains nothing"),
        ([case(0.5, 0.6)], "gains nothing"),
        ([case(0.97, 1.02, memory=0.3)], "pays"),
        ([case(0.97, 1.02, memory=0.5)], "gains nothing"),
        ([case(0.5, 0.6, memory=0.3)], "gains nothing"),
        ([case(1.5, 1.6), case(0.8, 0.9, mode="inference")], "mixed"),
        ([case(1.5, 1.6), case(0.8, 0.9, memory=0.5, mode="inference")], "mixed"),
        ([case(1.5, 1.6), case(0.8, 0.9, size="small")], "pays"),
        ([case(1.1, 1.2), case(0.6, 0.7, size="small")], "mixed"),
        ([case(0.97, 1.0, memory=0.2), case(0.8, 0.9, size="small")], "pays"),
        ([case(0.97, 1.0, memory=0.2), case(0.1, 0.2, size="small")], "mixed"),
        ([case(1.5, 1.6), case(0.8, 0.9, size="large")], "mixed"),
        ([case(1.1, 1.2), case(0.9, 5.0), case(0.6, 0.7, size="small")], "mixed"),
        ([case(1.5, 1.6), case(0.97, 1.0, memory=4.9, mode="inference")], "mixed"),
    ],
)
def test_verdicts(cases: list[Case], verdict: str) -> None:
    worth = Worth("cpu", tuple(cases))
    assert worth.verdict == verdict
    assert bool(worth.objection) == (verdict != "pays")


def test_the_best_case_is_the_fastest_or_else_the_smallest() -> None:
    fast, faster, small = case(1.2, 1.3), case(1.5, 1.6), case(0.96, 1.0, memory=0.1)
    assert Worth("cpu", (fast, small, faster)).best == faster
    assert Worth("cpu", (case(0.96, 1.0, memory=0.3), small)).best == small
    assert Worth("cpu", (case(0.96, 1.0),)).best is None
    assert str(faster) == "1.55 times as fast (training, 4 x 512)"
    assert " with 0.1 times the memory" in str(small)


def test_a_mixed_worth_names_a_gain_and_a_loss() -> None:
    worth = Worth("cpu", (case(1.5, 1.7), case(0.8, 0.9, mode="inference")))
    assert "1.6 times as fast (training" in worth.objection
    assert "0.85 times as fast (inference" in worth.objection


def test_the_target_is_that_of_the_machine_unless_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (chosen_target("cpu"), chosen_target("cuda")) == ("cpu", "cuda")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert chosen_target("auto") == "cuda"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert chosen_target("auto") == "cpu"


def test_shipped_measurements_are_of_rules_and_complete() -> None:
    rules = {rule.id: rule for rule in load_rules(["adopter", "torch", "idioms"])[0]}
    for pack in sorted(BUILT_IN.iterdir()):
        if (pack / "worth.json").is_file():
            data = json.loads((pack / "worth.json").read_text())
            assert data["schema"] == 1 and data["command"].startswith("python benchmarks/")
            for entry in data["measurements"]:
                assert (pack / f"{entry['rule'].partition('/')[2]}.rule").is_file()
                assert entry["device"] in worth_module.TARGETS
                assert all(entry[key] for key in ("machine", "torch", "python", "date"))
                for measured in entry["cases"]:
                    low, median, high = measured["time"]
                    assert 0 < low <= median <= high and measured["memory"] >= 0
                    assert measured["mode"] in ("inference", "training")
                    assert measured["size"] in ("small", "typical", "large")
    unknown = [
        name for name, rule in rules.items() if not (worth_of(rule, "cpu") or Worth("cpu")).cases
    ]
    assert unknown == []


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the worth of three rules known: one that pays on cpu, one that gains nothing, and one
    that gains or loses; nothing is known on cuda."""
    cases: Mapping[tuple[str, str], tuple[Case, ...]] = {
        ("torch/silu", "cpu"): (case(1.4, 1.6),),
        ("adopter/softmax", "cpu"): (case(0.98, 1.02),),
        ("idioms/sorted-head", "cpu"): (case(1.4, 1.6), case(0.5, 0.6, mode="inference")),
    }
    monkeypatch.setattr(worth_module, "_measurements", lambda pack: cases)
    monkeypatch.setattr(shutil, "which", lambda name: None)


def report_of(*options: object, code: int = 1) -> dict[str, Any]:
    result = regraft("check", "--output-format", "json", "--no-cache", *options)
    assert result.returncode == code, result.stdout + result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def statuses(report: Mapping[str, Any]) -> dict[str, str]:
    return {finding["rule"]: finding["status"] for finding in report["findings"]}


ALL_FIXABLE = dict.fromkeys(("adopter/softmax", "torch/silu", "idioms/sorted-head"), "fixable")


@pytest.mark.usefixtures("measured")
def test_by_default_only_what_pays_is_fixable(write: Write) -> None:
    path = write("m.py", CODE)
    report = report_of(path)
    assert statuses(report) == {"torch/silu": "fixable", "idioms/sorted-head": "withheld"}
    assert report["summary"]["gainless"] == 1
    silu, head = report["findings"]
    assert silu["worth"] == {
        "target": "cpu",
        "verdict": "pays",
        "best": {"time": [1.4, 1.5, 1.6], "memory": 1.0, "mode": "training", "shape": "4 x 512"},
    }
    assert "may gain or lose on cpu" in head["reason"] and "--all or --select" in head["reason"]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("options", [["--all"], ["--select", "softmax,silu,sorted-head"]])
def test_what_is_asked_for_is_applied(write: Write, options: list[str]) -> None:
    report = report_of(write("m.py", CODE), *options)
    assert statuses(report) == ALL_FIXABLE
    assert {finding["rule"]: finding["worth"]["verdict"] for finding in report["findings"]} == {
        "adopter/softmax": "gains nothing",
        "torch/silu": "pays",
        "idioms/sorted-head": "mixed",
    }


@pytest.mark.usefixtures("measured")
def test_a_choice_in_the_configuration_is_asked_for(write: Write) -> None:
    path = write("m.py", CODE)
    write("regraft.toml", 'select = ["adopter", "torch/silu", "idioms"]\n')
    assert statuses(report_of(path)) == ALL_FIXABLE
    write("regraft.toml", 'ignore = ["sorted-head"]\n')
    assert statuses(report_of(path)) == {"torch/silu": "fixable"}


@pytest.mark.usefixtures("measured")
def test_a_target_without_measurements_is_said(write: Write) -> None:
    path = write("m.py", CODE)
    report = report_of(path, "--target", "cuda", code=0)
    assert statuses(report) == dict.fromkeys(ALL_FIXABLE, "withheld")
    assert all(
        finding["reason"]
        == "worth unknown on cuda: only with --all or --select; regraft bench measures it"
        for finding in report["findings"]
    )
    write("regraft.toml", 'target = "cuda"\n')
    assert statuses(report_of(path, code=0)) == dict.fromkeys(ALL_FIXABLE, "withheld")
    assert statuses(report_of(path, "--target", "cpu"))["torch/silu"] == "fixable"
    write("regraft.toml", 'target = "tpu"\n')
    assert regraft("check", path).returncode == 2


@pytest.mark.usefixtures("measured")
def test_what_gains_nothing_is_counted_in_one_line(write: Write) -> None:
    path = write("m.py", "import torch\n\n\ndef weights(x):\n    return torch.softmax(x, -1)\n")
    result = regraft("check", path)
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "0 findings, 1 file",
        "1 place that gains nothing on cpu: --all applies it",
    ]
    explained = regraft("check", "--explain", path)
    assert "withheld: gains nothing on cpu: only with --all or --select" in explained.stdout
    assert regraft("check", "--diff", path).stdout == ""
    assert "softmax(x)" in regraft("check", "--diff", "--all", path).stdout


@pytest.mark.usefixtures("measured")
def test_the_report_says_what_a_finding_is_worth(write: Write) -> None:
    text = regraft("check", "--all", write("m.py", CODE)).stdout
    assert "= worth: measured on cpu: at best 1.5 times as fast (training, 4 x 512)" in text
    lines = text.splitlines()
    assert [line.split()[1] for line in lines if line[:8].strip() == "1"] == [
        "torch/silu",
        "idioms/sorted-head",
    ]


@pytest.mark.usefixtures("measured")
def test_the_report_does_not_hide_what_a_rule_loses(write: Write) -> None:
    text = regraft("check", "--all", write("m.py", CODE)).stdout
    assert "= worth: gains nothing on cpu" in text
    loss = "may gain or lose on cpu (1.5 times as fast (training, 4 x 512), but 0.55 times"
    assert f"= worth: {loss}" in text
    assert f"idioms/sorted-head  {loss}" in text


@pytest.mark.usefixtures("measured")
def test_targets_of_several_configuration_files_are_told_apart(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = (case(1.4, 1.6),)
    measured = {("torch/silu", target): cases for target in worth_module.TARGETS}
    monkeypatch.setattr(worth_module, "_measurements", lambda pack: measured)
    paths = []
    for target, number in (("cpu", 1), ("cuda", 2)):
        path = write(f"{target}/m.py", "import torch\n")
        write(f"{target}/regraft.toml", f'target = "{target}"\n')
        body = "".join(
            f"\n\ndef f{n}(x):\n    return x * torch.sigmoid(x)\n" for n in range(number)
        )
        path.write_text(f"import torch\n{body}")
        paths.append(path)
    lines = [line.split() for line in regraft("check", *paths).stdout.splitlines()]
    table = {line[4]: line[0] for line in lines if line[1:4] == ["torch/silu", "measured", "on"]}
    assert table == {"cpu:": "1", "cuda:": "2"}


@pytest.mark.usefixtures("measured")
def test_a_rule_of_a_user_needs_no_measurement(write: Write, tmp_path: Path) -> None:
    assert regraft("new", "rule", "mine/act", "--rules", tmp_path / "rules").returncode == 0
    assert regraft("test", "mine", "--rules", tmp_path / "rules").returncode == 0
    page = (tmp_path / "rules" / "mine" / "act.md").read_text()
    code = page.split("```python before\n")[1].split("```")[0]
    path = tmp_path / "own.py"
    path.write_text(code)
    findings = report_of(path, "--rules", tmp_path / "rules")["findings"]
    assert [finding["worth"] for finding in findings if finding["rule"] == "mine/act"] == [None]


@pytest.mark.usefixtures("measured")
def test_a_baseline_accepts_what_the_check_reports(write: Write, tmp_path: Path) -> None:
    path = write("m.py", CODE)
    target = tmp_path / "baseline.json"
    assert "1 finding accepted" in regraft("baseline", "write", "--file", target, path).stdout
    assert report_of(path, "--baseline", target, code=0)["summary"]["gainless"] == 1
    assert "3 findings" in regraft("baseline", "write", "--all", "--file", target, path).stdout


@pytest.mark.usefixtures("measured")
def test_verify_says_that_places_are_withheld(write: Write) -> None:
    path = write("m.py", "import torch\n\n\ndef weights(x):\n    return torch.softmax(x, -1)\n")
    result = regraft("verify", path)
    assert result.stdout.endswith("nothing changed, nothing to verify\n")
    assert result.stderr == f"{path}: 1 place withheld: regraft check --explain says why\n"


@pytest.mark.parametrize("options", [["--all"], ["--target", "cuda"]])
def test_verify_refuses_a_choice_of_rules_where_it_applies_none(
    write: Write, options: list[str]
) -> None:
    path = write("m.py", "import torch\n")
    for arguments in ([path, path], ["--diff-base", "HEAD"]):
        assert regraft("verify", *arguments, *options).returncode == 2


def test_pages_and_lists_show_measurements() -> None:
    page = regraft("rule", "torch/linear-cross-entropy").stdout
    assert "## Worth" in page and "| cpu |  | typical |" in page
    assert "| cpu | causal, dropout | typical |" in regraft("rule", "torch/attention").stdout
    rows = json.loads(regraft("rules", "--output-format", "json").stdout)
    verdicts = {row["rule"]: row["worth"] for row in rows}
    assert verdicts["torch/linear-cross-entropy"]["cpu"] == "pays"
    assert verdicts["adopter/softmax"]["cpu"] == "gains nothing"
