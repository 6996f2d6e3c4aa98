"""Check that a definition is still scripted by TorchScript and traced by `torch.fx` where the
original is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_outcomes import Target
from regraft.verification.child.comparison_terms import Check, Difference, Largest
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.graph_capture import LATE, run_capture
from regraft.verification.child.result_comparison import compare
from regraft.verification.child.time_limit import limit_time
from regraft.verification.types import TRANSFORMS

SECONDS = 10.0  # limit of one transform and its run; a slower one is left out


@dataclass(frozen=True, slots=True)
class Transformed:
    """The result of transforms of both versions: a difference or None, the transforms that the
    changed version loses, and those that agree.
    """

    difference: Difference | None = None
    losses: tuple[str, ...] = ()
    agreeing: tuple[str, ...] = ()


def compare_transformed(
    original: Target, changed: Target, call: Call, definition: str, ledger: Ledger
) -> Transformed:
    """Script and trace both versions where the original can be, and compare the results on a call;
    the journal of `ledger` gets the steps.

    Return at the first difference, without losses. A transform that only the original survives is a
    loss, with its error. A transform is skipped that ended an earlier process, fails for the
    original, or is too slow for the changed version.
    """
    losses: list[str] = []
    agreeing: list[str] = []
    for name in TRANSFORMS.values():
        if name in ledger.avoided:  # the transform ended an earlier process
            continue
        with ledger.step("original", definition, name):
            original_result = run_capture(_TRANSFORMS[name], original, call)
        if isinstance(original_result, BaseException):
            continue
        with ledger.step("changed", definition, name):
            changed_result = run_capture(_TRANSFORMS[name], changed, call)
        if isinstance(changed_result, BaseException):
            if LATE not in str(changed_result):
                losses.append(
                    f"{name}: {type(changed_result).__name__}: {_first_line(changed_result)}"
                )
            continue
        difference = compare(original_result, changed_result, Check("outputs", dict, Largest()))
        if difference is not None:
            return Transformed(
                Difference(difference.path, f"by {name} {difference.sentence}"), (), tuple(agreeing)
            )
        agreeing.append(name)
    return Transformed(None, tuple(losses), tuple(agreeing))


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is not empty, at most 200 characters; "" where
    all lines are empty."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), "")[:200]


def _script(target: Target, arguments: call_arguments.LiveArguments) -> Any:
    """Return the result of the scripted target; raises TimeoutError after SECONDS."""
    return _run_transformed(torch.jit.script, target, arguments)


def _trace(target: Target, arguments: call_arguments.LiveArguments) -> Any:
    """Return the result of the target traced by `torch.fx`; raises TimeoutError after SECONDS."""
    return _run_transformed(torch.fx.symbolic_trace, target, arguments)


def _run_transformed(
    transform: Callable[[Any], Any], target: Target, arguments: call_arguments.LiveArguments
) -> Any:
    """Transform a target and return the result of a call of it, warnings silenced; raises
    TimeoutError after SECONDS, and what transform or call raise."""
    with limit_time(SECONDS, TimeoutError(LATE)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transform(target.callable)(*arguments.args, **arguments.kwargs)


_TRANSFORMS: Mapping[str, Callable[[Target, call_arguments.LiveArguments], Any]] = MappingProxyType(
    {"torch.jit.script": _script, "torch.fx.symbolic_trace": _trace}
)
