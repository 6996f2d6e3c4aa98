"""Run one recorded call on the original or on its counterpart, and observe everything a caller can
see."""

from __future__ import annotations

import functools
import random
import sys
import traceback
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

from regraft.execution.compare import identical, widened
from regraft.execution.nested import copy_leaf, flatten
from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_observation import (
    flatten_log,
    random_states,
    shared_memory,
    watch_calls,
)
from regraft.verification.child.state_watch import Watch
from regraft.verification.child.torch_modes import SWITCHED, apply_mode, with_switched_submodules


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
        """Return the function, or the module where the target has no function."""
        function: Callable[..., Any] = self.function or self.module
        return function


@dataclass(frozen=True, slots=True)
class Outcome:
    """The observations of one run. `error` is None where the call ran; `gradients` is None where
    backward is impossible.

    `outputs` also holds the buffers after the call and all other state that the call left behind;
    `repeated` holds the same for a second call. `noted` are the results that hooks on the
    submodules saw, `order` the order in which the hooks first ran, `drew` the sources of random
    numbers that the call advanced, `random_state_hash` a hash of PyTorch's random state after the
    call, `shared` the results that share memory with inputs, `second` the second derivatives.
    """

    outputs: Mapping[str, Any] = field(default_factory=dict)
    repeated: Mapping[str, Any] = field(default_factory=dict)
    overwritten: tuple[str, ...] = ()
    gradients: Mapping[str, Any] | None = None
    repeated_gradients: Mapping[str, Any] | None = None
    second: Mapping[str, Any] | None = None
    noted: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    drew: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    random_state_hash: int = 0
    error: BaseException | None = None
    backward_error: BaseException | None = None

    def is_finite(self) -> bool:
        """Return whether all numbers of the tensors among the outputs of the first call are finite;
        gradients do not count."""
        tensors = (value for value in self.outputs.values() if isinstance(value, torch.Tensor))
        return all(bool(torch.isfinite(widened(tensor)).all()) for tensor in tensors)


Run = Callable[[], Outcome]


@dataclass(frozen=True, slots=True)
class Plan:
    """The way to run a call: the seed of the random numbers, with gradients or not, whether to
    repeat.

    `hooked` also notes the results that forward hooks on all submodules see, `twice` also
    differentiates twice. Without `leaves` the gradients are those of the parameters alone. `dtype`
    is a number format to cast inputs to, None for their own. `mode` is one of MODES,
    SWITCHED, or "" for none. `reused` calls twice with the same tensors, whose content is different
    the second time, and reads both results at the end. Pending `mutants` run as well where nothing
    differs.
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
    mutants: bool = True

    def exact(self) -> Plan:
        """Return the same way to run a call with inputs in float64, in no mode that changes how
        precisely it computes."""
        mode = self.mode if self.mode == SWITCHED else ""
        return replace(self, dtype=torch.float64, mode=mode)


def reseed(seed: int) -> None:
    """Seed the random numbers of every device that is present, of NumPy where it is imported, and
    of Python: models use all of them.

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


@functools.lru_cache(maxsize=32)
def _states_of_seed(seed: int, has_numpy: bool) -> dict[str, Any]:
    """Return the state of every source of random numbers right after `reseed`, by name. Only the
    first call for a seed calls `reseed`; the result is cached, since reading the states takes as
    long as a small model."""
    reseed(seed)
    return random_states()


@functools.cache
def _has_accelerator() -> bool:
    """Return whether a device other than the CPU is available. Cached."""
    return bool(
        torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()
    )


def drop_traceback(error: BaseException) -> BaseException:
    """Remove an error's frames and causes in place, which would keep tensors alive, and return the
    error; `frames_of` still returns the file names and lines."""
    if error.__traceback__ is not None:
        frames = traceback.walk_tb(error.__traceback__)
        error.came_through = traceback.StackSummary.extract(frames, lookup_lines=False)  # type: ignore[attr-defined]
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames that an error passed before `drop_traceback`, outermost first, with file
    names and lines only; [] for an error without frames or without that call."""
    return list(getattr(error, "came_through", ()))


def execute(target: Target, call: Call, plan: Plan) -> Outcome:
    """Run a call with fresh copies of its arguments as planned and return what was observed; an
    error of the model is in the outcome. The state that the call leaves behind is noted and then
    restored.

    Code that sets `requires_grad` of values computed from its inputs fails where these have
    gradients; it runs once more without them. Raises only KeyboardInterrupt and SystemExit.
    """
    outcome = _execute(target, call, plan)
    if plan.gradients and outcome.error is not None and "leaf variable" in str(outcome.error):
        return _execute(target, call, replace(plan, leaves=False))
    return outcome


def _execute(target: Target, call: Call, plan: Plan) -> Outcome:
    """Run a call as planned, with submodules switched in the mode SWITCHED; an error of the model
    is in the outcome."""
    with with_switched_submodules(target.module, plan.mode):
        return _execute_watched(target, call, plan)


def _execute_watched(target: Target, call: Call, plan: Plan) -> Outcome:
    """Run a call in the plan's mode of PyTorch, and restore the state that it leaves behind; an
    error of the model is in the outcome. Raises only KeyboardInterrupt and SystemExit."""
    watch = Watch(target.module, target.scope)
    try:
        with watch.collect_printing(), apply_mode(target.model, plan.mode):
            return (
                _reuse_tensors(target, call, plan)
                if plan.reused
                else _run_and_observe(target, call, plan, watch)
            )
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - model code may raise any class; the error is the result
        return Outcome(error=drop_traceback(error))
    finally:
        watch.rewind()


def _run_and_observe(target: Target, call: Call, plan: Plan, watch: Watch) -> Outcome:
    """Run a call, its repetition and backward as far as the plan has them, and return everything
    that is observed. Raises the errors of the forward calls; an error in backward is in the
    outcome.

    Outputs are copies, with buffers and effects. `drew` stays empty in training. An input
    overwritten during backward is named only where forward overwrites none.
    """
    leaves = plan.gradients and plan.leaves
    arguments = call_arguments.build_arguments(
        call, target.model, gradients=leaves, dtype=plan.dtype, scope=target.scope
    )
    states_before = _states_of_seed(plan.seed, "numpy" in sys.modules)
    reseed(plan.seed)
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
    flat_result = flatten(result)
    sharing = shared_memory(flat_result, arguments, target.module)
    outputs = {path: copy_leaf(value) for path, value in flat_result.items()}
    outputs.update(
        {f"buffer {name}": copy_leaf(value) for name, value in _buffers(target.module).items()}
    )
    outputs.update(_effects(target, arguments, watch))
    overwritten = _overwritten_inputs(arguments)
    second_call = _repeat_call(target, call, plan, watch) if plan.repeat else {}
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
        repeated_gradients=backward.repeated_gradients,
        second=backward.second,
        backward_error=backward.backward_error,
    )


def _reuse_tensors(target: Target, call: Call, plan: Plan) -> Outcome:
    """Call twice without gradients with the same tensors, with other content the second time, and
    return an outcome with both results, read at the end: neither result may depend on the other
    call.

    A result that was remembered by the address of its input, or that the next call overwrites,
    differs.
    """
    arguments = call_arguments.build_arguments(
        call, target.model, gradients=False, dtype=plan.dtype, scope=target.scope
    )
    with torch.no_grad():
        reseed(plan.seed)
        first = flatten(
            target.callable(*arguments.args, **arguments.kwargs), "the first of two results"
        )
        for tensor, _ in arguments.passed.values():
            if tensor.is_floating_point() and not call_arguments.is_mask(tensor):
                tensor.mul_(-0.5).add_(0.25)
            elif tensor.dim():
                tensor.copy_(tensor.flip(0))
        reseed(plan.seed)
        second = flatten(
            target.callable(*arguments.args, **arguments.kwargs), "the second of two results"
        )
    return Outcome({path: copy_leaf(value) for path, value in {**first, **second}.items()})


def _repeat_call(target: Target, call: Call, plan: Plan, watch: Watch) -> Mapping[str, Any]:
    """Return by path copies of the results and the effects of a further call, with fresh arguments,
    the next seed and no gradients."""
    arguments = call_arguments.build_arguments(
        call, target.model, gradients=False, dtype=plan.dtype, scope=target.scope
    )
    reseed(plan.seed + 1)
    with torch.no_grad():
        flat_result = flatten(target.callable(*arguments.args, **arguments.kwargs))
    results = {path: copy_leaf(value) for path, value in flat_result.items()}
    results.update(_effects(target, arguments, watch))
    return results


def _effects(
    target: Target, arguments: call_arguments.LiveArguments, watch: Watch
) -> dict[str, Any]:
    """Return by path the state that a call has changed since the watch began; {} where the target's
    effects do not count."""
    return watch.effects(lambda: _number_format(target, arguments)) if target.effects else {}


def _number_format(target: Target, arguments: call_arguments.LiveArguments) -> Any:
    """Return the coarsest floating format among a call's tensors and its module's parameters; the
    default format of PyTorch where there are none."""
    tensors = [tensor for tensor, _ in arguments.passed.values()]
    if isinstance(target.module, nn.Module):
        tensors += list(target.module.parameters())
    formats = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return max(formats, key=lambda dtype: torch.finfo(dtype).eps, default=torch.get_default_dtype())


def _buffers(module: Any) -> dict[str, Any]:
    """Return the buffers of a module and its submodules by name; {} for a value that is no
    module."""
    return dict(module.named_buffers()) if isinstance(module, nn.Module) else {}


def _overwritten_inputs(arguments: call_arguments.LiveArguments) -> tuple[str, ...]:
    """Return the names ("input NUMBER") of the tensor arguments whose content differs from its
    copy."""
    return tuple(
        name
        for name, (tensor, copy) in arguments.passed.items()
        if not identical(tensor.detach(), copy)
    )


def _backward(
    flat_result: Mapping[str, Any], arguments: call_arguments.LiveArguments, module: Any, plan: Plan
) -> Outcome:
    """Return an outcome with only the gradients, or second derivatives (`plan.twice`), of a result
    with respect to inputs and parameters; without either where nothing depends on them. An error in
    backward is in the outcome. Gradients are repeated where the plan repeats."""
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
            repeated_gradients=(
                _copy_all(_gradients(outputs, inputs, keep_graph=False)) if plan.repeat else None
            ),
        )
    except Exception as error:  # noqa: BLE001 - arbitrary backward code; the error is the result
        return Outcome(backward_error=drop_traceback(error))


def _gradients(
    outputs: Mapping[str, Any], inputs: Mapping[str, Any], *, keep_graph: bool, graph: bool = False
) -> Mapping[str, Any]:
    """Return, by input, the gradient of the sum of the outputs' products with fixed cotangents;
    None for an input without a gradient. `keep_graph` allows a second backward, `graph` a second
    derivative."""
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
    """Return by input the gradients of the gradients' products with fixed cotangents, as copies; {}
    where no gradient depends on an input, None for an input without influence."""
    gradients = _gradients(outputs, inputs, keep_graph=True, graph=True)
    differentiable = {
        f"gradient of {p}": v for p, v in gradients.items() if v is not None and v.requires_grad
    }
    return _copy_all(_gradients(differentiable, inputs, keep_graph=False)) if differentiable else {}


def _copy_all(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return detached copies of tensors by name."""
    return {name: copy_leaf(value) for name, value in values.items()}


def cotangent(path: str, value: Any) -> Any:
    """Return a fixed random direction for an output, of its shape and format and the same in each
    call for a path, so that no gradient cancels by symmetry."""
    generator = torch.Generator().manual_seed(zlib.crc32(path.encode()))
    return torch.randn(value.shape, generator=generator).to(value.dtype)
