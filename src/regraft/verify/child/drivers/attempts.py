"""Run a model once on inputs, and measure how far it came."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from torch.overrides import TorchFunctionMode

from regraft.verify.child.drivers.slots import Spec, make_call
from regraft.verify.child.replay import Plan, Target, execute

# (batch, length), which differ from each other and from common sizes in an error message
SIZE = (3, 7)
TYPE_ERROR = (
    r"scalar type|dtype|must be long|Expected tensor for argument|be of type|float|LongTensor|used"
    r" as indices must"
)
ATTRIBUTE_ERROR = r"'types.SimpleNamespace' object has no attribute '(\w+)'"


class Counter(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Counts the operations of torch that run inside the context, as a measure of progress."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def reset(self, *_: Any) -> None:
        """Start counting from 0; a hook may pass any arguments."""
        self.count = 0

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a model.

    `progress` is the number of operations before `error`, which is None for a whole run; `took` is
    in seconds.
    """

    spec: Spec
    progress: int
    error: BaseException | None
    size: tuple[int, int] = SIZE
    took: float = 0.0

    @property
    def text(self) -> str:
        """Return the error's class and message on one line."""
        return f"{type(self.error).__name__}: {' '.join(str(self.error).split())}"

    @property
    def rank(self) -> tuple[int, int]:
        """Return a sort key, the largest for the attempt that came furthest: its progress, then the
        kind of its error.

        With equal progress, an operation that accepts the types of its arguments came further than
        one that does not, and a run that only misses an attribute of an object came further than
        either.
        """
        if re.search(ATTRIBUTE_ERROR, self.text):
            return self.progress, 2
        return self.progress, int(not re.search(TYPE_ERROR, self.text))


def attempt(model: Any, spec: Spec, size: tuple[int, int] = SIZE) -> Attempt:
    """Run the model once on what a specification gives at one size, and return how far it came, its
    error and the time that it took."""
    start = time.process_time()
    # what copies the arguments is no progress
    with Counter() as counter, model.register_forward_pre_hook(counter.reset):
        error = execute(Target(model), make_call(spec, size, 0), Plan(gradients=False)).error
    return Attempt(spec, counter.count, error, size, time.process_time() - start)
