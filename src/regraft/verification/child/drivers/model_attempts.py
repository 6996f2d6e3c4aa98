"""Run a model once on inputs, and measure its progress: the number of operations of torch that ran
before an error."""

from __future__ import annotations

import inspect
import re
import time
from dataclasses import dataclass
from typing import Any

from torch.overrides import TorchFunctionMode

from regraft.verification.child.call_execution import execute, frames_of
from regraft.verification.child.call_outcomes import Plan, Target, drop_traceback
from regraft.verification.child.drivers.argument_slots import Spec
from regraft.verification.child.drivers.slot_values import make_call

# The (batch, length) of a run during a search: numbers that differ from each other and from common
# sizes, so that an error message which has them is about the batch or the length.
SIZE = (3, 7)
# The texts of errors about the type of a tensor, and about an attribute that the stand-in for an
# object (`SimpleNamespace`) lacks; the group is the attribute's name.
TYPE_ERROR = (
    r"scalar type|dtype|must be long|Expected tensor for argument|be of type|float|LongTensor|used"
    r" as indices must|result type \w+ can't be cast"
)
# of a tensor in the place of a whole number, and how many operations may have computed with it
_NUMBER_ERROR = r"tuple of ints|interpreted as an integer|can be converted to an index"
_NUMBER_OPERATIONS = 2
# of an attribute that a module lacks, since it was built without the layer of an optional input
_ABSENT_LAYER = r"^AttributeError: '(?!NoneType|Tensor)[A-Z]\w+' object has no attribute"
ATTRIBUTE_ERROR = r"'types.SimpleNamespace' object has no attribute '(\w+)'"


class OperationCounter(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Counts the calls of torch functions that run inside the context, in `count`.

    Operations that a function runs inside of torch do not count by themselves.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def reset(self, *_: Any) -> None:
        """Start counting from 0. The arguments are ignored: they make this method a forward
        pre-hook."""
        self.count = 0

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a call of a torch function, and run it."""
        self.count += 1
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a model on the inputs that `spec` describes at `size`, (batch, length).

    `progress` is the number of operations before `error`, which is None for a whole run; `took` is
    in seconds of CPU time, in which the inputs were made, too. `lines` are those of the model's
    file that the error came through, outermost first.
    """

    spec: Spec
    progress: int
    error: BaseException | None
    size: tuple[int, int] = SIZE
    took: float = 0.0
    lines: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """Return the error's class and its whole message on one line; "NoneType: None" for a run
        without an error."""
        return f"{type(self.error).__name__}: {' '.join(str(self.error).split())}"

    @property
    def rank(self) -> tuple[int, int, tuple[int, ...]]:
        """Return a sort key, the largest for the attempt that came furthest: its progress, then the
        kind of its error, then the lines that it came through.

        A run that ends at a layer that the model was built without came less far than any other: no
        shape mends it. With equal progress, a run whose error is not about the type of a tensor
        came further than one whose error is, and a run that only misses an attribute of an object
        came further than either; of two such runs that which failed at a later line did. What may
        have been computed with a tensor in the place of a whole number, as in `height * width`, is
        no progress where the run ends at this tensor.
        """
        if re.search(_ABSENT_LAYER, self.text):
            return -1, 0, self.lines
        if re.search(_NUMBER_ERROR, self.text):
            return max(0, self.progress - _NUMBER_OPERATIONS), 0, self.lines
        if re.search(ATTRIBUTE_ERROR, self.text):
            return self.progress, 2, self.lines
        return self.progress, int(not self.is_type_error), self.lines

    def changed_to_type_error(self, earlier: Attempt) -> bool:
        """Return whether the error is about the type of a tensor, came after as many operations as
        that of an earlier attempt, and that one's was about something else."""
        is_new = self.is_type_error and not earlier.is_type_error
        return is_new and self.progress == earlier.progress

    @property
    def is_type_error(self) -> bool:
        """Return whether the error is about the type of a tensor."""
        return re.search(TYPE_ERROR, self.text) is not None


def attempt(model: Any, spec: Spec, size: tuple[int, int] = SIZE) -> Attempt:
    """Run the model once, in its present mode and without gradients, on the inputs that a
    specification describes at one size (batch, length), and return the attempt.

    An error of the model is part of the attempt, as is one in making the inputs: of a constructor
    of an argument, or of a shape that a kind of values does not have. Random inputs are those of
    seed 0, and the state that the run leaves behind in the model is restored.
    """
    start = time.process_time()
    # operations before `forward`, which copy the arguments, are no progress
    try:
        call = make_call(spec, size, 0)
    except Exception as refusal:  # noqa: BLE001 - constructors may raise any class; the error is the result
        return Attempt(spec, 0, drop_traceback(refusal), size)
    with OperationCounter() as counter, model.register_forward_pre_hook(counter.reset):
        error = execute(Target(model), call, Plan(gradients=False)).error
    took = time.process_time() - start
    return Attempt(spec, counter.count, error, size, took, _lines_of(model, error))


def _lines_of(model: Any, error: BaseException | None) -> tuple[int, ...]:
    """Return the lines of the file of a model's `forward` that an error came through, outermost
    first."""
    code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
    if error is None or code is None:
        return ()
    frames = frames_of(error)
    return tuple(frame.lineno or 0 for frame in frames if frame.filename == code.co_filename)
