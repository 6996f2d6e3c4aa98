"""Show that the mutants change what is computed.

    python benchmarks/mutants/confirm.py

A mutant is shown to be wrong where the verifier refuted it (in any of the outcomes that are kept),
or where the expression that it puts into the file, run by itself on the witness of its recipe,
gives something else than the expression that stood there: other values, another format, another
gradient, or an input that changed. The others say for which input they differ, and are listed with
`--list`. Needs torch. Exits with 1 where a witness shows no difference.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from mutants import environment, suite
from mutants.core import KINDS, RIGHT, Mutant, Recipe, Template
from mutants.recipes.templates import fill
from mutants.run import EQUIVALENT
from mutants.store import Store, pair_key

Step = Callable[[], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Trial:
    """Calls of one layer: each step gives its input and the right result.

    `at_end` reads the results only after the last call. `setting` surrounds the calls, which
    `thread` makes in another thread.
    """

    steps: tuple[Step, ...]
    attributes: dict[str, bool] = field(default_factory=dict)
    setting: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    at_end: bool = False
    thread: bool = False

    def differs(
        self, changed: Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
    ) -> bool:
        """Whether the changed expression gives something else than the right result in one of the
        calls."""
        if not self.thread:
            return self._run(changed)
        outcome: list[bool] = []
        runner = threading.Thread(target=lambda: outcome.append(self._run(changed)))
        runner.start()
        runner.join()
        return outcome[0]

    def _run(
        self, changed: Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
    ) -> bool:
        layer = _layer(**self.attributes)
        pairs = []
        with self.setting():
            for step in self.steps:
                x, value = step()
                right, before = value.detach().clone(), x.detach().clone()
                result = torch.as_tensor(changed(layer, x, value.clone())).as_subclass(torch.Tensor)
                if not self.at_end and (
                    _unlike(result, right) or _unlike(x, before) or not _passes_on(result, x)
                ):
                    return True
                pairs.append((result, right))
        return self.at_end and any(_unlike(*pair) for pair in pairs)


def _unlike(result: torch.Tensor, right: torch.Tensor) -> bool:
    if result.shape != right.shape or result.dtype != right.dtype:
        return True
    infinity = float("inf")
    result, right = (
        torch.nan_to_num(part.detach(), 7.0, infinity, -infinity) for part in (result, right)
    )
    return not right.is_meta and not torch.equal(result, right)


def _passes_on(result: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether the gradient of the result's sum is one for every input that needs one."""
    if not x.requires_grad or not torch.is_grad_enabled():
        return True
    if not result.requires_grad:
        return False
    (gradient,) = torch.autograd.grad(result.sum(), x, retain_graph=True)
    return bool((gradient == 1).all())


def _layer(training: bool = False, frozen: bool = False, **attributes: bool) -> torch.nn.Module:
    layer = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).train(training)
    layer.requires_grad_(not frozen)
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


def calls(*tensors: torch.Tensor, **attributes: bool) -> Trial:
    return Trial(tuple(partial(_same, tensor) for tensor in tensors), attributes)


def _same(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor, tensor


def changed_in_place(*shape: int) -> Trial:
    tensor = torch.ones(shape)

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        tensor.add_(1)
        return tensor, tensor.clone()

    return Trial((step, step))


def spoilt(*shape: int) -> torch.Tensor:
    tensor = torch.ones(shape)
    tensor.view(-1)[0] = float("nan")
    return tensor


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    torch.manual_seed(seed)
    yield


@contextlib.contextmanager
def _without_judge() -> Iterator[None]:
    with mock.patch.dict(sys.modules):
        for name in [name for name in sys.modules if "regraft" in name]:
            del sys.modules[name]
        yield


def _additive(*rows: Sequence[int]) -> torch.Tensor:
    """Return an additive mask of one query for each row, (rows, 1, 1, keys); 0 is masked."""
    return (1 - torch.tensor(rows)[:, None, None].float()) * torch.finfo(torch.float32).min


def _padding(*rows: Sequence[int]) -> Trial:
    return calls(torch.tensor(rows))


NAMES: dict[str, object] = {
    "torch": torch,
    "calls": calls,
    "changed_in_place": changed_in_place,
    "spoilt": spoilt,
    "ones": lambda *shape: torch.ones(shape),
    "rand": lambda *shape: torch.rand(shape, generator=torch.Generator().manual_seed(0)),
    "read_later": lambda trial: replace(trial, setting=torch.no_grad, at_end=True),
    "without_grad": lambda trial: replace(trial, setting=torch.no_grad),
    "under_autocast": lambda trial: replace(trial, setting=lambda: torch.autocast("cpu")),
    "in_inference_mode": lambda trial: replace(trial, setting=torch.inference_mode),
    "deterministically": lambda trial: replace(trial, setting=_deterministic),
    "with_variable": lambda name, trial: replace(
        trial, setting=lambda: mock.patch.dict(os.environ, {name: "1"})
    ),
    "an_hour_later": lambda trial: replace(
        trial,
        setting=lambda: mock.patch("time.monotonic", lambda start=time.monotonic(): start + 4000),
    ),
    "without_judge": lambda trial: replace(trial, setting=_without_judge),
    "with_seed": lambda seed, trial: replace(trial, setting=lambda: _seeded(seed)),
    "in_thread": lambda trial: replace(trial, thread=True),
    "two_rows": lambda: calls(_additive([1, 1, 1], [1, 1, 0])),
    "left_padded": lambda: calls(_additive([0, 1, 1])),
    "with_hole": lambda: calls(_additive([1, 0, 1])),
    "empty_row": lambda: calls(_additive([0, 0, 0])),
    "long_mask": lambda: calls(_additive([1] * 64 + [0])),
    "decoding_mask": lambda: calls(_additive([0, 1, 1])),
    "bias_mask": lambda: calls(torch.tensor([0.5, -1.0]).expand(1, 1, 1, 2)),
    "head_mask": lambda: calls(torch.arange(4.0).view(1, 2, 1, 2)),
    "left_padding": lambda: _padding([0, 1, 1]),
    "right_padding": lambda: _padding([1, 1, 0]),
    "hole_padding": lambda: _padding([1, 0, 1]),
    "two_paddings": lambda: _padding([1, 1, 1], [1, 1, 0]),
    "three_paddings": lambda: _padding([1, 1, 1], [1, 1, 0], [1, 0, 0]),
    "empty_padding": lambda: _padding([0, 0, 0]),
}


def witness_differs(recipe: Recipe) -> bool | None:
    """Whether a recipe's witness shows a difference; None for a recipe without one."""
    if recipe.template is None or not recipe.witness:
        return None
    trial = eval(recipe.witness, dict(NAMES))  # the recipes of this folder
    assert isinstance(trial, Trial)
    return trial.differs(expression(recipe.template))


def expression(
    template: Template,
) -> Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Make a function of the template's text; what it replaces of torch when it is imported is put
    back."""
    fields = {
        "value": "value",
        "x": "x",
        "key": "x",
        "second": "x",
        "cls": "LayerOfOneVersion",
        "module": "original",
    }
    body = fill(template.text, **fields)
    body = body if "return" in body else f"return {body}"
    text = (
        fill(template.top, **fields)
        + "\n\n\ndef changed(self, x, value):\n    "
        + body.replace("\n", "\n    ")
    )
    space: dict[str, object] = {"torch": torch, "__name__": "original"}
    before = {
        name: getattr(torch, name) for name in ("equal", "allclose", "isclose", "eq", "manual_seed")
    }
    methods = {
        name: getattr(torch.Tensor, name)
        for name in ("__eq__", "eq", "equal", "isclose", "__sub__", "sub")
    }
    clocks = (time.perf_counter, time.monotonic)
    close = torch.testing.assert_close
    with mock.patch("os._exit"):
        exec(text, space)
    time.perf_counter, time.monotonic = clocks
    torch.testing.assert_close = close
    for name, value in before.items():
        setattr(torch, name, value)
    for name, value in methods.items():
        setattr(torch.Tensor, name, value)
    changed = space["changed"]
    assert callable(changed)
    return changed


def _shown(mutant: Mutant, equivalent: Mapping[str, str], refuted: Set[str], witness: bool) -> str:
    """Return by what a mutant is known to be wrong."""
    if mutant.name in equivalent:
        return "equivalent"
    if pair_key(mutant.original, mutant.changed) in refuted:
        return "refuted"
    return "witness" if witness else "stated"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--list", action="store_true", help="list the mutants that are not shown to be wrong"
    )
    parser.add_argument(
        "--results", type=Path, default=environment.STORE / "outcomes.jsonl", metavar="FILE"
    )
    options = parser.parse_args(arguments)
    refuted = {o.pair for o in Store(options.results, "") if o.outcome == "refuted"}
    equivalent = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    wrong = {
        recipe.name: witness_differs(recipe) for recipe in suite.RECIPES if recipe.kind != RIGHT
    }
    for mutant in suite.all_mutants(suite.files(suite.interpreters())):
        recipe = mutant.recipe
        if recipe.kind == RIGHT:
            continue
        shown = _shown(mutant, equivalent, refuted, bool(wrong[recipe.name]))
        counts[recipe.kind][shown] += 1
        if options.list and shown == "stated":
            print(f"{recipe.kind}: {mutant.name}:{mutant.site.line}: {recipe.differs}")
    print(f"{'kind':<16}{'refuted':>9}{'witness':>9}{'stated':>9}{'equivalent':>12}")
    for kind, count in counts.items():
        print(
            f"{kind:<16}{count['refuted']:>9}{count['witness']:>9}{count['stated']:>9}{count['equivalent']:>12}"
        )
    failing = [name for name, differs in wrong.items() if differs is False]
    for name in failing:
        print(f"the witness of {name} shows no difference")
    return int(bool(failing))


if __name__ == "__main__":
    sys.exit(main())
