"""The work of `regraft check --diff` and `--fix`: a rewritten file is shown or written."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.shared import (
    print_verdict,
    stop,
    verdicts_of,
)
from regraft.report.words import count

if TYPE_CHECKING:
    from regraft.scanning import CompiledRule, FileReport, Finding
    from regraft.source.text import SourceError, SourceFile


@dataclass(slots=True)
class Policy:
    """The conditions under which rewritten files are written.

    prove     write only what running both versions proves
    unproven  also write what is neither proved nor refuted
    cached    take verdicts from the cache
    python    the interpreter that runs both versions
    out       the directory for copies; None to write in place
    keep      losses that forbid a proof
    driver    the function that builds the model and its calls; None to build models without it
    time_limit  seconds of processor time for each file
    """

    prove: bool
    unproven: bool
    cached: bool
    python: str
    out: Path | None = None
    keep: tuple[str, ...] = ()
    driver: str | None = None
    time_limit: float = 300.0


def chosen_policy(
    fix: bool,
    prove: bool | None,
    unproven: bool,
    no_cache: bool,
    python: str,
    out: Path | None,
    keep: tuple[str, ...] = (),
) -> Policy:
    """Return the policy that the options mean; exit where --verify is given and torch is not
    installed."""
    can_verify = fix and (python != sys.executable or importlib.util.find_spec("torch") is not None)
    if fix and prove and not can_verify:
        stop("--verify needs torch, which is not installed in this environment")
    proves = can_verify if prove is None else prove
    return Policy(proves, unproven, not no_cache, python, out, keep)


def rewrite(
    report: FileReport,
    rules: Sequence[CompiledRule],
    fix: bool,
    policy: Policy,
    vendor: bool,
    quiet: bool,
    verdict_counts: Counter[str],
) -> tuple[int, list[SourceError]]:
    """Show or write the rewritten file; return the number of findings that it settles, and the
    errors.

    verdict_counts  counts the verdicts of the definitions that were verified
    """
    from regraft.scanning import RuleDefect, rewrite_file
    from regraft.source import text

    if report.source is None:
        return 0, list(report.errors)
    home = home_of(Path(report.file), vendor)
    try:
        if policy.prove:
            changed, applied = _proved_rewrite(report, rules, policy, home, quiet, verdict_counts)
        else:
            changed, applied = rewrite_file(report, rules, home)
    except RuleDefect as defect:
        return 0, [defect.error]
    if changed == report.source.data:
        return 0, []
    if not fix:
        click.echo(
            text.diff(report.file, report.source.data, changed, report.source.encoding), nl=False
        )
        return 0, []
    target, error = _write(report.source, changed, policy, vendor)
    if error is not None:
        return 0, [error]
    if not quiet:
        note = "" if policy.prove else "; nothing was verified: prove it with regraft verify"
        place = "" if policy.out is None else f" in {target}"
        click.echo(f"{report.file}: rewrote {count(len(applied), 'place')}{place}{note}")
    return len(applied), []


def _write(
    source: SourceFile, changed: bytes, policy: Policy, vendor: bool
) -> tuple[Path, SourceError | None]:
    """Write a rewritten file in place or below the policy's directory, with `vendor` the ops beside
    it; return its path, and the error where it cannot be written."""
    from regraft.source import text
    from regraft.source.names import package_of

    path = Path(source.path)
    if policy.out is None:
        target, error = path, text.write(source, changed)
    else:
        target = policy.out.joinpath(*package_of(path).split("."), path.name)
        error = text.write_copy(target, changed)
    if error is None and vendor:
        error = _write_vendored_ops(target, changed)
    return target, error


def _proved_rewrite(
    report: FileReport,
    rules: Sequence[CompiledRule],
    policy: Policy,
    home: str,
    quiet: bool,
    verdict_counts: Counter[str],
) -> tuple[bytes, tuple[Finding, ...]]:
    """Return the bytes of a file that may be written, and the findings applied in them.

    Vendored ops do not exist yet, so the package's own ops take their place in verification.
    """
    from regraft.fix import fix_with_home, proved_fix
    from regraft.scanning import check_source
    from regraft.scanning.rules import are_tested
    from regraft.verify.types import Terms

    assert report.source is not None
    imports_regraft = home == "regraft.ops"
    fix = proved_fix(
        report if imports_regraft else check_source(report.source, rules),
        rules,
        lambda changed: verdicts_of(
            Path(report.file),
            changed,
            policy.driver,
            policy.time_limit,
            policy.python,
            policy.cached,
            Terms(keep=policy.keep).for_rules(tested=are_tested(rules)),
        ),
        unproven=policy.unproven,
    )
    for verdict in (*fix.verdicts, *fix.left_out):
        verdict_counts[verdict.status] += 1
        if not quiet:
            print_verdict(verdict)
    for verdict in fix.left_out if not quiet else ():
        click.echo(f"{report.file} {verdict.definition}: left as it is")
    return fix.data if imports_regraft else fix_with_home(fix, report, rules, home), fix.applied


def _write_vendored_ops(model: Path, changed: bytes) -> SourceError | None:
    """Write the ops that the rewritten model imports beside it."""
    from regraft.rewriting.vendor import vendor_source, vendored_names
    from regraft.source.text import SourceError, write_atomically

    target = model.with_name("regraft_ops.py")
    names = vendored_names(changed)
    if target.exists():
        names = tuple(sorted({*names, *vendored_names(target.read_bytes())}))
    try:
        write_atomically(target, vendor_source(names).encode())
    except OSError as error:
        return SourceError(str(target), 0, 0, f"cannot write: {error.strerror or error}")
    return None


def home_of(path: Path, vendor: bool) -> str:
    """Return the module that the rewritten file imports the ops from."""
    if not vendor:
        return "regraft.ops"
    return ".regraft_ops" if (path.parent / "__init__.py").exists() else "regraft_ops"
