"""Describe the value of each argument of a call, and how its shape follows from the batch size and
the length."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from regraft.verify.child.drivers.guess import HEADS, HIDDEN, value_for
from regraft.verify.child.tree import Call


class Dim(NamedTuple):
    """A dimension: `factor` times a size of the call, plus `extra`.

    `of` names that size, "batch" or "length"; it is "" for a fixed dimension.
    """

    factor: int
    of: str = ""
    extra: int = 0

    def at(self, size: tuple[int, int]) -> int:
        """Return the dimension at a size, which is (batch, length)."""
        return self.factor * {"": 1, "batch": size[0], "length": size[1]}[self.of] + self.extra


BATCH, LENGTH = Dim(1, "batch"), Dim(1, "length")
_BY_ANNOTATION = {"dtype": torch.float32, "device": torch.device("cpu")}
_SPECIAL = 3  # the number of first token ids, which often stand for no word
GRID = 4  # rows and columns of an image's patches where they come with a grid


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument: a tensor of `dims`, or for the kind "plain" the `value` itself.

    Kinds: normal (random numbers), ids (integers from `lowest` on, below `limit`; first those of
    `places`, pairs of a token and the number of times it stands there, which then occur nowhere
    else), marks (1 at the positions of the first of the `places`, 2 at those of the next, 0
    elsewhere), mask (ones, with zeros at the end of the second row), additive (zeros), ones, zeros,
    bool, every other (true, false, true, ... in the last dimension), boxes (corners in the last
    dimension), patches (as normal, in the last dimension after a row and a column), range (0, 1, 2,
    ... in the last dimension), pair (a tuple of two like normal: keys and values), grid (rows and
    columns of patches, frames before them where there are three), bounds (begin and end of the only
    sequence of a row).
    """

    kind: str
    dims: tuple[Dim, ...] = ()
    limit: int = 0
    value: Any = None
    places: tuple[tuple[int, int], ...] = ()
    lowest: int = _SPECIAL


Spec = Mapping[str, Slot]


class Sizes:
    """Looks sizes up in a configuration and those nested in it; `hidden` is the width of a layer, 0
    for a model."""

    def __init__(self, config: Any, hidden: int = 0) -> None:
        self.hidden = hidden
        fields = getattr(config, "__dict__", {})
        nested = [value for key, value in sorted(fields.items()) if _is_config(key, value)]
        self._places = [config, *nested]

    def get(self, names: tuple[str, ...], default: int) -> int:
        """Return the first integer under one of the names, in the configuration or a nested one;
        the first of a list.
        """
        for place in self._places:
            for name in names:
                value = getattr(place, name, None)
                value = value[0] if isinstance(value, list | tuple) and value else value
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        return default

    def all(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a list; () where there is no list of that name."""
        values = getattr(self._places[0], name, None)
        return tuple(values) if isinstance(values, list | tuple) else ()


def _is_config(name: str, value: Any) -> bool:
    """Return whether a field is a configuration inside another."""
    return value is not None and (name.endswith("config") or hasattr(value, "to_dict"))


def make(spec: Spec, size: tuple[int, int], seed: int) -> Call:
    """Return the call that a specification describes at one size."""
    generator = torch.Generator().manual_seed(1000 * seed + size[0])
    values = {name: _make_value(slot, size, generator) for name, slot in spec.items()}
    return Call((), values, f"batch {size[0]}, length {size[1]}")


def _make_value(slot: Slot, size: tuple[int, int], generator: Any) -> Any:
    """Return the value that a slot describes at one size."""
    shape = tuple(dim.at(size) for dim in slot.dims)
    if slot.kind == "plain":
        return slot.value
    if slot.kind == "normal":
        return torch.randn(shape, generator=generator)
    if slot.kind == "ids":
        ids = torch.randint(
            min(slot.lowest, slot.limit - 1), slot.limit, shape, generator=generator
        )
        for token, _ in slot.places:
            ids = ids.masked_fill(ids == token, 0)
        return _write_runs(ids, slot.places)
    if slot.kind == "marks":
        return _write_runs(
            torch.zeros(shape, dtype=torch.long),
            [(number + 1, count) for number, (_, count) in enumerate(slot.places)],
        )
    if slot.kind == "mask":
        return _mask(shape)
    if slot.kind == "boxes":
        corners = torch.randint(0, 30, (*shape[:-1], 2), generator=generator)
        return torch.cat(
            [corners, corners + torch.randint(1, 30, (*shape[:-1], 2), generator=generator)], -1
        )
    if slot.kind == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    if slot.kind == "patches":
        positions = torch.arange(shape[1]).expand(shape[:2])
        return torch.cat(
            [
                torch.stack([positions // 4, positions % 4], -1).float(),
                torch.randn(shape, generator=generator),
            ],
            -1,
        )
    if slot.kind == "every other":
        return (torch.arange(shape[-1]) % 2 == 0).expand(shape).clone()
    if slot.kind == "pair":
        return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    if slot.kind == "bounds":
        return torch.tensor([0, shape[0]], dtype=torch.int32)
    if slot.kind == "grid":
        return torch.tensor([1, GRID, GRID][-shape[1] :]).repeat(shape[0], 1)
    if slot.kind == "range":
        return torch.arange(shape[-1]).expand(shape).clone()
    return torch.ones(shape) if slot.kind == "ones" else torch.zeros(shape)


def _write_runs(tensor: Any, runs: Sequence[tuple[int, int]]) -> Any:
    """Write values from the start of the last dimension on, each as often as its count; return the
    tensor."""
    start = 0
    for value, count in runs:
        tensor[..., start : start + count] = value
        start += count
    return tensor


def with_places(spec: Spec, token: int, count: int) -> Spec:
    """Return inputs whose token ids begin with `count` of a token that stands for something else.

    The inputs get longer by as many positions.
    """
    counts = dict(spec["input_ids"].places)
    places, added = tuple({**counts, token: count}.items()), count - counts.get(token, 0)

    def lengthen(slot: Slot) -> Slot:
        dims = (
            dim._replace(extra=dim.extra + added) if dim.of == "length" else dim
            for dim in slot.dims
        )
        return replace(slot, dims=tuple(dims), places=places if slot.places else ())

    lengthened = {name: lengthen(slot) for name, slot in spec.items()}
    return {**lengthened, "input_ids": replace(lengthened["input_ids"], places=places)}


def _mask(shape: tuple[int, ...]) -> Any:
    """Return a mask of ones, with two zeros at the end of the second row where there is room."""
    mask = torch.ones(shape, dtype=torch.long)
    if shape[0] > 1 and len(shape) > 1 and shape[-1] > 2:
        mask[1, ..., -2:] = 0
    return mask


def slot_for(name: str, annotation: str, sizes: Sizes, inner: bool = False) -> Slot:
    """Return the first guess for a parameter; `inner` for those of a layer, whose masks are added
    to scores.

    Raises LookupError where no plain value can be guessed.
    """
    frames = sizes.get(("num_frames",), 0)
    for pattern, kind, dims in _TABLE:
        if re.search(pattern, name):
            is_video = frames and name == "pixel_values"
            if kind == "mask" and inner:
                return Slot("additive", (BATCH, Dim(1), LENGTH, LENGTH))
            all_dims = (BATCH, Dim(frames), *dims[1:]) if is_video else dims
            lowest = 0 if "type" in name else _SPECIAL
            return Slot(
                kind,
                tuple(dimension_of(dim, sizes) for dim in all_dims),
                _limit(name, sizes),
                lowest=lowest,
            )
    if "LongTensor" in annotation:
        return Slot("ids", (BATCH, LENGTH), 2)
    if "BoolTensor" in annotation:
        return Slot("bool", (BATCH, LENGTH))
    if (
        annotation.rpartition(".")[2] == "Module"
    ):  # a function reads its attributes; errors name missing ones
        return Slot("plain", value=SimpleNamespace(training=False))
    if _type_name(annotation) in _BY_ANNOTATION:
        return Slot("plain", value=_BY_ANNOTATION[_type_name(annotation)])
    if is_plain(name, annotation):
        return Slot("plain", value=-1 if name == "dim" else value_for(name, _type_name(annotation)))
    return Slot("normal", (BATCH, LENGTH, dimension_of("hidden", sizes)))


def packed_patches(sizes: Sizes) -> Slot:
    """Return the slot of the patches of all images in one row, each flat, for models that also take
    a grid."""
    channels = sizes.get(("in_channels", "num_channels", "in_chans"), 3)
    frames, side = sizes.get(("temporal_patch_size",), 1), sizes.get(("patch_size",), 1)
    return Slot("normal", (Dim(GRID * GRID, "batch"), Dim(channels * frames * side * side)))


def is_plain(name: str, annotation: str) -> bool:
    """Return whether a parameter is no tensor."""
    if _type_name(annotation) in ("int", "float", "bool", "str", *_BY_ANNOTATION):
        return True
    names = ("eps", "epsilon", "dim", "p", "dropout", "training", "scale", "scaling", "n_rep")
    return name in names or name.startswith(("num_", "is_", "output_", "use_", "return_"))


def _type_name(annotation: str) -> str:
    """Return the name of the annotated type, without `torch.` and `|None`."""
    return annotation.removesuffix("|None").removeprefix("torch.")


def is_named(name: str) -> bool:
    """Return whether a parameter's name tells its contents."""
    return any(re.search(pattern, name) for pattern, _, _ in _TABLE)


_TABLE: tuple[tuple[str, str, tuple[str | Dim, ...]], ...] = (
    (r"head_mask$", "ones", ("layers", "heads")),
    (r"grid_thw$", "grid", (BATCH, Dim(3))),
    (r"^(target_sizes|spatial_shapes)$", "grid", (BATCH, Dim(2))),
    (r"^(img|txt|image|text)_ids$", "zeros", (LENGTH, Dim(3))),
    (r"^timesteps?$", "ids", (BATCH,)),
    (r"^guidance$", "normal", (BATCH,)),
    (r"^encoder_hidden_states", "normal", (BATCH, LENGTH, "context")),
    (r"^(temb|t_emb|time_emb|timestep_emb)$", "normal", (BATCH, "hidden")),
    (r"^pooled_projections?$", "normal", (BATCH, "pooled")),
    (r"pixel_mask$", "mask", (BATCH, "image", "image")),
    (r"^pixel_values", "normal", (BATCH, "channels", "image", "image")),
    (r"input_features$", "normal", (BATCH, "mels", "frames")),
    (r"^(input|audio)_values$", "normal", (BATCH, "samples")),
    (r"^(bbox|boxes)$", "boxes", (BATCH, LENGTH, Dim(4))),
    (r"^flattened_patches$", "patches", (BATCH, LENGTH, "patch")),
    (r"^past_(values|observed_mask)$", "normal", (BATCH, "past")),
    (r"^past_time_features$", "normal", (BATCH, "past", "times")),
    (r"^future_(values|observed_mask)$", "normal", (BATCH, "future")),
    (r"^future_time_features$", "normal", (BATCH, "future", "times")),
    (r"bool_masked_pos$", "every other", (BATCH, LENGTH)),
    (r"^(past_key_value|layer_past|past)$", "pair", (BATCH, "heads", LENGTH, Dim(HIDDEN // HEADS))),
    (r"^(position_embeddings|rotary_pos_emb)$", "pair", (BATCH, LENGTH, "head")),
    (r"cu_seq_?lens", "bounds", (LENGTH,)),
    (r"position_ids$", "range", (BATCH, LENGTH)),
    (r"(_ids|^ids|_index|_indices)$", "ids", (BATCH, LENGTH)),
    (r"mask$", "mask", (BATCH, LENGTH)),
    (r"^(weight|bias|gamma|beta)$", "normal", ("hidden",)),
)


_CONTEXT = (
    "cross_attention_dim",
    "joint_attention_dim",
    "text_embed_dim",
    "text_dim",
    "caption_channels",
)
_HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads")


def _hidden(sizes: Sizes) -> int:
    """Return the width of the model's hidden states."""
    return sizes.hidden or sizes.get(
        ("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "dim"), HIDDEN
    )


def dimension_of(dim: str | Dim, sizes: Sizes) -> Dim:
    """Return the dimension that has a name of the table, with its size from the configuration."""
    if isinstance(dim, Dim):
        return dim
    if (
        dim == "samples"
    ):  # of sound: a few steps for each unit of length after the strides of the convolutions
        return Dim(4 * math.prod(sizes.all("conv_stride") or (200,)), "length")
    return Dim(
        {
            "hidden": lambda: _hidden(sizes),
            "context": lambda: sizes.get(_CONTEXT, _hidden(sizes)),
            "pooled": lambda: sizes.get(("pooled_projection_dim",), _hidden(sizes)),
            "layers": lambda: sizes.get(
                ("num_hidden_layers", "num_layers", "encoder_layers", "n_layer"), 2
            ),
            "heads": lambda: sizes.get(_HEADS, HEADS),
            "head": lambda: sizes.get(("head_dim",), _hidden(sizes) // sizes.get(_HEADS, HEADS)),
            "image": lambda: sizes.get(("image_size", "img_size", "input_size"), 32),
            "channels": lambda: sizes.get(("num_channels", "in_channels", "in_chans"), 3),
            "mels": lambda: sizes.get(("num_mel_bins", "feature_size", "n_mels"), 80),
            "patch": lambda: sizes.get(("patch_embed_hidden_size",), HIDDEN),
            "past": lambda: (
                sizes.get(("context_length",), 8) + max(sizes.all("lags_sequence"), default=0)
            ),
            "future": lambda: sizes.get(("prediction_length",), 4),
            "times": lambda: sizes.get(("num_time_features",), 0),
            "frames": lambda: 2 * sizes.get(("max_source_positions",), 32),
        }[dim]()
    )


def _limit(name: str, sizes: Sizes) -> int:
    """Return the upper bound of token ids, without the last twelve of a vocabulary; for type ids
    their number."""
    if "type" in name:
        return max(1, sizes.get(("type_vocab_size",), 1))
    vocabulary = sizes.get(("vocab_size",), 99)
    return max(min(4, vocabulary), vocabulary - 12)
