"""The GPU suites: what can be tried without a device, and what needs one.

    python benchmarks/gpu/run.py --results DIRECTORY [--only STEP,...]
    python benchmarks/gpu/run.py --list

Each step runs in a process of its own, for at most its limit, and writes what it prints to
DIRECTORY/STEP.txt, with how it ended in the first line. Steps that ended are not run again (delete
the file to run one again); one that was cut off begins again. Steps that need a device are skipped,
with the reason, where there is none. Exits with 1 where a step failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import fake_device

ROOT = Path(__file__).resolve().parents[2]
GPU = "benchmarks/gpu"
LIMIT = 480  # seconds of a step
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"
NO_DEVICE = """
import torch
if not torch.backends.cuda.is_built():
    print(f"torch {torch.__version__} is built without CUDA")
elif not torch.cuda.is_available():
    print("there is no CUDA device")
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its name, what it tells, and the arguments of Python that run it.

    needs         packages that it needs
    needs_device  whether it needs a CUDA device, or else a fake one
    limit         the seconds after which it is ended, and has failed
    """

    name: str
    words: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    needs_device: bool = True
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended: PASSED, FAILED or SKIPPED, and why."""

    status: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status


LIGER = ("torch", "triton", "liger_kernel")
TORCH = ("torch",)


def rules_step(pack: str) -> Step:
    """Return the step that measures the rules of a pack."""
    script = "benchmarks/worth/rules.py"
    arguments = (script, "--device", "cuda", "--only", f"^{pack}/", "--seconds-per-case", "0.5")
    needs = LIGER if pack == "liger" else TORCH
    return Step(f"rules-{pack}", f"what the rules of pack {pack} are worth", arguments, needs)


def model_step(name: str) -> Step:
    """Return the step that compares a model with torch.compile and Liger's own patch."""
    options = "--packs liger,torch,adopter --mode both --rounds 8 --compile --liger --no-verify"
    target = f"{GPU}/targets.py:{name}"
    return Step(
        f"models-{name}",
        "a model against torch.compile and Liger's own patch",
        ("-m", "regraft", "bench", target, *options.split()),
        (*LIGER, "transformers"),
    )


def tests_step(name: str, words: str, *paths: str) -> Step:
    """Return the step that runs tests on CUDA, as `make test-gpu` does."""
    return Step(name, words, ("-m", "pytest", "-q", *paths), ("pytest", *LIGER))


# The most informative first.
STEPS = (
    Step(
        "liger",
        "each of Liger's kernels against the composition: results, gradients, times",
        (f"{GPU}/liger_kernels.py",),
        LIGER,
    ),
    rules_step("liger"),
    model_step("llama"),
    tests_step("ops-liger", "the tests of Liger's kernels", "tests/liger"),
    rules_step("torch"),
    tests_step("ops", "the tests of the operators", "tests/ops"),
    Step(
        "thresholds",
        "the sizes from which postponed scores and folded weights pay",
        (f"{GPU}/thresholds.py",),
        TORCH,
    ),
    model_step("qwen3"),
    rules_step("adopter"),
    model_step("bert"),
    rules_step("idioms"),
    tests_step("ops-rules", "the specifications of the rules", "tests/test_rule_specifications.py"),
    Step(
        "fake",
        "the CUDA branches of the ops on a fake device",
        (f"{GPU}/fake.py",),
        LIGER,
        needs_device=False,
    ),
    *(
        Step(
            f"kernels-{target}",
            f"Liger's kernels compiled for sm_{target}",
            (f"{GPU}/kernels.py", "--target", target),
            LIGER,
            needs_device=False,
        )
        for target in ("80", "90")
    ),
    Step(
        "counts",
        "launches and bytes of the subjects of all rules, counted",
        (f"{GPU}/counts.py",),
        LIGER,
        needs_device=False,
    ),
)


def no_device_reason() -> str:
    """Return why no step can run on a CUDA device here; "" where one can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    command = [sys.executable, "-c", NO_DEVICE]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or ("torch does not load" if result.returncode else "")


def skip_reason(step: Step, no_device: str) -> str:
    """Return why a step cannot run here; "" where it can."""
    packages = [name for name in step.needs if importlib.util.find_spec(name) is None]
    if packages:
        return f"{', '.join(packages)} {'is' if len(packages) == 1 else 'are'} not installed"
    return no_device if step.needs_device else fake_device.missing()


def earlier_outcome(path: Path) -> Outcome | None:
    """Return how a step ended according to its file; None where it did not end."""
    if not path.exists():
        return None
    with path.open(encoding="utf-8") as file:
        status, _, reason = file.readline().strip().removeprefix("# ").partition(": ")
    return Outcome(status, reason) if status in (PASSED, FAILED) else None


def run_step(step: Step, folder: Path) -> Outcome:
    """Run a step, and write its file; what it printed before its limit is kept."""
    partial = folder / f"{step.name}.partial"
    started = time.monotonic()
    with partial.open("w", encoding="utf-8") as file:
        status = run_process(step, file.fileno())
    seconds = round(time.monotonic() - started)
    outcome = Outcome(FAILED if status else PASSED, status or f"{seconds} s")
    text = partial.read_text("utf-8", errors="replace")
    partial.write_text(f"# {outcome}\n{text}", "utf-8")
    partial.replace(folder / f"{step.name}.txt")
    return outcome


def run_process(step: Step, output: int) -> str:
    """Run a step's process; return why it failed, or ""."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    environment.pop("TRITON_INTERPRET", None)
    if step.needs_device and step.arguments[:2] == ("-m", "pytest"):
        environment["REGRAFT_TEST_DEVICE"] = "cuda"
    process = subprocess.Popen(
        [sys.executable, *step.arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        status = process.wait(step.limit)
    except subprocess.TimeoutExpired:
        return f"did not end within {step.limit} s"
    finally:
        end_group(process)
    return f"exit status {status}" if status else ""


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End what a step's process has left running."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def run_steps(steps: Sequence[Step], folder: Path) -> dict[str, Outcome]:
    """Run the steps that did not end earlier, one after the other, and return how each ended."""
    folder.mkdir(parents=True, exist_ok=True)
    no_device = no_device_reason() if any(step.needs_device for step in steps) else ""
    outcomes: dict[str, Outcome] = {}
    for step in steps:
        reason = skip_reason(step, no_device)
        outcome = earlier_outcome(folder / f"{step.name}.txt")
        if outcome is None:
            outcome = Outcome(SKIPPED, reason) if reason else run_step(step, folder)
        outcomes[step.name] = outcome
        print(f"{step.name}: {outcome}", flush=True)
    return outcomes


def chosen_steps(names: str) -> list[Step]:
    """Return the steps of these names, separated by commas, in order; all for "".

    A name also stands for all steps whose names go on with a hyphen: `rules` for `rules-torch`.
    Raises ValueError for a name that no step has.
    """
    wanted = [name for name in names.split(",") if name]
    chosen = {
        name: [step for step in STEPS if f"{step.name}-".startswith(f"{name}-")] for name in wanted
    }
    unknown = [name for name, steps in chosen.items() if not steps]
    if unknown:
        raise ValueError(f"unknown step {', '.join(unknown)}; --list shows the steps")
    return [step for step in STEPS if not wanted or any(step in steps for steps in chosen.values())]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, help="the directory of the results")
    parser.add_argument("--only", default="", help="only these steps, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the steps")
    options = parser.parse_args()
    try:
        steps = chosen_steps(options.only)
    except ValueError as problem:
        parser.error(str(problem))
    if options.list:
        for step in steps:
            device = "device" if step.needs_device else ""
            print(f"{step.name:14} {device:7} {step.words}")
        return 0
    if options.results is None:
        parser.error("--results DIRECTORY is missing")
    outcomes = run_steps(steps, options.results)
    return summarise(outcomes)


def summarise(outcomes: dict[str, Outcome]) -> int:
    """Print how many steps ended in which way; return 1 where a step failed."""
    by_status: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        by_status.setdefault(outcome.status, []).append(name)
    for status in (PASSED, SKIPPED, FAILED):
        names = by_status.get(status, [])
        print(f"{len(names)} {status}{': ' if names else ''}{', '.join(names)}")
    return int(FAILED in by_status)


if __name__ == "__main__":
    sys.exit(main())
