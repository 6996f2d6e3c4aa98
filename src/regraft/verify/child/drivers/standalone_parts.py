"""Build a class of the file by itself: from the arguments that a model gives its constructor, or
from other values."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import torch
from torch import nn

from regraft.execution.nested import iterate_leaves
from regraft.verify.child import tree
from regraft.verify.child.drivers import configuration_objects
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.drivers.configuration_objects import fields_of, is_config
from regraft.verify.child.drivers.module_flags import with_flags
from regraft.verify.child.load import plain_module_name
from regraft.verify.child.record import recording
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, build_seeded, switch_mode
from regraft.verify.child.tree import Call, ModuleRef, adopt_classes

PARTS = 2  # the most instances of one definition that are built by themselves
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """An instance of a changed class in a model: the arguments of its constructor, the calls that
    it got, and the flags that the model changes (`module_flags`)."""

    definition: str
    cls: str
    arguments: Arguments
    calls: tuple[Call, ...]
    flags: Mapping[str, bool] = field(default_factory=dict)

    def build(self, module: ModuleType) -> Any:
        """Build the instance from the classes of one version of the file, with its flags."""
        return with_flags(self._construct, self.flags)(module)

    def _construct(self, module: ModuleType) -> Any:
        """Call the constructor of one version of the class."""
        arguments = {
            name: _in_version(copy.deepcopy(value), module)
            for name, value in self.arguments.items()
        }
        return getattr(module, self.cls)(**arguments)

    def subject(self, description: str) -> Subject:
        """Return the part as a model that is compared once; `description` becomes part of
        its name."""
        calls = self.calls
        return Subject(
            f"{self.cls} alone, {description}",
            "alone",
            self.build,
            lambda seed: calls,
            {**_recipe(self.cls, self.arguments), "flags": dict(self.flags)},
            light=True,
            once=True,
        )


@dataclass(slots=True)
class Parts:
    """The instances of changed classes in a model that can be built by themselves, at most `PARTS`
    of each definition, and in `built`, for all instances, the definition and the arguments."""

    parts: list[Part] = field(default_factory=list)
    built: list[tuple[str, Arguments]] = field(default_factory=list)


def parts_of(subject: Subject, session: Session) -> Parts:
    """Build a subject's original model and run its last call; return how instances of changed
    classes are built and called.

    An instance becomes a part if it was called, its arguments differ from those of earlier parts
    and hold no module or tensor.
    """
    parts = Parts()
    names_by_class = _changed_classes(session)
    if not names_by_class:
        return parts
    construction_by_id: dict[int, tuple[Any, Arguments]] = {}
    with ExitStack() as stack:
        for cls in names_by_class:
            stack.enter_context(
                mock.patch.object(cls, "__init__", _noting_constructor(cls, construction_by_id))
            )
        model = switch_mode(build_seeded(0, subject.build, session.original), False)
    calls = _calls_by_path(model, subject, session)
    flags = subject.recipe.get("flags", {})
    keys: set[str] = set()
    for path, module in model.named_modules():
        instance, arguments = construction_by_id.get(id(module), (None, {}))
        if instance is not module:
            continue
        for definition in names_by_class[type(module)]:
            parts.built.append((definition, arguments))
            key = (
                f"{definition} {type(module).__name__} {sorted(arguments)}"
                f" {_show_arguments(arguments)}"
            )
            parts_of_definition = [part for part in parts.parts if part.definition == definition]
            if (
                calls.get(path)
                and key not in keys
                and len(parts_of_definition) < PARTS
                and _can_be_copied(arguments)
            ):
                keys.add(key)
                parts.parts.append(
                    Part(definition, type(module).__name__, arguments, tuple(calls[path]), flags)
                )
    return parts


def accepts(part: Part, session: Session, *, finite: bool = False) -> bool:
    """Return whether the original of a part is built, and runs on all its calls in evaluation and
    in training, with `finite` so that its results are finite; an error means that it does not."""
    try:
        model = build_seeded(0, part.build, session.original)
        outcomes = (
            execute(Target(switch_mode(model, training)), call, Plan(gradients=False))
            for training in (True, False)
            for call in part.calls
        )
        return all(
            outcome.error is None and (outcome.is_finite() or not finite) for outcome in outcomes
        )
    except Exception:  # noqa: BLE001 - arbitrary constructors with values that nobody chose; they refuse them
        return False


def with_calls(part: Part, change: Callable[[Call], Call]) -> Part:
    """Return the part with each of its calls changed."""
    return replace(part, calls=tuple(map(change, part.calls)))


def _changed_classes(session: Session) -> dict[type, tuple[str, ...]]:
    """Return the file's classes that are changed, or inherit from changed ones, with the names of
    the changed ones; refuted changes do not count."""
    values = {name: getattr(session.original, name, None) for name in session.ledger.unrefuted()}
    changed = {
        name: cls
        for name, cls in values.items()
        if isinstance(cls, type) and issubclass(cls, nn.Module)
    }
    names_by_class: dict[type, tuple[str, ...]] = {}
    for cls in tuple(vars(session.original).values()):
        if isinstance(cls, type) and cls.__module__ == session.original.__name__:
            names = tuple(name for name, base in changed.items() if issubclass(cls, base))
            if names:
                names_by_class[cls] = names
    return names_by_class


def _noting_constructor(cls: type, construction_by_id: dict[int, tuple[Any, Arguments]]) -> Any:
    """Return a constructor that notes in `construction_by_id`, by id, the instances of exactly that
    class and their arguments."""
    init: Any = vars(cls).get("__init__", getattr(cls, "__init__"))  # noqa: B009 - mypy: unsound on an instance
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls:
            arguments = _bound_arguments(signature, self, args, kwargs)
            if arguments is not None:
                construction_by_id[id(self)] = self, arguments
        init(self, *args, **kwargs)

    return __init__


def _bound_arguments(
    signature: inspect.Signature, owner: Any, args: tuple[Any, ...], kwargs: Arguments
) -> Arguments | None:
    """Return copies of arguments by name, defaults included; None where they do not bind or some
    have no name."""
    try:
        bound = signature.bind(owner, *args, **kwargs)
    except TypeError:
        return None  # the constructor itself says what is wrong
    bound.apply_defaults()
    values = dict(list(bound.arguments.items())[1:])
    for name, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            values.update(values.pop(name, {}))
        elif parameter.kind is parameter.VAR_POSITIONAL and values.pop(name, ()):
            return None
    return {name: tree.duplicate(value) for name, value in values.items()}


def _can_be_copied(arguments: Arguments) -> bool:
    """Return whether the arguments contain no module or tensor, which would belong to one version
    only."""
    return not any(
        isinstance(value, nn.Module | torch.Tensor) for value in iterate_leaves(dict(arguments))
    )


def _calls_by_path(model: Any, subject: Subject, session: Session) -> dict[str, list[Call]]:
    """Return the calls that the parts of a model get in its last call, by path; those that refer to
    modules of the model are left out."""
    calls: dict[str, list[Call]] = {}
    with recording(session.original, session.ledger.unrefuted(), model) as recorder:
        for call in subject.calls(0)[-1:]:
            with session.ledger.step("original", "", f"run {subject.name}"):
                execute(Target(model, scope=session.original), call, Plan(gradients=False))
    for entry in recorder.calls:
        if entry.path is not None and not _has_module_reference(entry.call):
            calls.setdefault(entry.path, []).append(entry.call)
    return calls


def _has_module_reference(call: Call) -> bool:
    """Return whether a call refers to modules of the model."""
    return any(isinstance(leaf, ModuleRef) for leaf in tree.argument_leaves(call))


def _in_version(value: Any, module: ModuleType) -> Any:
    """Return an argument with the classes and functions of one version of the file in the place of
    the other's."""
    if isinstance(value, type | FunctionType):
        own_value = getattr(module, value.__name__, None)
        return (
            own_value
            if own_value is not None
            and plain_module_name(value.__module__) == plain_module_name(module.__name__)
            else value
        )
    return adopt_classes(value, module)


def _show_arguments(arguments: Arguments) -> str:
    """Return a text that is the same for equal arguments."""
    return " ".join(
        str(fields_of(value)) if is_config(value) else repr(value) for value in arguments.values()
    )


def _recipe(cls: str, arguments: Arguments) -> dict[str, Any]:
    """Return the description from which a reproducer builds the class.

    It has plain values, configurations, and classes and functions by module and name.
    """
    configs = {name: value for name, value in arguments.items() if is_config(value)}
    named = {
        name: value for name, value in arguments.items() if isinstance(value, type | FunctionType)
    }
    return {
        "kind": "class",
        "name": cls,
        "values": {
            name: v for name, v in arguments.items() if name not in configs and name not in named
        },
        "configs": {
            name: configuration_objects.recipe_of(value) for name, value in configs.items()
        },
        "named": {name: [value.__module__, value.__name__] for name, value in named.items()},
    }
