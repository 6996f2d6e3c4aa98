"""Make labels for a model's loss: of tokens, rows, spans, pixels, boxes and masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from regraft.verify.child.drivers.slots import Dim, Sizes, make, slot_for
from regraft.verify.child.tree import Call

NAMES = frozenset({"labels", "start_positions", "mask_labels"})
OBJECTS = 2  # in each image
_Maker = Callable[[Call, Any, tuple[int, int], int], dict[str, Any]]


def labelled(call: Call, model: Any, size: tuple[int, int], kind: str, seed: int) -> Call:
    """Add labels of one of `KINDS` to a call of a model with `size`, which is (batch, length)."""
    return Call(call.args, {**call.kwargs, **KINDS[kind](call, model, size, seed)}, f"{call.label}, labels")


def _classes(model: Any, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, int(getattr(model.config, "num_labels", 2)), shape, generator=generator)


def _words(call: Call, model: Any, size: tuple[int, int], seed: int) -> torch.Tensor:
    """(batch, length): classes for a model of tokens, else words; the second of each row does not count."""
    shape = tuple(getattr(call.kwargs.get("input_ids"), "shape", size))
    slot = replace(slot_for("input_ids", "", Sizes(model.config)), dims=tuple(map(Dim, shape)))
    tokens: torch.Tensor = make({"tokens": slot}, size, seed).kwargs["tokens"]
    wide = _classes(model, size, seed) if "Token" in type(model).__name__ else tokens
    return wide.masked_fill(torch.zeros_like(wide, dtype=torch.bool).index_fill(1, torch.tensor([0]), True), -100)


def _rows(model: Any, size: tuple[int, int], seed: int) -> torch.Tensor:
    return _classes(model, size, seed)[:, 0].clone()


def _span(_: Call, model: Any, size: tuple[int, int], seed: int) -> dict[str, Any]:
    start = _rows(model, size, seed)
    return {"start_positions": start, "end_positions": start + 1}


def _image(call: Call) -> tuple[int, int, int]:
    """The batch, height and width of the images of a call; of a call without images (0, 0, 0)."""
    found = [value for value in call.kwargs.values() if isinstance(value, torch.Tensor) and value.dim() == 4]
    return (found[0].shape[0], *found[0].shape[-2:]) if found else (0, 0, 0)


def _boxes(call: Call, model: Any, _: tuple[int, int], seed: int) -> dict[str, Any]:
    """For each image classes, and boxes as centre and size in parts of it."""
    generator = torch.Generator().manual_seed(seed)
    batch = _image(call)[0]
    boxes = 0.3 + 0.4 * torch.rand(batch, OBJECTS, 4, generator=generator)
    classes = _classes(model, (batch, OBJECTS), seed)
    return {"labels": [{"class_labels": one, "boxes": box} for one, box in zip(classes, boxes, strict=True)]}


def _masks(call: Call, model: Any, _: tuple[int, int], seed: int) -> dict[str, Any]:
    """For each image classes, and which pixels are of each of its objects."""
    generator = torch.Generator().manual_seed(seed)
    batch, height, width = _image(call)
    masks = torch.rand(batch, OBJECTS, height, width, generator=generator) > 0.5
    return {"mask_labels": list(masks.float()), "class_labels": list(_classes(model, (batch, OBJECTS), seed))}


KINDS: dict[str, _Maker] = {
    "tokens": lambda call, model, size, seed: {"labels": _words(call, model, size, seed)},
    "classes": lambda _, model, size, seed: {"labels": _rows(model, size, seed)},
    "span": _span,
    "both": lambda call, model, size, seed: {
        "labels": _words(call, model, size, seed),
        "next_sentence_label": _rows(model, size, seed),
    },
    "pixels": lambda call, model, _, seed: {"labels": _classes(model, _image(call), seed)},
    "boxes": _boxes,
    "masks": _masks,
}
