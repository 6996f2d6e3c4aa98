"""Build a subject from both versions, give both the same weights, and check that checkpoints carry over."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from regraft.verify.child import weights
from regraft.verify.child.compare import Difference, close, unlike
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.session import Session, seeded
from regraft.verify.child.state import attributes

FEWEST = 64  # values from which on a distribution shows


@dataclass(slots=True)
class Pair:
    """The same model from both versions, in one number format."""

    original: Any
    changed: Any
    _exact: Any = None

    def exact(self, *, fresh: bool = False) -> Any:
        """Return the original in float64; `fresh` where its weights were altered for a while."""
        if fresh:
            return weights.copied(self.original).to(torch.float64)
        if self._exact is None:
            self._exact = weights.copied(self.original).to(torch.float64)
        return self._exact

    def cast(self, dtype: Any) -> Pair:
        """Return a copy in another number format."""
        if dtype == torch.float32:
            return Pair(self.original, self.changed)
        return Pair(weights.copied(self.original).to(dtype), weights.copied(self.changed).to(dtype))

    @contextmanager
    def mode(self, training: bool, rate: float) -> Iterator[None]:
        """Switch both to training or evaluation with one dropout rate."""
        self._exact = None
        with ExitStack() as stack:
            for model in (self.original, self.changed):
                model.train(training)
                stack.enter_context(weights.dropout_rate(model, rate))
            yield
        self._exact = None


def build(subject: Subject, seed: int, session: Session) -> Pair | Difference | None:
    """Return both models with equal redrawn weights, the difference between them, or None where there is no model."""
    ledger = session.ledger
    session.rewind()
    original = _build_original(subject, seed, session)
    if original is None:
        return None
    try:
        with session.traced("", f"build {subject.name}"), _marked():
            changed = seeded(seed, subject.build, session.changed)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; it is the finding
        return Difference("", f"building {subject.name} from the changed version raises {_brief(error)}")
    ledger.reach("builds")
    found = _fresh_difference(original, changed, session.strict)
    found = found or _attribute_difference(original, changed, subject, seed, session)
    if found:
        return found
    weights.redraw(original, seed)
    found = _exchange(original, changed)
    if found is None:
        ledger.reach("state_dict")
    return found or Pair(original, changed)


def _build_original(subject: Subject, seed: int, session: Session) -> Any:
    """Return the original's model, or None where it cannot be built."""
    try:
        with session.ledger.step("original", "", f"build {subject.name}"), session.traced_before(), _marked():
            return seeded(seed, subject.build, session.original)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; recorded as the reason to skip
        session.ledger.skip(f"{subject.name} ({subject.driver}): the original cannot be built: {_brief(error)}")
        return None


@contextmanager
def _marked() -> Iterator[None]:
    """Fill what is left uninitialised (`torch.empty`) with NaN, so that two builds agree on it."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _attribute_difference(
    original: Any, changed: Any, subject: Subject, seed: int, session: Session
) -> Difference | None:
    """Compare the plain attributes that construction leaves on the modules that are of one class in both versions.

    What differs between two originals of other seeds depends on chance, and is left alone. Where only results count,
    an attribute may be missing, but not hold something else: a rate of dropout, say.
    """
    wrong = _other_attributes(original, changed, session.original, session.changed, session.strict)
    if wrong:
        session.rewind()
        another = _build_original(subject, seed + 1, session)
        if another is not None:
            chance = _other_attributes(original, another, session.original, session.original, session.strict)
            wrong = {path: sentence for path, sentence in wrong.items() if path not in chance}
    return next((Difference(path, f"after construction {sentence}") for path, sentence in wrong.items()), None)


def _other_attributes(
    original: Any, other: Any, ours: ModuleType, theirs: ModuleType, strict: bool
) -> dict[str, str]:
    found: dict[str, str] = {}
    parts = dict(other.named_modules())
    for path, part in original.named_modules():
        if path in parts and type(part).__qualname__ == type(parts[path]).__qualname__:
            found.update(unlike(attributes(part, path, ours), attributes(parts[path], path, theirs)))
    return {name: text for name, text in found.items() if strict or not text.endswith(" is missing")}


def _fresh_difference(original: Any, changed: Any, strict: bool) -> Difference | None:
    """Compare what construction leaves behind: names, shapes and every value that does not depend on chance.

    Names of submodules without a part in the checkpoint count only where the comparison is `strict`.
    """
    found = _tree_difference(original, changed, strict)
    if found:
        return found
    before, after = original.state_dict(), changed.state_dict()
    if sorted(before) != sorted(after):
        gone = sorted(set(before) - set(after))[:3]
        new = sorted(set(after) - set(before))[:3]
        return Difference("state_dict", f"the state_dict has other keys: missing {gone}, new {new}")
    for name, value in before.items():
        other = after[name]
        if not isinstance(value, torch.Tensor):
            continue
        if value.shape != other.shape or value.dtype != other.dtype:
            sentence = f"{name} is {other.dtype} {tuple(other.shape)}, not {value.dtype} {tuple(value.shape)}"
            return Difference(name, f"in the state_dict {sentence}")
        constant = value.numel() > 0 and bool((value == value.flatten()[0]).all())
        if constant and not close(value, other):
            return Difference(name, f"{name} starts with other values than the original's constant")
        if not constant and not _drawn_alike(value, other):
            return Difference(name, f"{name} starts with values of another distribution")
    return _buffer_difference(dict(original.named_buffers()), dict(changed.named_buffers()))


def _tree_difference(original: Any, changed: Any, strict: bool) -> Difference | None:
    """Compare the names that callers reach into a model by: submodules, and parameters in their order.

    Optimizers save their state by the order of the parameters. A submodule may be of another type; a subclass, say.
    """
    parts = dict(changed.named_modules())
    gone = [path for path, _ in original.named_modules() if path not in parts]
    if gone and strict:
        return Difference(gone[0], f"the submodule {gone[0]} is gone")
    before = [name for name, _ in original.named_parameters()]
    after = [name for name, _ in changed.named_parameters()]
    if before != after and sorted(original.state_dict()) == sorted(changed.state_dict()):
        if sorted(before) == sorted(after):
            return Difference("parameters", f"the parameters have another order: {after[:3]}, not {before[:3]}")
        missing, new = sorted(set(before) - set(after))[:3], sorted(set(after) - set(before))[:3]
        return Difference("parameters", f"the parameters are others: missing {missing}, new {new}")
    frozen = {name: p.requires_grad for name, p in changed.named_parameters()}
    for name, parameter in original.named_parameters():
        if frozen.get(name, parameter.requires_grad) != parameter.requires_grad:
            return Difference(name, f"{name} has requires_grad={frozen[name]}, not {parameter.requires_grad}")
    return None


def _drawn_alike(value: Any, other: Any) -> bool:
    """Whether random initial values have one mean and spread; they may be drawn in another order.

    Both lie within eight standard errors of each other, for distributions with tails no heavier than a Laplace's.
    """
    if not value.is_floating_point():
        return True
    known = ~value.isnan()  # what nobody initialised
    if not torch.equal(known, ~other.isnan()):
        return False
    ours, theirs = value[known].double(), other[known].double()
    if torch.equal(ours, theirs) or value.numel() < FEWEST:
        return True
    spread, error = float(ours.std()), 8 * math.sqrt(2 / value.numel())
    means = abs(float(ours.mean() - theirs.mean())) <= error * spread
    return means and abs(float(theirs.std()) - spread) <= 1.5 * error * spread


def _buffer_difference(before: dict[str, Any], after: dict[str, Any]) -> Difference | None:
    for name, value in before.items():
        other = after.get(name)
        if other is None or value.shape != other.shape or value.dtype != other.dtype or not close(value, other):
            return Difference(name, f"the buffer {name} is missing or has another initial value")
    return None


def _exchange(original: Any, changed: Any) -> Difference | None:
    """Load each state_dict strictly into the other version; both end with the original's values."""
    try:
        changed.load_state_dict(original.state_dict(), strict=True)
    except Exception as error:  # noqa: BLE001 - load hooks are model code; it is the finding
        return Difference("state_dict", f"the original's checkpoint does not load: {_brief(error)}")
    expected = {
        name: value.clone() for name, value in original.state_dict().items() if isinstance(value, torch.Tensor)
    }
    try:
        original.load_state_dict(changed.state_dict(), strict=True)
    except Exception as error:  # noqa: BLE001 - load hooks are model code; it is the finding
        return Difference("state_dict", f"the changed version's checkpoint does not load: {_brief(error)}")
    kept = original.state_dict()
    wrong = [name for name, value in expected.items() if not torch.equal(value, kept[name])]
    if wrong:
        return Difference(wrong[0], f"{wrong[0]} does not survive saving from the changed version")
    return None


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
