"""The work of `regraft check --diff` and `--fix`: a rewritten file is shown or written."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.shared_options import stop
from regraft.cli.verdicts import containment_of, print_verdicts, verdicts_of
from regraft.report.counted_nouns import count

if TYPE_CHECKING:
    from regraft.scanning import CompiledRule, FileReport, Finding
    from regraft.source.text import SourceError, SourceFile
    from regraft.source.undo import UndoLog
    from regraft.verification import Verdict
    from regraft.verification.containment import Containment


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
    containment  what code that runs may do; None where nothing is proved
    """

    prove: bool
    unproven: bool
    cached: bool
    python: str
    out: Path | None = None
    keep: tuple[str, ...] = ()
    driver: str | None = None
    time_limit: float = 300.0
    containment: Containment | None = None


def chosen_policy(
    fix: bool,
    prove: bool | None,
    unproven: bool,
    no_cache: bool,
    python: str,
    out: Path | None,
    keep: tuple[str, ...] = (),
) -> Policy:
    """Return the policy that the options mean; exit where a rewrite is to be proved and torch is
    not installed."""
    can_verify = python != sys.executable or importlib.util.find_spec("torch") is not None
    proves = fix and prove is not False
    if proves and not can_verify:
        stop(
            "--fix proves what it writes, which needs torch, and torch is not installed here: name"
            " an interpreter that has it (--python), or write without proof (--no-verify)"
        )
    return Policy(proves, unproven, not no_cache, python, out, keep)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The result of rewriting a file.

    remaining  the number of findings that could be fixed, and are not
    errors     the reasons why nothing was written
    """

    remaining: int = 0
    errors: tuple[SourceError, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewriter:
    """The rewriting of one file after another.

    rules           the rules that are applied
    writes          write the rewritten files; else show what would change
    quiet           print nothing but that
    verdicts        gets the verdicts on the definitions that were verified
    wanted          tells which findings may be applied
    undo            stores what files were before they are rewritten in place
    """

    rules: Sequence[CompiledRule]
    policy: Policy
    writes: bool
    vendor: bool
    quiet: bool
    verdicts: list[Verdict]
    wanted: Callable[[Finding], bool]
    undo: UndoLog

    def rewrite(self, report: FileReport) -> Rewriting:
        """Show or write the rewritten file."""
        from regraft.scanning import RuleDefect, rewrite_file
        from regraft.source import text

        fixable = sum(finding.fixable and self.wanted(finding) for finding in report.findings)
        source = report.source
        if source is None:
            return Rewriting(fixable, report.errors)
        home = home_of(Path(report.file), self.vendor)
        try:
            if self.policy.prove:
                changed = self._proved_rewrite(report, home)
            else:
                changed = rewrite_file(report, self.rules, home, self.wanted)[0]
        except RuleDefect as defect:
            return Rewriting(fixable, (defect.error,))
        if changed == source.data:
            return Rewriting(fixable)
        if not self.writes:
            click.echo(text.diff(report.file, source.data, changed, source.encoding), nl=False)
            return Rewriting(fixable)
        target, error = self._write(source, changed)
        if error is not None:
            return Rewriting(fixable, (error,))
        remaining = self._fixable_in(source.path, changed, home)
        if not self.quiet:
            self._say(report.file, max(fixable - remaining, 0), remaining, target)
        return Rewriting(remaining)

    def _write(self, source: SourceFile, changed: bytes) -> tuple[Path, SourceError | None]:
        """Write a rewritten file in place or below the policy's directory, with `vendor` the ops
        beside it; return its path, and the error where it cannot be written."""
        from regraft.source import text
        from regraft.source.qualified_names import package_of

        path = Path(source.path)
        if self.policy.out is None:
            target, error = path, self._write_in_place(source, changed)
        else:
            target = self.policy.out.joinpath(*package_of(path).split("."), path.name)
            error = text.write_copy(target, changed)
        if error is None and self.vendor:
            error = self._write_vendored_ops(target, changed)
        return target, error

    def _write_in_place(self, source: SourceFile, changed: bytes) -> SourceError | None:
        """Store what a file is, and rewrite it; return the error where one of the two cannot be
        written."""
        from regraft.source import text

        try:
            self.undo.add(Path(source.path), source.data, changed, source.encoding)
        except OSError as problem:
            reason = f"not rewritten, because undo cannot be stored: {problem.strerror or problem}"
            return text.SourceError(source.path, 0, 0, reason)
        error = text.write(source, changed)
        if error is not None:
            self.undo.remove_last()
        return error

    def _write_vendored_ops(self, model: Path, changed: bytes) -> SourceError | None:
        """Write the ops that the rewritten model imports beside it, if it imports any; return the
        error where they cannot be written."""
        from regraft.rewriting.vendored_source import vendor_source, vendored_names
        from regraft.source.text import SourceError, write_atomically

        target = model.with_name("regraft_ops.py")
        present = target.read_bytes() if target.exists() else None
        names = set(vendored_names(changed))
        if not names:
            return None
        if present is not None:
            names.update(vendored_names(present))
        text = vendor_source(sorted(names)).encode()
        try:
            if self.policy.out is None:
                self.undo.add(target, present, text)
            write_atomically(target, text)
        except OSError as error:
            return SourceError(str(target), 0, 0, f"cannot write: {error.strerror or error}")
        return None

    def _fixable_in(self, path: str, data: bytes, home: str) -> int:
        """Return the number of findings in a rewritten text that could be fixed."""
        from regraft.scanning import check_source
        from regraft.source import text

        source = text.parse(path, data)
        assert isinstance(source, text.SourceFile)  # `rewrite_file` has parsed it
        findings = check_source(source, self.rules, home).findings
        return sum(finding.fixable and self.wanted(finding) for finding in findings)

    def _say(self, file: str, fixed: int, remaining: int, target: Path) -> None:
        """Print how many findings of a file are fixed."""
        unfixed = f", {remaining} not fixed" if remaining else ""
        place = "" if self.policy.out is None else f" in {target}"
        note = "" if self.policy.prove else "; nothing was verified: prove it with regraft verify"
        click.echo(f"{file}: fixed {count(fixed, 'finding')}{place}{unfixed}{note}")

    def _verdicts(self, path: Path, changed: bytes, proved: Iterable[str]) -> tuple[Verdict, ...]:
        """Return the verdicts on a changed version of a file, some definitions of which are proved
        already."""
        from regraft.scanning.compiled_rules import are_tested
        from regraft.verification.types import Terms

        policy = self.policy
        terms = Terms(keep=policy.keep, confirmed=tuple(sorted(proved)))
        return verdicts_of(
            path,
            changed,
            policy.driver,
            policy.time_limit,
            policy.python,
            policy.cached,
            terms.for_rules(tested=are_tested(self.rules)),
            policy.containment or containment_of("auto", ()),
            self.quiet,
        )

    def _proved_rewrite(self, report: FileReport, home: str) -> bytes:
        """Return the bytes of a file that may be written.

        Vendored ops do not exist yet, so the package's own ops take their place in verification.
        """
        from regraft.fix import fix_with_home, proved_fix
        from regraft.scanning import check_source

        assert report.source is not None
        policy, rules = self.policy, self.rules
        imports_regraft = home == "regraft.ops"
        fix = proved_fix(
            report if imports_regraft else check_source(report.source, rules),
            rules,
            functools.partial(self._verdicts, Path(report.file)),
            unproven=policy.unproven,
            wanted=self.wanted,
        )
        verdicts = (*fix.verdicts, *fix.left_out)
        self.verdicts.extend(verdicts)
        if not self.quiet:
            print_verdicts(verdicts)
        for verdict in fix.left_out if not self.quiet else ():
            click.echo(f"{report.file} {verdict.definition}: left as it is")
        if imports_regraft:
            return fix.data
        return fix_with_home(fix, report, rules, home, self.wanted)


def home_of(path: Path, vendor: bool) -> str:
    """Return the module that the rewritten file imports the ops from."""
    if not vendor:
        return "regraft.ops"
    return ".regraft_ops" if (path.parent / "__init__.py").exists() else "regraft_ops"
