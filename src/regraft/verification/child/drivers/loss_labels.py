"""Make labels for a model's loss: for tokens, rows, spans, pixels, boxes and masks.

A model needs a `config`, whose `num_labels` is the number of classes, 2 where it states none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.drivers.argument_slots import Dim, Sizes, slot_for
from regraft.verification.child.drivers.slot_values import make_call

OBJECTS = 2  # in each image
# Returns the keywords with the labels for a call of a model at (batch, length) with a seed.
_Maker = Callable[[Call, Any, tuple[int, int], int], dict[str, Any]]


def add_labels(call: Call, model: Any, size: tuple[int, int], kind: str, seed: int) -> Call:
    """Return the call with labels of a kind of `KINDS` as further keywords; `size` is (batch,
    length). Whether the model takes these keywords is not checked."""
    return Call(
        call.args, {**call.kwargs, **KINDS[kind](call, model, size, seed)}, f"{call.label}, labels"
    )


def _random_classes(model: Any, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return a tensor of random classes, from 0 to below the model's `num_labels`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, int(getattr(model.config, "num_labels", 2)), shape, generator=generator)


def _token_labels(call: Call, model: Any, size: tuple[int, int], seed: int) -> torch.Tensor:
    """Return labels for each token: classes in the shape `size`, (batch, length), for a model with
    `Token` in the name of its class, otherwise token ids in the shape of the call's `input_ids`.

    The first label of each row is -100, which losses ignore.
    """
    shape = tuple(getattr(call.kwargs.get("input_ids"), "shape", size))
    slot = replace(slot_for("input_ids", "", Sizes(model.config)), dims=tuple(map(Dim, shape)))
    tokens: torch.Tensor = make_call({"tokens": slot}, size, seed).kwargs["tokens"]
    targets = _random_classes(model, size, seed) if "Token" in type(model).__name__ else tokens
    return targets.masked_fill(
        torch.zeros_like(targets, dtype=torch.bool).index_fill(1, torch.tensor([0]), True), -100
    )


def _row_labels(model: Any, size: tuple[int, int], seed: int) -> torch.Tensor:
    """Return one random class for each row, (batch,)."""
    return _random_classes(model, size, seed)[:, 0].clone()


def _span_labels(_: Call, model: Any, size: tuple[int, int], seed: int) -> dict[str, Any]:
    """Return `start_positions` and `end_positions` of a span of two tokens in each row, each
    (batch,)."""
    start = _row_labels(model, size, seed)
    return {"start_positions": start, "end_positions": start + 1}


def _image_shape(call: Call) -> tuple[int, int, int]:
    """Return the batch, height and width of the images of a call, its first keyword with four
    dimensions; (0, 0, 0) for a call without images."""
    images = [
        value
        for value in call.kwargs.values()
        if isinstance(value, torch.Tensor) and value.dim() == 4
    ]
    return (images[0].shape[0], *images[0].shape[-2:]) if images else (0, 0, 0)


def _box_labels(call: Call, model: Any, _: tuple[int, int], seed: int) -> dict[str, Any]:
    """Return, under `labels`, a list with a dictionary for each image: the `class_labels` of its
    objects, (OBJECTS,), and their `boxes`, (OBJECTS, 4), as centre and size in fractions of the
    image."""
    generator = torch.Generator().manual_seed(seed)
    batch = _image_shape(call)[0]
    boxes = 0.3 + 0.4 * torch.rand(batch, OBJECTS, 4, generator=generator)
    classes = _random_classes(model, (batch, OBJECTS), seed)
    return {
        "labels": [
            {"class_labels": image_classes, "boxes": image_boxes}
            for image_classes, image_boxes in zip(classes, boxes, strict=True)
        ]
    }


def _mask_labels(call: Call, model: Any, _: tuple[int, int], seed: int) -> dict[str, Any]:
    """Return, under `mask_labels`, a list with the masks of the objects of each image, (OBJECTS,
    height, width), and under `class_labels` a list with their classes, (OBJECTS,)."""
    generator = torch.Generator().manual_seed(seed)
    batch, height, width = _image_shape(call)
    masks = torch.rand(batch, OBJECTS, height, width, generator=generator) > 0.5
    return {
        "mask_labels": list(masks.float()),
        "class_labels": list(_random_classes(model, (batch, OBJECTS), seed)),
    }


# The function that makes the labels of a kind; `input_guesses.find_accepted` takes the first kind
# that a model accepts.
KINDS: dict[str, _Maker] = {
    "tokens": lambda call, model, size, seed: {"labels": _token_labels(call, model, size, seed)},
    "classes": lambda _, model, size, seed: {"labels": _row_labels(model, size, seed)},
    "span": _span_labels,
    "both": lambda call, model, size, seed: {
        "labels": _token_labels(call, model, size, seed),
        "next_sentence_label": _row_labels(model, size, seed),
    },
    "pixels": lambda call, model, _, seed: {
        "labels": _random_classes(model, _image_shape(call), seed)
    },
    "boxes": _box_labels,
    "masks": _mask_labels,
}
