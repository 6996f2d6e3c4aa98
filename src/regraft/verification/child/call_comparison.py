"""Run a call on both versions and compare what a caller observes, within the noise of the
original's own roundings."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch

from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_observation import first_reordered_pair
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.call_recording import Recorded
from regraft.verification.child.call_variants import (
    AS_RECORDED,
    LAID_OUT,
    SMALL,
    inputs_off_by_rounding,
)
from regraft.verification.child.checks.attribute_variants import ATTRIBUTES
from regraft.verification.child.checks.size_variants import SIZES
from regraft.verification.child.checks.value_variants import EXTREME, VALUES
from regraft.verification.child.comparison_setting import Setting
from regraft.verification.child.comparison_terms import HALVES, Difference, Largest, Rigour
from regraft.verification.child.evidence_record import Record
from regraft.verification.child.float64_runs import execute_exactly
from regraft.verification.child.jittered_results import JITTERED, farther_outcome
from regraft.verification.child.model_pair import Pair
from regraft.verification.child.operation_noise import OperationNoise
from regraft.verification.child.outcome_comparison import unsteady_paths, without_paths
from regraft.verification.child.parameter_alterations import (
    BIASES,
    BUFFERS,
    LOW,
    PAIRED,
    alteration_of,
)
from regraft.verification.child.rounding import GROSS_IF_SATURATED
from regraft.verification.child.session import Session
from regraft.verification.child.state_watch import is_state
from regraft.verification.child.torch_modes import AUTOCAST
from regraft.verification.types import ORDER

_SLOW_RUN = 1.5  # seconds of processor time; slower runs are left out, or run without mutants


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a comparison: the original, its counterpart in the changed version, and on
    demand each of them in float64.

    `definition` is "" for a whole model. `exact_original` takes a flag: True copies weights anew,
    because they are altered for a while.
    """

    definition: str
    original: Target
    changed: Target
    exact_original: Callable[[bool], Target]
    exact_changed: Callable[[], Target]


def sides_of(entry: Recorded, setting: Setting, session: Session) -> Sides:
    """Return both versions of the module of a recorded call, or of its function of the file, as the
    sides of a comparison, whose effects are observed under the strict contract only."""
    pair, path, name = setting.pair, entry.path, entry.definition
    if path is not None:
        return module_sides(pair, path, name, session)
    original, changed, effects = session.original, session.changed, session.strict
    old_function, new_function = getattr(original, name), getattr(changed, name)
    return Sides(
        name,
        Target(pair.original, "", old_function, original, effects),
        Target(pair.changed, "", new_function, changed, effects),
        lambda fresh: Target(pair.exact(fresh=fresh), "", old_function, original, effects),
        lambda: Target(pair.cast(torch.float64).changed, "", new_function, changed, effects),
    )


def module_sides(pair: Pair, path: str, name: str, session: Session) -> Sides:
    """Return both sides of the module at `path` ("" for the model itself); `name` is its
    definition, "" for a whole model."""
    original, changed, effects = session.original, session.changed, session.strict
    return Sides(
        name,
        Target(pair.original, path, None, original, effects),
        Target(pair.changed, path, None, changed, effects),
        lambda fresh: Target(pair.exact(fresh=fresh), path, None, original, effects),
        lambda: Target(pair.cast(torch.float64).changed, path, None, changed, effects),
    )


def is_altered(call: Call) -> bool:
    """Return whether the models have other parameters or attributes while a call runs, by its label
    and kind."""
    has_other_parameters = call.label in (SMALL, BUFFERS) or alteration_of(call.label) is not None
    return has_other_parameters or call.beyond == ATTRIBUTES


def is_strict(call: Call) -> bool:
    """Return whether the comparison of a call is strict: of a recorded call or another layout of
    it, and of calls beyond the recorded ones, but for other values."""
    return call.label in (AS_RECORDED, *LAID_OUT) or call.beyond not in ("", VALUES, EXTREME)


def has_exact_parameters(call: Call) -> bool:
    """Return whether biases are a number with which code compares, or rows of parameters are equal,
    while a call runs, which no rounding moves."""
    return call.label.startswith(BIASES) or call.label == PAIRED


def compare_runs(
    sides: Sides, call: Call, plan: Plan, session: Session
) -> Difference | Outcome | None:
    """Run a call on both versions; return a difference, or the changed version's outcome where both
    agree, or None where the original raises, or takes longer than `_SLOW_RUN` on inputs of other
    sizes than recorded.

    State that differs between two runs of the original does not count. Second derivatives that a
    kernel of the changed version lacks, and an order of hooks that it loses, are noted in the
    record and are no difference; without those derivatives nothing is compared. The largest
    differences are added to the record. Pending mutants run through a comparison without a
    difference, unless the original is slow, and are marked as killed where they differ.
    """
    ledger, name = session.ledger, sides.definition
    started = time.process_time()
    original_outcome = _run_original(sides, call, plan, session)
    seconds = time.process_time() - started
    if original_outcome is None or (call.beyond == SIZES and seconds > _SLOW_RUN):
        return None
    with session.trace_changed(name, call.label):
        changed_outcome = execute(sides.changed, call, plan)
    if plan.twice and original_outcome.second is not None:
        loss = _missing_derivative(changed_outcome)
        if loss:
            ledger.records[name].given_up.add(loss)
            return changed_outcome
    comparison = _Comparison(sides, call, plan, session, original_outcome)
    difference, changed_outcome = _judge_without_noise(comparison, changed_outcome)
    if difference is not None:
        return difference
    pair = first_reordered_pair(comparison.original_outcome.order, changed_outcome.order)
    if pair:
        ledger.records[name].losses.add(
            f"{ORDER}: hooks on {pair[0]!r} run after those on {pair[1]!r}, in the original before"
            " them"
        )
    if seconds < _SLOW_RUN:
        _run_pending_mutants(comparison)
    return changed_outcome


def _run_original(sides: Sides, call: Call, plan: Plan, session: Session) -> Outcome | None:
    """Return the outcome of the original, in a step of the journal; None where it raises; the lines
    that it ran are forgotten then. Such an error is noted in `ledger.skipped` only for a call with
    recorded inputs and layouts, in no mode. None also for a call beyond the recorded ones in which
    the original ended an earlier process, which is noted."""
    ledger, name = session.ledger, sides.definition
    if call.beyond and call.label in ledger.avoided:
        ledger.skip(f"{name}, {call.label}: the original ended an earlier process or hung in it")
        return None
    with ledger.step("original", name, call.label), session.trace_original() as forget:
        outcome = execute(sides.original, call, plan)
    if outcome.error is None:
        return outcome
    forget()
    # not every module runs under these conditions
    if call.label not in LAID_OUT and not call.beyond and not plan.mode:
        ledger.skip(f"{name}, {call.label}: the original raises {type(outcome.error).__name__}")
    return None


@dataclass(slots=True)
class _Comparison:
    """A call on both versions, with the original's outcome and further runs of the original on
    demand. The outcome in float64 is stored after its first run."""

    sides: Sides
    call: Call
    plan: Plan
    session: Session
    original_outcome: Outcome
    _exact_outcome: Outcome | None = None

    @property
    def counts_errors(self) -> bool:
        """Return whether mean errors in half precision count: only in recorded calls without a
        mode, and only for a change by hand."""
        is_plain = self.call.label == AS_RECORDED and not self.call.beyond and not self.plan.mode
        return is_plain and not self.session.by_rules

    def judge(
        self,
        changed_outcome: Outcome,
        largest: Largest,
        original_outcome: Outcome | None = None,
        *,
        with_errors: bool = False,
    ) -> Difference | None:
        """Return the difference between `changed_outcome` and `original_outcome` (by default the
        original's own), None where they are equal; add differences of equal results to `largest`.

        The comparison is strict, except for perturbed inputs and for values beyond the recorded
        ones. `with_errors` as in `outcome_comparison.judge`.
        """
        return self.session.judge(
            original_outcome or self.original_outcome,
            changed_outcome,
            self.truth,
            largest,
            Rigour(
                is_strict(self.call),
                self.session.by_rules,
                self.call.label == LOW,
                absent_is_zero=self.session.by_rules or not self.session.strict,
            ),
            jittered=self.jittered,
            with_errors=with_errors,
        )

    def truth(self) -> Outcome:
        """Return the original's outcome in float64; the first call runs it, later ones return that
        outcome."""
        if self._exact_outcome is None:
            with self.session.ledger.step("truth", self.sides.definition, self.call.label):
                target = self.sides.exact_original(is_altered(self.call))
                with ExitStack() as stack:
                    alteration = (
                        alteration_of(self.call.label) if has_exact_parameters(self.call) else None
                    )
                    if alteration is not None and target.module is not None:
                        # the copies have the numbers rounded to float32
                        stack.enter_context(weights.change_parameters(target.module, alteration))
                    self._exact_outcome = execute_exactly(
                        target,
                        self.sides.original,
                        self.call,
                        self.plan,
                        draws=self.original_outcome.draws,
                    )
        return self._exact_outcome

    def jittered(self) -> Outcome:
        """Return the original's outcome for inputs that are off by one rounding.

        Also run a module `JITTERED` times with parameters that are off by one rounding, and return
        by path the values that lie farthest from its own: whole numbers have no roundings, and
        large numbers or biases of -100 enlarge those of the parameters. The parameters are
        restored. Biases that code compares with a number stay, except in half precision. Where
        values are not those that a model sees, it runs again with roundings in its operations:
        beside biases of -100 those of inputs and parameters vanish. What these runs move by a
        larger part than `GROSS_IF_SATURATED` does not count: equal numbers that one of them
        separates are a decision of the model (an argmax over equal scores), and no rounding.
        """
        original = self.sides.original
        farthest = execute(original, inputs_off_by_rounding(self.call), self.plan)
        dtype = torch.bfloat16 if self.plan.mode == AUTOCAST else None
        is_half = dtype is not None or _is_half_precision(self.original_outcome)
        if has_exact_parameters(self.call) and not is_half:
            return farthest
        if original.module is None and is_strict(self.call):
            return farthest
        for seed in range(JITTERED):
            with ExitStack() as stack:
                if original.module is not None:
                    change = weights.parameters_off_by_rounding(seed, dtype)
                    stack.enter_context(weights.change_parameters(original.module, change))
                    rounded = execute(original, inputs_off_by_rounding(self.call), self.plan)
                    farthest = farther_outcome(self.original_outcome, farthest, rounded)
                if not is_strict(self.call):
                    stack.enter_context(OperationNoise(seed))
                    rounded = execute(original, inputs_off_by_rounding(self.call), self.plan)
                    farthest = farther_outcome(
                        self.original_outcome, farthest, rounded, GROSS_IF_SATURATED
                    )
        return farthest


def _is_half_precision(outcome: Outcome) -> bool:
    """Return whether at least one output of a run is a tensor in half precision."""
    return any(
        isinstance(value, torch.Tensor) and value.dtype in HALVES
        for value in outcome.outputs.values()
    )


def _judge_without_noise(
    comparison: _Comparison, changed_outcome: Outcome
) -> tuple[Difference | None, Outcome]:
    """Return the difference of the changed version's outcome, and this outcome. Where state
    differs, what differs between two runs of the original is taken out of both outcomes, and they
    are compared once more. The largest differences are added to the record of the definition."""
    sides, ledger = comparison.sides, comparison.session.ledger
    record = ledger.records.get(sides.definition)
    largest = record.largest if record is not None else Largest()
    with_errors = comparison.counts_errors
    difference = comparison.judge(changed_outcome, largest, with_errors=with_errors)
    if difference is None or not is_state(difference.path):
        return difference, changed_outcome
    original_outcome = comparison.original_outcome
    repeated_outcome = execute(sides.original, comparison.call, comparison.plan)
    noise = unsteady_paths(original_outcome, repeated_outcome)
    comparison.original_outcome = without_paths(original_outcome, noise)
    changed_outcome = without_paths(changed_outcome, noise)
    difference = comparison.judge(changed_outcome, largest, with_errors=comparison.counts_errors)
    return difference, changed_outcome


def _run_pending_mutants(comparison: _Comparison) -> None:
    """Run a call on each mutant of the definition that no comparison has told from the original,
    after both versions agreed on it, and set the mutant's `killed` by whether it differs. Do
    nothing where the session has no mutants, while a mutant is planted, for second derivatives, or
    where the plan has none."""
    session, sides = comparison.session, comparison.sides
    plan = comparison.plan
    if session.planted or plan.twice or not plan.mutants:
        return
    plan = replace(plan, repeat=False)
    original_outcome = replace(comparison.original_outcome, repeated={}, repeated_gradients=None)
    structure = call_arguments.structure(comparison.call)
    versions = (session.mutants, sides.changed), (session.old_mutants, sides.original)
    for mutants, target in versions:
        for mutant in mutants.pending(sides.definition, structure) if mutants else ():
            with session.plant(mutant), session.trace_changed(mutant.definition, ""):
                mutant_outcome = execute(target, comparison.call, plan)
            difference = comparison.judge(mutant_outcome, Largest(), original_outcome)
            mutant.killed = difference is not None


def _missing_derivative(outcome: Outcome) -> str:
    """Return "second derivatives (KERNEL has none)" where the backward error of a run says that a
    kernel's derivative is not implemented; else ""."""
    text = str(outcome.backward_error or "")
    kernel = re.match(r"derivative for (\S+) is not implemented", text)
    return f"second derivatives ({kernel[1]} has none)" if kernel else ""


def count_comparison(
    record: Record, setting: Setting, call: Call, outcome: Outcome, mode: str = ""
) -> None:
    """Add a comparison without a difference to `record`, in place: the subject (unless it is
    compared once), driver, mode, number format, seed, shapes (for recorded inputs only), gradients,
    and by kind in `record.domain` the devices, the label of a call beyond the recorded inputs, and
    `mode`."""
    if not setting.subject.once:
        record.models.add(setting.subject.name)
    record.drivers.add(setting.subject.driver)
    record.modes.add(setting.mode)
    record.dtypes.add(setting.dtype)
    record.seeds.add(setting.seed)
    if call.label not in LAID_OUT and not call.beyond:
        record.shapes.add(str(call_arguments.shapes(call)))
    record.gradients += outcome.gradients is not None
    devices = {
        value.device.type for value in outcome.outputs.values() if isinstance(value, torch.Tensor)
    }
    record.domain.setdefault("devices", set()).update(devices)
    if call.beyond:
        record.domain.setdefault(call.beyond, set()).add(call.label)
    if mode:
        record.domain.setdefault("modes", set()).add(mode)
