"""Prove each rewrite that the pages of the rules show.

    python benchmarks/page_proofs.py [--select adopter,torch,idioms] [--time-limit SECONDS]

Every example with `before` and `after` is verified as `regraft check --fix` verifies a rewrite of
the rules, without a driver. Prints the verdict on each changed definition with its seconds, and the
counts at the end. Exits with 1 where a rewrite is refuted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from regraft.rules import load_rules, page_examples
from regraft.verification.types import Terms
from regraft.verification.verdict_cache import verify_with_cache


def main() -> int:
    """Print the verdicts; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--select", default="adopter,torch,idioms", metavar="RULES")
    parser.add_argument("--time-limit", type=float, default=120.0, metavar="SECONDS")
    options = parser.parse_args()
    rules, problems = load_rules(options.select.split(","), ())
    for problem in problems:
        print(problem)
    counts: Counter[str] = Counter()
    for rule in rules:
        for example in page_examples(rule.page):
            if example.kind != "rewrite":
                continue
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "example.py")
                file.write_text(example.before)
                verdicts = verify_with_cache(
                    file,
                    example.after.encode(),
                    time_limit=options.time_limit,
                    terms=Terms().for_rules(tested=True),
                )
            seconds = time.perf_counter() - started
            for verdict in verdicts:
                counts[verdict.status] += 1
                text = verdict.reason.replace(f"{folder}/", "")[:200]
                reason = f": {text}" if text else ""
                place = f"{rule.id}, line {example.line}, {verdict.definition}"
                print(f"{place}: {verdict.status} ({seconds:.0f} s){reason}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    return int(bool(counts["refuted"]) or bool(problems))


if __name__ == "__main__":
    sys.exit(main())
