"""Comparisons beyond single calls: twenty optimizer steps, copies and pickles."""

from __future__ import annotations

import copy
import io
import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from regraft.execution.nested import flatten
from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_gradients import cotangent
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.call_variants import move_by_rounding
from regraft.verification.child.comparison_terms import Check, Difference, Largest
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.model_pair import Pair
from regraft.verification.child.outcome_comparison import unsteady_paths, without_paths
from regraft.verification.child.random_states import reseed
from regraft.verification.child.result_comparison import compare
from regraft.verification.child.session import Session, switch_mode

STEPS = 20
RATE = 0.05
# Losses may differ by this part of their size, or by this many times the effect of one rounding of
# the first weights.
TOLERANCE = 1e-4
SPREAD = 20.0
SAMPLES = 4  # the first weights are rounded anew this many times where losses differ

CheckOverTime = Callable[[Subject, Pair, Session], tuple[Difference | None, str]]


def compare_training(
    subject: Subject, pair: Pair, session: Session
) -> tuple[Difference | None, str]:
    """Compare the losses of copies of both models over STEPS optimizer steps, with evaluations in
    between.

    Return a difference or None, and in words what agreed; "" where there is a difference, and where
    the original cannot be trained. Steps have a fixed length and no state: an optimizer that
    divides by small gradients would blow rounding up.
    """
    with session.ledger.step("original", "", f"train {subject.name}"):
        original_losses = _losses(subject, pair.original, session)
    if isinstance(original_losses, BaseException) or not original_losses:
        return None, ""
    with session.ledger.step("changed", "", f"train {subject.name}"):
        changed_losses = _losses(subject, pair.changed, session)
    if isinstance(changed_losses, BaseException):
        return Difference(
            "", f"training the changed version raises {shorten_error(changed_losses, 200)}"
        ), ""
    spread = [0.0] * len(original_losses)
    difference = _first_difference(original_losses, changed_losses, spread)
    for sample in range(SAMPLES):
        if difference is None:
            break
        with session.ledger.step("original", "", f"train {subject.name}"):
            moved_losses = _losses(subject, _move_by_rounding(pair.original, sample), session)
        if not isinstance(moved_losses, BaseException):
            spread = _widen_spread(spread, original_losses, moved_losses)
        difference = _first_difference(original_losses, changed_losses, spread)
    return difference, "" if difference else f"losses over {STEPS} optimizer steps"


def _first_difference(
    original_losses: list[float], changed_losses: list[float], spread: list[float]
) -> Difference | None:
    """Return the first loss that differs by more than TOLERANCE of its size and SPREAD times
    `spread`, the effect of roundings of the first weights, or None. Losses of the original that are
    not finite do not count."""
    triples = zip(original_losses, changed_losses, spread, strict=True)
    for number, (original, changed, rounding_effect) in enumerate(triples):
        gap = abs(changed - original)
        allowed_gap = TOLERANCE * abs(original) + SPREAD * rounding_effect
        if math.isfinite(original) and not gap <= allowed_gap:  # also where the gap is NaN
            sentence = (
                f"after {number // 2} optimizer steps the loss is {changed:.6g}, in the original"
                f" {original:.6g}"
            )
            return Difference("loss", sentence, gap, gap / max(abs(original), 1e-12))
    return None


def _widen_spread(
    spread: list[float], original_losses: list[float], moved_losses: list[float]
) -> list[float]:
    """Return, for each loss, the larger of `spread` and the largest distance between the two paths
    up to that loss: where two paths have separated, a later step that is close by chance does not
    count. A distance that is not finite counts as infinite."""
    distances = [
        abs(original_loss - moved_loss)
        for original_loss, moved_loss in zip(original_losses, moved_losses, strict=True)
    ]
    largest = itertools.accumulate(
        (distance if math.isfinite(distance) else math.inf for distance in distances), max
    )
    return [max(pair) for pair in zip(spread, largest, strict=True)]


def _losses(subject: Subject, model: Any, session: Session) -> list[float] | BaseException:
    """Return the losses of a copy of a model in float32, alternately that of an evaluation before a
    step and the training loss of the step; [] for a model without parameters to train, an error
    where the model raises it. The session's state is rewound before and after."""
    session.rewind()
    try:
        model = weights.copy_model(model).float()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            return []
        optimizer = torch.optim.SGD(parameters, lr=RATE)
        calls = subject.calls(0)
        losses = []
        with weights.set_dropout_rate(model, 0.0):
            for step in range(STEPS):
                call = calls[step % len(calls)]
                with torch.no_grad():
                    losses.append(float(_loss(switch_mode(model, False), call, step)))
                optimizer.zero_grad()
                loss = _loss(switch_mode(model, True), call, step)
                losses.append(float(loss.detach()))
                if loss.requires_grad:
                    loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
    except Exception as error:  # noqa: BLE001 - arbitrary model code; the error is the result
        return error
    finally:
        session.rewind()
    return losses


def _loss(model: Any, call: call_arguments.Call, seed: int) -> Any:
    """Return the sum, over all floating results of a call, of the mean squared distance to fixed
    random numbers, as a scalar tensor; 0 without such results."""
    arguments = call_arguments.build_arguments(call, model, gradients=False)
    reseed(seed)
    flat = flatten(model(*arguments.args, **arguments.kwargs))
    values = {path: value for path, value in flat.items() if isinstance(value, torch.Tensor)}
    floating = {
        path: value for path, value in values.items() if value.is_floating_point() and value.numel()
    }
    return sum(
        (value.float() - cotangent(path, value)).pow(2).mean() for path, value in floating.items()
    )


def _move_by_rounding(model: Any, seed: int) -> Any:
    """Return a copy of a model with every floating parameter moved by about one rounding, up or
    down."""
    moved = weights.copy_model(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in moved.parameters():
            if parameter.is_floating_point():
                parameter.copy_(move_by_rounding(parameter, generator))
    return moved


def compare_copies(subject: Subject, pair: Pair, session: Session) -> tuple[Difference | None, str]:
    """Check that the model is still copied and pickled where the original is, and that a copy does
    not depend on the model.

    Return a difference or None, and in words what agreed: "copies and pickles" if at least one of
    both did, "" for nothing. Both models are in evaluation after a comparison.
    """
    # all copies before anything runs: a first call may leave state behind that cannot be copied
    copies = []
    for means, copy_model in (("copy.deepcopy", copy.deepcopy), ("pickle", _pickle_and_load)):
        original_copy = _result_or_error(copy_model, pair.original)
        if not isinstance(original_copy, BaseException):
            copies.append((means, original_copy, _result_or_error(copy_model, pair.changed)))
    agreed = ""
    for means, original_copy, changed_copy in copies:
        if isinstance(changed_copy, BaseException):
            return (
                Difference(
                    "",
                    f"{means} works for the original, not for the changed version:"
                    f" {shorten_error(changed_copy, 200)}",
                ),
                "",
            )
        if _copy_difference(subject, pair.original, original_copy, session.original):
            continue  # a copy of the original differs, too
        difference = _copy_difference(subject, pair.changed, changed_copy, session.changed)
        if difference:
            return (
                Difference(
                    difference.path,
                    f"what {means} makes of the changed version is another: {difference.sentence}",
                ),
                "",
            )
        agreed = "copies and pickles"
    return None, agreed


def _pickle_and_load(model: Any) -> Any:
    """Return a model after pickling and loading."""
    buffer = io.BytesIO()
    pickle.dump(model, buffer)
    return pickle.loads(buffer.getvalue())


def _result_or_error(function: Callable[[Any], Any], model: Any) -> Any:
    """Return the result of a function on a model, or the error that it raised."""
    try:
        return function(model)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; the error is the result
        return error


def _copy_difference(
    subject: Subject, model: Any, copied: Any, scope: ModuleType
) -> Difference | None:
    """Return the first difference of a model's results and its copy's in the first call of seed 0,
    without gradients, computed after the model's own weights were cleared, since a copy must not
    read them; None where they agree, and where the model itself does not run. Results that differ
    between two runs of the model are left out. Weights are restored; both are in evaluation
    afterwards."""
    call, plan = subject.calls(0)[0], Plan(gradients=False)
    model_outcome = execute(Target(switch_mode(model, False), scope=scope), call, plan)
    with _clear_parameters(model):
        copy_outcome = execute(Target(switch_mode(copied, False), scope=scope), call, plan)
    if model_outcome.error is not None:
        return None
    if copy_outcome.error is not None:
        return Difference("", f"it raises {shorten_error(copy_outcome.error, 200)}")
    repeated_outcome = execute(Target(switch_mode(model, False), scope=scope), call, plan)
    noise = unsteady_paths(model_outcome, repeated_outcome)  # a clock, say
    return compare(
        without_paths(model_outcome, noise).outputs,
        without_paths(copy_outcome, noise).outputs,
        Check("outputs", dict, Largest()),
    )


@contextmanager
def _clear_parameters(model: Any) -> Iterator[None]:
    """Set all parameters to zero in the body, and restore their values at its end."""
    saved = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
    with torch.no_grad():
        for parameter, _ in saved:
            parameter.zero_()
        try:
            yield
        finally:
            for parameter, value in saved:
                parameter.copy_(value)
