"""Build a class of the file from values, or call a function that builds one, and look for inputs
that the module accepts."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

from regraft.verification.child.call_arguments import adopt_classes
from regraft.verification.child.call_outcomes import drop_traceback
from regraft.verification.child.drivers import (
    configuration_objects,
    guessed_slots,
    input_guesses,
    process_groups,
)
from regraft.verification.child.drivers.argument_slots import Spec
from regraft.verification.child.drivers.config_trials import refuse_large
from regraft.verification.child.drivers.configuration_objects import is_config
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.drivers.field_tables import MAP_SIDE_FIELDS
from regraft.verification.child.drivers.model_attempts import OperationCounter
from regraft.verification.child.drivers.module_flags import with_flags
from regraft.verification.child.drivers.preparations import Preparation, preparations, prepare
from regraft.verification.child.drivers.stand_in_network import StandInNetwork
from regraft.verification.child.file_import import plain_module_name
from regraft.verification.child.session import Session, build_seeded, switch_mode


@dataclass(frozen=True, slots=True)
class Instance:
    """A class, or a function that builds one, with the values that it is called with and the inputs
    that the module accepts.

    name: that of the class or function. values: its keyword arguments. calls: makes the calls of a
    seed. flags: those of `module_flags` that are changed. function_values: the values that a
    function gives the class by itself; {} for a class. prepared: the methods that are called before
    the first call, with their arguments (`preparations`).
    """

    name: str
    values: Mapping[str, Any]
    accepted: input_guesses.AcceptedInputs
    calls: input_guesses.Calls
    flags: Mapping[str, bool] = field(default_factory=dict)
    function_values: Mapping[str, Any] = field(default_factory=dict)
    prepared: Preparation = field(default_factory=dict)

    def build(self, module: ModuleType) -> Any:
        """Return the module that one version of the file builds, prepared and with the changed
        flags. Raises what the constructor and the preparing methods raise."""
        return with_flags(builder_of(self.name, self.values, self.prepared), self.flags)(module)


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a class does not run with some values.

    The class is not `built`, or accepts no inputs; then `spec` are the inputs that came furthest.
    `error` came after so many `operations` of torch; it is None where no change of the values would
    mend it, as where no input could be guessed. `reason` is for the ledger.
    """

    built: bool
    reason: str
    operations: int = 0
    error: BaseException | None = None
    spec: Spec | None = None

    @property
    def progress(self) -> tuple[bool, int]:
        """Return how far the values came: whether the class was built, then the number of
        operations that ran."""
        return self.built, self.operations


def not_built_message(values: Mapping[str, Any]) -> str:
    """Return the beginning of the reason that a class cannot be built from some values; the error
    follows it."""
    if shown := show_values(values):
        return f"cannot be built from {shown}: "
    return f"cannot be built {'from a guessed configuration' if values else 'without arguments'}: "


def try_values(
    name: str,
    values: Mapping[str, Any],
    session: Session,
    seconds: float,
    first_spec: Spec | None = None,
    function_values: Mapping[str, Any] = MappingProxyType({}),
    prepared: Preparation | None = None,
) -> Instance | Failure:
    """Build the original of a class, or call a function that does, with some values, and look for
    inputs; return the instance, or the failure where it is not built or accepts no inputs.

    `seconds` of CPU time are for a search of inputs; with 0 only guesses are tried. `first_spec` is
    tried before all other inputs; `function_values` are the values that a function gives the class
    by itself. A model with too many parameters (`config_trials.LARGEST`) is a failure. The methods
    of `prepared` are called first; where it is None, those of `preparations` are tried after a
    model accepted no inputs without them.
    """
    builder = builder_of(name, values, prepared or {})
    counter = OperationCounter()
    try:
        with session.ledger.step("original", "", f"build {name}"):
            refuse_large(builder, session.original)
            with counter:
                model = switch_mode(build_seeded(0, builder, session.original), False)
    except Exception as error:  # noqa: BLE001 - guessed values may not fit; returned as the reason to skip
        if _has_started_groups(error, session):
            return try_values(name, values, session, seconds, first_spec, function_values, prepared)
        reason = f"{not_built_message(values)}{type(error).__name__}: {str(error)[:200]}"
        return Failure(False, reason, counter.count, drop_traceback(error))
    find = functools.partial(
        input_guesses.find_accepted,
        inner=True,
        width=guessed_slots.width_of(model),
        image=_image_side({**function_values, **values}),
        seconds=seconds,
        first_spec=first_spec,
        one_batch=bool(prepared),
    )
    outcome = _with_inputs(model, name, find, session)
    if not isinstance(outcome, Failure):
        return Instance(
            name, values, *outcome, function_values=function_values, prepared=prepared or {}
        )
    for preparation in preparations(model, session.original) if prepared is None else ():
        other = try_values(name, values, session, seconds, first_spec, function_values, preparation)
        if isinstance(other, Instance):
            return other
        outcome = max(outcome, other, key=lambda failure: failure.progress)
    return outcome


def _with_inputs(
    model: Any,
    name: str,
    find: Callable[[Any], input_guesses.AcceptedInputs],
    session: Session,
) -> tuple[input_guesses.AcceptedInputs, input_guesses.Calls] | Failure:
    """Return the inputs of a built model that `find` finds, and the function that makes its calls,
    or the failure where the model accepts none."""
    try:
        with session.ledger.step("original", "", f"look for inputs of {name}"):
            accepted = find(model)
        calls = accepted.calls(model)
        calls(0)
    except input_guesses.NoInputs as error:
        furthest = error.furthest
        return Failure(True, str(error), furthest.progress, furthest.error, furthest.spec)
    except LookupError as error:
        return Failure(True, str(error))
    except Exception as error:  # noqa: BLE001 - odd constructor values mislead the search; returned as the reason
        return Failure(True, f"no inputs were made: {type(error).__name__}: {str(error)[:200]}")
    return accepted, calls


def _has_started_groups(error: Exception, session: Session) -> bool:
    """Return whether groups of processes that an error says are missing could be started; then the
    domain of every definition says so. An error in starting them is recorded in the ledger.

    None are started for a change that rules did not make: what it does to calls between processes
    does not show in a group of one.
    """
    if not session.by_rules:
        return False
    try:
        is_started = process_groups.start_missing_groups(error)
    except Exception as problem:  # noqa: BLE001 - the library's code, or no network; recorded
        session.ledger.skip(f"{process_groups.LABEL} cannot be started: {problem}")
        return False
    for record in session.ledger.records.values() if is_started else ():
        record.domain.setdefault("import", set()).add(f"with {process_groups.LABEL}")
    return is_started


def _image_side(values: Mapping[str, Any]) -> Any:
    """Return the value of a constructor that is the side of images, or their sides, in pixels; None
    where it has none."""
    names = [name for name in MAP_SIDE_FIELDS if name in values]
    return values[names[0]] if names else None


def builder_of(
    name: str, values: Mapping[str, Any], prepared: Preparation = MappingProxyType({})
) -> Any:
    """Return a function of a version's module that calls its class or function `name` with copies
    of the values, in which objects get the classes of that version, and makes the model ready."""
    return lambda module: prepare(
        getattr(module, name)(
            **{key: _value_of_version(value, module) for key, value in values.items()}
        ),
        prepared,
    )


def _value_of_version(value: Any, module: ModuleType) -> Any:
    """Return a copy of a value in which objects have the classes of a version's module; in the
    place of a class or function of another version that of this one."""
    if not isinstance(value, type | FunctionType):
        return adopt_classes(copy.deepcopy(value), module)
    is_of_file = plain_module_name(value.__module__) == plain_module_name(module.__name__)
    return getattr(module, value.__qualname__, value) if is_of_file else value


def show_values(values: Mapping[str, Any]) -> str:
    """Return values as keyword arguments of a call are written, without configurations."""
    shown = {
        key: value.__qualname__ if isinstance(value, type | FunctionType) else repr(value)
        for key, value in values.items()
        if not is_config(value)
    }
    return ", ".join(f"{key}={text}" for key, text in shown.items())


def subject_of(instance: Instance) -> Subject:
    """Return the subject of an instance; its name has the values, the changed flags, and what is
    called before."""
    description = ", ".join(
        filter(
            None,
            (
                show_values(instance.values),
                *(f"{name}={value}" for name, value in instance.flags.items()),
                *(
                    f"after {name}({show_values(sizes)})"
                    for name, sizes in instance.prepared.items()
                ),
            ),
        )
    )
    recipe = recipe_of(instance.name, instance.values)
    if recipe:
        recipe["flags"] = dict(instance.flags)
        recipe["prepared"] = dict(instance.prepared)
    return Subject(
        f"{instance.name}({description})", "inference", instance.build, instance.calls, recipe
    )


def recipe_of(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description from which a reproducer calls the class or function `name` of the
    file: its arguments in `values`; apart from them, configurations under "configs", each as a
    description of its own, and stand-in networks under "networks", each as the number of its
    results; {} where an argument has no form in JSON, such as a function."""
    networks = {
        key: value.results for key, value in values.items() if isinstance(value, StandInNetwork)
    }
    return configuration_objects.class_recipe(name, values, networks=networks)
