"""Say which definitions that have to run beside a changed one took part in comparisons."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Set
from types import ModuleType

import torch

from regraft.verification.related_definitions import Relative

MODES = frozenset({"eval", "train"})


def has_taken_part(
    relative: Relative,
    original: ModuleType,
    modes_by_class: Mapping[str, Set[str]],
    entered_lines: Set[int],
) -> bool:
    """Return whether a relative took part in comparisons in both modes.

    A relative that is no module class has to have run a function in its lines; a module class
    without a `forward` counts also where its methods ran, or a subclass took part.

    modes_by_class: the modes in which models with called instances of a class were compared.
    entered_lines: the first lines of the functions that ran.
    """
    if modes_by_class.get(relative.name, set()) >= MODES:
        return True
    value = getattr(original, relative.name, None)
    if not (isinstance(value, type) and issubclass(value, torch.nn.Module)):
        return any(relative.first <= line <= relative.last for line in entered_lines)
    if getattr(value, "forward", None) is not torch.nn.Module.forward:
        return False
    if entered_lines & _first_lines(value):
        return True  # the module is never called, but other functions of it are
    # an abstract base: its subclasses run its code
    compared_classes = [
        getattr(original, name, None) for name, modes in modes_by_class.items() if modes >= MODES
    ]
    return any(
        isinstance(compared_class, type) and issubclass(compared_class, value)
        for compared_class in compared_classes
    )


def _first_lines(cls: type) -> set[int]:
    """Return the first lines of the functions that a class defines, except its constructor."""
    functions = (
        inspect.unwrap(value)
        for name, value in vars(cls).items()
        if name != "__init__" and callable(value)
    )
    return {
        function.__code__.co_firstlineno for function in functions if hasattr(function, "__code__")
    }


def has_taken_value(values: Set[str], constant: str) -> bool:
    """Return whether one of the values that a constructor's argument had, as reprs, is `constant`;
    if this is "", any value but None whose repr is a literal."""
    return constant in values if constant else any(map(_is_plain_value, values))


def _is_plain_value(shown: str) -> bool:
    """Return whether a repr is that of a number, a boolean, a string, or a container of these;
    False for "None" and for text that is no literal."""
    try:
        value = ast.literal_eval(shown)
    except (ValueError, SyntaxError):
        return False
    return value is not None
