"""Test the pieces of the benchmarks, on small files and on one real model."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from regraft.rules import load_rules
from regraft.scanning import CompiledRule, check_file, compile_rules
from regraft.source.text import Edit, SourceFile, Span, parse
from regraft.structure import Module

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "adopter199"
Write = Callable[[str, str], Path]

MODEL = """
    import torch
    from torch import nn


    def weights(scores):
        return torch.softmax(scores, dim=-1)


    class Block(nn.Module):
        def forward(self, scores, other):
            if other is not None:
                return nn.functional.softmax(other, dim=-1)
            return weights(scores)


    class Plain(nn.Module):
        def forward(self, scores):
            return nn.functional.softmax(scores, dim=-1)


    class Output(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(8, 8)

        def forward(self, hidden):
            hidden = self.dense(hidden)
            return activated(hidden)


    def activated(hidden):
        return nn.functional.gelu(hidden)
"""


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the modules of the benchmark by name."""
    monkeypatch.syspath_prepend(str(BENCHMARK))
    names = ("measure", "packages", "run", "sites", "soundness", "textual")
    return SimpleNamespace(**{name: importlib.import_module(name) for name in names})


@pytest.fixture(scope="module")
def rules() -> tuple[CompiledRule, ...]:
    """Return the compiled rules of the pack adopter."""
    return compile_rules(load_rules(["adopter"])[0])[0]


def test_the_command_on_a_package(
    benchmark: SimpleNamespace,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = write("package/modeling_small.py", MODEL).parent
    write("package/setup.py", "print()\n")
    write("package/broken.py", "import torch\ndef\n")
    sites = [
        {
            "rule": "softmax",
            "model": "small",
            "line": 7,
            "end": 7,
            "listed": "paper",
            "confidence": "high",
        },
        {
            "rule": "softmax",
            "model": "small",
            "line": 1,
            "end": 2,
            "listed": "own",
            "confidence": "high",
        },
        {
            "rule": "softmax",
            "model": "small",
            "line": 19,
            "end": 19,
            "listed": "own",
            "confidence": "low",
        },
    ]
    (tmp_path / "sites.json").write_text(json.dumps(sites))
    package = benchmark.packages.select("small==1", directory)
    monkeypatch.setattr(benchmark.run, "fetch", lambda requirement: package)
    # one of the files does not parse
    monkeypatch.setattr(benchmark.measure, "parse_seconds", lambda files: 1.0)
    arguments = ["--sites", str(tmp_path / "sites.json"), "--misses", "--extras", "--skipped"]

    assert benchmark.run.main([*arguments, "--json", str(tmp_path / "findings.json")]) == 0
    output = capsys.readouterr().out
    assert "skipped setup.py: does not mention torch" in output
    assert "errors: 1\n  broken.py:2: syntax error" in output
    assert "sites, all: 1 of 2 found, recall 0.5000" in output
    assert "miss   softmax            small:1-2" in output
    assert "extra  softmax            modeling_small.py:13 Block.forward" in output
    assert "modeling_small.py:19 " not in output  # a site that does not count, but no extra either
    assert "rewritten: 1 of 1 files" in output
    findings = json.loads((tmp_path / "findings.json").read_text())["findings"]
    assert sorted(finding["rule"] for finding in findings) == ["adopter/biased-gelu"] + 3 * [
        "adopter/softmax"
    ]


def test_the_ablations(
    benchmark: SimpleNamespace, write: Write, rules: tuple[CompiledRule, ...]
) -> None:
    files = [write("model.py", MODEL)]

    def list_places(**options: bool) -> list[tuple[str, int]]:
        scan = benchmark.run.scanned(files, rules, **options)
        return sorted((place.rule, place.lines[-1]) for place in scan.places)

    everything = list_places()
    assert {place for place in everything if place[0] == "softmax"} == {
        ("softmax", 7),
        ("softmax", 13),
        ("softmax", 19),
    }
    assert [place for place in everything if place[0] == "biased-gelu"]
    assert list_places(inlines=False) == [place for place in everything if place[0] == "softmax"]
    assert list_places(paths=False) == [place for place in everything if place != ("softmax", 13)]


def test_a_real_file_is_sound(
    benchmark: SimpleNamespace, transformers: Path, rules: tuple[CompiledRule, ...], tmp_path: Path
) -> None:
    path = tmp_path / "modeling_bert.py"
    shutil.copy(transformers / "models" / "bert" / "modeling_bert.py", path)
    assert check_file(path, rules).findings
    assert benchmark.soundness.problems(path, rules) == ()
    parts = benchmark.measure.parts([path], rules)
    assert parts.structure > 0 and parts.matching.keys() == {rule.rule.id for rule in rules}


def test_a_changed_byte_outside_the_edits_is_noticed(benchmark: SimpleNamespace) -> None:
    edits = (Edit(Span(2, 4), "XYZ"), Edit(Span(6, 6), "!"))
    assert benchmark.soundness.same_outside(b"abcdefgh", b"abXYZef!gh", edits)
    assert not benchmark.soundness.same_outside(b"abcdefgh", b"abXYZeF!gh", edits)
    assert not benchmark.soundness.same_outside(b"abcdefgh", b"abXYZef!g", edits)


def test_every_pattern_belongs_to_a_rule(
    benchmark: SimpleNamespace, rules: tuple[CompiledRule, ...]
) -> None:
    patterns = json.loads(benchmark.textual.PATTERNS.read_text())
    assert patterns.keys() <= {rule.rule.id.removeprefix("adopter/") for rule in rules}


def test_patterns_against_findings(
    benchmark: SimpleNamespace, write: Write, rules: tuple[CompiledRule, ...]
) -> None:
    path = write("model.py", MODEL)
    matches = [{"rule": "softmax", "file": str(path), "lines": [line]} for line in (19, 50)]
    columns = benchmark.run.against_text(
        benchmark.run.scanned([path], rules), {"matches": matches, "seconds": {}}, rules
    )
    assert [column["softmax"] for _, column in columns] == ["2", "1", "1", "0.00"]


def test_patterns_in_their_environment(benchmark: SimpleNamespace, write: Write) -> None:
    if not benchmark.textual.ready():
        pytest.skip("ast-grep's environment is made by the benchmark's --text")
    results = benchmark.textual.search([write("model.py", MODEL)])
    assert [(match["rule"], match["lines"]) for match in results["matches"]] == [
        ("softmax", [13]),
        ("softmax", [19]),
    ]


def test_branches_in_a_row_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    linear_time = importlib.import_module("linear_time")
    counts = []
    for branches in (25, 50, 100):
        source = parse("m.py", linear_time.program(branches).encode())
        assert isinstance(source, SourceFile)
        body = next(
            body
            for structure in Module(source).structures()
            for body in structure.bodies
            if body.name == "forward"
        )
        counts.append(len(body.nodes))
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0]), (
        "the structure grows with the length of the code"
    )
    assert linear_time.seconds(10) > 0  # every place is found
