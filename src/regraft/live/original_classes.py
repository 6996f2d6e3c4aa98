"""The original class of instances whose class is rewritten."""

from __future__ import annotations

ORIGINAL = "__regraft_original__"


def original_class(cls: type) -> type:
    """Return the class that a rewritten class stands for, and any other class itself."""
    stood_for: type = cls.__dict__.get(ORIGINAL, cls)
    return stood_for


def is_parametrized(cls: type) -> bool:
    """Return whether `torch.nn.utils.parametrize` has put the class on an instance and will take it
    off again."""
    return cls.__module__ == "torch.nn.utils.parametrize" and len(cls.__bases__) == 1
