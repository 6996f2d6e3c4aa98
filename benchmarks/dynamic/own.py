"""Compact dynamic networks of the literature, with weights calibrated so that inputs take every
side.

NAMES, and build(name, n) -> (model, calls).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def conv(channels: int, out: int, stride: int = 1, groups: int = 1, size: int = 3) -> nn.Sequential:
    made = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(made, nn.BatchNorm2d(out), nn.ReLU())


class Separable(nn.Sequential):
    """MobileNet's depthwise separable convolution."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__(conv(channels, channels, stride, channels), conv(channels, out, size=1))


class Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = conv(channels, out, stride)
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        same = stride == 1 and channels == out
        self.short = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.short(x))


class WideResidual(nn.Module):
    """The pre-activation block of WideResNet."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(out)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        same = stride == 1 and channels == out
        self.short = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(x))
        return self.conv2(F.relu(self.norm2(self.conv1(y)))) + self.short(y)


class Plain(nn.Sequential):
    """VGG's layer, with pooling in the place of a stride."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__(conv(channels, out), nn.MaxPool2d(stride) if stride > 1 else nn.Identity())


class ShallowDeep(nn.Module):
    """Shallow-deep networks (Kaya et al., 2019): internal classifiers, and an exit where one is
    sure enough."""

    def __init__(
        self, block: type[nn.Module], width: int, classes: int = 10, sure: float = 0.8
    ) -> None:
        super().__init__()
        shapes = [(1, 1), (1, 1), (1, 2), (2, 1), (2, 1), (2, 2), (4, 1), (4, 1)]
        channels = [width, *(width * factor * stride for factor, stride in shapes)]
        self.stem = conv(3, width)
        blocks = [
            block(channels[n], channels[n + 1], stride) for n, (_, stride) in enumerate(shapes)
        ]
        self.blocks = nn.ModuleList(blocks)
        self.places = (1, 3, 5)
        self.exits = nn.ModuleList(
            [nn.Linear(channels[place + 1], classes) for place in self.places]
        )
        self.head, self.sure = nn.Linear(channels[-1], classes), sure

    def forward(self, x):
        x = self.stem(x)
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number in self.places:
                logits = self.exits[self.places.index(number)](x.mean((2, 3)))
                if torch.softmax(logits, 1).max() >= self.sure:
                    return logits, number
        return self.head(x.mean((2, 3))), -1


class RecurrentSkip(nn.Module):
    """SkipNet (Wang et al., 2018) with one recurrent gate for all blocks."""

    def __init__(self, width: int = 24, depth: int = 9, classes: int = 10) -> None:
        super().__init__()
        self.stem = conv(3, width)
        self.blocks = nn.ModuleList([Residual(width, width, 1) for _ in range(depth)])
        self.project, self.gate, self.decide = (
            nn.Linear(width, 10),
            nn.LSTMCell(10, 10),
            nn.Linear(10, 1),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        state = (torch.zeros(1, 10), torch.zeros(1, 10))
        used = []
        for block in self.blocks:
            state = self.gate(self.project(x.mean((2, 3))), state)
            if torch.sigmoid(self.decide(state[0])).item() > 0.5:
                x = block(x)
                used.append(1)
            else:
                used.append(0)
        return self.head(x.mean((2, 3))), used


class BlockDrop(nn.Module):
    """BlockDrop (Wu et al., 2018): a policy network says beforehand which blocks run."""

    def __init__(self, width: int = 24, depth: int = 9, classes: int = 10) -> None:
        super().__init__()
        self.policy = nn.Sequential(
            conv(3, 8, 4), conv(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.keep = nn.Linear(16, depth)
        self.stem, self.head = conv(3, width), nn.Linear(width, classes)
        self.blocks = nn.ModuleList([Residual(width, width, 1) for _ in range(depth)])

    def forward(self, x):
        policy = torch.sigmoid(self.keep(self.policy(x)))
        x = self.stem(x)
        for number, block in enumerate(self.blocks):
            if policy[0, number] > 0.5:
                x = block(x)
        return self.head(x.mean((2, 3))), policy


class Captioner(nn.Module):
    """Attention captioning (Xu et al., 2015) over a MobileNet, with a GRU."""

    def __init__(self, words: int = 500, width: int = 64, longest: int = 10) -> None:
        super().__init__()
        self.encoder = nn.Sequential(conv(3, 16, 2), Separable(16, 32, 2), Separable(32, width, 2))
        self.embed, self.cell = nn.Embedding(words, width), nn.GRUCell(2 * width, width)
        self.query, self.key, self.out = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, words),
        )
        self.longest = longest

    def forward(self, image):
        places = self.encoder(image).flatten(2).transpose(1, 2)
        h = places.mean(1)
        word, caption = torch.ones(1, dtype=torch.long), []
        while len(caption) < self.longest:
            weights = torch.softmax((self.key(places) @ self.query(h).unsqueeze(2)) / 8, 1)
            h = self.cell(torch.cat([self.embed(word), (places * weights).sum(1)], 1), h)
            word = self.out(h).argmax(1)
            caption.append(word)
            if word.item() == 2:
                break
        return torch.cat(caption)


class Halting(nn.Module):
    """Adaptive computation time (Graves, 2016): steps until the halting probabilities sum up."""

    def __init__(self, width: int = 128, longest: int = 12) -> None:
        super().__init__()
        self.step, self.halt, self.out = (
            nn.GRUCell(width, width),
            nn.Linear(width, 1),
            nn.Linear(width, 10),
        )
        self.longest = longest

    def forward(self, x):
        h, total, mean = torch.zeros_like(x), 0.0, torch.zeros_like(x)
        for steps in range(self.longest):
            h = self.step(x, h)
            p = torch.sigmoid(self.halt(h))
            if total + p.item() > 0.99:
                return self.out(mean + h * (1 - total)), steps
            mean, total = mean + h * p, total + p.item()
        return self.out(mean), self.longest


class Equilibrium(nn.Module):
    """A deep equilibrium layer (Bai et al., 2019): iteration to a fixed point."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.inner, self.outer, self.out = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, 10),
        )

    def forward(self, x):
        z, steps, change = torch.zeros_like(x), 0, 1.0
        bias = self.outer(x)
        while change > 1e-3 and steps < 60:
            new = torch.tanh(self.inner(z) + bias)
            change = (new - z).norm().item()
            z = new
            steps += 1
        return self.out(z)


class AdaptiveStep(nn.Module):
    """A neural ODE (Chen et al., 2018), with the step of Heun's method controlled by its error."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))

    def forward(self, x):
        t, step = 0.0, 0.25
        while t < 1.0:
            step = min(step, 1.0 - t)
            k1 = self.field(x)
            k2 = self.field(x + step * k1)
            error = (step * (k2 - k1) / 2).abs().max().item()
            if error < 0.02:
                x = x + step * (k1 + k2) / 2
                t = t + step
                if error < 0.005:
                    step = step * 1.5
            else:
                step = step * 0.5
        return x


class PruneTokens(nn.Module):
    """Token pruning (Kim et al., 2022): after each layer the tokens of little weight are
    dropped."""

    def __init__(self, width: int = 64, depth: int = 3, classes: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.mix = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(depth)])
        self.score = nn.ModuleList([nn.Linear(width, 1) for _ in range(depth)])
        self.out = nn.Linear(width, classes)

    def forward(self, ids):
        x = self.embed(ids[0])
        for mix, score in zip(self.mix, self.score, strict=True):
            q, k, v = mix(x).chunk(3, -1)
            x = x + torch.softmax(q @ k.T / 6, -1) @ v
            keep = score(x).squeeze(1) > -0.6
            keep[0] = True
            x = x[keep]
        return self.out(x.mean(0)), x.shape[0]


class TokenExperts(nn.Module):
    """A mixture of experts in which each expert computes the tokens that choose it (two experts a
    token)."""

    def __init__(self, width: int = 64, experts: int = 4) -> None:
        super().__init__()
        self.embed, self.gate = nn.Embedding(100, width), nn.Linear(width, experts)
        one = [
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(experts)
        ]
        self.experts, self.out = nn.ModuleList(one), nn.Linear(width, 5)

    def forward(self, ids):
        x = self.embed(ids[0])
        weight, chosen = torch.softmax(self.gate(x) * 3, -1).topk(2)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            if rows.shape[0] > 0:
                result.index_add_(0, rows, weight[rows, place, None] * expert(x[rows]))
        return self.out(result.mean(0))


class GroupedExperts(nn.Module):
    """A mixture of experts that sorts the tokens by expert and counts them, so that each expert
    computes its tokens at once and none runs without tokens (two experts a token)."""

    def __init__(self, width: int = 64, experts: int = 8, top: int = 2) -> None:
        super().__init__()
        self.count, self.top = experts, top
        self.embed, self.gate = nn.Embedding(100, width), nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, 4 * width, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.out = nn.Linear(width, 5)

    def forward(self, ids):
        x = self.embed(ids[0])
        weight, chosen = torch.softmax(self.gate(x) * 3, -1).topk(self.top)
        chosen = chosen.reshape(-1)
        order = torch.argsort(chosen, stable=True)
        owner, tokens = chosen[order], order // self.top
        weight, inputs = weight.reshape(-1)[order, None], x[tokens]
        counts = torch.bincount(chosen, minlength=self.count)
        result = torch.zeros_like(x)
        for number in range(self.count):
            if counts[number] > 0:
                at = owner == number
                gate, up = F.linear(inputs[at], self.up[number]).chunk(2, -1)
                mixed = weight[at] * F.linear(F.silu(gate) * up, self.down[number])
                result.index_add_(0, tokens[at], mixed)
        return self.out(result.mean(0))


class ExitEncoder(nn.Module):
    """DeeBERT (Xin et al., 2020): a transformer encoder that exits where the entropy is low."""

    def __init__(self, width: int = 64, depth: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
        self.mix = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(depth)])
        self.exits = nn.ModuleList([nn.Linear(width, classes) for _ in range(depth)])

    def entropy(self, logits):
        p = torch.softmax(logits, -1)
        return -(p * p.log()).sum()

    def forward(self, ids):
        x = self.embed(ids)
        for number, (norm, mix) in enumerate(zip(self.norms, self.mix, strict=True)):
            q, k, v = mix(norm(x)).chunk(3, -1)
            x = x + F.scaled_dot_product_attention(q, k, v)
            logits = self.exits[number](x.mean(1))
            if self.entropy(logits).item() < 0.75:
                break
        return logits, number


MAKERS = {
    "sdn-mobilenet": lambda: ShallowDeep(Separable, 24),
    "sdn-vgg": lambda: ShallowDeep(Plain, 16),
    "sdn-resnet": lambda: ShallowDeep(Residual, 16),
    "sdn-wideresnet": lambda: ShallowDeep(WideResidual, 32),
    "skipnet-recurrent": RecurrentSkip,
    "blockdrop": BlockDrop,
    "captioner-mobilenet": Captioner,
    "adaptive-time": Halting,
    "equilibrium": Equilibrium,
    "neural-ode": AdaptiveStep,
    "token-pruning": PruneTokens,
    "token-experts": TokenExperts,
    "grouped-experts": GroupedExperts,
    "exit-encoder": ExitEncoder,
}
NAMES = list(MAKERS)


@torch.no_grad()
def build(name: str, n: int = 40) -> tuple[nn.Module, list[tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    model = MAKERS[name]().eval()
    calls = inputs(model, n)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    calibrate(model, calls)
    return model, calls


def inputs(model: nn.Module, n: int) -> list[tuple[torch.Tensor, ...]]:
    if isinstance(model, (PruneTokens, TokenExperts, GroupedExperts, ExitEncoder)):
        few = isinstance(model, (TokenExperts, GroupedExperts))  # so that experts stay idle
        return [(torch.randint(0, 100, (1, 4 if few else 24)),) for _ in range(n)]
    if isinstance(model, (Halting, Equilibrium, AdaptiveStep)):
        return [(torch.randn(1, 128) * (0.3 + 2 * torch.rand(1)),) for _ in range(n)]
    size = 64 if isinstance(model, Captioner) else 32
    images = [
        F.interpolate(torch.randn(1, 3, 4, 4), size=(size, size), mode="bilinear") for _ in range(n)
    ]
    return [
        (image * (0.3 + 2 * torch.rand(1)) + 0.2 * torch.randn_like(image),) for image in images
    ]


def calibrate(model: nn.Module, calls: list[tuple[torch.Tensor, ...]]) -> None:
    """Weights for which the decisions are near their medians over the inputs."""
    if isinstance(model, ShallowDeep):
        calibrate_exits(model, calls)
    elif isinstance(model, RecurrentSkip):
        model.decide.weight.mul_(30)
        model.project.weight.mul_(3)
        states = []
        model.gate.register_forward_hook(lambda _, __, out: states.append(out[0]))
        for call in calls:
            model(*call)
        model.gate._forward_hooks.clear()
        model.decide.bias.copy_(
            -torch.cat([model.decide.weight @ one[0] for one in states]).median()
        )
    elif isinstance(model, BlockDrop):
        model.keep.weight.mul_(20)
        scores = torch.cat([model.keep(model.policy(*call)) - model.keep.bias for call in calls])
        model.keep.bias.copy_(-scores.median(0).values)
    elif isinstance(model, Captioner):
        model.out.weight.mul_(6)
        model.embed.weight.mul_(3)
        low, high = 0.0, 60.0
        for _ in range(20):
            model.out.bias[2] = (low + high) / 2
            long = sum(len(model(*call)) for call in calls) / len(calls) > 5
            low, high = (
                (model.out.bias[2].item(), high) if long else (low, model.out.bias[2].item())
            )
    elif isinstance(model, Halting):
        model.halt.weight.mul_(8)
        model.halt.bias.fill_(-1.5)
        model.step.weight_ih.mul_(3)
    elif isinstance(model, Equilibrium):
        model.inner.weight.mul_(1.3)
    elif isinstance(model, AdaptiveStep):
        for layer in model.field:
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(2.5)
    elif isinstance(model, ExitEncoder):
        for layer in model.exits:
            layer.weight.mul_(6)


def calibrate_exits(model: ShallowDeep, calls: list[tuple[torch.Tensor, ...]]) -> None:
    """A third of the inputs that reach an exit leave there."""
    alive = [model.stem(call[0]) for call in calls]
    for number, block in enumerate(model.blocks):
        alive = [block(one) for one in alive]
        if number not in model.places:
            continue
        layer = model.exits[model.places.index(number)]
        layer.bias.zero_()
        low, high = 1e-2, 1e4
        for _ in range(40):
            scale = (low * high) ** 0.5
            left = sum(
                float(torch.softmax(layer(one.mean((2, 3))) * scale, 1).max()) >= model.sure
                for one in alive
            )
            low, high = (low, scale) if left > len(alive) / 3 else (scale, high)
        layer.weight.mul_(low)
        alive = [
            one
            for one in alive
            if float(torch.softmax(layer(one.mean((2, 3))), 1).max()) < model.sure
        ]
