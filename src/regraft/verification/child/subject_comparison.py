"""Compare a subject, a model with its calls, in both versions under all conditions, and note the
outcome for each definition."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from regraft.verification.child import weights
from regraft.verification.child.call_equivalence import (
    context_of,
    count_form,
    describe_arguments,
    element_count,
)
from regraft.verification.child.call_recording import Recorded, Recorder
from regraft.verification.child.call_replay import replay_all
from regraft.verification.child.comparison_setting import (
    SEEDS,
    Setting,
    depth,
    make_pair,
    record_calls,
)
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.model_comparison import compare_model, run_constructor_mutants
from regraft.verification.child.reverted_definitions import revert
from regraft.verification.child.session import Session
from regraft.verification.child.widened_calls import (
    values_read_by_one_version,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_SIZES = 2  # calls that differ in sizes alone, which are compared beyond the recorded inputs
_SETTING_SECONDS = 6.0  # of processor time, before the replays of a further setting are cut short


def examine(subject: Subject, session: Session, *, brief: bool = False) -> None:
    """Compare a subject in all settings (`examine_in_steps`)."""
    for _ in examine_in_steps(subject, session, brief=brief):
        pass


def examine_in_steps(subject: Subject, session: Session, *, brief: bool = False) -> Iterator[None]:
    """Compare a subject (a model with calls) under both seeds, all number formats and both modes,
    and yield after each of these settings; refute definitions that differ, revert these to the
    original and go on. Save the ledger at the end.

    Stop where time is up, where every definition is refuted, or where a model cannot be built. A
    brief examination, and a subject that is compared once, uses the first seed; a brief one float32
    only.
    """
    for seed in SEEDS[: 1 if subject.once or brief else None]:
        for dtype in _formats(subject, session, seed, brief=brief):
            for training in (False, True):
                if not session.ledger.unrefuted() or session.ledger.is_late():
                    return
                if not _examine_setting(subject, session, seed, dtype, training):
                    return
                yield
    session.ledger.save()


def _formats(subject: Subject, session: Session, seed: int, *, brief: bool) -> tuple[Any, ...]:
    """Return the number formats to run a subject in with a seed.

    With the first seed these are all (float64 only where the session goes beyond the recorded
    inputs), or the first `subject.formats` of them if the subject is compared once; float32 and
    bfloat16 with other seeds, float32 alone for a brief examination.
    """
    if seed != SEEDS[0]:
        return DTYPES[:2]  # float16 and float64 once
    if brief:
        return DTYPES[:1]
    dtypes = DTYPES if session.beyond else DTYPES[:-1]
    return dtypes[: subject.formats] if subject.once else dtypes


def _examine_setting(
    subject: Subject, session: Session, seed: int, dtype: Any, training: bool
) -> bool:
    """Compare a subject under a setting: its recorded calls, the whole model, and in the first
    setting its constructors' mutants. Definitions that are refuted are reverted to the original,
    and the comparison starts again.

    A slow model whose only call was replayed is not compared as a whole again. What was replayed
    and ran is added to `session.replayed` and `session.ran`, and the ledger saved. Return False
    where no model can be built, or where the original does not run in float32, so that further
    settings are in vain; else True.
    """
    replayed_entries: set[int] = set()
    kinds: set[str] = set()
    recorder: Recorder | None = None
    while True:
        built = make_pair(subject, seed, session)
        if built is None:
            return False
        pair = built.cast(dtype)
        setting = Setting(subject, pair, seed, str(dtype).removeprefix("torch."), training)
        # Evaluation keeps a high dropout rate: a version that drops there differs. Training is
        # exact at rate 0.
        with pair.mode(training, 0.0 if training else weights.RATE):
            recorder = recorder or record_calls(setting, session)
            if recorder is None:
                return bool(dtype != torch.float32)
            if _replay_until_refuted(recorder.calls, replayed_entries, kinds, setting, session):
                break
        revert(session, session.ledger.refuted())
    if not _compares_as_whole(recorder, setting, session):
        compare_model(setting, session, frozenset(entry.definition for entry in recorder.calls))
    if setting.first and not training:
        run_constructor_mutants(setting, session)
    session.replayed |= kinds
    for name in recorder.ran:
        session.ran.setdefault(name, set()).add(setting.mode)
    session.ledger.save()
    return True


def _compares_as_whole(recorder: Recorder, setting: Setting, session: Session) -> bool:
    """Return whether the replays of the recorded calls already compare a slow model on all of its
    calls: its class is changed and not refuted, and it has one call, since of calls with equal
    shapes only the first is recorded."""
    names = session.ledger.unrefuted()
    return (
        setting.subject.slow
        and any(entry.path == "" and entry.definition in names for entry in recorder.calls)
        and len(setting.subject.calls(setting.seed)) == 1
    )


def _replay_until_refuted(
    entries: list[Recorded],
    replayed_entries: set[int],
    kinds: set[str],
    setting: Setting,
    session: Session,
) -> bool:
    """Replay the entries whose numbers are not in `replayed_entries`, innermost and largest first,
    and add their numbers; return False once a definition is refuted while others are not, since
    modules that hold an instance of it have to be built anew then; else True.

    Of calls that count as alike (`kinds`, to which they are added) all but the first are replayed
    as recorded only, and not at all in a brief setting; a large call comes first, as a mix-up of
    rows needs more than one. Of calls of one form, such as the steps that generate tokens, all but
    the first `_SIZES` are replayed as recorded only. Skipped are entries of refuted definitions,
    and those that an earlier subject has replayed where the definition is complete: the heads of a
    family contain the same model. After `_SETTING_SECONDS` in a setting that is not the first
    (convolutions in float16 are slow on CPUs), one more entry of each definition without an entry
    is replayed, as recorded. Calls of a slow model itself are always replayed.
    """
    deadline = math.inf if setting.first else time.process_time() + _SETTING_SECONDS
    replayed_names: set[str] = set()
    for number, entry in sorted(
        enumerate(entries), key=lambda pair: (-depth(pair[1]), -element_count(pair[1].call))
    ):
        if number in replayed_entries or entry.definition not in session.ledger.unrefuted():
            continue
        replayed_entries.add(number)
        context = context_of(entry, setting)
        kind = f"{context} {describe_arguments(entry.call)}"
        is_required = setting.subject.slow and entry.path == ""
        is_late = time.process_time() > deadline
        is_covered = _is_covered(entry.definition, kind, kinds, setting, session)
        if not is_required and (is_covered or (is_late and entry.definition in replayed_names)):
            continue
        is_repetition = kind in kinds or count_form(entry, context, session) > _SIZES
        own_setting = _setting_for(entry, setting, session)
        is_light = own_setting.subject.light or is_late or is_repetition
        replay_all(entry, own_setting, session, light=is_light)
        kinds.add(kind)
        replayed_names.add(entry.definition)
        if entry.definition not in session.ledger.unrefuted() and session.ledger.unrefuted():
            return False
    return True


def _setting_for(entry: Recorded, setting: Setting, session: Session) -> Setting:
    """Return the setting in which a recorded call is replayed. A light subject counts as one that
    is not where it is the first to run the definition (a function of eager attention, say, which
    only a variation of the model calls), or the first to run it with these values of attributes
    that only one version reads. A slow subject, and one that is compared once without such values,
    keep the setting. Adds to `session.first_subjects`."""
    subject = setting.subject
    values = values_read_by_one_version(entry, setting, session)
    first_name = session.first_subjects.setdefault(f"{entry.definition} {values}", subject.name)
    if first_name != subject.name or subject.slow or (subject.once and not values):
        return setting
    return replace(setting, subject=replace(subject, light=False))


def _is_covered(
    definition: str, kind: str, kinds: set[str], setting: Setting, session: Session
) -> bool:
    """Return whether an earlier subject has replayed calls of this kind of a complete definition,
    or this subject has in a brief setting; `kinds` are the kinds that it has replayed here."""
    was_replayed = kind in session.replayed and session.is_complete(definition)
    return was_replayed or (kind in kinds and setting.brief)
