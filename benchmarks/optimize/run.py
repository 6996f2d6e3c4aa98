"""Whether live models of many families give the same after `regraft.optimize`, and their own bits
after `restore`.

    python benchmarks/optimize/run.py                      # 30 model families of transformers
    python benchmarks/optimize/run.py --families 100 --packs adopter,torch,liger
    python benchmarks/optimize/run.py --package timm==1.0.31 --families 10   # or diffusers==0.42.1

Families are drawn by a hash of their names; each is built small from its default configuration, or
its constructor's defaults, with inputs found by running it. A package that is not installed comes
from the environment of the proofs (`benchmarks/proof199/environment.py`). Compared are the outputs
and the gradients of inputs and parameters, as verification judges them, and the checkpoint of the
original, loaded strictly into the optimized model; `restore` has to give back the same bits.
Methods are rewritten without being verified first (`verify=False`): this is the check. Exits with 1
where one differs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from families import NotBuilt, built, families, load

import regraft
from regraft.execution.compare import identical
from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.comparison_terms import Largest
from regraft.verification.child.outcome_comparison import judge

SECONDS = 60  # for one family
PLAN = Plan(gradients=True)


@dataclass(frozen=True, slots=True)
class Result:
    """One family: how many methods were rewritten by which rules, and what is wrong, if anything
    is."""

    family: str
    methods: int
    rules: tuple[str, ...]
    problem: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--families", type=int, default=30, help="how many with something to rewrite (default: 30)"
    )
    parser.add_argument("--package", default="transformers==5.23.0", metavar="NAME==VERSION")
    parser.add_argument(
        "--packs", default="adopter,torch,liger", help="packs of rules (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    package = load(options.package)
    quiet = getattr(getattr(package, "logging", None), "set_verbosity_error", None)
    if quiet is not None:
        quiet()
    found: list[Result] = []
    left_out = 0
    signal.signal(signal.SIGALRM, _late)
    for family, model_class in families(package):
        signal.alarm(SECONDS)
        try:
            result = examine(package, family, model_class, options.packs.split(","))
        except (NotBuilt, TimeoutError):
            left_out += 1
            continue
        finally:
            signal.alarm(0)
        if result.methods or result.problem:
            found.append(result)
            print(
                f"{family:<28} {result.methods:>2} methods  {result.problem or 'equal'} "
                f" {', '.join(result.rules)}"
            )
        if len(found) == options.families:
            break
    equal = sum(not one.problem for one in found)
    print(
        f"{equal} of {len(found)} families equal; {left_out} left out: no small model of them runs"
        " and trains"
    )
    print(
        f"torch {torch.__version__}, {package.__name__} {package.__version__},"
        f" {sys.version.split()[0]}"
    )
    return int(equal < len(found))


def _late(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


def examine(package: ModuleType, family: str, model_class: Any, packs: Sequence[str]) -> Result:
    """Compare one family. Raises NotBuilt, or TimeoutError after SECONDS."""
    model, call = built(package, model_class)
    before, checkpoint = (
        _observed(model, call),
        {name: value.clone() for name, value in model.state_dict().items()},
    )
    if before.error or before.backward_error:
        raise NotBuilt
    wide = weights.copy_model(model).to(torch.float64)

    def exact() -> Outcome:
        return execute(Target(wide), call, replace(PLAN, dtype=torch.float64))

    report = regraft.optimize(model, packs=packs, verify=False)
    rules = tuple(sorted({rule for change in report.changes for rule in change.rules}))
    found = judge(before, _observed(model, call), exact, Largest(), strict=True)
    problem = found.sentence if found else ""
    if list(model.state_dict()) != list(checkpoint):
        problem = problem or "the checkpoint has other keys"
    else:
        model.load_state_dict(checkpoint, strict=True)
    regraft.restore(model)
    after = _observed(model, call)
    if not (
        _same_bits(before.outputs, after.outputs) and _same_bits(before.gradients, after.gradients)
    ):
        problem = problem or "restore gives other bits"
    return Result(family, len(report.changes), rules, problem)


def _observed(model: Any, call: call_arguments.Call) -> Outcome:
    outcome = execute(Target(model), call, PLAN)
    if isinstance(outcome.error, TimeoutError):
        raise outcome.error
    return outcome


def _same_bits(ours: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None) -> bool:
    ours, theirs = ours or {}, theirs or {}
    return list(ours) == list(theirs) and all(
        not isinstance(value, torch.Tensor) or identical(value, theirs[name])
        for name, value in ours.items()
    )


if __name__ == "__main__":
    sys.exit(main())
