"""Test that rules that change what callers see are withheld without --unsafe, on every way to a
rewritten file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import regraft, regraft_process
from regraft.rules import load_rules
from regraft.rules.lock_file import HEAD, pin_rule
from regraft.scanning import check_source, compile_rules, rewrite_file, withhold_contract_rules
from regraft.scanning.cache import Cache
from regraft.source.text import SourceFile, parse

Write = Callable[[str, str], Path]

CODE = """
import torch
import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.output = nn.Linear(8, 16)

    def forward(self, x):
        weights = F.softmax(self.output(x), dim=-1)
        return torch.log(weights)


class Weights(nn.Module):
    def forward(self, scores):
        return scores * torch.sigmoid(1.702 * scores)
"""
REASON = "changes what callers see (safety contract): only with --unsafe"
RULE = "torch/log-softmax"
KERNEL = "log_softmax"


def locked(folder: Path) -> Path:
    """Write a lock of the contract rule and of another rule, and return its path."""
    import tomli_w

    rules = load_rules([RULE, "torch/quick-gelu"])[0]
    entries = [pin_rule(rule, {}) for rule in rules]
    content = {
        **dict.fromkeys(("regraft", "torch", "device", "machine"), "x"),
        "target": "a:b",
        "goal": "fastest",
        "mode": "inference",
        "rule": [{"id": entry.id, "sha256": entry.sha256} for entry in entries],
    }
    path = folder / "regraft.lock.toml"
    path.write_text(HEAD + tomli_w.dumps(content))
    return path


@pytest.mark.parametrize("by_lock", [False, True])
def test_a_diff_leaves_the_place_alone(write: Write, tmp_path: Path, by_lock: bool) -> None:
    path = write("m.py", CODE)
    chosen = ("--lock", locked(tmp_path)) if by_lock else ("--select", f"{RULE},torch/quick-gelu")
    result = regraft("check", "--diff", path, *chosen)
    assert result.returncode == 1
    assert "+        return quick_gelu(scores)" in result.stdout and KERNEL not in result.stdout
    assert KERNEL in regraft("check", "--diff", "--unsafe", path, *chosen).stdout


@pytest.mark.parametrize("by_lock", [False, True])
@pytest.mark.parametrize("proof", ["--verify", "--no-verify"])
def test_a_fix_leaves_the_place_alone_and_lists_it(
    write: Write, tmp_path: Path, by_lock: bool, proof: str
) -> None:
    if proof == "--verify":
        pytest.importorskip("torch")
    path = write("m.py", CODE)
    chosen = ("--lock", locked(tmp_path)) if by_lock else ("--select", f"{RULE},torch/quick-gelu")
    result = regraft("check", "--fix", proof, path, *chosen)
    assert result.returncode == 0  # a withheld place alone does not fail
    assert f"withheld: {REASON}" in result.stdout
    assert "2 findings (1 fixable, 1 withheld), 1 fixed, 0 not fixed" in result.stdout
    text = path.read_text()
    assert "return quick_gelu(scores)" in text and KERNEL not in text
    assert regraft("check", "--fix", "--no-verify", "--unsafe", path, *chosen).returncode == 0
    assert KERNEL in path.read_text()


@pytest.mark.slow
def test_verify_runs_what_fix_would_write(write: Write) -> None:
    pytest.importorskip("torch")
    path = write("m.py", CODE)
    chosen = ("--select", f"{RULE},torch/quick-gelu")
    result = regraft("verify", path, *chosen)
    assert "Weights" in result.stdout and "Head" not in result.stdout
    assert "Head" in regraft("verify", "--unsafe", path, *chosen).stdout
    assert "--unsafe are for one file" in regraft("verify", path, path, "--unsafe").stderr


def test_the_report_says_what_is_withheld(write: Write) -> None:
    path = write("m.py", CODE)
    for arguments in ((), ("--jobs", 2)):  # the second from another process, and from the cache
        report = json.loads(
            regraft_process(
                "check", path, "--select", RULE, "--output-format", "json", *arguments
            ).stdout
        )
        (finding,) = report["findings"]
        assert (finding["status"], finding["reason"]) == ("withheld", REASON)
    report = json.loads(
        regraft("check", path, "--select", RULE, "--unsafe", "--output-format", "json").stdout
    )
    assert report["findings"][0]["status"] == "fixable"


def test_no_round_rewrites_the_place() -> None:
    source = parse("m.py", CODE.encode())
    assert isinstance(source, SourceFile)
    rules = compile_rules(load_rules([RULE, "torch/quick-gelu"])[0])[0]
    for chosen, expected in ((rules, True), (withhold_contract_rules(rules, "--unsafe"), False)):
        rewritten, applied = rewrite_file(check_source(source, chosen), chosen)
        assert (KERNEL.encode() in rewritten) is expected
        assert {finding.rule.id for finding in applied} == {
            "torch/quick-gelu",
            *([RULE] if expected else []),
        }


def test_cached_reports_know_what_was_withheld(write: Write, tmp_path: Path) -> None:
    path = write("m.py", CODE)
    source = parse(str(path), path.read_bytes())
    assert isinstance(source, SourceFile)
    rules = compile_rules(load_rules([RULE])[0])[0]
    Cache(tmp_path / "cache", rules).store(check_source(source, rules))
    assert Cache(tmp_path / "cache", rules).load(path) is not None
    assert Cache(tmp_path / "cache", withhold_contract_rules(rules, "--unsafe")).load(path) is None
