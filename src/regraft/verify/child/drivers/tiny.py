"""Shrink a configuration by what its fields are called, keeping equal and proportional sizes so."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verify.child.drivers.guess import HIDDEN

Choices = Mapping[str, tuple[str, ...]]  # strings by the name that a file compares with them
VOCABULARY = 99
POSITIONS = 64
LAYERS = 2
KINDS = 4  # of layers, where a configuration names them: a model keeps a layer of each
FRAMES = 4
ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new")
QUERIES = 8  # of a detector: no more than a small image has places
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
# For models whose own backbone comes from a package that is missing.
BACKBONE = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
    "layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"],
}  # fmt: skip
# Computed by the configuration from its other fields.
_DERIVED = frozenset({"stage_names", "out_features", "out_indices", "_out_features", "_out_indices"})
_KEPT = re.compile(
    r"kernel|stride|window|chunk|block|num_channels|type_vocab|buckets|group_|conv_(?!dim|.*channels)|dilation|interval|crop"
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
    layers = _layers(config)
    kept = {name: value for name, value in config.items() if name not in _DERIVED and not _by_layer(value)}
    small = {name: _shrunk(name, value, scale, ratio, layers) for name, value in kept.items()}
    heads = config.get("num_attention_heads")
    ungrouped = [n for n, v in kept.items() if n.startswith("num_") and _KV_HEADS.search(n) and v == heads]
    return {**small, **{name: small["num_attention_heads"] for name in ungrouped if heads is not None}}


@dataclass(frozen=True, slots=True)
class _Layers:
    """The numbers of layers that a configuration has, and how many are kept."""

    counts: tuple[int, ...]
    kept: int


def _layers(config: Mapping[str, Any]) -> _Layers:
    """Keep a layer of each kind that is listed by layer, and the whole of a short pattern that is repeated."""
    counts = tuple(v for k, v in config.items() if _is_layers(k) and isinstance(v, int))
    named = [v for v in config.values() if isinstance(v, list | tuple) and v and all(isinstance(k, str) for k in v)]
    kinds = [len(set(value)) for value in named if len(value) in counts]
    kinds += [len(v) for k, v in config.items() if v in named and "block" in k and len(v) < min(counts, default=0)]
    return _Layers(counts, max((LAYERS, *(kind for kind in kinds if kind <= KINDS))))


def _by_layer(value: Any) -> bool:
    """Whether a value is a mapping from layer numbers; those layers may be gone."""
    return (
        isinstance(value, Mapping) and bool(value) and all(str(key).isdigit() for key in value) and not _labels(value)
    )


def _labels(value: Mapping[str, Any]) -> bool:
    return all(isinstance(item, str) for item in value.values())


def _shrunk(name: str, value: Any, scale: Scale, ratio: int, layers: _Layers) -> Any:
    if name in _NEEDED and value is None:
        return _NEEDED[name]
    if isinstance(value, Mapping):
        nested = name.endswith("config") or name in ("encoder", "decoder", "text", "vision")
        return shrink(value, scale) if nested else _mapping(name, value, scale)
    if isinstance(value, list | tuple) and value:
        return _sequence(name, list(value), scale, ratio, layers)
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return _integer(name, value, scale, ratio, layers)


def _mapping(name: str, value: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    if name.startswith("rope") and not scale.mild:
        return {k: _sections(v, scale) if k == "mrope_section" else v for k, v in value.items()}
    return dict(value)


def _sections(value: Any, scale: Scale) -> Any:
    half = scale.hidden // scale.heads // 2
    return [half - 2 * (half // 4), half // 4, half // 4] if isinstance(value, list) and len(value) == 3 else value


def _sequence(name: str, value: list[Any], scale: Scale, ratio: int, layers: _Layers) -> list[Any]:
    if len(value) in layers.counts and len(value) > layers.kept:
        kinds = list(dict.fromkeys(map(repr, value)))
        first = [next(v for v in value if repr(v) == kind) for kind in kinds][: layers.kept]
        value = (first + value)[: layers.kept]
    if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return [_integer(name.rstrip("s"), item, scale, ratio, layers) for item in value]
    return value


def _integer(name: str, value: int, scale: Scale, ratio: int, layers: _Layers) -> int:
    if name.endswith(("token_id", "token_index")) or (name.endswith("_id") and value >= VOCABULARY):
        return value if value < VOCABULARY else VOCABULARY - 1 - sum(map(ord, name)) % 8
    if "vocab" in name and "type" not in name:
        return min(value, VOCABULARY)
    if _is_layers(name):
        return min(value, layers.kept)
    if re.search(r"(image|input|img)_size$", name):
        return min(value, scale.image)
    return value if scale.mild else _sized(name, value, scale, ratio)


def _sized(name: str, value: int, scale: Scale, ratio: int) -> int:
    if re.search(r"position|n_ctx|max_seq|max_length|context_length", name) and value > POSITIONS:
        return POSITIONS
    if _KV_HEADS.search(name):
        return max(1, min(value, scale.heads // 2))
    if re.search(r"head_(dim|size)$|(^|_)d_head$|d_kv$|kv_channels", name):
        return scale.hidden // scale.heads
    if re.search(r"heads?$", name):
        return min(value, scale.heads)
    if re.search(r"groups?$", name):  # of channels, or of experts: two in each
        return min(value, 2)
    if re.search(r"(queries|proposals)$", name):
        return min(value, QUERIES)
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


def repairs(
    original: Mapping[str, Any], small: Mapping[str, Any], text: str, line: str = "", choices: Choices | None = None
) -> Iterator[dict[str, Any]]:
    """Yield changes of a shrunk configuration that `text`, the error it leads to, suggests; likely ones first.

    Fields that the error or the `line` that raised it names get their old value back or, where they are unset, a value
    (`choices` are the strings that the file compares it with); shrunk fields that have one of the sizes in the error
    get the others; then every other shrunk field in turn gets its old value back. A model that is too large is cut
    down further. Each kind of change is tried in the nested configurations too before the next.
    """
    fault = _Fault(text, line, choices or {})
    for kind in _TOO_LARGE if "parameters when" in text else _UNFIT:
        yield from _everywhere(kind, original, small, fault)
    yield {**small, **_derived(original)}


@dataclass(frozen=True, slots=True)
class _Fault:
    """An error's text, the source line that raised it, and the strings that names are compared with in its file."""

    text: str
    line: str
    choices: Choices

    @property
    def sizes(self) -> list[int]:
        """The numbers in the error; small ones are batches, channels and ranks, no sizes of a layer."""
        numbers = map(int, dict.fromkeys(re.findall(r"\b\d+\b", self.text)))
        return [number for number in numbers if NARROWEST <= number <= WIDEST]


_Repair = Callable[[Mapping[str, Any], Mapping[str, Any], _Fault], Iterator[dict[str, Any]]]


def _everywhere(
    kind: _Repair, original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield the repairs of one kind, of a configuration and of those inside."""
    yield from kind(original, small, fault)
    for name, value in small.items():
        if name.endswith("config") and value and isinstance(value, Mapping) and original.get(name):
            yield from ({**small, name: changed} for changed in _everywhere(kind, original[name], value, fault))


def _named(original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    for text in (fault.text, fault.line):
        for name in sorted(small, key=len, reverse=True):
            if re.search(rf"\b{re.escape(name)}\b", text):
                yield from ({**small, name: value} for value in _others(small[name], original.get(name)))
    counts = [value for name, value in small.items() if _is_layers(name) and isinstance(value, int)]
    for name, value in small.items():
        strings = fault.choices.get(name, ())
        if value is None and strings and counts and f"{name}[" in fault.line:  # one for each layer
            yield {**small, name: list(itertools.islice(itertools.cycle(strings), max(counts)))}


def _unknown(_: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    found = re.search(r"Config' object has no attribute '(\w+)'|`(\w+)` argument in the config", fault.text)
    name = found and (found[1] or found[2])
    if name and small.get(name) is None:
        yield from ({**small, name: value} for value in (0.02, 1, HIDDEN, False, WINDOW))


def _stages(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    """Give a backbone that returns several stages all its stages back."""
    if len(original.get("out_features") or ()) > 1:
        lists = {n: original[n] for n, v in small.items() if n in original and (isinstance(v, list) or _is_layers(n))}
        yield {**small, **lists, **_derived(original)}


def _exchanged(original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    for name, value in small.items():
        if value in fault.sizes and original.get(name) != value and not isinstance(value, bool):
            yield from ({**small, name: size} for size in fault.sizes if size != value)


def _filled(_: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    if "ImportError" in fault.text:
        yield from ({**small, name: not value} for name, value in small.items() if isinstance(value, bool))
        for name in small if "backbone" in fault.text.lower() else ():
            if name.endswith("backbone_config"):
                yield {**small, name: BACKBONE, **dict.fromkeys(small.keys() & {"use_timm_backbone"}, False)}
    if "empty" in fault.text:
        yield from ({**small, name: value} for name, old in small.items() if old == [] for value in ([1], [1.0]))
    if "None" in fault.text:
        unset = [name for name, value in small.items() if value is None and not name.startswith("_")]
        yield from (
            {**small, name: 1} for name in unset if re.search(r"^num_|(_id|_length|_size|_dim|_window)$", name)
        )
        mapping = re.search(r"no attribute '(get|items|keys|values)'", fault.text)
        yield from ({**small, name: {}} for name in unset if name.endswith("config") or mapping)


def _doubled(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    """Sizes that have to multiply to another may have been shrunk by different parts."""
    for name in _shrunken(original, small):
        if isinstance(small[name], int) and not _is_layers(name) and "vocab" not in name:
            yield {**small, name: 2 * small[name]}


def _restored(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    for name in sorted(_shrunken(original, small), key=lambda n: not (_is_layers(n) or isinstance(small[n], list))):
        yield {**small, name: original[name]}


def _restored_together(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    shrunk = _shrunken(original, small)
    for group in (lambda n: isinstance(small[n], list), _is_layers, lambda n: "head" in n, lambda n: True):
        yield {**small, **{n: original[n] for n in shrunk if group(n)}}


def _shrunken(original: Mapping[str, Any], small: Mapping[str, Any]) -> list[str]:
    return [n for n, v in small.items() if n in original and original[n] != v and not isinstance(v, Mapping)]


def _cut_down(_: Mapping[str, Any], small: Mapping[str, Any], __: _Fault) -> Iterator[dict[str, Any]]:
    yield {**small, **{name: _cut(value) for name, value in small.items() if isinstance(value, float)}}
    yield {**small, **{name: _cut(value) for name, value in small.items() if isinstance(value, list)}}
    yield from ({**small, name: _cut(value)} for name, value in small.items() if _cut(value) != value)


_TOO_LARGE: tuple[_Repair, ...] = (_named, _cut_down, _restored)
_UNFIT: tuple[_Repair, ...] = (
    _named, _unknown, _stages, _exchanged, _filled, _doubled, _restored, _restored_together,
)  # fmt: skip


def _derived(original: Mapping[str, Any]) -> dict[str, Any]:
    return {name: original[name] for name in sorted(_DERIVED & set(original)) if not name.startswith("_")}


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


def variations(config: Mapping[str, Any], text: str, choices: Choices) -> Iterator[dict[str, Any]]:
    """Yield overrides that may reach other branches; fields that `text` mentions come first.

    `choices` are the strings that the file compares an attribute of a name with.
    """
    found = list(_variations(config, text, choices))
    yield from (override for name, override in found if _mentions(text, name))
    if {"is_decoder", "add_cross_attention"} <= set(config):
        yield {"is_decoder": True, "add_cross_attention": True}
    yield from (override for name, override in found if not _mentions(text, name))


def _mentions(text: str, name: str) -> bool:
    """Whether a text has a field's name, or its end as in `normalize_before` for `encoder_normalize_before`."""
    _, _, end = name.partition("_")
    return name in text or ("_" in end and end in text)


def _variations(config: Mapping[str, Any], text: str, choices: Choices) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of a field, of a nested configuration too, with an override that changes it."""
    for name, value in config.items():
        if isinstance(value, Mapping) and name.endswith("config"):
            for inner, override in _variations(value, text, choices):
                yield inner, {name: {**value, **override}}
        elif isinstance(value, bool):
            if name != "return_dict":
                yield name, {name: not value}
        else:
            others: tuple[Any, ...] = ()
            if isinstance(value, str) or (value is None and name in choices):
                activation = re.search(r"act|_fn$|activation|proj$", name)
                others = (*choices.get(name, ()), *(ACTIVATIONS if activation else ()))
            if name in text and (value is None or value == 0):
                others += (1, 2, 0.5)
            yield from ((name, {name: other}) for other in others if other != value)


def compared_strings(source: str) -> Choices:
    """Return by name the strings that a file compares names and attributes with, as in `self.kind == "a"`."""
    found: dict[str, dict[str, None]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            read = [side.value if isinstance(side, ast.Subscript) else side for side in sides]
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in read]
            constants = [one.value for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)]
            for name in filter(None, names):
                found.setdefault(name, {}).update({one: None for one in constants if isinstance(one, str)})
    return {name: tuple(values) for name, values in found.items()}
