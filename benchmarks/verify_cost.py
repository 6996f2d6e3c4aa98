"""Cost of verifying rewrites: one file, and several one after the other in one process.

    python benchmarks/verify_cost.py [--before TREE] [--files FILE...]

Prints seconds of processor time, of all processes together, for each effort. With `--before`, the
path of another checkout of this project, each measurement is a pair: that checkout with its
defaults, then this one. Files are the modeling files of transformers, BERT's by default.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
REPEATS = 3
MANY = 8
SMALL = """
import torch
from torch import nn


class Scores(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.softmax(self.dense(x), -1) + {number}
"""
VERIFY_ALL = """
import sys
from pathlib import Path
from regraft.verification import verify
for path in map(Path, sys.argv[1:]):
    changed = path.read_bytes().replace(b"torch.softmax(self.dense(x), -1)", b"self.dense(x).softmax(-1)")
    (verdict,) = verify(path, changed{effort})
    assert verdict.status == "proved", verdict.reason
"""  # noqa: E501


def seconds(tree: Path, arguments: list[str], folder: str) -> float:
    """Return the processor time of a Python program that imports Regraft from a checkout, with its
    child processes."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "REGRAFT_CACHE_DIR": folder,
    }
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"failed in {tree}: {' '.join(arguments)}")
    return usage.ru_utime + usage.ru_stime


def print_row(label: str, before: list[float], now: list[float]) -> None:
    """Print the medians, and the median of the ratios if there are pairs."""
    row = f"{label:48}"
    if before:
        ratio = statistics.median(new / old for old, new in zip(before, now, strict=True))
        row += f"{statistics.median(before):8.2f} s before, {ratio:5.2f} times that now:"
    print(f"{row}{statistics.median(now):8.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="another checkout, measured beside this one")
    parser.add_argument("--files", nargs="*", type=Path, help="files to rewrite and to verify")
    options = parser.parse_args()
    if options.files is None:
        import transformers

        options.files = [Path(transformers.__path__[0]) / "models/bert/modeling_bert.py"]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()},"
        f" torch {metadata.version('torch')}, transformers {metadata.version('transformers')}"
    )
    with tempfile.TemporaryDirectory() as folder:
        small_files = [Path(folder) / f"scores{number}.py" for number in range(MANY)]
        for number, path in enumerate(small_files):
            path.write_text(SMALL.format(number=number))
        paths = [str(path) for path in small_files]
        for effort in ("low", "default"):
            programs = {
                "one small file": (VERIFY_ALL, paths[:1]),
                f"{MANY} small files in one process": (VERIFY_ALL, paths),
            }
            for label, (program, arguments) in programs.items():
                before, now = [], []
                for _ in range(REPEATS):
                    if options.before:
                        command = ["-c", program.format(effort=""), *arguments]
                        before.append(seconds(options.before, command, folder))
                    command = ["-c", program.format(effort=f", effort={effort!r}"), *arguments]
                    now.append(seconds(HERE, command, folder))
                print_row(f"{label}, effort {effort}", before, now)
            for path in options.files:
                command = ["-m", "regraft", "verify", "--all", "--no-cache", str(path)]
                before, now = [], []
                for _ in range(REPEATS):
                    if options.before:
                        before.append(seconds(options.before, command, folder))
                    now.append(seconds(HERE, [*command, "--effort", effort], folder))
                print_row(f"{path.name}, effort {effort}", before, now)


if __name__ == "__main__":
    main()
