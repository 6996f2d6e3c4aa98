"""Compare the interface that callers rely on before anything runs: the signatures of the changed
classes and functions.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any


def signature_difference(original: Any, changed: Any) -> str:
    """Return in words the first way in which calls of a definition that used to fit no longer do;
    "" where they all still fit. Of a class, the public methods, `__init__` and `__call__` that the
    original class itself defines are compared; of anything but a class or function nothing is."""
    if isinstance(original, FunctionType) and isinstance(changed, FunctionType):
        return _parameter_difference(original.__name__, original, changed)
    if not (isinstance(original, type) and isinstance(changed, type)):
        return ""
    for name, value in vars(original).items():
        is_compared = not name.startswith("_") or name in ("__init__", "__call__")
        if not is_compared or not isinstance(value, FunctionType):
            continue
        changed_method = getattr(changed, name, None)
        if not callable(changed_method):
            return f"the method {name} is gone"
        difference = _parameter_difference(name, value, changed_method)
        if difference:
            return difference
    return ""


def _parameter_difference(name: str, original: Any, changed: Any) -> str:
    """Return in words the first parameter that lost its name, place or default, or is new and
    required; "" where there is none, the changed callable has *args, or either has no signature."""
    try:
        old_signature, new_signature = inspect.signature(original), inspect.signature(changed)
    except (TypeError, ValueError):  # a callable without a signature
        return ""
    if any(
        parameter.kind is parameter.VAR_POSITIONAL
        for parameter in new_signature.parameters.values()
    ):
        return ""  # a wrapper: the calls show which arguments it takes
    old_parameters, new_parameters = (
        list(old_signature.parameters.values()),
        list(new_signature.parameters.values()),
    )
    for place, old in enumerate(old_parameters):
        new = new_signature.parameters.get(old.name)
        if new is None:
            return f"the signature of {name} has no parameter {old.name} any more"
        if new.kind != old.kind or (
            old.kind is not old.KEYWORD_ONLY and new_parameters[place].name != old.name
        ):
            return f"in the signature of {name} the parameter {old.name} moved"
        if not _are_equal_defaults(old.default, new.default):
            return (
                f"in the signature of {name} the default of {old.name} is {new.default!r}, not"
                f" {old.default!r}"
            )
    for new in new_parameters:
        is_new = new.name not in old_signature.parameters
        if is_new and new.default is new.empty and new.kind is not new.VAR_KEYWORD:
            return f"the signature of {name} requires a new parameter {new.name}"
    return ""


def _are_equal_defaults(old: Any, new: Any) -> bool:
    """Return whether two defaults have types of the same name and equal reprs (each version has a
    named tuple of its own); True where the original's is neither a plain value nor a tuple, which
    cannot be compared. No default differs from any default."""
    is_comparable = (
        isinstance(old, bool | int | float | str | None.__class__ | tuple)
        or old is inspect.Parameter.empty
    )
    has_same_type = type(old).__qualname__ == type(new).__qualname__
    return not is_comparable or (has_same_type and repr(old) == repr(new))
