"""What Regraft's own choice is worth for whole models, beside what else their users can choose.

Each model of `models.py` is compared, in inference and in a training step, with itself: in eager
mode with eager attention, with the library's own `sdpa` where it has it, as a person rewrites it
where it is one of `idiom_models.py`, compiled by `torch.compile`, as Regraft rewrites it by what
pays on the device with nothing selected, and both together. Two versions are compared in pairs that
run directly one after the other, by the processor time of one thread on CPU: how many times as fast
the first is, with the interval that holds the true number with a probability of 95%, and its peak
memory, that of the other being 1.

    python benchmarks/worth/run.py [--only REGEX] [--modes inference,training] [--device cuda]
        [--repositories DIRECTORY] [--rounds N] [--no-compile] [--again | --known]

A measurement is kept in `.cache/worth/`, by machine, versions and Regraft's commit, and not made
again unless `--again` is given, so a run can be cut off and go on; `--known` prints what is there
and measures nothing. Models whose package is not
installed, or whose checkout DIRECTORY/OWNER+NAME is missing, are named and left out.

Exits with 1 where Regraft's own choice is slower than eager (the whole interval is below 0.98), or
slower with `torch.compile` than `torch.compile` alone or with `sdpa` (the whole interval below
0.98), or where a measurement failed.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from models import COMMITS, SUBJECTS
from torch import nn

import regraft
from regraft.benchmarking.machine_name import machine
from regraft.benchmarking.median_intervals import is_decided
from regraft.benchmarking.paired_measurement import compare
from regraft.benchmarking.steps import Step, peak, step
from regraft.live import NothingOptimized

ROOT = Path(__file__).parents[2]
SLOWEST = 0.98
LIMIT = 900.0  # seconds for one model in one mode
PACKAGES = ("torch", "transformers", "timm", "diffusers")


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison of two versions of a model.

    speed    how many times as fast the first version is: low, median, high
    seconds  the seconds of a step of the second version
    memory   the peak memory of the first version as a part of that of the second
    compile  the seconds that compiling the first version took; None where it is not compiled
    """

    name: str
    against: str
    speed: tuple[float, float, float]
    seconds: float
    memory: float
    compile: float | None = None

    @property
    def is_too_slow(self) -> bool:
        """Whether Regraft's own choice, alone or compiled, is slower than what it is compared
        with."""
        return "Regraft" in self.name and self.speed[2] < SLOWEST


@dataclass(frozen=True, slots=True)
class Entry:
    """The measurements of a model in a mode: the rules that Regraft applies, the rows, and why
    there are none."""

    subject: str
    mode: str
    rules: tuple[str, ...]
    rows: tuple[Row, ...]
    error: str = ""


class Versions:
    """The versions of one model, which share its parameters' numbers.

    names  the versions that are not compiled
    rules  the rules that Regraft applies by itself
    """

    def __init__(self, name: str, mode: str, device: str, folder: Path) -> None:
        torch.manual_seed(0)
        subject = SUBJECTS[name]
        self.device, self.is_training = torch.device(device), mode == "training"
        eager, self.call = subject.build("eager", folder)
        eager = eager.to(device)
        self.call = {key: value.to(device) for key, value in self.call.items()}
        self.models: dict[str, nn.Module] = {"eager": eager}
        if getattr(eager, "_supports_sdpa", False):
            sdpa = subject.build("sdpa", folder)[0].to(device)
            sdpa.load_state_dict(eager.state_dict())
            self.models["sdpa"] = sdpa
        if subject.by_hand:
            self.models["by hand"] = copy.deepcopy(eager)
            for module in self.models["by hand"].modules():
                module.__class__ = subject.by_hand.get(type(module), type(module))
        self.rules: tuple[str, ...] = ()
        for base, label in (("eager", "Regraft"), ("sdpa", "sdpa + Regraft")):
            if base in self.models:
                self._rewrite(base, label)
        self.names = tuple(self.models)
        self.compile_seconds: dict[str, float] = {}
        self._steps: dict[str, Step] = {}
        self._peaks: dict[str, int] = {}

    def _rewrite(self, base: str, label: str) -> None:
        """Add the model that Regraft makes of another by its own choice, if it changes anything."""
        rewritten = copy.deepcopy(self.models[base])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NothingOptimized)
            report = regraft.optimize(rewritten, lock=False, verify=False)
        if report.changes:
            self.models[label] = rewritten
        if base == "eager":
            self.rules = report.rules

    def step(self, name: str) -> Step:
        """Return the step of a version; NAME + compile is compiled, and its seconds are kept."""
        if name not in self._steps:
            base = name.removesuffix(" + compile")
            model: Any = self.models[base].train(self.is_training)
            if base != name:
                torch.compiler.reset()
                model = torch.compile(model, dynamic=False)
            self._steps[name] = step(model, [((), self.call)], self.is_training)
            if base != name:
                started = time.perf_counter()
                self._steps[name]()
                self.compile_seconds[name] = time.perf_counter() - started
        return self._steps[name]

    def peak(self, name: str) -> int:
        """Return the peak memory of a version in bytes, measured once."""
        if name not in self._peaks:
            self._peaks[name] = peak(self.step(name), self.device)
        return self._peaks[name]

    def row(self, name: str, against: str, rounds: int) -> Row:
        """Compare two versions."""
        steps = self.step(against), self.step(name)
        pair = compare(*steps, rounds, self.device, is_enough=is_decided)
        memory = self.peak(name) / max(self.peak(against), 1)
        speed = pair.speed.low, pair.speed.median, pair.speed.high
        return Row(name, against, speed, pair.old.median, memory, self.compile_seconds.get(name))


def comparisons(names: tuple[str, ...], with_compiled: bool) -> Iterator[tuple[str, str]]:
    """Yield the pairs of versions to compare, the first against the second."""
    yield from ((name, "eager") for name in ("sdpa", "by hand", "Regraft") if name in names)
    if "sdpa + Regraft" in names:
        yield "sdpa + Regraft", "sdpa"
    if not with_compiled:
        return
    yield "eager + compile", "eager"
    if "Regraft" in names:
        yield "Regraft + compile", "eager + compile"
    if {"sdpa", "Regraft"} <= set(names):
        yield "Regraft + compile", "sdpa + compile"


def measure(name: str, mode: str, options: argparse.Namespace) -> Entry:
    """Measure a model in a mode."""
    versions = Versions(name, mode, options.device, folder_of(name, options.repositories))
    pairs = comparisons(versions.names, not options.no_compile)
    rows = [versions.row(*pair, options.rounds) for pair in pairs]
    return Entry(name, mode, versions.rules, tuple(rows))


def versions_text() -> str:
    """Return the versions of what is measured and of what measures."""
    parts = [
        f"{name} {importlib.metadata.version(name)}"
        for name in PACKAGES
        if importlib.util.find_spec(name) is not None
    ]
    return ", ".join((*parts, f"Python {platform.python_version()}"))


def source_hash() -> str:
    """Return a hash of Regraft's source and of the models, which decide what is measured."""
    folders = ROOT / "src", ROOT / "examples" / "own-repository"
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    own_paths = [Path(__file__).parent / name for name in ("models.py", "idiom_models.py")]
    for path in sorted((*paths, *own_paths)):
        if path.suffix in (".py", ".rule", ".json"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def lacking(name: str, repositories: Path | None) -> str:
    """Return what a model needs and is not there; "" where all is there."""
    subject = SUBJECTS[name]
    if importlib.util.find_spec(subject.package) is None:
        return f"package {subject.package} is not installed"
    if subject.repository and not folder_of(name, repositories).is_dir():
        commit = COMMITS[subject.repository]
        return (
            f"needs a checkout of https://github.com/{subject.repository} at {commit} as"
            f" {subject.repository.replace('/', '+')} in --repositories"
        )
    return ""


def folder_of(name: str, repositories: Path | None) -> Path:
    """Return the folder of the checkout that a model needs."""
    return (repositories or Path("missing")) / SUBJECTS[name].repository.replace("/", "+")


def entry_of(name: str, mode: str, options: argparse.Namespace, cache: Path) -> Entry:
    """Return the measurements of a model in a mode, from the cache or from a child process."""
    kind = "-eager" if options.no_compile else ""
    path = cache / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{mode}{kind}.json"
    if path.exists() and not options.again:
        return read(path)
    if options.known:
        return Entry(name, mode, (), (), "not measured yet")
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Inductor takes the value of `--only` for a name, and writes it unescaped into what it compiles
    command = [sys.executable, __file__, "--child", str(path), "--subject", name]
    command += ["--modes", mode, "--device", options.device, "--rounds", str(options.rounds)]
    command += ["--no-compile"] * options.no_compile
    if options.repositories:
        command += ["--repositories", str(options.repositories)]
    try:
        process = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return Entry(name, mode, (), (), f"FAILED: took longer than {LIMIT:.0f} s")
    if not path.exists():
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        return Entry(name, mode, (), (), f"FAILED: {lines[-1]}")
    return read(path)


def read(path: Path) -> Entry:
    """Read measurements from a file."""
    data = json.loads(path.read_text("utf-8"))
    rows = tuple(Row(**{**row, "speed": tuple(row["speed"])}) for row in data.pop("rows"))
    return Entry(**{**data, "rules": tuple(data["rules"]), "rows": rows})


def write(path: Path, entry: Entry) -> None:
    """Write measurements to a file, as a whole."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(dataclasses.asdict(entry)), "utf-8")
    partial.replace(path)


def lines_of(entry: Entry) -> Iterator[str]:
    """Yield the lines of a table for the measurements of a model in a mode."""
    title = f"{entry.subject}, {entry.mode}"
    if entry.error:
        yield f"{title}: {entry.error}"
        return
    seconds = next(row.seconds for row in entry.rows if row.against == "eager")
    yield f"{title}: {seconds * 1000:.0f} ms; Regraft: {', '.join(entry.rules) or 'unchanged'}"
    for row in entry.rows:
        low, median, high = row.speed
        speed = f"{median:.2f} ({low:.2f}-{high:.2f})"
        after = "" if row.compile is None else f"  compiled in {row.compile:.0f} s"
        mark = "  SLOWER" * row.is_too_slow
        label = f"{row.name} / {row.against}"
        yield f"    {label:36} {speed:20} {row.memory:5.2f}{after}{mark}"


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only models whose names match this")
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repositories", type=Path, help="the folder of the checkouts")
    parser.add_argument("--rounds", type=int, default=10, help="the most pairs of a comparison")
    parser.add_argument(
        "--no-compile", action="store_true", help="leave out the versions that are compiled"
    )
    parser.add_argument("--again", action="store_true", help="measure again what is in the cache")
    parser.add_argument("--known", action="store_true", help="measure nothing")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--subject", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_child(options: argparse.Namespace) -> int:
    """Measure the model that is named, in the mode that is named, and write the result."""
    torch.set_num_threads(1)
    entry = measure(options.subject, options.modes, options)
    write(options.child, entry)
    return 0


def main() -> int:
    options = parse_options()
    if options.child:
        return run_child(options)
    where = machine(torch.device(options.device))
    key = hashlib.sha256(f"{where} {versions_text()} {source_hash()}".encode()).hexdigest()[:12]
    cache = ROOT / ".cache" / "worth" / key
    print(f"{where}, one thread; {versions_text()}; {datetime.now(timezone.utc):%Y-%m-%d}")
    print("times as fast (95% interval), and part of the peak memory\n", flush=True)
    is_bad = False
    for name, subject in SUBJECTS.items():
        if not re.search(options.only, name):
            continue
        missing = lacking(name, options.repositories)
        if missing:
            print(f"{name}: not measured: {missing}\n", flush=True)
            continue
        for mode in subject.modes:
            if mode in options.modes.split(","):
                entry = entry_of(name, mode, options, cache)
                print("\n".join(lines_of(entry)), end="\n\n", flush=True)
                is_bad |= bool(entry.error) or any(row.is_too_slow for row in entry.rows)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
