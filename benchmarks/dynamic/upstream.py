"""Splits nine dynamic networks of four public repositories, unmodified, and measures them.

Usage: python benchmarks/dynamic/upstream.py --repositories DIR [--only REGEX]

DIR holds the checkouts, at the commits of REPOSITORIES; what is missing is said, with the commands
that get it. Nothing in them is changed. Where today's PyTorch or a package that they import is
missing, the benchmark has stand-ins for the time of the import (`import_module`), a method `cuda`
that leaves a tensor where it is, and in the place of torchvision's ResNet-101 a ResNeXt-50 and a
GoogLeNet of its own, which get images of 128 x 128. What decides at run time and is not in a
repository stands here: the loop that skips SkipNet's blocks, BlockDrop's policy in front of its
network, the loop that decodes captions. Weights are random, with normalisation, thresholds and
biases set from images so that these take every branch. Each network runs in a process of its own,
on one thread; times are processor time.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pathlib
import statistics
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from checkouts import Repository, import_module, measure_split, run_networks
from torch import nn

CLASSES, EXAMPLES, COMPARED = 10, 48, 64
SURE = 0.5  # the confidence with which an image leaves Shallow-Deep-Networks
START, END, LONGEST, WORDS = 1, 2, 20, 9490


SHALLOW_DEEP = Repository(
    "yigitcankaya/Shallow-Deep-Networks",
    "a55644624c9dc064d1372f6a486055edd94c9def",
    ("matplotlib", "matplotlib.pyplot", "torchvision", "PIL"),
)
SKIPNET = Repository("ucbdrive/skipnet", "4825e53aaf72a505c3328cd89ad27533946d8a96")
BLOCKDROP = Repository(
    "Tushar-N/blockdrop",
    "ec52b36d38dc21335df539ac24e51462c6012b5c",
    ("torchvision", "torchvision.models", "utils"),  # utils.py is Python 2
)
CAPTIONER = Repository(
    "parksunwoo/show_attend_and_tell_pytorch",
    "897d36e393b55cd59cbff3809c4f1e4e493b0e8d",
    ("torchvision", "torchvision.models"),
)
REPOSITORIES = (SHALLOW_DEEP, SKIPNET, BLOCKDROP, CAPTIONER)


class ExitEarly(nn.Module):
    """Shallow-Deep-Networks' own loop over layers and internal classifiers, as `forward`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image):
        return self.network.early_exit(image)


class SkipBlocks(nn.Module):
    """SkipNet's blocks, each of which runs where the gate in front of it is open.

    The repository's own `forward` runs every block and multiplies by the gates.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def is_open(self, gate, x):
        """Tell whether a feed-forward gate is open. It takes two samples at least."""
        mask, _ = gate(torch.cat([x, x]))
        return mask[0].item() > 0.5

    def start(self):
        """Prepare the gates for an image."""

    def forward(self, image):
        network = self.network
        self.start()
        x = network.relu(network.bn1(network.conv1(image)))
        x = network.group1_layer0(x)
        is_open = self.is_open(network.group1_gate0, x)
        used = []
        for group, blocks in enumerate(network.num_layers, 1):
            for number in range(int(group == 1), blocks):
                shortcut = getattr(network, f"group{group}_ds{number}")
                if is_open:
                    x = getattr(network, f"group{group}_layer{number}")(x)
                elif shortcut is not None:
                    x = shortcut(x)
                used.append(is_open)
                if (group, number) != (3, blocks - 1):
                    is_open = self.is_open(getattr(network, f"group{group}_gate{number}"), x)
        return network.fc(network.avgpool(x).flatten(1)), used


class SkipBlocksRecurrently(SkipBlocks):
    """SkipNet's blocks with its recurrent gate."""

    def is_open(self, gate, x):
        mask, _ = self.network.control(gate(x))
        return mask.item() > 0.5

    def start(self):
        self.network.control.hidden = self.network.control.init_hidden(1)


class DropBlocks(nn.Module):
    """BlockDrop: its policy network decides, then its residual network runs the blocks."""

    def __init__(self, network: nn.Module, agent: nn.Module) -> None:
        super().__init__()
        self.network, self.agent = network, agent

    def forward(self, image):
        chances, _ = self.agent(image)
        policy = (chances >= 0.5).float().squeeze(0)
        return self.network.forward_single(image, policy), policy


class Caption(nn.Module):
    """Greedy decoding with Show, Attend and Tell's encoder and decoder, until a word ends it."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, image):
        decoder = self.decoder
        places = self.encoder(image)
        places = places.reshape(1, -1, places.size(-1))
        h, c = decoder.init_hidden_state(places)
        word, words = torch.full((1,), START), []
        while len(words) < LONGEST:
            context, _ = decoder.attention(places, h)
            context = decoder.sigmoid(decoder.f_beta(h)) * context
            state = torch.cat([decoder.embedding(word), context], dim=1)
            h, c = decoder.decode_step(state, (h, c))
            word = decoder.fc(h).argmax(1)
            words.append(word)
            if word.item() == END:
                break
        return torch.cat(words)


def convolve(channels: int, out: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution with normalisation and ReLU."""
    layer = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class ResNeXtBlock(nn.Module):
    """The bottleneck of ResNeXt-50 32x4d."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * 2
        self.first = convolve(channels, width, 1)
        self.second = convolve(width, width, 3, stride, 32)
        self.third = convolve(width, out, 1)[:2]
        same = stride == 1 and channels == out
        shortcut = nn.Sequential(
            nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
        )
        self.shortcut = nn.Identity() if same else shortcut

    def forward(self, x):
        return F.relu(self.third(self.second(self.first(x))) + self.shortcut(x))


class Inception(nn.Module):
    """The block of GoogLeNet; widths: those of its four branches, with those inside."""

    def __init__(self, channels: int, *widths: int) -> None:
        super().__init__()
        one, inner3, three, inner5, five, pooled = widths
        self.branch1 = convolve(channels, one, 1)
        self.branch2 = nn.Sequential(convolve(channels, inner3, 1), convolve(inner3, three, 3))
        self.branch3 = nn.Sequential(convolve(channels, inner5, 1), convolve(inner5, five, 3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1), convolve(channels, pooled, 1))

    def forward(self, x):
        branches = (self.branch1, self.branch2, self.branch3, self.branch4)
        return torch.cat([branch(x) for branch in branches], dim=1)


def resnext50(pretrained: bool = False) -> nn.Sequential:
    """Return a ResNeXt-50 32x4d with random weights; its last two children pool and classify."""
    layers, channels = [convolve(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks in ((128, 3), (256, 4), (512, 6), (1024, 3)):
        for number in range(blocks):
            stride = 2 if number == 0 and width > 128 else 1
            layers.append(ResNeXtBlock(channels, width, stride))
            channels = 2 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Linear(channels, 1000))


def googlenet(pretrained: bool = False) -> nn.Sequential:
    """Return a GoogLeNet with random weights; its last two children pool and classify."""
    return nn.Sequential(
        convolve(3, 64, 7, 2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        convolve(64, 64, 1),
        convolve(64, 192, 3),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Inception(192, 64, 96, 128, 16, 32, 32),
        Inception(256, 128, 128, 192, 32, 96, 64),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Inception(480, 192, 96, 208, 16, 48, 64),
        Inception(512, 160, 112, 224, 24, 64, 64),
        Inception(512, 128, 128, 256, 24, 64, 64),
        Inception(512, 112, 144, 288, 32, 64, 64),
        Inception(528, 256, 160, 320, 32, 128, 128),
        nn.MaxPool2d(2, 2, ceil_mode=True),
        Inception(832, 256, 160, 320, 32, 128, 128),
        Inception(832, 384, 192, 384, 48, 128, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Linear(1024, 1000),
    )


def make_images(count: int, size: int) -> list[torch.Tensor]:
    """Return blurred random images, (1, 3, size, size) each, of different contrast."""
    images = []
    for _ in range(count):
        image = F.interpolate(torch.randn(1, 3, 4, 4), size=(size, size), mode="bilinear")
        images.append(image * (0.3 + 2 * torch.rand(1)) + 0.2 * torch.randn_like(image))
    return images


def settle_norms(model: nn.Module, call: Callable[[], Any]) -> None:
    """Set the statistics of all normalisations in `model` to those of a call, and evaluate.

    They add 1, which keeps most ReLUs open: deep random networks enlarge rounding else.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        norm.bias.fill_(1)
    model.train()
    call()
    model.eval()


def bisect(low: float, high: float, is_above: Callable[[float], bool]) -> float:
    """Return the value between two positive ones, on a logarithmic scale, where a predicate
    becomes true."""
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return high


@contextlib.contextmanager
def calls_of(module: nn.Module) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Collect what a module gets and gives while the block runs."""
    calls: list[tuple[torch.Tensor, torch.Tensor]] = []
    hook = module.register_forward_hook(
        lambda _module, inputs, output: calls.append((inputs[0], output))
    )
    yield calls
    hook.remove()


def compare_with_examples(linear: nn.Linear, examples: torch.Tensor, center: torch.Tensor) -> None:
    """Let a classifier compare features, centred, with those of an example for each class.

    Its results are large where images differ, unlike those of random weights, which are mostly what
    all images share.
    """
    linear.weight.copy_(F.normalize(examples - center))
    linear.bias.copy_(-linear.weight @ center)


def are_sure(logits: torch.Tensor) -> torch.Tensor:
    """Return, for logits (image, class), whether each image leaves."""
    return logits.softmax(1).amax(1) >= SURE


def find_scale(logits: torch.Tensor, count: int) -> float:
    """Return the factor of logits with which `count` images begin to leave."""
    return bisect(1e-3, 1e6, lambda scale: bool(are_sure(logits * scale).sum() >= count))


def calibrate_exits(network: nn.Module, images: list[torch.Tensor]) -> None:
    """Set the classifiers so that about as many images leave at each of them; the first images are
    examples of the classes."""
    settle_norms(network, lambda: network(torch.cat(images)))
    network.confidence_threshold = SURE
    inner = [network.init_conv(image) for image in images]
    exits = sum(not layer.no_output for layer in network.layers)
    for layer in network.layers:
        if layer.no_output:
            inner = [layer(x)[0] for x in inner]
            continue
        linear = getattr(layer.output, "linear", layer.output)
        with calls_of(linear) as calls:
            inner = [layer(x)[0] for x in inner]
        features = torch.cat([call[0] for call in calls])
        compare_with_examples(linear, features[:CLASSES], features[CLASSES:].mean(0))
        logits = linear(features[CLASSES:])
        share = len(logits) // (exits + 1) + 1
        exits -= 1

        # no image is at the threshold
        scale = (find_scale(logits, share) * find_scale(logits, share + 1)) ** 0.5
        linear.weight.mul_(scale)
        linear.bias.mul_(scale)
        stays = [True] * CLASSES + (~are_sure(logits * scale)).tolist()
        inner = [x for x, stay in zip(inner, stays, strict=True) if stay]
    with calls_of(network.end_layers[-1]) as calls:
        for x in inner:
            network.end_layers(x)
    features = torch.cat([call[0] for call in calls])
    compare_with_examples(network.end_layers[-1], features[:CLASSES], features.mean(0))


def make_shallow_deep(folder: pathlib.Path, images: list[torch.Tensor], kind: str) -> nn.Module:
    """Return one of Shallow-Deep-Networks with internal classifiers."""
    functions = import_module("network_architectures", folder, SHALLOW_DEEP.packages)
    create, network_kind = {
        "mobilenet": (functions.create_mobilenet, functions.MobileNet_SDN),
        "vgg": (functions.create_vgg16bn, functions.VGG_SDN),
        "resnet": (functions.create_resnet56, functions.ResNet_SDN),
        "wideresnet": (functions.create_wideresnet32_4, functions.WideResNet_SDN),
    }[kind]
    network = network_kind(create("", "cifar10", "", get_params=True))
    calibrate_exits(network, images)
    return ExitEarly(network)


def make_recurrent_skipnet(folder: pathlib.Path, images: list[torch.Tensor]) -> nn.Module:
    """Return SkipNet-38 with a recurrent gate, which half of the images leave closed."""
    models = import_module("models", folder / "cifar", SKIPNET.packages)
    network = models.cifar10_rnn_gate_38()
    settle_norms(network, lambda: network(torch.cat(images)))
    model, scores = SkipBlocksRecurrently(network).eval(), network.control.proj
    scores.weight.mul_(20)
    network.control.rnn.weight_ih_l0.mul_(5)
    embeddings = [
        module[1]
        for module in network.modules()
        if isinstance(module, nn.Sequential) and isinstance(module[0], nn.AvgPool2d)
    ]
    for embedding in embeddings[:-1]:  # nothing asks the gate after the last block
        with calls_of(embedding) as calls:
            for image in images[:12]:
                model(image)
        outputs = torch.cat([output for _, output in calls])
        scale = 1 / outputs.std()
        embedding.weight.mul_(scale)
        embedding.bias.copy_((embedding.bias - outputs.mean((0, 2, 3))) * scale)
    with calls_of(scores) as calls:
        for image in images:
            model(image)
    center_scores(scores, torch.cat([output.flatten() for _, output in calls]).unsqueeze(1))
    return model


def center_scores(layer: nn.Module, scores: torch.Tensor) -> None:
    """Change the bias of a layer so that half of its scores (image, or image and score) are above
    0, and none is near it that need not be."""
    layer.bias.sub_(scores.quantile(0.5, dim=0))


def make_feedforward_skipnet(folder: pathlib.Path, images: list[torch.Tensor]) -> nn.Module:
    """Return SkipNet-38 with feed-forward gates, each of which half of the images leave closed."""
    models = import_module("models", folder / "cifar", SKIPNET.packages)
    images = images[:40]
    network = models.cifar10_feedforward_38()
    settle_norms(network, lambda: network(torch.cat(images)))
    model = SkipBlocks(network).eval()
    for module in network.modules():
        if isinstance(module, models.FeedforwardGateI):
            with calls_of(module.linear_layer) as calls:
                for image in images:
                    model(image)
            if calls:
                scores = torch.stack([output[0].flatten() for _, output in calls])
                module.linear_layer.bias[1] -= (scores[:, 1] - scores[:, 0]).quantile(0.5)
    return model


def make_blockdrop(folder: pathlib.Path, images: list[torch.Tensor]) -> nn.Module:
    """Return BlockDrop's ResNet-32 and policy, which drops each block for half of the images."""
    resnet = import_module("models.resnet", folder, BLOCKDROP.packages)
    block = resnet.base.BasicBlock
    network, agent = resnet.FlatResNet32(block, [5, 5, 5]), resnet.Policy32([1, 1, 1], 15)
    together = torch.cat(images)
    settle_norms(network, lambda: network.forward_full(together))
    settle_norms(agent, lambda: agent(together))
    agent.logit.weight.mul_(10)
    with calls_of(agent.logit) as calls:
        agent(together)
    center_scores(agent.logit, calls[0][1])
    return DropBlocks(network, agent)


def make_captioner(
    folder: pathlib.Path, images: list[torch.Tensor], trunk: Callable, width: int
) -> nn.Module:
    """Return the captioner over a trunk that gives `width` channels."""
    model = import_module(
        "model",
        folder,
        CAPTIONER.packages,
        {"torchvision.models": types.SimpleNamespace(resnet101=trunk)},
    )
    encoder, decoder = model.EncoderCNN(4), model.AttnDecoderRNN(512, 512, 512, WORDS, width)
    settle_norms(encoder, lambda: encoder(torch.cat(images[:8])))
    caption = Caption(encoder, decoder).eval()
    decoder.embedding.weight.mul_(20)
    decoder.fc.weight.mul_(10)
    encoder.forward, encode = lambda places: places, encoder.forward
    places = [encode(image) for image in images[:8]]

    def mostly_short(bias: float) -> bool:
        decoder.fc.bias[END] = bias
        return statistics.mean(len(caption(place)) for place in places) < LONGEST / 2

    mostly_short(bisect(1e-2, 1e2, mostly_short))
    del encoder.forward
    return caption


def leaves_of_exits(result: Any) -> set:
    """Return at which internal classifier the image left; that no classifier was sure is -1."""
    _, number, is_early = result
    return {int(number) if is_early else -1}


def sides_of_blocks(result: Any) -> set:
    """Return each block with whether it ran."""
    return {(number, bool(runs)) for number, runs in enumerate(result[1])}


def ends_of_caption(result: Any) -> set:
    """Return whether a word ended the caption."""
    return {bool(result[-1] == END)}


@dataclass(frozen=True)
class Network:
    """A network of a repository.

    make: gives the model for the checkout and images to calibrate with. branches_of: gives the
    branches that a result shows. branch_count: the number of branches that there are. size: height
    and width of an image. batch: the number of images of a call.
    """

    repository: Repository
    make: Callable[..., nn.Module]
    branches_of: Callable[[Any], set]
    branch_count: int
    size: int = 32
    unseen: str = "refuse"


def shallow_deep(kind: str, exits: int = 6) -> Network:
    """Return one of the four networks with early exits, of which there are `exits`."""
    make = functools.partial(make_shallow_deep, kind=kind)
    return Network(SHALLOW_DEEP, make, leaves_of_exits, exits + 1)


def captioner(trunk: Callable, width: int) -> Network:
    """Return a captioner."""
    make = functools.partial(make_captioner, trunk=trunk, width=width)
    return Network(CAPTIONER, make, ends_of_caption, 2, size=128)


NETWORKS = {
    "sdn-mobilenet": shallow_deep("mobilenet", 5),
    "sdn-vgg": shallow_deep("vgg"),
    "sdn-resnet": shallow_deep("resnet"),
    "sdn-wideresnet": shallow_deep("wideresnet"),
    "skipnet-recurrent": Network(SKIPNET, make_recurrent_skipnet, sides_of_blocks, 34),
    "skipnet-feedforward": Network(SKIPNET, make_feedforward_skipnet, sides_of_blocks, 34),
    "blockdrop": Network(BLOCKDROP, make_blockdrop, sides_of_blocks, 30),
    "captioner-resnext": captioner(resnext50, 2048),
    "captioner-googlenet": captioner(googlenet, 1024),
}


@torch.no_grad()
def measure(name: str, repositories: pathlib.Path) -> dict[str, float] | None:
    """Split one network, compare, measure, print a line; eager divided by each variant, None where
    it is refused."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.Tensor.cuda = lambda tensor: tensor
    network = NETWORKS[name]
    images = make_images(CLASSES + EXAMPLES + COMPARED, network.size)
    with contextlib.redirect_stdout(io.StringIO()):
        model = network.make(network.repository.folder(repositories), images).eval()
    calls = [(image,) for image in images[CLASSES:]]
    return measure_split(name, model, calls[:EXAMPLES], calls[EXAMPLES:], network)


if __name__ == "__main__":
    sys.exit(run_networks(NETWORKS, measure, __doc__))
