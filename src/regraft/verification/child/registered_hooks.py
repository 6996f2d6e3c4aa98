"""The hooks that construction leaves on a model: on its modules, for calls, gradients and
checkpoints, and on its parameters. Copies of a model have no hooks on parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from regraft.verification.child.comparison_terms import Difference

_ON_MODULES = tuple(
    name for name, value in vars(nn.Module()).items() if "hooks" in name and isinstance(value, dict)
)
_ON_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def hook_difference(original: Any, changed: Any) -> Difference | None:
    """Return the first difference in the number of hooks of a kind on a module or parameter that
    both models have, modules by the name of their class, too; None where there is none."""
    changed_owners = dict(_owners(changed))
    for path, owner in _owners(original):
        counterpart = changed_owners.get(path)
        if type(owner).__qualname__ != type(counterpart).__qualname__:
            continue
        names = _ON_MODULES if isinstance(owner, nn.Module) else _ON_PARAMETERS
        for name in names:
            count, changed_count = (
                len(getattr(value, name, None) or ()) for value in (owner, counterpart)
            )
            if count != changed_count:
                place = path or "the model"
                kind = name.strip("_").replace("_", " ")
                sentence = f"after construction {place} has {changed_count} {kind}, not {count}"
                return Difference(path, sentence)
    return None


def _owners(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the modules and the parameters of a model with their paths; nothing for a value that
    is no module."""
    if isinstance(model, nn.Module):
        yield from model.named_modules()
        yield from model.named_parameters()
