"""Ten models of transformers in training, before and after Regraft rewrites them: per rule and all
together.

    # all ten, two layers of each, adopter and torch
    python benchmarks/effect/families.py
    # also against torch.compile, and both stacked
    python benchmarks/effect/families.py bert gpt2 --compile
    # what is chosen, and what it is worth
    python benchmarks/effect/families.py --select

Models have their default widths, eager attention and random weights; `--layers` sets their depth.
Verified first (`--no-verify` skips that). Samples per second, times as fast with the 95% interval,
peak memory, as `regraft bench` measures them, on the device of `--device`. Exits with 1 where what
was chosen is slower than the original, or compiled slower than the original compiled.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")

import torch
import transformers

from regraft.benchmarking import Goal, Options, Result, bench, calls_of
from regraft.rules import load_rules
from regraft.scanning import CompiledRule, compile_rules

Made = tuple[Any, dict[str, Any]]
BATCH, LENGTH, PIXELS = 2, 128, 224


def words(vocabulary: int) -> dict[str, torch.Tensor]:
    tokens = torch.randint(5, vocabulary, (BATCH, LENGTH))
    return {"input_ids": tokens, "labels": tokens}


def language(kind: str, name: str, **depth: Any) -> Made:
    config = getattr(transformers, f"{kind}Config")(**depth, attn_implementation="eager")
    return getattr(transformers, f"{kind}{name}")(config), words(config.vocab_size)


def gpt_neo(layers: int) -> Made:
    return language(
        "GPTNeo", "ForCausalLM", num_layers=layers, attention_types=[[["global"], layers]]
    )


def resnet(layers: int) -> Made:
    model = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(depths=[layers] * 4)
    )
    return model, {
        "pixel_values": torch.randn(BATCH, 3, PIXELS, PIXELS),
        "labels": torch.zeros(BATCH).long(),
    }


def groupvit(layers: int) -> Made:
    config = transformers.GroupViTConfig(
        text_config={"num_hidden_layers": layers},
        vision_config={"depths": [layers] * 3},
        attn_implementation="eager",
    )
    texts = torch.randint(5, 40_000, (BATCH, 32))
    images = torch.randn(BATCH, 3, PIXELS, PIXELS)
    return transformers.GroupViTModel(config), {
        "input_ids": texts,
        "pixel_values": images,
        "return_loss": True,
    }


MODELS: Mapping[str, Callable[[int], Made]] = {
    "bert": lambda layers: language("Bert", "ForMaskedLM", num_hidden_layers=layers),
    "roberta": lambda layers: language("Roberta", "ForMaskedLM", num_hidden_layers=layers),
    "albert": lambda layers: language(
        "Albert",
        "ForMaskedLM",
        num_hidden_layers=layers,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "distilbert": lambda layers: language("DistilBert", "ForMaskedLM", n_layers=layers),
    "gpt2": lambda layers: language("GPT2", "LMHeadModel", n_layer=layers),
    "gpt_neo": gpt_neo,
    "t5": lambda layers: language(
        "T5", "ForConditionalGeneration", num_layers=layers, decoder_start_token_id=0
    ),
    "llama": lambda layers: language(
        "Llama",
        "ForCausalLM",
        num_hidden_layers=layers,
        hidden_size=768,
        intermediate_size=2048,
        num_attention_heads=12,
    ),
    "resnet": resnet,
    "groupvit": groupvit,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="default: all")
    parser.add_argument("--packs", default="adopter,torch")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--mode", choices=["training", "inference"], default="training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--select", action="store_true")
    parser.add_argument("--no-verify", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rules, problems = compile_rules(load_rules(options.packs.split(","))[0])
    if problems:
        parser.error(str(problems[0]))
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, Python"
        f" {platform.python_version()},"
    )
    print(
        f"{options.device} ({platform.machine()}), {options.mode}, {options.rounds} pairs,"
        f" {time.strftime('%F')}\n"
    )
    print(f"{'model':11}{'':38}{'samples/s':>10}{'times as fast':>20}{'memory':>9}")
    slower = [name for name in options.models or MODELS if not measured(name, rules, options)]
    if slower:
        print(f"slower than without: {', '.join(slower)}")
    return int(bool(slower))


def measured(name: str, rules: Sequence[CompiledRule], options: argparse.Namespace) -> bool:
    """Measure and print one model; False where it became slower by what was chosen, or compiled by
    all rules."""
    torch.manual_seed(0)
    model, inputs = MODELS[name](options.layers)
    model, inputs = (
        model.to(options.device),
        {key: _moved(one, options.device) for key, one in inputs.items()},
    )
    how = Options(
        (options.mode,),
        options.rounds,
        compile=options.compile,
        verify=not options.no_verify,
        goal=Goal("fastest") if options.select else None,
    )
    result = bench(
        model, calls_of(inputs), [one for one in rules if one.rule.syntax.safety != "contract"], how
    )
    for row in result.rows:
        label = row.name if row.against == "original" else f"{row.name} / {row.against}"
        _print(
            name,
            label,
            row.pair.new.median,
            row.pair.speed,
            row.bytes / row.bytes_against,
            row.differs,
        )
    return not _slower(name, result)


def _slower(name: str, result: Result) -> bool:
    """Whether an interval says so: of the choice, or of all rules with torch.compile against it
    alone."""
    stacked = [row.pair.speed for row in result.rows if row.against == "torch.compile"]
    whole = result.chosen.whole if result.chosen is not None else None
    if result.chosen is not None:
        label = "chosen: " + (", ".join(sorted(result.chosen.rules)) or "none")
        if whole is None:
            print(f"{name:11}{label}")
        else:
            _print(
                name,
                label,
                whole.pair.new.median,
                whole.pair.speed,
                whole.bytes / whole.bytes_without,
                "",
            )
            stacked.append(whole.pair.speed)
    return any(speed.high < 1 for speed in stacked)


def _print(name: str, label: str, seconds: float, speed: Any, memory: float, differs: str) -> None:
    shown = f"{speed.median:.2f} ({speed.low:.2f}-{speed.high:.2f})"
    print(
        f"{name:11}{label:38}{BATCH / seconds:>10.2f}{shown:>20}{memory:>8.0%} {differs}",
        flush=True,
    )


def _moved(one: Any, device: str) -> Any:
    return one.to(device) if isinstance(one, torch.Tensor) else one


if __name__ == "__main__":
    sys.exit(main())
