"""What a call of a function or module leaves, and how it is made."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch

from regraft.execution.compare import widened
from regraft.verification.child.frame_numbers import note_numbers
from regraft.verification.child.torch_modes import SWITCHED


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
    numbers that the call advanced in evaluation, `moved` those that it advanced,
    `random_state_hash` a hash of PyTorch's random state after the call, `draws` whether the call
    advanced it, True where that is not known, `shared` in words the results that share memory with
    inputs, and the state that shares memory or keeps a graph, `second` the second derivatives.
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
    moved: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    random_state_hash: int = 0
    draws: bool = True
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


def drop_traceback(error: BaseException) -> BaseException:
    """Remove an error's frames and causes in place, which would keep tensors alive, and return the
    error; `frames_of` still returns the file names and lines, `numbers_of` the numbers that code
    held where it found a value wrong."""
    if error.__traceback__ is not None:
        frames = traceback.walk_tb(error.__traceback__)
        error.came_through = traceback.StackSummary.extract(frames, lookup_lines=False)  # type: ignore[attr-defined]
        if isinstance(error, AssertionError | ValueError):
            note_numbers(error)
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
