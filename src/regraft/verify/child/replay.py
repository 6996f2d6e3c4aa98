"""Run one recorded call on the original and on its counterpart, and compare everything a caller can see."""

from __future__ import annotations

import functools
import random
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

from regraft.verify.child import tree
from regraft.verify.child.compare import Check, Difference, Largest, compare
from regraft.verify.child.observe import calls_noted, chance, counted, shared, watch_calls
from regraft.verify.child.state import Watch, identical, is_state
from regraft.verify.child.tree import Call


@dataclass(frozen=True, slots=True)
class Target:
    """Something callable inside a model: a module by its path, or a function of the file by its name.

    `scope` is the version of the file it belongs to, whose variables are watched. `effects` says whether what a call
    leaves behind counts as its result.
    """

    model: Any
    path: str = ""
    function: Callable[..., Any] | None = None
    scope: ModuleType | None = None
    effects: bool = True

    @property
    def module(self) -> Any:
        return None if self.function else self.model.get_submodule(self.path)

    @property
    def callable(self) -> Callable[..., Any]:
        called: Callable[..., Any] = self.function or self.module
        return called


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run showed. `error` is None where it ran; `gradients` is None where backward is impossible.

    `outputs` also holds the buffers after the call and everything else that it left behind; `again` the same of a
    second call. `noted` is what hooks on the submodules saw, `order` the order in which they first ran, `drew` the
    sources of random numbers that the call moved,
    `left` a hash of PyTorch's afterwards, `shared` the results that share memory with what went in, `second` the
    second derivatives.
    """

    outputs: Mapping[str, Any] = field(default_factory=dict)
    again: Mapping[str, Any] = field(default_factory=dict)
    overwritten: tuple[str, ...] = ()
    gradients: Mapping[str, Any] | None = None
    gradients_again: Mapping[str, Any] | None = None
    second: Mapping[str, Any] | None = None
    noted: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    drew: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    left: int = 0
    error: BaseException | None = None
    backward_error: BaseException | None = None


Run = Callable[[], Outcome]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run: the seed of the random numbers, with gradients or not, whether to repeat.

    `hooked` also notes what forward hooks on all submodules see, `twice` also differentiates twice. Without `leaves`
    the gradients are those of the parameters alone. `mode` is one of MODES, or "" for none. `reused` calls twice with
    the same tensors, whose content is another the second time, and reads both results at the end.
    """

    seed: int = 0
    gradients: bool = True
    leaves: bool = True
    repeat: bool = False
    dtype: Any = None
    hooked: bool = False
    twice: bool = False
    mode: str = ""
    reused: bool = False


def reseed(seed: int) -> None:
    """Seed the random numbers of every device there is, and NumPy's and Python's own, which models take too.

    `torch.manual_seed` formats a stack trace for each kind of device that is absent, which adds up over a run.
    """
    if _accelerated():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)


@functools.cache
def _accelerated() -> bool:
    return bool(torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available())


def bare(error: BaseException) -> BaseException:
    """An error without the frames that it came through, which would keep their tensors alive; `frames_of` has them."""
    if error.__traceback__ is not None:
        walked = traceback.walk_tb(error.__traceback__)
        error.came_through = traceback.StackSummary.extract(walked, lookup_lines=False)  # type: ignore[attr-defined]
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Where an error made bare came through, outermost first: file names and lines only."""
    return list(getattr(error, "came_through", ()))


def execute(target: Target, call: Call, plan: Plan) -> Outcome:
    """Run a call with fresh copies of its arguments; what it leaves behind is noted and then taken back.

    Code that sets `requires_grad` of what it computes from its inputs runs as long as these have no gradients.
    """
    seen = _execute(target, call, plan)
    if plan.gradients and seen.error is not None and "leaf variable" in str(seen.error):
        return _execute(target, call, replace(plan, leaves=False))
    return seen


def _execute(target: Target, call: Call, plan: Plan) -> Outcome:
    watch = Watch(target.module, target.scope)
    try:
        with watch.printing(), in_conditions(target, plan.mode):
            return _reused(target, call, plan) if plan.reused else _forward(target, call, plan, watch)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - model code may raise any class; the error is the result
        return Outcome(error=bare(error))
    finally:
        watch.rewind()


AUTOCAST, INFERENCE, FROZEN = "autocast", "inference mode", "frozen parameters"
DETERMINISTIC, WIDE = "deterministic algorithms", "float64 as the default format"
MODES = (AUTOCAST, INFERENCE, FROZEN, DETERMINISTIC, WIDE)


@contextmanager
def in_conditions(target: Target, mode: str) -> Iterator[None]:
    """Run under one of MODES; none where `mode` is empty."""
    if mode == FROZEN:
        parameters = [p for p in target.model.parameters() if p.requires_grad]
        for parameter in parameters:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in parameters:
                parameter.requires_grad_(True)
        return
    with ExitStack() as stack:
        if mode == AUTOCAST:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        elif mode == INFERENCE:
            stack.enter_context(torch.inference_mode())
        elif mode == DETERMINISTIC:
            stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
            torch.use_deterministic_algorithms(True)
        elif mode == WIDE:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
        yield


def _forward(target: Target, call: Call, plan: Plan, watch: Watch) -> Outcome:
    leaves = plan.gradients and plan.leaves
    live = tree.thaw(call, target.model, gradients=leaves, dtype=plan.dtype, scope=target.scope)
    reseed(plan.seed)
    before = chance()
    with torch.set_grad_enabled(plan.gradients), watch_calls(target.module if plan.hooked else None) as log:
        result = target.callable(*live.args, **live.kwargs)
    now = chance()
    # in training the rate is 0 here: whether numbers are taken and not used is of no interest
    still = not getattr(target.module or target.model, "training", False)
    drew = tuple(name for name, state in now.items() if still and state != before.get(name, state))
    flat = tree.flatten(result)
    alike = shared(flat, live, target.module)
    outputs = {path: _copy(value) for path, value in flat.items()}
    outputs.update({f"buffer {name}": _copy(value) for name, value in _buffers(target.module).items()})
    outputs.update(_effects(target, live, watch))
    overwritten = _overwritten(live)
    again = _second(target, call, plan, watch) if plan.repeat else {}
    seen = Outcome(
        outputs, again, overwritten, noted=calls_noted(log), order=tuple(log), drew=drew, shared=alike,
        left=hash(now["torch"]),
    )  # fmt: skip
    if not plan.gradients:
        return seen
    found = _backward(flat, live, target.module, plan)
    if found.gradients is not None and not overwritten:
        overwritten = tuple(f"{name} (during backward)" for name in _overwritten(live))
    return replace(
        seen, overwritten=overwritten, gradients=found.gradients, gradients_again=found.gradients_again,
        second=found.second, backward_error=found.backward_error,
    )  # fmt: skip


def _reused(target: Target, call: Call, plan: Plan) -> Outcome:
    """Call twice with the same tensors, other content in them the second time: neither result may depend on the other.

    A result that was remembered by the address of its input, or that is written over by the next call, differs.
    """
    live = tree.thaw(call, target.model, gradients=False, dtype=plan.dtype, scope=target.scope)
    with torch.no_grad():
        reseed(plan.seed)
        first = tree.flatten(target.callable(*live.args, **live.kwargs), "the first of two results")
        for given, _ in live.passed.values():
            if given.is_floating_point() and not tree.is_mask(given):
                given.mul_(-0.5).add_(0.25)
            elif given.dim():
                given.copy_(given.flip(0))
        reseed(plan.seed)
        second = tree.flatten(target.callable(*live.args, **live.kwargs), "the second of two results")
    return Outcome({path: _copy(value) for path, value in {**first, **second}.items()})


def _second(target: Target, call: Call, plan: Plan, watch: Watch) -> Mapping[str, Any]:
    live = tree.thaw(call, target.model, gradients=False, dtype=plan.dtype, scope=target.scope)
    reseed(plan.seed + 1)
    with torch.no_grad():
        flat = tree.flatten(target.callable(*live.args, **live.kwargs))
    again = {path: _copy(value) for path, value in flat.items()}
    again.update(_effects(target, live, watch))
    return again


def _effects(target: Target, live: tree.Live, watch: Watch) -> dict[str, Any]:
    return watch.effects(lambda: _number_format(target, live)) if target.effects else {}


def _number_format(target: Target, live: tree.Live) -> Any:
    """Return the coarsest floating format among a call's tensors and its module's parameters."""
    tensors = [given for given, _ in live.passed.values()]
    if isinstance(target.module, nn.Module):
        tensors += list(target.module.parameters())
    formats = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return max(formats, key=lambda dtype: torch.finfo(dtype).eps, default=torch.get_default_dtype())


def _buffers(module: Any) -> dict[str, Any]:
    return dict(module.named_buffers()) if isinstance(module, nn.Module) else {}


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _overwritten(live: tree.Live) -> tuple[str, ...]:
    return tuple(name for name, (given, kept) in live.passed.items() if not identical(given.detach(), kept))


def _backward(flat: Mapping[str, Any], live: tree.Live, module: Any, plan: Plan) -> Outcome:
    outputs = {p: v for p, v in flat.items() if isinstance(v, torch.Tensor) and v.requires_grad}
    wanted = dict(live.leaves)
    if isinstance(module, nn.Module):
        wanted.update({f"parameter {name}": p for name, p in module.named_parameters() if p.requires_grad})
    if not outputs or not wanted:
        return Outcome()
    try:
        if plan.twice:
            return Outcome(second=_twice(outputs, wanted))
        first = _gradients(outputs, wanted, keep=plan.repeat)
        return Outcome(
            gradients=_copied(first),
            gradients_again=_copied(_gradients(outputs, wanted, keep=False)) if plan.repeat else None,
        )
    except Exception as error:  # noqa: BLE001 - arbitrary backward code; the error is the result
        return Outcome(backward_error=bare(error))


def _gradients(
    outputs: Mapping[str, Any], wanted: Mapping[str, Any], *, keep: bool, graph: bool = False
) -> Mapping[str, Any]:
    cotangents = [cotangent(path, value) for path, value in outputs.items()]
    found = torch.autograd.grad(
        list(outputs.values()), list(wanted.values()), cotangents, retain_graph=keep or graph, allow_unused=True,
        create_graph=graph,
    )  # fmt: skip
    return dict(zip(wanted, found, strict=True))


def _twice(outputs: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Differentiate the gradients once more; none at all where they do not depend on anything."""
    first = _gradients(outputs, wanted, keep=True, graph=True)
    live = {f"gradient of {p}": v for p, v in first.items() if v is not None and v.requires_grad}
    return _copied(_gradients(live, wanted, keep=False)) if live else {}


def _copied(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: _copy(value) for name, value in values.items()}


def cotangent(path: str, value: Any) -> Any:
    """Return a fixed random direction for one output, so that no gradient cancels by symmetry."""
    generator = torch.Generator().manual_seed(zlib.crc32(path.encode()))
    return torch.randn(value.shape, generator=generator).to(value.dtype)


def unsteady(once: Outcome, again: Outcome) -> frozenset[str]:
    """Return the paths of state that two equal runs of one version leave different: clocks, addresses, counters."""
    pairs = ((once.outputs, again.outputs), (once.again, again.again))
    return frozenset(
        path
        for first, second in pairs
        for path in {**first, **second}
        if is_state(path) and (path not in first or path not in second or not _agree(first[path], second[path]))
    )


def _agree(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return identical(first, second)
    return type(first) is type(second) and bool(first == second)


def without(outcome: Outcome, paths: frozenset[str]) -> Outcome:
    """Return an outcome that does not show some paths of its state."""
    if not paths:
        return outcome
    outputs, again = (
        {path: value for path, value in shown.items() if path not in paths}
        for shown in (outcome.outputs, outcome.again)
    )
    return replace(outcome, outputs=outputs, again=again)


def judge(
    original: Outcome, changed: Outcome, truth: Run, largest: Largest, *, strict: bool, jittered: Run = Outcome
) -> Difference | None:
    """Compare two runs of one call; the original's run must have succeeded.

    `truth` runs the original in float64, `jittered` with inputs that are off by one rounding. `strict` also compares
    values where the original's own result is not finite.
    """
    if changed.error is not None:
        return Difference("", f"the changed version raises {describe_error(changed.error)}")
    new = [name for name in changed.overwritten if name not in original.overwritten]
    if new:
        return Difference(new[0], f"the changed version overwrites {new[0]}, which the original leaves alone")
    found = _judge_conduct(original, changed)
    if found is not None:
        return found
    if not strict and not all(_finite(value) for value in original.outputs.values()):
        return None
    check = Check("outputs", lambda: truth().outputs, largest, lambda: jittered().outputs, not strict)
    found = compare(original.outputs, changed.outputs, check)
    if found is None:
        check = Check("outputs", lambda: truth().again, largest, lambda: jittered().again, not strict)
        found = _renamed("in the second call ", compare(original.again, changed.again, check))
    if found is None:
        check = Check("hooks", lambda: truth().noted, largest, lambda: jittered().noted, not strict)
        found = _renamed("with hooks ", compare(original.noted, changed.noted, check))
    return found or _judge_gradients(original, changed, truth, largest, strict=strict, jittered=jittered)


def _judge_conduct(original: Outcome, changed: Outcome) -> Difference | None:
    """What a call does besides its result."""
    drew = [name for name in changed.drew if name not in original.drew]
    if drew:
        return Difference("", f"the changed version moves the random numbers of {drew[0]}, the original does not")
    alike = [pair for pair in changed.shared if pair not in original.shared]
    if alike:
        return Difference("", f"in the changed version {alike[0]}, in the original it does not")
    before, after = counted(original.noted), counted(changed.noted)
    for path in {**before, **after}:
        if before.get(path, 0) != after.get(path, 0):
            sentence = f"hooks on {path!r} see {after.get(path, 0)} calls, in the original {before.get(path, 0)}"
            sentence += "; --contract results leaves hooks out of an edit by hand"
            return Difference(path, sentence)
    return None


def _judge_gradients(
    original: Outcome, changed: Outcome, truth: Run, largest: Largest, *, strict: bool, jittered: Run = Outcome
) -> Difference | None:
    if original.backward_error is not None or (original.gradients is None and original.second is None):
        return None
    if changed.backward_error is not None:
        return Difference("", f"the changed version's backward raises {describe_error(changed.backward_error)}")
    if original.second is not None:
        check = Check("gradients", lambda: truth().second, largest, lambda: jittered().second)
        return _renamed("the second derivative for ", compare(original.second, changed.second or {}, check))
    if changed.gradients is None or original.gradients is None:
        return Difference("", "the changed version gives no gradients")
    if not strict and not all(_finite(value) for value in original.gradients.values()):
        return None
    check = Check("gradients", lambda: truth().gradients, largest, lambda: jittered().gradients, not strict)
    found = compare(original.gradients, changed.gradients, check)
    if found is None and original.gradients_again is not None:
        again = compare(original.gradients_again, changed.gradients_again or {}, check)
        found = _renamed("in the second backward ", again)
    return _renamed("the gradient of ", found)


def _renamed(prefix: str, found: Difference | None) -> Difference | None:
    return Difference(found.path, prefix + found.sentence, found.absolute, found.relative) if found else None


def _finite(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or not value.is_floating_point() or bool(torch.isfinite(value).all())


class DescribedError(Exception):
    """An error of another process, in the words of `describe_error`."""


def describe_error(error: BaseException) -> str:
    """Return an error's class and message on one line."""
    if isinstance(error, DescribedError):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
