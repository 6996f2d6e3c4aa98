"""Compare on which device a class makes its parameters and results where its constructor is told a
device, without another device than the CPU."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.verification.child.call_outcomes import Target
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.device_placement import compare_placement
from regraft.verification.child.drivers.standalone_parts import Part
from regraft.verification.child.failure_description import describe_failure
from regraft.verification.child.reverted_definitions import blame, revert
from regraft.verification.child.session import Session, build_seeded

_META = torch.device("meta")
_NAME = "device"  # of the argument


def _difference_of_devices(part: Part, name: str, session: Session) -> Difference | None:
    """Return the first difference between both versions of a part whose constructor is told a
    device, or None; note the device among the values of the option where both agree on a call."""
    original = _build(part, session.original)
    with session.ledger.step("changed", part.definition, f"build {name}"):
        changed = _build(part, session.changed)
    if original is None or changed is None:
        return None
    difference = _device_of_parameter(original, changed)
    if difference is not None:
        return difference
    difference, agreement = compare_placement(
        Target(original, scope=session.original),
        Target(changed, scope=session.changed),
        part.calls[-1],
        part.definition,
        session.ledger,
    )
    if agreement:
        session.options.setdefault((part.definition, _NAME), set()).add(repr(_META))
    return difference


def refute_other_devices(part: Part, session: Session) -> None:
    """Refute the changed definitions of a part that use another device than the original where the
    constructor's `device` is PyTorch's device "meta": for a parameter, a buffer or a result, or for
    a tensor that meets these. Where both agree on a call, "meta" counts as a value of the option.
    Do nothing where the constructor has no `device`, is told another one than the CPU, or refuses
    this one."""
    if _NAME not in part.arguments or str(part.arguments[_NAME]) not in ("None", "cpu"):
        return
    device = str(_META) if isinstance(part.arguments[_NAME], str) else _META
    told_part = replace(part, arguments={**part.arguments, _NAME: device})
    subject = told_part.subject("with another device")
    find_difference = functools.partial(_difference_of_devices, told_part, subject.name, session)
    difference = find_difference()
    for definition in blame(session, find_difference) if difference is not None else ():
        session.ledger.refute(
            definition,
            f"{difference.sentence} ({subject.name})" if difference else "",
            describe_failure(subject, 0, None, None, difference) if difference else {},
        )
    revert(session, session.ledger.refuted())


def _build(part: Part, module: ModuleType) -> Any:
    """Return the module of a part in one version of the file; None where its constructor takes no
    such device."""
    try:
        return build_seeded(0, part.build, module)
    except Exception:  # noqa: BLE001 - a constructor that takes no such device
        return None


def _device_of_parameter(original: Any, changed: Any) -> Difference | None:
    """Return the first parameter or buffer that is on another device in the changed version, or
    None."""
    changed_devices = _devices(changed)
    for name, device in _devices(original).items():
        if name in changed_devices and changed_devices[name] != device:
            sentence = (
                f"after construction with device={str(_META)!r} {name} is on"
                f" {changed_devices[name]} where the original has it on {device}"
            )
            return Difference(name, sentence)
    return None


def _devices(model: Any) -> Mapping[str, Any]:
    """Return by name the devices of the parameters and buffers of a module."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.device for name, tensor in tensors}
