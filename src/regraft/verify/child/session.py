"""Everything that one run of the child shares: both modules, the tracer, the ledger."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from regraft.verify.changes import Change
from regraft.verify.child.checks.conditions import Conditions
from regraft.verify.child.checks.mutants import Mutant, Mutants, planted
from regraft.verify.child.checks.tampering import Functions
from regraft.verify.child.compare import Difference
from regraft.verify.child.isolated import Judge
from regraft.verify.child.ledger import Ledger
from regraft.verify.child.load import define_again, rebind
from regraft.verify.child.replay import reseed
from regraft.verify.child.shared_state import SharedState
from regraft.verify.child.state import Watch
from regraft.verify.child.trace import Tracer
from regraft.verify.relatives import Relative
from regraft.verify.types import MODULE

MODES = frozenset({"eval", "train"})


@dataclass(slots=True)
class Session:
    """Both versions of one file and what is known about them.

    `older` traces the lines of the original that the changed version no longer has: what they did must be compared.
    `replayed` holds the kinds of calls that earlier subjects have compared, `ran`, by the name of a class of the file,
    the modes in which models with a called instance were compared, `halting` the names of subjects that the original
    does not run in some mode. `domains` holds what is particular to the changed lines of each definition, `widened`
    the definitions that were compared beyond recorded calls, with the kind of these, `varied_fields` the fields of
    configurations that took two values. `functions` are those of PyTorch and Python as they were before any import,
    `replaced` the names of those that the original replaces. `conditions` are those in the changed lines of the
    changed version and of the original, `mutants` wrong versions of the changed lines, `planted` the name of the one
    that runs in place of the changed version. `beyond` says whether definitions are also compared beyond their first
    inputs, `thorough` whether all of their instances are, `strict` whether hooks and attributes are compared, too, and
    `same` whether every change is the same program.
    `shared` is what the definitions of either version keep from one model to the next, `options` holds the values that
    constructor arguments and fields of configurations took, by definition and name, `fixed` those that were tried with
    others.
    """

    original: ModuleType
    changed: ModuleType
    changes: tuple[Change, ...]
    tracer: Tracer
    ledger: Ledger
    imported: tuple[Watch, Watch]
    judge: Judge
    replayed: set[str] = field(default_factory=set)
    ran: dict[str, set[str]] = field(default_factory=dict)
    halting: set[str] = field(default_factory=set)
    older: Tracer = field(default_factory=lambda: Tracer("", ()))
    restored: dict[str, Any] = field(default_factory=dict)
    domains: dict[str, Any] = field(default_factory=dict)
    widened: set[tuple[str, str]] = field(default_factory=set)
    varied_fields: set[str] = field(default_factory=set)
    functions: Functions = field(default_factory=Functions)
    replaced: frozenset[str] = frozenset()
    conditions: tuple[Conditions, Conditions] | None = None
    mutants: Mutants | None = None
    planted: str = ""
    options: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    fixed: set[tuple[str, str]] = field(default_factory=set)
    beyond: bool = False
    thorough: bool = False
    strict: bool = True
    same: bool = False
    shared: list[SharedState] = field(default_factory=list)

    @classmethod
    def start(
        cls, original: ModuleType, changed: ModuleType, changes: tuple[Change, ...], tracer: Tracer, ledger: Ledger,
        judge: Judge,
    ) -> Session:
        """Return the session of two versions as they are right after their import."""
        names = frozenset(change.definition for change in changes)
        imported = Watch(None, original, names), Watch(None, changed, names)
        shared = [SharedState(original), SharedState(changed)]
        return cls(original, changed, changes, tracer, ledger, imported, judge, shared=shared)

    def rewind(self) -> None:
        """Give the variables of both files, and what their definitions hold, the values of right after the import."""
        for watch in self.imported:
            watch.rewind()
        for state in self.shared:
            state.rewind()

    @contextmanager
    def traced(self, definition: str, what: str) -> Iterator[None]:
        """Run the changed version: announced in the journal, traced while lines are still missing.

        A mutant that is planted in it is announced instead, and nothing that it runs counts.
        """
        if self.planted:
            with self.ledger.step("mutant", definition, self.planted):
                yield
            return
        wanted = "regraft.ops" in sys.modules or self.gaps() or self.unmet()
        tracer = self.tracer if wanted else contextlib.nullcontext()
        conditions = self.conditions[0] if self.conditions else contextlib.nullcontext()
        with self.ledger.step("changed", definition, what), tracer, conditions:
            yield

    def gaps(self) -> tuple[tuple[int, str], ...]:
        """Lines of definitions that are not refuted yet and have not run."""
        return tuple(gap for change in self._live() for gap in (*self.tracer.gaps(change), *self.gaps_before(change)))

    def probes(self) -> tuple[Tracer, Tracer]:
        """Return fresh tracers for the original and the changed version, which see what one run reaches."""
        return Tracer(self.older.filename, self.older.changes), Tracer(self.tracer.filename, self.changes)

    def reached_by(self, older: Tracer, newer: Tracer) -> bool:
        """Whether a probe ran something that has not run before."""
        for change in self._live():
            left = {*newer.gaps(change), *self.gaps_before(change, older)}
            if {*self.tracer.gaps(change), *self.gaps_before(change)} - left:
                return True
        return False

    def gaps_before(self, change: Change, tracer: Tracer | None = None) -> tuple[tuple[int, str], ...]:
        """Lines of the original that a change replaced or removed and that have not run, conditions on both sides."""
        tracer = tracer or self.older
        found = [one for one in tracer.changes if one.definition == change.definition]
        return tuple((line, f"in the original, {text}") for one in found for line, text in tracer.gaps(one))

    @contextmanager
    def traced_before(self) -> Iterator[Callable[[], None]]:
        """Trace a run of the original that is compared, while lines or results of conditions of it are missing.

        Yields a function that forgets what was seen: a run that ends with an error is not compared.
        """
        conditions = self.conditions[1] if self.conditions else None
        seen, results = self.older.seen(), conditions.results() if conditions else ()

        def forget() -> None:
            self.older.see(seen)
            if conditions:
                conditions.take(results)

        try:
            with ExitStack() as stack:
                if any(self.gaps_before(change) for change in self._live()):
                    stack.enter_context(self.older)
                if conditions:
                    stack.enter_context(conditions)
                yield forget
        except BaseException:
            forget()
            raise

    @contextmanager
    def plant(self, mutant: Mutant) -> Iterator[None]:
        """Run a mutant in place of the changed version while the context lasts."""
        self.planted = mutant.name
        try:
            with planted(mutant):
                yield
        finally:
            self.planted = ""

    def condition_gaps(self, definition: str) -> tuple[str, ...]:
        """Return a sentence for each condition in changed lines of either version that did not take all results."""
        if self.conditions is None:
            return ()
        changed, original = (conditions.gaps(definition) for conditions in self.conditions)
        return (*changed, *(f"in the original, {sentence}" for sentence in original))

    def reached(self, change: Change) -> bool:
        """Whether anything of a change has run and been compared."""
        record = self.ledger.records[change.definition]
        return bool(record.replays or record.wholes)

    def uncovered(self) -> tuple[Change, ...]:
        """Changes that still need a run: not compared yet, or with lines that never ran."""
        return tuple(c for c in self._live() if self._lacking(c))

    def _lacking(self, change: Change) -> bool:
        return not self.reached(change) or bool(self.tracer.gaps(change) or self.gaps_before(change))

    def complete(self, definition: str) -> bool:
        """Whether a definition was compared with nothing of it missing."""
        return not any(self._lacking(change) for change in self.changes if change.definition == definition)

    def missing(self) -> tuple[Change, ...]:
        """Changes that are uncovered, or of which a relative has not run yet."""
        return tuple(c for c in self._live() if self._lacking(c) or self._strangers(c))

    def unmet(self) -> tuple[Relative, ...]:
        """Relatives of definitions not refuted yet that have not run."""
        return tuple(dict.fromkeys(relative for change in self._live() for relative in self._strangers(change)))

    def wanted(self) -> frozenset[str]:
        """Names of the definitions that a model should contain to be of use, whichever lines it reaches."""
        new = frozenset(change.definition for change in self._live() if not self.reached(change))
        return new | {relative.name for relative in self.unmet()}

    def strangers(self, change: Change) -> tuple[str, ...]:
        """Return a sentence for every relative of a change that has not run."""
        return tuple(f"{one.name}, which {one.why}, never ran" for one in self._strangers(change))

    def _live(self) -> tuple[Change, ...]:
        names = self.ledger.open()
        return tuple(change for change in self.changes if change.definition in names and change.kind != "removed")

    def _strangers(self, change: Change) -> tuple[Relative, ...]:
        return tuple(relative for relative in change.relatives if not self._met(relative))

    def _met(self, relative: Relative) -> bool:
        """Whether a relative took part in comparisons in both modes; what is no module has to have run a function."""
        if self.ran.get(relative.name, set()) >= MODES:
            return True
        value = getattr(self.original, relative.name, None)
        if not (isinstance(value, type) and issubclass(value, torch.nn.Module)):
            return any(relative.first <= line <= relative.last for line in self.tracer.entered)
        if getattr(value, "forward", None) is not torch.nn.Module.forward:
            return False
        if self.tracer.entered & _first_lines(value):
            return True  # it is never called, but other functions of it are
        # an abstract base: its subclasses run its code
        heirs = [getattr(self.original, name, None) for name, modes in self.ran.items() if modes >= MODES]
        return any(isinstance(heir, type) and issubclass(heir, value) for heir in heirs)

    def covered(self) -> bool:
        return not self.uncovered() or self.ledger.late()

    def done(self) -> bool:
        return not self.missing() or self.ledger.late()

    def restore(self, names: tuple[str, ...]) -> None:
        """Put the original definitions into the changed module, so that the others can be judged without them."""
        for name in names:
            if name != MODULE and hasattr(self.original, name):
                new = name not in self.restored
                if new:
                    self.restored[name] = define_again(name, self.original, self.changed)
                rebind(self.changed, name, self.restored[name])
                if new and self.restored[name] is not getattr(self.original, name):
                    self.shared.append(SharedState(self.changed, (name,)))

    @contextmanager
    def only(self, name: str) -> Iterator[None]:
        """Restore every changed definition but one for a while."""
        others = [c.definition for c in self.changes if c.definition not in (name, MODULE)]
        kept = {other: getattr(self.changed, other) for other in others if hasattr(self.changed, other)}
        self.restore(tuple(others))
        try:
            yield
        finally:
            for other, value in kept.items():
                rebind(self.changed, other, value)

    def blame(self, check: Callable[[], Difference | None]) -> tuple[str, ...]:
        """Return the definitions that cause a difference alone, or all that are open where none does."""
        names = self.ledger.open()
        if len(names) == 1:
            return names
        guilty = []
        for name in names:
            with self.only(name):
                if check() is not None:
                    guilty.append(name)
        return tuple(guilty) or names


def _first_lines(cls: type) -> set[int]:
    """The first lines of the functions that a class defines, its constructor aside."""
    own = (inspect.unwrap(value) for name, value in vars(cls).items() if name != "__init__" and callable(value))
    return {function.__code__.co_firstlineno for function in own if hasattr(function, "__code__")}


def seeded(seed: int, build: Callable[[ModuleType], Any], module: ModuleType) -> Any:
    """Build a model with fixed random numbers."""
    reseed(seed)
    return build(module)


def in_mode(model: Any, training: bool) -> Any:
    """Switch a model to training or evaluation, and return it: some models' own `train` returns nothing."""
    model.train(training)
    return model
