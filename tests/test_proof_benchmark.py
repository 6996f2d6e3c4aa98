"""Test the proof benchmark: results survive an interrupted run, and the table counts patches by
rule."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "proof199"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module of the results."""
    monkeypatch.syspath_prepend(str(BENCHMARK))
    return importlib.import_module("results")


def test_results_are_read_back_without_half_lines_and_those_of_other_versions(
    results: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    patch = results.Patch("adopter/softmax", "Block", 3, "proved", "", True, True)
    result = results.Result("a.py", (patch,), "", 1.5)
    results.Store(path).add("key", result)
    older = (
        '{"key": "older", "result": {"file": "a.py", "patches": [{"rule": "x"}], "error": "",'
        ' "seconds": 1}}'
    )
    path.write_text(f'{path.read_text()}{older}\n{{"key": "other", "resu')
    store = results.Store(path)
    assert (store.get("key"), store.get("older"), store.get("other")) == (result, None, None)
    store.add("other", result)
    assert results.Store(path).get("other") == result


def test_the_key_depends_on_both_texts(results: ModuleType) -> None:
    keys = {results.key(before, after) for before in (b"a", b"b") for after in (b"a", b"b")}
    assert len(keys) == 4


def test_the_table_counts_by_rule_and_verdict(results: ModuleType) -> None:
    outcomes = [
        ("x", "proved", True, True),
        ("x", "unproven", True, False),
        ("y", "refuted", False, False),
    ]
    patches = tuple(
        results.Patch(rule, "C", 1, status, "", *flags) for rule, status, *flags in outcomes
    )
    table = results.rows([results.Result("a.py", patches, "", 0.0)], ["x", "y"])
    assert table[1:] == [
        ["x", "2", "1", "1", "0", "2", "1"],
        ["y", "1", "0", "0", "1", "0", "0"],
        ["total", "3", "1", "1", "1", "2", "1"],
    ]
