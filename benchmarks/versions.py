"""Run the core tests and a sample of proofs with another interpreter, whose versions of Python and
PyTorch they test.

    python benchmarks/versions.py --python PATH [--proofs-only]

The interpreter has PyTorch, pytest, hypothesis, the packages that Regraft needs and, for the
proofs, transformers. Prints a line with the versions, the last line of the tests, and for each
model file the outcome of verifying what Regraft rewrites in it. Ends with 1 where a test fails or a
rewrite is refuted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    *(
        f"tests/test_{name}.py"
        for name in ("bodies", "cache", "cli", "constants", "contract_rules", "difference")
    ),
    *(
        f"tests/test_{name}.py"
        for name in ("lock", "names", "needs", "rewrite", "rule_pages", "rules", "source")
    ),
    *(f"tests/test_{name}.py" for name in ("rule_specifications", "target", "vendor")),
    *(f"tests/{name}" for name in ("dsl", "structure", "ops", "live/test_optimize.py")),
    *(
        f"tests/verify/test_{name}.py"
        for name in ("evidence", "domain", "hook_order", "transforms")
    ),
)
MODELS = ("bert", "llama", "gpt2")
VERSIONS = """\
import importlib.metadata, platform
names = ("torch", "numpy", "transformers")
found = {one.metadata["Name"].lower(): one.version for one in importlib.metadata.distributions()}
print("Python", platform.python_version() + ",", ", ".join(f"{name} {found.get(name, 'missing')}" for name in names))
"""  # noqa: E501
LOCATE = (
    "import importlib.util;"
    " print(importlib.util.find_spec('transformers').submodule_search_locations[0])"
)


def run(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter on the repository's own source."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [python, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def run_tests(python: str) -> bool:
    """Print the failures of the core tests and their summary, and return whether all passed."""
    result = run(
        python,
        "-m",
        "pytest",
        "-v",
        "-n",
        "1",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "--no-header",
        *TESTS,
    )
    lines = result.stdout.splitlines()
    print(*(line for line in lines if line.startswith(("FAILED", "ERROR"))), sep="\n")
    print("tests:", lines[-1].strip("= ") if lines else result.stderr.strip()[-200:], flush=True)
    return result.returncode == 0


def prove(python: str, path: Path) -> bool:
    """Print the outcome of verifying every rewrite in a model file, and return whether none is
    refuted."""
    result = run(
        python,
        "-m",
        "regraft",
        "verify",
        str(path),
        "--all",
        "--no-cache",
        "--output-format",
        "json",
    )
    try:
        verdicts = json.loads(result.stdout)["verdicts"]
    except (json.JSONDecodeError, KeyError, TypeError):
        print(f"{path.name}: {(result.stderr.strip() or 'no output').splitlines()[-1]}")
        return False
    statuses = Counter(verdict["status"] for verdict in verdicts)
    print(
        f"{path.name}:"
        f" {', '.join(f'{number} {status}' for status, number in sorted(statuses.items()))}",
        flush=True,
    )
    for verdict in verdicts:
        if verdict["status"] != "proved":
            print(f"  {verdict['class']}: {verdict['reason'].splitlines()[0][:150]}")
    return "refuted" not in statuses


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description="core tests and a sample of proofs with another interpreter"
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter")
    parser.add_argument("--proofs-only", action="store_true", help="run no tests")
    options = parser.parse_args()
    print(run(options.python, "-c", VERSIONS).stdout.strip(), flush=True)
    passed = options.proofs_only or run_tests(options.python)
    package = run(options.python, "-c", LOCATE).stdout.strip()
    if not package:
        print("proofs: transformers is missing")
        return 1
    outcomes = [
        prove(options.python, Path(package, "models", name, f"modeling_{name}.py"))
        for name in MODELS
    ]
    return 0 if passed and all(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
