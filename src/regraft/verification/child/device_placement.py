"""Check on which device the changed version makes its tensors, without another device than the CPU.

Both versions run on tensors of PyTorch's device "meta", which have no data. A tensor that a version
makes without a device is on the CPU; where it meets the arguments there, a run on CUDA fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from regraft.execution.nested import flatten, iterate_leaves, map_leaves
from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_outcomes import Target
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.random_states import reseed
from regraft.verification.child.state_watch import Watch

AGREEMENT = "devices of tensors, without data"
_META = torch.device("meta")
# Operations that take tensors of two devices: copies between devices, and positions on the CPU.
_TAKING_TWO_DEVICES = ("copy_", "_to_copy", "index", "index_put_", "index_put", "_index_put_impl_")


@dataclass(frozen=True, slots=True)
class _Placement:
    """The observations of a run on meta tensors.

    devices  the devices of the tensors in the result, by path
    mixing   the operations that got a meta tensor and a tensor of the CPU with dimensions
    """

    devices: Mapping[str, torch.device]
    mixing: frozenset[str]


def compare_placement(
    original: Target, changed: Target, call: Call, definition: str, ledger: Ledger
) -> tuple[Difference | None, tuple[str, ...]]:
    """Run a call on meta tensors in both versions; return a difference where the changed version
    mixes tensors of two devices, or has a result on another device than the original.

    Also return AGREEMENT in a tuple, () where there is a difference, or where a version does not
    run without data, or the original mixes devices itself, so that nothing was compared.
    """
    with ledger.step("original", definition, "devices"):
        original_placement = _run_without_data(original, call)
    if original_placement is None or original_placement.mixing:
        return None, ()
    with ledger.step("changed", definition, "devices"):
        changed_placement = _run_without_data(changed, call)
    if changed_placement is None:
        return None, ()
    for operation in sorted(changed_placement.mixing):
        sentence = (
            "the changed version makes a tensor on the CPU whatever the device of its inputs is:"
            f" {operation} gets tensors of two devices"
        )
        return Difference("", sentence), ()
    for path, device in changed_placement.devices.items():
        if original_placement.devices.get(path) == _META != device:
            sentence = "is on the CPU whatever the device of the inputs is, in the original on that"
            return Difference(path, f"{path or 'the result'} {sentence}"), ()
    return None, (AGREEMENT,)


def _run_without_data(target: Target, call: Call) -> _Placement | None:
    """Run a call of a copy of the target on meta tensors, and return the devices of its results and
    the operations that mixed devices. State that it leaves is restored.

    A failed run gives the mixing operations alone, or None where there was none.
    """
    watch = Watch(target.module, target.scope)
    observer = _Observer()
    result: Any = None
    try:
        model = weights.copy_model(target.model)
        if isinstance(model, nn.Module):
            model = model.to(_META)
        copied_target = replace(target, model=model)
        live_call = call_arguments.build_arguments(call, model, gradients=False, scope=target.scope)
        args, kwargs = map_leaves((live_call.args, dict(live_call.kwargs)), _without_data)
        reseed(0)
        with watch.collect_printing(), torch.no_grad(), observer:
            result = copied_target.callable(*args, **kwargs)
    except Exception:  # noqa: BLE001 - not every model runs without data
        return _Placement({}, frozenset(observer.mixing)) if observer.mixing else None
    finally:
        watch.rewind()
    devices = {
        path: value.device
        for path, value in flatten(result).items()
        if isinstance(value, torch.Tensor)
    }
    return _Placement(devices, frozenset(observer.mixing))


def _without_data(leaf: Any) -> Any:
    """Return a tensor as a meta tensor, any other value as it is."""
    return leaf.to(_META) if isinstance(leaf, torch.Tensor) else leaf


class _Observer(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """A mode that notes the names of operations in `mixing` that get tensors of two devices."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing: set[str] = set()

    def __torch_dispatch__(
        self,
        function: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and note its name in `mixing` if its tensors are on two devices;
        tensors of the CPU without dimensions, and operations that take two devices, do not
        count."""
        name = function.overloadpacket.__name__
        are_meta = {
            tensor.is_meta
            for tensor in iterate_leaves((args, kwargs or {}))
            if isinstance(tensor, torch.Tensor) and (tensor.is_meta or tensor.dim() > 0)
        }
        if len(are_meta) > 1 and name not in _TAKING_TWO_DEVICES:
            self.mixing.add(name)
        return function(*args, **(kwargs or {}))
