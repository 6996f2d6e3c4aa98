"""The main job on real modeling files: find, show the diff, prove it by running both versions."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

FILES = ("models/bert/modeling_bert.py", "models/llama/modeling_llama.py")


def main() -> int:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        print("transformers is not installed: run `make demo`", file=sys.stderr)
        return 2
    package = Path(spec.origin).parent
    failed = False
    for name in FILES:
        file = f"{package.name}/{name}"
        heading(f"regraft check transformers/{name}")
        run(package.parent, "check", file)
        heading(f"regraft check --diff transformers/{name}")
        run(package.parent, "check", "--diff", file)
        heading(f"regraft verify transformers/{name}   (both versions run; this takes a while)")
        failed |= run(package.parent, "verify", file) != 0
    return int(failed)


def heading(text: str) -> None:
    print(f"\n\033[1m$ {text}\033[0m" if sys.stdout.isatty() else f"\n$ {text}", flush=True)


def run(directory: Path, *arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "regraft", *arguments], cwd=directory, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
