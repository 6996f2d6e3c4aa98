"""Bring plain classes and functions to life by guessing constructor values and inputs from names
and errors."""

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
from regraft.verify.child.drivers.base import Subject, yield_until_error
from regraft.verify.child.drivers.bringup import brief, raising_statements, refuse_large
from regraft.verify.child.drivers.builders import Builder, builders
from regraft.verify.child.drivers.constructors import Guess, guesses, is_config, shrink_values
from regraft.verify.child.drivers.flags import flags, with_flags
from regraft.verify.child.drivers.reach import class_names_in, reach
from regraft.verify.child.drivers.slots import Spec
from regraft.verify.child.replay import drop_traceback
from regraft.verify.child.session import Session, build_seeded, in_mode
from regraft.verify.child.tree import adopt_classes

CALLERS = 4  # the most classes that are tried for a definition that they use
SECONDS = 15.0  # for trying variations of a class
# Seconds for the search for inputs of a class, with all the values that build it.
SEARCH_SECONDS = 20.0
MENDING_SECONDS = 8.0  # of these, for the mending of one guess
# Seconds for bringing up all models that functions of the file build.
BUILT_SECONDS = 40.0


class FunctionModule(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A module whose `forward` is a function of a file, so that it can be run, recorded and
    compared as a model."""

    def __init__(self, module: ModuleType, name: str) -> None:
        super().__init__()
        self._module_of_function = (module,)
        self._name_of_function = name

    @property
    def signed(self) -> Any:
        """The function whose signature `forward` has."""
        return getattr(self._module_of_function[0], self._name_of_function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.signed(*args, **kwargs)

    def __deepcopy__(self, _: Any) -> FunctionModule:
        return FunctionModule(self._module_of_function[0], self._name_of_function)


@dataclass(frozen=True, slots=True)
class _FileFacts:
    """The facts about a file that the driver knows before it builds anything.

    text: the source of the file; hints: what it says about the changed definitions; configs: the
    configurations that built models of it; noted: lists and dictionaries, by parameter, that its
    functions give the classes that they build
    """

    text: str
    hints: vary.Hints
    configs: tuple[Any, ...]
    noted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Instance:
    """A class, or a function that builds one, with the values that it is called with and the inputs
    that it accepts.

    flags: attributes of its modules that are changed. function_values: values that a function gives
    the class by itself.
    """

    name: str
    values: Mapping[str, Any]
    accepted: inputs.AcceptedInputs
    calls: inputs.Calls
    flags: Mapping[str, bool] = field(default_factory=dict)
    function_values: Mapping[str, Any] = field(default_factory=dict)

    def build(self, module: ModuleType) -> Any:
        return with_flags(_builder(self.name, self.values), self.flags)(module)


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why values do not bring a class to life.

    The class is not `built`, or takes no inputs; `spec` are then the inputs that came furthest. The
    `error`, which a change of the values may mend, came after so many `operations` of torch.
    """

    built: bool
    reason: str
    operations: int = 0
    error: BaseException | None = None
    spec: Spec | None = None

    @property
    def progress(self) -> tuple[bool, int]:
        """The progress of the values: whether the class was built, then the number of
        operations."""
        return self.built, self.operations


def subjects(session: Session, text: str, source: str, configs: list[Any]) -> Iterator[Subject]:
    """Yield a subject for every definition and relative that still needs one and for which values
    can be guessed.

    `text` is the source of the changed definitions, `source` the original's: an invented
    configuration has the attributes that it reads from `config`. `configs` are configurations that
    built whole models of the file, and after them those of models that cannot be built.
    """
    facts = _FileFacts(source, vary.hints(text, source), tuple(configs))
    yield from yield_until_error(
        _built_subjects(facts, session), session.ledger, "functions that build models (inference)"
    )
    for change in session.uncovered_changes():
        value = getattr(session.original, change.definition, None)
        if change not in session.uncovered_changes():
            continue
        name = change.definition
        candidates: Iterator[Subject] = iter(())
        if isinstance(value, FunctionType):
            candidates = _function_subjects(name, session)
        elif isinstance(value, type) and issubclass(value, nn.Module):
            candidates = _class_subjects(name, value, facts, session)
        yield from yield_until_error(candidates, session.ledger, f"{name} (inference)")
        if change in session.uncovered_changes():
            yield from yield_until_error(
                _caller_subjects(name, facts, session),
                session.ledger,
                f"callers of {name} (inference)",
            )
    for relative in session.relatives_to_run():
        value = getattr(session.original, relative.name, None)
        if (
            relative in session.relatives_to_run()
            and isinstance(value, type)
            and issubclass(value, nn.Module)
        ):
            relatives = _relative_subjects(relative.name, value, facts, session)
            yield from yield_until_error(relatives, session.ledger, f"{relative.name} (inference)")


def _caller_subjects(definition: str, facts: _FileFacts, session: Session) -> Iterator[Subject]:
    """Yield the classes of the file whose methods name a definition: they call it with arguments
    that it expects."""
    callers = [
        (name, cls)
        for name, cls in vars(session.original).items()
        if isinstance(cls, type)
        and issubclass(cls, nn.Module)
        and cls.__module__ == session.original.__name__
        if name != definition and definition in parts.global_names(cls)
    ]
    for name, cls in callers[:CALLERS]:
        if not session.is_complete(definition):
            yield from _class_subjects(name, cls, facts, session)


def _relative_subjects(
    name: str, cls: type, facts: _FileFacts, session: Session
) -> Iterator[Subject]:
    """Yield a class that is related to a changed one as the first values that fit build it."""
    instance = _first_instance(name, cls, facts, session)
    if instance is not None:
        yield _subject(instance)


def _built_subjects(facts: _FileFacts, session: Session) -> Iterator[Subject]:
    """Yield the models that functions of the file build, where they are of use, and parts of those
    that do not run."""
    deadline = session.ledger.share(BUILT_SECONDS)
    inputless_models: list[parts.WholeModel] = []
    for builder in builders(session.original, session.ledger):
        for key, value in builder.values.items():
            if isinstance(value, list | tuple | dict):
                facts.noted.setdefault(key, value)
        if session.is_finished() or time.process_time() > deadline:
            break
        for subject in yield_until_error(
            _builder_subjects(builder, facts, inputless_models, session),
            session.ledger,
            f"{builder.name} (inference)",
        ):
            started = time.process_time()
            yield subject
            if not subject.light:
                deadline += time.process_time() - started  # comparing it is no search
    if inputless_models and not session.is_finished():
        yield from parts.subjects(inputless_models, session)


def _builder_subjects(
    builder: Builder, facts: _FileFacts, inputless_models: list[parts.WholeModel], session: Session
) -> Iterator[Subject]:
    """Yield the model that a function builds, and its variations; add one that takes no inputs to
    `inputless_models`.
    """
    instance, inputless_model = _instance_from_builder(builder, session)
    if instance is not None:
        wanted_names = (
            class_names_in(build_seeded(0, instance.build, session.original), session)
            & session.wanted_definitions()
        )
        if wanted_names or reach(_subject(instance), session).news:
            yield _subject(instance)
        yield from _variation_subjects(instance, facts, session)
    elif inputless_model is not None:
        inputless_models.append(inputless_model)


def _instance_from_builder(
    builder: Builder, session: Session
) -> tuple[_Instance | None, parts.WholeModel | None]:
    """Return a small version of the model that a function builds, or else one that is built and
    takes no inputs.

    Both are None where nothing is built; the reason is recorded.
    """
    inputless_model = None
    tried_values: list[dict[str, Any]] = []
    failures: list[_Failure] = []
    for seconds in (0.0, repair.SECONDS):
        for scale in tiny.SCALES:
            values = builder.overrides(shrink_values(builder.values, scale))
            if seconds == 0.0 and values in tried_values:
                continue
            tried_values.append(values)
            instance = _instance_or_failure(
                builder.name, values, session, seconds, function_values=builder.values
            )
            while (
                isinstance(instance, _Failure)
                and not instance.built
                and (blamed_parameter := _blamed_parameter(instance.reason, values))
            ):
                # the function's own
                values = {key: value for key, value in values.items() if key != blamed_parameter}
                instance = _instance_or_failure(
                    builder.name, values, session, seconds, function_values=builder.values
                )
            if isinstance(instance, _Instance):
                return instance, None
            failures.append(instance)
            if instance.built:
                recipe = _recipe(builder.name, values)
                inputless_model = inputless_model or parts.WholeModel(
                    builder.name, _builder(builder.name, values), recipe, instance.spec
                )
                if seconds:
                    break
    session.ledger.skip(
        f"{builder.name} (inference): {max(failures, key=lambda failure: failure.built).reason}"
    )
    return None, inputless_model


def _blamed_parameter(reason: str, values: Mapping[str, Any]) -> str:
    """Return the first of the given parameters that an error names; "" for none.

    An underscore in the name may be a space in the error.
    """
    error = reason.removeprefix(_not_built_message(values))
    blamed = (key for key in values if re.search(rf"\b({key}|{key.replace('_', ' ')})\b", error))
    return next(blamed, "")


def _not_built_message(values: Mapping[str, Any]) -> str:
    """Return the beginning of the message that a class cannot be built from some values."""
    return f"cannot be built from {_show_values(values)}: "


def _class_subjects(name: str, cls: type, facts: _FileFacts, session: Session) -> Iterator[Subject]:
    """Yield the class as it is brought to life, then variations that reach lines which have not run
    yet."""
    instance = _first_instance(name, cls, facts, session)
    if instance is not None:
        yield _subject(instance)
        yield from _variation_subjects(instance, facts, session)


def _variation_subjects(
    instance: _Instance, facts: _FileFacts, session: Session
) -> Iterator[Subject]:
    """Yield variations that reach lines which have not run yet, and variations of these in turn."""
    if session.is_covered():
        return
    deadline = time.process_time() + SECONDS
    starts, reached_lines = [instance], reach(_subject(instance), session).lines
    for start in starts:
        for variant in yield_until_error(
            _variants(start, facts, session), session.ledger, f"variations of {start.name}"
        ):
            if session.is_covered() or time.process_time() > deadline:
                return
            reached = reach(_subject(variant), session)
            if reached.news:
                yield replace(_subject(variant), light=True)
            if (
                reached.lines - reached_lines
            ):  # a step on the way, even where others ran these lines before
                starts.append(variant)
                reached_lines |= reached.lines


def _first_instance(name: str, cls: type, facts: _FileFacts, session: Session) -> _Instance | None:
    """Return the class as the first values that fit build it, or None.

    Where none fit at once, inputs are searched for, and the values are changed as the errors
    suggest.
    """
    deadline = time.process_time() + SEARCH_SECONDS
    failures: list[tuple[_Failure, Guess]] = []
    for guess in guesses(cls, facts.text, facts.configs, facts.noted):
        instance = _instance_or_failure(name, guess.values, session, 0.0)
        if isinstance(instance, _Instance):
            return instance
        failures.append((instance, guess))
        if time.process_time() > deadline:
            break
    for failure, guess in sorted(failures, key=lambda pair: pair[0].progress, reverse=True):
        if time.process_time() > deadline:
            break
        instance = (
            _instance_or_failure(name, guess.values, session, repair.SECONDS)
            if failure.built
            else failure
        )
        if isinstance(instance, _Failure):
            instance = _repaired_instance(name, guess, instance, facts, session, deadline)
        if isinstance(instance, _Instance):
            return instance
    reported, _ = max(failures, key=lambda pair: pair[0].built)
    session.ledger.skip(f"{name} (inference): {reported.reason}")
    return None


def _repaired_instance(
    name: str, guess: Guess, failure: _Failure, facts: _FileFacts, session: Session, deadline: float
) -> _Instance | _Failure:
    """Change the values as the error suggests, as long as each change leads further; then search
    for inputs again.

    Return the failure that came furthest where nothing helps.
    """
    deadline = min(deadline, time.process_time() + MENDING_SECONDS)
    values: Mapping[str, Any] = guess.values
    best = failure
    while best.error is not None:
        line = raising_statements(best.error, session.original)
        plain_values = {key: value for key, value in values.items() if not is_config(value)}
        repairs = fit.named_repairs(
            guess.original, plain_values, brief(best.error, 2000), line, facts.hints.choices
        )
        for change in repairs:
            if time.process_time() > deadline:
                return best
            instance = _instance_or_failure(name, {**values, **change}, session, 0.0, best.spec)
            if isinstance(instance, _Instance):
                return instance
            if instance.progress > best.progress:
                best, values = instance, {**values, **change}
                break
        else:
            break
    return (
        _instance_or_failure(name, values, session, repair.SECONDS)
        if best.built and best is not failure
        else best
    )


def _instance_or_failure(
    name: str,
    values: Mapping[str, Any],
    session: Session,
    seconds: float,
    first_spec: Spec | None = None,
    function_values: Mapping[str, Any] = MappingProxyType({}),
) -> _Instance | _Failure:
    """Build the class and look for inputs; return the reason where that fails.

    `first_spec` is tried before all other inputs; `function_values` are the values that a function
    gives the class by itself.
    """
    all_values = {**function_values, **values}
    counter = repair.Counter()
    try:
        with session.ledger.step("original", "", f"build {name}"):
            refuse_large(_builder(name, values), session.original)
            with counter:
                model = in_mode(build_seeded(0, _builder(name, values), session.original), False)
    except Exception as error:  # noqa: BLE001 - guessed values may not fit; returned as the reason to skip
        reason = f"{_not_built_message(values)}{type(error).__name__}: {str(error)[:200]}"
        return _Failure(False, reason, counter.count, drop_traceback(error))
    try:
        with session.ledger.step("original", "", f"look for inputs of {name}"):
            accepted = inputs.find(
                model,
                inner=True,
                width=inputs.width_of(model),
                image=all_values.get("img_size", all_values.get("image_size")),
                seconds=seconds,
                first_spec=first_spec,
            )
        calls = accepted.calls(model)
        calls(0)
    except inputs.NoInputs as error:
        furthest = error.furthest
        return _Failure(True, str(error), furthest.progress, furthest.error, furthest.spec)
    except LookupError as error:
        return _Failure(True, str(error))
    except Exception as error:  # noqa: BLE001 - odd constructor values mislead the search; returned as the reason
        return _Failure(True, f"no inputs were made: {type(error).__name__}: {str(error)[:200]}")
    return _Instance(name, values, accepted, calls, function_values=function_values)


def _builder(name: str, values: Mapping[str, Any]) -> Any:
    """Return a function that calls a class or function of either version with copies of the
    values."""
    return lambda module: getattr(module, name)(
        **{key: adopt_classes(copy.deepcopy(value), module) for key, value in values.items()}
    )


def _show_values(values: Mapping[str, Any]) -> str:
    """Return values as they are written in a call, without configurations."""
    return ", ".join(f"{key}={value!r}" for key, value in values.items() if not is_config(value))


def _subject(instance: _Instance) -> Subject:
    """Return the subject of an instance, named by its values and changed flags."""
    description = ", ".join(
        filter(
            None,
            (
                _show_values(instance.values),
                *(f"self.{name}={value}" for name, value in instance.flags.items()),
            ),
        )
    )
    recipe = {**_recipe(instance.name, instance.values), "flags": dict(instance.flags)}
    return Subject(
        f"{instance.name}({description})", "inference", instance.build, instance.calls, recipe
    )


def _recipe(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description from which a reproducer calls a class or a function of the file."""
    plain = {key: value for key, value in values.items() if not is_config(value)}
    configs = {key: _config_recipe(value) for key, value in values.items() if is_config(value)}
    return {"kind": "class", "name": name, "values": plain, "configs": configs}


def _config_recipe(config: Any) -> list[Any]:
    """Return what a reproducer makes a configuration from: the module and name of its class, and
    its values."""
    if isinstance(config, SimpleNamespace):
        return ["types", "SimpleNamespace", vars(config)]
    return [type(config).__module__, type(config).__name__, config.to_dict()]


def _variants(instance: _Instance, facts: _FileFacts, session: Session) -> Iterator[_Instance]:
    """Yield the instance with another flag of its modules, other inputs, another argument or
    another configuration."""
    model = in_mode(build_seeded(0, instance.build, session.original), False)
    for name, value in flags(model, session.original, facts.hints.text):
        if name not in instance.flags:
            yield replace(instance, flags={**instance.flags, name: value})
    call_variants = inputs.more_calls(
        model, instance.accepted, facts.hints.text, inputs.width_of(model)
    )
    for calls in yield_until_error(
        call_variants, session.ledger, f"{instance.name} with other inputs"
    ):
        yield replace(instance, calls=calls)
    for values in _value_variations(instance, facts):
        variant = _instance_or_failure(
            instance.name, values, session, 0.0, instance.accepted.spec, instance.function_values
        )
        if isinstance(variant, _Instance):
            yield replace(variant, flags=instance.flags)


def _value_variations(instance: _Instance, facts: _FileFacts) -> Iterator[dict[str, Any]]:
    """Yield the values of an instance with another argument or another field of a configuration."""
    values = instance.values
    plain = {
        key: value
        for key, value in {**instance.function_values, **values}.items()
        if not is_config(value)
    }
    for override in vary.variations(plain, replace(facts.hints, optional={})):
        yield {**values, **override}
    for key, value in values.items():
        if is_config(value):
            fields = vars(value) if isinstance(value, SimpleNamespace) else value.to_dict()
            for override in vary.variations(fields, facts.hints):
                yield {**values, key: _with_override(value, override)}


def _with_override(config: Any, override: Mapping[str, Any]) -> Any:
    """Return a copy of a configuration with other values of its own fields, not of nested
    configurations."""
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
    """Yield a function of the file with inputs that it accepts, then with further inputs that reach
    new lines."""

    def build(module: ModuleType) -> Any:
        return FunctionModule(module, name)

    model = build(session.original)
    try:
        with session.ledger.step("original", "", f"look for inputs of {name}"):
            accepted = inputs.find(model, inner=True)
    except (inputs.NoInputs, LookupError) as error:
        session.ledger.skip(f"{name} (inference): {error}")
        return
    subject = Subject(
        f"{name}(...)",
        "inference",
        build,
        accepted.calls(model),
        {"kind": "function", "name": name},
    )
    yield subject
    for calls in inputs.more_calls(model, accepted, name):
        variant = replace(subject, calls=calls, light=True)
        if session.is_finished():
            return
        if reach(variant, session).news:
            yield variant
