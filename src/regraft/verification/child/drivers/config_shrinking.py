"""Shrink a configuration by the names of its fields (`field_tables`), so that sizes that are equal
or proportional within it stay so."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verification.child.drivers.field_kinds import (
    is_config,
    is_key_value_heads,
    is_size,
    singular,
)
from regraft.verification.child.drivers.field_tables import (
    ATTENTION_HEADS_FIELD,
    COUNT_LIMITS,
    DERIVED,
    FEATURE_LIST_FIELDS,
    HIDDEN_FIELDS,
    NEEDED,
    PRETRAINED_FLAGS,
    ROTARY_FIELDS,
    ROTARY_SECTIONS_FIELD,
    SIZE_LIMITS,
    TIMM_ARGUMENT_FIELDS,
    TIMM_MODEL_FIELDS,
    TIMM_TEST_MODEL,
    TIMM_TEST_PREFIX,
    VOCABULARY,
    WIDEST,
    Limit,
)
from regraft.verification.child.drivers.head_width_fixers import divide_head_widths
from regraft.verification.child.drivers.layer_counts import (
    LayerCounts,
    cut_list_by_layer,
    cut_positions,
    is_list_of_positions,
    layer_counts,
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The hidden size, number of heads and side of images, in pixels, to shrink to.

    A `mild` scale leaves the sizes of layers alone, and its `hidden` and `heads` are 0.
    """

    hidden: int
    heads: int
    image: int = 32
    mild: bool = False

    @property
    def head_width(self) -> int:
        """Return the width of one head; a mild scale, which has no heads, raises
        ZeroDivisionError."""
        return self.hidden // self.heads


# The scales that are tried, in this order.
SCALES = (
    Scale(32, 4),
    Scale(64, 4),
    Scale(64, 2),
    Scale(256, 2),  # heads of 128, for which some rotary embeddings are written
    Scale(0, 0, 64, mild=True),
    Scale(0, 0, WIDEST, mild=True),  # images of full size
)


@dataclass(frozen=True, slots=True)
class _Shrinkage:
    """The parameters by which the fields of one configuration, without nested ones, are shrunk.

    Sizes of layers without a limit of their own are divided by `ratio`, or by that of their part of
    the model in `part_ratios`, which has the beginnings of the names of parts' fields as keys.
    """

    scale: Scale
    ratio: int
    part_ratios: Mapping[str, int]
    layers: LayerCounts

    def ratio_of(self, name: str) -> int:
        """Return the number by which the size of a layer is divided that a field states."""
        ratios = (ratio for start, ratio in self.part_ratios.items() if name.startswith(start))
        return next(ratios, self.ratio)


def shrink(config: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """Return a small version of a configuration given as a dictionary; the configuration itself is
    not changed.

    A nested configuration is shrunk by its own sizes, so a size that it shares with the outer one
    may become different (`size_fixers.equalise_sizes` mends that). Mappings from layer numbers are
    dropped and, where layers are dropped, so are fields that the configuration derives from others.
    """
    layers = layer_counts(config)
    shrinkage = _Shrinkage(scale, _ratio(config, scale), _part_ratios(config, scale), layers)
    remaining = _without_derived_fields(config, layers)
    small = {name: _shrink_value(name, value, shrinkage) for name, value in remaining.items()}
    if any(small[name] != config[name] for name in TIMM_MODEL_FIELDS & small.keys()):
        small |= _emptied_arguments(remaining)
    return small | _equal_head_counts(remaining, small) | divide_head_widths(remaining, small)


def _ratio(config: Mapping[str, Any], scale: Scale) -> int:
    """Return the number by which sizes of layers are divided, at least 1; 16 where the
    configuration or the scale does not state the width of the model."""
    hidden = _width(config)
    return max(1, hidden // scale.hidden) if hidden and scale.hidden else 16


def _width(config: Mapping[str, Any]) -> int:
    """Return the width of the model that a configuration states, 0 where it states none."""
    return next((config[name] for name in HIDDEN_FIELDS if isinstance(config.get(name), int)), 0)


def _part_ratios(config: Mapping[str, Any], scale: Scale) -> dict[str, int]:
    """Return, by the beginning of the names of a part's fields (`text_` of `text_hidden_dim` and
    `text_heads`), the number by which the sizes of that part are divided, so that it gets the width
    of the scale; {} where the configuration states the width of the whole model."""
    if _width(config) or not scale.hidden:
        return {}
    return {
        name[: -len(ending)]: max(1, value // scale.hidden)
        for ending in HIDDEN_FIELDS
        for name, value in config.items()
        if "_" in ending and name.endswith(f"_{ending}") and isinstance(value, int)
    }


def _without_derived_fields(config: Mapping[str, Any], layers: LayerCounts) -> dict[str, Any]:
    """Return the fields without mappings from layer numbers and, where layers are dropped, without
    derived fields that list stages: the configuration computes them anew."""
    has_fewer_stages = layers.most > layers.target
    dropped_names = {
        name
        for name in DERIVED & config.keys()
        if has_fewer_stages and not _is_list_of_widths(name, config[name])
    }
    return {
        name: value
        for name, value in config.items()
        if name not in dropped_names and not _is_mapping_by_layer(value)
    }


def _emptied_arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return, by name, an empty mapping for each field with keywords for a model of timm: the model
    of timm that replaced it does not take them."""
    return {
        name: {}
        for name, value in fields.items()
        if name in TIMM_ARGUMENT_FIELDS and isinstance(value, Mapping)
    }


def _equal_head_counts(fields: Mapping[str, Any], small: Mapping[str, Any]) -> dict[str, Any]:
    """Return, by name, the small number of heads for each field with the number of heads of keys
    and values that was equal to the number of heads; {} where that number is not stated."""
    heads = fields.get(ATTENTION_HEADS_FIELD)
    if heads is None:
        return {}
    return {
        name: small[ATTENTION_HEADS_FIELD]
        for name, value in fields.items()
        if name.startswith("num_") and is_key_value_heads(name) and value == heads
    }


def _is_list_of_widths(name: str, value: Any) -> bool:
    """Return whether a field lists widths of features, all integers, although its name may also be
    that of a list of stages."""
    return (
        name in FEATURE_LIST_FIELDS
        and isinstance(value, list | tuple)
        and all(type(element) is int for element in value)
    )


def _is_mapping_by_layer(value: Any) -> bool:
    """Return whether a value is a mapping from layer numbers, whose layers may be dropped. A
    mapping from numbers to strings only has the labels of classes, and is none."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(str(key).isdigit() for key in value)
        and not _is_label_mapping(value)
    )


def _is_label_mapping(value: Mapping[str, Any]) -> bool:
    """Return whether all values of a mapping are strings, as labels of classes are."""
    return all(isinstance(label, str) for label in value.values())


def _shrink_value(name: str, value: Any, shrinkage: _Shrinkage) -> Any:
    """Return a small value for a field, by its type and name; a needed value for an unset field of
    `NEEDED`, and values of other types unchanged."""
    if name in NEEDED and value is None:
        return NEEDED[name]
    for kind, shrink_kind in _SHRINK_BY_TYPE:
        if isinstance(value, kind):
            return shrink_kind(name, value, shrinkage)
    return value


def _shrink_mapping(name: str, value: Mapping[str, Any], shrinkage: _Shrinkage) -> dict[str, Any]:
    """Return a small version of a nested configuration, or a copy of another mapping; sections of
    rotary embeddings in it are made to fit the small heads."""
    scale = shrinkage.scale
    if is_config(name, value):
        return shrink(value, scale)
    if scale.mild or name not in ROTARY_FIELDS:
        return dict(value)
    return {
        k: _shrink_sections(v, scale) if k == ROTARY_SECTIONS_FIELD else v for k, v in value.items()
    }


def _shrink_sections(value: Any, scale: Scale) -> Any:
    """Return three sections that add up to half of a head's width in place of a list of three;
    other values unchanged."""
    if not isinstance(value, list) or len(value) != 3:
        return value
    half = scale.head_width // 2
    return [half - 2 * (half // 4), half // 4, half // 4]


def _shrink_text(name: str, value: str, shrinkage: _Shrinkage) -> str:
    """Return the small model of timm for a field with the name of one; other texts unchanged."""
    is_shrunk = name in TIMM_MODEL_FIELDS and not shrinkage.scale.mild
    return _small_timm_model(value) if is_shrunk else value


@functools.cache
def _small_timm_model(model: str) -> str:
    """Return, for the name of a model of timm, that of the model which timm has for tests: of the
    same family, or else one with stages. Other names, and all names without timm, are unchanged."""
    if importlib.util.find_spec("timm") is None:
        return model
    import timm

    if not timm.is_model(model):
        return model
    family = TIMM_TEST_PREFIX + re.split(r"[_\d]", model)[0]
    return next((name for name in (family, TIMM_TEST_MODEL) if timm.is_model(name)), model)


def _shrink_flag(name: str, value: bool, _: _Shrinkage) -> bool:
    """Return False for a flag that would download weights; other flags unchanged."""
    return value and name not in PRETRAINED_FLAGS


def _shrink_list(name: str, value: list[Any] | tuple[Any, ...], shrinkage: _Shrinkage) -> Any:
    """Return a small version of a list or tuple, as a list; an empty one unchanged.

    A list with an element for each layer keeps as many elements as there are layers left, and a
    list of positions keeps positions of these layers. Integers are shrunk by the name of the field.
    """
    if not value:
        return value
    layers, values = shrinkage.layers, list(value)
    if len(values) in layers.counts and len(values) > layers.target:
        values = cut_list_by_layer(values, layers.target)
    elif is_list_of_positions(name, values, layers):
        return cut_positions(values, layers.target)
    if all(isinstance(element, int) and not isinstance(element, bool) for element in values):
        element_name = singular(name)
        return [_shrink_integer(element_name, element, shrinkage) for element in values]
    return values


def _shrink_integer(name: str, value: int, shrinkage: _Shrinkage) -> int:
    """Return a small number for a field, by the first limit that applies to it; the number
    unchanged where none does. A mild scale applies `COUNT_LIMITS` only."""
    limit = _first_limit(COUNT_LIMITS, name, value)
    if limit is None and value and not shrinkage.scale.mild:  # 0 leaves a component out
        limit = _first_limit(SIZE_LIMITS, name, value)
    if limit is None:
        return value
    if isinstance(limit.largest, int):
        return min(value, limit.largest)
    return _RULES[limit.largest](name, value, shrinkage)


def _first_limit(limits: tuple[Limit, ...], name: str, value: int) -> Limit | None:
    """Return the first limit that applies to a field with a value; None for none."""
    return next((limit for limit in limits if limit.applies(name, value)), None)


def _shrink_token_id(name: str, value: int, _: _Shrinkage) -> int:
    """Return a token of the small vocabulary; a larger one becomes one of the last eight, chosen by
    the name of the field so that different special tokens mostly stay different."""
    return value if value < VOCABULARY else VOCABULARY - 1 - sum(map(ord, name)) % 8


_Rule = Callable[[str, int, _Shrinkage], int]
# The limits that depend on the scale or on the layers, by their names in the tables of limits.
_RULES: Mapping[str, _Rule] = {
    "token id": _shrink_token_id,
    "layers": lambda _, value, by: min(value, by.layers.target),
    "layers but the last": lambda _, value, by: min(value, by.layers.target - 1),
    "image side": lambda _, value, by: min(value, by.scale.image),
    "heads": lambda _, value, by: min(value, by.scale.heads),
    "half of the heads": lambda _, value, by: max(1, min(value, by.scale.heads // 2)),
    "width of a head": lambda _, __, by: by.scale.head_width,
    "size of a layer": lambda name, value, by: (
        max(8, value // by.ratio_of(name) // 4 * 4) if is_size(name) else value
    ),
}
# The function that shrinks the values of a type; a bool is an int, too, and comes first.
_SHRINK_BY_TYPE: tuple[tuple[Any, Callable[[str, Any, _Shrinkage], Any]], ...] = (
    (Mapping, _shrink_mapping),
    (list | tuple, _shrink_list),
    (str, _shrink_text),
    (bool, _shrink_flag),
    (int, _shrink_integer),
)
