"""`regraft.optimize(model)`: rewrite the methods of a live model, and undo it."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from regraft.configuration import Settings as Project
from regraft.configuration.settings import check_time_limit
from regraft.live.changed_definitions import Name
from regraft.live.installation import install
from regraft.live.optimization_result import Optimization, Unchanged
from regraft.live.rewritten_classes import restore
from regraft.live.source_rewriting import Settings, model_files
from regraft.live.stored_model import Example, as_calls
from regraft.report.terminal import Progress, Watch, ignore, is_terminal
from regraft.rules import load_rules
from regraft.rules.lock_file import locked_rules, nearest, notes, read
from regraft.rules.worth import Target
from regraft.scanning import CompiledRule, compile_rules, with_worth, withhold_contract_rules

_NO_PROJECT = Project()


class NothingOptimized(UserWarning):
    """The warning that no rule changed anything in a model; the message says why."""


class DifferentConditions(UserWarning):
    """The warning that a lock file was measured with other versions or on another device."""


def optimize(
    model: Any,
    example_inputs: Any = None,
    *,
    packs: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    lock: str | Path | bool | None = None,
    verify: bool = True,
    unsafe: bool = False,
    time_limit: float = 300.0,
    progress: bool | None = None,
) -> Optimization:
    """Rewrite the methods of a model's classes by the rules, in memory, for this model only.

    The modules stay the same objects with the same parameters, buffers and hooks; their files are
    not touched. With `verify` a method is only rewritten if running its file in both versions, in a
    child process, proves it. The process runs a copy of this model on `example_inputs`, a call or a
    list of calls (a call is a tuple of positional arguments, a dictionary of keywords or a single
    tensor), and on inputs made of them; the proof is for this model. Without `example_inputs` it
    builds small models of the file on its own. `packs` and `select` choose rules as on the
    command line, whatever these gain; `lock` names a file that `regraft bench --select` wrote.
    Without any of the three the rules are those that need nothing but PyTorch and are measured to
    pay on the model's device (`docs/bench.md`); without `ignore`, too, those of
    `regraft.lock.toml` in the working directory or its project take their place, if there is one
    (`lock=False`: never). `ignore` leaves rules out, and does not go with a lock file. `unsafe`
    adds rules that change what callers see. `time_limit` is in seconds of processor time for each
    file. With `progress` stderr says meanwhile which definition is run; None for where stderr is a
    terminal.

    A copy of the model (`copy.copy`, `copy.deepcopy`) is rewritten as the model is. A pickle of it
    (`pickle.dumps`, `torch.save(model)`) holds the original classes, so it loads where Regraft is
    not installed; loading it warns that nothing of it is rewritten: call `optimize` on the loaded
    model again. A `state_dict` is that of the original.

    Raises ValueError for rules that do not exist or do not load, for a lock that does not fit them,
    for a time limit that is none, and for a model that cannot be pickled for the process;
    VerifyError where nothing can be verified (no PyTorch for the child process). Warns with
    NothingOptimized if nothing was changed, and with DifferentConditions if a lock was measured
    with other versions or on another device.
    """
    check_time_limit(time_limit)
    chosen = [*packs, *select, *ignore]
    if chosen and lock not in (None, False):
        raise ValueError(
            "rules are chosen by a lock file or by packs, select and ignore, not by both"
        )
    lock_path = _find_lock_file(lock, bool(chosen))
    rules = _load_rules([*packs, *select], ignore, lock_path, model)
    allowed = rules if unsafe else withhold_contract_rules(rules, "unsafe=True")
    calls = as_calls(example_inputs) if verify and example_inputs is not None else None
    with _progress_of(model, progress) as watch:
        result = rewrite(model, allowed, verify, time_limit=time_limit, calls=calls, watch=watch)
    result.lock = lock_path
    if lock_path is not None:
        result.unchanged += [
            Unchanged(str(lock_path), rule.rule.id, rule.withheld)
            for rule in allowed
            if rule.withheld
        ]
    if not result.changes:
        message = f"nothing in {type(model).__name__} was rewritten: {_reasons(result, rules)}"
        warnings.warn(message, NothingOptimized, stacklevel=2)
    return result


@contextlib.contextmanager
def _progress_of(model: Any, wanted: bool | None) -> Iterator[Watch]:
    """Give, for a `with` block, the function to call with the part of the work that is being done:
    one that shows it on stderr where `wanted` (None: where stderr is a terminal), else one that
    does nothing."""
    if not (is_terminal(sys.stderr) if wanted is None else wanted):
        yield ignore
        return
    with Progress() as progress:
        progress.begin(f"rewriting {type(model).__name__}")
        yield progress.say_part


def _reasons(result: Optimization, rules: Sequence[CompiledRule]) -> str:
    """Return in one line why nothing was rewritten: the first three places that stay as they are
    with their reasons, else that no rule is loaded or matches."""
    places = (f"{place.place}: {place.reason}" for place in result.unchanged[:3])
    reasons = "; ".join(dict.fromkeys(places))
    if reasons:
        return reasons
    if result.lock is not None and not rules:
        return f"{result.lock} holds no rule"
    return "no rule matches its source"


def rewrite(
    model: Any,
    rules: Sequence[CompiledRule],
    verify: bool,
    *,
    time_limit: float = 300.0,
    without: Collection[Name] = (),
    project: Project = _NO_PROJECT,
    calls: list[Any] | None = None,
    watch: Watch = ignore,
) -> Optimization:
    """Restore the model, then rewrite its methods in memory by these rules, and return what changed
    and what did not. No file is touched.

    verify   rewrite only what running both versions of a file in a child process proves
    without  definitions, by file and name, that stay as they are where nothing is verified
    project  the rules that are ignored in files, and what a proof must not lose
    calls    calls of the model for the process that verifies; None where it builds models itself
    watch    is called with what is run
    """
    restore(model)
    result = Optimization(model)
    files = model_files(model)
    with contextlib.nullcontext() if calls is None else Example(model, calls) as example:
        settings = Settings(verify, example, time_limit, without, project, watch)
        for file in files:
            file.rewrite(rules, settings, result)
    install(model, [file for file in files if file.rewritten is not None], result)
    return result


def _find_lock_file(lock: str | Path | bool | None, chosen: bool) -> Path | None:
    """Return the lock file that chooses the rules: `lock` itself, or for None and True that of the
    working directory or project; None for False, where there is none, and where `chosen` says that
    rules are chosen otherwise. Raise ValueError where `lock` is True and there is none."""
    if lock is False or (lock is None and chosen):
        return None
    path = nearest(Path.cwd()) if lock is None or lock is True else Path(lock)
    if path is None and lock is True:
        raise ValueError(
            "there is no regraft.lock.toml in the working directory or beside its pyproject.toml"
        )
    return path


def _load_rules(
    select: Sequence[str], ignore: Sequence[str], path: Path | None, model: Any
) -> tuple[CompiledRule, ...]:
    """Return the compiled rules that the lock file at `path`, or for None `select` and `ignore`,
    choose, without those that decorate definitions; without `select`, those that do not pay on the
    model's device are withheld. Raise ValueError for a rule that does not load. Warn with
    DifferentConditions where the lock file was measured with other versions or on another
    device."""
    if path is None:
        rules, problems = load_rules(select, ignore)
    else:
        lock = read(path)
        rules, problems = locked_rules(path, lock)
        for note in notes(lock, torch.__version__, _device_type(model)):
            warnings.warn(f"{path}: {note}", DifferentConditions, stacklevel=3)
    compiled, compile_problems = compile_rules(rules)
    if path is None:
        target: Target = "cuda" if _device_type(model) == "cuda" else "cpu"
        compiled = with_worth(compiled, target, "" if select else "select=…")
    for problem in (*problems, *compile_problems):
        raise ValueError(f"{problem.path}:{problem.line}: {problem.message}")
    # an existing model can no longer be decorated
    return tuple(rule for rule in compiled if not rule.decorates)


def _device_type(model: Any) -> str:
    """Return the type of device of a model's first parameter; "" for a model without parameters."""
    return next((parameter.device.type for parameter in model.parameters()), "")
