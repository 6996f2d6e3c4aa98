"""Shrink a configuration by what its fields are called, keeping equal and proportional sizes so."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verify.child.drivers.guess import HIDDEN

VOCABULARY = 99
POSITIONS = 64
LAYERS = 2
FRAMES = 4
WINDOW = 4  # of attention: shorter than the inputs, so that it shows
NARROWEST, WIDEST = 8, 4096
_HIDDEN_NAMES = ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "hidden_dim", "emb_dim", "model_dim")
_SIZE = re.compile(
    r"(size|dim|dims|rank|width|channels|planes|features|n_embd|n_inner|d_model|d_ff|d_inner|d_head|state|filters)s?$"
    r"|^(d|dim|n)_|hidden"
)
_KV_HEADS = re.compile(r"(kv|key_value).*heads?$|head_kv$")
# Sizes that some configurations leave to their users.
_NEEDED = {"vocab_size": VOCABULARY, "prediction_length": 4, "pad_token_id": 1}
# Computed by the configuration from its other fields.
_DERIVED = frozenset({"stage_names", "out_features", "out_indices", "_out_features", "_out_indices"})
_KEPT = re.compile(
    r"kernel|stride|window|chunk|block|num_channels|type_vocab|buckets|group|conv_(?!dim|.*channels)|dilation|interval|crop"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How far to shrink: hidden size, head count and image side aimed at; `mild` leaves the sizes of layers alone."""

    hidden: int
    heads: int
    image: int = 32
    mild: bool = False


# The last but two has heads of 128, which some rotary embeddings are cut for.
SCALES = (
    Scale(32, 4), Scale(64, 4), Scale(64, 2), Scale(256, 2), Scale(0, 0, 64, mild=True), Scale(0, 0, WIDEST, mild=True)
)  # fmt: skip


def shrink(config: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """Return a small version of a configuration given as a dictionary, nested configurations included."""
    hidden = next((config[name] for name in _HIDDEN_NAMES if isinstance(config.get(name), int)), 0)
    ratio = max(1, hidden // scale.hidden) if hidden and scale.hidden else 16
    layers = [v for k, v in config.items() if _is_layers(k) and isinstance(v, int)]
    kept = {name: value for name, value in config.items() if name not in _DERIVED and not _by_layer(value)}
    small = {name: _shrunk(name, value, scale, ratio, layers) for name, value in kept.items()}
    heads = config.get("num_attention_heads")
    ungrouped = [n for n, v in kept.items() if n.startswith("num_") and _KV_HEADS.search(n) and v == heads]
    return {**small, **{name: small["num_attention_heads"] for name in ungrouped if heads is not None}}


def _by_layer(value: Any) -> bool:
    """Whether a value is a mapping from layer numbers; those layers may be gone."""
    return (
        isinstance(value, Mapping) and bool(value) and all(str(key).isdigit() for key in value) and not _labels(value)
    )


def _labels(value: Mapping[str, Any]) -> bool:
    return all(isinstance(item, str) for item in value.values())


def _shrunk(name: str, value: Any, scale: Scale, ratio: int, layers: list[int]) -> Any:
    if name in _NEEDED and value is None:
        return _NEEDED[name]
    if isinstance(value, Mapping):
        nested = name.endswith("config") or name in ("encoder", "decoder", "text", "vision")
        return shrink(value, scale) if nested else _mapping(name, value, scale)
    if isinstance(value, list | tuple) and value:
        return _sequence(name, list(value), scale, ratio, layers)
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return _integer(name, value, scale, ratio)


def _mapping(name: str, value: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    if name.startswith("rope") and not scale.mild:
        return {k: _sections(v, scale) if k == "mrope_section" else v for k, v in value.items()}
    return dict(value)


def _sections(value: Any, scale: Scale) -> Any:
    half = scale.hidden // scale.heads // 2
    return [half - 2 * (half // 4), half // 4, half // 4] if isinstance(value, list) and len(value) == 3 else value


def _sequence(name: str, value: list[Any], scale: Scale, ratio: int, layers: list[int]) -> list[Any]:
    if len(value) in layers and len(value) > LAYERS:
        kinds = list(dict.fromkeys(map(repr, value)))
        first = [next(v for v in value if repr(v) == kind) for kind in kinds][:LAYERS]
        value = (first + value)[:LAYERS]
    if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return [_integer(name.rstrip("s"), item, scale, ratio) for item in value]
    return value


def _integer(name: str, value: int, scale: Scale, ratio: int) -> int:
    if name.endswith(("token_id", "token_index")) or (name.endswith("_id") and value >= VOCABULARY):
        return value if value < VOCABULARY else VOCABULARY - 1 - sum(map(ord, name)) % 8
    if "vocab" in name and "type" not in name:
        return min(value, VOCABULARY)
    if _is_layers(name):
        return min(value, LAYERS)
    if re.search(r"(image|input|img)_size$", name):
        return min(value, scale.image)
    return value if scale.mild else _sized(name, value, scale, ratio)


def _sized(name: str, value: int, scale: Scale, ratio: int) -> int:
    if re.search(r"position|n_ctx|max_seq|max_length|context_length", name) and value > POSITIONS:
        return POSITIONS
    if _KV_HEADS.search(name):
        return max(1, min(value, scale.heads // 2))
    if re.search(r"heads?$", name):
        return min(value, scale.heads)
    if re.search(r"head_(dim|size)$|d_kv$|kv_channels", name):
        return scale.hidden // scale.heads
    if re.search(r"experts_per_tok|top_?k", name):
        return min(value, 2)
    if re.search(r"experts?$", name):
        return min(value, 4)
    if "patch_size" in name:
        return min(value, 8)
    if re.search(r"mask.*_length$", name):
        return min(value, 2)
    if re.search(r"(^|num_)frames$", name):
        return min(value, FRAMES)
    if "window" in name and value > POSITIONS:
        return WINDOW
    if _SIZE.search(name) and not _KEPT.search(name) and value >= 48:
        return max(8, value // ratio // 4 * 4)
    return value


def _is_layers(name: str) -> bool:
    return bool(re.search(r"layers?$|^depth$|^n_layer|num_blocks$", name)) and "norm" not in name


def repairs(original: Mapping[str, Any], small: Mapping[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Yield changes of a shrunk configuration that `text`, the error it leads to, suggests; likely ones first.

    Fields that the error names get their old value back or, where they are unset, a number; shrunk fields that have
    one of the sizes in the error get the others; then every other shrunk field in turn gets its old value back. A
    model that is too large is cut down further.
    """
    shrunk = [name for name, value in small.items() if name in original and original[name] != value]
    inside = [n for n, v in small.items() if n.endswith("config") and v and isinstance(v, Mapping) and original.get(n)]
    unset = [name for name, value in small.items() if value is None and not name.startswith("_")]
    for name in sorted(small, key=len, reverse=True):
        if re.search(rf"\b{re.escape(name)}\b", text):
            yield from ({**small, name: value} for value in _others(small[name], original.get(name)))
    unknown = re.search(r"Config' object has no attribute '(\w+)'", text)
    if unknown and "parameters when" not in text:
        yield from ({**small, unknown[1]: value} for value in (0.02, 1, HIDDEN, False))
    staged = _staged(original, small)
    if staged != small and "parameters when" not in text:
        yield staged
    # small numbers are batches, channels and ranks, which no size of a layer is to be exchanged for
    sizes = [
        int(number) for number in dict.fromkeys(re.findall(r"\b\d+\b", text)) if NARROWEST <= int(number) <= WIDEST
    ]
    for name, value in small.items() if "parameters when" not in text else ():
        if value in sizes and original.get(name) != value and not isinstance(value, bool):
            yield from ({**small, name: size} for size in sizes if size != value)
    if "parameters when" in text:
        floats = {name: _cut(value) for name, value in small.items() if isinstance(value, float)}
        yield {**small, **floats}
        for name in inside:
            first = itertools.islice(repairs(original[name], small[name], text), 3)
            yield from ({**small, name: changed} for changed in first)
        yield {**small, **{name: _cut(value) for name, value in small.items() if isinstance(value, list)}}
        yield from ({**small, name: _cut(value)} for name, value in small.items() if _cut(value) != value)
    if "ImportError" in text:
        yield from ({**small, name: not value} for name, value in small.items() if isinstance(value, bool))
    if "None" in text:
        yield from ({**small, name: 1} for name in unset if re.search(r"(_id|_length|_size|_dim|_window)$", name))
        yield from ({**small, name: {}} for name in unset if name.endswith("config"))
    for name in sorted(shrunk, key=lambda name: not (_is_layers(name) or isinstance(small[name], list))):
        if not isinstance(small[name], Mapping):
            yield {**small, name: original[name]}
    groups = (lambda n: isinstance(small[n], list), _is_layers, lambda n: "head" in n, lambda n: True)
    for group in groups:
        yield {**small, **{n: original[n] for n in shrunk if group(n) and not isinstance(small[n], Mapping)}}
    for name in inside:
        yield from ({**small, name: changed} for changed in repairs(original[name], small[name], text))
    yield {**small, **_derived(original)}


def _derived(original: Mapping[str, Any]) -> dict[str, Any]:
    return {name: original[name] for name in sorted(_DERIVED & set(original)) if not name.startswith("_")}


def _staged(original: Mapping[str, Any], small: Mapping[str, Any]) -> dict[str, Any]:
    """Give backbones, nested ones too, that return several stages all their stages back."""
    found = dict(small)
    for name, value in small.items():
        if name.endswith("config") and isinstance(value, Mapping) and isinstance(original.get(name), Mapping):
            found[name] = _staged(original[name], value)
    if len(original.get("out_features") or ()) > 1:
        lists = {n: original[n] for n, v in small.items() if n in original and (isinstance(v, list) or _is_layers(n))}
        found |= {**lists, **_derived(original)}
    return found


def _others(value: Any, original: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if value is None or value == 0:
        return (2, 1, 8, True)
    if isinstance(value, int):
        return tuple(dict.fromkeys(one for one in (original, 1, 2, 2 * value, value // 2) if one not in (value, 0)))
    return (original,) if original != value else ()


def _cut(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value // 4 if value >= 16 else value
    if isinstance(value, float):
        return value / 4 if value >= 1 else value
    return [_cut(item) for item in value] if isinstance(value, list) else value


Choices = Mapping[str, tuple[str, ...]]


def variations(config: Mapping[str, Any], text: str, choices: Choices) -> Iterator[dict[str, Any]]:
    """Yield overrides that may reach other branches; fields that `text` mentions come first.

    `choices` are the strings that the file compares an attribute of a name with.
    """
    for name, value in sorted(config.items(), key=lambda item: item[0] not in text):
        if isinstance(value, str) or (value is None and name in choices):
            activation = re.search(r"act|_fn$|activation|proj$", name)
            known = ("gelu", "relu", "silu", "gelu_new") if activation else ()
            yield from ({name: other} for other in (*choices.get(name, ()), *known) if other != value)
    flags = [name for name, value in config.items() if isinstance(value, bool) and name != "return_dict"]
    for name in sorted(flags, key=lambda name: (name not in text, name)):
        yield {name: not config[name]}
    if {"is_decoder", "add_cross_attention"} <= set(config):
        yield {"is_decoder": True, "add_cross_attention": True}
    yield from _numbers(config, text)
    yield from _nested(config, text, choices)


def _nested(config: Mapping[str, Any], text: str, choices: Choices) -> Iterator[dict[str, Any]]:
    """Yield variations of the configurations inside a configuration."""
    for name, value in config.items():
        if name.endswith("config") and isinstance(value, Mapping) and value:
            for override in variations(value, text, choices):
                yield {name: {**value, **override}}


def compared_strings(source: str) -> Choices:
    """Return by name the strings that a file compares names and attributes with, as in `self.kind == "a"`."""
    found: dict[str, dict[str, None]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in sides]
            constants = [one.value for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)]
            for name in filter(None, names):
                found.setdefault(name, {}).update({one: None for one in constants if isinstance(one, str)})
    return {name: tuple(values) for name, values in found.items()}


def _numbers(config: Mapping[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Yield other values for optional and zero fields that the changed text reads."""
    for name, value in config.items():
        if name in text and (value is None or (value == 0 and not isinstance(value, bool))):
            yield from ({name: other} for other in (1, 2, 0.5))
