"""Record the arguments of every changed class and function while the original model runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from regraft.execution.nested import iterate_leaves
from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.running_classes import classes_running, is_module_class

# the types of arguments that are no tensors, and describe what to make
_PLAIN = (bool, int, float, str, tuple, list, dict, torch.dtype, torch.device, type(None))
INSTANCES = 2
CALLS = 3


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call of a changed definition: of the module at `path`, or of a function where `path` is
    None. `plain` tells that the function neither takes nor returns tensors."""

    definition: str
    path: str | None
    call: Call
    plain: bool = False


@dataclass(slots=True)
class Recorder:
    """Collects the first calls of the watched definitions: at most INSTANCES instances of each, and
    CALLS calls of different shapes of each instance.

    `ran` names those of the classes in `noted` of which an instance was called.
    """

    module: ModuleType
    watched: tuple[str, ...]
    model: Any
    noted: frozenset[str] = frozenset()
    calls: list[Recorded] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)

    def record_call(
        self,
        definition: str,
        path: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        plain: bool = False,
    ) -> None:
        """Append a snapshot of a call to `calls`, unless there are enough of its definition or of
        its path, or the path has a call with equal shapes. `plain` as in `Recorded`."""
        recorded_calls = [entry for entry in self.calls if entry.definition == definition]
        paths = {entry.path for entry in recorded_calls}
        calls_of_path = [entry for entry in recorded_calls if entry.path == path]
        if (path not in paths and len(paths) >= INSTANCES) or len(calls_of_path) >= CALLS:
            return
        call = call_arguments.snapshot(args, kwargs, self.model)
        if not any(_has_equal_shapes(entry.call, call) for entry in calls_of_path):
            self.calls.append(Recorded(definition, path, call, plain))

    def note_run_of(self, cls: type) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
        """Return a function that adds the qualified name of a class to `ran`, whatever the
        arguments of the call."""
        return lambda args, kwargs: self.ran.add(cls.__qualname__)


def _has_equal_shapes(a: Call, b: Call) -> bool:
    """Return whether two calls have tensors of equal shapes, the same number of positional
    arguments and the same names of keyword arguments in the same order; without tensors, equal
    arguments."""
    shapes = call_arguments.shapes(a)
    if call_arguments.shapes(b) != shapes:
        return False
    if not shapes:
        return repr((a.args, dict(a.kwargs))) == repr((b.args, dict(b.kwargs)))
    return len(a.args) == len(b.args) and list(a.kwargs) == list(b.kwargs)


@contextmanager
def recording(
    module: ModuleType, watched: tuple[str, ...], model: Any, noted: frozenset[str] = frozenset()
) -> Iterator[Recorder]:
    """Yield a recorder of the calls of `watched` definitions while the original `model` of the
    original `module` runs in the body; hooks and replaced functions are removed at its end.

    Functions are recorded where they are looked up in `module`, modules of subclasses as well, also
    where code calls their `forward` directly, and modules that run a watched class that is none of
    modules. A call is recorded before it runs. Names in `watched` that are no function or class are
    ignored.
    """
    recorder = Recorder(module, watched, model, noted)
    definitions = {name: getattr(module, name, None) for name in watched}
    with ExitStack() as stack:
        for name, value in definitions.items():
            if isinstance(value, FunctionType):
                stack.callback(setattr, module, name, value)
                setattr(module, name, _recording_function(recorder, name, value))
            elif isinstance(value, type):
                for path, submodule in model.named_modules():
                    if _runs(submodule, name, value, module):
                        note = functools.partial(recorder.record_call, name, path)
                        stack.enter_context(_watch_calls(submodule, note))
        for submodule in model.modules():
            cls = type(submodule)
            if cls.__name__ in noted and cls.__module__ == module.__name__:
                stack.enter_context(_watch_calls(submodule, recorder.note_run_of(cls)))
        yield recorder


def _runs(submodule: nn.Module, name: str, value: type, module: ModuleType) -> bool:
    """Return whether a module is an instance of the class `value`, the definition `name` of a file,
    or, where that is no class of modules, runs it or holds an instance of it, or the class itself
    (for its static methods)."""
    if is_module_class(value):
        return isinstance(submodule, value)
    return type(submodule) in classes_running(module, name) or any(
        owner is value or isinstance(owner, value)
        for owner in (submodule, *vars(submodule).values())
    )


@contextmanager
def _watch_calls(
    module: Any, note: Callable[[tuple[Any, ...], dict[str, Any]], None]
) -> Iterator[None]:
    """Call `note` with the arguments of each call of a module in the body, before the call runs.

    Code may call the module itself, or its `forward` directly, which runs no hooks. A copy of the
    module that the call makes runs its own `forward`; calls of the copy itself are noted as well.
    """
    forward, own_forward = module.forward, vars(module).get("forward")
    is_noted = False  # in this call, by the hook

    def hook(called_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call of the module itself; its arguments stay as they are."""
        nonlocal is_noted
        note(args, kwargs)
        is_noted = called_module is module

    def note_forward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call of `forward`, unless the hook has noted it."""
        nonlocal is_noted
        if not is_noted:
            note(args, kwargs)
        is_noted = False

    handle = module.register_forward_pre_hook(hook, with_kwargs=True)
    vars(module)["forward"] = _watched_forward(forward, module, note_forward)
    try:
        yield
    finally:
        handle.remove()
        vars(module).pop("forward", None)  # the call may have deleted it
        if own_forward is not None:
            vars(module)["forward"] = own_forward


def _watched_forward(
    forward: Any, module: Any, note: Callable[[tuple[Any, ...], dict[str, Any]], None]
) -> Any:
    """Return a callable like the `forward` of a module that calls `note` with its arguments first.

    A method of the module becomes a method: a deep copy of the module binds it to the copy, whose
    calls are not noted.
    """
    if not (isinstance(forward, MethodType) and forward.__self__ is module):

        @functools.wraps(forward)
        def watched_function(*args: Any, **kwargs: Any) -> Any:
            """Note a call, then return its result."""
            note(args, kwargs)
            return forward(*args, **kwargs)

        return watched_function
    function = forward.__func__

    @functools.wraps(function)
    def watched_method(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Note a call on the module, then return its result."""
        if self is module:
            note(args, kwargs)
        return function(self, *args, **kwargs)

    return MethodType(watched_method, module)


def _recording_function(recorder: Recorder, name: str, function: FunctionType) -> Any:
    """Return a function that calls `function` and records its calls with at least one tensor among
    the arguments, and those with plain values alone that return something."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        """Record a call, and return the result of the function."""
        arguments = (*args, *kwargs.values())
        if _has_tensor(arguments):
            recorder.record_call(name, None, args, kwargs)
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        if all(isinstance(argument, _PLAIN) for argument in arguments) and result is not None:
            recorder.record_call(name, None, args, kwargs, plain=not _has_tensor(result))
        return result

    return call


def _has_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, or contains one in tuples, lists and dictionaries."""
    return any(isinstance(leaf, torch.Tensor) for leaf in iterate_leaves(value))
