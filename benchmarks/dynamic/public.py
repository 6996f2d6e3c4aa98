"""Splits ten dynamic networks of ten further public repositories, unmodified, and measures them.

Usage: python benchmarks/dynamic/public.py --repositories DIR [--only REGEX]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import pathlib
import sys
import tempfile
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy
import torch
import upstream
from checkouts import Repository, import_module, measure_split, run_networks
from torch import nn

EXAMPLES, COMPARED = 24, 72

MSDNET = Repository(
    "kalviny/MSDNet-PyTorch", "f654595270cef1f7555a82af41c38d6f581e7e16"
)
DYNAMIC_VIT = Repository(
    "raoyongming/DynamicViT",
    "1322e626d1e9eca18cc150569908fb4af29e15f7",
    ("timm", "timm.data", "timm.models", "timm.models.layers", "timm.utils", "torch._six", "tensorboardX"),
)
UNIVERSAL = Repository(
    "andreamad8/Universal-Transformer-Pytorch", "e6b06375269e805a23acbb07ef1aa4d6402bce52"
)
SPARSE_EXPERTS = Repository(
    "davidmrau/mixture-of-experts", "f662999727109357c42074997e9a6cd72806f668"
)
LUCID_EXPERTS = Repository(
    "lucidrains/mixture-of-experts", "0fb459faf558c8e77b0e018685c64d00571d4fd9"
)
SSD = Repository(
    "amdegroot/ssd.pytorch", "5b0b77faa955c1917b0c710d770739ba8fbff9b7", ("cv2", "data.voc0712", "data.coco")
)
TORCHDIFFEQ = Repository("rtqichen/torchdiffeq", "657943acefa826ef04c025ebeb1ff5e9d60dc268", ("scipy", "scipy.integrate"))
SEQ2SEQ = Repository("IBM/pytorch-seq2seq", "f146087a9a271e9b50f46561e090324764b081fb")
DEEPSPEECH = Repository(
    "SeanNaren/deepspeech.pytorch",
    "b88a631ef6b96553e16bbaa5bd6a621435bed278",
    (
        "pytorch_lightning",
        "omegaconf",
        "six",
        "six.moves",
        "deepspeech_pytorch.configs",
        "deepspeech_pytorch.configs.train_config",
        "deepspeech_pytorch.validation",
    ),
)
YOLO = Repository(
    "eriklindernoren/PyTorch-YOLOv3",
    "1d621c8489e22c76ceb93bb2397ac6c8dfb5ceb7",
    ("torchvision", "imgaug", "imgaug.augmentables", "imgaug.augmentables.bbs"),
)
ATTEND = Repository("AaronCCWong/Show-Attend-and-Tell", "f1ac2709224d1a30cd911d6fee8ca2f16886254b")
MISTRAL = Repository("mistralai/mistral-inference", "2557e12d0e1878a1562ece30434820f80aa3e12a", ("simple_parsing", "simple_parsing.helpers"))
LLAMA2C = Repository("karpathy/llama2.c", "350e04fe35433e6d2941dce5a1f53308f87058eb")


class ExitEarly(nn.Module):
    """MSDNet's blocks and classifiers, until one is sure enough: the evaluation of its `Tester`."""

    def __init__(self, network: nn.Module, thresholds: list[float]) -> None:
        super().__init__()
        self.network, self.thresholds = network, thresholds

    def forward(self, image):
        x = image
        for number in range(self.network.nBlocks):
            x = self.network.blocks[number](x)
            chances = self.network.classifier[number](x).softmax(1)
            confidence, label = chances.max(1)
            is_last = number == self.network.nBlocks - 1
            if is_last or confidence.item() >= self.thresholds[number]:
                break
        return label, confidence, number


def make_msdnet(folder: pathlib.Path) -> nn.Module:
    """Return MSDNet with thresholds at which about as many images leave at each classifier."""
    models = import_module("models.msdnet", folder, MSDNET.packages)
    options = argparse.Namespace(
        data="cifar10", nBlocks=4, base=2, step=1, stepmode="even", nChannels=8, growthRate=6,
        grFactor=[1, 2, 4], bnFactor=[1, 2, 4], nScales=3, bottleneck=True, prune="max", reduction=0.5,
    )
    network = models.MSDNet(options)
    images = upstream.make_images(60, 32)
    upstream.settle_norms(network, lambda: network(torch.cat(images)))
    for classifier in network.classifier:
        with upstream.calls_of(classifier.linear) as calls:
            network(torch.cat(images))
        upstream.compare_with_examples(classifier.linear, calls[0][0][:10], calls[0][0].mean(0))
    chances = [logits.softmax(1).amax(1) for logits in network(torch.cat(images))]
    stays, thresholds = torch.ones(60, dtype=torch.bool), []
    for number, confidence in enumerate(chances):
        share = 1 / (len(chances) - number)
        thresholds.append(confidence[stays].quantile(1 - share).item() if share < 1 else -1.0)
        stays &= confidence < thresholds[-1]
    return ExitEarly(network, thresholds)


def image_call(number: int) -> tuple:
    return (upstream.make_images(1, 32)[0],)


def make_dynamic_vit(folder: pathlib.Path) -> nn.Module:
    layers = types.SimpleNamespace(
        DropPath=nn.Dropout, to_2tuple=lambda x: (x, x), trunc_normal_=nn.init.trunc_normal_
    )
    models = import_module("models.dyvit", folder, DYNAMIC_VIT.packages, {"timm.models.layers": layers})
    model = models.VisionTransformerDiffPruning(
        img_size=28, patch_size=2, num_classes=10, embed_dim=32, depth=6, num_heads=2,
        pruning_loc=[1, 2, 4], token_ratio=[0.7, 0.49, 0.343],
    )
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.mul_(8)
    return model


def make_universal(folder: pathlib.Path) -> nn.Module:
    models = import_module("models.UTransformer", folder, UNIVERSAL.packages)
    model = models.BabiUTransformer(
        num_vocab=20, embedding_size=16, hidden_size=16, num_layers=6, num_heads=2, total_key_depth=16,
        total_value_depth=16, filter_size=32, act=True,
    )
    model.emb.weight.mul_(3)
    model.transformer_enc.act_fn.p.weight.mul_(3)
    model.transformer_enc.act_fn.p.bias.fill_(1)
    return model


def story_call(number: int) -> tuple:
    return torch.randint(1, 20, (1, 2 + number % 5, 7)), torch.randint(1, 20, (1, 5))


def make_sparse_experts(folder: pathlib.Path) -> nn.Module:
    moe = import_module("moe", folder, SPARSE_EXPERTS.packages)
    model = moe.MoE(8, 6, 5, 16, k=2)
    model.w_gate.normal_()
    return model


def rows_call(number: int) -> tuple:
    return (torch.randn(2 + number % 7, 8),)


def make_lucid_experts(folder: pathlib.Path) -> nn.Module:
    module = import_module("mixture_of_experts", folder, LUCID_EXPERTS.packages)
    return module.MoE(
        8, num_experts=4, hidden_dim=16, second_policy_eval="all", capacity_factor_eval=3.0
    )


def tokens_call(number: int) -> tuple:
    batch = 1 + number % 3
    return (torch.randn(batch, 16, 8) + number % 4 * torch.randn(batch, 1, 8),)


class DetectionHead(nn.Module):
    """SSD's detection on the predictions of one image."""

    def __init__(self, detect: Any, priors: torch.Tensor) -> None:
        super().__init__()
        self.detect = detect
        self.register_buffer("priors", priors)

    def forward(self, loc, conf):
        return self.detect(loc, conf.softmax(-1), self.priors)


class LegacyFunction(nn.Module):
    """What torch.autograd.Function was: an object whose call runs its own `forward`."""

    def __new__(cls, *_arguments):
        function = super().__new__(cls)
        nn.Module.__init__(function)
        return function


def make_ssd(folder: pathlib.Path) -> nn.Module:
    with mock.patch.object(torch.autograd, "Function", LegacyFunction):
        functions = import_module("layers.functions.detection", folder, SSD.packages)
    centers = torch.rand(30, 2)
    priors = torch.cat([centers, 0.1 + 0.3 * torch.rand(30, 2)], 1)
    return DetectionHead(functions.Detect(4, 0, 10, 0.3, 0.45), priors)


def boxes_call(number: int) -> tuple:
    return torch.randn(1, 30, 4), torch.randn(1, 30, 4) * (0.2 + number % 4)


class Flow(nn.Module):
    def __init__(self, odeint: Callable) -> None:
        super().__init__()
        self.odeint = odeint
        self.field = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
        self.register_buffer("times", torch.tensor([0.0, 1.0]))

    def derivative(self, t, y):
        return self.field(y)

    def forward(self, y):
        return self.odeint(self.derivative, y, self.times, rtol=1e-3, atol=1e-4)[-1]


def make_flow(folder: pathlib.Path) -> nn.Module:
    module = import_module("torchdiffeq", folder, TORCHDIFFEQ.packages)
    return Flow(module.odeint)


def make_seq2seq(folder: pathlib.Path) -> nn.Module:
    models = import_module("seq2seq.models", folder, SEQ2SEQ.packages)
    encoder = models.EncoderRNN(20, 12, 16)
    decoder = models.DecoderRNN(20, 8, 16, 1, 2, use_attention=True)
    return models.Seq2seq(encoder, decoder)


def words_call(number: int) -> tuple:
    return (torch.randint(3, 20, (2, 4 + number % 5)),)


class LightningModule(nn.Module):
    def save_hyperparameters(self):
        pass


def make_deepspeech(folder: pathlib.Path) -> nn.Module:
    class Config:
        pass

    configs = types.SimpleNamespace(
        SpectConfig=Config, BiDirectionalConfig=Config, OptimConfig=Config, AdamConfig=Config, SGDConfig=Config,
        UniDirectionalConfig=type("UniDirectionalConfig", (Config,), {}),
    )
    stand_ins = {
        "pytorch_lightning": types.SimpleNamespace(LightningModule=LightningModule),
        "omegaconf": types.SimpleNamespace(OmegaConf=types.SimpleNamespace(get_type=type)),
        "six.moves": types.SimpleNamespace(xrange=range),
        "deepspeech_pytorch.configs.train_config": configs,
        "deepspeech_pytorch.validation": types.SimpleNamespace(CharErrorRate=lambda **_: None, WordErrorRate=lambda **_: None),
    }
    module = import_module("deepspeech_pytorch.model", folder, DEEPSPEECH.packages, stand_ins)
    config = configs.UniDirectionalConfig()
    config.rnn_type = types.SimpleNamespace(value=nn.LSTM)
    config.hidden_size, config.hidden_layers, config.lookahead_context = 16, 2, 5
    spect = Config()
    spect.sample_rate, spect.window_size = 2000, 0.02
    model = module.DeepSpeech(["_", "a", "b", " "], config, 32, Config(), spect)
    return model


def speech_call(number: int) -> tuple:
    longest = 20 + number % 5 * 7
    return torch.randn(2, 1, 21, longest), torch.tensor([longest, longest - 3 - number % 9])


def suppress_overlaps(boxes, scores, iou_threshold):
    """torchvision.ops.nms in Python."""
    order, keep = scores.argsort(descending=True), []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while order.numel() > 0:
        first, others = order[0], order[1:]
        keep.append(first)
        corner = torch.maximum(boxes[first, :2], boxes[others, :2])
        sizes = (torch.minimum(boxes[first, 2:], boxes[others, 2:]) - corner).clamp(min=0)
        inter = sizes[:, 0] * sizes[:, 1]
        order = others[inter / (areas[first] + areas[others] - inter) <= iou_threshold]
    return torch.stack(keep)


class DetectObjects(nn.Module):
    def __init__(self, network: nn.Module, suppress: Callable, threshold: float) -> None:
        super().__init__()
        self.network, self.suppress, self.threshold = network, suppress, threshold

    def forward(self, image):
        return self.suppress(self.network(image), self.threshold)


def make_yolo(folder: pathlib.Path) -> nn.Module:
    vision = types.SimpleNamespace(ops=types.SimpleNamespace(nms=suppress_overlaps))
    models = import_module("pytorchyolo.models", folder, YOLO.packages, {"torchvision": vision})
    utils = import_module("pytorchyolo.utils.utils", folder, YOLO.packages, {"torchvision": vision})
    text = (folder / "config" / "yolov3-tiny.cfg").read_text()
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(text.replace("classes=80", "classes=3").replace("filters=255", "filters=24"))
        config.flush()
        network = models.Darknet(config.name)
    images = torch.cat(upstream.make_images(16, 64))
    upstream.settle_norms(network, lambda: network(images))
    for module in network.module_list:
        if len(module) == 1 and isinstance(module[0], nn.Conv2d):
            module[0].weight.view(3, 8, -1)[:, :4].mul_(0.1)
            module[0].weight.view(3, 8, -1)[:, 4].mul_(4)
            module[0].bias.view(3, 8)[:, 4].sub_(1)
    scores = network(images)
    confidence = scores[..., 4:5] * scores[..., 5:]
    threshold = confidence.flatten(1).amax(1).quantile(0.3).item()
    utils.time = types.SimpleNamespace(time=lambda: 0.0)
    network(images[:1])
    return DetectObjects(network, utils.non_max_suppression, threshold)


def photo_call(number: int) -> tuple:
    return (upstream.make_images(1, 64)[0],)


def make_attend(folder: pathlib.Path) -> nn.Module:
    module = import_module("decoder", folder, ATTEND.packages)
    model = module.Decoder(30, 16)
    model.deep_output.weight.mul_(5)
    return model


def caption_call(number: int) -> tuple:
    return torch.randn(2, 9, 16), torch.zeros(2, 4 + number % 6, dtype=torch.long)


def make_mistral(folder: pathlib.Path) -> nn.Module:
    module = import_module("mistral_inference.moe", folder / "src", MISTRAL.packages, {"simple_parsing.helpers": types.SimpleNamespace(Serializable=object)})
    experts = [nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)) for _ in range(4)]
    return module.MoeLayer(experts, nn.Linear(8, 4), module.MoeArgs(4, 2))


class Generate(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens):
        return self.network.generate(tokens, 8, temperature=0.0)


def make_llama(folder: pathlib.Path) -> nn.Module:
    module = import_module("model", folder, LLAMA2C.packages)
    network = module.Transformer(module.ModelArgs(dim=16, n_layers=2, n_heads=2, vocab_size=20, multiple_of=8, max_seq_len=8))
    for weight in network.parameters():
        weight.mul_(10)
    return Generate(network)


def prompt_call(number: int) -> tuple:
    return (torch.randint(0, 20, (1, 2 + number % 5)),)


@dataclass(frozen=True)
class Network:
    repository: Repository
    make: Callable[[pathlib.Path], nn.Module]
    inputs: Callable[[int], tuple]
    branches_of: Callable[[Any], set] = lambda result: {0}
    branch_count: int = 1
    unseen: str = "refuse"


NETWORKS = {
    "msdnet": Network(MSDNET, make_msdnet, image_call, lambda result: {result[2]}, 4),
    "dynamic-vit": Network(DYNAMIC_VIT, make_dynamic_vit, lambda number: (upstream.make_images(1, 28)[0],)),
    "universal": Network(UNIVERSAL, make_universal, story_call, lambda result: {int(result[2][1].max())}, 6),
    "sparse-experts": Network(SPARSE_EXPERTS, make_sparse_experts, rows_call),
    "lucid-experts": Network(LUCID_EXPERTS, make_lucid_experts, tokens_call),
    "ssd": Network(SSD, make_ssd, boxes_call, lambda result: {int((result[..., 0] > 0).sum())}, 20),
    "torchdiffeq": Network(TORCHDIFFEQ, make_flow, lambda number: (torch.randn(1, 3),)),
    "seq2seq": Network(SEQ2SEQ, make_seq2seq, words_call),
    "deepspeech": Network(DEEPSPEECH, make_deepspeech, speech_call),
    "yolo": Network(YOLO, make_yolo, photo_call, lambda result: {len(result[0])}, 20, unseen="raise"),
    "attend": Network(ATTEND, make_attend, caption_call),
    "mistral": Network(MISTRAL, make_mistral, rows_call),
    "llama": Network(LLAMA2C, make_llama, prompt_call),
}


@torch.no_grad()
def measure(name: str, repositories: pathlib.Path) -> dict[str, float] | None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.Tensor.cuda = lambda tensor: tensor
    numpy.float = float
    network = NETWORKS[name]
    with contextlib.redirect_stdout(io.StringIO()):
        model = network.make(network.repository.folder(repositories)).eval()
    calls = [network.inputs(number) for number in range(EXAMPLES + COMPARED)]
    return measure_split(name, model, calls[:EXAMPLES], calls[EXAMPLES:], network)


if __name__ == "__main__":
    sys.exit(run_networks(NETWORKS, measure, __doc__))
