"""Find the module classes of a file that run a changed class which is none of modules, or a changed
function."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, TypeGuard

from torch import nn

from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.child.session import Session
from regraft.verification.class_syntax import used_names
from regraft.verification.top_level_definitions import definitions_by_name


def is_module_class(value: Any) -> TypeGuard[type]:
    """Return whether a value is a class of modules."""
    return isinstance(value, type) and issubclass(value, nn.Module)


def is_plain_class(value: Any) -> TypeGuard[type]:
    """Return whether a value is a class, but none of modules."""
    return isinstance(value, type) and not issubclass(value, nn.Module)


def module_classes(module: ModuleType) -> dict[str, type]:
    """Return by name the classes of modules that a file defines itself, without imported ones."""
    return {
        name: value
        for name, value in vars(module).items()
        if is_module_class(value) and value.__module__ == module.__name__
    }


@functools.cache
def classes_running(module: ModuleType, definition: str) -> frozenset[type]:
    """Return the module classes of a file that inherit from a definition, or whose text names it,
    also through functions and other classes; those that only contain such a module are left out."""
    value = getattr(module, definition, None)
    return frozenset(
        cls
        for cls in module_classes(module).values()
        if (isinstance(value, type) and issubclass(cls, value))
        or definition in _names_reached(module, cls.__name__)
    )


@functools.cache
def _names_reached(module: ModuleType, name: str) -> frozenset[str]:
    """Return the names that a definition of a file mentions, and those that the functions and plain
    classes among them mention, and so on."""
    definitions = definitions_by_name(syntax_tree(str(module.__file__)))
    reached: set[str] = set()
    pending = {name}
    while pending:
        definition = definitions.get(pending.pop())
        names = used_names(definition) - reached if definition is not None else frozenset()
        reached |= names
        pending |= {
            mentioned
            for mentioned in names
            if not is_module_class(getattr(module, mentioned, None))
        }
    return frozenset(reached)


def definitions_by_class(session: Session) -> dict[type, tuple[str, ...]]:
    """Return the module classes of the original file that may run changed definitions, each with
    the names of the definitions that every instance runs; {} for none. Refuted definitions are left
    out.

    A module class runs the changed classes that it is or inherits from, mixins included; for an
    edit by hand also those of `classes_running` that are no module class. With a changed class that
    is none every module class may, since its constructor may get an instance, such as a
    configuration.
    """
    definitions = {
        name: getattr(session.original, name)
        for name in session.ledger.unrefuted()
        if hasattr(session.original, name)
    }
    has_values = not session.by_rules and any(map(is_plain_class, definitions.values()))
    names_by_class: dict[type, tuple[str, ...]] = {}
    for cls in module_classes(session.original).values():
        names = tuple(
            name
            for name, definition in definitions.items()
            if (isinstance(definition, type) and issubclass(cls, definition))
            or (
                not session.by_rules
                and not is_module_class(definition)
                and cls in classes_running(session.original, name)
            )
        )
        if names or has_values:
            names_by_class[cls] = names
    return names_by_class
