"""Test the findings in modeling files of the pinned transformers against a golden summary of all;
a third of them are read, all where the summary is written.

A change that moves the summary shows the difference; when it is wanted, write the new one with

    REGRAFT_UPDATE_GOLDEN=1 python -m pytest tests/test_ecosystem.py
"""

from __future__ import annotations

import ast
import collections
import importlib.metadata
import json
import os
from pathlib import Path

import pytest

from regraft.rules import load_rules
from regraft.scanning import (
    check_file,
    choose,
    collected_between,
    compile_rules,
    rewrite_file,
)

GOLDEN = Path(__file__).parent / "golden" / "transformers-5.23.0.json"


@pytest.mark.slow
def test_findings_in_real_files(transformers: Path) -> None:
    version = importlib.metadata.version("transformers")
    if f"transformers-{version}" != GOLDEN.stem:
        pytest.skip(f"the golden summary is of another version than {version}")
    rules, _ = compile_rules(load_rules(["adopter", "torch"])[0])
    summary: dict[str, dict[str, int]] = {}
    is_update = bool(os.environ.get("REGRAFT_UPDATE_GOLDEN"))
    names = sorted(path.name for path in (transformers / "models").iterdir())
    names = names if is_update else names[::3]
    paths = [
        path
        for name in names
        for path in sorted((transformers / "models" / name).glob("modeling_*.py"))
    ]
    for path, report in zip(
        paths, collected_between(check_file(path, rules) for path in paths), strict=True
    ):
        assert report.errors == ()
        if not report.findings:
            continue
        # to the end: it parses and a further round finds nothing
        changed, applied = rewrite_file(report, rules)
        ast.parse(changed)
        assert len(applied) >= len(choose(report.findings))  # what overlaps with these may be gone
        counts = collections.Counter(
            finding.rule.id + ("" if finding.patch is not None else " withheld")
            for finding in report.findings
        )
        summary[path.parent.name] = {
            **summary.get(path.parent.name, {}),
            **dict(sorted(counts.items())),
        }
    text = json.dumps(summary, indent=0, sort_keys=True) + "\n"
    if is_update:
        GOLDEN.write_text(text)
    golden = json.loads(GOLDEN.read_text())
    assert {name: golden[name] for name in names if name in golden} == summary
