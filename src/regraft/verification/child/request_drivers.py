"""The drivers that a request asks for, and the subjects that they bring to life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from regraft.source.object_reference import TargetError, find_function, place_in_target
from regraft.verification.child.drivers import (
    guessing_driver,
    huggingface_driver,
    methods_driver,
    user_driver,
)
from regraft.verification.child.drivers.driver_protocol import (
    Driver,
    Subject,
    Task,
    yield_until_error,
)
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.evidence_record import Ledger


def load_driver(request: Mapping[str, Any], ledger: Ledger) -> user_driver.Factory | None:
    """Return the user's driver function; None where the request has none, or where it cannot be
    loaded, which is then the fatal error "driver" in the ledger."""
    if not request["driver"]:
        return None
    spec, folder = request["driver"], request["folder"]
    try:
        return find_function(spec, folder)
    except TargetError as error:
        ledger.refuse_driver(str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing the caller's file; reported to the caller
        ledger.refuse_driver(
            f"the driver cannot be loaded: {shorten_error(error)}",
            place_in_target(error, spec, folder),
        )
    return None


def make_own_driver(
    request: Mapping[str, Any], factory: user_driver.Factory | None
) -> user_driver.UserDriver | None:
    """Return the driver that calls the user's function; None where there is none."""
    if factory is None:
        return None
    return user_driver.UserDriver(request["driver"], request["folder"], factory)


def inferring_drivers() -> tuple[Driver, ...]:
    """Return the drivers that build models of their own, in order: that for Hugging Face, then the
    one that infers values."""
    return huggingface_driver.HuggingFaceDriver(), guessing_driver.GuessingDriver()


def drivers_for(
    request: Mapping[str, Any], own_driver: user_driver.UserDriver | None
) -> tuple[Driver, ...]:
    """Return the drivers that are asked for models, in order: the user's own, then the one that
    infers values; for a change of one model its own alone, and without the user's all builders."""
    if own_driver is None:
        return inferring_drivers()
    is_for_model = bool(request["model classes"])
    return (own_driver,) if is_for_model else (own_driver, guessing_driver.GuessingDriver())


def _models(drivers: tuple[Driver, ...], task: Task) -> Iterator[Subject]:
    """Yield the models of each driver that applies to the file, in order, until no change and no
    relative needs a run, or a driver is refused; an error of a driver ends its models and is noted
    in the ledger."""
    for driver in drivers:
        if driver.applies(task):
            subjects = driver.subjects(task)
            yield from yield_until_error(subjects, task.session.ledger, f"the {driver.name} driver")
        if task.session.is_finished() or task.session.ledger.fatal:
            return


def subjects_of(drivers: tuple[Driver, ...], task: Task) -> Iterator[Subject]:
    """Yield the models that the drivers build, each followed by subjects that call its changed
    methods other than `forward`."""
    tried: Counter[tuple[str, str]] = Counter()
    for subject in _models(drivers, task):
        yield subject
        driver = methods_driver.MethodsDriver(subject, tried)
        if driver.applies(task):
            yield from yield_until_error(
                driver.subjects(task), task.session.ledger, "the driver of methods"
            )
