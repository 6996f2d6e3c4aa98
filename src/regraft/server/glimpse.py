"""A quick look at the definition that somebody types in: its findings come at once, those of the
rest of the file stay as they were until the whole file is analysed."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol import types

from regraft.scanning import check_source
from regraft.server.analysis import Analysis, analysis_of_report, encoded
from regraft.server.diagnostics import diagnostics_of, moved
from regraft.source.changed_definition import changed_definition
from regraft.source.text import SourceFile, parse


@dataclass(frozen=True, slots=True)
class Glimpse:
    """The diagnostics of a text after a look at one definition."""

    diagnostics: list[types.Diagnostic]
    text: bytes


def glimpse_of(text: str, previous: Analysis) -> Glimpse | None:
    """Return the diagnostics of a text that differs within one definition from that of an analysis;
    None where more differs, or where the whole file has to be looked at.

    What other definitions show because of this one is as it was before the change.
    """
    before, project = previous.source, previous.project
    if before is None or previous.is_broken or project.baseline is not None:
        return None
    after = parse(previous.scan.file, encoded(text))
    if not isinstance(after, SourceFile):
        return None
    definition = changed_definition(before, after)
    if definition is None:
        return None
    old, new = definition
    scan = check_source(after, previous.rules, lines=new)
    if scan.errors:
        return None
    look = analysis_of_report(text, project, previous.rules, scan, previous.positions.encoding)
    outside = [
        moved(diagnostic, new[1] - old[1]) if _line(diagnostic) > old[1] else diagnostic
        for diagnostic in diagnostics_of(previous)
        if not old[0] <= _line(diagnostic) <= old[1]
    ]
    within = [shown for shown in diagnostics_of(look) if new[0] <= _line(shown) <= new[1]]
    diagnostics = sorted((*outside, *within), key=lambda shown: shown.range.start)
    return Glimpse(diagnostics, look.positions.text)


def _line(diagnostic: types.Diagnostic) -> int:
    """Return the line, from 1, on which a diagnostic starts."""
    return diagnostic.range.start.line + 1
