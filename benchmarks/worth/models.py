"""What Regraft's own choice is worth for whole models: eager attention, the library's own `sdpa`
where it has it, and what `regraft.optimize(model)` makes of the eager model.

Each subject is a model of transformers at its usual width with two layers, so that a step takes
about a second on one core, or the engineer's model of `examples/own-repository`. Regraft applies
what pays on the device, nothing is selected. Times are compared in pairs: how many times as fast
the model is as the eager one, with the interval that holds the true number with a probability of
95%, and the peak memory, that of the eager one being 1.

    python benchmarks/worth/models.py [--only REGEX] [--rounds N] [--modes inference,training]

Exits with 1 where Regraft's own choice is slower: where the whole interval is below 0.98.
"""

from __future__ import annotations

import argparse
import copy
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")

import torch
import transformers

import regraft
from regraft.bench.measure import Pair, compare, is_decided, peak, step
from regraft.live import NothingOptimized

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-repository"
CPU = torch.device("cpu")
SLOWEST = 0.98
Subject = tuple[Any, dict[str, Any]]  # a model and the keywords of its call


def tokens(batch: int, length: int, words: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(0, words, (batch, length))}


def images(batch: int, size: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, size, size)}


def encoder(name: str, inputs: dict[str, Any], **fields: Any) -> Callable[[str], Subject]:
    """Return a function that builds a model of transformers with an attention implementation."""

    def build(attention: str) -> Subject:
        config = getattr(transformers, f"{name.removesuffix('Model')}Config")(**fields)
        config._attn_implementation = attention
        return getattr(transformers, name)(config), inputs

    return build


def storyteller(_: str) -> Subject:
    """Return the model of the example repository and a batch of its training script."""
    sys.path.insert(0, str(EXAMPLE))
    from storyteller.config import Config  # type: ignore[import-not-found]
    from storyteller.model import Storyteller  # type: ignore[import-not-found]

    words = torch.randint(Config().vocabulary, (2, 513))
    return Storyteller(Config()), {"tokens": words[:, :-1], "targets": words[:, 1:]}


TWO = {"num_hidden_layers": 2}
SUBJECTS: dict[str, Callable[[str], Subject]] = {
    "BERT, 4 x 128": encoder("BertModel", tokens(4, 128, 30522), **TWO),
    "BERT, 1 x 512": encoder("BertModel", tokens(1, 512, 30522), **TWO),
    "GPT-2, 2 x 512": encoder("GPT2Model", tokens(2, 512, 50257), n_layer=2),
    "Llama, 1 x 512": encoder(
        "LlamaModel",
        tokens(1, 512, 32000),
        hidden_size=768,
        intermediate_size=2048,
        num_attention_heads=12,
        **TWO,
    ),
    "Qwen3, 1 x 512": encoder(
        "Qwen3Model",
        tokens(1, 512, 32000),
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=2048,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=64,
        **TWO,
    ),
    "ViT, 4 x 224": encoder("ViTModel", images(4, 224), **TWO),
    "DINOv2, 2 x 224": encoder("Dinov2Model", images(2, 224), **TWO),
    "CLIP's images, 4 x 224": encoder("CLIPVisionModel", images(4, 224), **TWO),
    "T5's encoder, 2 x 512": encoder("T5EncoderModel", tokens(2, 512, 32128), num_layers=2),
    "Mamba, 1 x 64": encoder("MambaModel", tokens(1, 64, 50280), hidden_size=256, **TWO),
    "ResNet, 2 x 224": encoder("ResNetModel", images(2, 224), depths=[1, 1, 1, 1]),
    "Storyteller, 2 x 512": storyteller,
}


def rows(name: str, modes: list[str], rounds: int) -> Iterator[tuple[str, Pair, float, str]]:
    """Yield the comparisons of a subject with its eager model: a label, the times, the memory and
    the rules."""
    build = SUBJECTS[name]
    torch.manual_seed(0)
    eager, call = build("eager")
    others = {"Regraft": copy.deepcopy(eager)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingOptimized)
        report = regraft.optimize(others["Regraft"], lock=False, verify=False)
    if getattr(eager, "_supports_sdpa", False):
        others["sdpa"] = build("sdpa")[0]
        others["sdpa"].load_state_dict(eager.state_dict())
    for mode in modes:
        steps = {
            label: step(model.train(mode == "training"), [((), call)], mode == "training")
            for label, model in {"eager": eager, **others}.items()
        }
        for label in others:
            pair = compare(steps["eager"], steps[label], rounds, CPU, is_enough=is_decided)
            memory = peak(steps[label], CPU) / max(peak(steps["eager"], CPU), 1)
            rules = ", ".join(report.rules) or "nothing pays"
            yield f"{label:8} {mode:9}", pair, memory, rules if label == "Regraft" else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only subjects whose name this is found in")
    parser.add_argument("--rounds", type=int, default=20, help="the most pairs of a comparison")
    parser.add_argument("--modes", default="inference,training")
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{versions}, Python {platform.python_version()}, {platform.machine()}, one thread")
    print(f"{datetime.now(timezone.utc):%Y-%m-%d}; times as fast as eager, part of its peak memory")
    is_slower = False
    for name in SUBJECTS:
        if not re.search(options.only, name):
            continue
        for label, pair, memory, rules in rows(name, options.modes.split(","), options.rounds):
            speed = pair.speed
            times = f"{speed.median:6.2f} ({speed.low:.2f}-{speed.high:.2f})"
            old = f"{pair.old.median * 1000:7.0f} ms"
            print(f"{name:24} {label} {old} {times:20} {memory:5.2f}  {rules}", flush=True)
            is_slower |= label.startswith("Regraft") and speed.high < SLOWEST
    return int(is_slower)


if __name__ == "__main__":
    sys.exit(main())
