"""Whether a definition is still scripted by TorchScript and traced by `torch.fx` where the original is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from regraft.verify.child import tree
from regraft.verify.child.capture import LATE, run_capture
from regraft.verify.child.compare import Check, Difference, Largest, compare
from regraft.verify.child.ledger import Ledger
from regraft.verify.child.limits import limited
from regraft.verify.child.replay import Target
from regraft.verify.child.tree import Call
from regraft.verify.types import TRANSFORMS

SECONDS = 10.0  # of one transform and its run; what takes longer is left out


@dataclass(frozen=True, slots=True)
class Transformed:
    """What transforms of both versions showed: a difference, what the changed version loses, and what agrees."""

    difference: Difference | None = None
    losses: tuple[str, ...] = ()
    agreeing: tuple[str, ...] = ()


def compare_transformed(original: Target, changed: Target, call: Call, definition: str, ledger: Ledger) -> Transformed:
    """Script and trace both versions where the original can be, and compare what the results compute."""
    losses: list[str] = []
    agreeing: list[str] = []
    for name in TRANSFORMS.values():
        if name in ledger.avoided:  # it ended an earlier process
            continue
        with ledger.step("original", definition, name):
            before = run_capture(_TRANSFORMS[name], original, call)
        if isinstance(before, BaseException):
            continue
        with ledger.step("changed", definition, name):
            after = run_capture(_TRANSFORMS[name], changed, call)
        if isinstance(after, BaseException):
            if LATE not in str(after):
                losses.append(f"{name}: {type(after).__name__}: {_first_line(after)}")
            continue
        difference = compare(before, after, Check("outputs", dict, Largest()))
        if difference is not None:
            return Transformed(Difference(difference.path, f"by {name} {difference.sentence}"), (), tuple(agreeing))
        agreeing.append(name)
    return Transformed(None, tuple(losses), tuple(agreeing))


def _first_line(error: BaseException) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), "")[:200]


def _scripted(target: Target, live: tree.Live) -> Any:
    return _run(torch.jit.script, target, live)


def _traced(target: Target, live: tree.Live) -> Any:
    return _run(torch.fx.symbolic_trace, target, live)


def _run(transform: Callable[[Any], Any], target: Target, live: tree.Live) -> Any:
    with limited(SECONDS, TimeoutError(LATE)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transform(target.callable)(*live.args, **live.kwargs)


_TRANSFORMS: Mapping[str, Callable[[Target, tree.Live], Any]] = MappingProxyType(
    {"torch.jit.script": _scripted, "torch.fx.symbolic_trace": _traced}
)
