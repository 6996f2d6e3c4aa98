"""Shapes that documentation and messages give in words: `(batch_size, num_channels, height, width)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from regraft.verify.child.drivers.slots import BATCH, LENGTH, Dim, Sizes, Slot, sized

_DOCUMENTED = re.compile(r"^\s*(\w+)\s*\(`?([\w.]*Tensor)`?,? of shape `?\(([^()]+)\)", re.MULTILINE)
_SHAPE = re.compile(r"shape\W*\((\w+,[\w ,]*)\)")
_WORDS = (
    (r"batch|^bsz?$|^b$|^num_(images|videos|audios)", BATCH), (r"length|^seq|tokens", LENGTH),
    (r"channels", "channels"), (r"height|width|image_size", "image"), (r"heads", "heads"), (r"layers", "layers"),
    (r"hidden|embed|dim", "hidden"), (r"mel|feature_size", "mels"),
)  # fmt: skip


def documented(function: Any, sizes: Sizes) -> dict[str, Slot]:
    """Slots of parameters whose shape the documentation gives, as in `x (torch.LongTensor of shape (batch_size,))`."""
    found = {}
    for name, kind, shape in _DOCUMENTED.findall(inspect.getdoc(function) or ""):
        dims = [dim for word in _split(shape) if (dim := _dimension(word, sizes)) is not None]
        if len(dims) == len(_split(shape)):
            kinds = {"LongTensor": "ids", "IntTensor": "ids", "BoolTensor": "bool"}
            found[name] = Slot(kinds.get(kind.rpartition(".")[2], "normal"), tuple(dims), 2)
    return found


def asked(text: str, slot: Slot) -> Iterator[Slot]:
    """The slot with each shape that a message gives; words stand for the sizes that it has, in their order."""
    for shape in _SHAPE.findall(text):
        words = _split(shape)
        rest = iter([dim for dim in slot.dims if dim not in (BATCH, LENGTH)])
        dims = [dim for word in words if (dim := _dimension(word) or next(rest, None)) is not None]
        if len(dims) == len(words) and not all(word.isdigit() for word in words):
            yield replace(slot, dims=tuple(dims))


def _split(shape: str) -> list[str]:
    return [word.strip() for word in shape.split(",") if word.strip()]


def _dimension(word: str, sizes: Sizes | None = None) -> Dim | None:
    """What a word stands for; without `sizes`, None for all but numbers, batches and lengths."""
    if word.isdigit():
        return Dim(int(word))
    meaning = next((one for pattern, one in _WORDS if re.search(pattern, word)), None)
    if isinstance(meaning, str):
        return sized(meaning, sizes) if sizes is not None else None
    return meaning
