"""Models of transformers at sizes for a GPU, for `regraft bench`: each function returns a model in
bfloat16 on CUDA and its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers

CUDA = torch.device("cuda")
Target = tuple[Any, dict[str, torch.Tensor]]
WIDE = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "vocab_size": 32_000,
}


@contextmanager
def half_precision() -> Iterator[None]:
    """Make parameters in bfloat16 for the length of a `with` block; buffers in float32 stay so."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


def language_model(name: str, batch: int, length: int, **fields: Any) -> Target:
    """Return a causal language model, with labels, so that the step has the loss."""
    config = getattr(transformers, f"{name}Config")(**WIDE, **fields)
    tokens = torch.randint(0, config.vocab_size, (batch, length), device=CUDA)
    with half_precision(), CUDA:
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    return model, {"input_ids": tokens, "labels": tokens, "use_cache": False}


def llama() -> Target:
    """Return four layers of the width of a Llama with a billion parameters, 4 x 2048 tokens."""
    return language_model("Llama", 4, 2048, num_key_value_heads=4)


def qwen3() -> Target:
    """Return four layers of a Qwen3 of the same width, 4 x 2048 tokens."""
    return language_model("Qwen3", 4, 2048, num_key_value_heads=4, head_dim=64)


def bert() -> Target:
    """Return a BERT at its usual width, 32 x 512 tokens, with eager attention."""
    config = transformers.BertConfig(num_hidden_layers=4)
    config._attn_implementation = "eager"
    with half_precision(), CUDA:
        model = transformers.BertModel(config)
    tokens = torch.randint(0, config.vocab_size, (32, 512), device=CUDA)
    return model, {"input_ids": tokens}
