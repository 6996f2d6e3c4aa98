"""A model of transformers with PyTorch's attention in place of its eager one: the alternative that
its library offers without Regraft."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from regraft.benchmarking.steps import BenchError


def with_sdpa(model: Any, copy: Callable[[], Any]) -> Any | None:
    """Return a copy of a model that computes attention by `scaled_dot_product_attention`. Return
    None for a model that is none of transformers, does not support that, or does not run eager
    attention. Raises BenchError where the library refuses what the model says it supports."""
    transformers = sys.modules.get("transformers")  # a model of it has imported it
    pretrained = getattr(transformers, "PreTrainedModel", None)
    if pretrained is None or not isinstance(model, pretrained):
        return None
    is_eager = getattr(model.config, "_attn_implementation", None) == "eager"
    has_setter = hasattr(model, "set_attn_implementation")
    if not is_eager or not has_setter or not getattr(model, "_supports_sdpa", False):
        return None
    copied = copy()
    try:
        copied.set_attn_implementation("sdpa")
    except Exception as problem:
        raise BenchError(
            f"set_attn_implementation('sdpa') fails: {type(problem).__name__}: {problem}"
        ) from problem
    return copied
