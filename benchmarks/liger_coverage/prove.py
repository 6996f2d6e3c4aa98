"""The places that Liger patches by hand: found, rewritten, and proved with Liger's kernels in
Triton's interpreter.

    TRITON_INTERPRET=1 python benchmarks/liger_coverage/prove.py --sites SITES.json --results
    RESULTS.jsonl
    TRITON_INTERPRET=1 python benchmarks/liger_coverage/prove.py --sites SITES.json --only qwen3_moe
    --time-limit 600
    python benchmarks/liger_coverage/prove.py --sites SITES.json --results RESULTS.jsonl --report

A file is verified once: the definitions that hold places of the list are rewritten with the rules
of the list's kernels, and both versions run. A place has the verdict of its definition, and counts
as proved by the kernel where forward and backward of the rule's kernel ran in that file. The
interpreter of `--python` needs torch, triton, liger-kernel and the package; float32 and float16 run
the kernel there, bfloat16 the composition. With REGRAFT_INTERPRET_ONE_IN=8 in the environment it
takes a third to a twelfth of the time (docs/decisions/0012). Results are kept file by file: a run
that was interrupted goes on where it stopped. `--report` prints what is kept and verifies nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "adopter199"))
sys.path.insert(0, str(Path(__file__).parent.parent / "proof199"))
sys.path.insert(0, str(Path(__file__).parent))  # the first: the others have a run.py, too

import environment
import packages
import results
from run import RULES, Place, listed

from regraft.fix import base_name, definition
from regraft.rules import load_rules
from regraft.scanning import CompiledRule, Finding, check_file, compile_rules, rewrite_file
from regraft.verification import Verdict, VerifyError, verify

# The module of `regraft.ops` whose forward and backward run a rule's kernel, where it is not named
# like the rule.
KERNELS = {"linear-loss": "cross_entropy"}
WEAKEST = ("refuted", "unproven", "proved")


@dataclass(frozen=True, slots=True)
class Proof:
    """One place: "not found", "withheld" or its verdict; whether the kernel ran; and the reason
    where not proved."""

    file: str
    line: int
    name: str
    kernel: str
    status: str
    ran: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A file's places, each with its findings, and the text in which their definitions are
    rewritten."""

    file: Path
    places: tuple[tuple[Place, tuple[Finding, ...]], ...]
    original: bytes
    changed: bytes

    @property
    def key(self) -> str:
        return results.key(self.original, self.changed)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if not options.report and os.environ.get("TRITON_INTERPRET") != "1":
        raise SystemExit("the kernels run on CPU with TRITON_INTERPRET=1 in the environment only")
    package = packages.select(options.package, environment.packages(options.python))
    places = [one for one in listed(options.sites, package) if re.search(options.only, one.file)]
    tasks = [_task(package, file, places) for file in dict.fromkeys(one.file for one in places)]
    known = _read(options.results)
    if not options.report:
        known |= _prove([task for task in tasks if task.key not in known], options)
    print(
        "\n".join(
            report([proof for task in tasks for proof in known.get(task.key, _unmeasured(task))])
        )
    )
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", default="transformers==5.23.0", metavar="NAME==VERSION")
    parser.add_argument(
        "--sites", type=Path, required=True, metavar="FILE", help="the list of places"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="only files whose path it fits")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter that has the package"
    )
    parser.add_argument("--jobs", type=int, default=1, help="files verified at a time (default: 1)")
    parser.add_argument(
        "--time-limit", type=float, default=300.0, metavar="SECONDS", help="of each file"
    )
    parser.add_argument(
        "--results", type=Path, default=environment.STORE / "liger-prove.jsonl", metavar="FILE"
    )
    parser.add_argument(
        "--report", action="store_true", help="print what is kept, and verify nothing"
    )
    return parser.parse_args(arguments)


def _task(package: packages.Package, file: str, places: Iterable[Place]) -> Task:
    """Find a file's places, and rewrite the definitions that they are in."""
    mine = [one for one in places if one.file == file]
    rules = _rules({RULES[one.kernel] for one in mine})
    found = check_file(package.directory / file, rules)
    if found.source is None:
        raise SystemExit(f"cannot scan: {'; '.join(map(str, found.errors))}")
    held = tuple(
        (place, tuple(one for one in found.findings if place.holds(one))) for place in mine
    )
    names = {definition(one) for _, several in held for one in several}
    changed, _ = rewrite_file(found, rules, wanted=lambda one: definition(one) in names)
    return Task(package.directory / file, held, found.source.data, changed)


def _rules(names: Iterable[str]) -> tuple[CompiledRule, ...]:
    rules, problems = load_rules([f"liger/{name}" for name in sorted(names)])
    compiled, more = compile_rules(rules)
    if problems or more:
        raise SystemExit(f"rules do not load: {problems + more}")
    return compiled


def _prove(tasks: Sequence[Task], options: argparse.Namespace) -> Mapping[str, tuple[Proof, ...]]:
    """Verify files; each result is on disk as soon as it is known."""
    made: dict[str, tuple[Proof, ...]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        started = {pool.submit(_proofs, task, options): task for task in tasks}
        for future in as_completed(started):
            task, (proofs, seconds) = started[future], future.result()
            made[task.key] = proofs
            entry = {
                "key": task.key,
                "seconds": round(seconds),
                "proofs": [asdict(one) for one in proofs],
            }
            options.results.parent.mkdir(parents=True, exist_ok=True)
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            proved = sum(one.status == "proved" for one in proofs)
            print(
                f"{task.file.name}: {proved} of {len(proofs)} proved, {seconds:.0f} s",
                file=sys.stderr,
            )
    return made


def _read(path: Path) -> dict[str, tuple[Proof, ...]]:
    """What is kept, but for the half line that a run leaves when it is killed."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    entries = map(json.loads, whole.splitlines())
    return {entry["key"]: tuple(Proof(**one) for one in entry["proofs"]) for entry in entries}


def _proofs(task: Task, options: argparse.Namespace) -> tuple[tuple[Proof, ...], float]:
    started = time.monotonic()
    try:
        verdicts = verify(
            task.file,
            task.changed,
            python=options.python,
            time_limit=options.time_limit,
            by_rules=True,
        )
    except VerifyError as error:
        raise SystemExit(f"{task.file}: {error}") from error
    return judged(task, verdicts), time.monotonic() - started


def judged(task: Task, verdicts: Sequence[Verdict]) -> tuple[Proof, ...]:
    """Each place with the weakest verdict of the definitions that its rewritten findings are in."""
    by_name = {base_name(one.definition): one for one in verdicts}
    proofs = []
    for known, (place, findings) in zip(_unmeasured(task), task.places, strict=True):
        mine = [
            by_name[definition(one)]
            for one in findings
            if one.fixable and definition(one) in by_name
        ]
        weakest = min(mine, key=lambda one: WEAKEST.index(one.status), default=None)
        if weakest is None:
            proofs.append(known)
        else:
            ran = _ran(place, weakest)
            proofs.append(replace(known, status=weakest.status, ran=ran, reason=weakest.reason))
    return tuple(proofs)


def _unmeasured(task: Task) -> tuple[Proof, ...]:
    """What is known of the places before anything runs."""
    proofs = []
    for place, findings in task.places:
        status, reason = "not measured", ""
        if not findings:
            status = "not found"
        elif not any(one.fixable for one in findings):
            status, reason = "withheld", findings[0].reason
        proofs.append(
            Proof(place.file, place.first, place.name, place.kernel, status, reason=reason)
        )
    return tuple(proofs)


def _ran(place: Place, verdict: Verdict) -> bool:
    """Whether forward and backward of the place's kernel ran when its file was verified."""
    rule = RULES[place.kernel]
    module = KERNELS.get(rule, rule.replace("-", "_"))
    functions = verdict.evidence.get("implementations", ())
    return isinstance(functions, list | tuple) and {
        f"{module}.forward",
        f"{module}.backward",
    } <= set(functions)


def report(proofs: Sequence[Proof]) -> Iterator[str]:
    """A row for each kernel, and every place that is not proved by it."""
    columns = ("places", "found", "proved", "by kernel", "unproven", "refuted", "left")
    yield "kernel".ljust(28) + "".join(one.rjust(11) for one in columns)
    for kernel in (*sorted({one.kernel for one in proofs}), "total"):
        mine = [one for one in proofs if kernel in (one.kernel, "total")]
        count = [
            sum(one.status == status for one in mine)
            for status in ("proved", "unproven", "refuted")
        ]
        found = sum(one.status != "not found" for one in mine)
        by_kernel = sum(one.status == "proved" and one.ran for one in mine)
        left = sum(one.status in ("withheld", "not measured") for one in mine)
        row = (len(mine), found, count[0], by_kernel, *count[1:], left)
        yield kernel.ljust(28) + "".join(f"{one:11}" for one in row)
    for one in proofs:
        if one.status != "proved" or not one.ran:
            why = one.reason or (
                "" if one.ran or one.status != "proved" else "by the composition alone"
            )
            yield (
                f"{one.file}:{one.line} {one.name} {one.kernel}:"
                f" {one.status}{': ' if why else ''}{why}"
            )


if __name__ == "__main__":
    sys.exit(main())
