"""Run one recorded call on the original and on its counterpart, and compare everything a caller can
see."""

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
from regraft.verify.child.observe import (
    count_calls,
    flatten_log,
    random_states,
    shared_memory,
    watch_calls,
)
from regraft.verify.child.state import Watch, identical, is_state
from regraft.verify.child.tree import Call


@dataclass(frozen=True, slots=True)
class Target:
    """A callable part of a model: a module by its path, or a function of the file by its name.

    `scope` is the version of the file that the target belongs to, whose variables are watched.
    `effects` says whether the state that a call leaves behind counts as its result.
    """

    model: Any
    path: str = ""
    function: Callable[..., Any] | None = None
    scope: ModuleType | None = None
    effects: bool = True

    @property
    def module(self) -> Any:
        """Return the module of the target, None for a function."""
        return None if self.function else self.model.get_submodule(self.path)

    @property
    def callable(self) -> Callable[..., Any]:
        """Return the function or the module."""
        function: Callable[..., Any] = self.function or self.module
        return function


@dataclass(frozen=True, slots=True)
class Outcome:
    """The observations of one run. `error` is None where the call ran; `gradients` is None where
    backward is impossible.

    `outputs` also holds the buffers after the call and all other state that the call left behind;
    `again` holds the same for a second call. `noted` are the results that hooks on the submodules
    saw, `order` the order in which the hooks first ran, `drew` the sources of random numbers that
    the call advanced, `random_state_hash` a hash of PyTorch's random state after the call, `shared`
    the results that share memory with inputs, `second` the second derivatives.
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
    random_state_hash: int = 0
    error: BaseException | None = None
    backward_error: BaseException | None = None


Run = Callable[[], Outcome]


@dataclass(frozen=True, slots=True)
class Plan:
    """The way to run a call: the seed of the random numbers, with gradients or not, whether to
    repeat.

    `hooked` also notes the results that forward hooks on all submodules see, `twice` also
    differentiates twice. Without `leaves` the gradients are those of the parameters alone. `dtype`
    is a number format to cast inputs to, None for their own. `mode` is one of MODES, or "" for
    none. `reused` calls twice with the same tensors, whose content is different the second time,
    and reads both results at the end.
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
    """Seed the random numbers of every device that is present, of NumPy and of Python: models use
    all of them.

    `torch.manual_seed` formats a stack trace for each kind of device that is absent, which adds up
    over a run.
    """
    if _has_accelerator():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)


@functools.cache
def _has_accelerator() -> bool:
    """Return whether a device other than the CPU is available."""
    return bool(
        torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()
    )


def drop_traceback(error: BaseException) -> BaseException:
    """Return the error without its frames and causes, which would keep tensors alive; `frames_of`
    still returns the file names and lines.
    """
    if error.__traceback__ is not None:
        frames = traceback.walk_tb(error.__traceback__)
        error.came_through = traceback.StackSummary.extract(frames, lookup_lines=False)  # type: ignore[attr-defined]
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames that an error passed before `drop_traceback`, outermost first: file names
    and lines only."""
    return list(getattr(error, "came_through", ()))


def execute(target: Target, call: Call, plan: Plan) -> Outcome:
    """Run a call with fresh copies of its arguments; the state that it leaves behind is noted and
    then restored.

    Code that sets `requires_grad` of values computed from its inputs fails where these have
    gradients; it runs once more without them.
    """
    outcome = _execute(target, call, plan)
    if plan.gradients and outcome.error is not None and "leaf variable" in str(outcome.error):
        return _execute(target, call, replace(plan, leaves=False))
    return outcome


def _execute(target: Target, call: Call, plan: Plan) -> Outcome:
    """Run a call as planned; an error of the model is in the outcome."""
    watch = Watch(target.module, target.scope)
    try:
        with watch.printing(), in_conditions(target, plan.mode):
            return (
                _reuse_tensors(target, call, plan)
                if plan.reused
                else _forward(target, call, plan, watch)
            )
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - model code may raise any class; the error is the result
        return Outcome(error=drop_traceback(error))
    finally:
        watch.rewind()


AUTOCAST, INFERENCE, FROZEN = "autocast", "inference mode", "frozen parameters"
DETERMINISTIC, WIDE = "deterministic algorithms", "float64 as the default format"
MODES = (AUTOCAST, INFERENCE, FROZEN, DETERMINISTIC, WIDE)


@contextmanager
def in_conditions(target: Target, mode: str) -> Iterator[None]:
    """Run the body under one of MODES; under none where `mode` is empty."""
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
            stack.callback(
                torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()
            )
            torch.use_deterministic_algorithms(True)
        elif mode == WIDE:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
        yield


def _forward(target: Target, call: Call, plan: Plan, watch: Watch) -> Outcome:
    """Run a call, and backward where the plan has gradients, and return everything that is
    observed."""
    leaves = plan.gradients and plan.leaves
    arguments = tree.thaw(
        call, target.model, gradients=leaves, dtype=plan.dtype, scope=target.scope
    )
    reseed(plan.seed)
    states_before = random_states()
    with (
        torch.set_grad_enabled(plan.gradients),
        watch_calls(target.module if plan.hooked else None) as log,
    ):
        result = target.callable(*arguments.args, **arguments.kwargs)
    states_after = random_states()
    # in training the dropout rate is 0 here: random numbers that are drawn and not used do not
    # matter
    is_evaluation = not getattr(target.module or target.model, "training", False)
    drew = tuple(
        name
        for name, state in states_after.items()
        if is_evaluation and state != states_before.get(name, state)
    )
    flat_result = tree.flatten(result)
    sharing = shared_memory(flat_result, arguments, target.module)
    outputs = {path: _copy(value) for path, value in flat_result.items()}
    outputs.update(
        {f"buffer {name}": _copy(value) for name, value in _buffers(target.module).items()}
    )
    outputs.update(_effects(target, arguments, watch))
    overwritten = _overwritten_inputs(arguments)
    second_call = _call_again(target, call, plan, watch) if plan.repeat else {}
    outcome = Outcome(
        outputs,
        second_call,
        overwritten,
        noted=flatten_log(log),
        order=tuple(log),
        drew=drew,
        shared=sharing,
        random_state_hash=hash(states_after["torch"]),
    )
    if not plan.gradients:
        return outcome
    backward = _backward(flat_result, arguments, target.module, plan)
    if backward.gradients is not None and not overwritten:
        overwritten = tuple(f"{name} (during backward)" for name in _overwritten_inputs(arguments))
    return replace(
        outcome,
        overwritten=overwritten,
        gradients=backward.gradients,
        gradients_again=backward.gradients_again,
        second=backward.second,
        backward_error=backward.backward_error,
    )


def _reuse_tensors(target: Target, call: Call, plan: Plan) -> Outcome:
    """Call twice with the same tensors, with other content the second time: neither result may
    depend on the other call.

    A result that was remembered by the address of its input, or that the next call overwrites,
    differs.
    """
    arguments = tree.thaw(call, target.model, gradients=False, dtype=plan.dtype, scope=target.scope)
    with torch.no_grad():
        reseed(plan.seed)
        first = tree.flatten(
            target.callable(*arguments.args, **arguments.kwargs), "the first of two results"
        )
        for tensor, _ in arguments.passed.values():
            if tensor.is_floating_point() and not tree.is_mask(tensor):
                tensor.mul_(-0.5).add_(0.25)
            elif tensor.dim():
                tensor.copy_(tensor.flip(0))
        reseed(plan.seed)
        second = tree.flatten(
            target.callable(*arguments.args, **arguments.kwargs), "the second of two results"
        )
    return Outcome({path: _copy(value) for path, value in {**first, **second}.items()})


def _call_again(target: Target, call: Call, plan: Plan, watch: Watch) -> Mapping[str, Any]:
    """Return the results and effects of a call with the next seed and without gradients."""
    arguments = tree.thaw(call, target.model, gradients=False, dtype=plan.dtype, scope=target.scope)
    reseed(plan.seed + 1)
    with torch.no_grad():
        flat_result = tree.flatten(target.callable(*arguments.args, **arguments.kwargs))
    results = {path: _copy(value) for path, value in flat_result.items()}
    results.update(_effects(target, arguments, watch))
    return results


def _effects(target: Target, arguments: tree.Live, watch: Watch) -> dict[str, Any]:
    """Return the state that a call has left behind, empty where effects do not count."""
    return watch.effects(lambda: _number_format(target, arguments)) if target.effects else {}


def _number_format(target: Target, arguments: tree.Live) -> Any:
    """Return the coarsest floating format among a call's tensors and its module's parameters."""
    tensors = [tensor for tensor, _ in arguments.passed.values()]
    if isinstance(target.module, nn.Module):
        tensors += list(target.module.parameters())
    formats = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return max(formats, key=lambda dtype: torch.finfo(dtype).eps, default=torch.get_default_dtype())


def _buffers(module: Any) -> dict[str, Any]:
    """Return the buffers of a module by name, none for other objects."""
    return dict(module.named_buffers()) if isinstance(module, nn.Module) else {}


def _copy(value: Any) -> Any:
    """Return a detached copy of a tensor; other values as they are."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _overwritten_inputs(arguments: tree.Live) -> tuple[str, ...]:
    """Return the names of the inputs whose content has changed since the call."""
    return tuple(
        name
        for name, (tensor, copy) in arguments.passed.items()
        if not identical(tensor.detach(), copy)
    )


def _backward(
    flat_result: Mapping[str, Any], arguments: tree.Live, module: Any, plan: Plan
) -> Outcome:
    """Return an outcome with the gradients, or second derivatives, of a result with respect to
    inputs and parameters. An error in backward is in the outcome.
    """
    outputs = {
        p: v for p, v in flat_result.items() if isinstance(v, torch.Tensor) and v.requires_grad
    }
    inputs = dict(arguments.leaves)
    if isinstance(module, nn.Module):
        inputs.update(
            {f"parameter {name}": p for name, p in module.named_parameters() if p.requires_grad}
        )
    if not outputs or not inputs:
        return Outcome()
    try:
        if plan.twice:
            return Outcome(second=_second_derivatives(outputs, inputs))
        first = _gradients(outputs, inputs, keep_graph=plan.repeat)
        return Outcome(
            gradients=_copy_all(first),
            gradients_again=(
                _copy_all(_gradients(outputs, inputs, keep_graph=False)) if plan.repeat else None
            ),
        )
    except Exception as error:  # noqa: BLE001 - arbitrary backward code; the error is the result
        return Outcome(backward_error=drop_traceback(error))


def _gradients(
    outputs: Mapping[str, Any], inputs: Mapping[str, Any], *, keep_graph: bool, graph: bool = False
) -> Mapping[str, Any]:
    """Return the gradient for each input of the outputs' products with fixed cotangents; None for
    an input without one.
    """
    cotangents = [cotangent(path, value) for path, value in outputs.items()]
    gradients = torch.autograd.grad(
        list(outputs.values()),
        list(inputs.values()),
        cotangents,
        retain_graph=keep_graph or graph,
        allow_unused=True,
        create_graph=graph,
    )
    return dict(zip(inputs, gradients, strict=True))


def _second_derivatives(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Differentiate the gradients once more; return no entries where no gradient depends on an
    input."""
    gradients = _gradients(outputs, inputs, keep_graph=True, graph=True)
    differentiable = {
        f"gradient of {p}": v for p, v in gradients.items() if v is not None and v.requires_grad
    }
    return _copy_all(_gradients(differentiable, inputs, keep_graph=False)) if differentiable else {}


def _copy_all(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return detached copies of tensors by name."""
    return {name: _copy(value) for name, value in values.items()}


def cotangent(path: str, value: Any) -> Any:
    """Return a fixed random direction for one output, so that no gradient cancels by symmetry."""
    generator = torch.Generator().manual_seed(zlib.crc32(path.encode()))
    return torch.randn(value.shape, generator=generator).to(value.dtype)


def unsteady_paths(first_run: Outcome, second_run: Outcome) -> frozenset[str]:
    """Return the paths of state that differs between two equal runs of one version: clocks,
    addresses, counters."""
    pairs = ((first_run.outputs, second_run.outputs), (first_run.again, second_run.again))
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
    return type(first) is type(second) and bool(first == second)


def without_paths(outcome: Outcome, paths: frozenset[str]) -> Outcome:
    """Return an outcome without some paths of its state."""
    if not paths:
        return outcome
    outputs, again = (
        {path: value for path, value in values.items() if path not in paths}
        for values in (outcome.outputs, outcome.again)
    )
    return replace(outcome, outputs=outputs, again=again)


def judge(
    original: Outcome,
    changed: Outcome,
    truth: Run,
    largest: Largest,
    *,
    strict: bool,
    jittered: Run = Outcome,
) -> Difference | None:
    """Compare the outcomes of two runs of one call, of which the original's must have succeeded;
    return the first difference.

    `truth` runs the original in float64, `jittered` with inputs that are off by one rounding.
    `strict` also compares values where the original's own result is not finite.
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
    difference = _compare_conduct(original, changed)
    if difference is not None:
        return difference
    if not strict and not all(_is_finite(value) for value in original.outputs.values()):
        return None
    check = Check(
        "outputs", lambda: truth().outputs, largest, lambda: jittered().outputs, not strict
    )
    difference = compare(original.outputs, changed.outputs, check)
    if difference is None:
        check = Check(
            "outputs", lambda: truth().again, largest, lambda: jittered().again, not strict
        )
        difference = _with_prefix(
            "in the second call ", compare(original.again, changed.again, check)
        )
    if difference is None:
        check = Check("hooks", lambda: truth().noted, largest, lambda: jittered().noted, not strict)
        difference = _with_prefix("with hooks ", compare(original.noted, changed.noted, check))
    return difference or _compare_gradients(
        original, changed, truth, largest, strict=strict, jittered=jittered
    )


def _compare_conduct(original: Outcome, changed: Outcome) -> Difference | None:
    """Compare what two calls do beside their results: random numbers, shared memory and calls of
    submodules."""
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
    original: Outcome,
    changed: Outcome,
    truth: Run,
    largest: Largest,
    *,
    strict: bool,
    jittered: Run = Outcome,
) -> Difference | None:
    """Compare the gradients, or the second derivatives, of two runs; return the first
    difference."""
    if original.backward_error is not None or (
        original.gradients is None and original.second is None
    ):
        return None
    if changed.backward_error is not None:
        return Difference(
            "", f"the changed version's backward raises {describe_error(changed.backward_error)}"
        )
    if original.second is not None:
        check = Check("gradients", lambda: truth().second, largest, lambda: jittered().second)
        return _with_prefix(
            "the second derivative for ", compare(original.second, changed.second or {}, check)
        )
    if changed.gradients is None or original.gradients is None:
        return Difference("", "the changed version gives no gradients")
    if not strict and not all(_is_finite(value) for value in original.gradients.values()):
        return None
    check = Check(
        "gradients", lambda: truth().gradients, largest, lambda: jittered().gradients, not strict
    )
    difference = compare(original.gradients, changed.gradients, check)
    if difference is None and original.gradients_again is not None:
        second_difference = compare(original.gradients_again, changed.gradients_again or {}, check)
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
        or bool(torch.isfinite(value).all())
    )


class DescribedError(Exception):
    """An error of another process, whose text is that of `describe_error`."""


def describe_error(error: BaseException) -> str:
    """Return an error's class and message on one line."""
    if isinstance(error, DescribedError):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
