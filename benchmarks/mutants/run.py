"""How often the verifier proves wrong changes of model files, and how often it proves right ones.

    python benchmarks/mutants/run.py                    # 60 mutants and right edits, drawn by kind
    python benchmarks/mutants/run.py --sample 200 --seed 1
    # a kind, a package, or a regular expression of names
    python benchmarks/mutants/run.py --only mask --all
    # what the suite plants, without verifying it
    python benchmarks/mutants/run.py --list --all
    python benchmarks/mutants/run.py --known            # the tables of what was verified before

Makes environments under `.cache/mutants/` the first time. Each mutant is verified in a process of
its own by `regraft verify ORIGINAL CHANGED`; outcomes are kept in `.cache/mutants/outcomes.jsonl`
by both texts and the verifier's source, so that an interrupted run goes on where it stopped. Exits
with 1 where a wrong change was proved.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from mutants import environment, suite
from mutants.core import Files, Mutant
from mutants.store import PACKAGE, Outcome, Store, pair_key, source_key
from mutants.table import report

STORE = environment.STORE / "outcomes.jsonl"
EQUIVALENT = Path(__file__).parent / "equivalent.json"
_REGRAFT = [sys.executable, "-m", "regraft", "verify"]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    interpreters = suite.interpreters()
    files = suite.files(interpreters)
    mutants = suite.select(suite.all_mutants(files), options.only)
    if not options.all:
        mutants = suite.sample(mutants, options.sample, options.seed)
    if options.list:
        for mutant in mutants:
            print(
                f"{mutant.recipe.kind}: {mutant.name}:{mutant.site.line}: {mutant.site.description}"
            )
        return 0
    store = Store(options.results, source_key(), options.any_source)
    known = [store.get(pair_key(mutant.original, mutant.changed)) for mutant in mutants]
    outcomes = [outcome for outcome in known if outcome is not None]
    if not options.known:
        missing = [
            mutant for mutant, outcome in zip(mutants, known, strict=True) if outcome is None
        ]
        with ThreadPoolExecutor(options.jobs) as pool:
            tasks = [
                pool.submit(verify, mutant, files, interpreters[mutant.package], options.time_limit)
                for mutant in missing
            ]
            for number, task in enumerate(as_completed(tasks), len(outcomes) + 1):
                outcome = task.result()
                store.add(outcome)
                outcomes.append(outcome)
                print(
                    f"{number}/{len(mutants)} {outcome.kind}: {outcome.name}: {outcome.outcome}",
                    file=sys.stderr,
                )
    equivalent = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    for line in report(outcomes, equivalent):
        print(line)
    false = (
        o
        for o in outcomes
        if o.kind != "right" and o.outcome == "proved" and o.name not in equivalent
    )
    return int(any(false))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sample", type=int, default=60, metavar="N", help="only N, kinds in turn (default: 60)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--all", action="store_true", help="all of them instead of a sample")
    parser.add_argument("--only", default="", metavar="KIND|PACKAGE|REGEX", help="only these")
    parser.add_argument(
        "--time-limit", type=float, default=300.0, metavar="SECONDS", help="for each mutant"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="verify N mutants at a time (default: 1)"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants, verify nothing")
    parser.add_argument(
        "--known", action="store_true", help="print the tables of what was verified before"
    )
    parser.add_argument(
        "--any-source",
        action="store_true",
        help="take outcomes of other versions of the verifier, too",
    )
    parser.add_argument(
        "--results", type=Path, default=STORE, metavar="FILE", help=f"default: {STORE}"
    )
    return parser.parse_args(arguments)


def verify(mutant: Mutant, files: Files, python: Path, time_limit: float) -> Outcome:
    """Verify a mutant as a user would, in a process and a folder of its own."""
    started = time.monotonic()
    contract = mutant.recipe.contract if has_contracts() else ""
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "changed.py"
        changed.write_bytes(mutant.changed)
        command = [
            *_REGRAFT,
            str(files.path(mutant.module.label)),
            str(changed),
            "--python",
            str(python),
        ]
        command += ["--output-format", "json", "--no-cache", "--time-limit", str(time_limit)]
        command += ["--contract", contract] if contract else []
        process = subprocess.run(
            command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False
        )
    outcome, reason = judge(process.returncode, process.stdout, process.stderr)
    return Outcome(
        pair_key(mutant.original, mutant.changed),
        source_key(),
        mutant.name,
        mutant.recipe.kind,
        mutant.module.label,
        mutant.site.line,
        mutant.site.definition,
        mutant.site.description,
        mutant.recipe.differs,
        outcome,
        reason,
        contract,
        time_limit,
        round(time.monotonic() - started, 1),
    )


def judge(status: int, output: str, errors: str) -> tuple[str, str]:
    """Return the outcome and its reason: exit status 0 is a proof, whatever the verdicts say."""
    try:
        verdicts = json.loads(output)["verdicts"]
    except (json.JSONDecodeError, KeyError):
        return "error", errors.strip()[-300:] or f"exit status {status}"
    if status == 0:
        return "proved", "" if verdicts else "no definition changed"
    for outcome in ("refuted", "unproven"):
        for verdict in verdicts:
            if verdict["status"] == outcome:
                return outcome, f"{verdict['class']}: {verdict['reason']}"
    return "error", f"exit status {status}"


def _environment() -> dict[str, str]:
    """Return the environment in which the verifier that this program imports is the one
    that runs."""
    paths: Iterable[str] = (str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@functools.cache
def has_contracts() -> bool:
    """Whether `regraft verify` has the option `--contract`."""
    process = subprocess.run(
        [*_REGRAFT, "--help"], env=_environment(), capture_output=True, text=True, check=False
    )
    return "--contract" in process.stdout


if __name__ == "__main__":
    sys.exit(main())
