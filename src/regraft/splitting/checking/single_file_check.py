"""The check of a single file against the original, on inputs that were equal before."""

from __future__ import annotations

from typing import Any

from regraft.splitting.checking.original_network import MAX_ROUNDED, CheckResult, Original, attempt
from regraft.splitting.checking.result_difference import difference
from regraft.splitting.checking.rounding_test import is_rounding
from regraft.splitting.checking.saved_inputs import replay_advice
from regraft.splitting.sampling.varied_calls import vary_calls


def check_file(original: Original, split: Any, earlier: CheckResult) -> CheckResult:
    """Run the single file on the inputs that are equal in `earlier`, compare its results with the
    original's, and return the result of this check. Its decisions are not compared, as they show in
    its results only.

    Raises Unsplittable for a difference that neither rounding nor a threshold explains.
    """
    result = earlier.for_next_artefact()
    last = max(earlier.equal, default=-1)
    for number, call in enumerate(vary_calls(original.calls, original.varied)):
        if number > last:
            break
        if number in earlier.equal:
            compare_results(original, split, number, call, result)
    return result


def compare_results(
    original: Original, split: Any, number: int, call: dict[str, Any], result: CheckResult
) -> None:
    """Compare the results of both on one input, and add its number to the equal inputs of `result`,
    or a sentence to those that rounding or a threshold excuses.

    Raises Unsplittable for any other difference; exceptions of any two types are equal.
    """
    expected = original.run(call)
    got = attempt(lambda: split(**call))
    # ONNX Runtime has its own exceptions
    both_raise = isinstance(expected, Exception) and isinstance(got, Exception)
    mismatch = "" if both_raise else difference(got, expected)
    if not mismatch:
        result.equal.add(number)
        return
    original.look_for_thresholds(call)
    has_room = len(result.rounding) < MAX_ROUNDED
    if has_room and is_rounding(original.model, call, got, expected):
        result.rounding.append(f"input {number}, in the single file: {mismatch}")
    elif original.recorder.near_unequal:
        result.at_threshold.append(f"input {number}, in the single file")
    else:
        advice = replay_advice(call, split.directory)
        raise original.refuse(f"the single file differs from the original: {mismatch}{advice}")
