"""Read the properties of changed classes on a model and on the objects that its modules hold: what
callers read, and no call of the model may show."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import FunctionType, ModuleType
from typing import Any

from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.saved_state import SCALARS, is_own_object
from regraft.verification.child.state_leaves import attribute_prefix, leaves_of
from regraft.verification.child.state_watch import Watch


def _properties_of_objects(
    module: Any, prefix: str, scope: ModuleType, names: Collection[str]
) -> list[tuple[str, Any, str]]:
    """Return (path, owner, name) of each property that the classes `names` define of a module, and
    of the objects of the file's classes among its attributes; `prefix` is that of the module's
    attributes."""
    owners = {prefix: module}
    for name, value in vars(module).items():
        if is_own_object(value, scope.__name__):
            owners[f"{prefix}{name}."] = value
    return [
        (f"{owner_prefix}{name}", owner, name)
        for owner_prefix, owner in owners.items()
        for name in _properties(type(owner), names)
    ]


def property_leaves(
    module: Any, path: str, scope: ModuleType, names: Collection[str]
) -> dict[str, Any]:
    """Return by path the plain values of the properties that the classes `names` of a file define,
    on one module, which is at `path` in its model, and on the objects of the file's classes among
    its attributes; for a property that raises its error as text. State that reading them leaves,
    such as a value that is computed once, is taken back."""
    properties = _properties_of_objects(module, attribute_prefix(path), scope, names)
    if not properties:
        return {}
    watch = Watch(module, scope)
    leaves: dict[str, Any] = {}
    with watch.collect_printing():
        for property_path, owner, name in properties:
            leaves.update(_leaves_of_property(owner, name, property_path, scope))
    watch.rewind()
    return leaves


def _properties(cls: type, names: Collection[str]) -> Iterator[str]:
    """Yield the names of the properties that a class has from the classes `names` among its
    bases."""
    for base in cls.__mro__:
        if base.__qualname__ not in names:
            continue
        for name, value in vars(base).items():
            if isinstance(value, property) and isinstance(value.fget, FunctionType):
                yield name


def _leaves_of_property(owner: Any, name: str, path: str, scope: ModuleType) -> dict[str, Any]:
    """Return the value of a property as flat leaves, {} for a value that is not plain."""
    try:
        value = getattr(owner, name)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; the error is what callers see
        return {path: f"raises {shorten_error(error)}"}
    return leaves_of(path, value, scope, None) if isinstance(value, (*SCALARS, tuple)) else {}
