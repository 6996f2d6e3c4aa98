"""What each rule is worth: small modules as people write them against what Regraft makes of them.

Each module of `subjects/` is rewritten by its rule alone. Both versions have the same parameters
and inputs, have to give the same results and gradients, and are measured in pairs, at three sizes,
in inference and in training (with the backward pass, for all parameters and floating inputs): on
CPU by the processor time of one thread, on CUDA by the time until the device has finished. Prints
how many times as fast the rewritten module is, with the interval that holds the true number with a
probability of 95%, and its peak memory, that of the original being 1.

    python benchmarks/worth/rules.py [--only REGEX] [--sizes small,typical,large] [--device cuda]
    python benchmarks/worth/rules.py --write      # replaces what the packs' worth.json say

Rules whose requirements are not installed are skipped (all of pack `liger` need Liger, for its
kernels). Exits with 1 where a subject cannot be measured; the others are measured anyway, but of a
rule of which a case is lacking nothing is written: the lacking one may be where it loses.
"""

from __future__ import annotations

import argparse
import functools
import gc
import inspect
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from subjects import MODES, SIZES, Subject, subjects

from regraft.benchmarking import median_intervals
from regraft.benchmarking.machine_name import machine
from regraft.benchmarking.median_intervals import FEWEST
from regraft.benchmarking.paired_measurement import compare
from regraft.benchmarking.steps import SLICE, Step, peak
from regraft.rules import load_rules
from regraft.rules.package_requirements import missing_requirements
from regraft.scanning import check_source, compile_rules, rewrite_file
from regraft.source.object_reference import load_source
from regraft.source.text import SourceFile, parse

PACKS = Path(__file__).parents[2] / "src" / "regraft" / "rules" / "packs"
COMMAND = "python benchmarks/worth/rules.py --write"
# an interval beyond or between these ends a measurement
is_decided = functools.partial(median_intervals.is_decided, faster=1.1, slower=0.95, margin=0.03)
SECONDS_PER_CASE = {"cpu": 20.0, "cuda": 1.5}
SLICES = {"cpu": SLICE, "cuda": 0.004}  # seconds of one measurement
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.04}
CUDA_TOLERANCE = 5e-3  # of float32, where convolutions use TF32

Case = dict[str, Any]


class WorthError(Exception):
    """Something that cannot be measured; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured, and how."""

    device: torch.device
    rounds: int
    seconds: float
    sizes: tuple[str, ...]
    modes: tuple[str, ...] = MODES


def rewritten(text: str, rule_ids: Iterable[str], folder: Path) -> str:
    """Return a text as rules rewrite it, one after the other.

    Raises WorthError where one of them rewrites nothing.
    """
    data = text.encode()
    for rule_id in rule_ids:
        rules, problems = load_rules([rule_id])
        compiled, more_problems = compile_rules(rules)
        if problems or more_problems or not compiled:
            raise WorthError(f"{rule_id} cannot be used: {[*problems, *more_problems]}")
        if compiled[0].withheld:
            raise WorthError(f"{rule_id} is withheld: it {compiled[0].withheld}")
        source = parse(str(folder / "subject.py"), data)
        if not isinstance(source, SourceFile):
            raise WorthError(f"the subject does not parse: {source.message}")
        report = check_source(source, compiled)
        data, applied = rewrite_file(report, compiled)
        if not applied:
            reasons = [finding.reason for finding in report.findings if not finding.fixable]
            raise WorthError(
                f"{rule_id} rewrites nothing{': ' * bool(reasons)}{'; '.join(reasons)}"
            )
    return data.decode()


def lacking(rule_id: str) -> str:
    """Return the first requirement of a rule that this environment does not meet; "" where all are
    met."""
    rules, _ = load_rules([rule_id])
    missing = [need for rule in rules for need in missing_requirements(rule.syntax.needs)]
    return missing[0] if missing else ""


def load_module(text: str, name: str, folder: Path) -> Any:
    """Return the module of a text, which is written to a file of this name."""
    path = folder / f"{name}.py"
    path.write_text(text, "utf-8")
    return load_source(path, f"worth_{name}")


def call(function: Callable[..., Any], numbers: Mapping[str, int]) -> Any:
    """Call a function with those of the numbers that it has parameters for."""
    parameters = inspect.signature(function).parameters
    return function(**{name: number for name, number in numbers.items() if name in parameters})


def result_of(output: Any) -> torch.Tensor:
    """Return the first result of a module."""
    result: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return result


@dataclass(frozen=True, slots=True)
class Versions:
    """The original and the rewritten module of a subject at one size, and their inputs."""

    original: Any
    rewritten: Any
    inputs: tuple[torch.Tensor, ...]

    def check(self, tolerance: float, modes: Sequence[str] = MODES) -> None:
        """Raise AssertionError where the results in evaluation mode differ, or, if the modes have
        training, the gradients: by more than a part of the largest number."""
        for mode in modes:
            before, after = (
                results(module.eval(), self.inputs, mode == "training")
                for module in (self.original, self.rewritten)
            )
            largest = max(float(tensor.abs().amax()) for tensor in before)
            for expected, actual in zip(before, after, strict=True):
                torch.testing.assert_close(
                    actual, expected, rtol=tolerance, atol=tolerance * largest
                )

    def steps(self, mode: str) -> tuple[Step, Step]:
        """Return one step of each version in a mode."""
        training = mode == "training"
        return step(self.original, self.inputs, training), step(
            self.rewritten, self.inputs, training
        )


def results(module: Any, inputs: tuple[torch.Tensor, ...], gradients: bool) -> list[torch.Tensor]:
    """Return the result of a module, or with `gradients` the result and all gradients."""
    arguments, leaves = leaves_of(module, inputs, gradients)
    # cuDNN differentiates recurrent layers in training mode alone
    with torch.set_grad_enabled(gradients), torch.backends.cudnn.flags(enabled=not gradients):
        result = result_of(module(*arguments))
    result = result + 0
    if not gradients:
        return [result]
    generator = torch.Generator(result.device).manual_seed(1)
    weights = torch.randn(result.shape, generator=generator, device=result.device)
    computed = torch.autograd.grad(result, leaves, weights.to(result.dtype), allow_unused=True)
    return [result.detach(), *(torch.zeros(()) if each is None else each for each in computed)]


def leaves_of(
    module: Any, inputs: tuple[torch.Tensor, ...], gradients: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return copies of the inputs, and all that gets gradients: parameters and, with `gradients`,
    floating inputs."""
    arguments = [
        tensor.detach().clone().requires_grad_(gradients and tensor.is_floating_point())
        for tensor in inputs
    ]
    return arguments, [
        tensor for tensor in (*module.parameters(), *arguments) if tensor.requires_grad
    ]


def step(module: Any, inputs: tuple[torch.Tensor, ...], training: bool) -> Step:
    """Return one step of a module: without gradients in evaluation mode, or forward and backward in
    training mode, with gradients of all parameters and floating inputs."""
    arguments, leaves = leaves_of(module, inputs, training)
    gradients: list[torch.Tensor] = []

    def inference() -> None:
        with torch.no_grad():
            module(*arguments)

    def training_step() -> None:
        result = result_of(module(*arguments))
        if not gradients:
            gradients.append(torch.randn_like(result.detach() + 0))
        torch.autograd.grad(result, leaves, gradients[0], allow_unused=True)

    def switched() -> None:
        if module.training != training:
            module.train(training)
        (training_step if training else inference)()

    return switched


def modules(subject: Subject, folder: Path) -> tuple[Any, Any]:
    """Return the original and the rewritten source of a subject, loaded."""
    original = rewritten(subject.text, subject.also, folder)
    text = rewritten(original, [subject.rule], folder)
    return load_module(original, "original", folder), load_module(text, "rewritten", folder)


def versions(
    subject: Subject, loaded: tuple[Any, Any], size: str, device: torch.device
) -> Versions:
    """Return both versions of a subject at a size."""
    torch.manual_seed(0)
    numbers = subject.sizes[size]
    dtype = dtype_of(subject, size, device)
    with device:
        inputs = call(loaded[0].inputs, numbers)
        original, rewritten_module = (call(module.Subject, numbers) for module in loaded)
    rewritten_module.load_state_dict(original.state_dict())
    return Versions(
        original.to(dtype),
        rewritten_module.to(dtype),
        tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in inputs),
    )


def tolerance_of(subject: Subject, size: str, device: torch.device) -> float:
    """Return how far results may differ, relative to the largest number."""
    tolerance = TOLERANCES[dtype_of(subject, size, device)]
    return max(tolerance, CUDA_TOLERANCE) if device.type == "cuda" else tolerance


def dtype_of(subject: Subject, size: str, device: torch.device) -> torch.dtype:
    """Return the dtype of a subject: large ones are measured in half precision on CUDA."""
    if subject.dtype:
        dtype: torch.dtype = getattr(torch, subject.dtype)
        return dtype
    return torch.bfloat16 if device.type == "cuda" and size == "large" else torch.float32


def shape_of(subject: Subject, size: str, dtype: torch.dtype) -> str:
    """Return the words for a subject's size, with the dtype if it is not float32."""
    suffix = "" if dtype == torch.float32 else f", {str(dtype).removeprefix('torch.')}"
    return subject.shape.format(**subject.sizes[size]) + suffix


def measure(subject: Subject, size: str, mode: str, both: Versions, options: Options) -> Case:
    """Return the measurement of a subject at one size in one mode, as it is stored."""
    started = time.perf_counter()
    steps = both.steps(mode)
    speed = compare(
        *steps,
        options.rounds,
        options.device,
        is_enough=lambda speed: (
            is_decided(speed) or time.perf_counter() - started > options.seconds
        ),
        slice_seconds=SLICES[options.device.type],
    ).speed
    old_peak, new_peak = (max(peak(run_step, options.device), 1) for run_step in steps)
    case: Case = {
        "size": size,
        "shape": shape_of(subject, size, dtype_of(subject, size, options.device)),
        "mode": mode,
        "time": [rounded(speed.low), rounded(speed.median), rounded(speed.high)],
        "memory": rounded(new_peak / old_peak),
    }
    return {"subject": subject.name, **case} if subject.name else case


def rounded(number: float) -> float:
    """Return a number with three significant digits."""
    return float(f"{number:.3g}")


def cases(
    subject: Subject, options: Options, folder: Path, report: Callable[[str], None]
) -> Iterator[Case]:
    """Yield the measurements of a subject; report what cannot be measured."""
    try:
        loaded = modules(subject, folder)
    except Exception as problem:  # noqa: BLE001  whatever it is, the other subjects are measured
        report(f"{subject.title}: {type(problem).__name__}: {problem}")
        return
    for size in options.sizes:
        try:
            yield from cases_of_size(subject, loaded, size, options)
        except Exception as problem:  # noqa: BLE001
            report(f"{subject.title}, {size}: {type(problem).__name__}: {problem}")
        gc.collect()
        if options.device.type == "cuda":
            torch.cuda.empty_cache()


def cases_of_size(
    subject: Subject, loaded: tuple[Any, Any], size: str, options: Options
) -> Iterator[Case]:
    """Yield the measurements of a subject at one size, after its results are checked."""
    both = versions(subject, loaded, size, options.device)
    both.check(tolerance_of(subject, size, options.device), subject.modes)
    for mode in subject.modes:
        yield measure(subject, size, mode, both, options)


def line(rule: str, case: Case) -> str:
    """Return a row of the table."""
    low, median, high = case["time"]
    title = f"{rule} ({case['subject']})" if "subject" in case else rule
    return (
        f"{title:44} {case['size']:8} {case['mode']:10} {median:7.3g} ({low:.3g}-{high:.3g})".ljust(
            86
        )
        + f"{case['memory']:8.3g}  {case['shape']}"
    )


def measurement(rule: str, measured: list[Case], device: torch.device) -> dict[str, Any]:
    """Return what is stored for a rule."""
    order = {name: place for names in (SIZES, MODES) for place, name in enumerate(names)}
    measured = sorted(
        measured,
        key=lambda case: (case.get("subject", ""), order[case["size"]], order[case["mode"]]),
    )
    return {
        "rule": rule,
        "device": device.type,
        "machine": f"{machine(device)}{', one thread' if device.type == 'cpu' else ''}",
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "cases": measured,
    }


def store(entry: dict[str, Any], packs: Path = PACKS) -> None:
    """Write the measurement of a rule into its pack's worth.json, in place of the one of the same
    rule on the same device."""
    path = packs / entry["rule"].partition("/")[0] / "worth.json"
    entries = json.loads(path.read_text("utf-8"))["measurements"] if path.exists() else []
    key = (entry["rule"], entry["device"])
    entries = [other for other in entries if (other["rule"], other["device"]) != key]
    entries = sorted([*entries, entry], key=lambda other: (other["rule"], other["device"]))
    path.write_text(document(entries), "utf-8")


def document(entries: list[dict[str, Any]]) -> str:
    """Return the text of a worth.json: JSON, with a line for each case."""
    measurements = ",\n".join(
        "  "
        + json.dumps({**entry, "cases": None})
        .removesuffix("null}")
        .replace(' "cases"', '\n   "cases"')
        + "[\n"
        + ",\n".join(f"    {json.dumps(case)}" for case in entry["cases"])
        + "\n   ]}"
        for entry in entries
    )
    return (
        f'{{\n "schema": 1,\n "command": {json.dumps(COMMAND)},\n "measurements": [\n'
        f"{measurements}\n ]\n}}\n"
    )


def subjects_by_rule(device: str, pattern: str) -> dict[str, list[Subject]]:
    """Return the subjects for a type of device by rule, of the rules in whose id the pattern is
    found."""
    by_rule: dict[str, list[Subject]] = {}
    for subject in subjects(device):
        if re.search(pattern, subject.rule):
            by_rule.setdefault(subject.rule, []).append(subject)
    return by_rule


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only rules whose id this is found in")
    parser.add_argument("--rounds", type=int, default=20, help="the most pairs of a case")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--device", default="cpu", choices=sorted(SECONDS_PER_CASE))
    parser.add_argument("--seconds-per-case", type=float, help="the time after which a case ends")
    parser.add_argument("--write", action="store_true", help="store the results beside the rules")
    arguments = parser.parse_args()
    options = Options(
        torch.device(arguments.device),
        arguments.rounds,
        arguments.seconds_per_case or SECONDS_PER_CASE[arguments.device],
        tuple(arguments.sizes.split(",")),
    )
    if options.rounds < FEWEST:
        parser.error(f"--rounds {options.rounds}: an interval needs at least {FEWEST} rounds")
    if not set(options.sizes) <= set(SIZES):
        parser.error(f"--sizes {arguments.sizes}: the sizes are {', '.join(SIZES)}")
    if arguments.write and options.sizes != SIZES:
        parser.error("--write replaces what is stored of a rule: it needs all sizes")
    torch.set_num_threads(1)
    problems: list[str] = []

    def report(problem: str) -> None:
        problems.append(problem)
        print(f"FAILED {problem}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for rule, its_subjects in subjects_by_rule(arguments.device, arguments.only).items():
            if requirement := lacking(rule):
                print(f"skipped {rule}: needs {requirement}", flush=True)
                continue
            measured = []
            earlier_problems = len(problems)
            for subject in its_subjects:
                for case in cases(subject, options, Path(folder), report):
                    print(line(rule, case), flush=True)
                    measured.append(case)
            if measured and arguments.write and len(problems) == earlier_problems:
                store(measurement(rule, measured, options.device))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
