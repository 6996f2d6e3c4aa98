"""Processor time of `regraft check FILE`, and its parts.

    python benchmarks/check_time.py FILE...

Each file is checked ten times with the default rules, in a process and with a cache of its own:
once as the first check after an installation, which parses the rules, and nine times with parsed
rules and without a report of the file. Prints the time of the first, and the best and the median of
the others, in seconds of processor time (user and system), then the parts in milliseconds, each the
median of nine runs in one further process.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPEATS = 9
PARTS = """
import json, sys, time
times = {}
before = 0.0
def end(part):
    global before
    now = time.process_time()
    times[part] = now - before
    before = now
end("interpreter")
import regraft.cli
import regraft.cli.check
end("import of the command line")
import gc
from pathlib import Path
import regraft.report.json_report, regraft.scanning.parallel, regraft.scanning.rule_selection
gc.disable()  # as the command does
end("import of the scan")
from regraft.rules import load_rules
rules, _ = load_rules()
end("rules from the cache")
from regraft.rules.worth import chosen_target
from regraft.scanning import check_source, compile_rules, with_worth
compiled = with_worth(compile_rules(rules)[0], chosen_target("auto"), "--all")
end("compiling of the rules")
from regraft.source import text
source = text.read(Path(sys.argv[1]))
end("reading and parsing")
read = text.read
reading = 0.0
def timed_read(path):
    global reading
    started = time.process_time()
    result = read(path)
    reading += time.process_time() - started
    return result
text.read = timed_read
check_source(source, compiled)
end("structure, matching and rewriting")
times["structure, matching and rewriting"] -= reading
times["reading and parsing of imported files"] = reading
print(json.dumps(times))
"""


def environment(cache: str) -> dict[str, str]:
    """Return the environment of a check: compiled modules are kept, as in an installed package."""
    variables = {**os.environ, "REGRAFT_CACHE_DIR": cache}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def cpu_seconds(arguments: Sequence[str], cache: str) -> float:
    """Run Python with arguments, and return its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments], env=environment(cache), stdout=subprocess.DEVNULL, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def delete_reports(cache: str) -> None:
    """Delete what a cache holds besides parsed rules."""
    for folder in Path(cache).iterdir():
        if folder.is_dir() and folder.name != "rules":
            shutil.rmtree(folder)


def times_of_checks(file: str, cache: str) -> list[float]:
    """Return the processor times of the first check of a file and of the others."""
    times = []
    for _ in range(REPEATS + 1):
        delete_reports(cache)
        command = ["-m", "regraft", "check", "--no-config", "--no-lock", file]
        times.append(cpu_seconds(command, cache))
    return times


def times_of_parts(file: str, cache: str) -> dict[str, float]:
    """Return the median processor time of each part of a check."""
    runs: list[dict[str, float]] = []
    for _ in range(REPEATS):
        result = subprocess.run(
            [sys.executable, "-c", PARTS, file],
            env=environment(cache),
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(json.loads(result.stdout))
    return {part: statistics.median(run[part] for run in runs) for part in runs[0]}


def main() -> int:
    if not sys.argv[1:]:
        print(__doc__)
        return 2
    cpu_seconds(["-c", "import regraft.cli.check_run, regraft.scanning"], "")  # compiles modules
    for file in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as cache:
            first, *others = times_of_checks(file, cache)
            lines = len(Path(file).read_text("utf-8").splitlines())
            print(
                f"{file} ({lines} lines): best {min(others):.3f} s, median"
                f" {statistics.median(others):.3f} s; the first {first:.3f} s"
            )
            parts = times_of_parts(file, cache)
            for part, seconds in parts.items():
                print(f"{seconds * 1000:8.0f} ms  {part}")
            rest = statistics.median(others) - sum(parts.values())
            print(f"{rest * 1000:8.0f} ms  the rest: options, report, cache, end of the process")
    return 0


if __name__ == "__main__":
    sys.exit(main())
