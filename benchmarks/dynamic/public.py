"""Splits networks of thirteen further public repositories, unmodified, and measures them.

Usage: python benchmarks/dynamic/public.py --repositories DIR [--only REGEX]

DIR holds the checkouts, at the commits in this file; what is missing is said, with the commands
that get it. Nothing in them is changed. What they import and is not installed, or today's packages
lack, has a stand-in: mocks, and where a network computes with it, what stands below (timm's
initialisation, torchvision's non-maximum suppression in Python, the objects that
`torch.autograd.Function` once made, `numpy.float`, a `cuda` that leaves a tensor where it is, a
clock that stands still). What decides at run time and is no `forward` in a repository stands here:
the loop over MSDNet's classifiers with the thresholds of its `Tester`, and the calls of `generate`
and `non_max_suppression`. Configurations are small, weights random, with a spread that reaches the
branches. The compared inputs are none of the examples; of what takes several sizes, some sizes are
none of theirs. Each network runs in a process of its own, on one thread; times are processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import io
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

MSDNET = Repository("kalviny/MSDNet-PyTorch", "f654595270cef1f7555a82af41c38d6f581e7e16")
DYNAMIC_VIT = Repository(
    "raoyongming/DynamicViT",
    "1322e626d1e9eca18cc150569908fb4af29e15f7",
    ("timm", "timm.data", "timm.models", "timm.utils", "torch._six", "tensorboardX"),
)
UNIVERSAL = Repository(
    "andreamad8/Universal-Transformer-Pytorch", "e6b06375269e805a23acbb07ef1aa4d6402bce52"
)
SPARSE_EXPERTS = Repository(
    "davidmrau/mixture-of-experts", "f662999727109357c42074997e9a6cd72806f668"
)
EINSUM_EXPERTS = Repository(
    "lucidrains/mixture-of-experts", "0fb459faf558c8e77b0e018685c64d00571d4fd9"
)
SSD = Repository(
    "amdegroot/ssd.pytorch",
    "5b0b77faa955c1917b0c710d770739ba8fbff9b7",
    ("cv2", "data.voc0712", "data.coco"),
)
TORCHDIFFEQ = Repository(
    "rtqichen/torchdiffeq",
    "657943acefa826ef04c025ebeb1ff5e9d60dc268",
    ("scipy", "scipy.integrate"),
)
SEQ2SEQ = Repository("IBM/pytorch-seq2seq", "f146087a9a271e9b50f46561e090324764b081fb")
DEEPSPEECH = Repository(
    "SeanNaren/deepspeech.pytorch",
    "b88a631ef6b96553e16bbaa5bd6a621435bed278",
    ("six", "deepspeech_pytorch.configs"),
)
YOLO = Repository(
    "eriklindernoren/PyTorch-YOLOv3",
    "1d621c8489e22c76ceb93bb2397ac6c8dfb5ceb7",
    ("imgaug", "tqdm"),
)
ATTEND = Repository("AaronCCWong/Show-Attend-and-Tell", "f1ac2709224d1a30cd911d6fee8ca2f16886254b")
MISTRAL = Repository(
    "mistralai/mistral-inference", "2557e12d0e1878a1562ece30434820f80aa3e12a", ("simple_parsing",)
)
LLAMA2C = Repository("karpathy/llama2.c", "350e04fe35433e6d2941dce5a1f53308f87058eb")


class ExitEarly(nn.Module):
    """MSDNet's blocks and classifiers until one is sure enough, as its `Tester` evaluates them."""

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


class LegacyFunction(nn.Module):
    """What a `torch.autograd.Function` was: an object whose call runs its own `forward`."""

    def __new__(cls, *_arguments: Any) -> LegacyFunction:
        function = super().__new__(cls)
        nn.Module.__init__(function)
        return function


class DetectionHead(nn.Module):
    """SSD's detection on the predictions of one image."""

    def __init__(self, detect: nn.Module, priors: torch.Tensor) -> None:
        super().__init__()
        self.detect = detect
        self.register_buffer("priors", priors)

    def forward(self, loc, conf):
        return self.detect(loc, conf.softmax(-1), self.priors)


class Flow(nn.Module):
    """A small differential equation, solved with adaptive steps."""

    def __init__(self, odeint: Callable) -> None:
        super().__init__()
        self.odeint = odeint
        self.field = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
        self.register_buffer("times", torch.tensor([0.0, 1.0]))

    def derivative(self, time, y):
        return self.field(y)

    def forward(self, y):
        return self.odeint(self.derivative, y, self.times, rtol=1e-3, atol=1e-4)[-1]


class LightningModule(nn.Module):
    """What DeepSpeech needs of pytorch_lightning."""

    def save_hyperparameters(self) -> None:
        """Keep nothing."""


class Config:
    """A configuration of DeepSpeech, of which the attributes are set."""


class UnidirectionalConfig(Config):
    """The configuration of a network in one direction."""


class DetectObjects(nn.Module):
    """YOLOv3 with its non-maximum suppression."""

    def __init__(self, network: nn.Module, suppress: Callable, threshold: float) -> None:
        super().__init__()
        self.network, self.suppress, self.threshold = network, suppress, threshold

    def forward(self, image):
        return self.suppress(self.network(image), self.threshold)


class Generate(nn.Module):
    """Greedy generation of eight tokens."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens):
        return self.network.generate(tokens, 8, temperature=0.0)


def suppress_overlaps(boxes, scores, iou_threshold):
    """Return the indices of boxes that `torchvision.ops.nms` keeps."""
    order, kept_indices = scores.argsort(descending=True), []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while order.numel() > 0:
        first, others = order[0], order[1:]
        kept_indices.append(first)
        corner = torch.maximum(boxes[first, :2], boxes[others, :2])
        sizes = (torch.minimum(boxes[first, 2:], boxes[others, 2:]) - corner).clamp(min=0)
        shared = sizes[:, 0] * sizes[:, 1]
        order = others[shared / (areas[first] + areas[others] - shared) <= iou_threshold]
    return torch.stack(kept_indices)


def make_msdnet(folder: pathlib.Path) -> nn.Module:
    """Return MSDNet with thresholds at which about as many images leave at each classifier."""
    models = import_module("models.msdnet", folder, MSDNET.packages)
    options = argparse.Namespace(data="cifar10", nBlocks=4, base=2, step=1, stepmode="even")
    vars(options).update(nChannels=8, growthRate=6, nScales=3, prune="max", reduction=0.5)
    vars(options).update(grFactor=[1, 2, 4], bnFactor=[1, 2, 4], bottleneck=True)
    network = models.MSDNet(options)
    images = torch.cat(upstream.make_images(60, 32))
    upstream.settle_norms(network, lambda: network(images))
    for classifier in network.classifier:
        with upstream.calls_of(classifier.linear) as calls:
            network(images)
        features = calls[0][0]
        upstream.compare_with_examples(classifier.linear, features[:10], features.mean(0))
    stays, thresholds = torch.ones(len(images), dtype=torch.bool), []
    for number, logits in enumerate(network(images)):
        confidence = logits.softmax(1).amax(1)
        left = network.nBlocks - number
        thresholds.append(confidence[stays].quantile(1 - 1 / left).item())
        stays &= confidence < thresholds[-1]
        if left == 2:  # at the last one all leave
            break
    return ExitEarly(network, thresholds)


def make_dynamic_vit(folder: pathlib.Path) -> nn.Module:
    """Return DynamicViT, which keeps 70%, 49% and 34% of 196 tokens."""
    layers = types.SimpleNamespace(
        DropPath=nn.Dropout,
        to_2tuple=lambda size: (size, size),
        trunc_normal_=nn.init.trunc_normal_,
    )
    stand_ins = {"timm.models.layers": layers}
    models = import_module("models.dyvit", folder, DYNAMIC_VIT.packages, stand_ins)
    model = models.VisionTransformerDiffPruning(
        img_size=28,
        patch_size=2,
        num_classes=10,
        embed_dim=32,
        depth=6,
        num_heads=2,
        pruning_loc=[1, 2, 4],
        token_ratio=[0.7, 0.49, 0.343],
    )
    for layer in model.modules():
        if isinstance(layer, nn.Linear):  # scores of tokens that differ by more than rounding
            layer.weight.mul_(8)
    return model


def make_universal(folder: pathlib.Path) -> nn.Module:
    """Return the Universal Transformer for bAbI with adaptive computation time, up to six steps."""
    models = import_module("models.UTransformer", folder, UNIVERSAL.packages)
    model = models.BabiUTransformer(
        num_vocab=20,
        embedding_size=16,
        hidden_size=16,
        num_layers=6,
        num_heads=2,
        total_key_depth=16,
        total_value_depth=16,
        filter_size=32,
        act=True,
    )
    halting = model.transformer_enc.act_fn.p
    halting.weight.mul_(0.6)
    halting.bias.fill_(0.5)
    return model


def make_sparse_experts(folder: pathlib.Path) -> nn.Module:
    """Return the sparsely gated mixture, two of five experts for each row."""
    module = import_module("moe", folder, SPARSE_EXPERTS.packages)
    model = module.MoE(8, 6, 5, 16, k=2)
    model.w_gate.normal_()
    return model


def make_einsum_experts(folder: pathlib.Path) -> nn.Module:
    """Return the mixture of four experts of limited capacity, two for each token."""
    module = import_module("mixture_of_experts", folder, EINSUM_EXPERTS.packages)
    return module.MoE(
        8, num_experts=4, hidden_dim=16, second_policy_eval="all", capacity_factor_eval=3.0
    )


def make_ssd(folder: pathlib.Path) -> nn.Module:
    """Return SSD's detection head for four classes and thirty priors."""
    with mock.patch.object(torch.autograd, "Function", LegacyFunction):
        functions = import_module("layers.functions.detection", folder, SSD.packages)
    priors = torch.cat([torch.rand(30, 2), 0.1 + 0.3 * torch.rand(30, 2)], 1)
    return DetectionHead(functions.Detect(4, 0, 10, 0.3, 0.45), priors)


def make_flow(folder: pathlib.Path) -> nn.Module:
    """Return a differential equation with torchdiffeq's solver of adaptive steps."""
    return Flow(import_module("torchdiffeq", folder, TORCHDIFFEQ.packages).odeint)


def make_seq2seq(folder: pathlib.Path) -> nn.Module:
    """Return an encoder and a decoder with attention, of up to eight words."""
    models = import_module("seq2seq.models", folder, SEQ2SEQ.packages)
    decoder = models.DecoderRNN(20, 8, 16, 1, 2, use_attention=True)
    return models.Seq2seq(models.EncoderRNN(20, 12, 16), decoder)


def make_deepspeech(folder: pathlib.Path) -> nn.Module:
    """Return DeepSpeech with two layers of LSTMs in one direction."""
    configs = types.SimpleNamespace(
        UniDirectionalConfig=UnidirectionalConfig,
        **dict.fromkeys(("SpectConfig", "BiDirectionalConfig", "OptimConfig"), Config),
        **dict.fromkeys(("AdamConfig", "SGDConfig"), Config),
    )
    rates = dict.fromkeys(("CharErrorRate", "WordErrorRate"), lambda **_: None)
    stand_ins = {
        "pytorch_lightning": types.SimpleNamespace(LightningModule=LightningModule),
        "omegaconf": types.SimpleNamespace(OmegaConf=types.SimpleNamespace(get_type=type)),
        "six.moves": types.SimpleNamespace(xrange=range),
        "deepspeech_pytorch.configs.train_config": configs,
        "deepspeech_pytorch.validation": types.SimpleNamespace(**rates),
    }
    module = import_module("deepspeech_pytorch.model", folder, DEEPSPEECH.packages, stand_ins)
    config, spectrum = UnidirectionalConfig(), Config()
    config.rnn_type = types.SimpleNamespace(value=nn.LSTM)
    config.hidden_size, config.hidden_layers, config.lookahead_context = 16, 2, 5
    spectrum.sample_rate, spectrum.window_size = 2000, 0.02
    return module.DeepSpeech(["_", "a", "b", " "], config, 32, Config(), spectrum)


def make_yolo(folder: pathlib.Path) -> nn.Module:
    """Return YOLOv3-tiny for three classes with a threshold above which some images have nothing.

    The widths and heights of boxes vary little, so that rounding decides none.
    """
    vision = types.SimpleNamespace(ops=types.SimpleNamespace(nms=suppress_overlaps))
    stand_ins = {"torchvision": vision}
    for package in ("imgaug.augmentables", "imgaug.augmentables.bbs"):
        stand_ins[package] = mock.MagicMock(name=package)
    models = import_module("pytorchyolo.models", folder, YOLO.packages, stand_ins)
    utils = sys.modules["pytorchyolo.utils.utils"]
    utils.time = types.SimpleNamespace(time=lambda: 0.0)
    text = (folder / "config" / "yolov3-tiny.cfg").read_text()
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(text.replace("classes=80", "classes=3").replace("filters=255", "filters=24"))
        config.flush()
        network = models.Darknet(config.name)
    images = torch.cat(upstream.make_images(16, 64))
    upstream.settle_norms(network, lambda: network(images))
    for module in network.module_list:
        if len(module) == 1 and isinstance(module[0], nn.Conv2d):
            weight, bias = module[0].weight.view(3, 8, -1), module[0].bias.view(3, 8)
            weight[:, :4].mul_(0.1)
            weight[:, 4].mul_(4)
            bias[:, 4].sub_(1)
    scores = network(images)
    confidence = scores[..., 4:5] * scores[..., 5:]
    network(images[:1])  # the grids stay on the layers
    threshold = confidence.flatten(1).amax(1).quantile(0.3).item()
    return DetectObjects(network, utils.non_max_suppression, threshold)


def make_attend(folder: pathlib.Path) -> nn.Module:
    """Return the decoder of captions with attention, for thirty words."""
    model = import_module("decoder", folder, ATTEND.packages).Decoder(30, 16)
    model.deep_output.weight.mul_(5)
    return model


def make_mistral(folder: pathlib.Path) -> nn.Module:
    """Return the mixture of four experts, two for each token."""
    stand_ins = {"simple_parsing.helpers": types.SimpleNamespace(Serializable=object)}
    source = folder / "src"
    module = import_module("mistral_inference.moe", source, MISTRAL.packages, stand_ins)
    experts = [nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)) for _ in range(4)]
    return module.MoeLayer(experts, nn.Linear(8, 4), module.MoeArgs(4, 2))


def make_llama(folder: pathlib.Path) -> nn.Module:
    """Return a Llama of two layers that sees eight tokens, so that it crops what it generates."""
    module = import_module("model", folder, LLAMA2C.packages)
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 20, "multiple_of": 8}
    network = module.Transformer(module.ModelArgs(max_seq_len=8, **sizes))
    for weight in network.parameters():
        weight.mul_(10)
    return Generate(network)


def make_image(number: int, size: int) -> tuple:
    """Return one image, (1, 3, size, size)."""
    return (upstream.make_images(1, size)[0],)


def make_story(number: int) -> tuple:
    """Return a story of two to nine sentences of seven words, and a question of five words."""
    sentences = 2 + number % (5 if number < EXAMPLES else 8)
    return torch.randint(1, 20, (1, sentences, 7)), torch.randint(1, 20, (1, 5))


def make_rows(number: int) -> tuple:
    """Return rows of eight numbers: one to eight, beyond the examples one to twenty."""
    count = 8 - number % 8 if number < EXAMPLES else 1 + number % 20
    return (torch.randn(count, 8),)


def make_tokens(number: int) -> tuple:
    """Return up to three sequences of sixteen tokens, beyond the examples up to five, each with an
    offset of its own, by which an expert gets more of them."""
    batch = 1 + number % (3 if number < EXAMPLES else 5)
    return (torch.randn(batch, 16, 8) + number % 4 * torch.randn(batch, 1, 8),)


def make_predictions(number: int) -> tuple:
    """Return the places of thirty boxes, and scores of four classes for each."""
    return torch.randn(1, 30, 4), torch.randn(1, 30, 4) * (0.2 + number % 4)


def make_words(number: int) -> tuple:
    """Return two sentences of four to eight words."""
    return (torch.randint(3, 20, (2, 4 + number % 5)),)


def make_speech(number: int) -> tuple:
    """Return two spectrograms, and the length of each."""
    longest = 20 + number % 5 * 7
    return torch.randn(2, 1, 21, longest), torch.tensor([longest, longest - 3 - number % 9])


def make_caption(number: int) -> tuple:
    """Return two images of nine places, and captions whose length the decoder takes: four to nine
    words, beyond the examples up to fifteen."""
    length = 4 + number % (6 if number < EXAMPLES else 12)
    return torch.randn(2, 9, 16), torch.zeros(2, length, dtype=torch.long)


def make_prompt(number: int) -> tuple:
    """Return a prompt of two to six tokens, beyond the examples up to eleven."""
    return (torch.randint(0, 20, (1, 2 + number % (5 if number < EXAMPLES else 10))),)


@dataclass(frozen=True)
class Network:
    """A network of a repository.

    make: gives the model for the checkout. inputs: gives the arguments of a call by its number; the
    first `EXAMPLES` are the examples. branches_of: gives the branches that a result shows.
    branch_count: the number of branches that there are. unseen: what `split` does with sides that
    no input takes.
    """

    repository: Repository
    make: Callable[[pathlib.Path], nn.Module]
    inputs: Callable[[int], tuple]
    branches_of: Callable[[Any], set] = lambda result: {0}
    branch_count: int = 1
    unseen: str = "refuse"


def count_steps(result: Any) -> set:
    """Return how many steps the Universal Transformer took."""
    return {int(result[2][1].max())}


def has_objects(result: Any) -> set:
    """Return whether YOLOv3 found none, one, or several objects."""
    return {min(len(result[0]), 2)}


def detected_classes(result: Any) -> set:
    """Return the classes of which SSD found an object."""
    return {number for number in range(1, 4) if bool(result[0, number, 0, 0] > 0)}


NETWORKS = {
    "msdnet": Network(
        MSDNET, make_msdnet, lambda number: make_image(number, 32), lambda result: {result[2]}, 4
    ),
    "dynamic-vit": Network(DYNAMIC_VIT, make_dynamic_vit, lambda number: make_image(number, 28)),
    "universal": Network(UNIVERSAL, make_universal, make_story, count_steps, 6),
    "sparse-experts": Network(SPARSE_EXPERTS, make_sparse_experts, make_rows),
    "einsum-experts": Network(EINSUM_EXPERTS, make_einsum_experts, make_tokens),
    "yolov3": Network(
        YOLO, make_yolo, lambda number: make_image(number, 64), has_objects, 3, unseen="raise"
    ),
    "show-attend-tell": Network(ATTEND, make_attend, make_caption),
    "mistral-experts": Network(MISTRAL, make_mistral, make_rows),
    "llama2.c": Network(LLAMA2C, make_llama, make_prompt),
    "ssd": Network(SSD, make_ssd, make_predictions, detected_classes, 3),
    "deepspeech": Network(DEEPSPEECH, make_deepspeech, make_speech),
    "seq2seq": Network(SEQ2SEQ, make_seq2seq, make_words),
    "torchdiffeq": Network(TORCHDIFFEQ, make_flow, lambda number: (torch.randn(1, 3),)),
}


@torch.no_grad()
def measure(name: str, repositories: pathlib.Path) -> dict[str, float] | None:
    """Split one network, compare, measure, print a line; eager divided by each variant, None where
    it is refused."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.Tensor.cuda = lambda tensor: tensor
    numpy.float = float
    network = NETWORKS[name]
    with contextlib.redirect_stdout(io.StringIO()):
        model = network.make(network.repository.folder(repositories)).eval()
    calls = [network.inputs(number) for number in range(EXAMPLES + COMPARED)]
    return measure_split(name, model, calls[:EXAMPLES], calls[EXAMPLES:], network, with_file=False)


if __name__ == "__main__":
    sys.exit(run_networks(NETWORKS, measure, __doc__))
