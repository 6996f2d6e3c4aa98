"""The baseline: one hand-written ast-grep pattern for each rule, over the same files.

ast-grep lives in an environment of the benchmark's own, made from `requirements.txt` the first
time; there this file is also the program that searches (file names on standard input, matches on
standard output, both JSON).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATTERNS = HERE / "patterns.json"
REQUIREMENTS = HERE / "requirements.txt"
ENVIRONMENT = HERE.parent.parent / ".cache" / "ast-grep"
_INSTALLED = ENVIRONMENT / "requirements.txt"


def search(files: Sequence[Path]) -> dict[str, Any]:
    """`matches` (rule, file, lines) and the CPU `seconds` by rule and of `parsing`."""
    request = json.dumps([str(path) for path in files])
    done = subprocess.run(
        [_python(), str(Path(__file__).resolve())],
        input=request,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ready() -> bool:
    """Whether the environment is there, with what the requirements say."""
    return _INSTALLED.is_file() and _INSTALLED.read_bytes() == REQUIREMENTS.read_bytes()


def _python() -> str:
    """The interpreter of the environment; made anew when the requirements change."""
    python = ENVIRONMENT / "bin" / "python"
    if not ready():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
        _INSTALLED.write_bytes(REQUIREMENTS.read_bytes())
    return str(python)


def _main() -> None:
    """What runs in the environment."""
    from ast_grep_py import SgRoot  # type: ignore[import-not-found]

    patterns = json.loads(PATTERNS.read_text())
    seconds = dict.fromkeys([*patterns, "parsing"], 0.0)
    matches = []
    for file in json.load(sys.stdin):
        started = time.process_time()
        root = SgRoot(Path(file).read_text(encoding="utf-8"), "python").root()
        seconds["parsing"] += time.process_time() - started
        for rule, pattern in patterns.items():
            started = time.process_time()
            found = root.find_all(pattern)
            seconds[rule] += time.process_time() - started
            matches += [
                {"rule": rule, "file": file, "lines": _lines(node, pattern)} for node in found
            ]
    json.dump({"matches": matches, "seconds": seconds}, sys.stdout)


def _lines(match: Any, pattern: dict[str, Any]) -> list[int]:
    """Lines of a match, from the statement before on where the pattern names one."""
    nodes = [match, *_captured(match, pattern)]
    first = min(node.range().start.line for node in nodes)
    return list(range(first + 1, match.range().end.line + 2))


def _captured(match: Any, pattern: dict[str, Any]) -> Iterator[Any]:
    for name in pattern.get("constraints", {}):
        node = match.get_match(name)
        if node is not None:
            yield node


if __name__ == "__main__":
    _main()
