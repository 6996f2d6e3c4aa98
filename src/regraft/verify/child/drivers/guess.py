"""Guess small values for parameters and attributes from usual names of sizes, rates and flags."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = 32
HEADS = 4
_MISSING = object()

_BY_NAME: tuple[tuple[str, Any], ...] = (
    (r"(^|_)(eps|epsilon)$|_eps(ilon)?$", 1e-6),
    (r"drop|^p$|_prob$|_p$", 0.1),
    (r"type_vocab", 2),
    (r"vocab|num_embeddings", 99),
    (r"(^|_)(num_|n_)?.*layers?$|^depth$", 2),
    (r"position|max_len|max_seq|seq_len|context", 64),
    (r"(kv|key_value).*heads?|heads?_kv", 2),
    (r"heads?$|^n_head", HEADS),
    (r"head_(dim|size)|d_kv", HIDDEN // HEADS),
    (r"resolution", (8, 8)),
    (r"patch_size", 2),
    (r"kernel", 3),
    (r"(^|_)(stride|groups|dilation|n_rep)$", 1),
    (r"padding", 1),
    (r"num_(labels|classes)", 3),
    (r"layer_?idx", 0),
    (r"intermediate|inner|ffn|mlp|d_ff|expan", 2 * HIDDEN),
    (r"hidden_act|activation|act_fn|^act$", "gelu"),
    (r"scale|scaling|alpha|gamma_init", 0.5),
    (r"size|dim|hidden|embed|channel|feature|width|d_model|^(d|h|n|c)$", HIDDEN),
)
_BY_TYPE = {"int": HIDDEN, "float": 0.5, "bool": False, "str": "gelu"}


def value_for(name: str, annotation: str = "", default: Any = _MISSING) -> Any:
    """Return a value for a constructor parameter or a configuration attribute: the default, or a
    guess from the name.

    Raises LookupError where no guess fits.
    """
    if default is not _MISSING:
        return default
    if annotation == "bool" or re.search(
        r"^(use|is|has|add|with|do|output)_(?!.*(dim|size|channels)$)|bias$", name
    ):
        return False
    for pattern, value in _BY_NAME:
        if re.search(pattern, name):
            return value
    if annotation in _BY_TYPE:
        return _BY_TYPE[annotation]
    raise LookupError(f"no value can be guessed for {name!r}")
