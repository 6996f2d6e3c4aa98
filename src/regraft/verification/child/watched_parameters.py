"""Watch the parameters of a module over a call: their values, and whether they have gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regraft.execution.compare import identical

_LARGEST = 1 << 22  # elements; of more, only changes that PyTorch counts are seen


@dataclass(frozen=True, slots=True)
class _State:
    """A parameter as it was: its name, shape, number format, version, address and flag."""

    name: str
    parameter: Any
    shape: torch.Size
    dtype: torch.dtype
    version: int
    address: int
    needs_gradient: bool


class WatchedParameters:
    """The parameters of a module (none of another value) as they are at construction; reports and
    takes back what a call changes of them, also where it puts another parameter in the place of
    one."""

    def __init__(self, module: Any) -> None:
        named = module.named_parameters() if isinstance(module, nn.Module) else ()
        self._places = [
            (f"{path}.{name}" if path else name, owner, name, parameter)
            for path, owner in (module.named_modules() if isinstance(module, nn.Module) else ())
            for name, parameter in owner._parameters.items()
        ]
        self._states = [
            _State(
                name,
                parameter,
                parameter.shape,
                parameter.dtype,
                _version_of(parameter),
                parameter.data_ptr(),
                parameter.requires_grad,
            )
            for name, parameter in named
            if type(parameter) is nn.Parameter
            and parameter.layout == torch.strided
            and not parameter.is_meta
        ]
        is_small = sum(state.shape.numel() for state in self._states) <= _LARGEST
        self._copies = self._flat_values() if is_small else {}

    def changed(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and a copy of each parameter whose value changed, or of the one in its
        place, and "NAME.requires_grad" with the flag where that did."""
        for path, owner, name, parameter in self._places:
            present = owner._parameters.get(name)
            if present is not parameter:
                yield path, "none" if present is None else present.detach().clone()
        values = self._changed_values()
        for state in self._states:
            if state.name in values:
                yield state.name, state.parameter.detach().clone()
            if state.parameter.requires_grad != state.needs_gradient:
                yield f"{state.name}.requires_grad", state.parameter.requires_grad

    def rewind(self) -> None:
        """Restore the parameters in their places, their values, as far as there are copies, and
        the flags."""
        for _, owner, name, parameter in self._places:
            if owner._parameters.get(name) is not parameter:
                owner._parameters[name] = parameter
        values = self._changed_values()
        for state in self._states:
            old_value = values.get(state.name)
            if old_value is not None:
                _restore(state.parameter, old_value.view(state.shape))
            if state.parameter.requires_grad != state.needs_gradient:
                state.parameter.requires_grad_(state.needs_gradient)

    def _changed_values(self) -> dict[str, Any]:
        """Return by name the former values, flat, of the parameters that changed; None where there
        is no copy."""
        if not self._copies:
            return {
                state.name: None
                for state in self._states
                if _version_of(state.parameter) != state.version
                or state.parameter.data_ptr() != state.address
            }
        present = self._flat_values()
        is_unchanged = present.keys() == self._copies.keys() and all(
            identical(value, present[dtype]) for dtype, value in self._copies.items()
        )
        return {} if is_unchanged else self._differing()

    def _differing(self) -> dict[str, Any]:
        """Return by name the former values, flat, of the parameters whose values or shapes are
        others than in the copies."""
        former: dict[str, Any] = {}
        offsets = dict.fromkeys(self._copies, 0)
        for state in self._states:
            start = offsets[state.dtype]
            offsets[state.dtype] = start + state.shape.numel()
            old_value = self._copies[state.dtype][start : offsets[state.dtype]]
            value = state.parameter.detach()
            if value.shape != state.shape or not identical(value.reshape(-1), old_value):
                former[state.name] = old_value
        return former

    def _flat_values(self) -> dict[torch.dtype, Any]:
        """Return the values of all parameters, by number format, each in one flat tensor."""
        by_format: dict[torch.dtype, list[Any]] = {}
        for state in self._states:
            value = state.parameter.detach()
            by_format.setdefault(value.dtype, []).append(value.reshape(-1))
        return {dtype: torch.cat(values) for dtype, values in by_format.items()}


def _version_of(parameter: nn.Parameter) -> int:
    """Return how many times PyTorch counted a change of a parameter; 0 for one that was made in
    inference mode, of which it counts none."""
    return 0 if parameter.is_inference() else int(parameter._version)


def _restore(parameter: nn.Parameter, old_value: Any) -> None:
    """Give a parameter its former value: in place where it has the same shape and format, so that
    tensors that share its memory see it, too."""
    if parameter.dtype == old_value.dtype and parameter.shape == old_value.shape:
        parameter.data.copy_(old_value)
    else:
        parameter.data = old_value.clone()
