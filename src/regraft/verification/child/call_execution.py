"""Run one recorded call on the original or on its counterpart, and observe everything a caller can
see."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regraft.execution.compare import identical
from regraft.execution.nested import copy_leaf, flatten
from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_gradients import run_backward
from regraft.verification.child.call_observation import (
    flatten_log,
    random_states,
    shared_memory,
    ties_of_state,
    watch_calls,
)
from regraft.verification.child.call_outcomes import Outcome, Plan, Target, drop_traceback
from regraft.verification.child.materialised_results import materialise
from regraft.verification.child.random_states import reseed, states_of_seed
from regraft.verification.child.state_watch import StateChange, Watch
from regraft.verification.child.torch_modes import apply_mode, with_switched_submodules


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
    states_before = states_of_seed(plan.seed, "numpy" in sys.modules)
    buffers_before = _buffers(target.module) if target.effects else {}
    reseed(plan.seed)
    with (
        torch.set_grad_enabled(plan.gradients),
        watch_calls(target.module if plan.hooked else None) as log,
    ):
        result = _call(target, arguments)
    states_after = random_states()
    moved = tuple(
        name for name, state in states_after.items() if state != states_before.get(name, state)
    )
    flat_result = flatten(result)
    sharing = log.changes_in_place() + shared_memory(flat_result, arguments, target.module)
    changes = _changes(target, watch)
    sharing += ties_of_state(changes if plan.gradients else (), flat_result, arguments)
    buffers = _buffers(target.module)
    outputs = {
        **{path: copy_leaf(value) for path, value in flat_result.items()},
        **_copied_buffers(buffers),
        **_replaced_buffers(buffers_before, buffers),
        **_inference_tensors(flat_result),
        **_effects(changes, target, arguments, watch),
    }
    overwritten = _overwritten_inputs(arguments)
    second_call = _repeat_call(target, call, plan, watch) if plan.repeat else {}
    outcome = Outcome(
        outputs,
        second_call,
        overwritten,
        noted=flatten_log(log),
        order=tuple(log),
        drew=() if _is_training(target) else moved,
        moved=moved,
        shared=sharing,
        random_state_hash=hash(states_after["torch"]),
        draws=states_after["torch"] != states_before["torch"],
    )
    return (
        _with_gradients(outcome, flat_result, arguments, target, plan)
        if plan.gradients
        else outcome
    )


def _call(target: Target, arguments: call_arguments.LiveArguments) -> Any:
    """Return the result of a call, with what its iterators yield."""
    result = target.callable(*arguments.args, **arguments.kwargs)
    return materialise(result, target.module or target.model)


def _is_training(target: Target) -> bool:
    """Return whether a target is in training, where the dropout rate is 0: numbers that are drawn
    and not used do not matter."""
    return bool(getattr(target.module or target.model, "training", False))


def _with_gradients(
    outcome: Outcome,
    flat_result: Mapping[str, Any],
    arguments: call_arguments.LiveArguments,
    target: Target,
    plan: Plan,
) -> Outcome:
    """Return the outcome of a call completed by its backward pass, which runs here: the gradients,
    an error in it, and the inputs that it overwrites where forward overwrites none."""
    backward = run_backward(flat_result, arguments, target.module, plan)
    overwritten = outcome.overwritten
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
        result = _call(target, arguments)
        first = flatten(result, "the first of two results")
        _change_content(arguments)
        reseed(plan.seed)
        result = _call(target, arguments)
        second = flatten(result, "the second of two results")
    return Outcome({path: copy_leaf(value) for path, value in {**first, **second}.items()})


def _change_content(arguments: call_arguments.LiveArguments) -> None:
    """Change the content of the tensors among the arguments in place; masks keep their elements, in
    another order."""
    for tensor, _ in arguments.passed.values():
        if tensor.is_floating_point() and not call_arguments.is_mask(tensor):
            tensor.mul_(-0.5).add_(0.25)
        elif tensor.dim():
            tensor.copy_(tensor.flip(0))


def _repeat_call(target: Target, call: Call, plan: Plan, watch: Watch) -> Mapping[str, Any]:
    """Return by path copies of the results, of the buffers and of the effects of a further call,
    with fresh arguments, the next seed and no gradients."""
    arguments = call_arguments.build_arguments(
        call, target.model, gradients=False, dtype=plan.dtype, scope=target.scope
    )
    reseed(plan.seed + 1)
    with torch.no_grad():
        flat_result = flatten(_call(target, arguments))
    results = {path: copy_leaf(value) for path, value in flat_result.items()}
    results.update(_copied_buffers(_buffers(target.module)))
    changes = _changes(target, watch)
    results.update(_effects(changes, target, arguments, watch))
    return results


def _inference_tensors(flat_result: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for each result by path that was made in inference mode although the caller is not in
    it, that autograd cannot record it; {} in inference mode."""
    if torch.is_inference_mode_enabled():
        return {}
    return {
        f"{path}, made in inference mode": True
        for path, value in flat_result.items()
        if isinstance(value, torch.Tensor) and value.is_inference()
    }


def _changes(target: Target, watch: Watch) -> tuple[StateChange, ...]:
    """Return the changes of the state that a call has made since the watch began; () where the
    target's effects do not count."""
    return watch.changes() if target.effects else ()


def _effects(
    changes: Iterable[StateChange],
    target: Target,
    arguments: call_arguments.LiveArguments,
    watch: Watch,
) -> dict[str, Any]:
    """Return by path these changes and the other state that a call has changed since the watch
    began; {} where the target's effects do not count."""
    if not target.effects:
        return {}
    return watch.effects(changes, lambda: _number_format(target, arguments))


def _number_format(target: Target, arguments: call_arguments.LiveArguments) -> Any:
    """Return the coarsest floating format among a call's tensors and its module's parameters; the
    default format of PyTorch where there are none."""
    tensors = [tensor for tensor, _ in arguments.passed.values()]
    if isinstance(target.module, nn.Module):
        tensors += list(target.module.parameters())
    formats = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return max(formats, key=lambda dtype: torch.finfo(dtype).eps, default=torch.get_default_dtype())


def _copied_buffers(buffers: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of buffers, by `buffer NAME`."""
    return {f"buffer {name}": copy_leaf(value) for name, value in buffers.items()}


def _replaced_buffers(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for each buffer by name that is another tensor than before, that it was
    replaced: a state_dict taken before, and whatever else holds the old tensor, follows it no
    longer."""
    return {
        f"buffer {name}, replaced by another tensor": True
        for name, buffer in after.items()
        if before.get(name, buffer) is not buffer
    }


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
