"""Check that a definition can still be captured as one graph, by `torch.compile(fullgraph=True)`
and by `torch.export`, where the original can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from regraft.execution.nested import flatten
from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_outcomes import Target
from regraft.verification.child.comparison_terms import Check, Difference, Largest
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.random_states import reseed
from regraft.verification.child.result_comparison import compare
from regraft.verification.child.state_watch import Watch
from regraft.verification.child.time_limit import limit_time


def compare_captures(
    original: Target, changed: Target, call: Call, definition: str, ledger: Ledger
) -> tuple[Difference | None, tuple[str, ...]]:
    """Capture both versions by `torch.compile(fullgraph=True)`, then by `torch.export`, and run the
    captured graphs on a call. Return a difference if the original is captured and the changed
    version is not, or has another result; else None. Also return the means by which both agreed
    until then.

    Means by which the original is not captured, or the changed version is not in time, are skipped.
    """
    agreeing: list[str] = []
    for means, capture in CAPTURES.items():
        with ledger.step("original", definition, means):
            original_result = run_capture(capture, original, call)
        if isinstance(original_result, BaseException):
            continue
        with ledger.step("changed", definition, means):
            changed_result = run_capture(capture, changed, call)
        if isinstance(changed_result, BaseException) and LATE in str(changed_result):
            continue  # such slowness is evidence about the machine, not about the graph
        if isinstance(changed_result, BaseException):
            text = " ".join(str(changed_result).split())[:200]
            sentence = f"{means} takes the original, not the changed version: {text}"
            return Difference("", sentence), tuple(agreeing)
        difference = compare(original_result, changed_result, Check("outputs", dict, Largest()))
        if difference:
            return Difference(difference.path, f"by {means} {difference.sentence}"), tuple(agreeing)
        agreeing.append(means)
    return None, tuple(agreeing)


LATE = "takes too long to capture"
SECONDS = 30.0  # a capture that takes longer does not count


Capture = Callable[[Target, call_arguments.LiveArguments], Any]


def run_capture(capture: Capture, target: Target, call: Call) -> dict[str, Any] | BaseException:
    """Return by path the flat results of a captured target on a call, or the error that capturing
    or running it raised, TimeoutError after SECONDS. The target's state is restored and the
    compiler reset."""
    watch = Watch(target.module, target.scope)
    try:
        with watch.collect_printing(), torch.no_grad(), limit_time(SECONDS, TimeoutError(LATE)):
            reseed(0)
            arguments = call_arguments.build_arguments(
                call, target.model, gradients=False, scope=target.scope
            )
            return flatten(capture(target, arguments))
    except Exception as error:  # noqa: BLE001 - arbitrary model code in a compiler; the error is the result
        return error
    finally:
        torch.compiler.reset()
        watch.rewind()


def _compile(target: Target, arguments: call_arguments.LiveArguments) -> Any:
    """Compile the target as one graph without code generation, and return its result for the
    arguments."""
    compiled = torch.compile(target.callable, backend="eager", fullgraph=True)
    return compiled(*arguments.args, **arguments.kwargs)


def _export(target: Target, arguments: call_arguments.LiveArguments) -> Any:
    """Export the target, and return the result of the exported program for the arguments. Raises
    TypeError for a function."""
    if not isinstance(target.module, nn.Module):
        raise TypeError("only modules are exported")
    program = torch.export.export(target.module, arguments.args, arguments.kwargs, strict=False)
    return program.module()(*arguments.args, **arguments.kwargs)


CAPTURES: Mapping[str, Capture] = {
    "torch.compile(fullgraph=True)": _compile,
    "torch.export": _export,
}
