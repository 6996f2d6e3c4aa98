"""Build an instance of a class of the file by itself, without the model that contains it: from the
arguments that the model gives its constructor, or from other values."""

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
from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call, ModuleRef, adopt_classes
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.call_recording import recording
from regraft.verification.child.drivers import configuration_objects
from regraft.verification.child.drivers.configuration_objects import fields_of, is_config
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.drivers.layer_replacement import LayerChange, change_layer
from regraft.verification.child.drivers.module_flags import with_flags
from regraft.verification.child.file_import import plain_module_name
from regraft.verification.child.running_classes import definitions_by_class
from regraft.verification.child.session import Session, build_seeded, switch_mode

PARTS = 2  # the most instances of one definition that are built by themselves
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """An instance of a class in a model, so that it can be built and called by itself.

    `definition` is the changed class or function, `cls` the class of the instance: that class, one
    that inherits from it, or one that uses it. `arguments` are those of the constructor by name,
    `calls` those that the instance got, `flags` those that the model changes (`module_flags`),
    `layer_change` what happens to its layers once it is built (`layer_replacement`).
    """

    definition: str
    cls: str
    arguments: Arguments
    calls: tuple[Call, ...]
    flags: Mapping[str, bool] = field(default_factory=dict)
    layer_change: LayerChange | None = None

    def build(self, module: ModuleType) -> Any:
        """Return a new instance of the class of one version of the file, with the changed flags and
        layers. Raises what the constructor raises."""
        model = with_flags(self._construct, self.flags)(module)
        return change_layer(model, *self.layer_change) if self.layer_change else model

    def _construct(self, module: ModuleType) -> Any:
        """Return the instance that the constructor of one version makes of copies of the
        arguments."""
        arguments = {
            name: _in_version(copy.deepcopy(value), module)
            for name, value in self.arguments.items()
        }
        return getattr(module, self.cls)(**arguments)

    def subject(self, description: str) -> Subject:
        """Return the part as a light subject that is compared once, with the same calls for every
        seed; `description` becomes part of its name."""
        calls, recipe = self.calls, _recipe(self.cls, self.arguments)
        return Subject(
            f"{self.cls} alone, {description}",
            "alone",
            self.build,
            lambda seed: calls,
            {**recipe, "flags": dict(self.flags), "layer_change": self.layer_change}
            if recipe
            else {},
            light=True,
            once=True,
        )


@dataclass(slots=True)
class Parts:
    """The instances of changed classes in a model.

    `parts` are those that can be built by themselves, at most `PARTS` of each definition. `built`
    has a pair for every instance of a changed class: the name of this class and the constructor's
    arguments.
    """

    parts: list[Part] = field(default_factory=list)
    built: list[tuple[str, Arguments]] = field(default_factory=list)


def parts_of(subject: Subject, session: Session) -> Parts:
    """Build a subject's original model with seed 0 and run its last call in evaluation; return how
    instances of changed classes were built and called.

    An instance becomes a part if it was called, its arguments differ from those of earlier parts
    and hold no module or tensor, and there are fewer than `PARTS` of its definition. Without a
    changed class that is not refuted nothing is built. Raises what the constructor of the model
    raises; an error in the call ends the call only.
    """
    parts = Parts()
    names_by_class = definitions_by_class(session)
    if not names_by_class:
        return parts
    construction_by_id: dict[int, tuple[Any, Arguments]] = {}
    with ExitStack() as stack:
        for cls in names_by_class:
            stack.enter_context(
                mock.patch.object(cls, "__init__", _recording_constructor(cls, construction_by_id))
            )
        model = switch_mode(build_seeded(0, subject.build, session.original), False)
    calls = _calls_by_path(model, subject, tuple(names_by_class), session)
    flags = subject.recipe.get("flags", {})
    keys: set[str] = set()
    for path, module in model.named_modules():
        instance, arguments = construction_by_id.get(id(module), (None, {}))
        if instance is not module:
            continue
        for definition in _definitions_of(names_by_class[type(module)], arguments, session):
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
    """Return whether the original accepts a part: it is built with seed 0 and runs on all calls of
    the part, without gradients, in training and in evaluation.

    With `finite`, all tensors in the results have to be finite, too. False is returned where the
    constructor or a call raises an error: values that nobody chose may be refused.
    """
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
    """Return a copy of the part whose calls are `change` of each of its calls."""
    return replace(part, calls=tuple(map(change, part.calls)))


def _definitions_of(
    names: tuple[str, ...], arguments: Arguments, session: Session
) -> tuple[str, ...]:
    """Return the changed definitions that an instance runs: those that every instance of its class
    runs (`names`), and for an edit by hand the classes of the arguments of its constructor."""
    if session.by_rules:
        return names
    classes = {type(value).__name__ for value in arguments.values() if is_config(value)}
    return tuple(dict.fromkeys((*names, *sorted(classes & set(session.ledger.unrefuted())))))


def _recording_constructor(cls: type, construction_by_id: dict[int, tuple[Any, Arguments]]) -> Any:
    """Return a constructor for a class that adds to `construction_by_id`, by the id of the
    instance, the instance and its arguments, and then calls the constructor of the class.

    Instances of subclasses are left out: they have a constructor of their own. The instance is kept
    so that no other object gets its id.
    """
    init: Any = vars(cls).get("__init__", getattr(cls, "__init__"))  # noqa: B009 - mypy: unsound on an instance
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        """Store the instance and its arguments if it is of the class itself, then construct it."""
        if type(self) is cls:
            arguments = _bound_arguments(signature, self, args, kwargs)
            if arguments is not None:
                construction_by_id[id(self)] = self, arguments
        init(self, *args, **kwargs)

    return __init__


def _bound_arguments(
    signature: inspect.Signature, owner: Any, args: tuple[Any, ...], kwargs: Arguments
) -> Arguments | None:
    """Return copies of a constructor's arguments by name, defaults included and `owner`, the
    instance, left out. None where they do not fit the signature, or where `*args` takes some, which
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
    return {name: call_arguments.duplicate(value) for name, value in values.items()}


def _can_be_copied(arguments: Arguments) -> bool:
    """Return whether the arguments contain no module and no tensor, which would belong to one
    version only or have no place in a recipe."""
    return not any(
        isinstance(value, nn.Module | torch.Tensor) for value in iterate_leaves(dict(arguments))
    )


def _calls_by_path(
    model: Any, subject: Subject, classes: tuple[type, ...], session: Session
) -> dict[str, list[Call]]:
    """Run the last call of a subject on its model; return by path the calls that modules of some
    classes of the original file got.

    Calls that refer to modules of the model are left out; an error of the model ends the run, and
    the calls before it count.
    """
    names = tuple(  # modules of subclasses are recorded with their base class
        cls.__name__ for cls in classes if not set(cls.__mro__[1:]) & set(classes)
    )
    calls: dict[str, list[Call]] = {}
    with recording(session.original, names, model) as recorder:
        for call in subject.calls(0)[-1:]:
            with session.ledger.step("original", "", f"run {subject.name}"):
                execute(Target(model, scope=session.original), call, Plan(gradients=False))
    for entry in recorder.calls:
        if entry.path is not None and not _has_module_reference(entry.call):
            calls.setdefault(entry.path, []).append(entry.call)
    return calls


def _has_module_reference(call: Call) -> bool:
    """Return whether an argument of a call is, or contains, a module of the model."""
    return any(isinstance(leaf, ModuleRef) for leaf in call_arguments.argument_leaves(call))


def _in_version(value: Any, module: ModuleType) -> Any:
    """Return an argument with the classes and functions of one version of the file (`module`) in
    the place of the other's; objects of the other's classes in it are changed in place."""
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
    """Return a text of the arguments, in their order, that is the same for equal arguments and
    shows configurations by their fields."""
    return " ".join(
        str(fields_of(value)) if is_config(value) else repr(value) for value in arguments.values()
    )


def _recipe(cls: str, arguments: Arguments) -> dict[str, Any]:
    """Return the description from which a reproducer builds the class: plain values, recipes of
    configurations, and classes and functions by module and name; {} where an argument has no form
    in JSON, such as a partial call."""
    named = {
        name: [value.__module__, value.__name__]
        for name, value in arguments.items()
        if isinstance(value, type | FunctionType)
    }
    return configuration_objects.class_recipe(cls, arguments, named=named)
