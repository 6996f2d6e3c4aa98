"""How many of the patches that Regraft makes in a package's models running both versions proves.

    # transformers 4.34.0, Adopter's nine rules; hours
    python benchmarks/proof199/run.py
    python benchmarks/proof199/run.py --jobs 8
    python benchmarks/proof199/run.py --package transformers==5.23.0 --sample 64
    python benchmarks/proof199/run.py --package timm==1.0.31 --packs adopter,torch --only resnet

Makes an environment of its own for the package under `.cache/proof199/` the first time (torch and
the pinned package), rewrites its modeling files there, and verifies each with `regraft verify`'s
means. Results are kept in `.cache/proof199/results.jsonl` by the text of both versions and the
source of the verification: a run that was interrupted goes on where it stopped. Prints a table and
the definitions that are not proved; exits with 1 if one of them is refuted. A patch counts with the
verdict of the class or function that it is in; it is executed where every changed line ran and was
compared.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "adopter199"))
sys.path.insert(0, str(Path(__file__).parent))

import environment
import packages
from results import Patch, Result, Store, key, rows

from regraft.rules import load_rules
from regraft.scanning import (
    CompiledRule,
    FileReport,
    Finding,
    RuleDefect,
    check_file,
    compile_rules,
    rewrite_file,
)
from regraft.verification import Verdict, VerifyError, verify

STORE = environment.STORE / "results.jsonl"


@dataclass(frozen=True, slots=True)
class Task:
    """A file with its rewritten text and the findings that were applied to it."""

    file: Path
    label: str
    original: bytes
    changed: bytes
    applied: tuple[Finding, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    python = environment.python(options.package)
    package = packages.select(
        options.package, environment.packages(python), options.package.partition("==")[0]
    )
    rules, problems = load_rules(options.packs.split(","))
    compiled, more = compile_rules(rules)
    if problems or more:
        raise SystemExit(f"rules do not load: {problems + more}")
    tasks = [task for task in _tasks(package, compiled) if re.search(options.only, task.label)]
    if options.sample:
        tasks = sorted(tasks, key=lambda task: hashlib.sha256(task.label.encode()).digest())[
            : options.sample
        ]
    store = Store(options.results)
    started = time.monotonic()
    results = []
    for result in _run(tasks, store, python, options):
        results.append(result)
        done = sum(patch.status == "proved" for patch in result.patches)
        print(
            f"{len(results)}/{len(tasks)} {result.file}: {done} of {len(result.patches)} proved",
            file=sys.stderr,
        )
    for line in report(sorted(results, key=lambda one: one.file), [rule.id for rule in rules]):
        print(line)
    print(f"{len(results)} files in {time.monotonic() - started:.0f} s")
    return int(any(patch.status == "refuted" for result in results for patch in result.patches))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1, help="files verified at a time (default: 1)")
    parser.add_argument(
        "--package",
        default="transformers==4.34.0",
        metavar="NAME==VERSION",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--packs",
        default="adopter",
        help="packs of rules, with commas between (default: %(default)s)",
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="only N files, drawn by a hash of their paths"
    )
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="only files whose path in the package it fits"
    )
    parser.add_argument(
        "--time-limit", type=float, default=300.0, metavar="SECONDS", help="for each file"
    )
    parser.add_argument(
        "--results", type=Path, default=STORE, metavar="FILE", help=f"default: {STORE}"
    )
    return parser.parse_args(arguments)


def _tasks(package: packages.Package, rules: Sequence[CompiledRule]) -> Iterator[Task]:
    """Every file that the rules change."""
    for path in package.files:
        found: FileReport = check_file(path, rules)
        if found.source is None:
            raise SystemExit(f"cannot scan: {'; '.join(map(str, found.errors))}")
        try:
            changed, applied = rewrite_file(found, rules)
        except RuleDefect as defect:
            raise SystemExit(str(defect)) from defect
        if applied:
            yield Task(path, package.label(path), found.source.data, changed, applied)


def _run(
    tasks: Sequence[Task], store: Store, python: str, options: argparse.Namespace
) -> Iterator[Result]:
    """Results of the tasks, known ones first."""
    names = {task.label: key(task.original, task.changed) for task in tasks}
    known = [result for task in tasks if (result := store.get(names[task.label])) is not None]
    yield from known
    missing = [task for task in tasks if store.get(names[task.label]) is None]
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(verified, task, python, options.time_limit) for task in missing]
        for future in as_completed(futures):
            result = future.result()
            store.add(names[result.file], result)
            yield result


def verified(task: Task, python: str, time_limit: float) -> Result:
    """Run both versions of a file; each applied patch gets the verdict of its definition."""
    started = time.monotonic()
    try:
        verdicts = verify(
            task.file, task.changed, python=python, time_limit=time_limit, by_rules=True
        )
    except VerifyError as error:
        return Result(task.label, (), str(error), time.monotonic() - started)
    by_name = {verdict.definition: verdict for verdict in verdicts}
    patches = tuple(_patch(one, by_name) for one in task.applied)
    return Result(task.label, patches, "", time.monotonic() - started)


def _patch(finding: Finding, verdicts: dict[str, Verdict]) -> Patch:
    definition = (finding.cls or finding.function).partition(".")[0]
    rule, line = finding.rule.id, finding.start[0]
    verdict = verdicts.get(definition)
    if verdict is None:
        return Patch(
            rule, definition, line, "unproven", "no verdict for its definition", False, False
        )
    levels = verdict.evidence.get("levels", ())
    loads = isinstance(levels, list | tuple) and "state_dict" in levels
    executed = isinstance(levels, list | tuple) and "lines executed" in levels
    return Patch(rule, definition, line, verdict.status, verdict.reason, loads, executed)


def report(results: Sequence[Result], rules: Sequence[str]) -> Iterator[str]:
    """Lines of the table and of what is not proved."""
    for row in rows(results, rules):
        yield row[0].ljust(28) + "".join(cell.rjust(10) for cell in row[1:])
    files = [result for result in results if result.patches]
    whole = sum(all(patch.status == "proved" for patch in result.patches) for result in files)
    ran = sum(all(patch.executed for patch in result.patches) for result in files)
    yield (
        f"files with every patch proved: {whole} of {len(results)}; with every patch executed:"
        f" {ran}"
    )
    for result in results:
        if result.error:
            yield f"{result.file}: {result.error}"
        said = {patch.definition: patch for patch in result.patches if patch.status != "proved"}
        for definition, patch in said.items():
            yield f"{result.file} {definition}: {patch.status}: {patch.reason}"


if __name__ == "__main__":
    sys.exit(main())
