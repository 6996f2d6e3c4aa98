"""Compare on which device a class makes its parameters where its constructor is told a device,
without another device than the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.drivers.standalone_parts import Part
from regraft.verification.child.failure_description import describe_failure
from regraft.verification.child.session import Session, build_seeded

_META = torch.device("meta")
_NAME = "device"  # of the argument


def refute_other_devices(part: Part, session: Session) -> None:
    """Refute the changed definitions of a part that make a parameter or buffer on the CPU where the
    constructor's `device` is PyTorch's device "meta" and the original makes it there. Do nothing
    where the part's `device` is given, or the constructor has none, or refuses it."""
    if _NAME not in part.arguments or part.arguments[_NAME] is not None:
        return
    told_part = replace(part, arguments={**part.arguments, _NAME: _META})
    subject = told_part.subject("with another device")

    def find_difference() -> Difference | None:
        """Return the first tensor that is on another device in the changed version, or None."""
        original_devices = _devices(told_part, session.original)
        with session.ledger.step("changed", part.definition, f"build {subject.name}"):
            changed_devices = _devices(told_part, session.changed)
        for name, device in original_devices.items():
            if name in changed_devices and changed_devices[name] != device:
                sentence = (
                    f"after construction with device={str(_META)!r} {name} is on"
                    f" {changed_devices[name]} where the original has it on {device}"
                )
                return Difference(name, sentence)
        return None

    difference = find_difference()
    for definition in session.blame(find_difference) if difference is not None else ():
        session.ledger.refute(
            definition,
            f"{difference.sentence} ({subject.name})" if difference else "",
            describe_failure(subject, 0, None, None, difference) if difference else {},
        )
    session.revert(session.ledger.refuted())


def _devices(part: Part, module: ModuleType) -> Mapping[str, Any]:
    """Return by name the devices of the parameters and buffers of a part in one version of the
    file; {} where it is not built."""
    try:
        model = build_seeded(0, part.build, module)
    except Exception:  # noqa: BLE001 - a constructor that takes no such device
        return {}
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.device for name, tensor in tensors}
