"""Build a class with a small configuration, repaired until the original is built and accepts some
inputs."""

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

from regraft.verify.child.drivers import (
    config_repairs,
    config_shrinking,
    input_repairs,
    inputs,
    source_hints,
)
from regraft.verify.child.drivers.attempts import Attempt, Counter
from regraft.verify.child.drivers.error_statements import statements_of_error
from regraft.verify.child.drivers.field_tables import WIDEST
from regraft.verify.child.drivers.slots import Spec
from regraft.verify.child.error_text import shorten_error
from regraft.verify.child.replay import drop_traceback
from regraft.verify.child.session import Session, build_seeded, switch_mode
from regraft.verify.child.tree import adopt_classes

REPAIR_SECONDS = 12.0
LARGEST = 26_000_000
EAGER = "eager"
_SET = re.compile(r"\s*self\.(\w+) = ")
# stages of a trial; 0 is the construction of the configuration
BUILDING, TOO_LARGE, RUNNING, FINISHED = (
    1,
    2,
    3,
    4,
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration, the progress that it led to (a stage, then a measure within it), and the
    error at its end.

    `values` is the configuration as a dictionary. `config`, `model` and `accepted`, the inputs that
    were found, are None where the trial ended before. `searched` tells that a search for the inputs
    was made, not only a few guesses.
    """

    values: Mapping[str, Any]
    attention: str
    progress: tuple[int, int]
    error: BaseException | None
    config: Any = None
    model: Any = None
    accepted: inputs.AcceptedInputs | None = None
    searched: bool = False

    @property
    def furthest(self) -> Attempt | None:
        """Return the attempt that came furthest, where the model was built and no inputs were found
        for it; None for other trials."""
        return self.error.furthest if isinstance(self.error, inputs.NoInputs) else None


def attempt(
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
    """Build the original from a configuration and look for inputs; an error on the way is stored in
    the trial.

    `first_spec` is tried before all other inputs; with 0 `seconds` only a few guesses of inputs are
    tried. Where the ledger avoids `description`, nothing is built.
    """
    if description in session.ledger.avoided:
        return Trial(
            values,
            attention,
            (0, 0),
            RuntimeError(f"{description}: left out, it ended the process before"),
        )
    stage, counter = 0, Counter()
    config = model = None
    with session.ledger.step("original", "", description):
        try:
            with counter:
                config = make_config(config_class, values, attention)
                stage = BUILDING
                refuse_large(builder(cls, config), session.original)
                model = switch_mode(build_seeded(0, builder(cls, config), session.original), False)
            accepted = inputs.find(model, seconds=seconds, first_spec=first_spec)
        except inputs.NoInputs as error:
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
    """Try the configuration shrunk by each scale; return the first trial that works, or the one
    that came furthest."""
    best = None
    for scale in config_shrinking.SCALES:
        trial = attempt(
            f"bring up {cls}", cls, config_class, config_shrinking.shrink(original, scale), session
        )
        if trial.error is None:
            return trial
        is_better = _is_much_further if scale.image == WIDEST else _is_further
        best = trial if best is None or is_better(trial, best) else best
    assert best is not None
    return best


def _is_further(trial: Trial, best: Trial) -> bool:
    """Return whether a trial came further; too large a model is no progress while smaller ones can
    be repaired."""
    return trial.progress > best.progress and trial.progress[0] != TOO_LARGE


def _is_much_further(trial: Trial, best: Trial) -> bool:
    """Return whether inputs of full size pay off: a few more operations before the same error do
    not count."""
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
    """Repair a configuration, or the inputs for it, as long as each repair leads further and there
    is time; return the last trial."""
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
    """Yield trials that lead further than `best`, until the deadline: with inputs searched for,
    where a model is built but its inputs were not searched for yet, and with other values, which
    come first where the error blames them."""
    search = (
        [(best.values, input_repairs.SECONDS)]
        if best.progress[0] == RUNNING and not best.searched
        else []
    )
    changes = ((values, 0.0) for values in repairs)
    first_spec = best.furthest.spec if best.furthest is not None else None
    # other inputs do not help where the error says so, or where layers do not fit each other
    is_values_fault = "config" in str(best.error) or (
        best.furthest is not None and input_repairs.is_inner_width_mismatch(best.furthest)
    )
    for values, seconds in (
        itertools.chain(changes, search) if is_values_fault else itertools.chain(search, changes)
    ):
        if time.process_time() > deadline:
            return
        trial = attempt(
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
    """Return the innermost statement of a file that an error came through, "" where it came through
    none of it.

    The source lines that set the attributes which it reads are appended, and the names that the
    configuration has for attributes which are aliases.
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
                if (assignment := _SET.match(source_line)) and assignment[1] in attributes
            ),
        ]
    )
    classes = (config_class, *getattr(config_class, "sub_configs", {}).values())
    aliases = [pair for cls in classes for pair in getattr(cls, "attribute_map", {}).items()]
    return " ".join([text, *(name for alias, name in aliases if re.search(rf"\b{alias}\b", text))])


class _TooLarge(ValueError):
    """The error for a model that has too many parameters."""

    def __init__(self, count: int) -> None:
        super().__init__(f"it still has {count:,} parameters when its configuration is shrunk")
        self.count = count


def refuse_large(build: Callable[[ModuleType], Any], module: ModuleType) -> None:
    """Raise _TooLarge for a model of more than LARGEST parameters; they are counted without being
    allocated. A model that cannot be built so passes."""
    try:
        with torch.device("meta"):
            model = build(module)
    except Exception:  # noqa: BLE001 - some constructors compute with values; those are built for real
        return
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > LARGEST:
        raise _TooLarge(count)


def builder(cls: str, config: Any) -> Callable[[ModuleType], Any]:
    """Return a function that builds a class of either version from a copy of a configuration."""
    return lambda module: getattr(module, cls)(adopt_classes(copy.deepcopy(config), module))


def make_config(config_class: Any, values: Mapping[str, Any], attention: str) -> Any:
    """Return a configuration of a class with some values and an attention implementation."""
    config = config_class.from_dict(copy.deepcopy(dict(values)))
    config._attn_implementation = attention
    config._experts_implementation = EAGER  # so that the code of the file runs
    return config
