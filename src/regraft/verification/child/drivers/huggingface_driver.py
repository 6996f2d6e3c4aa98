"""Build and call the models of a file that follows the Hugging Face conventions, with
configurations of their configuration classes."""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

from torch import nn

from regraft.verification.child.drivers import config_trials, parts_driver, source_hints
from regraft.verification.child.drivers.config_trials import Trial
from regraft.verification.child.drivers.driver_protocol import Subject, Task, yield_until_error
from regraft.verification.child.drivers.huggingface_candidates import (
    Candidate,
    candidate_of,
    config_class_of,
    count_definitions_to_run,
    subject_of,
    whole_model_of,
)
from regraft.verification.child.drivers.subject_reach import class_names_in, measure_reach
from regraft.verification.child.drivers.variation_search import (
    SEARCH_SECONDS,
    explore,
    overrides_of,
)
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.session import Session

# Seconds of CPU time for repairing the configurations of all models that do not run with a shrunk
# one.
REPAIR_SECONDS = 30.0


def _model_classes(module: ModuleType) -> tuple[str, ...]:
    """Return the names of the file's subclasses of `nn.Module` that have a configuration class and
    get `forward` from a class of the file; others run no `forward` of the file."""
    names = []
    for name, value in vars(module).items():
        is_own_module = (
            isinstance(value, type)
            and issubclass(value, nn.Module)
            and value.__module__ == module.__name__
        )
        if (
            is_own_module
            and hasattr(getattr(value, "config_class", None), "from_dict")
            and "forward" in _names_in_file(value)
        ):
            names.append(name)
    return tuple(names)


def _names_in_file(cls: Any) -> set[str]:
    """Return the names of the attributes that a class, or a base of it in the same file,
    defines."""
    bases = (base for base in cls.__mro__ if base.__module__ == cls.__module__)
    return {name for base in bases for name in vars(base)}


class HuggingFaceDriver:
    """The driver for files whose model classes name their configuration class."""

    name: ClassVar[str] = "huggingface"

    def applies(self, task: Task) -> bool:
        """Return whether the file defines models that name their configuration class, and
        transformers is installed."""
        has_transformers = importlib.util.find_spec("transformers") is not None
        return has_transformers and bool(_model_classes(task.session.original))

    def subjects(self, task: Task) -> Iterator[Subject]:
        """Yield models until every change was compared and every changed line and every relative
        ran.

        These are models with shrunk and repaired configurations, models as others call them, parts
        of models, variations of models as light subjects, and parts of variations. Configurations
        that build models are appended to those of the task, and at the end those that do not: the
        parts of such models may be small all the same. Reasons for models that do not run are
        recorded in the ledger.
        """
        session, ledger, configs = task.session, task.session.ledger, task.configs
        failed_trials: dict[str, Trial] = {}
        candidates: list[Candidate] = []
        hints = source_hints.hints(task.text, task.source)
        for candidate in _default_candidates(session, failed_trials, candidates, hints.choices):
            candidates.append(candidate)
            configs.append(candidate.config)
            if session.is_finished():
                return
            if _is_useful(candidate, session):
                yield subject_of(candidate)
        for cls, trial in failed_trials.items():
            ledger.skip(f"{cls} (huggingface): {shorten_error(trial.error, 200)}")
        if not session.is_finished():
            borrowing = _borrowing_subjects(candidates, failed_trials, session)
            yield from yield_until_error(borrowing, ledger, "models that others call (huggingface)")
            models = _whole_models(candidates, failed_trials, session)
            yield from yield_until_error(
                parts_driver.PartsDriver(models).subjects(task),
                ledger,
                "parts of models (huggingface)",
            )
        for variant in yield_until_error(
            explore(candidates, session, hints, task.source),
            ledger,
            "variations of models (huggingface)",
        ):
            configs.append(variant.config)
            yield replace(subject_of(variant), light=True)
        if not session.is_covered():
            whole_models = tuple(_whole_models(candidates, failed_trials, session))
            varied_models = _varied_whole_models(whole_models, session, hints)
            yield from yield_until_error(
                parts_driver.parts_of_variations(varied_models, session),
                ledger,
                "parts of variations (huggingface)",
            )
        configs.extend(
            trial.config or config_class_of(cls, session)() for cls, trial in failed_trials.items()
        )


def _default_candidates(
    session: Session,
    failed_trials: dict[str, Trial],
    candidates: list[Candidate],
    choices: source_hints.Choices,
) -> Iterator[Candidate]:
    """Yield the models that run with their default configurations, shrunk, and then those that run
    with repaired ones.

    Models that need no repair are all built before the first is yielded: those with most
    definitions to run come first, then small ones. The caller appends what it gets to `candidates`,
    whose values the repairs read. Trials that fail are stored in `failed_trials` by class.
    """
    quick_candidates = sorted(
        _quick_candidates(session, failed_trials),
        key=lambda c: (-count_definitions_to_run(c, session), c.size, c.cls),
    )
    repaired = _repaired_candidates(session, failed_trials, candidates, choices)
    return itertools.chain(quick_candidates, repaired)


def _is_useful(candidate: Candidate, session: Session) -> bool:
    """Return whether a candidate contains a definition to run, or reaches lines that have not run
    yet."""
    if count_definitions_to_run(candidate, session):
        return True
    return (
        not session.is_covered()
        and measure_reach(subject_of(candidate), session).is_worth_comparing
    )


def _quick_candidates(session: Session, failed_trials: dict[str, Trial]) -> Iterator[Candidate]:
    """Yield the model classes that run with a shrunk configuration, while there is time; store the
    trials of the others in `failed_trials`, and record errors in the ledger."""
    for cls in _model_classes(session.original):
        if session.ledger.is_late():
            return
        yield from yield_until_error(
            _quick_candidate(cls, session, failed_trials), session.ledger, f"{cls} (huggingface)"
        )


def _quick_candidate(
    cls: str, session: Session, failed_trials: dict[str, Trial]
) -> Iterator[Candidate]:
    """Yield a model class if it runs with a shrunk configuration; otherwise store its trial in
    `failed_trials`, or record in the ledger that it has no default configuration."""
    defaults = _defaults(cls, session)
    if defaults is not None:
        trial = config_trials.try_scales(cls, config_class_of(cls, session), defaults, session)
        if trial.error is None:
            yield candidate_of(cls, trial, session)
        else:
            failed_trials[cls] = trial


def _repaired_candidates(
    session: Session,
    failed_trials: dict[str, Trial],
    candidates: list[Candidate],
    choices: source_hints.Choices,
) -> Iterator[Candidate]:
    """Yield the models that run with repaired configurations, those with most definitions to run
    first, and remove them from `failed_trials`; for at most `REPAIR_SECONDS`.

    Models without definitions to run are skipped. Values with which one model runs are tried for
    the next.
    """
    working_values = {
        candidate.values.get("model_type"): candidate.values for candidate in candidates
    }
    deadline = session.ledger.deadline_within(REPAIR_SECONDS)
    for cls, first_trial in sorted(
        failed_trials.items(),
        key=lambda name_and_trial: -_count_definitions_to_run_in(name_and_trial[1], session),
    ):
        defaults = _defaults(cls, session)
        if defaults is None or not _count_definitions_to_run_in(first_trial, session):
            continue
        if session.is_finished() or session.ledger.is_late() or time.process_time() > deadline:
            return
        repaired = _repaired_candidate(
            cls, defaults, session, failed_trials, working_values, choices
        )
        yield from yield_until_error(repaired, session.ledger, f"{cls} (huggingface)")


def _repaired_candidate(
    cls: str,
    defaults: Mapping[str, Any],
    session: Session,
    failed_trials: dict[str, Trial],
    working_values: dict[Any, Mapping[str, Any]],
    choices: source_hints.Choices,
) -> Iterator[Candidate]:
    """Yield a model class if it runs with a repaired configuration, and remove it from
    `failed_trials`; otherwise store the trial that came furthest there.

    `defaults` is the default configuration. `working_values` are the values, by model type, with
    which other models run; those of this model are added if it runs.
    """
    first_trial, config_class = failed_trials[cls], config_class_of(cls, session)
    trials = [first_trial]
    values = _with_working_values(first_trial.values, working_values)
    if values != first_trial.values:
        trials.append(
            config_trials.try_config(f"bring up {cls}", cls, config_class, values, session)
        )
    best = max(trials, key=lambda trial: trial.progress)
    trial = config_trials.repair_trial(cls, config_class, defaults, best, session, choices)
    if trial.error is None:
        del failed_trials[cls]
        working_values[trial.values.get("model_type")] = trial.values
        yield candidate_of(cls, trial, session)
    else:
        failed_trials[cls] = trial


def _with_working_values(
    values: Mapping[str, Any], working_values: Mapping[Any, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the values with which another model of the same model type runs; where there is none,
    `values` with nested configurations replaced in this way."""
    model_type = values.get("model_type")
    if model_type and model_type in working_values:
        return working_values[model_type]
    return {
        key: _with_working_values(value, working_values) if isinstance(value, Mapping) else value
        for key, value in values.items()
    }


def _count_definitions_to_run_in(trial: Trial, session: Session) -> int:
    """Return how many of the definitions that have to run a failed trial's model has instances
    of; 1 without a model, which may have some."""
    return (
        1
        if trial.model is None
        else len(class_names_in(trial.model, session) & session.definitions_to_run())
    )


def _defaults(cls: str, session: Session) -> dict[str, Any] | None:
    """Return the default configuration of a model class as a dictionary; None where its class
    cannot be called without arguments, and then the reason is recorded in the ledger."""
    try:
        values: dict[str, Any] = config_class_of(cls, session)().to_dict()
    except Exception as error:  # noqa: BLE001 - a configuration without defaults; recorded as the reason to skip
        session.ledger.skip(
            f"{cls} (huggingface): no default configuration: {shorten_error(error, 200)}"
        )
        return None
    return values


def _whole_models(
    candidates: list[Candidate], failed_trials: Mapping[str, Trial], session: Session
) -> Iterator[parts_driver.WholeModel]:
    """Yield every model that can be built, for a search of its parts.

    Models that accept no inputs come first, with the inputs that they came furthest with. The
    others come without inputs, since they are compared as a whole, unless the original
    does not run them in some mode (`subjects_not_run`).
    """
    for cls, trial in failed_trials.items():
        if trial.model is not None:
            yield whole_model_of(
                cls, trial, trial.furthest.spec if trial.furthest is not None else None
            )
    for candidate in candidates:
        yield whole_model_of(
            candidate.cls,
            candidate,
            candidate.accepted.spec if candidate.cls in session.subjects_not_run else None,
        )


def _borrowing_subjects(
    candidates: list[Candidate], failed_trials: dict[str, Trial], session: Session
) -> Iterator[Subject]:
    """Yield models that accept no generated inputs, with the calls that another model makes of
    them, where they contain definitions to run or reach new lines.

    All models that another model calls are removed from `failed_trials`, of use or not.
    """
    for caller in candidates:
        whole_model = whole_model_of(caller.cls, caller, caller.accepted.spec)
        for part, calls in (
            parts_driver.borrow_calls(whole_model, failed_trials, session) if failed_trials else ()
        ):
            cls = type(part).__name__
            callee = replace(
                caller, cls=cls, config=part.config, values=part.config.to_dict(), calls=calls
            )
            subject = subject_of(callee)
            del failed_trials[cls]
            if (
                measure_reach(subject, session).is_worth_comparing
                or cls in session.definitions_to_run()
            ):
                yield subject


def _varied_whole_models(
    whole_models: tuple[parts_driver.WholeModel, ...], session: Session, hints: source_hints.Hints
) -> Iterator[parts_driver.WholeModel]:
    """Yield models with another configuration, for a search of their parts, of those models that
    have inputs: these do not run to their end in some mode. The search ends after
    `SEARCH_SECONDS`."""
    deadline = session.ledger.deadline_within(SEARCH_SECONDS)
    for whole_model in whole_models:
        values, attention = whole_model.recipe["config"], whole_model.recipe["attention"]
        for other_attention, override in (
            overrides_of(values, attention, hints) if whole_model.spec is not None else ()
        ):
            if session.is_covered() or time.process_time() > deadline:
                return
            trial = config_trials.try_config(
                f"vary {whole_model.name}: {dict(override) or other_attention}",
                whole_model.name,
                config_class_of(whole_model.name, session),
                {**values, **override},
                session,
                attention=other_attention,
                first_spec=whole_model.spec,
            )
            if trial.model is not None:
                yield whole_model_of(whole_model.name, trial, whole_model.spec)
