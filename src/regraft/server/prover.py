"""The process that rewrites a file and proves the rewrite, for a server.

    python -m regraft.server.prover REQUEST

The request is the fields of `Request` as JSON. The process writes lines of JSON: `{"progress":
text}` while it works, then `{"result": {...}}` or `{"error": [...]}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from regraft.fix import Fix, changed_definitions, proved_fix
from regraft.report.json_report import error_as_json, finding_as_json
from regraft.scanning import FileReport, Finding, RuleDefect, check_file, rewrite_file
from regraft.scanning.compiled_rules import are_tested
from regraft.server.project import Project, RuleChoice, project_of
from regraft.source.cache_key import cache_directory
from regraft.source.text import SourceError, diff, write
from regraft.source.undo import UndoLog
from regraft.verification import Verdict, VerifyError, to_json
from regraft.verification.containment import Containment
from regraft.verification.top_level_definitions import definitions_by_name
from regraft.verification.types import Terms
from regraft.verification.verdict_cache import verify_with_cache

Progress = Callable[[str], None]


class RequestError(Exception):
    """The reasons why a request cannot be met, with their places."""

    def __init__(self, *errors: SourceError) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Request:
    """A request to rewrite a file, relative to the working folder.

    definition  the definition that is rewritten; "" for all
    prove       rewrite only what running both versions proves
    unproven    also rewrite what is neither proved nor refuted
    writes      write the file
    driver      the function that builds the model; None for that of the settings
    choice      the choice of rules above the settings
    """

    file: str
    definition: str = ""
    prove: bool = True
    unproven: bool = False
    writes: bool = False
    driver: str | None = None
    choice: RuleChoice = field(default_factory=RuleChoice)

    def to_json(self) -> str:
        """Return the request as the argument of the process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(argument: str) -> Request:
        """Return the request of an argument."""
        fields = json.loads(argument)
        choice = fields.pop("choice")
        for name in ("select", "ignore"):
            choice[name] = None if choice[name] is None else tuple(choice[name])
        return Request(**fields, choice=RuleChoice(**choice))


def answer(request: Request, progress: Progress) -> dict[str, Any]:
    """Return the result of a request: the new text, its diff, the rewritten places and the
    verdicts. Raise RequestError."""
    path = Path(request.file)
    project = project_of(Path(os.path.abspath(path)), Path.cwd(), request.choice)
    if project.errors:
        raise RequestError(*project.errors)
    rules = project.rules_in(path)
    report = check_file(path, rules)
    if report.errors or report.source is None:
        raise RequestError(*report.errors)
    if request.definition not in ("", *definitions_by_name(report.source.tree)):
        message = f"there is no class or function {request.definition} at its top level"
        raise RequestError(SourceError(report.file, 0, 0, message))
    try:
        fix = _fix(request, report, project, progress)
    except RuleDefect as defect:
        raise RequestError(defect.error) from defect
    except VerifyError as error:
        location = error.file or request.file
        raise RequestError(
            SourceError(location, error.line, error.column, error.message)
        ) from error
    if request.writes and fix.data != report.source.data:
        _write(report, fix.data)
    return _result(report, fix, request, project)


def _fix(request: Request, report: FileReport, project: Project, progress: Progress) -> Fix:
    """Return the rewrite of a file, proved where that is asked for."""
    rules = project.rules_in(Path(request.file))

    def is_wanted(finding: Finding) -> bool:
        is_named = request.definition in ("", *changed_definitions(finding))
        return is_named and not project.accepts(finding)

    if not request.prove:
        changed, applied = rewrite_file(report, rules, wanted=is_wanted)
        return Fix(changed, applied, (), ())
    settings = project.settings
    terms = Terms(keep=settings.keep).for_rules(tested=are_tested(rules))

    def verify(changed: bytes, proved: Collection[str]) -> tuple[Verdict, ...]:
        return verify_with_cache(
            Path(request.file),
            changed,
            request.driver or settings.driver_of(Path(request.file)),
            settings.time_limit,
            settings.python or sys.executable,
            cache_directory(),
            replace(terms, confirmed=tuple(sorted(proved))),
            progress,
            Containment(),
        )

    return proved_fix(report, rules, verify, unproven=request.unproven, wanted=is_wanted)


def _write(report: FileReport, changed: bytes) -> None:
    """Write a rewritten file, and store what it was for `regraft undo`; raise RequestError."""
    assert report.source is not None
    undo = UndoLog()
    try:
        undo.add(Path(report.file), report.source.data, changed, report.source.encoding)
    except OSError as problem:
        reason = f"not rewritten, because undo cannot be stored: {problem.strerror or problem}"
        raise RequestError(SourceError(report.file, 0, 0, reason)) from problem
    error = write(report.source, changed)
    if error is not None:
        undo.remove_last()
        raise RequestError(error)


def _result(report: FileReport, fix: Fix, request: Request, project: Project) -> dict[str, Any]:
    """Return what is answered about a rewrite."""
    source = report.source
    assert source is not None
    shown = project.shown(report, project.rules_in(Path(request.file)))
    applied = {id(finding) for finding in fix.applied}
    return {
        "version": 1,
        "file": report.file,
        "text": fix.data.decode(source.encoding),
        "diff": diff(report.file, source.data, fix.data, source.encoding),
        "written": request.writes and fix.data != source.data,
        "fixed": [finding_as_json(finding) for finding in fix.applied],
        "not_fixed": [
            finding_as_json(finding) for finding in shown.findings if id(finding) not in applied
        ],
        "verdicts": to_json(fix.verdicts)["verdicts"],
        "left_out": to_json(fix.left_out)["verdicts"],
    }


def _say(stream: Any, message: Mapping[str, Any]) -> None:
    """Write a message as one line."""
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def main() -> int:
    """Answer the request of the command line, and return the exit status."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything else prints is no answer
    try:
        request = Request.from_json(sys.argv[1])
        result = answer(request, lambda part: _say(output, {"progress": part}))
        _say(output, {"result": result})
    except RequestError as error:
        _say(output, {"error": [error_as_json(reason) for reason in error.errors]})
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
