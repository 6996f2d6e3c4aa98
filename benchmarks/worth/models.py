"""The whole models of which `run.py` measures what Regraft's own choice is worth.

They are models of transformers, timm and diffusers at their usual width with few layers, the
engineer's model of `examples/own-repository`, and models of public repositories, which `run.py`
finds as checkouts at the commits of `COMMITS`. A step takes between a hundredth of a second and
a few seconds on one core.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import idiom_models
import torch
from torch import nn

from regraft.source.object_reference import load_source

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-repository"
COMMITS = {
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    "karpathy/llama2.c": "350e04fe35433e6d2941dce5a1f53308f87058eb",
    "openai/CLIP": "d05afc436d78f1c48dc0dbf8e5980a9d471f35f6",
    "lucidrains/vit-pytorch": "69d24fe9e3024c0d4b02761123b8583a24ebed1e",
    "johnma2006/mamba-minimal": "03de542a36d873f6e6c4057ad687278cc6ae944d",
}
BOTH = ("inference", "training")
Built = tuple[nn.Module, dict[str, Any]]  # a model and the keywords of its call


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that is measured.

    build       makes the model, with an attention implementation where it has a choice, and its
                call; from the folder of a checkout where it needs one
    modes       the modes in which it is used
    by_hand     the class of the best rewrite of it by hand, by its class; {} for none
    package     the package that has to be installed
    repository  the repository of which a checkout is needed; "" for none
    """

    build: Callable[[str, Path], Built]
    modes: tuple[str, ...] = BOTH
    package: str = "transformers"
    repository: str = ""
    by_hand: Mapping[type[nn.Module], type[nn.Module]] = field(default_factory=dict)


def tokens(batch: int, length: int, words: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(0, words, (batch, length))}


def images(batch: int, size: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, size, size)}


def transformer(
    name: str, inputs: Callable[..., dict[str, Any]], *sizes: int, **fields: Any
) -> Subject:
    """Return a model of transformers."""

    def build(attention: str, _: Path) -> Built:
        transformers = importlib.import_module("transformers")
        kind = getattr(transformers, name)
        config = kind.config_class(**fields)
        config._attn_implementation = attention
        return kind(config), inputs(*sizes)

    return Subject(build)


def timm(name: str, batch: int, modes: tuple[str, ...] = ("inference",), **fields: Any) -> Subject:
    """Return a model of timm."""

    def build(_: str, __: Path) -> Built:
        model = importlib.import_module("timm").create_model(name, **fields)
        return model, {"x": torch.randn(batch, 3, 224, 224)}

    return Subject(build, modes, "timm")


def storyteller(length: int, layers: int = 4) -> Subject:
    """Return the model of the example repository and a batch of its training script."""

    def build(_: str, __: Path) -> Built:
        sys.path.insert(0, str(EXAMPLE))
        config = importlib.import_module("storyteller.config").Config(context=length, layers=layers)
        model = importlib.import_module("storyteller.model").Storyteller(config)
        words = torch.randint(config.vocabulary, (1024 // length or 1, length + 1))
        return model, {"tokens": words[:, :-1], "targets": words[:, 1:]}

    return Subject(build, package="torch")


def unet(_: str, __: Path) -> Built:
    """Return a small conditional U-Net of diffusers."""
    model = importlib.import_module("diffusers").UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(64, 128),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=256,
        attention_head_dim=8,
    )
    states = torch.randn(2, 77, 256)
    call = {"sample": torch.randn(2, 4, 32, 32), "encoder_hidden_states": states}
    return model, {**call, "timestep": torch.tensor([10, 500])}


def autoencoder(_: str, __: Path) -> Built:
    """Return a small variational autoencoder of diffusers."""
    model = importlib.import_module("diffusers").AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        sample_size=128,
    )
    return model, {"sample": torch.randn(1, 3, 128, 128)}


def nano_gpt(_: str, folder: Path) -> Built:
    module: Any = load_source(folder / "model.py", "worth_nano_gpt")
    config = module.GPTConfig(n_layer=2, n_head=4, n_embd=256, block_size=512)
    words = torch.randint(config.vocab_size, (1, 513))
    return module.GPT(config), {"idx": words[:, :-1], "targets": words[:, 1:].contiguous()}


class LastLoss(nn.Module):
    """A model that keeps its loss as an attribute, where its training script takes it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.model(tokens, targets)
        loss: torch.Tensor = self.model.last_loss
        return loss


def llama2(_: str, folder: Path) -> Built:
    module: Any = load_source(folder / "model.py", "worth_llama2")
    arguments = module.ModelArgs(dim=288, n_layers=3, n_heads=6, vocab_size=32000, max_seq_len=512)
    words = torch.randint(32000, (1, 513))
    call = {"tokens": words[:, :-1], "targets": words[:, 1:].contiguous()}
    return LastLoss(module.Transformer(arguments)), call


def clip(_: str, folder: Path) -> Built:
    module: Any = load_source(folder / "clip" / "model.py", "worth_clip")
    return module.VisionTransformer(224, 16, 768, 2, 12, 512), {"x": torch.randn(2, 3, 224, 224)}


def vit_pytorch(_: str, folder: Path) -> Built:
    module: Any = load_source(folder / "vit_pytorch" / "vit.py", "worth_vit_pytorch")
    model = module.ViT(
        image_size=224, patch_size=16, num_classes=1000, dim=512, depth=2, heads=8, mlp_dim=2048
    )
    return model, {"img": torch.randn(2, 3, 224, 224)}


def mamba_minimal(_: str, folder: Path) -> Built:
    module: Any = load_source(folder / "model.py", "worth_mamba_minimal")
    arguments = module.ModelArgs(d_model=256, n_layer=2, vocab_size=8000)
    return module.Mamba(arguments), tokens(1, 128, 8000)


def checkout(
    build: Callable[[str, Path], Built], repository: str, modes: tuple[str, ...] = BOTH
) -> Subject:
    """Return a model of a public repository."""
    return Subject(build, modes, "torch", repository)


def plain(make: Callable[[], Built]) -> Subject:
    """Return a model of `idiom_models.py`, with its rewrite by hand."""
    return Subject(lambda _, __: make(), package="torch", by_hand=idiom_models.BY_HAND)


TWO = {"num_hidden_layers": 2}
NARROW = {"hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12, **TWO}
SUBJECTS: dict[str, Subject] = {
    "BERT, 4 x 128": transformer("BertModel", tokens, 4, 128, 30522, **TWO),
    "BERT, 1 x 512": transformer("BertModel", tokens, 1, 512, 30522, **TWO),
    "GPT-2, 2 x 512": transformer("GPT2Model", tokens, 2, 512, 50257, n_layer=2),
    "Llama, 1 x 512": transformer("LlamaModel", tokens, 1, 512, 32000, **NARROW),
    "Qwen3, 1 x 512": transformer(
        "Qwen3Model",
        tokens,
        1,
        512,
        32000,
        vocab_size=32000,
        num_key_value_heads=4,
        head_dim=64,
        **NARROW,
    ),
    "ViT, 4 x 224": transformer("ViTModel", images, 4, 224, **TWO),
    "DINOv2, 2 x 224": transformer("Dinov2Model", images, 2, 224, **TWO),
    "CLIP's images, 4 x 224": transformer("CLIPVisionModel", images, 4, 224, **TWO),
    "T5's encoder, 2 x 512": transformer("T5EncoderModel", tokens, 2, 512, 32128, num_layers=2),
    "Mamba, 1 x 64": transformer("MambaModel", tokens, 1, 64, 50280, hidden_size=256, **TWO),
    "ResNet, 2 x 224": transformer("ResNetModel", images, 2, 224, depths=[1, 1, 1, 1]),
    "Storyteller, 2 x 512": storyteller(512),
    "Storyteller, 1 x 2048": storyteller(2048, layers=2),
    "timm's ViT-S, 2 x 224": timm("vit_small_patch16_224", 2, BOTH, depth=4),
    "timm's MobileNetV3, 1 x 224": timm("mobilenetv3_large_100", 1),
    "timm's ResNet-50, 1 x 224": timm("resnet50", 1),
    "timm's EfficientNet-B0, 1 x 224": timm("efficientnet_b0", 1),
    "timm's ConvNeXt-T, 1 x 224": timm("convnext_tiny", 1),
    "diffusers' U-Net, 2 x 32": Subject(unet, ("inference",), "diffusers"),
    "diffusers' autoencoder, 1 x 128": Subject(autoencoder, ("inference",), "diffusers"),
    "state-space layer, 1 x 256": plain(idiom_models.selective_scan),
    "LSTM cell in a loop, 16 x 128": plain(idiom_models.cell_reader),
    "vector quantizer, 1024 of 512": plain(idiom_models.quantizer),
    "prototype network, 1500 to 100": plain(idiom_models.prototypes),
    "contrastive loss, 256": plain(idiom_models.contrast),
    "graph attention, 500 nodes": plain(idiom_models.graph_attention),
    "messages along 20000 edges": plain(idiom_models.edge_messages),
    "point cloud, 4 x 512": plain(idiom_models.neighbours),
    "graph convolution, 1000 nodes": plain(idiom_models.graph_convolution),
    "captioner, 8 x 20": plain(idiom_models.captioner),
    "discounted returns, 64 x 256": plain(idiom_models.returns),
    "one-hot loss, 512 of 5000": plain(idiom_models.smoothed),
    "nanoGPT, 1 x 512": checkout(nano_gpt, "karpathy/nanoGPT"),
    "llama2.c, 1 x 512": checkout(llama2, "karpathy/llama2.c"),
    "CLIP, 2 x 224": checkout(clip, "openai/CLIP"),
    "vit-pytorch, 2 x 224": checkout(vit_pytorch, "lucidrains/vit-pytorch"),
    "mamba-minimal, 1 x 128": checkout(mamba_minimal, "johnma2006/mamba-minimal", ("inference",)),
}
