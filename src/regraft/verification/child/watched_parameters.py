"""Watch the parameters of a module over a call: their values, and whether they have gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from regraft.execution.compare import identical

_LARGEST = 1 << 22  # elements; of more, only changes that PyTorch counts are seen


class WatchedParameters:
    """The parameters of a module (none of another value) as they are at construction; reports and
    takes back what a call changes of them."""

    def __init__(self, module: Any) -> None:
        named = list(module.named_parameters()) if isinstance(module, nn.Module) else []
        self._states = [
            (name, parameter, parameter._version, parameter.data_ptr(), parameter.requires_grad)
            for name, parameter in named
            if type(parameter) is nn.Parameter and parameter.layout == torch.strided
        ]
        is_small = sum(parameter.numel() for _, parameter, *_ in self._states) <= _LARGEST
        self._copies = self._flat_values() if is_small else {}

    def changed(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and a copy of each parameter whose value changed, and "NAME.requires_grad"
        with the flag where that did."""
        values = self._changed_values()
        for name, parameter, _, _, needs_gradient in self._states:
            if name in values:
                yield name, parameter.detach().clone()
            if parameter.requires_grad != needs_gradient:
                yield f"{name}.requires_grad", parameter.requires_grad

    def rewind(self) -> None:
        """Restore the values, as far as there are copies, and the flags."""
        for name, old_value in self._changed_values().items():
            if old_value is not None:
                parameter = next(state[1] for state in self._states if state[0] == name)
                with torch.no_grad():
                    parameter.data = old_value.view(parameter.shape)
        for _, parameter, _, _, needs_gradient in self._states:
            if parameter.requires_grad != needs_gradient:
                parameter.requires_grad_(needs_gradient)

    def _changed_values(self) -> dict[str, Any]:
        """Return by name the former values, flat, of the parameters that changed; None where there
        is no copy."""
        if not self._states:
            return {}
        if not self._copies:
            return {
                name: None
                for name, parameter, version, address, _ in self._states
                if parameter._version != version or parameter.data_ptr() != address
            }
        present = self._flat_values()
        if all(
            key in present and identical(value, present[key]) for key, value in self._copies.items()
        ):
            return {}
        return self._differing()

    def _differing(self) -> dict[str, Any]:
        """Return by name the former values of the parameters that differ from their copies."""
        former: dict[str, Any] = {}
        offsets = dict.fromkeys(self._copies, 0)
        for name, parameter, *_ in self._states:
            key = parameter.dtype
            start = offsets.get(key, 0)
            offsets[key] = start + parameter.numel()
            old_value = self._copies[key][start : offsets[key]] if key in self._copies else None
            if old_value is not None and not identical(parameter.detach().reshape(-1), old_value):
                former[name] = old_value.clone()
        return former

    def _flat_values(self) -> dict[torch.dtype, Any]:
        """Return the values of all parameters, by number format, each in one flat tensor."""
        by_format: dict[torch.dtype, list[Any]] = {}
        for _, parameter, *_ in self._states:
            by_format.setdefault(parameter.dtype, []).append(parameter.detach().reshape(-1))
        return {key: torch.cat(values) for key, values in by_format.items()}
