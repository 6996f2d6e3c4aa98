"""Shrink a configuration by the names of its fields, so that equal and proportional sizes
stay so."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VOCABULARY = 99
POSITIONS = 64
LAYERS = 2
# the most kinds of layers, where a configuration names them, of which a model keeps a layer each
KINDS = 4
FRAMES = 4
QUERIES = 8  # the queries of a detector: no more than a small image has positions
WINDOW = 4  # the window of attention: shorter than the inputs, so that it has an effect
# positions that are processed together, and that inputs are padded to; longer than the inputs
BLOCK = 16
LONGEST = 1024  # the longest such block: longer ones are of sound
NARROWEST, WIDEST = 8, 4096
SIZED = 48  # smaller numbers are kept, whatever the name of their field
_HIDDEN_NAMES = (
    "hidden_size",
    "d_model",
    "n_embd",
    "embed_dim",
    "dim",
    "hidden_dim",
    "emb_dim",
    "model_dim",
)
_SIZE = re.compile(
    r"(size|dim|dims|rank|width|channels|planes|features|n_embd|n_inner|d_model|d_ff|d_inner|d_head|state|filters)s?$"
    r"|^(d|dim|n)_|hidden"
)
_KV_HEADS = re.compile(r"(kv|key_value).*heads?$|head_kv$")
# Values for fields that some configurations leave unset.
_NEEDED = {"vocab_size": VOCABULARY, "prediction_length": 4, "pad_token_id": 1}
# Fields that the configuration computes from its other fields.
DERIVED = frozenset({"stage_names", "out_features", "out_indices", "_out_features", "_out_indices"})
# Fields with the name of a model of timm, and the model with stages that timm has for tests.
_NAMED = frozenset({"backbone", "architecture"})
_TESTED = "test_resnet"
# flags for weights that would be downloaded
_PRETRAINED = re.compile(r"^(use_)?pretrained(_backbone)?$")
_KEPT = re.compile(
    r"kernel|stride|window|chunk|block|num_channels|type_vocab|buckets|group_|conv_(?!dim|.*channels)|dilation|interval|crop"
)
# Fields with the period of layers of another kind, the number of first layers of one kind, and
# positions of layers.
_EVERY = re.compile(
    r"(sparse|layer|attention|attn|expert|moe)_(\w+_)?(step|interval|frequency|freq|period)$|window_pattern$"
)
_FIRST = re.compile(r"^first_k_|dense_layers$|layer_(offset|start_index)$")
_POSITIONS = re.compile(
    r"(attn|block|visual|layer)_(ids|idxs|indexes|indices)$|(only|rope|moe|attention|global|local)_layers$"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The hidden size, head count and image side to shrink to; `mild` leaves the sizes of layers
    alone."""

    hidden: int
    heads: int
    image: int = 32
    mild: bool = False


# The last but two has heads of 128, for which some rotary embeddings are written.
SCALES = (
    Scale(32, 4),
    Scale(64, 4),
    Scale(64, 2),
    Scale(256, 2),
    Scale(0, 0, 64, mild=True),
    Scale(0, 0, WIDEST, mild=True),
)


def shrink(config: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """Return a small version of a configuration given as a dictionary, nested configurations
    included."""
    hidden = next((config[name] for name in _HIDDEN_NAMES if isinstance(config.get(name), int)), 0)
    ratio = max(1, hidden // scale.hidden) if hidden and scale.hidden else 16
    layers = _layer_counts(config)
    has_fewer_layers = max(layers.counts, default=0) > layers.kept_count  # and so fewer stages
    dropped_names = {
        name
        for name in DERIVED & config.keys()
        if has_fewer_layers and not _is_list_of_widths(name, config[name])
    }
    kept_fields = {
        name: value
        for name, value in config.items()
        if name not in dropped_names and not _is_mapping_by_layer(value)
    }
    small = {
        name: _shrink_value(name, value, scale, ratio, layers)
        for name, value in kept_fields.items()
    }
    if any(
        small[name] != config[name] for name in _NAMED & small.keys()
    ):  # the replaced model does not take these keywords
        small |= {
            name: {}
            for name, value in kept_fields.items()
            if name.endswith("args") and isinstance(value, Mapping)
        }
    heads = config.get("num_attention_heads")
    ungrouped = [
        n
        for n, v in kept_fields.items()
        if n.startswith("num_") and _KV_HEADS.search(n) and v == heads
    ]
    return {
        **small,
        **{name: small["num_attention_heads"] for name in ungrouped if heads is not None},
    }


@dataclass(frozen=True, slots=True)
class _LayerCounts:
    """The numbers of layers that a configuration has, and the number that is kept."""

    counts: tuple[int, ...]
    kept_count: int


def _layer_counts(config: Mapping[str, Any]) -> _LayerCounts:
    """Count the layers to keep: one of each kind that is listed by layer, and all of a short
    repeated pattern."""
    counts = tuple(v for k, v in config.items() if is_layers(k) and isinstance(v, int))
    string_lists = [
        v
        for v in config.values()
        if isinstance(v, list | tuple) and v and all(isinstance(k, str) for k in v)
    ]
    kinds = [len(set(value)) for value in string_lists if len(value) in counts]
    kinds += [
        len(v)
        for k, v in config.items()
        if v in string_lists and "block" in k and len(v) < min(counts, default=0)
    ]
    return _LayerCounts(counts, max((LAYERS, *(kind for kind in kinds if kind <= KINDS))))


def _is_list_of_widths(name: str, value: Any) -> bool:
    """Return whether a field that has the name of a list of stages lists widths of features."""
    return (
        "features" in name
        and isinstance(value, list | tuple)
        and all(type(element) is int for element in value)
    )


def _is_mapping_by_layer(value: Any) -> bool:
    """Return whether a value is a mapping from layer numbers, of which the layers may be gone."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(str(key).isdigit() for key in value)
        and not _is_label_mapping(value)
    )


def is_config(name: str, value: Any) -> bool:
    """Return whether a field is a configuration inside another."""
    named = name.endswith("config") or name in ("encoder", "decoder", "text", "vision")
    return isinstance(value, Mapping) and (named or "model_type" in value)


def is_size(name: str) -> bool:
    """Return whether a field is the size of a layer, or lists sizes of layers."""
    return bool(_SIZE.search(name) or _SIZE.search(f"{_singular(name)}s")) and not _KEPT.search(
        name
    )


def _singular(name: str) -> str:
    """Return the name that one number of a list would have."""
    return re.sub(r"_(list|per_stage|per_layer)$", "", name).rstrip("s")


def _is_label_mapping(value: Mapping[str, Any]) -> bool:
    """Return whether all values of a mapping are strings."""
    return all(isinstance(label, str) for label in value.values())


def _shrink_value(name: str, value: Any, scale: Scale, ratio: int, layers: _LayerCounts) -> Any:
    """Return a small value for a field, by its type and name."""
    if name in _NEEDED and value is None:
        return _NEEDED[name]
    if isinstance(value, Mapping):
        return (
            shrink(value, scale) if is_config(name, value) else _shrink_mapping(name, value, scale)
        )
    if isinstance(value, list | tuple) and value:
        return _shrink_list(name, list(value), scale, ratio, layers)
    if isinstance(value, str) and name in _NAMED and not scale.mild:
        return _named(value)
    if isinstance(value, bool):
        return value and not _PRETRAINED.search(name)
    if not isinstance(value, int):
        return value
    return _shrink_integer(name, value, scale, ratio, layers)


@functools.cache
def _named(model: str) -> str:
    """Return the model that timm has for tests, of the same family or else one with stages, for a
    model of timm."""
    if importlib.util.find_spec("timm") is None:
        return model
    import timm

    if not timm.is_model(model):
        return model
    family = "test_" + re.split(r"[_\d]", model)[0]
    return next((name for name in (family, _TESTED) if timm.is_model(name)), model)


def _shrink_mapping(name: str, value: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """Return a copy of a mapping; sections of rotary embeddings in it are made to fit the small
    heads."""
    if name.startswith("rope") and not scale.mild:
        return {
            k: _shrink_sections(v, scale) if k == "mrope_section" else v for k, v in value.items()
        }
    return dict(value)


def _shrink_sections(value: Any, scale: Scale) -> Any:
    """Return three sections of half a head's width where the value is a list of three; other values
    unchanged."""
    half = scale.hidden // scale.heads // 2
    return (
        [half - 2 * (half // 4), half // 4, half // 4]
        if isinstance(value, list) and len(value) == 3
        else value
    )


def _shrink_list(
    name: str, value: list[Any], scale: Scale, ratio: int, layers: _LayerCounts
) -> list[Any]:
    """Return a small list: the elements for layers that are kept, one of each kind, or small
    integers."""
    if len(value) in layers.counts and len(value) > layers.kept_count:
        kinds = list(dict.fromkeys(map(repr, value)))
        first_of_kinds = [next(v for v in value if repr(v) == kind) for kind in kinds][
            : layers.kept_count
        ]
        value = (first_of_kinds + value)[: layers.kept_count]
    elif _is_list_of_positions(name, value, layers):
        return [element for element in value if element < layers.kept_count][
            : layers.kept_count - 1
        ] or [layers.kept_count - 1]
    if all(isinstance(element, int) and not isinstance(element, bool) for element in value):
        return [
            _shrink_integer(_singular(name), element, scale, ratio, layers) for element in value
        ]
    return value


def _is_list_of_positions(name: str, value: list[Any], layers: _LayerCounts) -> bool:
    """Return whether a field lists positions of layers."""
    are_distinct_integers = len(set(map(repr, value))) == len(value) and all(
        type(element) is int for element in value
    )
    return (
        bool(_POSITIONS.search(name))
        and are_distinct_integers
        and max(value) < max(layers.counts, default=0)
    )


def _shrink_integer(name: str, value: int, scale: Scale, ratio: int, layers: _LayerCounts) -> int:
    """Return a small number for a field of token ids, vocabulary, layers, image or layer sizes, by
    its name."""
    if name.endswith(("token_id", "token_index")) or (name.endswith("_id") and value >= VOCABULARY):
        return value if value < VOCABULARY else VOCABULARY - 1 - sum(map(ord, name)) % 8
    if "vocab" in name and "type" not in name:
        return min(value, VOCABULARY)
    if _FIRST.search(name):
        return min(value, layers.kept_count - 1)
    if is_layers(name) or _EVERY.search(name):
        return min(value, layers.kept_count)
    if re.search(r"(image|input|img)_size$", name):
        return min(value, scale.image)
    return value if scale.mild else _shrink_size(name, value, scale, ratio)


def _shrink_size(name: str, value: int, scale: Scale, ratio: int) -> int:
    """Return a small number for a field by its name; sizes of layers without a rule are divided by
    `ratio`."""
    if not value:  # 0 means that a component is left out
        return value
    if re.search(r"position|n_ctx|max_seq|max_length|context_length", name) and value > POSITIONS:
        return POSITIONS
    if _KV_HEADS.search(name):
        return max(1, min(value, scale.heads // 2))
    if is_head_size(name):
        return scale.hidden // scale.heads
    if re.search(r"heads?$", name):
        return min(value, scale.heads)
    if re.search(r"groups?$", name):  # of channels, or of experts: two in each
        return min(value, 2)
    if re.search(r"(queries|proposals)$", name):
        return min(value, QUERIES)
    if re.search(r"experts_per_tok|top_?k|moe_k", name):
        return min(value, 2)
    if re.search(r"experts?$", name):
        return min(value, 4)
    if "patch_size" in name:
        return min(value, 8)
    if re.search(r"tokens_per_(image|frame|side)$", name):
        return min(value, 4)
    if re.search(r"label_length$", name):  # no more than the shortest context
        return min(value, 4)
    if re.search(r"mask.*_length$", name):
        return min(value, 2)
    if re.search(r"(^|num_)frames$", name):
        return min(value, FRAMES)
    if "window" in name and value > POSITIONS:
        return WINDOW
    if re.search(r"(^|_)(block|chunk)_size$", name) and POSITIONS < value <= LONGEST:
        return BLOCK
    if is_size(name) and value >= SIZED:
        return max(8, value // ratio // 4 * 4)
    return value


def is_hidden(name: str) -> bool:
    """Return whether a field is the width of a model."""
    return name in _HIDDEN_NAMES


def is_head_size(name: str) -> bool:
    """Return whether a field is the width of one head of attention."""
    return bool(re.search(r"head_(dim|size)$|(^|_)d_head$|d_kv$|kv_channels", name))


def is_key_value_heads(name: str) -> bool:
    """Return whether a field is the number of heads of keys and values."""
    return bool(_KV_HEADS.search(name))


def is_layers(name: str) -> bool:
    """Return whether a field is a number of layers."""
    return (
        bool(re.search(r"layers?$|^depth$|^n_layer|num_blocks$|^blocks?$", name))
        and "norm" not in name
    )
