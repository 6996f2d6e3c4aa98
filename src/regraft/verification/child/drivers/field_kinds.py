"""What a field of a configuration is, by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from regraft.verification.child.drivers.field_tables import (
    CONFIG_FIELDS,
    FIXED_SIZE_FIELDS,
    HEAD_SIZE_FIELDS,
    HIDDEN_FIELDS,
    KEY_VALUE_HEAD_FIELDS,
    LAYER_COUNT_FIELDS,
    LIST_ENDING,
    SIZE_FIELDS,
)


def is_config(name: str, value: Any) -> bool:
    """Return whether a field is a configuration inside another: a mapping with a usual name of one,
    or with a `model_type`."""
    return isinstance(value, Mapping) and (name in CONFIG_FIELDS or "model_type" in value)


def is_size(name: str) -> bool:
    """Return whether a field has the name of a size of a layer, or of a list of such sizes."""
    has_size = name in SIZE_FIELDS or f"{singular(name)}s" in SIZE_FIELDS
    return has_size and name not in FIXED_SIZE_FIELDS


def singular(name: str) -> str:
    """Return the name that a single number would have in place of a list: without `_list` and
    similar ends, and without any `s` at the end."""
    return re.sub(LIST_ENDING, "", name).rstrip("s")


def is_hidden(name: str) -> bool:
    """Return whether a field has a name of the width of a model."""
    return name in HIDDEN_FIELDS


def is_head_size(name: str) -> bool:
    """Return whether a field has a name of the width of one head of attention."""
    return name in HEAD_SIZE_FIELDS


def is_key_value_heads(name: str) -> bool:
    """Return whether a field has a name of the number of heads of keys and values."""
    return name in KEY_VALUE_HEAD_FIELDS


def is_layers(name: str) -> bool:
    """Return whether a field has a name of a number of layers."""
    return name in LAYER_COUNT_FIELDS
