"""Whether live models of many families give the same after `regraft.optimize`, and their own bits after `restore`.

    python benchmarks/optimize/run.py                      # 30 model families of the installed transformers
    python benchmarks/optimize/run.py --families 100 --packs adopter,torch,liger

Families are drawn by a hash of their names; each is built small from its default configuration, with inputs found by
running it. Compared are the outputs and the gradients of all parameters (torch.testing's tolerances for float32), and
the checkpoint of the original, loaded strictly into the optimized model; `restore` has to give back the same bits.
Methods are rewritten without being verified first (`verify=False`): this is the check. Exits with 1 where one differs.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import transformers

import regraft
from regraft.verify.child import tree, weights
from regraft.verify.child.drivers import inputs, tiny
from regraft.verify.child.replay import cotangent, reseed

SECONDS = 60  # for one family
LARGEST = 30_000_000
Observed = tuple[dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Result:
    """One family: how many methods were rewritten by which rules, and what is wrong, if anything is."""

    family: str
    methods: int
    rules: tuple[str, ...]
    problem: str


class NotBuilt(Exception):
    """A family of which no small model runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=30, help="how many with something to rewrite (default: 30)")
    parser.add_argument("--packs", default="adopter,torch,liger", help="packs of rules (default: %(default)s)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    found: list[Result] = []
    left_out = 0
    signal.signal(signal.SIGALRM, _late)
    for family, model_class in _families():
        signal.alarm(SECONDS)
        try:
            result = examine(family, model_class, options.packs.split(","))
        except (NotBuilt, TimeoutError):
            left_out += 1
            continue
        finally:
            signal.alarm(0)
        if result.methods or result.problem:
            found.append(result)
            print(f"{family:<28} {result.methods:>2} methods  {result.problem or 'equal'}  {', '.join(result.rules)}")
        if len(found) == options.families:
            break
    equal = sum(not one.problem for one in found)
    print(f"{equal} of {len(found)} families equal; {left_out} left out: no small model of them runs and trains")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {sys.version.split()[0]}")
    return int(equal < len(found))


def _late(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


def _families() -> Iterator[tuple[str, Any]]:
    """The base model class of every family, in an order that only depends on the names."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    for family in sorted(MODEL_MAPPING_NAMES, key=lambda name: hashlib.sha256(name.encode()).digest()):
        names = MODEL_MAPPING_NAMES[family]
        name = names if isinstance(names, str) else names[0]
        try:
            yield family, getattr(transformers, name)
        except (AttributeError, ImportError):  # needs a package that is not installed
            continue


def examine(family: str, model_class: Any, packs: Sequence[str]) -> Result:
    """Compare one family. Raises NotBuilt, or TimeoutError after SECONDS."""
    model, call = _built(model_class)
    try:
        before = observe(model, call)
    except (RuntimeError, AssertionError) as error:
        raise NotBuilt from error
    checkpoint = {name: value.clone() for name, value in model.state_dict().items()}
    report = regraft.optimize(model, packs=packs, verify=False)
    rules = tuple(sorted({rule for change in report.changes for rule in change.rules}))
    try:
        problem = difference(before, observe(model, call)) or _checkpoint_problem(model, checkpoint)
    except TimeoutError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the rewritten model raises is the result
        problem = f"raises {type(error).__name__}: {error}"
    regraft.restore(model)
    after = observe(model, call)
    if not problem and any(not _same_bits(before[part], after[part]) for part in (0, 1)):
        problem = "restore gives other bits"
    return Result(family, len(report.changes), rules, problem)


def _built(model_class: Any) -> tuple[Any, tree.Call]:
    """A small model in evaluation, and a call that it accepts, both the same for every run."""
    try:
        values = model_class.config_class().to_dict()
    except Exception as error:  # some configurations have no defaults
        raise NotBuilt from error
    for scale in tiny.SCALES[:4]:
        try:
            config = model_class.config_class.from_dict(tiny.shrink(values, scale))
            config._attn_implementation = "eager"
            with torch.device("meta"):
                if sum(p.numel() for p in model_class(config).parameters()) > LARGEST:
                    continue
            reseed(0)
            model = model_class(config).eval()
            weights.redraw(model, 0)
            return model, inputs.find(model, seconds=0.0).calls(model)(0)[1]
        except TimeoutError:
            raise
        except Exception:  # noqa: BLE001 - a scale that does not fit; the next one may
            continue
    raise NotBuilt


def observe(model: Any, call: tree.Call) -> Observed:
    """Outputs by path, and gradients by parameter in a fixed random direction."""
    live = tree.thaw(call, model, gradients=False)
    reseed(0)
    outputs = tree.flatten(model(*live.args, **live.kwargs))
    wanted = {name: p for name, p in model.named_parameters() if p.requires_grad}
    ends = {path: value for path, value in outputs.items() if isinstance(value, torch.Tensor) and value.requires_grad}
    found = torch.autograd.grad(
        list(ends.values()), list(wanted.values()), [cotangent(path, value) for path, value in ends.items()],
        allow_unused=True,
    )  # fmt: skip
    plain = {path: value.detach() if isinstance(value, torch.Tensor) else value for path, value in outputs.items()}
    return plain, dict(zip(wanted, found, strict=True))


def difference(before: Observed, after: Observed) -> str:
    """The first difference in words, or nothing."""
    for ours, theirs in zip(before, after, strict=True):
        if list(ours) != list(theirs):
            return f"other outputs: {sorted(set(ours) ^ set(theirs))[:3]}"
        for name, value in ours.items():
            if isinstance(value, torch.Tensor) and isinstance(theirs[name], torch.Tensor):
                scale = float(value.abs().max()) if value.numel() else 0.0
                # a gradient is a sum of many terms: it is as exact as the largest of its tensor
                close = torch.allclose(value, theirs[name], rtol=1.3e-6, atol=max(1e-5, 1e-5 * scale), equal_nan=True)
                if not close:
                    return f"{name} differs by {float((value - theirs[name]).abs().max()):.2g} (largest: {scale:.2g})"
            elif isinstance(value, torch.Tensor) or isinstance(theirs[name], torch.Tensor):
                return f"{name} is there in one of both only"
    return ""


def _checkpoint_problem(model: Any, checkpoint: dict[str, Any]) -> str:
    if list(model.state_dict()) != list(checkpoint):
        return "the checkpoint has other keys"
    model.load_state_dict(checkpoint, strict=True)
    return ""


def _same_bits(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return list(ours) == list(theirs) and all(
        not isinstance(value, torch.Tensor) or torch.equal(value.nan_to_num(), theirs[name].nan_to_num())
        for name, value in ours.items()
    )


if __name__ == "__main__":
    sys.exit(main())
