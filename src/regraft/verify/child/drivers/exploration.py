"""Search for other configurations and calls of models, to reach lines that have not run yet."""

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from regraft.verify.child.drivers import bringup, config_variations, further_calls, source_hints
from regraft.verify.child.drivers.candidates import (
    Candidate,
    built_variants,
    subject_of,
    wanted_count,
)
from regraft.verify.child.drivers.reach import reach
from regraft.verify.child.session import Session, build_seeded, switch_mode

ATTENTIONS = (bringup.EAGER, "sdpa")
# The number of models, and the seconds, for trying other configurations and calls where lines have
# not run yet.
SEARCHED = 3
SEARCH_SECONDS = 20.0


def explore(
    candidates: list[Candidate], session: Session, hints: source_hints.Hints, source: str
) -> Iterator[Candidate]:
    """Yield other configurations and calls that reach lines which have not run yet, and variations
    of these.

    The models take turns. A field may have no effect without another: a variation that runs new
    lines of the file is varied further at once, in the fields that the text mentions. Models that
    neither contain nor lead to a missing definition wait until the other models are exhausted.
    """
    if not session.is_finished():
        yield from _Exploration(candidates, session, hints, source).variations()


@dataclass(slots=True)
class _Turn:
    """A model with the searches for its variations.

    `searches` are pairs of a model and its variations that were not tried yet; the last pair is
    that of the variation that came last.
    """

    model: Candidate
    searches: list[tuple[Candidate, Iterator[Candidate]]]


class _Exploration:
    """The search for variations of some models, which take turns."""

    def __init__(
        self, candidates: list[Candidate], session: Session, hints: source_hints.Hints, source: str
    ) -> None:
        self._session = session
        self._deadline = session.ledger.deadline_within(SEARCH_SECONDS)
        self._is_over = False
        self._names_leading_to = functools.cache(
            lambda names: source_hints.names_leading_to(names, source)
        )
        around = _lines_around(session.wanted_definitions(), source)
        self._hints = replace(hints, text=hints.text + around)
        missing_names = self._missing_names()
        searched = sorted(candidates, key=lambda model: self._sort_key(model, missing_names))
        searched = searched[:SEARCHED]
        self._reached_lines = {
            line for model in searched for line in reach(subject_of(model), session).lines
        }
        self._turns = deque(_Turn(model, [(model, self._variants(model))]) for model in searched)
        self._postponed: deque[_Turn] = deque()
        self._has_postponed_only = False

    def variations(self) -> Iterator[Candidate]:
        """Yield the variations that reach new lines, until the session or the time is finished."""
        while (self._turns or self._postponed) and not self._is_over:
            if not self._turns:
                self._turns, self._postponed = self._postponed, self._turns
                self._has_postponed_only = True
            yield from self._take_turn(self._turns.popleft())

    def _take_turn(self, turn: _Turn) -> Iterator[Candidate]:
        """Yield the useful variations of a model while there is time, as long as each runs lines of
        the file that none did before; then the turn goes to the end of the queue."""
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
            reached = reach(subject_of(variant), self._session)
            new_names = variant.used - start.used
            if new_names & self._session.wanted_definitions() or reached.news:
                started = time.process_time()
                yield variant
                self._deadline += time.process_time() - started  # comparing it is no search
            if not reached.lines - self._reached_lines:
                self._turns.append(turn)  # the other models' turn
                return
            # a step on the way, even where it reaches no changed line
            self._reached_lines |= reached.lines
            self._turns.append(_Turn(variant, [(variant, self._variants(variant))]))
            mentioned = _mentioned_variants(variant, self._session, self._hints)
            turn.searches.append((variant, mentioned))

    def _variants(self, model: Candidate) -> Iterator[Candidate]:
        """Return the variations of a model."""
        return _variants(model, self._session, self._hints)

    def _missing_names(self) -> frozenset[str]:
        """Return the names of the definitions that are unfinished or wanted."""
        changes = self._session.unfinished_changes()
        names = frozenset(change.definition for change in changes)
        return names | self._session.wanted_definitions()

    def _sort_key(self, model: Candidate, missing_names: frozenset[str]) -> tuple[Any, ...]:
        """Return a key that puts models first which contain wanted definitions, then those that
        lead to them, then small ones."""
        return (
            -wanted_count(model, self._session),
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
    it.

    The lines before may hold the condition that chooses it.
    """
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
    """Yield other configurations, other calls, and longer inputs, in turn."""
    reconfigured = built_variants(
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
    """Yield a candidate with longer inputs, also with its inputs divided into shorter blocks."""
    block_overrides = (
        (candidate.attention, override)
        for override in config_variations.shorter_blocks(candidate.values, hints)
    )
    for variant in itertools.chain(
        [candidate], built_variants(candidate, block_overrides, session)
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
    """Yield the variations of fields that the text mentions."""
    overrides = (
        (candidate.attention, override)
        for override in config_variations.mentioned_variations(candidate.values, hints)
    )
    yield from built_variants(candidate, overrides, session)


def _build_original(candidate: Candidate, session: Session) -> Any:
    """Return the original's model of a candidate, in evaluation mode."""
    return switch_mode(build_seeded(0, subject_of(candidate).build, session.original), False)


def overrides_of(
    values: Mapping[str, Any], attention: str, hints: source_hints.Hints
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield pairs of an attention implementation and overrides of fields, of which one differs from
    what is given."""
    yield from (
        (other_attention, {})
        for other_attention in ATTENTIONS
        if other_attention != attention and hints.dispatches
    )
    yield from ((attention, override) for override in config_variations.variations(values, hints))
