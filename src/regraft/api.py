"""The functions that programs call: check, verify and bench, with the results they return.

`optimize` and `split` stand in `regraft.live` and `regraft.splitting`. Nothing here imports torch
before it runs a model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from regraft.configuration import ConfigurationError, Settings, group_by_settings, read
from regraft.configuration.settings import TargetName, check_time_limit
from regraft.scanning import (
    CompiledRule,
    FileReport,
    FileSearch,
    Finding,
    RuleDefect,
    check_file,
    check_text,
    failed,
    rewrite_file,
)
from regraft.scanning.rule_selection import only_rules, rules_for, selected_rules, without_gainless
from regraft.source.text import SourceError
from regraft.verification.types import Contract, Effort, Verdict

if TYPE_CHECKING:
    import torch

    from regraft.benchmarking import Result

PathName = str | os.PathLike[str]
Mode = Literal["inference", "training", "both"]
Goal = Literal["fastest", "smallest"]
Values = TypeVar("Values", bound=PathName)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of `check`.

    findings  the places where a rule applies, file by file, each with its rule, its place, what it
              is worth, and the reason where it is not rewritten
    errors    the files that could not be read, or that rules made a text of that does not parse,
              each with its place
    gainless  the number of places that are left out because they gain nothing on the target
    rewrites  the new text of each file in which something can be rewritten, by the file's name;
              nothing is written
    """

    findings: tuple[Finding, ...]
    errors: tuple[SourceError, ...]
    gainless: int
    rewrites: Mapping[str, bytes]


def check(
    paths: PathName | Sequence[PathName] = (),
    *,
    source: str | bytes | None = None,
    filename: str = "<source>",
    select: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] = (),
    rules: PathName | Sequence[PathName] = (),
    target: TargetName | None = None,
    apply_all: bool = False,
    unsafe: bool = False,
    configuration: PathName | bool = True,
) -> CheckResult:
    """Find the places where rules apply in files and folders, or in a text, and return them with
    the rewritten files.

    `source` is the text of a file instead of `paths`, and `filename` its name in findings. The
    other parameters are those of `regraft check`: `select` and `ignore` are selectors of rules (a
    pack, `pack/rule` or a rule), one or several, `rules` directories with packs, `target` is
    "auto", "cpu" or "cuda", `apply_all` applies rules that do not pay there, too, and `unsafe`
    those that change what callers see. `configuration`: True for the configuration file that is
    nearest to each path, False for none, else its path. What is rewritten is not proved: see
    `verify`.

    Raises ValueError where not exactly one of `paths` and `source` is given, for rules that do not
    exist or do not load, and for a wrong configuration file.
    """
    names = _several(paths)
    if bool(names) == (source is not None):
        raise ValueError("check takes paths or the text `source`, one of the two")
    where = (Path(filename),) if source is not None else tuple(map(Path, names))
    results: list[CheckResult] = []
    for settings, group in _groups(where, configuration):
        stated = _stated(settings, select, ignore, rules, target, apply_all, unsafe)
        chosen = _rules_of(stated, worth_remedy="apply_all=True or select")
        reports = (
            [check_text(filename, _encoded(source), chosen)]
            if source is not None
            else _check_files(group, stated, chosen)
        )
        results += (
            _result_of(report, rules_for(Path(report.file), chosen, stated)) for report in reports
        )
    return CheckResult(
        tuple(finding for result in results for finding in result.findings),
        tuple(error for result in results for error in result.errors),
        sum(result.gainless for result in results),
        {file: text for result in results for file, text in result.rewrites.items()},
    )


def _several(values: Values | Sequence[Values]) -> tuple[Values, ...]:
    """Return the strings or paths of a sequence, or a single one, as a tuple."""
    if isinstance(values, str | os.PathLike):
        return (values,)
    return tuple(values)


def _check_word(name: str, value: str, words: Sequence[str]) -> None:
    """Raise ValueError where the value of a parameter is none of some words."""
    if value not in words:
        raise ValueError(f"{name} is {value!r}; there are {', '.join(words)}")


def _existing_directories(rules: PathName | Sequence[PathName]) -> tuple[Path, ...]:
    """Return the directories of rules; raise ValueError for a path that is none."""
    directories = tuple(map(Path, _several(rules)))
    for directory in directories:
        if not directory.is_dir():
            raise ValueError(f"{directory}: there is no such directory with rules")
    return directories


def _groups(
    paths: Sequence[Path], configuration: PathName | bool
) -> list[tuple[Settings, list[Path]]]:
    """Return the paths by the settings that hold for them."""
    if configuration is True:
        return group_by_settings(paths)
    if configuration is False:
        return [(Settings(), list(paths))]
    settings = read(Path(configuration))
    if settings is None:
        raise ConfigurationError(
            [SourceError(str(configuration), 0, 0, "the file has no [tool.regraft]")]
        )
    return [(settings, list(paths))]


def _stated(
    settings: Settings,
    select: str | Sequence[str] | None,
    ignore: str | Sequence[str],
    rules: PathName | Sequence[PathName],
    target: TargetName | None,
    apply_all: bool,
    unsafe: bool,
) -> Settings:
    """Return the settings with what the caller states in their place; raise ValueError for a target
    or a directory of rules that does not exist."""
    if target is not None:
        _check_word("target", target, get_args(TargetName))
    settings = settings.selecting(
        None if select is None else _several(select), _several(ignore) or None
    )
    return replace(
        settings,
        rules=(*settings.rules, *_existing_directories(rules)),
        target=target or settings.target,
        applies_all=apply_all or settings.applies_all,
        unsafe=unsafe or settings.unsafe,
    )


def _rules_of(settings: Settings, worth_remedy: str) -> tuple[CompiledRule, ...]:
    """Return the rules that settings select, as `selected_rules` does; raise ValueError where one
    of them is wrong."""
    rules, problems = selected_rules(
        settings, unsafe_remedy="unsafe=True", worth_remedy=worth_remedy
    )
    if problems:
        raise ValueError("; ".join(map(str, problems)))
    return rules


def _encoded(source: str | bytes) -> bytes:
    """Return a text as bytes, also where no encoding has it: the parser refuses that."""
    return source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source


def _check_files(
    paths: Sequence[Path], settings: Settings, rules: Sequence[CompiledRule]
) -> list[FileReport]:
    """Return the reports of the Python files under the paths."""
    search = FileSearch(settings.exclude, settings.respect_gitignore)
    return [
        failed(file, is_file=False) if isinstance(file, SourceError) else check_file(file, rules)
        for file in search.python_files(paths)
    ]


def _result_of(report: FileReport, rules: Sequence[CompiledRule]) -> CheckResult:
    """Return the result of a file, for the rules that hold in it."""
    shown, gainless = without_gainless(only_rules(report, rules), rules)
    rewrites = {}
    errors = shown.errors
    if any(finding.fixable for finding in shown.findings):
        try:
            rewrites[report.file] = rewrite_file(shown, rules)[0]
        except RuleDefect as defect:
            errors = (*errors, defect.error)
    return CheckResult(shown.findings, errors, len(gainless), rewrites)


def verify(
    original: PathName,
    changed: PathName | bytes,
    *,
    driver: str | None = None,
    effort: Effort = "default",
    contract: Contract = "strict",
    keep: str | Collection[str] = (),
    time_limit: float = 300.0,
    python: PathName = sys.executable,
) -> tuple[Verdict, ...]:
    """Run two versions of a file side by side in a child process, and return a verdict for each
    changed definition.

    `changed` is a file, or the text of one as bytes; both stand for the place of `original`. The
    other parameters are those of `regraft verify`: `driver` is `module:function` or
    `file.py:function`, which returns `(model, calls)` when it is called with either version's
    module; `effort` is "low", "default" or "high"; `contract` is "strict", or "results" for
    outputs, gradients and checkpoints alone; `keep` names what a change must not lose ("script",
    "fx", "order"); `time_limit` is in seconds of processor time; `python` is the interpreter, which
    has torch.

    Raises ValueError for another word in a parameter or a time limit that is none, OSError where
    `changed` cannot be read, and VerifyError for a file that is missing or does not compile and for
    an interpreter without torch. What the code under test does (a crash, a hang) is a verdict.
    """
    from regraft.verification.parent_process import verify as run_verification

    check_time_limit(time_limit)
    text = changed if isinstance(changed, bytes) else Path(changed).read_bytes()
    _check_word("effort", effort, get_args(Effort))
    _check_word("contract", contract, get_args(Contract))
    return run_verification(
        Path(original),
        text,
        driver=driver,
        effort=effort,
        contract=contract,
        keep=(keep,) if isinstance(keep, str) else keep,
        time_limit=time_limit,
        python=os.fspath(python),
    )


def bench(
    model: torch.nn.Module,
    inputs: Any,
    *,
    select: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    rules: PathName | Sequence[PathName] = (),
    mode: Mode = "inference",
    rounds: int = 20,
    compile: bool = False,
    liger: bool = False,
    verify: bool = True,
    unsafe: bool = False,
    goal: Goal | None = None,
    limit: str | None = None,
) -> Result:
    """Measure what each rule is worth for a model on this machine, and return rows of times and
    peak memory, in pairs.

    `inputs` are a call, or a list of calls: a call is a dictionary of keyword arguments, a tuple of
    positional ones, or a single one. `select`, `ignore` and `rules` choose rules as in `check`;
    without `select` they are those that need only PyTorch. The other parameters are those of
    `regraft bench`; `limit` is the limit of the goal: peak memory for "fastest" ("2GiB", "90%"),
    the time of a step for "smallest" ("80ms", "110%"). Times are in seconds, memory in bytes.

    Raises ValueError for rules that do not exist or do not load and for a wrong mode, goal, limit
    or number of rounds, BenchError where the model cannot be run, copied or trained, VerifyError
    where nothing can be verified.
    """
    from regraft import benchmarking

    _check_measurement(mode, rounds, goal, limit)
    settings = Settings(
        select=_several(select) or None,
        ignore=_several(ignore),
        rules=_existing_directories(rules),
        unsafe=unsafe,
        applies_all=True,
    )
    chosen = _rules_of(settings, worth_remedy="")
    calls = benchmarking.calls_of(inputs)
    if not calls:
        raise ValueError("the list of inputs is empty")
    options = benchmarking.Options(
        modes=("inference", "training") if mode == "both" else (mode,),
        rounds=rounds,
        compile=compile,
        liger=liger,
        verify=verify,
        goal=None if goal is None else benchmarking.goal_of(goal, limit),
    )
    return benchmarking.bench(model, calls, chosen, options)


def _check_measurement(mode: str, rounds: object, goal: str | None, limit: str | None) -> None:
    """Raise ValueError for parameters of `bench` that make no sense, or not together."""
    from regraft.benchmarking import FEWEST

    _check_word("mode", mode, get_args(Mode))
    if not isinstance(rounds, int) or rounds < FEWEST:
        raise ValueError(f"rounds is {rounds!r}; an interval needs at least {FEWEST}")
    if goal is None and limit is not None:
        raise ValueError("a limit goes with a goal")
    if goal is not None and mode == "both":
        raise ValueError("a goal chooses for one mode")
