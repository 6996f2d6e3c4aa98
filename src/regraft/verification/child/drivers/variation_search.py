"""Search for variations of models, with other configurations and calls, that reach changed lines
which have not run yet.

The best `MOST_MODELS` models take turns. A variation that runs lines of the file which no variation
ran before, changed or not, is a step on the way, and is itself varied.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from regraft.verification.child.drivers import (
    config_trials,
    config_variations,
    further_calls,
    source_hints,
)
from regraft.verification.child.drivers.huggingface_candidates import (
    Candidate,
    build_variants,
    count_definitions_to_run,
    subject_of,
)
from regraft.verification.child.drivers.subject_reach import measure_reach
from regraft.verification.child.session import Session, build_seeded, switch_mode

# The implementations of attention that are tried; they need no other package.
ATTENTIONS = (config_trials.EAGER, "sdpa")
MOST_MODELS = 3  # the most models that are varied
SEARCH_SECONDS = 20.0  # of CPU time, for variations of all these models


def explore(
    candidates: list[Candidate], session: Session, hints: source_hints.Hints, source: str
) -> Iterator[Candidate]:
    """Yield variations of at most `MOST_MODELS` candidates, with another configuration or other
    calls, that reach changed lines which have not run yet or contain definitions to run.

    Those with most definitions to run are chosen. A field may have no effect without another: a
    variation that runs new lines of the file is varied further at once, in the fields that the text
    of the hints mentions. Models that neither contain nor lead to a missing definition wait until
    the other models are exhausted. `source` is the text of the original file. Nothing is yielded
    where the session misses no run or its time is up. The search ends after `SEARCH_SECONDS`, in
    which comparisons of the yielded candidates do not count.
    """
    if not session.is_finished():
        yield from _Exploration(candidates, session, hints, source).variations()


@dataclass(slots=True)
class _Turn:
    """A model with the searches for its variations.

    `searches` is a stack of pairs of a model and its variations that were not tried yet: at the
    bottom those of the model itself, above them those of variations that ran new lines. The last
    pair is searched first.
    """

    model: Candidate
    searches: list[tuple[Candidate, Iterator[Candidate]]]


class _Exploration:
    """The search for variations of some models, which take turns.

    `_reached_lines` are all lines of the changed file that these models and their variations ran so
    far; `_postponed` are the turns of models that can wait, which are taken when no other turn is
    left (`_has_postponed_only`).
    """

    def __init__(
        self, candidates: list[Candidate], session: Session, hints: source_hints.Hints, source: str
    ) -> None:
        """Choose the models, run them for the lines that they reach, and give each a turn."""
        self._session = session
        self._deadline = session.ledger.deadline_within(SEARCH_SECONDS)
        self._is_over = False
        self._names_leading_to = functools.cache(
            lambda names: source_hints.names_leading_to(names, source)
        )
        around = _lines_around(session.definitions_to_run(), source)
        self._hints = replace(hints, text=hints.text + around)
        missing_names = self._missing_names()
        models = sorted(candidates, key=lambda model: self._sort_key(model, missing_names))
        models = models[:MOST_MODELS]
        self._reached_lines = {
            line for model in models for line in measure_reach(subject_of(model), session).lines
        }
        self._turns = deque(_Turn(model, [(model, self._variants(model))]) for model in models)
        self._postponed: deque[_Turn] = deque()
        self._has_postponed_only = False

    def variations(self) -> Iterator[Candidate]:
        """Yield the variations of all models that reach new changed lines or contain definitions
        to run, until no search is left, no run is missing or the time is over."""
        while (self._turns or self._postponed) and not self._is_over:
            if not self._turns:
                self._turns, self._postponed = self._postponed, self._turns
                self._has_postponed_only = True
            yield from self._take_turn(self._turns.popleft())

    def _take_turn(self, turn: _Turn) -> Iterator[Candidate]:
        """Yield the variations of a model that reach new changed lines or contain more definitions
        to run than the model that they vary.

        The turn goes on while variations run lines of the file that none did before, and each of
        these also gets a turn of its own; the first other variation ends it, and the turn goes to
        the end of the queue. A turn without variations left is dropped, and one that can wait is
        postponed. At the end of the session or of the time `_is_over` is set.
        """
        while turn.searches:
            if not self._has_postponed_only and self._can_wait(turn.model):
                self._postponed.append(turn)
                return
            start, variants = turn.searches[-1]
            variant = next(variants, None)
            if self._session.is_finished() or time.process_time() > self._deadline:
                self._is_over = True
                return
            if variant is None:
                turn.searches.pop()
                continue
            reached = measure_reach(subject_of(variant), self._session)
            new_names = variant.used - start.used
            if new_names & self._session.definitions_to_run() or reached.is_worth_comparing:
                started = time.process_time()
                yield variant
                self._deadline += time.process_time() - started  # its comparison is no search
            if not reached.lines - self._reached_lines:
                self._turns.append(turn)  # the other models come first
                return
            # a step on the way, even where it reaches no changed line
            self._reached_lines |= reached.lines
            self._turns.append(_Turn(variant, [(variant, self._variants(variant))]))
            mentioned = _mentioned_variants(variant, self._session, self._hints)
            turn.searches.append((variant, mentioned))

    def _variants(self, model: Candidate) -> Iterator[Candidate]:
        """Return the variations of a model, which are built as they are asked for."""
        return _variants(model, self._session, self._hints)

    def _missing_names(self) -> frozenset[str]:
        """Return the names of the definitions that miss a run and of those that have to run."""
        changes = self._session.unfinished_changes()
        names = frozenset(change.definition for change in changes)
        return names | self._session.definitions_to_run()

    def _sort_key(self, model: Candidate, missing_names: frozenset[str]) -> tuple[Any, ...]:
        """Return a key that puts models first that contain most definitions to run; among equals
        those that lead to missing definitions, then those that contain most of these, then small
        ones."""
        return (
            -count_definitions_to_run(model, self._session),
            model.cls not in self._names_leading_to(missing_names),
            -len(model.used & missing_names),
            model.size,
            model.cls,
        )

    def _can_wait(self, model: Candidate) -> bool:
        """Return whether a model neither contains nor leads to a missing definition."""
        names = self._missing_names()
        return not (model.used & names or model.cls in self._names_leading_to(names))


def _lines_around(names: frozenset[str], source: str) -> str:
    """Return the lines of a source that contain one of some names, each with the three lines before
    it, which may be the condition that chooses it; "" where no line contains one."""
    lines = source.splitlines()
    line_numbers = [
        number for number, line in enumerate(lines) if any(name in line for name in names)
    ]
    return "\n".join(
        line for number in line_numbers for line in lines[max(0, number - 3) : number + 1]
    )


def _variants(
    candidate: Candidate, session: Session, hints: source_hints.Hints
) -> Iterator[Candidate]:
    """Yield a candidate with another configuration, with other calls and with longer inputs, in
    turn; the original builds and accepts them, but for calls that are not run beforehand
    (`further_calls.more_calls`)."""
    reconfigured = build_variants(
        candidate, overrides_of(candidate.values, candidate.attention, hints), session
    )
    calls = further_calls.more_calls(
        _build_original(candidate, session), candidate.accepted, hints.text
    )
    called_otherwise = (replace(candidate, calls=variant_calls) for variant_calls in calls)
    for variants in itertools.zip_longest(
        reconfigured, called_otherwise, _with_longer_inputs(candidate, session, hints)
    ):
        yield from (variant for variant in variants if variant is not None)


def _with_longer_inputs(
    candidate: Candidate, session: Session, hints: source_hints.Hints
) -> Iterator[Candidate]:
    """Yield a candidate with longer inputs, then with longer inputs and fields that divide these
    into shorter blocks."""
    block_overrides = (
        (candidate.attention, override)
        for override in config_variations.shorter_blocks(candidate.values, hints)
    )
    for variant in itertools.chain(
        [candidate], build_variants(candidate, block_overrides, session)
    ):
        yield from (
            replace(variant, calls=calls)
            for calls in further_calls.longer_calls(
                _build_original(variant, session), variant.accepted
            )
        )


def _mentioned_variants(
    candidate: Candidate, session: Session, hints: source_hints.Hints
) -> Iterator[Candidate]:
    """Yield the candidate with another value of each field that the text of the hints mentions, if
    the original is built and runs with it."""
    overrides = (
        (candidate.attention, override)
        for override in config_variations.mentioned_variations(candidate.values, hints)
    )
    yield from build_variants(candidate, overrides, session)


def _build_original(candidate: Candidate, session: Session) -> Any:
    """Return the original's model of a candidate, built with seed 0 and in evaluation mode."""
    return switch_mode(build_seeded(0, subject_of(candidate).build, session.original), False)


def overrides_of(
    values: Mapping[str, Any], attention: str, hints: source_hints.Hints
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield pairs of an attention implementation and overrides of the fields in `values`: first the
    other implementations without an override, where the file chooses between them; then the present
    implementation with each override."""
    yield from (
        (other_attention, {})
        for other_attention in ATTENTIONS
        if other_attention != attention and hints.dispatches
    )
    yield from ((attention, override) for override in config_variations.variations(values, hints))
