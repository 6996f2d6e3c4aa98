"""The state that one run of the child shares: both modules, the tracers, the ledger, and what the
comparisons have covered so far."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from regraft.verification.builder_calls import Construction
from regraft.verification.child.checks.condition_coverage import Conditions
from regraft.verification.child.checks.late_attributes import LateValues
from regraft.verification.child.checks.mutants import Mutant, Mutants, mutant_in_place
from regraft.verification.child.checks.replaced_functions import FunctionsSnapshot
from regraft.verification.child.definition_state import DefinitionState
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.judge_process import Judge
from regraft.verification.child.line_tracing import Tracer
from regraft.verification.child.random_states import reseed
from regraft.verification.child.relatives_that_ran import MODES, has_taken_part, has_taken_value
from regraft.verification.child.state_watch import Watch
from regraft.verification.definition_changes import Change
from regraft.verification.related_definitions import BUILDER, Relative


@dataclass(slots=True)
class Session:
    """Both versions of a file and all that their comparisons have collected so far.

    original_tracer   traces the lines of the original that the changed version no longer has: their
                      effect must be compared
    imported          watch the variables of both versions since their import
    functions         the functions of PyTorch and Python as they were before any import
    replaced          the names of those of them that the original replaces
    reverted          the original's definitions that stand in the changed module, by name
    definition_states the state that definitions of either version keep from one model to the next
    replayed          the kinds of calls that earlier subjects have compared
    forms             the number of replayed calls of each form
    first_subjects    the name of the subject that ran a definition first, by definition and values
                      of attributes that only one version reads
    ran               by the name of a class of the file, the modes in which models with a called
                      instance were compared
    subjects_not_run  the names of subjects that the original does not run in some mode
    domains           by definition, the properties of the changed lines that decide its inputs
    widened           the definitions that were compared beyond recorded calls, with the kind of
                      these calls
    varied_fields     the fields of configurations that took two values
    options           the values that constructor arguments and fields of configurations took, by
                      definition and name
    tried_options     the arguments and fields for which other values were tried
    late              the values of attributes that code assigns after construction
    argument_reads    by definition and method, the arguments that changed lines read
    combined_arguments  by definition and method, those of these arguments that may be left out or
                      are flags in a compared call
    given_together    by definition and method, the sets of these arguments that had another value
                      than their default in a comparison, or that both versions refuse together
    conditions        the conditions in the changed lines of the changed version and the original
    mutants           wrong versions of the changed lines
    old_mutants       the original with other numbers in the place of those that it alone has
    planted           the name of the mutant that runs in place of the changed version, or ""
    beyond            whether definitions are also compared beyond their first inputs
    thorough          whether all of their instances are
    strict            whether hooks and attributes are compared, too
    by_rules          whether tested rules made the change
    model_classes     the classes of the file that the only model has to which the change applies;
                      empty for a change of the file
    compares_once     whether a single comparison of each change is enough: all changes are the same
                      program, or were proved before
    """

    original: ModuleType
    changed: ModuleType
    changes: tuple[Change, ...]
    tracer: Tracer
    ledger: Ledger
    imported: tuple[Watch, Watch]
    judge: Judge
    functions: FunctionsSnapshot
    replayed: set[str] = field(default_factory=set)
    forms: Counter[str] = field(default_factory=Counter)
    first_subjects: dict[str, str] = field(default_factory=dict)
    ran: dict[str, set[str]] = field(default_factory=dict)
    subjects_not_run: set[str] = field(default_factory=set)
    original_tracer: Tracer = field(default_factory=lambda: Tracer("", ()))
    reverted: dict[str, Any] = field(default_factory=dict)
    domains: dict[str, Any] = field(default_factory=dict)
    widened: set[tuple[str, str]] = field(default_factory=set)
    varied_fields: set[str] = field(default_factory=set)
    replaced: frozenset[str] = frozenset()
    conditions: tuple[Conditions, Conditions] | None = None
    mutants: Mutants | None = None
    old_mutants: Mutants | None = None
    planted: str = ""
    options: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    tried_options: set[tuple[str, str]] = field(default_factory=set)
    beyond: bool = False
    thorough: bool = False
    strict: bool = True
    by_rules: bool = False
    model_classes: frozenset[str] = frozenset()
    compares_once: bool = False
    definition_states: list[DefinitionState] = field(default_factory=list)
    late: LateValues = field(default_factory=LateValues)
    argument_reads: dict[tuple[str, str], Any] = field(default_factory=dict)
    combined_arguments: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    given_together: dict[tuple[str, str], set[frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        original: ModuleType,
        changed: ModuleType,
        changes: tuple[Change, ...],
        tracer: Tracer,
        ledger: Ledger,
        judge: Judge,
        functions: FunctionsSnapshot,
    ) -> Session:
        """Return the session of two versions in their state right after their import, which is
        saved as the state that `rewind` restores."""
        names = frozenset(change.definition for change in changes)
        imported = Watch(None, original, names), Watch(None, changed, names)
        session = cls(original, changed, changes, tracer, ledger, imported, judge, functions)
        session.definition_states += [DefinitionState(original), DefinitionState(changed)]
        return session

    def rewind(self) -> None:
        """Restore the variables of both files, and the state of their definitions, from right after
        the import."""
        for watch in self.imported:
            watch.rewind()
        for state in self.definition_states:
            state.rewind()

    @contextmanager
    def trace_changed(self, definition: str, step: str) -> Iterator[None]:
        """Run the changed version in the body: announced in the journal, and traced while lines
        have not run yet; results of conditions are noted.

        Code that has imported `regraft.ops`, which the verifier itself never does, is traced to the
        end: which kernels run is evidence. If a mutant is planted in the changed version, the
        mutant is announced instead, and its lines do not count as run.
        """
        if self.planted:
            with self.ledger.step("mutant", definition, self.planted):
                yield
            return
        is_tracing = "regraft.ops" in sys.modules or self.gaps() or self.relatives_to_run()
        tracer = self.tracer if is_tracing else contextlib.nullcontext()
        conditions = self.conditions[0] if self.conditions else contextlib.nullcontext()
        with self.ledger.step("changed", definition, step), tracer, conditions:
            yield

    def gaps(self) -> tuple[tuple[int, str], ...]:
        """Return (line, sentence) for each changed line or branch, in either version, of unrefuted
        definitions that has not run."""
        return tuple(
            gap
            for change in self._unrefuted_changes()
            for gap in (*self.tracer.gaps(change), *self.gaps_in_original(change))
        )

    def probes(self) -> tuple[Tracer, Tracer]:
        """Return fresh tracers for the original and the changed version, in this order, to record
        the lines that a single run reaches."""
        return Tracer(self.original_tracer.filename, self.original_tracer.changes), Tracer(
            self.tracer.filename, self.changes
        )

    def reached_by(self, original_probe: Tracer, changed_probe: Tracer) -> bool:
        """Return whether the probes of a run recorded a changed line or branch, of an unrefuted
        definition, that no compared run has reached."""
        for change in self._unrefuted_changes():
            remaining_gaps = {
                *changed_probe.gaps(change),
                *self.gaps_in_original(change, original_probe),
            }
            if {*self.tracer.gaps(change), *self.gaps_in_original(change)} - remaining_gaps:
                return True
        return False

    def gaps_in_original(
        self, change: Change, tracer: Tracer | None = None
    ) -> tuple[tuple[int, str], ...]:
        """Return (line, sentence) for lines of the original that a change replaced or removed and
        that have not run, conditions on both sides; by `tracer` instead of the session's own where
        it is not None."""
        tracer = tracer or self.original_tracer
        old_changes = [
            old_change
            for old_change in tracer.changes
            if old_change.definition == change.definition
        ]
        return tuple(
            (line, f"in the original, {text}")
            for old_change in old_changes
            for line, text in tracer.gaps(old_change)
        )

    @contextmanager
    def trace_original(self) -> Iterator[Callable[[], None]]:
        """Trace in the body a run of the original that is compared, while lines or results of
        conditions of it have not run.

        Yields a function that forgets the lines and results of this run: a run that ends with an
        error is not compared. An error of the body forgets them, too, and is raised.
        """
        conditions = self.conditions[1] if self.conditions else None
        lines_before = self.original_tracer.save_state()
        results_before = conditions.results() if conditions else ()

        def forget() -> None:
            """Take back the lines and results of this run."""
            self.original_tracer.restore_state(lines_before)
            if conditions:
                conditions.restore_results(results_before)

        try:
            with ExitStack() as stack:
                if any(self.gaps_in_original(change) for change in self._unrefuted_changes()):
                    stack.enter_context(self.original_tracer)
                if conditions:
                    stack.enter_context(conditions)
                yield forget
        except BaseException:
            forget()
            raise

    @contextmanager
    def plant(self, mutant: Mutant) -> Iterator[None]:
        """Run a mutant in place of the changed version in the body, by replacing the code of its
        functions; the attribute `planted` has its name meanwhile."""
        self.planted = mutant.name
        try:
            with mutant_in_place(mutant):
                yield
        finally:
            self.planted = ""

    def condition_gaps(self, definition: str) -> tuple[str, ...]:
        """Return a sentence for each condition in changed lines of either version that did not take
        all results; () where conditions are not watched."""
        if self.conditions is None:
            return ()
        changed, original = (conditions.gaps(definition) for conditions in self.conditions)
        return (*changed, *(f"in the original, {sentence}" for sentence in original))

    def absent_arguments(self) -> frozenset[tuple[str, str]]:
        """Return pairs (definition, parameter) of the parameters of unrefuted definitions that
        decide what changed lines compute and that no comparison gave; none where conditions are not
        watched."""
        return frozenset(
            (change.definition, name)
            for change in self._unrefuted_changes()
            for name in self._absent_arguments_of(change)
        )

    def _absent_arguments_of(self, change: Change) -> Iterator[str]:
        """Yield the parameters of `absent_arguments` for one change; they may repeat."""
        for conditions in self.conditions or ():
            yield from conditions.absent_arguments(change.definition)

    @contextmanager
    def probe_absent_arguments(self) -> Iterator[Callable[[], bool]]:
        """Watch in the body which of the parameters `absent_arguments` get a value, and forget it
        at the end; yields a function that returns whether a run in the body gave one of them a
        value other than None. Other values of parameters that a comparison gave do not count."""
        versions, before = self.conditions or (), self.absent_arguments()
        if not before:
            yield lambda: False
            return
        results_before = [conditions.results() for conditions in versions]
        try:
            with ExitStack() as stack:
                for conditions in versions:
                    stack.enter_context(conditions)
                yield lambda: bool(before - self.absent_arguments())
        finally:
            for conditions, results in zip(versions, results_before, strict=True):
                conditions.restore_results(results)

    def has_shown_equality(self, definition: str) -> bool:
        """Return whether a change computes the same for tensors, and ran on nothing else in both
        versions; False where conditions are not watched."""
        versions = self.conditions or ()
        return bool(versions) and all(
            version.has_shown_equality(definition) for version in versions
        )

    def undecided_numbers(self, definition: str) -> tuple[str, ...]:
        """Return a sentence for each number that only one version of a definition has and that no
        input tells from another number; () where rules made the change, and where the session has
        no mutants."""
        if self.mutants is None or self.old_mutants is None:
            return ()
        changed = self.mutants.undecided_numbers(definition)
        original = self.old_mutants.undecided_numbers(definition)
        texts = (*changed, *(f"in the original, {text}" for text in original))
        return tuple(f"{text} would have given the same" for text in texts)

    def is_compared(self, change: Change) -> bool:
        """Return whether the definition of a change was compared at least once without a
        difference, by itself or in a model."""
        record = self.ledger.records[change.definition]
        return bool(record.replays or record.wholes)

    def uncovered_changes(self) -> tuple[Change, ...]:
        """Return the changes that still need a run: they were not compared yet, or have lines that
        never ran, in either version, or arguments that never were given. Refuted changes and
        removed definitions are left out."""
        return tuple(change for change in self._unrefuted_changes() if self._is_uncovered(change))

    def _is_uncovered(self, change: Change) -> bool:
        """Return whether a change lacks runs, or an argument that decides what it computes."""
        return self._lacks_runs(change) or any(self._absent_arguments_of(change))

    def _lacks_runs(self, change: Change) -> bool:
        """Return whether a change was not compared yet, or has lines that never ran, in either
        version."""
        return not self.is_compared(change) or bool(
            self.tracer.gaps(change) or self.gaps_in_original(change)
        )

    def is_complete(self, definition: str) -> bool:
        """Return whether a definition was compared and all its changed lines ran; True for a name
        without a change."""
        return not any(
            self._lacks_runs(change) for change in self.changes if change.definition == definition
        )

    def unfinished_changes(self) -> tuple[Change, ...]:
        """Return the uncovered changes, and those of which a relative has not run yet. Refuted
        changes and removed definitions are left out."""
        return tuple(
            change
            for change in self._unrefuted_changes()
            if self._is_uncovered(change) or self._missing_relatives(change)
        )

    def relatives_to_run(self) -> tuple[Relative, ...]:
        """Return the relatives of unrefuted definitions that have not taken part in comparisons in
        both modes, without duplicates."""
        return tuple(
            dict.fromkeys(
                relative
                for change in self._unrefuted_changes()
                for relative in self._missing_relatives(change)
            )
        )

    def definitions_to_run(self) -> frozenset[str]:
        """Return the names of the definitions that a further model should contain: unrefuted
        definitions that were not compared, and relatives that have not run."""
        not_compared = frozenset(
            change.definition
            for change in self._unrefuted_changes()
            if not self.is_compared(change)
        )
        return not_compared | {relative.name for relative in self.relatives_to_run()}

    def relatives_not_run(self, change: Change) -> tuple[str, ...]:
        """Return a sentence for every relative of a change that has not run, except builders whose
        constructions stand in for them."""
        return tuple(
            f"{relative.name}, which {relative.why}, never ran"
            for relative in self._missing_relatives(change)
            if not self._has_stand_in(change.definition, relative)
        )

    def lacks_evidence(self, change: Change) -> bool:
        """Return whether a change still needs a run, also on the user's slow model, or a relative
        for which nothing stands in."""
        return (
            self.ledger.is_own_model_pending
            or self._lacks_runs(change)
            or bool(self.relatives_not_run(change))
        )

    def _unrefuted_changes(self) -> tuple[Change, ...]:
        """Return the changes that are not refuted and whose definition still exists."""
        names = self.ledger.unrefuted()
        return tuple(
            change
            for change in self.changes
            if change.definition in names and change.kind != "removed"
        )

    def _missing_relatives(self, change: Change) -> tuple[Relative, ...]:
        """Return the relatives of a change that have not taken part in comparisons. For a change of
        one model, builders and the classes that the model does not have are left out; all of them
        for a change that computes the same for tensors and ran on tensors."""
        if self.has_shown_equality(change.definition):
            return ()
        return tuple(
            relative
            for relative in change.relatives
            if not has_taken_part(relative, self.original, self.ran, self.tracer.entered)
            and not (self.model_classes and self._is_outside_model(relative))
        )

    def _is_outside_model(self, relative: Relative) -> bool:
        """Return whether a relative only builds the changed class (BUILDER), or is a class that the
        model of the change does not have."""
        definition = getattr(self.original, relative.name, None)
        is_other_class = isinstance(definition, type) and relative.name not in self.model_classes
        return is_other_class or relative.why == BUILDER

    def builders_not_run(self, change: Change) -> tuple[str, ...]:
        """Return the names of relatives that never ran, whose constructions were compared
        instead."""
        return tuple(
            relative.name
            for relative in self._missing_relatives(change)
            if self._has_stand_in(change.definition, relative)
        )

    def constructions_to_try(self, definition: str) -> tuple[Construction, ...]:
        """Return the calls with which relatives that have not run build a definition, where a
        builder adds nothing else; () for a refuted definition."""
        return tuple(
            construction
            for change in self._unrefuted_changes()
            if change.definition == definition
            for relative in self._missing_relatives(change)
            for construction in relative.constructions or ()
        )

    def _has_stand_in(self, definition: str, relative: Relative) -> bool:
        """Return whether instances of a changed class were compared in both modes that were built
        as a builder builds them: from its constants, and from plain values where it passes other
        values. They also stand in for a function that only sets flags of the class.

        Only a rewrite by tested rules returns True: what a builder or a function does beside may
        show an edit of any other kind.
        """
        if not self.by_rules or relative.constructions is None:
            return False
        if set(self.ledger.records[definition].modes) < MODES:
            return False
        return all(
            has_taken_value(self.options.get((definition, name), set()), constant)
            for construction in relative.constructions
            for name, constant in construction
        )

    def needs_run(self, definition: str) -> bool:
        """Return whether a definition has a change that is uncovered."""
        return any(change.definition == definition for change in self.uncovered_changes())

    def is_covered(self) -> bool:
        """Return whether `uncovered_changes` is empty, or time is up."""
        return not self.uncovered_changes() or self.ledger.is_late()

    def is_finished(self) -> bool:
        """Return whether `unfinished_changes` is empty, or time is up."""
        return not self.unfinished_changes() or self.ledger.is_late()


def build_seeded(seed: int, build: Callable[[ModuleType], Any], module: ModuleType) -> Any:
    """Return the model that `build` makes from a version's module, after `reseed` with the seed.
    Raises what `build` raises."""
    reseed(seed)
    return build(module)


def switch_mode(model: Any, training: bool) -> Any:
    """Switch a model to training or evaluation, and return it: the `train` of some models returns
    None."""
    model.train(training)
    return model
