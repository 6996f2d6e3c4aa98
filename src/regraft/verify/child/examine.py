"""Compare one subject at every level and note the outcome per definition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch

from regraft.verify.child import tree, weights
from regraft.verify.child.compare import Difference, Largest
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.failure import describe
from regraft.verify.child.ledger import Record
from regraft.verify.child.pair import Pair, build
from regraft.verify.child.record import Recorded, Recorder, recording
from regraft.verify.child.replay import Outcome, Plan, Target, execute, judge, unsteady, without
from regraft.verify.child.session import Session
from regraft.verify.child.state import is_state
from regraft.verify.child.tree import Call
from regraft.verify.child.variants import AS_RECORDED, LAID_OUT, SMALL, laid_out, off_by_one_rounding, variants

SEEDS = (0, 1)
RUNS = 3  # of the original against itself, before a difference is held against the changed version
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Setting:
    """Under which conditions a comparison runs."""

    subject: Subject
    pair: Pair
    seed: int
    dtype: str
    training: bool

    @property
    def mode(self) -> str:
        return "train" if self.training else "eval"

    @property
    def first(self) -> bool:
        """Whether what needs no second seed or number format is compared here."""
        return self.seed == SEEDS[0] and self.dtype == "float32" and not self.subject.light


def examine(subject: Subject, session: Session) -> None:
    """Run a subject with both seeds, number formats and modes; refuted definitions are taken out on the way."""
    for seed in SEEDS:
        for dtype in DTYPES if seed == SEEDS[0] else DTYPES[:-1]:  # float16 once: the rest of it is bfloat16's
            for training in (False, True):
                if not session.ledger.open() or session.ledger.late():
                    return
                if not _examine_setting(subject, session, seed, dtype, training):
                    return
    session.ledger.save()


def _examine_setting(subject: Subject, session: Session, seed: int, dtype: Any, training: bool) -> bool:
    """Return False where the subject is of no further use."""
    done: set[int] = set()
    varied: set[str] = set()
    recorder: Recorder | None = None
    while True:
        made = make_pair(subject, seed, session)
        if made is None:
            return False
        pair = made.cast(dtype)
        setting = Setting(subject, pair, seed, str(dtype).removeprefix("torch."), training)
        # Evaluation keeps a high dropout rate: a version that drops there shows itself. Training is exact at rate 0.
        with pair.mode(training, 0.0 if training else weights.RATE):
            recorder = recorder or record_calls(setting, session)
            if recorder is None:
                return bool(dtype != torch.float32)
            if _replay_until_refuted(recorder.found, done, varied, setting, session):
                break
        session.restore(session.ledger.refuted())
    _whole(setting, session, frozenset(entry.definition for entry in recorder.found))
    for name in recorder.ran:
        session.ran.setdefault(name, set()).add(setting.mode)
    session.ledger.save()
    return True


def _replay_until_refuted(
    entries: list[Recorded], done: set[int], varied: set[str], setting: Setting, session: Session
) -> bool:
    """Replay what is not done yet, innermost first; return False once something is refuted.

    What holds an instance of it has to be built anew then, so that it is judged without the fault of another. Every
    instance is replayed as recorded; on other inputs only the first of those with equal layers, settings and shapes.
    """
    for number, entry in sorted(enumerate(entries), key=lambda pair: -depth(pair[1])):
        if number in done or entry.definition not in session.ledger.open():
            continue
        done.add(number)
        kind = _kind(entry, setting)
        _replay_all(entry, setting, session, light=setting.subject.light or kind in varied)
        varied.add(kind)
        if entry.definition not in session.ledger.open() and session.ledger.open():
            return False
    return True


def _kind(entry: Recorded, setting: Setting) -> str:
    """What makes two recorded calls of a definition alike: the printed layers, their plain attributes, the shapes."""
    parts = dict(setting.pair.original.named_modules())
    part = parts.get(entry.path) if entry.path is not None else None
    plain = {
        f"{path}.{name}": value
        for path, inner in (part.named_modules() if part is not None else ())
        for name, value in vars(inner).items()
        if isinstance(value, bool | int | float | str)
    }
    return f"{entry.definition} {part} {plain} {tree.shapes(entry.call)}"


def depth(entry: Recorded) -> float:
    return float("inf") if entry.path is None else entry.path.count(".") + bool(entry.path)


def make_pair(subject: Subject, seed: int, session: Session) -> Pair | None:
    made = build(subject, seed, session)
    while isinstance(made, Difference):
        guilty = session.blame(lambda: as_difference(build(subject, seed, session)))
        for name in guilty:
            session.ledger.refute(name, made.sentence, describe(subject, seed, None, None, made))
        session.restore(guilty)
        made = build(subject, seed, session) if session.ledger.open() else None
    return made


def as_difference(made: Pair | Difference | None) -> Difference | None:
    return made if isinstance(made, Difference) else None


def record_calls(setting: Setting, session: Session) -> Recorder | None:
    """Run the original on all calls; None where it does not run."""
    model, name = setting.pair.original, setting.subject.name
    target = Target(model, scope=session.original)
    noted = frozenset(relative.name for relative in session.unmet())
    with recording(session.original, session.ledger.open(), model, noted) as recorder:
        for call in setting.subject.calls(setting.seed):
            with session.ledger.step("original", "", f"run {name} in {setting.mode} mode, {setting.dtype}"):
                outcome = execute(target, _fitted(call, setting), Plan(seed=setting.seed, gradients=False))
            if outcome.error is not None:
                text = f"{name} ({setting.subject.driver}): the original does not run in {setting.dtype}"
                session.ledger.skip(f"{text}: {type(outcome.error).__name__}: {str(outcome.error)[:200]}")
                return None
    return recorder


def _fitted(call: Call, setting: Setting) -> Call:
    """Give a call's float tensors the model's number format."""
    if setting.dtype == "float32":
        return call
    dtype = getattr(torch, setting.dtype)

    def cast(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return Call(tree.map_leaves(call.args, cast), tree.map_leaves(dict(call.kwargs), cast), call.label)


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared: the original, its counterpart, and on demand the original in float64."""

    definition: str
    ours: Target
    theirs: Target
    exact: Callable[[bool], Target]


def sides_of(entry: Recorded, setting: Setting, session: Session) -> Sides:
    pair, path, name = setting.pair, entry.path, entry.definition
    if path is not None:
        return _module_sides(pair, path, name, session)
    before, after = session.original, session.changed
    ours, theirs = getattr(before, name), getattr(after, name)
    return Sides(
        name,
        Target(pair.original, "", ours, before),
        Target(pair.changed, "", theirs, after),
        lambda fresh: Target(pair.exact(fresh=fresh), "", ours, before),
    )


def _module_sides(pair: Pair, path: str, name: str, session: Session) -> Sides:
    before, after = session.original, session.changed
    return Sides(
        name,
        Target(pair.original, path, None, before),
        Target(pair.changed, path, None, after),
        lambda fresh: Target(pair.exact(fresh=fresh), path, None, before),
    )


def _replay_all(entry: Recorded, setting: Setting, session: Session, *, light: bool) -> None:
    """Replay all variants; of several differences the largest in relation to its values is kept."""
    if not has_counterpart(entry, setting, session):
        session.ledger.records[entry.definition].note(f"no counterpart of {entry.path!r} to replay on")
        return
    chosen = variants(entry.call)[: 1 if light else None]
    chosen += laid_out(entry.call) if setting.first and not light else ()
    found = [(call, difference) for call in chosen if (difference := _replay(entry, call, setting, session))]
    if found:
        call, difference = max(found, key=lambda pair: pair[1].relative)
        recipe = describe(setting.subject, setting.seed, setting, (entry, call), difference)
        session.ledger.refute(entry.definition, where(entry, call, setting, difference), recipe)


def has_counterpart(entry: Recorded, setting: Setting, session: Session) -> bool:
    if entry.path is None:
        return isinstance(getattr(session.changed, entry.definition, None), FunctionType)
    part = dict(setting.pair.changed.named_modules()).get(entry.path)
    # what an original class of the original module has built is no evidence
    return part is not None and (entry.path == "" or type(part).__module__ != session.original.__name__)


def where(entry: Recorded, call: Call, setting: Setting, found: Difference) -> str:
    place = f"{entry.definition} at {entry.path!r}" if entry.path else entry.definition
    what = f"{setting.mode} mode, {setting.dtype}, {call.label}, shapes {tree.shapes(call)}"
    return f"{found.sentence} ({place} of {setting.subject.name}; {what})"


@contextmanager
def _shrunk(call: Call, targets: tuple[Target, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        if call.label == SMALL:
            for target in targets:
                if target.module is not None:
                    stack.enter_context(weights.small(target.module))
        yield


def _replay(entry: Recorded, call: Call, setting: Setting, session: Session) -> Difference | None:
    record = session.ledger.records[entry.definition]
    sides = sides_of(entry, setting, session)
    plans = [Plan(setting.seed, gradients=True, repeat=call.label == AS_RECORDED)]
    if call.label == AS_RECORDED and not setting.training:
        plans.append(Plan(setting.seed, gradients=False))
    if call.label == AS_RECORDED and setting.first:
        plans += [Plan(setting.seed, twice=True)]
        plans += [Plan(setting.seed, hooked=True)] if sides.ours.module is not None else []
    with _shrunk(call, (sides.ours, sides.theirs)):
        for plan in plans:
            found = _compare_runs(sides, call, plan, session)
            if isinstance(found, Difference):
                if not isinstance(_compare_runs(sides, call, plan, session), Difference):
                    record.note(f"a difference did not reproduce: {found.sentence}")
                elif _differs_from_itself(sides, call, plan, session):
                    record.note(f"left out, because the original gives other values each time: {call.label}")
                else:
                    return found
            elif found is not None:
                _count(record, setting, call, found)
                record.replays += 1
                record.instances.add(entry.path or entry.definition)
    return None


def _differs_from_itself(sides: Sides, call: Call, plan: Plan, session: Session) -> bool:
    """Whether two of a few runs of the original differ as no two versions may: it reads memory that nobody wrote."""
    again = replace(sides, theirs=sides.ours, definition="")
    return any(isinstance(_compare_runs(again, call, plan, session), Difference) for _ in range(RUNS))


def _compare_runs(sides: Sides, call: Call, plan: Plan, session: Session) -> Difference | Outcome | None:
    """Return a difference, or the changed version's equal outcome, or None where the original does not run."""
    ledger, name = session.ledger, sides.definition
    with ledger.step("original", name, call.label), session.traced_before():
        before = execute(sides.ours, call, plan)
    if before.error is not None:
        if call.label not in LAID_OUT:  # not every module takes these
            ledger.skip(f"{name}, {call.label}: the original raises {type(before.error).__name__}")
        return None
    with session.traced(name, call.label):
        after = execute(sides.theirs, call, plan)
    memo: list[Outcome] = []

    def truth() -> Outcome:
        if not memo:
            with ledger.step("truth", name, call.label):
                target = sides.exact(call.label == SMALL)
                memo.append(execute(target, call, replace(plan, dtype=torch.float64)))
        return memo[0]

    def jittered() -> Outcome:
        return execute(sides.ours, off_by_one_rounding(call), plan)

    largest = ledger.records[name].largest if name in ledger.records else Largest()
    if plan.twice and before.second is not None and (loss := _given_up(after)):
        ledger.records[name].given_up.add(loss)
        return after
    strict = call.label in (AS_RECORDED, *LAID_OUT)
    found = judge(before, after, truth, largest, strict=strict, jittered=jittered)
    if found is not None and is_state(found.path):
        noise = unsteady(before, execute(sides.ours, call, plan))
        found = judge(without(before, noise), without(after, noise), truth, largest, strict=strict, jittered=jittered)
    return found or after


def _given_up(outcome: Outcome) -> str:
    """Return what a library's kernel does not offer by its own account: second derivatives, or nothing."""
    text = str(outcome.backward_error or "")
    kernel = re.match(r"derivative for (\S+) is not implemented", text)
    return f"second derivatives ({kernel[1]} has none)" if kernel else ""


def _count(record: Record, setting: Setting, call: Call, outcome: Outcome) -> None:
    record.models.add(setting.subject.name)
    record.drivers.add(setting.subject.driver)
    record.modes.add(setting.mode)
    record.dtypes.add(setting.dtype)
    record.seeds.add(setting.seed)
    if call.label not in LAID_OUT:
        record.shapes.add(str(tree.shapes(call)))
    record.gradients += outcome.gradients is not None


def _whole(setting: Setting, session: Session, recorded: frozenset[str]) -> None:
    """Compare the whole model on every call; a difference is pinned on the definitions that cause it."""
    for call in setting.subject.calls(setting.seed):
        fitted = replace(_fitted(call, setting), label=AS_RECORDED)
        found = _whole_difference(setting, session, fitted)
        while isinstance(found, Difference) and session.ledger.open():
            found = _pin(found, fitted, call.label, setting, session)
        if isinstance(found, Outcome):
            _credit(setting, session, fitted, found, recorded)


def _pin(found: Difference, call: Call, label: str, setting: Setting, session: Session) -> Difference | Outcome | None:
    """Refute the definitions that cause a whole model's difference, and compare again without them."""

    def check() -> Difference | None:
        result = _whole_difference(setting, session, call, fresh=True)
        return result if isinstance(result, Difference) else None

    if check() is None:
        session.ledger.skip(f"a difference of {setting.subject.name} did not reproduce: {found.sentence}")
        return None
    guilty = session.blame(check)
    where = f"{setting.subject.name} as a whole; {setting.mode} mode, {setting.dtype}, {label}"
    for name in guilty:
        recipe = describe(setting.subject, setting.seed, setting, (None, call), found)
        session.ledger.refute(name, f"{found.sentence} ({where})", recipe)
    session.restore(guilty)
    return _whole_difference(setting, session, call)


def _whole_difference(
    setting: Setting, session: Session, call: Call, *, fresh: bool = False
) -> Difference | Outcome | None:
    """Compare one call of the whole model; it is built anew where definitions were restored since."""
    if not fresh and len(session.ledger.open()) == len(session.ledger.records):
        return _whole_run(setting.pair, setting, session, call)
    made = build(setting.subject, setting.seed, session)
    if not isinstance(made, Pair):
        return made
    pair = made.cast(getattr(torch, setting.dtype))
    with pair.mode(setting.training, 0.0 if setting.training else weights.RATE):
        return _whole_run(pair, setting, session, call)


def _whole_run(pair: Pair, setting: Setting, session: Session, call: Call) -> Difference | Outcome | None:
    plan = Plan(setting.seed, gradients=True, repeat=True)
    sides = _module_sides(pair, "", "", session)
    found = _compare_runs(sides, call, plan, session)
    if isinstance(found, Difference) and setting.dtype != "float32" and _rounding_only(sides, call, plan):
        return execute(sides.theirs, call, plan)
    return found


def _rounding_only(sides: Sides, call: Call, plan: Plan) -> bool:
    """In half precision, errors pile up over layers: the whole model is judged by its error's overall size."""
    exact = execute(sides.exact(False), call, replace(plan, dtype=torch.float64))
    before, after = execute(sides.ours, call, plan), execute(sides.theirs, call, plan)
    if exact.error or before.error or after.error or list(before.outputs) != list(after.outputs):
        return False
    if after.backward_error or set(after.overwritten) - set(before.overwritten):
        return False
    for truth, ours, theirs in (
        (exact.outputs, before.outputs, after.outputs),
        (exact.gradients, before.gradients, after.gradients),
    ):
        for path, value in (ours or {}).items():
            other = (theirs or {}).get(path)
            if isinstance(value, torch.Tensor):
                if not _no_worse(value, other, (truth or {}).get(path)):
                    return False
            elif is_state(path) and value != other:
                return False
    return True


def _no_worse(before: Any, after: Any, exact: Any) -> bool:
    if not isinstance(after, torch.Tensor) or not isinstance(exact, torch.Tensor):
        return False
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if not before.is_floating_point():
        return bool(torch.equal(before, after))
    own, new = (before.double() - exact).norm(), (after.double() - exact).norm()
    return bool(new <= 2 * own + 2 * torch.finfo(before.dtype).eps * exact.double().norm())


def _credit(setting: Setting, session: Session, call: Call, outcome: Outcome, recorded: frozenset[str]) -> None:
    """Count a whole-model comparison for every definition that took part in it."""
    for change in session.changes:
        record = session.ledger.records[change.definition]
        ran = change.definition in recorded or not session.tracer.gaps(change)
        if ran and not record.refuted:
            record.wholes += 1
            _count(record, setting, call, outcome)
