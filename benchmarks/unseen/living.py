"""What `regraft.optimize(model, example_inputs)` rewrites in living models of public repositories.

    python benchmarks/unseen/living.py --repositories DIR [--python PATH] [--only REGEX]

DIR holds a checkout of each repository as OWNER+NAME, as for `run.py`. Each model is built small,
by its repository's own classes, in a process of its own; PATH is a Python with the packages that
the repositories import. Prints, for each model, how many places were rewritten and proved, how many
stayed as they are, the seconds, and whether the restored model computes the same bits as before;
below it each place that stayed, with the reason. Exits with 1 where a restored model differs or a
model could not be built.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PACKS = ("adopter", "torch", "idioms")
SECONDS = 300.0  # for the verification of each file

Subject = Callable[[], tuple[Any, Any]]


def nanogpt() -> tuple[Any, Any]:
    """Build a model of two layers and a call with targets."""
    import torch
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    model = GPT(GPTConfig(block_size=64, vocab_size=128, n_layer=2, n_head=2, n_embd=64))
    tokens = torch.randint(0, 128, (2, 32))
    return model, (tokens, tokens.roll(-1, 1))


def llama2c() -> tuple[Any, Any]:
    """Build a Llama of two layers and a call with targets."""
    import torch
    from model import ModelArgs, Transformer

    model = Transformer(
        ModelArgs(dim=64, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=128, max_seq_len=64)
    )
    tokens = torch.randint(0, 128, (2, 32))
    return model, (tokens, tokens.roll(-1, 1))


def whisper() -> tuple[Any, Any]:
    """Build an encoder and a decoder of two layers and a call with a spectrogram."""
    import torch
    from whisper.model import ModelDimensions, Whisper  # type: ignore[import-not-found]

    model = Whisper(ModelDimensions(16, 20, 32, 2, 2, 100, 24, 32, 2, 2))
    return model, (torch.randn(2, 16, 40), torch.randint(0, 100, (2, 12)))


def clip() -> tuple[Any, Any]:
    """Build both towers, small, and a call with images and texts."""
    import torch
    from clip.model import CLIP  # type: ignore[import-not-found]

    model = CLIP(32, 32, 2, 64, 8, 16, 100, 32, 2, 2)
    return model, (torch.randn(2, 3, 32, 32), torch.randint(0, 100, (2, 16)))


def dino() -> tuple[Any, Any]:
    """Build a vision transformer of two layers and a call with images."""
    import torch
    import vision_transformer  # type: ignore[import-not-found]

    model = vision_transformer.VisionTransformer(
        img_size=[32], patch_size=8, embed_dim=32, depth=2, num_heads=2
    )
    return model, torch.randn(2, 3, 32, 32)


def vit() -> tuple[Any, Any]:
    """Build a vision transformer of two layers and a call with images."""
    import torch
    from vit_pytorch.vit import ViT  # type: ignore[import-not-found]

    model = ViT(
        image_size=32,
        patch_size=8,
        num_classes=10,
        dim=32,
        depth=2,
        heads=2,
        mlp_dim=64,
        dropout=0.1,
    )
    return model, torch.randn(2, 3, 32, 32)


def mamba() -> tuple[Any, Any]:
    """Build a Mamba of two layers and a call with tokens."""
    import torch
    from model import Mamba, ModelArgs

    return Mamba(ModelArgs(d_model=32, n_layer=2, vocab_size=64)), torch.randint(0, 64, (2, 12))


def bert() -> tuple[Any, Any]:
    """Build a BERT of two layers and a call with tokens and segments."""
    import torch
    from bert_pytorch.model import BERT  # type: ignore[import-not-found]

    tokens = torch.randint(1, 64, (2, 12))
    return BERT(64, hidden=32, n_layers=2, attn_heads=2), (tokens, torch.randint(0, 3, (2, 12)))


def openai_lm() -> tuple[Any, Any]:
    """Build a language model of two layers and a call with tokens and positions."""
    import torch
    from model_pytorch import DEFAULT_CONFIG, LMModel, dotdict  # type: ignore[import-not-found]

    config = dotdict({**DEFAULT_CONFIG, "n_embd": 32, "n_head": 2, "n_layer": 2})
    return LMModel(config, vocab=64, n_ctx=16), torch.randint(0, 64, (2, 16, 2))


def vision_transformer_of_flax() -> tuple[Any, Any]:
    """Build a vision transformer by a configuration and a call with images and labels."""
    import torch
    from models import configs  # type: ignore[import-not-found]
    from models.modeling import VisionTransformer  # type: ignore[import-not-found]

    config = configs.get_testing()
    config.hidden_size, config.transformer.mlp_dim = 32, 64
    config.transformer.num_heads, config.transformer.num_layers = 2, 2
    model = VisionTransformer(config, img_size=32, num_classes=10, vis=True)
    return model, torch.randn(2, 3, 32, 32)


def resnet() -> tuple[Any, Any]:
    """Build a ResNet-18 and a call with images."""
    import torch
    from models import ResNet18

    return ResNet18(), torch.randn(2, 3, 32, 32)


def palm() -> tuple[Any, Any]:
    """Build a PaLM of two layers and a call with tokens."""
    import torch
    from palm_pytorch import PaLM  # type: ignore[import-not-found]

    return PaLM(num_tokens=64, dim=32, depth=2, heads=2, dim_head=16), torch.randint(0, 64, (2, 12))


def perceiver() -> tuple[Any, Any]:
    """Build a Perceiver IO of two layers and a call with a sequence and queries."""
    import torch
    from perceiver_pytorch import PerceiverIO  # type: ignore[import-not-found]

    model = PerceiverIO(
        depth=2, dim=32, queries_dim=32, num_latents=8, latent_dim=32, cross_dim_head=16,
        latent_heads=2, latent_dim_head=16, logits_dim=10, decoder_ff=True,
    )  # fmt: skip
    return model, {"data": torch.randn(2, 20, 32), "queries": torch.randn(5, 32)}


def yolo() -> tuple[Any, Any]:
    """Build the nano detector of its configuration file and a call with images."""
    import torch
    from models.yolo import DetectionModel  # type: ignore[import-not-found]

    return DetectionModel("models/yolov5n.yaml", ch=3, nc=4), torch.randn(1, 3, 64, 64)


SUBJECTS: dict[str, Subject] = {
    "karpathy/nanoGPT": nanogpt,
    "karpathy/llama2.c": llama2c,
    "openai/whisper": whisper,
    "openai/CLIP": clip,
    "facebookresearch/dino": dino,
    "lucidrains/vit-pytorch": vit,
    "johnma2006/mamba-minimal": mamba,
    "codertimo/BERT-pytorch": bert,
    "huggingface/pytorch-openai-transformer-lm": openai_lm,
    "jeonsworld/ViT-pytorch": vision_transformer_of_flax,
    "kuangliu/pytorch-cifar": resnet,
    "lucidrains/PaLM-pytorch": palm,
    "lucidrains/perceiver-pytorch": perceiver,
    "ultralytics/yolov5": yolo,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=Path, required=True, metavar="DIR")
    parser.add_argument("--python", default=sys.executable, metavar="PATH")
    parser.add_argument("--only", default="", metavar="REGEX", help="only these repositories")
    parser.add_argument("--subject", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.subject:
        print(json.dumps(measure(SUBJECTS[options.subject])))
        return 0
    print(f"{'repository':42} {'rewritten':>9} {'stayed':>7} {'seconds':>8}  restored")
    failed = False
    for repository in SUBJECTS:
        if re.search(options.only, repository):
            failed |= not show(repository, options.repositories, options.python)
    return int(failed)


def show(repository: str, repositories: Path, python: str) -> bool:
    """Print the row of a repository, and return whether its model was built and restored."""
    folder = (repositories / repository.replace("/", "+")).resolve()
    command = [python, str(Path(__file__).resolve()), "--repositories", str(repositories.resolve())]
    process = subprocess.run(
        [*command, "--subject", repository],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        print(f"{repository:42} {process.stderr.strip().splitlines()[-1]}")
        return False
    row = json.loads(process.stdout.splitlines()[-1])
    print(
        f"{repository:42} {len(row['rewritten']):9} {len(row['stayed']):7} {row['seconds']:8.1f}  "
        f"{'equal bits' if row['restored'] else 'DIFFERS'}",
        flush=True,
    )
    for line in row["stayed"]:
        print(f"    {line}", flush=True)
    return bool(row["restored"])


def measure(subject: Subject) -> dict[str, Any]:
    """Optimize a model, restore it, and return what was rewritten and how long it took."""
    import torch

    from regraft.live import NothingOptimized, optimize, restore

    torch.manual_seed(0)
    model, call = subject()
    model.eval()
    before = _results(model, call)
    warnings.simplefilter("ignore", NothingOptimized)
    started = time.monotonic()
    result = optimize(model, call, packs=PACKS, lock=False, time_limit=SECONDS)
    seconds = time.monotonic() - started
    restore(model)
    after = _results(model, call)
    return {
        "rewritten": [change.method for change in result.changes],
        "stayed": sorted(
            {f"{Path(place.file).name} {place.place}: {place.reason}" for place in result.unchanged}
        ),
        "seconds": seconds,
        "restored": len(before) == len(after) and all(map(torch.equal, before, after)),
    }


def _results(model: Any, call: Any) -> list[Any]:
    """Return the tensors that a call returns, in their order."""
    import torch
    from torch.utils import _pytree as pytree

    torch.manual_seed(0)
    with torch.no_grad():
        if isinstance(call, dict):
            result = model(**call)
        else:
            result = model(*(call if isinstance(call, tuple) else (call,)))
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment in which the repository and this program's Regraft are imported."""
    source = Path(__file__).resolve().parents[2] / "src"
    paths = (str(source), str(folder))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


if __name__ == "__main__":
    sys.exit(main())
