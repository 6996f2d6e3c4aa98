"""What a single call does not show: twenty optimizer steps, copies, pickles."""

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

from regraft.verify.child import tree, weights
from regraft.verify.child.compare import Check, Difference, Largest, compare
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.pair import Pair
from regraft.verify.child.replay import Plan, Target, cotangent, execute, reseed, unsteady, without
from regraft.verify.child.session import Session, in_mode

STEPS = 20
RATE = 0.05
# Losses may differ by this part of their size, or by this many times what one rounding of the first weights changes.
TOLERANCE = 1e-4
SPREAD = 20.0
SAMPLES = 4  # how many times the first weights are rounded anew where losses differ

Lasting = Callable[[Subject, Pair, Session], tuple[Difference | None, str]]


def trained(subject: Subject, pair: Pair, session: Session) -> tuple[Difference | None, str]:
    """Compare the losses of both versions over optimizer steps, with evaluations in between.

    Steps have a fixed length and no state: an optimizer that divides by small gradients would blow rounding up.
    """
    with session.ledger.step("original", "", f"train {subject.name}"):
        before = _losses(subject, pair.original, session)
    if isinstance(before, BaseException) or not before:
        return None, ""
    with session.ledger.step("changed", "", f"train {subject.name}"):
        after = _losses(subject, pair.changed, session)
    if isinstance(after, BaseException):
        return Difference("", f"training the changed version raises {_brief(after)}"), ""
    spread = [0.0] * len(before)
    found = _parting(before, after, spread)
    for sample in range(SAMPLES):
        if found is None:
            break
        with session.ledger.step("original", "", f"train {subject.name}"):
            moved = _losses(subject, _moved(pair.original, sample), session)
        if not isinstance(moved, BaseException):
            spread = _widened(spread, before, moved)
        found = _parting(before, after, spread)
    return found, "" if found else f"losses over {STEPS} optimizer steps"


def _parting(before: list[float], after: list[float], spread: list[float]) -> Difference | None:
    """Return the first loss that differs by more than roundings of the first weights explain."""
    for number, (ours, theirs, wide) in enumerate(zip(before, after, spread, strict=True)):
        if math.isfinite(ours) and not abs(theirs - ours) <= TOLERANCE * abs(ours) + SPREAD * wide:
            sentence = f"after {number // 2} optimizer steps the loss is {theirs:.6g}, in the original {ours:.6g}"
            return Difference("loss", sentence, abs(theirs - ours), abs(theirs - ours) / max(abs(ours), 1e-12))
    return None


def _widened(spread: list[float], before: list[float], moved: list[float]) -> list[float]:
    """Return the largest change up to each step: a path that has left another does not count as back by chance."""
    apart = [abs(ours - other) for ours, other in zip(before, moved, strict=True)]
    largest = itertools.accumulate((one if math.isfinite(one) else math.inf for one in apart), max)
    return [max(pair) for pair in zip(spread, largest, strict=True)]


def _losses(subject: Subject, model: Any, session: Session) -> list[float] | BaseException:
    """Return the training loss of each step and the loss in evaluation before it."""
    session.rewind()
    try:
        model = weights.copied(model).float()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            return []
        optimizer = torch.optim.SGD(parameters, lr=RATE)
        calls = subject.calls(0)
        losses = []
        with weights.dropout_rate(model, 0.0):
            for step in range(STEPS):
                call = calls[step % len(calls)]
                with torch.no_grad():
                    losses.append(float(_loss(in_mode(model, False), call, step)))
                optimizer.zero_grad()
                loss = _loss(in_mode(model, True), call, step)
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


def _loss(model: Any, call: tree.Call, seed: int) -> Any:
    """Mean squared distance of all floating results to fixed random numbers."""
    live = tree.thaw(call, model, gradients=False)
    reseed(seed)
    flat = tree.flatten(model(*live.args, **live.kwargs))
    values = {path: value for path, value in flat.items() if isinstance(value, torch.Tensor)}
    floating = {path: value for path, value in values.items() if value.is_floating_point() and value.numel()}
    return sum((value.float() - cotangent(path, value)).pow(2).mean() for path, value in floating.items())


def _moved(model: Any, seed: int) -> Any:
    """Return a copy with every weight moved by about one rounding."""
    other = weights.copied(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.is_floating_point():
                signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2.0 - 1
                parameter.mul_(1 + signs.to(parameter) * torch.finfo(parameter.dtype).eps)
    return other


def copied(subject: Subject, pair: Pair, session: Session) -> tuple[Difference | None, str]:
    """Check that the model is still copied and pickled where the original is, and that a copy is one of its own."""
    made = []  # all of them before anything runs: a first call may leave behind what cannot be copied
    for how, make in (("copy.deepcopy", copy.deepcopy), ("pickle", _pickled)):
        ours = _attempt(make, pair.original)
        if not isinstance(ours, BaseException):
            made.append((how, ours, _attempt(make, pair.changed)))
    done = ""
    for how, ours, theirs in made:
        if isinstance(theirs, BaseException):
            return Difference("", f"{how} works for the original, not for the changed version: {_brief(theirs)}"), ""
        if _unlike(subject, pair.original, ours, session.original):
            continue  # a copy of the original is another too
        found = _unlike(subject, pair.changed, theirs, session.changed)
        if found:
            return Difference(found.path, f"what {how} makes of the changed version is another: {found.sentence}"), ""
        done = "copies and pickles"
    return None, done


def _pickled(model: Any) -> Any:
    buffer = io.BytesIO()
    pickle.dump(model, buffer)
    return pickle.loads(buffer.getvalue())


def _attempt(make: Callable[[Any], Any], model: Any) -> Any:
    try:
        return make(model)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; the error is the result
        return error


def _unlike(subject: Subject, model: Any, other: Any, scope: ModuleType) -> Difference | None:
    """Compare a model and its copy after the model's own weights were cleared: a copy must not look there."""
    call, plan = subject.calls(0)[0], Plan(gradients=False)
    before = execute(Target(in_mode(model, False), scope=scope), call, plan)
    with _cleared(model):
        after = execute(Target(in_mode(other, False), scope=scope), call, plan)
    if before.error is not None:
        return None
    if after.error is not None:
        return Difference("", f"it raises {_brief(after.error)}")
    noise = unsteady(before, execute(Target(in_mode(model, False), scope=scope), call, plan))  # a clock, say
    return compare(without(before, noise).outputs, without(after, noise).outputs, Check("outputs", dict, Largest()))


@contextmanager
def _cleared(model: Any) -> Iterator[None]:
    kept = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
    with torch.no_grad():
        for parameter, _ in kept:
            parameter.zero_()
        try:
            yield
        finally:
            for parameter, value in kept:
                parameter.copy_(value)


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
