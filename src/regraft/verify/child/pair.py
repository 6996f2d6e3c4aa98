"""Build a subject from both versions, give both the same weights, and check that checkpoints carry over."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from regraft.verify.child import weights
from regraft.verify.child.compare import Difference, close
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.session import Session, seeded


@dataclass(slots=True)
class Pair:
    """The same model from both versions, in one number format."""

    original: Any
    changed: Any
    _exact: Any = None

    def exact(self, *, fresh: bool = False) -> Any:
        """Return the original in float64; `fresh` where its weights were altered for a while."""
        if fresh:
            return copy.deepcopy(self.original).to(torch.float64)
        if self._exact is None:
            self._exact = copy.deepcopy(self.original).to(torch.float64)
        return self._exact

    def cast(self, dtype: Any) -> Pair:
        """Return a copy in another number format."""
        if dtype == torch.float32:
            return Pair(self.original, self.changed)
        return Pair(copy.deepcopy(self.original).to(dtype), copy.deepcopy(self.changed).to(dtype))

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
    try:
        with ledger.step("original", "", f"build {subject.name}"):
            original = seeded(seed, subject.build, session.original)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; recorded as the reason to skip
        ledger.skip(f"{subject.name} ({subject.driver}): the original cannot be built: {_brief(error)}")
        return None
    try:
        with session.traced("", f"build {subject.name}"):
            changed = seeded(seed, subject.build, session.changed)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; it is the finding
        return Difference("", f"building {subject.name} from the changed version raises {_brief(error)}")
    ledger.reach("builds")
    found = _fresh_difference(original, changed)
    if found:
        return found
    weights.redraw(original, seed)
    found = _exchange(original, changed)
    if found is None:
        ledger.reach("state_dict")
    return found or Pair(original, changed)


def _fresh_difference(original: Any, changed: Any) -> Difference | None:
    """Compare what construction leaves behind: names, shapes and every value that does not depend on chance."""
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
    return _buffer_difference(dict(original.named_buffers()), dict(changed.named_buffers()))


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
