"""What callers rely on before anything runs: the signatures of the changed classes and functions."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any


def signature_difference(original: Any, changed: Any) -> str:
    """Return in words how calls of a definition that used to fit no longer do; "" where they all still fit."""
    if isinstance(original, FunctionType) and isinstance(changed, FunctionType):
        return _narrower(original.__name__, original, changed)
    if not (isinstance(original, type) and isinstance(changed, type)):
        return ""
    for name, value in vars(original).items():
        if not isinstance(value, FunctionType) or (name.startswith("_") and name not in ("__init__", "__call__")):
            continue
        other = getattr(changed, name, None)
        if not callable(other):
            return f"the method {name} is gone"
        found = _narrower(name, value, other)
        if found:
            return found
    return ""


def _narrower(name: str, original: Any, changed: Any) -> str:
    """Parameters keep their names, places and defaults; new ones have defaults and come last."""
    try:
        before, after = inspect.signature(original), inspect.signature(changed)
    except (TypeError, ValueError):  # a callable that does not say
        return ""
    if any(one.kind is one.VAR_POSITIONAL for one in after.parameters.values()):
        return ""  # a wrapper: what it takes shows when it is called
    olds, news = list(before.parameters.values()), list(after.parameters.values())
    for place, old in enumerate(olds):
        new = after.parameters.get(old.name)
        if new is None:
            return f"the signature of {name} has no parameter {old.name} any more"
        if new.kind != old.kind or (old.kind is not old.KEYWORD_ONLY and news[place].name != old.name):
            return f"in the signature of {name} the parameter {old.name} moved"
        if not _same_default(old.default, new.default):
            return f"in the signature of {name} the default of {old.name} is {new.default!r}, not {old.default!r}"
    for new in news[len(olds) :]:
        if new.default is new.empty and new.kind is not new.VAR_KEYWORD:
            return f"the signature of {name} requires a new parameter {new.name}"
    return ""


def _same_default(old: Any, new: Any) -> bool:
    plain = isinstance(old, bool | int | float | str | None.__class__ | tuple) or old is inspect.Parameter.empty
    return not plain or (type(old) is type(new) and repr(old) == repr(new))
