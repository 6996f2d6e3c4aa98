"""Note the sizes and other numbers that code held where it raised an error."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

# the folders of this package and of PyTorch, whose statements say nothing about a model
LIBRARIES = (f"{Path(__file__).parents[2]}/", f"{Path(torch.__file__).parent}/")
Number = int | tuple[int, ...]


def note_numbers(error: BaseException) -> None:
    """Note on an error that still has its frames, in its attribute `numbers`, what `numbers_of`
    returns: integers and shapes in the local variables of the innermost frame outside PyTorch and
    this package. Nothing is noted where all frames are theirs."""
    frames = [
        frame
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(LIBRARIES)
    ]
    if frames:
        with torch._C.DisableTorchFunction():  # reading a shape is no operation of the model
            error.numbers = dict(_numbers(frames[-1].f_locals))  # type: ignore[attr-defined]


def numbers_of(error: BaseException | None) -> Mapping[str, Number]:
    """Return the numbers that `note_numbers` noted by the expressions that have them: the integers,
    and sequences of integers, of local variables (`n`) and of attributes of `self` (`self.n`), and
    the shapes of tensors (`x.shape`); {} where nothing was noted."""
    return getattr(error, "numbers", {})


def _numbers(variables: Mapping[str, Any]) -> Iterator[tuple[str, Number]]:
    """Yield expressions with their numbers: whole numbers, sequences of these and shapes of tensors
    among the local variables of a function and the attributes of its `self`."""
    attributes = getattr(variables.get("self"), "__dict__", {})
    own = ((f"self.{name}", value) for name, value in attributes.items())
    for name, value in (*variables.items(), *own):
        if isinstance(value, torch.Tensor):
            yield f"{name}.shape", tuple(value.shape)
        elif type(value) is int:
            yield name, value
        elif isinstance(value, tuple | list) and all(type(element) is int for element in value):
            yield name, tuple(value)
