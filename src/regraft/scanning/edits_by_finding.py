"""The edits of single findings: what each one by itself changes in its file."""

from __future__ import annotations

from collections.abc import Mapping

from regraft.scanning.findings import FileReport, Finding
from regraft.source.imports import Imports
from regraft.source.text import Edit
from regraft.structure import Module

Key = tuple[str, tuple[int, int], tuple[int, int]]


def key_of(finding: Finding) -> Key:
    """Return what tells a finding from the others of its file: its rule and its place."""
    return finding.rule.id, finding.start, finding.end


def edits_of(report: FileReport) -> Mapping[Key, tuple[Edit, ...]]:
    """Return the edits of each finding with a patch, with those of the imports that it needs, as
    if it were the only one; findings of one statement overlap."""
    source = report.source
    if source is None or not any(finding.patch for finding in report.findings):
        return {}
    names = Module(source).names
    edits: dict[Key, tuple[Edit, ...]] = {}
    for finding in report.findings:
        if finding.patch is not None:
            imports = Imports(source, names, "regraft.ops")
            for qualified in finding.patch.uses:
                imports.spell(qualified)
            own_edits = {*finding.patch.edits, *imports.edits(set(finding.patch.uses))}
            edits[key_of(finding)] = tuple(sorted(own_edits))
    return edits
