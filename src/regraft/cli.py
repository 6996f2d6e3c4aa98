"""The command line: `regraft check`, `show`, `rule`, `verify`."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from regraft import __version__

if TYPE_CHECKING:
    from regraft.report.machine import Collector
    from regraft.rules import RuleProblem
    from regraft.scan import CompiledRule, FileReport, Finding
    from regraft.source import SourceError
    from regraft.verify import Verdict


class _PathType(click.Path):
    """A path that is not empty: an empty one (an unset shell variable) would mean the current directory."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not os.fspath(value):
            self.fail("the path is empty", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


PATH = _PathType(path_type=Path)
SELECT = click.option("--select", metavar="RULES", help="Only these rules: pack, pack/rule or rule, comma-separated.")
PYTHON = click.option(
    "--python", default=sys.executable, metavar="PATH",
    help="Interpreter to run both versions in: the one that has the model's packages (default: this one).",
)  # fmt: skip
DIRECTORIES = click.option(
    "--rules", "directories", multiple=True, metavar="DIRECTORY",
    help="Packs of your own beside the built-in ones, which a rule of the same name replaces.",
    type=_PathType(exists=True, file_okay=False, path_type=Path),
)  # fmt: skip
IGNORE = click.option("--ignore", default="", metavar="RULES", help="Leave these rules out.")
FORMAT = click.option(
    "--output-format", "form", type=click.Choice(["full", "concise", "json"]), default="full", show_default=True
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="regraft")
def main() -> None:
    """Make PyTorch models faster by rewriting their source, and prove every rewrite by running it."""


def entry() -> None:
    """The command `regraft`: output that cannot be written is an error like any other."""
    try:
        main()
    except OSError as error:
        click.echo(f"error: cannot write the output: {error.strerror or error}", err=True)
        os._exit(2)  # the interpreter would try to flush the broken stream once more


@main.command()
@click.argument("paths", nargs=-1, required=True, type=PATH)
@SELECT
@IGNORE
@DIRECTORIES
@click.option("--diff", "show_diff", is_flag=True, help="Print what would change, as a unified diff; write nothing.")
@click.option("--fix", is_flag=True, help="Rewrite the files.")
@click.option(
    "--verify/--no-verify", "prove", default=None,
    help="With --fix: write only what running both versions proves. On where torch is installed.",
)  # fmt: skip
@click.option("--unproven", is_flag=True, help="With --fix: also write what is not proved, but never what is refuted.")
@PYTHON
@click.option("--unsafe", is_flag=True, help="Also apply rules that change what callers see (safety contract).")
@click.option("--vendor", is_flag=True, help="With --fix: write the ops' source beside the model (regraft_ops.py).")
@click.option("--explain", is_flag=True, help="Also say where rules nearly matched, and why they did not.")
@click.option(
    "--jobs", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="Processes; 0 for all cores."
)
@click.option("--no-cache", is_flag=True, help="Scan and verify every file, also those that were before.")
@FORMAT
def check(
    paths: tuple[Path, ...], select: str | None, ignore: str, directories: tuple[Path, ...], show_diff: bool,
    fix: bool, prove: bool | None,
    unproven: bool, python: str, unsafe: bool, vendor: bool, explain: bool, jobs: int, no_cache: bool, form: str,
) -> None:  # fmt: skip
    """Find places where an optimized kernel can replace hand-written code.

    Exits with 0 when there is nothing to do, 1 when there are findings, 2 when something could not be read.
    """
    if show_diff and fix:
        raise click.UsageError("--diff and --fix exclude each other")
    if (prove or unproven or vendor) and not (fix or (show_diff and vendor)):
        raise click.UsageError("--verify, --unproven and --vendor go with --fix")
    if show_diff and form == "json":
        raise click.UsageError("--diff prints a diff, --output-format json prints JSON: choose one")
    from regraft.report.machine import Collector

    started = time.perf_counter()
    rules, problems = _rules(select, ignore, directories)
    total = Collector(explain)
    total.errors += [_as_error(one) for one in problems]
    done = 0
    cached = not (no_cache or show_diff or fix or explain)
    policy = _policy(fix, prove, unproven, no_cache, python)
    for report in _scan(paths, rules, explain, jobs, cached):
        total.add(report)
        if form != "json" and not show_diff:
            _print_report(report, form, explain)
        if (show_diff or fix) and report.findings:
            rewritten, failed = _rewrite(
                _patched(report, rules, vendor), rules, fix, policy, unsafe, vendor, quiet=form == "json"
            )
            done += rewritten
            total.errors += failed
    if form == "json":
        click.echo(json.dumps(total.data(time.perf_counter() - started), indent=1))
    else:
        _print_end(total, form, show_diff)
        if fix and policy.prove and any(policy.counts.values()):
            counts = ", ".join(f"{number} {status}" for status, number in policy.counts.items())
            click.echo(f"definitions: {counts}", err=form == "concise")
    sys.exit(2 if total.errors else 1 if len(total.findings) > done else 0)


def _rules(
    select: str | None, ignore: str, directories: Sequence[Path] = ()
) -> tuple[tuple[CompiledRule, ...], list[RuleProblem]]:
    from regraft.rules import BUILT_IN, load_rules
    from regraft.scan import compile_rules

    if select is not None and not _words(select):
        raise click.UsageError("--select names no rule")
    rules, problems = load_rules(_words(select or ""), _words(ignore), (BUILT_IN, *directories))
    compiled, more = compile_rules(rules)
    return compiled, [*problems, *more]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _as_error(problem: RuleProblem) -> SourceError:
    from regraft.source import SourceError

    return SourceError(problem.path, problem.line, problem.column, problem.message)


def _scan(
    paths: Sequence[Path], rules: tuple[CompiledRule, ...], explain: bool, jobs: int, cached: bool
) -> Iterable[FileReport]:
    from regraft import cache
    from regraft.parallel import Task, scan_files
    from regraft.scan import python_files

    items = list(python_files(paths))
    task = Task(rules, explain, cache.directory() if cached else None)
    return _progress(scan_files(items, task, jobs), len(items))


def _patched(report: FileReport, rules: Sequence[CompiledRule], vendor: bool) -> FileReport:
    """The report with its patches, which are not handed from process to process."""
    from regraft.scan import check_file

    if report.source is not None and not vendor:
        return report
    return check_file(Path(report.file), rules, _home(Path(report.file), vendor))


def _home(path: Path, vendor: bool) -> str:
    """Module that the rewritten file imports the ops from."""
    if not vendor:
        return "regraft.ops"
    return ".regraft_ops" if (path.parent / "__init__.py").exists() else "regraft_ops"


def _progress(reports: Iterable[FileReport], number: int) -> Iterable[FileReport]:
    """The reports, with a progress bar on a terminal when there are many."""
    if number < 20 or not _is_terminal(sys.stderr):
        return reports
    from rich.console import Console
    from rich.progress import track

    return track(reports, "Scanning", number, console=Console(stderr=True), transient=True)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # a closed stream is None


def _paint(text: str, **style: object) -> str:
    if not _is_terminal(sys.stdout) or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, **style)  # type: ignore[arg-type]


def _print_report(report: FileReport, form: str, explain: bool) -> None:
    from regraft.report import text

    for finding in report.findings:
        if form == "concise":
            click.echo(text.concise(finding, _paint))
        else:
            click.echo("\n".join(text.full(finding, _paint)))
    if explain:
        for line in text.explanations(report, _paint):
            click.echo(line)


def _print_end(total: Collector, form: str, show_diff: bool) -> None:
    from regraft.report import text

    if not show_diff:
        click.echo(text.summary(total), err=form == "concise")
    for error in total.errors:
        _print_error(error)


def _print_error(error: SourceError) -> None:
    from regraft.report import text

    click.echo(text.error(error), err=True)


@dataclass(slots=True)
class _Policy:
    """What may be written without being proved, and how many definitions came out how."""

    prove: bool
    unproven: bool
    cached: bool
    python: str
    counts: dict[str, int] = field(default_factory=lambda: {"proved": 0, "unproven": 0, "refuted": 0})


def _policy(fix: bool, prove: bool | None, unproven: bool, no_cache: bool, python: str) -> _Policy:
    here = fix and (python != sys.executable or importlib.util.find_spec("torch") is not None)
    if fix and prove and not here:
        _stop("--verify needs torch, which is not installed in this environment")
    return _Policy(here if prove is None else prove, unproven, not no_cache, python)


def _rewrite(
    report: FileReport, rules: Sequence[CompiledRule], fix: bool, policy: _Policy, unsafe: bool, vendor: bool,
    quiet: bool,
) -> tuple[int, list[SourceError]]:  # fmt: skip
    """Show or write the rewritten file; returns how many findings are done with, and what went wrong."""
    from regraft import source as text
    from regraft.scan import RuleDefect, rewrite_file

    if report.source is None:
        return 0, list(report.errors)
    allowed = [rule for rule in rules if unsafe or rule.rule.syntax.safety != "contract"]
    path, home = Path(report.file), _home(Path(report.file), vendor)
    try:
        if policy.prove:
            changed, applied = _proved_rewrite(report, allowed, policy, home, quiet)
        else:
            changed, applied = rewrite_file(report, allowed, home)
    except RuleDefect as defect:
        return 0, [defect.error]
    if changed == report.source.data:
        return 0, []
    if not fix:
        click.echo(text.diff(report.file, report.source.data, changed, report.source.encoding), nl=False)
        return 0, []
    failed = text.write(report.source, changed)
    if failed is None and vendor:
        failed = _vendor(path, changed)
    if failed is None and not quiet:
        note = "" if policy.prove else "; nothing was verified: prove it with regraft verify"
        click.echo(f"{report.file}: rewrote {len(applied)} places{note}")
    return (0, [failed]) if failed else (len(applied), [])


def _proved_rewrite(
    report: FileReport, rules: Sequence[CompiledRule], policy: _Policy, home: str, quiet: bool
) -> tuple[bytes, tuple[Finding, ...]]:
    """What may be written of a file; vendored ops are not there yet, so the package's own stand for them."""
    from regraft.fix import in_house, proved_fix
    from regraft.scan import check_source

    assert report.source is not None
    own = home == "regraft.ops"
    fix = proved_fix(
        report if own else check_source(report.source, rules), rules,
        lambda data: _verdicts(Path(report.file), data, None, 300.0, policy.python, policy.cached),
        unproven=policy.unproven,
    )  # fmt: skip
    for verdict in (*fix.verdicts, *fix.left_out):
        policy.counts[verdict.status] += 1
        if not quiet:
            _print_verdict(verdict)
    for verdict in fix.left_out if not quiet else ():
        click.echo(f"{report.file} {verdict.definition}: left as it is")
    return fix.data if own else in_house(fix, report, rules, home), fix.applied


def _vendor(model: Path, changed: bytes) -> SourceError | None:
    """Write the ops that the rewritten model imports beside it."""
    from regraft.source import SourceError, write_whole
    from regraft.vendor import vendor_source, vendored_names

    target = model.with_name("regraft_ops.py")
    names = vendored_names(changed)
    if target.exists():
        names = tuple(sorted({*names, *vendored_names(target.read_bytes())}))
    try:
        write_whole(target, vendor_source(names).encode())
    except OSError as error:
        return SourceError(str(target), 0, 0, f"cannot write: {error.strerror or error}")
    return None


def _verdicts(
    path: Path, changed: bytes, driver: str | None, limit: float, python: str, cached: bool
) -> tuple[Verdict, ...]:
    from regraft import cache
    from regraft.verdicts import verified
    from regraft.verify import VerifyError

    try:
        return verified(path, changed, driver, limit, python, cache.directory() if cached else None)
    except VerifyError as error:
        _stop(str(error))


def _print_verdict(verdict: Verdict) -> None:
    colour = {"proved": "green", "unproven": "yellow", "refuted": "red"}[verdict.status]
    status = _paint(verdict.status, fg=colour, bold=True)
    click.echo(f"{verdict.file} {verdict.definition}: {status}" + (f": {verdict.reason}" if verdict.reason else ""))
    for key in ("models", "dtypes", "reproducer"):
        value = verdict.evidence.get(key)
        if value:
            click.echo(f"  {key}: {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}")


def _stop(message: str) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    sys.exit(2)


@main.command("verify")
@click.argument("original", type=PATH)
@click.argument("changed", type=PATH, required=False)
@SELECT
@IGNORE
@DIRECTORIES
@click.option("--driver", metavar="MODULE:FUNCTION", help="Function that builds the model and its calls.")
@PYTHON
@click.option("--time-limit", default=300.0, show_default=True, metavar="SECONDS")
@click.option("--no-cache", is_flag=True, help="Run both versions also where the same was verified before.")
@click.option(
    "--output-format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True
)
def verify_command(
    original: Path,
    changed: Path | None,
    select: str | None,
    ignore: str,
    directories: tuple[Path, ...],
    driver: str | None,
    python: str,
    time_limit: float,
    no_cache: bool,
    form: str,
) -> None:
    """Run ORIGINAL against CHANGED, or against itself with all of Regraft's findings applied.

    ORIGINAL may be a unified diff (.diff, .patch): then the files that it changes, below the current directory, are
    run against what it makes of them. Exits with 0 when every change is proved, 1 when one is not, 2 on an error.
    """
    from regraft.difference import DiffError, is_diff, new_versions

    if is_diff(original) and changed is None:
        try:
            versions = new_versions(original, Path())
        except DiffError as error:
            _stop(f"{original}: {error}")
    else:
        versions = {original: _changed_bytes(original, changed, select, ignore, directories)}
    verdicts = tuple(
        verdict
        for file, data in versions.items()
        for verdict in _verdicts(file, data, driver, time_limit, python, not no_cache)
    )
    if form == "json":
        from regraft.verify import to_json

        click.echo(json.dumps(to_json(verdicts), indent=1))
    elif form == "markdown":
        from regraft.report.certificate import certificate

        click.echo(certificate(str(original), verdicts))
    else:
        for verdict in verdicts:
            _print_verdict(verdict)
        if not verdicts:
            click.echo(f"{original}: nothing changed, nothing to verify")
    sys.exit(0 if all(verdict.status == "proved" for verdict in verdicts) else 1)


def _changed_bytes(
    original: Path, changed: Path | None, select: str | None, ignore: str, directories: Sequence[Path]
) -> bytes:
    from regraft.scan import RuleDefect, check_file, rewrite_file

    if changed is not None:
        try:
            return changed.read_bytes()
        except OSError as error:
            _stop(f"{changed}: {error.strerror}")
    rules, problems = _rules(select, ignore, directories)
    report = check_file(original, rules)
    errors = [*(_as_error(one) for one in problems), *report.errors]
    if errors:
        for one in errors:
            _print_error(one)
        sys.exit(2)
    try:
        return rewrite_file(report, rules)[0]
    except RuleDefect as defect:
        _stop(str(defect.error))


@main.command()
@click.argument("target", metavar="FILE[::Class[.method]]")
@click.option("--paths", "by_path", is_flag=True, help="One structure for each feasible path.")
def show(target: str, by_path: bool) -> None:
    """Print the structure of a file, a class, or a method in the DSL."""
    from regraft.source import SourceError, read
    from regraft.structure import Module

    file, _, selector = target.partition("::")
    if not file:
        raise click.UsageError("the path is empty")
    source = read(Path(file))
    if isinstance(source, SourceError):
        _print_error(source)
        sys.exit(2)
    name, _, method = selector.partition(".")
    found = False
    try:
        for structure in Module(source).structures():
            for body in structure.bodies if name in ("", structure.name) else ():
                if method in ("", body.name) and (method or body.name != "__init__"):
                    found = True
                    scope = structure.name if structure.cls is None else f"{structure.name}.{body.name}"
                    click.echo("\n".join(_shown(scope, structure, body, by_path)) + "\n")
    except RecursionError:
        _stop(f"{file}: nested too deeply to show")
    except ValueError as problem:  # Python refuses to print integers of more than 4,300 digits
        _stop(f"{file}: cannot be shown: {problem}")
    if not found:
        _stop(f"{file}: there is no {selector}" if selector else f"{file}: there is no class or function")


def _shown(scope: str, structure: object, body: object, by_path: bool) -> Iterator[str]:
    from regraft.dsl import print_node
    from regraft.structure.model import Body, Structure
    from regraft.structure.show import body_nodes, layer_nodes, paths

    assert isinstance(structure, Structure) and isinstance(body, Body)
    yield _paint(f"# {scope}", bold=True)
    for node in layer_nodes(structure, body):
        yield print_node(node)
    if not by_path:
        yield from (print_node(node) for node in body_nodes(body))
        return
    found = paths(body)
    if found is None:
        yield "# more paths than can be listed; without --paths the structure shows the guards"
        return
    for number, path in enumerate(found, 1):
        yield _paint(f"# path {number} of {len(found)}" + (f": {path.condition}" if path.condition else ""), dim=True)
        yield from (print_node(node) for node in path.nodes)


@main.command("rule")
@click.argument("name")
def rule_command(name: str) -> None:
    """Print a rule's page: what it does, when it applies, and examples."""
    from regraft.rules import load_rules

    rules, problems = load_rules([name])
    for problem in problems:
        _print_error(_as_error(problem))
    if not rules:
        sys.exit(2)
    for one in rules:
        text = one.path.read_text("utf-8")
        page = f"{one.page.rstrip()}\n\n## Rule\n\n```\n{text.rstrip()}\n```"
        if _is_terminal(sys.stdout):
            from rich.console import Console
            from rich.markdown import Markdown

            Console().print(Markdown(page))
        else:
            click.echo(page)
    sys.exit(2 if problems else 0)


if __name__ == "__main__":
    entry()
