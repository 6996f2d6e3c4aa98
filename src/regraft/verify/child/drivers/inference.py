"""Bring plain classes and functions to life by guessing constructor values and inputs from names and errors."""

from __future__ import annotations

import ast
import copy
import inspect
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from torch import nn

from regraft.verify.child.drivers import inputs, repair, tiny, vary
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.drivers.bringup import refuse_large
from regraft.verify.child.drivers.guess import HIDDEN, value_for
from regraft.verify.child.drivers.reach import reach
from regraft.verify.child.drivers.slots import Spec
from regraft.verify.child.session import Session, seeded
from regraft.verify.child.tree import at_home

# How many configurations a class that takes one is built from, and how long variations of a class are tried.
CONFIGS = 6
SECONDS = 15.0
# How long inputs of a class are searched for, with all the values that build it.
SEARCH_SECONDS = 20.0


class FunctionModule(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Lets a function of a module be run, recorded and compared as a model."""

    def __init__(self, module: ModuleType, name: str) -> None:
        super().__init__()
        self._module_of_function = (module,)
        self._name_of_function = name

    @property
    def signed(self) -> Any:
        """What has the signature of `forward`."""
        return getattr(self._module_of_function[0], self._name_of_function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.signed(*args, **kwargs)

    def __deepcopy__(self, _: Any) -> FunctionModule:
        return FunctionModule(self._module_of_function[0], self._name_of_function)


@dataclass(frozen=True, slots=True)
class _Source:
    """The text of the whole file, what it says about the changed definitions, and the configurations that built models
    of it.
    """

    whole: str
    hints: vary.Hints
    configs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Life:
    """A class with constructor values that build it, and the inputs found for it."""

    name: str
    values: Mapping[str, Any]
    found: inputs.Found
    calls: inputs.Calls


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why values bring a class to no life: it is not built, or takes no inputs."""

    built: bool
    reason: str


def subjects(session: Session, text: str, source: str, configs: list[Any]) -> Iterator[Subject]:
    """Yield a subject for every definition and relative that still needs one and for which values can be guessed.

    `text` is the source of the changed definitions, `source` the original's: the attributes that it reads from
    `config` are what a made-up one offers. `configs` are configurations that built whole models of the file, and after
    them those of models that cannot be built.
    """
    given = _Source(source, vary.hints(text, source), tuple(configs))
    for change in session.uncovered():
        value = getattr(session.original, change.definition, None)
        if change not in session.uncovered():
            continue
        if isinstance(value, FunctionType):
            yield from _function_subjects(change.definition, session)
        elif isinstance(value, type) and issubclass(value, nn.Module):
            yield from _class_subjects(change.definition, value, given, session)
    for relative in session.unmet():
        value = getattr(session.original, relative.name, None)
        if relative in session.unmet() and isinstance(value, type) and issubclass(value, nn.Module):
            life = _first_life(relative.name, value, given, session)
            if life is not None:
                yield _subject(life)


def _class_subjects(name: str, cls: type, given: _Source, session: Session) -> Iterator[Subject]:
    """Yield the class as it comes to life, then variations that reach lines which have not run yet."""
    life = _first_life(name, cls, given, session)
    if life is None:
        return
    yield _subject(life)
    if session.covered():
        return
    deadline = time.process_time() + SECONDS
    pool, seen = [life], reach(_subject(life), session).lines
    for one in pool:
        for other in _others(one, given, session):
            if session.covered() or time.process_time() > deadline:
                return
            reached = reach(_subject(other), session)
            if reached.news:
                yield replace(_subject(other), light=True)
            if reached.lines - seen:  # a step on the way, even where others ran these lines before
                pool.append(other)
                seen |= reached.lines


def _first_life(name: str, cls: type, given: _Source, session: Session) -> _Life | None:
    """Return the class as the first values that fit build it; inputs are searched for where none are taken at once."""
    choices = list(_constructor_values(cls, given))
    deadline = time.process_time() + SEARCH_SECONDS
    failed: list[_Failure] = []
    for values, seconds in ((values, seconds) for seconds in (0.0, repair.SECONDS) for values in choices):
        life = _lived(name, values, session, seconds)
        if isinstance(life, _Life):
            return life
        failed.append(life)
        if time.process_time() > deadline:
            break
    session.ledger.skip(f"{name} (inference): {max(failed, key=lambda one: one.built).reason}")
    return None


def _lived(
    name: str, values: Mapping[str, Any], session: Session, seconds: float, first: Spec | None = None
) -> _Life | _Failure:
    """Build the class and look for inputs; return why not where that fails."""
    try:
        with session.ledger.step("original", "", f"build {name}"):
            refuse_large(_builder(name, values), session.original)
            model = seeded(0, _builder(name, values), session.original).eval()
    except Exception as error:  # noqa: BLE001 - guessed values may not fit; returned as the reason to skip
        return _Failure(False, f"cannot be built from {_shown(values)}: {type(error).__name__}: {str(error)[:200]}")
    try:
        with session.ledger.step("original", "", f"look for inputs of {name}"):
            found = inputs.find(model, inner=True, width=inputs.width_of(model), seconds=seconds, first=first)
    except (inputs.NoInputs, LookupError) as error:
        return _Failure(True, str(error))
    return _Life(name, values, found, found.calls(model))


def _builder(name: str, values: Mapping[str, Any]) -> Any:
    return lambda module: getattr(module, name)(
        **{key: at_home(copy.deepcopy(value), module) for key, value in values.items()}
    )


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in values.items() if not _is_config(value))


def _is_config(value: Any) -> bool:
    return isinstance(value, SimpleNamespace) or hasattr(value, "to_dict")


def _subject(life: _Life) -> Subject:
    plain = {key: value for key, value in life.values.items() if not _is_config(value)}
    configs = {key: _config_recipe(value) for key, value in life.values.items() if _is_config(value)}
    recipe = {"kind": "class", "name": life.name, "values": plain, "configs": configs}
    return Subject(
        f"{life.name}({_shown(life.values)})", "inference", _builder(life.name, life.values), life.calls, recipe
    )


def _config_recipe(config: Any) -> list[Any]:
    """How a reproducer makes a configuration: the module and name of its class, and its values."""
    if isinstance(config, SimpleNamespace):
        return ["types", "SimpleNamespace", vars(config)]
    return [type(config).__module__, type(config).__name__, config.to_dict()]


def _others(life: _Life, given: _Source, session: Session) -> Iterator[_Life]:
    """Yield the class with other inputs, another flag, string or configuration."""
    model = seeded(0, _builder(life.name, life.values), session.original).eval()
    yield from (
        replace(life, calls=calls)
        for calls in inputs.more_calls(model, life.found, given.hints.text, inputs.width_of(model))
    )
    for values in _variations(life.values, given):
        other = _lived(life.name, values, session, 0.0, life.found.spec)
        if isinstance(other, _Life):
            yield other


def _variations(values: Mapping[str, Any], given: _Source) -> Iterator[dict[str, Any]]:
    plain = {key: value for key, value in values.items() if not _is_config(value)}
    for override in vary.variations(plain, replace(given.hints, optional={})):
        yield {**values, **override}
    for key, value in values.items():
        if _is_config(value):
            fields = vars(value) if isinstance(value, SimpleNamespace) else value.to_dict()
            for override in vary.variations(fields, given.hints):
                yield {**values, key: _with(value, override)}


def _with(config: Any, override: Mapping[str, Any]) -> Any:
    changed = copy.deepcopy(config)
    for name, value in override.items():
        if isinstance(value, Mapping):
            continue
        try:
            setattr(changed, name, value)
        except Exception:  # noqa: BLE001 - a configuration that allows what its models use now; the class takes more
            vars(changed)[name] = value
    return changed


def _constructor_values(cls: type, given: _Source) -> Iterator[dict[str, Any]]:
    """Yield guesses of all constructor values: for each configuration that may fit the defaults made small, at the end
    the defaults themselves.
    """
    parameters = inputs.parameters(inspect.signature(cls))
    wanted = [p for p in parameters if p.default is p.empty and p.name.endswith("config")]
    choices: list[Any] = [*_fitting(wanted[0], given.configs), _made_up(given.whole)] if wanted else [None]
    for config in choices:
        values: dict[str, Any] = {}
        for parameter in parameters:
            if parameter in wanted:
                values[parameter.name] = config
            elif parameter.default is parameter.empty:
                values[parameter.name] = _guess(parameter, config)
            elif parameter.default is None or isinstance(parameter.default, bool | int | float | str | list | tuple):
                values[parameter.name] = parameter.default
        seen = [values]
        for scale in tiny.SCALES:
            small = _small(values, scale)
            if small not in seen:
                seen.append(small)
        yield from (*seen[1:], values)


def _small(values: Mapping[str, Any], scale: tiny.Scale) -> dict[str, Any]:
    """Shrink constructor values as if they were a configuration; none is left out, and tuples stay tuples."""
    small = tiny.shrink({key: value for key, value in values.items() if not _is_config(value)}, scale)
    kept = {key: small.get(key, value) for key, value in values.items()}
    return {key: tuple(kept[key]) if isinstance(value, tuple) else kept[key] for key, value in values.items()}


def _guess(parameter: inspect.Parameter, config: Any) -> Any:
    """A value for a parameter: what the configuration has under its name, what its name suggests, or a size."""
    own = getattr(config, parameter.name, None)
    if isinstance(own, bool | int | float | str):
        return own
    try:
        return value_for(parameter.name, inputs.annotation(parameter))
    except LookupError:
        return HIDDEN


def _fitting(parameter: inspect.Parameter, configs: tuple[Any, ...]) -> list[Any]:
    """Configurations, those inside others included, of the annotated class first; one of each class."""
    found: dict[str, Any] = {}
    level = [config for config in configs if hasattr(config, "to_dict")]
    while level:
        for config in level:
            found.setdefault(type(config).__name__, config)
        level = [value for config in level for value in vars(config).values() if hasattr(value, "to_dict")]
    note = inputs.annotation(parameter)
    return sorted(found.values(), key=lambda config: type(config).__name__ != note)[:CONFIGS]


def _made_up(source: str) -> SimpleNamespace:
    values: dict[str, Any] = {}
    for name in _config_attributes(source):
        try:
            values[name] = value_for(name)
        except LookupError:
            values[name] = None  # an attribute that the class may not read; a wrong guess shows when it is built
    return SimpleNamespace(**values)


def _config_attributes(source: str) -> tuple[str, ...]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    return tuple(sorted({node.attr for node in nodes if ast.unparse(node.value) in ("config", "self.config")}))


def _function_subjects(name: str, session: Session) -> Iterator[Subject]:
    def build(module: ModuleType) -> Any:
        return FunctionModule(module, name)

    model = build(session.original)
    try:
        with session.ledger.step("original", "", f"look for inputs of {name}"):
            found = inputs.find(model, inner=True)
    except (inputs.NoInputs, LookupError) as error:
        session.ledger.skip(f"{name} (inference): {error}")
        return
    first = Subject(f"{name}(...)", "inference", build, found.calls(model), {"kind": "function", "name": name})
    yield first
    for calls in inputs.more_calls(model, found, name):
        other = replace(first, calls=calls, light=True)
        if session.done():
            return
        if reach(other, session).news:
            yield other
