"""Which part of the time of the measured modules the lines take that a rule rewrites.

`rules.py` measures whole modules: attention with its projections, a loss with the linear layer
before it. `regraft profile` knows the time of a finding's lines, so it has to know what the lines
of the measured module took of its time. Each original module of `subjects/` runs under the trace of
`regraft profile`, at the sizes that decide about a rule, in inference and in training.

    python benchmarks/worth/parts.py [--only REGEX]
    python benchmarks/worth/parts.py --write      # replaces what the packs' parts.json say

Only on CPU, and only of rules that gain time there in some case.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from rules import PACKS, lacking, leaves_of, modules, result_of, rounded, subjects_by_rule, versions
from subjects import Subject

from regraft.benchmarking.affected_lines import affected_lines
from regraft.benchmarking.line_timer import LineTimer
from regraft.rules import load_rules
from regraft.rules.worth import DECISIVE_SIZES, FASTER, worth_of
from regraft.scanning import check_file, compile_rules

COMMAND = "python benchmarks/worth/parts.py --write"
CPU = torch.device("cpu")
SECONDS_PER_CASE = 1.5
FEWEST_STEPS, MOST_STEPS = 2, 50

Part = dict[str, Any]


def gains_time(rule_id: str) -> bool:
    """Return whether a rule is measured to gain time on CPU in a case that decides."""
    (rule,) = load_rules([rule_id])[0]
    worth = worth_of(rule, "cpu")
    return worth is not None and any(case.time[0] >= FASTER for case in worth.decisive)


def faster_lines(rule_id: str, file: Path) -> set[int]:
    """Return the lines that a rule makes faster."""
    compiled, _ = compile_rules(load_rules([rule_id])[0])
    report = check_file(file, compiled)
    tree = ast.parse(file.read_bytes())
    return {
        line
        for finding in report.findings
        if finding.fixable
        for line in affected_lines(finding, tree)
    }


def run_step(module: Any, inputs: Any, training: bool, timer: LineTimer) -> None:
    """Charge a step of a module, as `rules.py` measures it, to its lines by `timer`."""
    arguments, leaves = leaves_of(module, inputs, training)
    with torch.set_grad_enabled(training):
        with timer:
            result = result_of(module(*arguments))
        if not training:
            return
        gradient = torch.randn_like(result.detach() + 0)
        end_attribution = timer.attribute_backward(result)
        with timer:
            torch.autograd.grad(result, leaves, gradient, allow_unused=True)
        end_attribution()


def part_of(module: Any, inputs: Any, training: bool, file: Path, lines: set[int]) -> float:
    """Return the part of the time of a module's step that some lines of its file take."""
    module.train(training)
    run_step(module, inputs, training, LineTimer([str(file)], CPU))
    timer = LineTimer([str(file)], CPU)
    end = time.perf_counter() + SECONDS_PER_CASE
    for number in range(MOST_STEPS):
        if number >= FEWEST_STEPS and time.perf_counter() > end:
            break
        run_step(module, inputs, training, timer)
    spent = sum(
        nanoseconds
        for (path, line), nanoseconds in timer.nanoseconds.items()
        if path == str(file) and line in lines
    )
    return spent / sum(timer.nanoseconds.values())


def parts_of(subject: Subject, folder: Path) -> list[Part]:
    """Return the parts of a subject, as they are stored."""
    loaded = modules(subject, folder)
    file = folder / "original.py"
    lines = faster_lines(subject.rule, file)
    parts = []
    for size in DECISIVE_SIZES:
        both = versions(subject, loaded, size, CPU)
        for mode in subject.modes:
            part = rounded(part_of(both.original, both.inputs, mode == "training", file, lines))
            case = {"size": size, "mode": mode, "part": part}
            parts.append({"subject": subject.name, **case} if subject.name else case)
            print(f"{subject.title:44} {size:8} {mode:10} {part:.3g}", flush=True)
    return parts


def store(rule: str, cases: list[Part]) -> None:
    """Write the parts of a rule into its pack's parts.json."""
    path = PACKS / rule.partition("/")[0] / "parts.json"
    entries = json.loads(path.read_text("utf-8"))["parts"] if path.exists() else []
    entries = [entry for entry in entries if entry["rule"] != rule]
    entries.append({"rule": rule, "device": "cpu", "cases": cases})
    entries.sort(key=lambda entry: entry["rule"])
    parts = ",\n".join(
        f'  {{"rule": {json.dumps(entry["rule"])}, "device": {json.dumps(entry["device"])},'
        ' "cases": [\n'
        + ",\n".join(f"    {json.dumps(case)}" for case in entry["cases"])
        + "\n   ]}"
        for entry in entries
    )
    path.write_text(
        f'{{\n "schema": 1,\n "command": {json.dumps(COMMAND)},\n "parts": [\n{parts}\n ]\n}}\n',
        "utf-8",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only rules whose id this is found in")
    parser.add_argument("--write", action="store_true", help="store the results beside the rules")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for rule, its_subjects in subjects_by_rule("cpu", arguments.only).items():
            if requirement := lacking(rule):
                print(f"skipped {rule}: needs {requirement}", flush=True)
            elif gains_time(rule):
                cases = [
                    part for subject in its_subjects for part in parts_of(subject, Path(folder))
                ]
                if arguments.write:
                    store(rule, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
