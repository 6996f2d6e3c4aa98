"""The rules of a pack over a pinned package: what is found, what rewriting it gives, and what it
costs.

    # Adopter's rules, transformers 4.34.0
    python benchmarks/adopter199/run.py
    python benchmarks/adopter199/run.py --sites SITES.json --misses --extras
    # and one ast-grep pattern for each rule
    python benchmarks/adopter199/run.py --text
    # ablations, together or one by one
    python benchmarks/adopter199/run.py --no-inlining --no-paths
    # also transformers==5.23.0, diffusers==0.42.1
    python benchmarks/adopter199/run.py --package timm==1.0.31

Fetches the pinned wheel the first time (its text only, under `.cache/`). Single process, no cache.
The JSON has the shape of `regraft check --output-format json`, so any scorer of that format takes
it. A site list is a JSON list of objects with `rule`, `model`, `line`, `end`, `listed` and
`confidence`; a site is found when one of a finding's lines lies within it. Exits with 1 when a
rewritten file fails a check.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import platform
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import measure
import sites
import soundness
import textual
from packages import Package, fetch

from regraft.report import json_report
from regraft.rules import load_rules
from regraft.scanning import (
    CompiledRule,
    FileReport,
    Finding,
    check_file,
    collected_between,
    compile_rules,
)
from regraft.scanning.parallel import Task, scan_files


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan found, as rows of the JSON report, with its CPU seconds and the process's peak
    memory."""

    total: json_report.Collector
    seconds: float
    peak_mib: float

    @property
    def places(self) -> tuple[sites.Place, ...]:
        return tuple(
            sites.Place(
                _short(one["rule"]),
                one["file"],
                tuple(one["lines"]),
                f"{one['class']}.{one['function']}",
            )
            for one in self.total.findings
        )


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    package = fetch(options.package)
    rules, problems = load_rules([options.pack])
    compiled, more = compile_rules(rules)
    if problems or more:
        raise SystemExit(f"rules do not load: {problems + more}")
    parsing = measure.parse_seconds(package.files)
    scan = scanned(
        package.files, compiled, inlines=not options.no_inlining, paths=not options.no_paths
    )
    parts = measure.parts(package.files, compiled, inlines=not options.no_inlining)
    columns = counted(scan, compiled, parts)
    listed = sites.read(options.sites) if options.sites else ()
    scores = {"": sites.score(listed, scan.places, options.confidence.split(","))} if listed else {}
    if options.text:
        found = textual.search(package.files)
        columns += against_text(scan, found, compiled)
        if listed:
            scores["text "] = sites.score(listed, text_places(found), options.confidence.split(","))
    for tool, score in scores.items():
        columns += scored(tool, score, compiled)
    print("\n".join(table([_short(rule.id) for rule in rules], columns)))
    print()
    for line in _summary(package, scan, parts, parsing):
        print(line)
    warm = warm_seconds(package.files, compiled)
    print(f"CPU seconds from a filled cache: {warm:.2f}, ratio {warm / parsing:.2f}")
    for tool, score in scores.items():
        for line in _recall(f"{tool}sites", [score[_short(rule.id)] for rule in rules]):
            print(line)
    if options.skipped:
        for path, reason in package.skipped:
            print(f"skipped {package.label(path)}: {reason}")
    if listed:
        _print_differences(
            package, {_short(one.id): scores[""][_short(one.id)] for one in rules}, options
        )
    if options.json:
        options.json.write_text(json.dumps(scan.total.data(scan.seconds)))
    ablated = options.no_inlining or options.no_paths
    return 0 if ablated or options.no_checks else _check(package, scan, compiled)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", default="transformers==4.34.0", metavar="NAME==VERSION")
    parser.add_argument("--pack", default="adopter", help="the rules to run (default: adopter)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the findings")
    parser.add_argument("--skipped", action="store_true", help="print every file that is left out")
    parser.add_argument(
        "--no-checks", action="store_true", help="do not rewrite the files and check the result"
    )
    parser.add_argument(
        "--sites", type=Path, metavar="FILE", help="score the findings against a list of places"
    )
    parser.add_argument(
        "--confidence", default="high", help="sites that count, comma-separated (default: high)"
    )
    parser.add_argument("--misses", action="store_true", help="print every site that was not found")
    parser.add_argument("--extras", action="store_true", help="print every finding that is no site")
    parser.add_argument(
        "--text", action="store_true", help="also run one ast-grep pattern for each rule"
    )
    parser.add_argument(
        "--no-inlining",
        action="store_true",
        help="ablation: calls of the file's functions are opaque",
    )
    parser.add_argument(
        "--no-paths", action="store_true", help="ablation: only code that runs unconditionally"
    )
    return parser.parse_args(arguments)


def scanned(
    files: Iterable[Path], rules: Sequence[CompiledRule], inlines: bool = True, paths: bool = True
) -> Scan:
    """Findings of all files; without `paths` only those that run unconditionally."""
    total, seconds = json_report.Collector(), 0.0
    reports = collected_between(check_file(path, rules, inlines=inlines) for path in files)
    while True:
        started = time.process_time()
        report = next(reports, None)
        seconds += time.process_time() - started
        if report is None:
            break
        total.add(report if paths else unconditional(report))
    return Scan(total, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def unconditional(report: FileReport) -> FileReport:
    """The report without what holds under a condition only."""
    return dataclasses.replace(
        report, findings=tuple(one for one in report.findings if _is_unconditional(one))
    )


def _is_unconditional(finding: Finding) -> bool:
    """Whether only the type of a module is left to be tested, and no condition of the source."""
    types = all(test.startswith("regraft.ops.") for test in finding.tests)
    return types and finding.guard == " and ".join(finding.tests)


def warm_seconds(files: Sequence[Path], rules: tuple[CompiledRule, ...]) -> float:
    """CPU seconds for all files when nothing has changed since the scan before."""
    with tempfile.TemporaryDirectory() as directory:
        task = Task(rules, cache=Path(directory))
        cold = [report.findings for report in scan_files(files, task)]
        started = time.process_time()
        warm = [report.findings for report in scan_files(files, task)]
        seconds = time.process_time() - started
    if [len(one) for one in warm] != [len(one) for one in cold]:
        raise SystemExit("the cache gives other findings than the scan")
    return seconds


Column = tuple[str, Mapping[str, str]]


def table(rows: Sequence[str], columns: Sequence[Column]) -> Iterator[str]:
    """Text of a table whose columns are mappings from the row's name, with a row of totals of the
    counts."""
    widths = [max(len(title), 6) + 2 for title, _ in columns]
    yield "rule".ljust(20) + "".join(
        title.rjust(width) for (title, _), width in zip(columns, widths, strict=True)
    )
    for row in (*rows, "total"):
        cells = [_cell(values, rows, row) for _, values in columns]
        yield row.ljust(20) + "".join(
            cell.rjust(width) for cell, width in zip(cells, widths, strict=True)
        )


def _cell(values: Mapping[str, str], rows: Sequence[str], row: str) -> str:
    if row != "total":
        return values.get(row, "0")
    numbers = [values.get(one, "0") for one in rows]
    if any("." in number for number in numbers):
        return f"{sum(map(float, numbers)):.2f}"
    return str(sum(map(int, numbers)))


def counted(scan: Scan, rules: Sequence[CompiledRule], parts: measure.Parts) -> list[Column]:
    """Columns of the findings and of the time of matching, by rule."""
    counts = collections.Counter((one["rule"], one["status"]) for one in scan.total.findings)
    ids = [one.rule.id for one in rules]
    return [
        (
            "found",
            {_short(one): str(counts[one, "fixable"] + counts[one, "withheld"]) for one in ids},
        ),
        ("fixable", {_short(one): str(counts[one, "fixable"]) for one in ids}),
        ("withheld", {_short(one): str(counts[one, "withheld"]) for one in ids}),
        ("match s", {_short(one): f"{parts.matching[one]:.2f}" for one in ids}),
    ]


def text_places(found: Mapping[str, Any]) -> tuple[sites.Place, ...]:
    return tuple(
        sites.Place(one["rule"], one["file"], tuple(one["lines"])) for one in found["matches"]
    )


def against_text(
    scan: Scan, found: Mapping[str, Any], rules: Sequence[CompiledRule]
) -> list[Column]:
    """Columns of the patterns: matches, those that hit a finding, and findings that they hit."""
    lines: dict[tuple[str, str], set[int]] = collections.defaultdict(set)
    for place in scan.places:
        lines[place.rule, place.file].update(place.lines)
    matched: dict[tuple[str, str], set[int]] = collections.defaultdict(set)
    matches: collections.Counter[str] = collections.Counter()
    shared: collections.Counter[str] = collections.Counter()
    hit: collections.Counter[str] = collections.Counter()
    for place in text_places(found):
        matches[place.rule] += 1
        shared[place.rule] += not lines[place.rule, place.file].isdisjoint(place.lines)
        matched[place.rule, place.file].update(place.lines)
    for place in scan.places:
        hit[place.rule] += not matched[place.rule, place.file].isdisjoint(place.lines)
    names = [_short(one.rule.id) for one in rules]
    return [
        ("text", {name: str(matches[name]) for name in names}),
        ("findings hit", {name: str(hit[name]) for name in names}),
        ("text only", {name: str(matches[name] - shared[name]) for name in names}),
        ("text s", {name: f"{found['seconds'].get(name, 0.0):.2f}" for name in names}),
    ]


def scored(
    tool: str, score: Mapping[str, sites.Score], rules: Sequence[CompiledRule]
) -> list[Column]:
    """Columns of the score against a list of sites."""
    names = [_short(one.rule.id) for one in rules]
    return [
        (f"{tool}sites", {name: str(len(score[name].found)) for name in names}),
        (f"{tool}missed", {name: str(len(score[name].missed)) for name in names}),
        (f"{tool}extra", {name: str(len(score[name].extra)) for name in names}),
    ]


def _short(rule: str) -> str:
    return rule.rsplit("/", 1)[-1]


def withheld(scan: Scan) -> collections.Counter[str]:
    """Why findings are withheld, without the lines."""
    reasons = [one["reason"] for one in scan.total.findings if one["status"] == "withheld"]
    return collections.Counter(
        re.sub(r" \(line \d+\)$| at line \d+", "", reason) for reason in reasons
    )


def _summary(package: Package, scan: Scan, parts: measure.Parts, parsing: float) -> Iterator[str]:
    machine_name = f"Python {platform.python_version()}, {platform.machine()}"
    yield f"{len(package.files)} files of {package.requirement}, {machine_name}"
    for reason, count in collections.Counter(reason for _, reason in package.skipped).items():
        yield f"left out: {count} files ({reason}; --skipped lists them)"
    yield f"errors: {len(scan.total.errors)}"
    for error in scan.total.errors:
        yield f"  {package.label(error.file)}:{error.line}: {error.message}"
    for reason, count in withheld(scan).most_common():
        yield f"withheld: {count} because {reason}"
    ratio = scan.seconds / parsing
    yield (
        f"CPU seconds: {scan.seconds:.2f} for the scan, {parsing:.2f} for ast.parse alone, ratio"
        f" {ratio:.1f}"
    )
    yield (
        f"  measured apart: {parts.structure:.2f} for structures,"
        f" {sum(parts.matching.values()):.2f} for matching"
    )
    yield (
        f"  {1000 * scan.seconds / len(package.files):.0f} ms a file for all rules, rewriting"
        " included"
    )
    yield f"peak memory of the scan: {scan.peak_mib:.0f} MiB"


def _recall(title: str, scores: Sequence[sites.Score]) -> Iterator[str]:
    for group, wanted in (("all", ""), ("the paper's list", "paper"), ("beyond it", "own")):
        found = sum(site.listed.startswith(wanted) for one in scores for site in one.found)
        missed = sum(site.listed.startswith(wanted) for one in scores for site in one.missed)
        if found + missed:
            yield (
                f"{title}, {group}: {found} of {found + missed} found, recall"
                f" {found / (found + missed):.4f}"
            )


def _print_differences(
    package: Package, score: Mapping[str, sites.Score], options: argparse.Namespace
) -> None:
    for rule, one in sorted(score.items()):
        for site in one.missed if options.misses else ():
            print(f"miss   {rule:18} {site.model}:{site.first}-{site.last} {site.text}")
        for place in one.extra if options.extras else ():
            lines = ",".join(map(str, place.lines))
            print(f"extra  {rule:18} {package.label(place.file)}:{lines} {place.where}")


def _check(package: Package, scan: Scan, rules: Sequence[CompiledRule]) -> int:
    """Rewrite every file with findings and print what is wrong with the result."""
    files = sorted({one["file"] for one in scan.total.findings})
    wrong = {file: soundness.problems(Path(file), rules) for file in files}
    wrong = {file: found for file, found in wrong.items() if found}
    print(
        f"rewritten: {len(files) - len(wrong)} of {len(files)} files with findings parse, are"
        " stable under a second run, come out of `git apply` byte for byte, and differ only within"
        " the edits"
    )
    for file, found in wrong.items():
        print("\n".join(f"  {package.label(file)}: {one}" for one in found))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
