"""Bring plain classes and functions to life by guessing constructor values and inputs from names and errors."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

from torch import nn

from regraft.verify.child.drivers import fit, inputs, parts, repair, tiny, vary
from regraft.verify.child.drivers.base import Subject, guarded
from regraft.verify.child.drivers.bringup import brief, raising, refuse_large
from regraft.verify.child.drivers.builders import Builder, builders
from regraft.verify.child.drivers.constructors import Guess, guesses, is_config, shrunk
from regraft.verify.child.drivers.flags import flagged, flags
from regraft.verify.child.drivers.reach import held, reach
from regraft.verify.child.drivers.slots import Spec
from regraft.verify.child.replay import bare
from regraft.verify.child.session import Session, in_mode, seeded
from regraft.verify.child.tree import at_home

CALLERS = 4  # classes that are tried for a definition that they use
SECONDS = 15.0  # how long variations of a class are tried
# How long inputs of a class are searched for, with all the values that build it.
SEARCH_SECONDS = 20.0
MENDING_SECONDS = 8.0  # of these, for the mending of one guess
# How long models that functions of the file build are brought up, all together.
BUILT_SECONDS = 40.0


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

    noted: lists and dictionaries, by parameter, that its functions give the classes that they build
    """

    whole: str
    hints: vary.Hints
    configs: tuple[Any, ...]
    noted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Life:
    """A class, or a function that builds one, with the values that it is called with, and the inputs found for it.

    flags: attributes of its modules that are changed. known: values that a function gives the class by itself.
    """

    name: str
    values: Mapping[str, Any]
    found: inputs.Found
    calls: inputs.Calls
    flags: Mapping[str, bool] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)

    def build(self, module: ModuleType) -> Any:
        return flagged(_builder(self.name, self.values), self.flags)(module)


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why values bring a class to no life: it is not built, or takes no inputs; then `spec` came furthest.

    The `error` that a change of the values may mend came after so many `operations` of torch.
    """

    built: bool
    reason: str
    operations: int = 0
    error: BaseException | None = None
    spec: Spec | None = None

    @property
    def progress(self) -> tuple[bool, int]:
        """How far the values led."""
        return self.built, self.operations


def subjects(session: Session, text: str, source: str, configs: list[Any]) -> Iterator[Subject]:
    """Yield a subject for every definition and relative that still needs one and for which values can be guessed.

    `text` is the source of the changed definitions, `source` the original's: the attributes that it reads from
    `config` are what a made-up one offers. `configs` are configurations that built whole models of the file, and after
    them those of models that cannot be built.
    """
    given = _Source(source, vary.hints(text, source), tuple(configs))
    yield from guarded(_built_subjects(given, session), session.ledger, "functions that build models (inference)")
    for change in session.uncovered():
        value = getattr(session.original, change.definition, None)
        if change not in session.uncovered():
            continue
        name = change.definition
        own: Iterator[Subject] = iter(())
        if isinstance(value, FunctionType):
            own = _function_subjects(name, session)
        elif isinstance(value, type) and issubclass(value, nn.Module):
            own = _class_subjects(name, value, given, session)
        yield from guarded(own, session.ledger, f"{name} (inference)")
        if change in session.uncovered():
            yield from guarded(
                _caller_subjects(name, given, session), session.ledger, f"callers of {name} (inference)"
            )
    for relative in session.unmet():
        value = getattr(session.original, relative.name, None)
        if relative in session.unmet() and isinstance(value, type) and issubclass(value, nn.Module):
            relatives = _relative_subjects(relative.name, value, given, session)
            yield from guarded(relatives, session.ledger, f"{relative.name} (inference)")


def _caller_subjects(definition: str, given: _Source, session: Session) -> Iterator[Subject]:
    """Yield the classes of the file whose methods name a definition: they give it the arguments that it expects."""
    callers = [
        (name, cls)
        for name, cls in vars(session.original).items()
        if isinstance(cls, type) and issubclass(cls, nn.Module) and cls.__module__ == session.original.__name__
        if name != definition and definition in parts.global_names(cls)
    ]
    for name, cls in callers[:CALLERS]:
        if not session.complete(definition):
            yield from _class_subjects(name, cls, given, session)


def _relative_subjects(name: str, cls: type, given: _Source, session: Session) -> Iterator[Subject]:
    life = _first_life(name, cls, given, session)
    if life is not None:
        yield _subject(life)


def _built_subjects(given: _Source, session: Session) -> Iterator[Subject]:
    """Yield the models that functions of the file build, where they are of use, and parts of those that do not run."""
    deadline = session.ledger.share(BUILT_SECONDS)
    wholes: list[parts.Whole] = []
    for builder in builders(session.original, session.ledger):
        for key, value in builder.values.items():
            if isinstance(value, list | tuple | dict):
                given.noted.setdefault(key, value)
        if session.done() or time.process_time() > deadline:
            break
        for subject in guarded(
            _builder_subjects(builder, given, wholes, session), session.ledger, f"{builder.name} (inference)"
        ):
            before = time.process_time()
            yield subject
            if not subject.light:
                deadline += time.process_time() - before  # comparing it is no search
    if wholes and not session.done():
        yield from parts.subjects(wholes, session)


def _builder_subjects(
    builder: Builder, given: _Source, wholes: list[parts.Whole], session: Session
) -> Iterator[Subject]:
    """Yield the model that a function builds, and its variations; one that takes no inputs is added to `wholes`."""
    life, whole = _built_life(builder, session)
    if life is not None:
        wanted = held(seeded(0, life.build, session.original), session) & session.wanted()
        if wanted or reach(_subject(life), session).news:
            yield _subject(life)
        yield from _varied(life, given, session)
    elif whole is not None:
        wholes.append(whole)


def _built_life(builder: Builder, session: Session) -> tuple[_Life | None, parts.Whole | None]:
    """Return the model as a function builds it, small; or one that is built and takes no inputs."""
    whole = None
    seen: list[dict[str, Any]] = []
    failed: list[_Failure] = []
    for seconds in (0.0, repair.SECONDS):
        for scale in tiny.SCALES:
            values = builder.overrides(shrunk(builder.values, scale))
            if seconds == 0.0 and values in seen:
                continue
            seen.append(values)
            life = _lived(builder.name, values, session, seconds, known=builder.values)
            while isinstance(life, _Failure) and not life.built and (blamed := _blamed(life.reason, values)):
                values = {key: value for key, value in values.items() if key != blamed}  # the function's own
                life = _lived(builder.name, values, session, seconds, known=builder.values)
            if isinstance(life, _Life):
                return life, None
            failed.append(life)
            if life.built:
                recipe = _recipe(builder.name, values)
                whole = whole or parts.Whole(builder.name, _builder(builder.name, values), recipe, life.spec)
                if seconds:
                    break
    session.ledger.skip(f"{builder.name} (inference): {max(failed, key=lambda one: one.built).reason}")
    return None, whole


def _blamed(reason: str, values: Mapping[str, Any]) -> str:
    """The first of the given parameters that an error names, in one word or several; "" for none."""
    error = reason.removeprefix(_unbuilt(values))
    named = (key for key in values if re.search(rf"\b({key}|{key.replace('_', ' ')})\b", error))
    return next(named, "")


def _unbuilt(values: Mapping[str, Any]) -> str:
    return f"cannot be built from {_shown(values)}: "


def _class_subjects(name: str, cls: type, given: _Source, session: Session) -> Iterator[Subject]:
    """Yield the class as it comes to life, then variations that reach lines which have not run yet."""
    life = _first_life(name, cls, given, session)
    if life is not None:
        yield _subject(life)
        yield from _varied(life, given, session)


def _varied(life: _Life, given: _Source, session: Session) -> Iterator[Subject]:
    """Yield variations that reach lines which have not run yet, and variations of these in turn."""
    if session.covered():
        return
    deadline = time.process_time() + SECONDS
    pool, seen = [life], reach(_subject(life), session).lines
    for one in pool:
        for other in guarded(_others(one, given, session), session.ledger, f"variations of {one.name}"):
            if session.covered() or time.process_time() > deadline:
                return
            reached = reach(_subject(other), session)
            if reached.news:
                yield replace(_subject(other), light=True)
            if reached.lines - seen:  # a step on the way, even where others ran these lines before
                pool.append(other)
                seen |= reached.lines


def _first_life(name: str, cls: type, given: _Source, session: Session) -> _Life | None:
    """Return the class as the first values that fit build it.

    Where none fit at once, inputs are searched for, and the values are mended.
    """
    deadline = time.process_time() + SEARCH_SECONDS
    failures: list[tuple[_Failure, Guess]] = []
    for guess in guesses(cls, given.whole, given.configs, given.noted):
        life = _lived(name, guess.values, session, 0.0)
        if isinstance(life, _Life):
            return life
        failures.append((life, guess))
        if time.process_time() > deadline:
            break
    for failure, guess in sorted(failures, key=lambda pair: pair[0].progress, reverse=True):
        if time.process_time() > deadline:
            break
        life = _lived(name, guess.values, session, repair.SECONDS) if failure.built else failure
        if isinstance(life, _Failure):
            life = _mended_life(name, guess, life, given, session, deadline)
        if isinstance(life, _Life):
            return life
    told, _ = max(failures, key=lambda pair: pair[0].built)
    session.ledger.skip(f"{name} (inference): {told.reason}")
    return None


def _mended_life(
    name: str, guess: Guess, failure: _Failure, given: _Source, session: Session, deadline: float
) -> _Life | _Failure:
    """Change the values as the error suggests, as long as each change leads further; then search for inputs again."""
    deadline = min(deadline, time.process_time() + MENDING_SECONDS)
    values: Mapping[str, Any] = guess.values
    best = failure
    while best.error is not None:
        line = raising(best.error, session.original)
        small = {key: value for key, value in values.items() if not is_config(value)}
        repairs = fit.named_repairs(guess.original, small, brief(best.error, 2000), line, given.hints.choices)
        for change in repairs:
            if time.process_time() > deadline:
                return best
            life = _lived(name, {**values, **change}, session, 0.0, best.spec)
            if isinstance(life, _Life):
                return life
            if life.progress > best.progress:
                best, values = life, {**values, **change}
                break
        else:
            break
    return _lived(name, values, session, repair.SECONDS) if best.built and best is not failure else best


def _lived(
    name: str, values: Mapping[str, Any], session: Session, seconds: float, first: Spec | None = None,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> _Life | _Failure:  # fmt: skip
    """Build the class and look for inputs; return why not where that fails."""
    every = {**known, **values}
    counter = repair.Counter()
    try:
        with session.ledger.step("original", "", f"build {name}"):
            refuse_large(_builder(name, values), session.original)
            with counter:
                model = in_mode(seeded(0, _builder(name, values), session.original), False)
    except Exception as error:  # noqa: BLE001 - guessed values may not fit; returned as the reason to skip
        reason = f"{_unbuilt(values)}{type(error).__name__}: {str(error)[:200]}"
        return _Failure(False, reason, counter.count, bare(error))
    try:
        with session.ledger.step("original", "", f"look for inputs of {name}"):
            found = inputs.find(
                model, inner=True, width=inputs.width_of(model), image=every.get("img_size", every.get("image_size")),
                seconds=seconds, first=first,
            )  # fmt: skip
        calls = found.calls(model)
        calls(0)
    except inputs.NoInputs as error:
        furthest = error.furthest
        return _Failure(True, str(error), furthest.progress, furthest.error, furthest.spec)
    except LookupError as error:
        return _Failure(True, str(error))
    except Exception as error:  # noqa: BLE001 - odd constructor values mislead the search; returned as the reason
        return _Failure(True, f"no inputs were made: {type(error).__name__}: {str(error)[:200]}")
    return _Life(name, values, found, calls, known=known)


def _builder(name: str, values: Mapping[str, Any]) -> Any:
    return lambda module: getattr(module, name)(
        **{key: at_home(copy.deepcopy(value), module) for key, value in values.items()}
    )


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in values.items() if not is_config(value))


def _subject(life: _Life) -> Subject:
    shown = ", ".join(
        filter(None, (_shown(life.values), *(f"self.{name}={value}" for name, value in life.flags.items())))
    )
    recipe = {**_recipe(life.name, life.values), "flags": dict(life.flags)}
    return Subject(f"{life.name}({shown})", "inference", life.build, life.calls, recipe)


def _recipe(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """How a reproducer calls a class or a function of the file."""
    plain = {key: value for key, value in values.items() if not is_config(value)}
    configs = {key: _config_recipe(value) for key, value in values.items() if is_config(value)}
    return {"kind": "class", "name": name, "values": plain, "configs": configs}


def _config_recipe(config: Any) -> list[Any]:
    """How a reproducer makes a configuration: the module and name of its class, and its values."""
    if isinstance(config, SimpleNamespace):
        return ["types", "SimpleNamespace", vars(config)]
    return [type(config).__module__, type(config).__name__, config.to_dict()]


def _others(life: _Life, given: _Source, session: Session) -> Iterator[_Life]:
    """Yield the class with another flag of its modules, other inputs, another argument or configuration."""
    model = in_mode(seeded(0, life.build, session.original), False)
    for name, value in flags(model, session.original, given.hints.text):
        if name not in life.flags:
            yield replace(life, flags={**life.flags, name: value})
    more = inputs.more_calls(model, life.found, given.hints.text, inputs.width_of(model))
    for calls in guarded(more, session.ledger, f"{life.name} with other inputs"):
        yield replace(life, calls=calls)
    for values in _variations(life, given):
        other = _lived(life.name, values, session, 0.0, life.found.spec, life.known)
        if isinstance(other, _Life):
            yield replace(other, flags=life.flags)


def _variations(life: _Life, given: _Source) -> Iterator[dict[str, Any]]:
    values = life.values
    plain = {key: value for key, value in {**life.known, **values}.items() if not is_config(value)}
    for override in vary.variations(plain, replace(given.hints, optional={})):
        yield {**values, **override}
    for key, value in values.items():
        if is_config(value):
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
