"""Build a class of the file by itself: from what a model gives its constructor, or from other values."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn

from regraft.verify.child import tree
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.load import plain
from regraft.verify.child.record import recording
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, in_mode, seeded
from regraft.verify.child.tree import Call, ModuleRef, at_home, map_leaves

PARTS = 2  # instances of one definition that are built by themselves
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """An instance of a changed class in a model: the arguments of its constructor and the calls that it got."""

    definition: str
    cls: str
    arguments: Arguments
    calls: tuple[Call, ...]

    def build(self, module: ModuleType) -> Any:
        given = {name: _own(copy.deepcopy(value), module) for name, value in self.arguments.items()}
        return getattr(module, self.cls)(**given)

    def subject(self, what: str) -> Subject:
        """Return the part as a model that is compared once."""
        calls = self.calls
        return Subject(
            f"{self.cls} alone, {what}", "alone", self.build, lambda seed: calls, _recipe(self.cls, self.arguments),
            light=True, once=True,
        )  # fmt: skip


@dataclass(slots=True)
class Parts:
    """The instances of changed classes in a model, and the arguments that all instances were built from."""

    parts: list[Part] = field(default_factory=list)
    built: list[tuple[str, Arguments]] = field(default_factory=list)


def parts_of(subject: Subject, session: Session) -> Parts:
    """Build a subject's original model and run it, and note how instances of changed classes are built and called."""
    found = Parts()
    owners = _changed_classes(session)
    if not owners:
        return found
    noted: dict[int, tuple[Any, Arguments]] = {}
    with ExitStack() as stack:
        for cls in owners:
            stack.enter_context(mock.patch.object(cls, "__init__", _noting(cls, noted)))
        model = in_mode(seeded(0, subject.build, session.original), False)
    calls = _calls_by_path(model, subject, session)
    seen: set[str] = set()
    for path, module in model.named_modules():
        known, arguments = noted.get(id(module), (None, {}))
        if known is not module:
            continue
        for definition in owners[type(module)]:
            found.built.append((definition, arguments))
            key = f"{definition} {type(module).__name__} {sorted(arguments)} {_shown(arguments)}"
            mine = [part for part in found.parts if part.definition == definition]
            if calls.get(path) and key not in seen and len(mine) < PARTS and _may_be_copied(arguments):
                seen.add(key)
                found.parts.append(Part(definition, type(module).__name__, arguments, tuple(calls[path])))
    return found


def accepts(part: Part, session: Session) -> bool:
    """Whether the original of a part is built, and runs on all its calls in evaluation and in training."""
    try:
        model = seeded(0, part.build, session.original)
        targets = [(Target(in_mode(model, training)), call) for training in (True, False) for call in part.calls]
        return all(execute(target, call, Plan(gradients=False)).error is None for target, call in targets)
    except Exception:  # noqa: BLE001 - arbitrary constructors with values that nobody chose; they refuse them
        return False


def is_config(value: Any) -> bool:
    """Whether an argument holds the fields of a configuration."""
    return isinstance(value, SimpleNamespace) or (hasattr(value, "to_dict") and not isinstance(value, type))


def fields_of(config: Any) -> dict[str, Any]:
    """Return the fields of a configuration by name."""
    return dict(vars(config)) if isinstance(config, SimpleNamespace) else dict(config.to_dict())


def with_fields(config: Any, override: Mapping[str, Any]) -> Any:
    """Return a copy of a configuration with other fields, those of nested configurations included."""
    changed = copy.deepcopy(config)
    for name, value in override.items():
        inner, new = getattr(changed, name, None), value
        if isinstance(value, Mapping) and inner is not None and is_config(inner):
            before = fields_of(inner)
            new = with_fields(inner, {key: other for key, other in value.items() if other != before.get(key)})
        try:
            setattr(changed, name, new)
        except Exception:  # noqa: BLE001 - a configuration that checks what it is given; the class may take more
            vars(changed)[name] = new
    return changed


def with_calls(part: Part, change: Callable[[Call], Call]) -> Part:
    return replace(part, calls=tuple(map(change, part.calls)))


def _changed_classes(session: Session) -> dict[type, tuple[str, ...]]:
    """Return the classes of the file that are changed or inherit from a changed one, with the names of these."""
    own = {name: getattr(session.original, name, None) for name in session.ledger.open()}
    changed = {name: cls for name, cls in own.items() if isinstance(cls, type) and issubclass(cls, nn.Module)}
    found: dict[type, tuple[str, ...]] = {}
    for cls in tuple(vars(session.original).values()):
        if isinstance(cls, type) and cls.__module__ == session.original.__name__:
            names = tuple(name for name, base in changed.items() if issubclass(cls, base))
            if names:
                found[cls] = names
    return found


def _noting(cls: type, noted: dict[int, tuple[Any, Arguments]]) -> Any:
    """Return a constructor that notes the arguments of the instances of that very class."""
    init: Any = vars(cls).get("__init__", getattr(cls, "__init__"))  # noqa: B009 - mypy: unsound on an instance
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls:
            given = _bound(signature, self, args, kwargs)
            if given is not None:
                noted[id(self)] = self, given
        init(self, *args, **kwargs)

    return __init__


def _bound(signature: inspect.Signature, owner: Any, args: tuple[Any, ...], kwargs: Arguments) -> Arguments | None:
    """Return copies of arguments by name, defaults included; None where some have no name."""
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


def _may_be_copied(arguments: Arguments) -> bool:
    """Whether the arguments hold no part of a model: such a part would be of one version only."""
    return not any(isinstance(value, nn.Module | torch.Tensor) for value in _leaves(dict(arguments)))


def _calls_by_path(model: Any, subject: Subject, session: Session) -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    with recording(session.original, session.ledger.open(), model) as recorder:
        for call in subject.calls(0)[-1:]:
            with session.ledger.step("original", "", f"run {subject.name}"):
                execute(Target(model, scope=session.original), call, Plan(gradients=False))
    for entry in recorder.found:
        if entry.path is not None and not _refers(entry.call):
            calls.setdefault(entry.path, []).append(entry.call)
    return calls


def _refers(call: Call) -> bool:
    return any(isinstance(leaf, ModuleRef) for leaf in _leaves((call.args, dict(call.kwargs))))


def _leaves(value: Any) -> list[Any]:
    leaves: list[Any] = []
    map_leaves(value, leaves.append)
    return leaves


def _own(value: Any, module: ModuleType) -> Any:
    """Return an argument for the version of the file that `module` is: its own classes and functions."""
    if isinstance(value, type | FunctionType):
        mine = getattr(module, value.__name__, None)
        return mine if mine is not None and plain(value.__module__) == plain(module.__name__) else value
    return at_home(value, module)


def _shown(arguments: Arguments) -> str:
    return " ".join(str(fields_of(value)) if is_config(value) else repr(value) for value in arguments.values())


def _recipe(cls: str, arguments: Arguments) -> dict[str, Any]:
    """How a reproducer builds the class: plain values, configurations, and classes and functions by their place."""
    configs = {name: value for name, value in arguments.items() if is_config(value)}
    named = {name: value for name, value in arguments.items() if isinstance(value, type | FunctionType)}
    return {
        "kind": "class",
        "name": cls,
        "values": {name: v for name, v in arguments.items() if name not in configs and name not in named},
        "configs": {name: _config_recipe(value) for name, value in configs.items()},
        "named": {name: [value.__module__, value.__name__] for name, value in named.items()},
    }


def _config_recipe(config: Any) -> list[Any]:
    if isinstance(config, SimpleNamespace):
        return ["types", "SimpleNamespace", vars(config)]
    return [type(config).__module__, type(config).__name__, config.to_dict()]
