"""Adopter's rules over the modeling files of transformers 4.34.0: places found, and time against `ast.parse`.

    python benchmarks/adopter199/run.py [--json FINDINGS.json]

Fetches the pinned wheel the first time (its text only, under `.cache/`). Single process; without
the cache, then with it filled. The JSON has the shape of `regraft check --output-format json`, so any
scorer of that format takes it.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from wheel import unpacked  # noqa: E402

from regraft.parallel import Task, scan_files  # noqa: E402
from regraft.report import machine  # noqa: E402
from regraft.rules import load_rules  # noqa: E402
from regraft.scan import check_file, check_source, compile_rules, rewrite_file  # noqa: E402
from regraft.source import parse  # noqa: E402

REQUIREMENT = "transformers==4.34.0"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    package = unpacked(REQUIREMENT) / "transformers" / "models"
    files = [
        path
        for path in sorted(package.glob("*/modeling_*.py"))
        if not path.name.startswith(("modeling_tf_", "modeling_flax_"))
    ]
    parse_seconds = _parse(files)
    rules, problems = load_rules(["adopter"])
    compiled, more = compile_rules(rules)
    if problems or more:
        raise SystemExit(f"rules do not load: {problems + more}")
    total, changed = machine.Collector(), []
    started = time.process_time()
    for report in scan_files(files, Task(compiled)):
        total.add(report)
        if report.findings:
            changed.append(Path(report.file))
    seconds = time.process_time() - started
    warm = _warm(files, compiled, total)
    counts = collections.Counter((one["rule"], one["status"]) for one in total.findings)
    print(f"{'rule':28}{'fixable':>9}{'withheld':>10}")
    for rule in rules:
        print(f"{rule.id:28}{counts[rule.id, 'fixable']:>9}{counts[rule.id, 'withheld']:>10}")
    print(f"\n{len(files)} files of {REQUIREMENT}, Python {platform.python_version()}, {platform.machine()}")
    sound = sum(_sound(path, compiled) for path in changed)
    print(f"rewritten, parsed and stable under a second run: {sound} of {len(changed)} files with findings")
    ratio = seconds / parse_seconds
    print(f"CPU seconds: {seconds:.2f} for the scan, {parse_seconds:.2f} for ast.parse alone, ratio {ratio:.1f}")
    print(f"from a filled cache: {warm:.2f}, ratio {warm / parse_seconds:.2f}")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if options.json:
        options.json.write_text(json.dumps(total.data(seconds)))
    return 0


def _parse(files: list[Path]) -> float:
    texts = [path.read_bytes() for path in files]
    started = time.process_time()
    for text in texts:
        ast.parse(text)
    return time.process_time() - started


def _warm(files: list[Path], compiled, cold: machine.Collector) -> float:  # type: ignore[no-untyped-def]
    """CPU seconds for all files when nothing has changed since the scan before."""
    with tempfile.TemporaryDirectory() as directory:
        task = Task(compiled, cache=Path(directory))
        collections.deque(scan_files(files, task), maxlen=0)
        total = machine.Collector()
        started = time.process_time()
        for report in scan_files(files, task):
            total.add(report)
        seconds = time.process_time() - started
    if total.findings != cold.findings:
        raise SystemExit("the cache gives other findings than the scan")
    return seconds


def _sound(path: Path, compiled) -> bool:  # type: ignore[no-untyped-def]
    changed, _ = rewrite_file(check_file(path, compiled), compiled)
    source = parse(str(path), changed)
    again = check_source(source, compiled)
    return all(one.patch is None for one in again.findings)


if __name__ == "__main__":
    sys.exit(main())
