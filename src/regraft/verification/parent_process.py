"""`verify` and the rest of verification in the parent process, which never imports torch: compare
texts, run the child and turn the child's findings into verdicts."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from regraft.source.object_reference import TargetError, check_target
from regraft.verification.child_job import Job, name_of_step
from regraft.verification.child_verdicts import verdict_on
from regraft.verification.containment import Containment
from regraft.verification.definition_changes import find_changes
from regraft.verification.equal_programs import equal_definitions
from regraft.verification.read_file_states import Reads
from regraft.verification.readable_files import readable_paths
from regraft.verification.types import LOSSES, Contract, Effort, Terms, Verdict, VerifyError

MEMORY_LIMIT = 8 * 1024**3


def verify(
    original: Path,
    changed: bytes,
    *,
    driver: str | None = None,
    time_limit: float = 300.0,
    memory_limit: int | None = MEMORY_LIMIT,
    python: str = sys.executable,
    effort: Effort = "default",
    contract: Contract = "strict",
    keep: Collection[str] = (),
    by_rules: bool = False,
    model_classes: Collection[str] = (),
    confirmed: Collection[str] = (),
    watch: Callable[[str], None] | None = None,
    containment: Containment = Containment(),
    on_start: Callable[[], None] | None = None,
    on_end: Callable[[Reads], None] | None = None,
) -> tuple[Verdict, ...]:
    """Run the file `original` and its version `changed` side by side; return one verdict per
    changed definition.

    `driver` is `module:function` (or `file.py:function`): called with either version's module it
    returns `(model, calls)`, each call a tuple of positional arguments or a dictionary of keywords.
    Without it, models are brought to life from configuration classes and constructor signatures.
    `time_limit` is in seconds of work; on the clock, a verification may take four times as long.
    `memory_limit` is in bytes. Both are for the child process run by `python`. With `effort`
    "default" definitions are also compared beyond their first inputs, with "high" every instance in
    every model is. The `contract` "strict" holds a change to everything that a caller can observe,
    hooks on submodules and attributes among it, "results" to outputs, gradients, random numbers and
    checkpoints. An ability that the changed version loses ("script" for TorchScript, "fx" for
    `torch.fx`, "order" for the order of hooks) is evidence; the change is not proved where `keep`
    names the ability or the file's package applies the transform to the definition. `by_rules`: the
    built-in rules made the change; then a class by itself may stand in for classes that only build
    it (docs/decisions/0015-parts-of-models.md). `model_classes`: the change applies to the model of
    `driver` alone, which has these classes of the file; what other classes do with a changed class,
    and other values of its options, do not matter then. `confirmed`: definitions that were proved
    before, with the same text, beside changes that are gone now; where these are all changed
    definitions, each is compared once more, briefly, and is "proved" where nothing differs.
    `watch` is called about twice a second with the definition that is run, or another word for what
    is done. `containment` says what the code that runs may do, and `on_start` is called before any
    of it runs, `on_end` after its end, with the files that it read. Reproducers of differences are
    written below `.cache/regraft/reproducers` of the current folder.

    Raises ValueError for another word in `keep`, VerifyError for a missing file, text that does not
    compile, an interpreter without torch, a driver that is not there or fails with the original, or
    a required sandbox that this system has not. A crash, a hang or a model that cannot be built is
    a verdict.
    """
    _check_keep(keep)
    original_text = _read(original)
    if original_text == changed:
        return ()
    check_syntax(original_text, original)
    check_syntax(changed, original)
    changes = find_changes(original_text, changed)
    if not changes:
        return ()
    equal_programs, equal_if_returned = _equal_programs(original_text, changed, contract)
    job = Job(
        original=original.resolve(),
        source=original_text,
        changed=changed,
        changes=changes,
        before=find_changes(changed, original_text),
        driver=driver,
        time_limit=time_limit,
        memory_limit=memory_limit,
        python=python,
        terms=Terms(
            effort,
            contract,
            tuple(sorted(keep)),
            by_rules,
            tuple(sorted(model_classes)),
            tuple(sorted(confirmed)),
        ),
        equal_programs=equal_programs,
        equal_if_returned=equal_if_returned,
        watch=None if watch is None else lambda step: watch(name_of_step(step)),
        containment=replace(
            containment,
            readable=(*containment.readable, *readable_paths(original.resolve(), driver)),
        ),
    )
    _check_driver(driver)
    containment.check()
    if on_start is not None:
        on_start()
    result, excluded = job.run()
    if on_end is not None:
        on_end(Reads.of(result))
    return tuple(verdict_on(change, str(original), result, excluded, job) for change in changes)


def to_json(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return the JSON document (version 1) of verdicts, as a dictionary."""
    entries = [
        {
            "file": verdict.file,
            "class": verdict.definition,
            "lines": list(verdict.lines),
            "status": verdict.status,
            "reason": verdict.reason,
            "evidence": dict(verdict.evidence),
        }
        for verdict in verdicts
    ]
    return {"version": 1, "verdicts": entries}


def _check_keep(keep: Collection[str]) -> None:
    """Raise ValueError for a word that names no ability that a changed version can lose."""
    if unknown := sorted(set(keep) - set(LOSSES)):
        raise ValueError(f"unknown in keep: {unknown[0]!r}; it takes {', '.join(LOSSES)}")


def _check_driver(driver: str | None) -> None:
    """Raise VerifyError where a driver names no function, as far as its text tells."""
    try:
        if driver:
            check_target(driver, os.getcwd())
    except TargetError as error:
        raise VerifyError(str(error), file=str(driver)) from error


def _equal_programs(
    original: bytes, changed: bytes, contract: Contract
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the definitions that are the same program in both texts, and those that are it only if
    the class that a definition returns is its own; of these there are none under the strict
    contract."""
    if contract == "strict":
        return equal_definitions(original, changed, messages=True), frozenset()
    equal = equal_definitions(original, changed, messages=False)
    equal_if_returned = equal_definitions(original, changed, messages=False, return_classes=True)
    return equal, equal_if_returned - equal


def _read(path: Path) -> bytes:
    """Return the bytes of a file; raises VerifyError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise VerifyError(f"cannot read the file: {error.strerror}", file=str(path)) from error


def check_syntax(text: bytes, path: Path) -> None:
    """Raise VerifyError for text that does not parse, also for its encoding, and for text that only
    the compiler refuses (`return` outside of a function, a late `from __future__`).
    """
    step = "parse"
    try:
        tree = ast.parse(text)
        importlib.util.decode_source(text)  # ast reads a comment in any encoding
        step = "compile"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise VerifyError(
            f"does not {step}: {error.msg}", str(path), error.lineno or 0, error.offset or 0
        ) from error
    except ValueError as error:
        raise VerifyError(f"does not {step}: {error}", str(path)) from error
