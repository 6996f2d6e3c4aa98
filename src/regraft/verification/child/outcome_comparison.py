"""Compare the outcomes of two runs of a call, and return the first difference that a caller
observes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.execution.compare import are_equal, as_strided, identical, widened
from regraft.verification.child.call_observation import count_calls
from regraft.verification.child.call_outcomes import Outcome, Run
from regraft.verification.child.comparison_terms import Check, Difference, Largest, Rigour
from regraft.verification.child.half_precision import differing_halves, mean_errors
from regraft.verification.child.result_comparison import compare
from regraft.verification.child.state_watch import is_state

# The results of a run beside its gradients: words before a difference, their kind, their name.
_RESULTS = (
    ("", "outputs", "outputs"),
    ("in the second call ", "outputs", "repeated"),
    ("with hooks ", "hooks", "noted"),
)


def judge(
    original: Outcome,
    changed: Outcome,
    truth: Run,
    largest: Largest,
    rigour: Rigour,
    *,
    jittered: Run = Outcome,
    with_errors: bool = False,
) -> Difference | None:
    """Compare the outcomes of two runs of one call, of which the original's must have succeeded;
    return the first difference or None. An error, a newly overwritten argument, side effects,
    results and gradients are compared in this order; unless the rigour is strict, neither results
    nor gradients where an output of the original is not finite.

    `truth` runs the original in float64, `jittered` with inputs that are off by one rounding; the
    differences that rounding explains are added to `largest`. `with_errors` adds the mean errors of
    equal outcomes in half precision to `largest`.
    """
    if changed.error is not None:
        return Difference("", f"the changed version raises {describe_error(changed.error)}")
    newly_overwritten = [name for name in changed.overwritten if name not in original.overwritten]
    if newly_overwritten:
        return Difference(
            newly_overwritten[0],
            f"the changed version overwrites {newly_overwritten[0]}, which the original leaves"
            " alone",
        )
    difference = _compare_side_effects(original, changed)
    if difference is not None:
        return difference
    if not rigour.strict and not all(map(_is_finite, original.outputs.values())):
        return None
    standard = _Standard(truth, jittered, largest, rigour)
    difference = _compare_results(original, changed, standard) or _compare_gradients(
        original, changed, standard
    )
    if difference is None and with_errors:
        _add_errors(original, changed, standard)
    return difference


@dataclass(frozen=True, slots=True)
class _Standard:
    """The further runs of the original that decide where two results differ by rounding only."""

    truth: Run
    jittered: Run
    largest: Largest
    rigour: Rigour

    def check(self, kind: str, name: str) -> Check:
        """Return the way to compare results of a kind ("outputs", "hooks" or "gradients") that an
        outcome holds in the attribute `name`."""
        return Check(
            kind,
            lambda: _without_sparse(getattr(self.truth(), name)),
            self.largest,
            lambda: _without_sparse(getattr(self.jittered(), name)),
            self.rigour,
        )


def _without_sparse(results: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return results by path with sparse tensors as dense ones; {} for None."""
    return {
        path: as_strided(value) if isinstance(value, torch.Tensor) else value
        for path, value in (results or {}).items()
    }


def _add_errors(original: Outcome, changed: Outcome, standard: _Standard) -> None:
    """Add the mean errors of outputs in half precision to `standard.largest`; the truth is run only
    where outputs are not equal bit for bit. Outputs that the truth cannot judge are skipped."""
    for path, value, changed_value in differing_halves(original.outputs, changed.outputs):
        exact = standard.truth().outputs.get(path)
        errors = mean_errors(value, changed_value, exact)
        if errors is not None:
            standard.largest.add_errors(str(value.dtype).removeprefix("torch."), path, *errors)


def _compare_results(original: Outcome, changed: Outcome, standard: _Standard) -> Difference | None:
    """Compare the outputs of two runs, those of the second call and those that hooks saw; return
    the first difference or None."""
    for words, kind, name in _RESULTS:
        check = standard.check(kind, name)
        difference = compare(getattr(original, name), getattr(changed, name), check)
        if difference is not None:
            return _with_prefix(words, difference)
    return None


def _compare_side_effects(original: Outcome, changed: Outcome) -> Difference | None:
    """Compare what two calls do besides giving results; return the first difference or None.

    Random numbers that only the changed version moves, memory that only its results share with
    arguments, and another number of calls of a submodule that hooks see, are differences. To move
    or share less is none.
    """
    new_sources = [name for name in changed.drew if name not in original.drew]
    if new_sources:
        return Difference(
            "",
            f"the changed version moves the random numbers of {new_sources[0]}, the original"
            " does not",
        )
    new_sharing = [pair for pair in changed.shared if pair not in original.shared]
    if new_sharing:
        return Difference(
            "", f"in the changed version {new_sharing[0]}, in the original it does not"
        )
    old_counts, new_counts = count_calls(original.noted), count_calls(changed.noted)
    for path in {**old_counts, **new_counts}:
        if old_counts.get(path, 0) != new_counts.get(path, 0):
            sentence = (
                f"hooks on {path!r} see {new_counts.get(path, 0)} calls, in the original"
                f" {old_counts.get(path, 0)}"
            )
            sentence += "; --contract results leaves hooks out of an edit by hand"
            return Difference(path, sentence)
    return None


def _compare_gradients(
    original: Outcome, changed: Outcome, standard: _Standard
) -> Difference | None:
    """Return the first difference of the gradients, or the second derivatives, of two runs. None
    also where the original has none or its backward raises, and, unless the rigour is strict,
    where some of its gradients are not finite."""
    has_no_gradients = original.gradients is None and original.second is None
    if original.backward_error is not None or has_no_gradients:
        return None
    if changed.backward_error is not None:
        return Difference(
            "", f"the changed version's backward raises {describe_error(changed.backward_error)}"
        )
    if original.second is not None:
        rigour = replace(standard.rigour, strict=True, absent_is_zero=True)
        strictly = replace(standard, rigour=rigour)
        check = strictly.check("gradients", "second")
        return _with_prefix(
            "the second derivative for ", compare(original.second, changed.second or {}, check)
        )
    if changed.gradients is None or original.gradients is None:
        return Difference("", "the changed version gives no gradients")
    if not standard.rigour.strict and not all(map(_is_finite, original.gradients.values())):
        return None
    check = standard.check("gradients", "gradients")
    difference = compare(original.gradients, changed.gradients, check)
    if difference is None and original.repeated_gradients is not None:
        changed_gradients = changed.repeated_gradients or {}
        second_difference = compare(original.repeated_gradients, changed_gradients, check)
        difference = _with_prefix("in the second backward ", second_difference)
    return _with_prefix("the gradient of ", difference)


def _with_prefix(prefix: str, difference: Difference | None) -> Difference | None:
    """Return a difference with words before its sentence, None for None."""
    return (
        Difference(
            difference.path, prefix + difference.sentence, difference.absolute, difference.relative
        )
        if difference
        else None
    )


def _is_finite(value: Any) -> bool:
    """Return whether a value holds no NaN and no infinity; True for anything but a floating
    tensor."""
    return (
        not isinstance(value, torch.Tensor)
        or not value.is_floating_point()
        or bool(torch.isfinite(widened(value)).all())
    )


class DescribedError(Exception):
    """An error of another process, whose text is the result of `describe_error`, class name
    included."""


def describe_error(error: BaseException) -> str:
    """Return "Class: message" on one line, of the message at most 300 characters, without addresses
    in memory; the class alone for an empty message, and the text alone of a DescribedError."""
    if isinstance(error, DescribedError):
        return str(error)
    text = re.sub(r"\b0x[0-9a-f]{6,}\b", "0x…", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def unsteady_paths(first_run: Outcome, second_run: Outcome) -> frozenset[str]:
    """Return the paths of state that differs between two equal runs of one version: clocks,
    addresses, counters."""
    pairs = ((first_run.outputs, second_run.outputs), (first_run.repeated, second_run.repeated))
    return frozenset(
        path
        for first, second in pairs
        for path in {**first, **second}
        if is_state(path)
        and (path not in first or path not in second or not _is_equal(first[path], second[path]))
    )


def _is_equal(first: Any, second: Any) -> bool:
    """Return whether two values have the same type and content."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return identical(first, second)
    return are_equal(first, second, equal_nan=False)


def without_paths(outcome: Outcome, paths: frozenset[str]) -> Outcome:
    """Return an outcome without the outputs at `paths`, of the first and the second call; the
    outcome itself where `paths` is empty."""
    if not paths:
        return outcome
    outputs, repeated = (
        {path: value for path, value in values.items() if path not in paths}
        for values in (outcome.outputs, outcome.repeated)
    )
    return replace(outcome, outputs=outputs, repeated=repeated)
