"""The project that a file belongs to: its settings, the rules that hold there, and the findings
that it accepts, as `regraft check` reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from regraft.configuration import ConfigurationError, Settings, settings_for
from regraft.configuration.reading import OWN_NAME, SHARED_NAME
from regraft.configuration.settings import TargetName
from regraft.report.counted_nouns import count
from regraft.rules import BUILT_IN
from regraft.rules.loading import rule_paths
from regraft.rules.lock_file import NAME, LockError, nearest
from regraft.rules.worth import chosen_target
from regraft.scanning import CompiledRule, FileReport, FileSearch, Finding, with_worth
from regraft.scanning.baseline import Baseline, BaselineError, read
from regraft.scanning.ignore_comments import ignore_warnings
from regraft.scanning.rule_selection import (
    only_rules,
    rules_for,
    rules_of_lock,
    selected_rules,
    without_gainless,
)
from regraft.source.line_length import forget_line_lengths
from regraft.source.text import SourceError

Stamp = tuple[tuple[str, int, int], ...]  # path, time of change and size of each file
_MOST_PROJECTS = 16
_UNSAFE_REMEDY = "`unsafe = true` in the configuration"
_WORTH_REMEDY = "`select` in the configuration"


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """The choice of rules that a caller states above the configuration file.

    select, ignore  selectors of rules; None leaves those of the file
    target          the device for which rules have to pay; None for that of the file
    applies_all     also apply rules that do not pay there
    unsafe          also apply rules that change what callers see
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    target: TargetName | None = None
    applies_all: bool = False
    unsafe: bool = False

    def applied_to(self, settings: Settings) -> Settings:
        """Return the settings with this choice above them."""
        chosen = settings.selecting(self.select, self.ignore)
        return replace(
            chosen,
            target=self.target or chosen.target,
            applies_all=self.applies_all or chosen.applies_all,
            unsafe=self.unsafe or chosen.unsafe,
        )

    @property
    def excludes_lock(self) -> bool:
        """Whether rules are chosen here, so that no lock file is read."""
        return self.select is not None or bool(self.ignore) or self.applies_all


@dataclass(frozen=True, slots=True)
class Project:
    """What holds for the files of a folder.

    rules     the rules that are applied, before `per-file-ignores`
    errors    what is wrong with the configuration, the rules, the lock file or the baseline; then
              nothing is scanned
    baseline  the accepted findings; None without a file of them
    lock      the lock file that chose the rules; None where the settings did
    choice    what the caller chose above the configuration
    stamp     the state of the files that all this was read from
    """

    folder: Path
    settings: Settings
    rules: tuple[CompiledRule, ...] = ()
    errors: tuple[SourceError, ...] = ()
    baseline: Baseline | None = None
    lock: Path | None = None
    choice: RuleChoice = RuleChoice()
    stamp: Stamp = ()

    def rules_in(self, file: Path) -> tuple[CompiledRule, ...]:
        """Return the rules that hold in a file."""
        return rules_for(file, self.rules, self.settings)

    def reads(self, file: Path) -> bool:
        """Return whether a check of the folder reads a file."""
        search = FileSearch(self.settings.exclude, self.settings.respect_gitignore)
        return search.comes_to(file, self.folder)

    def accepts(self, finding: Finding) -> bool:
        """Return whether the baseline accepts a finding."""
        return self.baseline is not None and self.baseline.accepts(finding.file, finding)

    def shown(self, report: FileReport, rules: Iterable[CompiledRule]) -> FileReport:
        """Return the report of a file with the findings that a check shows: none that gain nothing,
        and none that the baseline accepts."""
        chosen = tuple(rules)
        visible, _ = without_gainless(only_rules(report, chosen), chosen)
        if self.baseline is None:
            return visible
        unused = Baseline(self.baseline.path, self.baseline.entries)  # it is used up by findings
        return unused.without_accepted(visible)[0]

    def complaints(
        self, report: FileReport, rules: Iterable[CompiledRule]
    ) -> tuple[SourceError, ...]:
        """Return what is wrong with the comments of a file that ignore findings."""
        if not report.ignores:
            return ()
        is_whole = self.choice.select is None and not self.choice.ignore
        return tuple(
            ignore_warnings(
                report.file,
                report.ignores,
                [rule.rule.id for rule in rules],
                rule_paths((BUILT_IN, *self.settings.rules)),
                is_whole,
            )
        )


def project_of(file: Path, folder: Path, choice: RuleChoice = RuleChoice()) -> Project:
    """Return the project of a file, as a check that runs in a folder reads it."""
    stamp = _stamp(file, folder, Settings(), None)
    forget_line_lengths()
    try:
        settings = choice.applied_to(settings_for(file))
    except ConfigurationError as error:
        return Project(folder, Settings(), errors=error.errors, choice=choice, stamp=stamp)
    lock = _lock_of(settings, folder, choice)
    rules, errors = _rules_of(settings, lock)
    baseline: Baseline | None = None
    try:
        baseline = read(settings.baseline) if settings.baseline is not None else None
    except BaselineError as error:
        errors = (*errors, SourceError(str(settings.baseline), 0, 0, str(error)))
    stamp = _stamp(file, folder, settings, lock)
    # other rules than the user means would be applied beside an error
    return Project(folder, settings, () if errors else rules, errors, baseline, lock, choice, stamp)


class Projects:
    """The projects of the files that a server works on; each is read again when one of the files
    changes that it was read from."""

    def __init__(self) -> None:
        self._projects: dict[tuple[Path, Stamp], Project] = {}

    def project_of(self, file: Path, folder: Path) -> Project:
        """Return the project of a file, as a check that runs in a folder reads it."""
        key = folder, _stamp(file, folder, Settings(), None)
        project = self._projects.get(key)
        if project is None or not _is_current(project, file):
            if len(self._projects) >= _MOST_PROJECTS:
                self._projects.clear()
            project = self._projects[key] = project_of(file, folder)
        return project


def _is_current(project: Project, file: Path) -> bool:
    """Return whether nothing has changed in the files from which the project of a file was read."""
    return project.stamp == _stamp(file, project.folder, project.settings, project.lock)


def _lock_of(settings: Settings, folder: Path, choice: RuleChoice) -> Path | None:
    """Return the lock file that chooses the rules; None where the settings do."""
    chosen_by_file = settings.select is not None or bool(settings.ignore)
    return None if choice.excludes_lock or chosen_by_file else nearest(folder)


def _rules_of(
    settings: Settings, lock: Path | None
) -> tuple[tuple[CompiledRule, ...], tuple[SourceError, ...]]:
    """Return the rules of the lock file or of the settings, and what is wrong with them."""
    if lock is None:
        rules, errors = selected_rules(
            settings, unsafe_remedy=_UNSAFE_REMEDY, worth_remedy=_WORTH_REMEDY
        )
        return rules, tuple(errors)
    remedy = "" if settings.unsafe else _UNSAFE_REMEDY
    try:
        _, locked, problems = rules_of_lock(lock, settings.rules, remedy)
    except LockError as error:
        return (), (SourceError(str(lock), 0, 0, str(error)),)
    judged = with_worth(locked, chosen_target(settings.target))
    return judged, tuple(problem.error for problem in problems)


def _stamp(file: Path, folder: Path, settings: Settings, lock: Path | None) -> Stamp:
    """Return the state of the files that decide what holds for a file."""
    return tuple(filter(None, map(_state, _deciding_files(file, folder, settings, lock))))


def _deciding_files(
    file: Path, folder: Path, settings: Settings, lock: Path | None
) -> Iterator[Path]:
    """Yield the files, of which most do not exist, that decide what holds for a file."""
    for parent in file.parents:
        yield parent / OWN_NAME
        yield parent / SHARED_NAME
    yield folder / NAME
    yield from filter(None, (settings.baseline, lock))
    for directory in settings.rules:
        yield from sorted(directory.glob("*/*"))


def _state(path: Path) -> tuple[str, int, int] | None:
    """Return a file's path, time of change and size, without them where it cannot be read; None
    where it does not exist."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return str(path), 0, 0
    return str(path), status.st_mtime_ns, status.st_size


def error_summary(errors: tuple[SourceError, ...]) -> str:
    """Return one sentence for the errors of a project: the first, and the number of the others."""
    first = str(errors[0])
    return first if len(errors) == 1 else f"{first} (and {count(len(errors) - 1, 'more error')})"
