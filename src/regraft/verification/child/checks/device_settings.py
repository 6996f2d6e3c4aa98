"""Find settings of devices that are not here, such as a switch of automatic mixed precision, which
only one version has."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

import torch

from regraft.verification.child.checks.code_replacement import definition_node
from regraft.verification.definition_changes import Change

_BACKENDS = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}
_FURTHER_DEVICES = ("hpu", "npu", "mlu", "xla", "hip")


def changed_device_settings(
    change: Change, changed: ModuleType, original: ModuleType
) -> Iterator[str]:
    """Yield a sentence for each call of `autocast` for a device that is not available here, by its
    name, which only one version of a definition has: no run shows what it decides."""
    versions = ("the original", original), ("the changed version", changed)
    settings = [_settings(change.definition, module) for _, module in versions]
    for (words, _), own, other in zip(versions, settings, settings[::-1], strict=True):
        for setting, count in own.items():
            if count > other[setting]:
                yield f"only {words} has this `autocast` for {setting[0]}, which is not here"


def _settings(definition: str, module: ModuleType) -> Counter[tuple[str, str]]:
    """Return how often a definition calls `autocast` for each device that is not available, with
    the text of its other arguments."""
    node = definition_node(module, definition)
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call)) if node else ()
    return Counter(setting for call in calls for setting in _autocasts(call))


def _autocasts(call: ast.Call) -> Iterator[tuple[str, str]]:
    """Yield the device of a call of `autocast` (`torch.autocast("cuda")`,
    `torch.cuda.amp.autocast()`) and the text of its other arguments; nothing for another call, and
    for a device that is available."""
    name = ast.unparse(call.func)
    if name.rpartition(".")[2] != "autocast":
        return
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [str(part.value) for part in arguments if isinstance(part, ast.Constant)]
    devices = [*name.split("."), *(text.partition(":")[0] for text in texts)]
    other_arguments = [
        ast.unparse(part)
        for part in arguments
        if not isinstance(part, ast.Constant) or not isinstance(part.value, str)
    ]
    for device in dict.fromkeys(devices):
        if device in _FURTHER_DEVICES or (
            device in _BACKENDS and not _BACKENDS[device].is_available()
        ):
            yield device, ", ".join(other_arguments)
