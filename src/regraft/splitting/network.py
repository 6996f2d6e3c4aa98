"""Preconditions: a module in eval mode with source, calls that fit it, no randomness, no state that changes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection
from typing import Any

import torch

from regraft.splitting.check import difference
from regraft.splitting.errors import Unsplittable
from regraft.splitting.probe import effects
from regraft.splitting.record import to_numpy
from regraft.splitting.scratch import Attribute, stores
from regraft.splitting.state import State
from regraft.splitting.values import literal


def locate(model: torch.nn.Module) -> str:
    """The file of the network's forward."""
    if not isinstance(model, torch.nn.Module):
        raise Unsplittable("<model>", 0, f"the model is a {type(model).__name__}, not a torch.nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise Unsplittable("<TorchScript>", 0, "a TorchScript model has no source; split the module it was made from")
    forward = inspect.unwrap(type(model).forward)
    path = inspect.getsourcefile(forward) or "<unknown>" if inspect.isfunction(forward) else "<unknown>"
    if inspect.isgeneratorfunction(forward) or inspect.iscoroutinefunction(forward):
        raise Unsplittable(path, forward.__code__.co_firstlineno, "forward is a generator or coroutine")
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
        raise Unsplittable(path, forward.__code__.co_firstlineno, "forward takes * or ** arguments")
    hooked = [one for one in model.modules() if one._forward_hooks or one._forward_pre_hooks]
    if hooked or "forward" in vars(model):
        raise Unsplittable(
            path, forward.__code__.co_firstlineno, "modules with hooks or a replaced forward cannot be split"
        )
    return path


def texts_of(model: torch.nn.Module, path: str) -> list[str]:
    """The parameters of a network's forward, as it writes them."""
    forward = inspect.unwrap(type(model).forward)
    line = forward.__code__.co_firstlineno
    return [text_of_parameter(one, path, line) for one in list(inspect.signature(forward).parameters.values())[1:]]


def text_of_parameter(parameter: inspect.Parameter, path: str, line: int) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    code = literal(parameter.default)
    if code is None:
        reason = f"the default of {parameter.name}, {parameter.default!r}, is no constant that is supported"
        raise Unsplittable(path, line, reason)
    return f"{parameter.name}={ast.unparse(code)}"


def check_form(path: str, calls: Any) -> None:
    """Refuse what is no list of calls."""
    if not isinstance(calls, list | tuple):
        raise Unsplittable(path, 0, f"the example calls are a {type(calls).__name__}, not a list of tuples or dicts")
    for number, call in enumerate(calls):
        if not isinstance(call, list | tuple | dict):
            what = f"example call {number} is a {type(call).__name__}, not a tuple or dict of arguments"
            raise Unsplittable(path, 0, what)
    if not calls:
        raise Unsplittable(path, 0, "splitting needs at least one example call")


def arguments(model: torch.nn.Module, path: str, call: Any) -> dict[str, Any]:
    signature = inspect.signature(type(model).forward)
    try:
        words = call if isinstance(call, dict) else {}
        bound = signature.bind(model, *(() if isinstance(call, dict) else call), **words)
    except TypeError as problem:
        raise Unsplittable(path, 0, f"the example call does not fit forward: {problem}") from problem
    bound.apply_defaults()
    return dict(list(bound.arguments.items())[1:])


def kind(call: dict[str, Any]) -> tuple[Any, ...]:
    """What all example calls have in common: types and constants, not the sizes of tensors."""
    return tuple(
        (key, str(one.dtype), one.ndim) if isinstance(one, torch.Tensor) else (key, repr(one))
        for key, one in call.items()
    )


def inputs(calls: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What every call has to give: dtype and sizes of tensors (None for a size that the examples vary), constants."""
    found: dict[str, dict[str, Any]] = {}
    for key, first in calls[0].items():
        if isinstance(first, torch.Tensor):
            sizes = zip(*(call[key].shape for call in calls), strict=True)
            shape = [one[0] if len(set(one)) == 1 else None for one in sizes]
            found[key] = {"dtype": to_numpy(first).dtype.name, "shape": shape}
        else:
            found[key] = {"value": repr(first)}
    return found


def check_calls(model: torch.nn.Module, path: str, calls: list[dict[str, Any]]) -> list[Attribute]:
    """No call draws random numbers, changes its inputs or state; the first one may prepare what stays as it is.

    Gives the attributes of modules that calls assign.
    """
    first = check_runs(model, path, calls[0])
    with stores(model) as found:
        before = State(model)
        results = [check_runs(model, path, call) for call in calls]
    scratch = list(dict.fromkeys(found))
    check_state(model, before, scratch)
    line = inspect.unwrap(type(model).forward).__code__.co_firstlineno
    if difference(results[0], first):
        raise Unsplittable(path, line, "the first call gives something else than the same call later")
    return scratch


def check_runs(model: torch.nn.Module, path: str, call: dict[str, Any]) -> Any:
    """One call and its result; it draws no random numbers and leaves parameters, buffers and its inputs alone."""
    line = inspect.unwrap(type(model).forward).__code__.co_firstlineno
    state = [*model.parameters(), *model.buffers(), *(one for one in call.values() if isinstance(one, torch.Tensor))]
    try:
        seen = effects(lambda: model(**call), state)
    except Exception as problem:
        raise Unsplittable(path, line, f"the example call fails: {type(problem).__name__}: {problem}") from problem
    if seen.random:
        raise Unsplittable(path, line, "random numbers are drawn or seeded in forward")
    if seen.changed:
        raise Unsplittable(path, line, "parameters, buffers or inputs are changed in forward")
    return seen.result


def check_state(model: torch.nn.Module, state: State, scratch: Collection[Attribute]) -> None:
    changed = state.changed(model, scratch)
    if changed is not None:
        module = type(model.get_submodule(changed[0]))
        forward = inspect.unwrap(module.forward)
        raise Unsplittable(
            inspect.getsourcefile(forward) or "<unknown>", forward.__code__.co_firstlineno,
            f"a call changes the attribute {changed[1]} of {changed[0] or 'the network'} ({module.__name__})",
        )  # fmt: skip
