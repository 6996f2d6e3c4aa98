"""Try to build and run a class of the original file with a small configuration, and repair the
configuration until the class is built and accepts some inputs.

An attempt to do so is a `Trial`. Trials are ordered by how far they came, so a repair is good if
its trial comes further than the one before.
"""

from __future__ import annotations

import copy
import itertools
import linecache
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from regraft.verification.child.call_arguments import adopt_classes
from regraft.verification.child.call_outcomes import drop_traceback
from regraft.verification.child.drivers import (
    config_repairs,
    config_shrinking,
    input_guesses,
    input_repairs,
    source_hints,
)
from regraft.verification.child.drivers.argument_slots import Spec
from regraft.verification.child.drivers.error_statements import statements_of_error
from regraft.verification.child.drivers.field_tables import WIDEST
from regraft.verification.child.drivers.model_attempts import Attempt, OperationCounter
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.session import Session, build_seeded, switch_mode

REPAIR_SECONDS = 12.0  # of CPU time, for the repair of one class
LARGEST = 36_000_000  # the most parameters of a model
EAGER = "eager"  # the implementation of attention that is written out in the file
_ASSIGNMENT_TO_SELF = re.compile(r"\s*self\.(\w+) = ")
# Stages that a trial reaches, in order; 0 is the construction of the configuration.
BUILDING, TOO_LARGE, RUNNING, FINISHED = (
    1,
    2,
    3,
    4,
)


@dataclass(frozen=True, slots=True)
class Trial:
    """An attempt to build and run a class with a configuration; `error` ended it, or is None.

    `values` is the configuration as a dictionary, `attention` its implementation of attention.
    `progress` is the stage that the trial reached, then a measure within the stage: the operations
    of torch that ran, or the parameters of a too large model as a negative number. `config`,
    `model` and `accepted`, the inputs that were found, are None where the trial ended before;
    `model` also where an input could not be guessed at all. `searched` tells that a search for
    inputs was made, not only a few guesses.
    """

    values: Mapping[str, Any]
    attention: str
    progress: tuple[int, int]
    error: BaseException | None
    config: Any = None
    model: Any = None
    accepted: input_guesses.AcceptedInputs | None = None
    searched: bool = False

    @property
    def furthest(self) -> Attempt | None:
        """Return the run of the model that came furthest, where the model was built and accepted no
        inputs; None for other trials."""
        return self.error.furthest if isinstance(self.error, input_guesses.NoInputs) else None


def try_config(
    description: str,
    cls: str,
    config_class: Any,
    values: Mapping[str, Any],
    session: Session,
    *,
    attention: str = EAGER,
    seconds: float = 0.0,
    first_spec: Spec | None = None,
) -> Trial:
    """Build the original of class `cls` from a configuration, look for inputs, and return the
    trial; an error on the way is in the trial and is not raised.

    The model is built with seed 0, and is in evaluation mode. `description` names the step in the
    ledger; where the ledger avoids this step, because it ended an earlier process, nothing is built
    and the progress is (0, 0). `first_spec` is tried before all other inputs. `seconds` of CPU time
    are for a search of inputs; with 0 only a few guesses are tried.
    """
    if description in session.ledger.avoided:
        return Trial(
            values,
            attention,
            (0, 0),
            RuntimeError(f"{description}: left out, it ended the process before"),
        )
    stage, counter = 0, OperationCounter()
    config = model = None
    with session.ledger.step("original", "", description):
        try:
            with counter:
                config = make_config(config_class, values, attention)
                stage = BUILDING
                refuse_large(build_function(cls, config), session.original)
                model = switch_mode(
                    build_seeded(0, build_function(cls, config), session.original), False
                )
            accepted = input_guesses.find_accepted(model, seconds=seconds, first_spec=first_spec)
        except input_guesses.NoInputs as error:
            progress = (RUNNING, error.furthest.progress)
            return Trial(
                values,
                attention,
                progress,
                drop_traceback(error),
                config,
                model,
                searched=seconds > 0,
            )
        except _TooLarge as error:
            return Trial(
                values, attention, (TOO_LARGE, -error.count), drop_traceback(error), config
            )
        except Exception as error:  # noqa: BLE001 - a shrunk configuration may not fit; the reason to try another
            return Trial(values, attention, (stage, counter.count), drop_traceback(error), config)
        return Trial(values, attention, (FINISHED, 0), None, config, model, accepted)


def try_scales(cls: str, config_class: Any, original: Mapping[str, Any], session: Session) -> Trial:
    """Try the configuration `original` shrunk by each of `SCALES`; return the first trial without
    an error, or else the one that came furthest.

    Inputs of full size have to lead much further than small ones, since they are slow.
    """
    best = None
    for scale in config_shrinking.SCALES:
        trial = try_config(
            f"bring up {cls}", cls, config_class, config_shrinking.shrink(original, scale), session
        )
        if trial.error is None:
            return trial
        is_better = _is_much_further if scale.image == WIDEST else _is_further
        best = trial if best is None or is_better(trial, best) else best
    assert best is not None
    return best


def _is_further(trial: Trial, best: Trial) -> bool:
    """Return whether a trial came further than `best` and its model is not too large: a smaller
    model that fails can be repaired."""
    return trial.progress > best.progress and trial.progress[0] != TOO_LARGE


def _is_much_further(trial: Trial, best: Trial) -> bool:
    """Return whether a trial came to a later stage than `best`, or ran a fifth more operations: a
    few more operations before the same error do not count."""
    (stage, count), (best_stage, best_count) = trial.progress, best.progress
    return _is_further(trial, best) and (stage > best_stage or count > best_count + best_count // 5)


def repair_trial(
    cls: str,
    config_class: Any,
    original: Mapping[str, Any],
    best: Trial,
    session: Session,
    choices: source_hints.Choices,
) -> Trial:
    """Repair a configuration, or the inputs for it, as long as each repair leads further, for at
    most `REPAIR_SECONDS`; return the trial that came furthest, which is `best` where no repair
    helps.

    `original` is the configuration before it was shrunk, `choices` are the strings that the file
    compares names with.
    """
    deadline = session.ledger.deadline_within(REPAIR_SECONDS)
    while (
        best.error is not None and time.process_time() < deadline and not session.ledger.is_late()
    ):
        error = best.furthest.error if best.furthest is not None else best.error
        assert error is not None
        line = raising_statements(error, session.original, config_class)
        repairs = config_repairs.repairs(
            original, best.values, shorten_error(error, 2000), line, choices
        )
        better_trial = next(
            _better_trials(cls, config_class, best, repairs, session, deadline), None
        )
        if better_trial is None:
            return best
        best = better_trial
    return best


def _better_trials(
    cls: str,
    config_class: Any,
    best: Trial,
    repairs: Iterator[dict[str, Any]],
    session: Session,
    deadline: float,
) -> Iterator[Trial]:
    """Yield trials that lead further than `best`, until the deadline in CPU time.

    A trial has other values, those of `repairs`; or it has the same values and searches for inputs,
    where the model of `best` was built without such a search. The search comes first unless the
    error blames the configuration.
    """
    search = (
        [(best.values, input_repairs.SECONDS)]
        if best.progress[0] == RUNNING and not best.searched
        else []
    )
    changes = ((values, 0.0) for values in repairs)
    first_spec = best.furthest.spec if best.furthest is not None else None
    # other inputs do not help where the error names the configuration or layers do not fit
    is_values_fault = "config" in str(best.error) or (
        best.furthest is not None and input_repairs.is_inner_width_mismatch(best.furthest)
    )
    for values, seconds in (
        itertools.chain(changes, search) if is_values_fault else itertools.chain(search, changes)
    ):
        if time.process_time() > deadline:
            return
        trial = try_config(
            f"repair {cls}",
            cls,
            config_class,
            values,
            session,
            seconds=seconds,
            first_spec=first_spec,
        )
        if trial.progress > best.progress:
            yield trial


def raising_statements(error: BaseException, module: ModuleType, config_class: Any = None) -> str:
    """Return the source text of the innermost statement of a module's file that an error came
    through, with the names of configuration fields that it is about; "" where it came through none.

    Two parts are appended to the statement: the lines of the file that assign the attributes of
    `self` which it reads, and for each alias in the text the name of the field that it stands for
    in the configuration class or in the classes of nested configurations.
    """
    text = next(
        (
            text
            for filename, text in statements_of_error(error, conditions=True)
            if filename == module.__file__
        ),
        "",
    )
    attributes = set(re.findall(r"self\.(\w+)", text))
    lines = linecache.getlines(module.__file__ or "")
    text = "".join(
        [
            text,
            *(
                source_line
                for source_line in lines
                if (assignment := _ASSIGNMENT_TO_SELF.match(source_line))
                and assignment[1] in attributes
            ),
        ]
    )
    classes = (config_class, *getattr(config_class, "sub_configs", {}).values())
    aliases = [pair for cls in classes for pair in getattr(cls, "attribute_map", {}).items()]
    return " ".join([text, *(name for alias, name in aliases if re.search(rf"\b{alias}\b", text))])


class _TooLarge(ValueError):
    """The error for a model that has more than `LARGEST` parameters; `count` is their number.

    `config_repairs.repairs` recognises the message.
    """

    def __init__(self, count: int) -> None:
        super().__init__(f"it still has {count:,} parameters when its configuration is shrunk")
        self.count = count


def refuse_large(build: Callable[[ModuleType], Any], module: ModuleType) -> None:
    """Raise _TooLarge for a model of more than `LARGEST` parameters, which are counted on the meta
    device without being allocated. A model that cannot be built on that device passes."""
    try:
        with torch.device("meta"):
            model = build(module)
    except Exception:  # noqa: BLE001 - some constructors compute with values; those are built for real
        return
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > LARGEST:
        raise _TooLarge(count)


def build_function(cls: str, config: Any) -> Callable[[ModuleType], Any]:
    """Return a function that builds class `cls` of a version from a copy of a configuration;
    classes in the copy become those of the version."""
    return lambda module: getattr(module, cls)(adopt_classes(copy.deepcopy(config), module))


def make_config(config_class: Any, values: Mapping[str, Any], attention: str) -> Any:
    """Return a configuration that `from_dict` of a class makes of copies of the values, with an
    attention implementation."""
    config = config_class.from_dict(copy.deepcopy(dict(values)))
    config._attn_implementation = attention
    config._experts_implementation = EAGER  # so that the file's code of experts runs
    return config
