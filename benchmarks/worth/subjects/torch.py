"""The subjects of pack `torch`."""

from subjects import (
    ATTENTION,
    ATTENTION_SHAPE,
    SEQUENCE,
    SEQUENCE_SHAPE,
    VOCABULARY,
    VOCABULARY_SHAPE,
    Subject,
    scaled,
)

ACTIVATION = scaled(
    {"batch": 2, "length": 16, "width": 128},
    {"batch": 4, "length": 512, "width": 3072},
    {"batch": 4, "length": 2048, "width": 4096},
)
SCORES = scaled(
    {"batch": 2, "heads": 4, "length": 16},
    {"batch": 4, "heads": 12, "length": 512},
    {"batch": 1, "heads": 16, "length": 2048},
)
SCORES_SHAPE = "{batch} x {heads} x {length} x {length}"
IMAGES = scaled(
    {"batch": 2, "channels": 16, "side": 8},
    {"batch": 8, "channels": 64, "side": 56},
    {"batch": 16, "channels": 192, "side": 56},
)
IMAGES_SHAPE = "{batch} x {channels} x {side} x {side}"
HEADS = scaled(
    {"batch": 2, "heads": 4, "length": 16, "size": 8},
    {"batch": 4, "heads": 12, "length": 512, "size": 64},
    {"batch": 4, "heads": 16, "length": 2048, "size": 64},
)
HEADS_SHAPE = "{batch} x {heads} x {length} x {size}"
EXPERTS = scaled(
    {"rows": 32, "width": 32, "inner": 16, "experts": 4, "chosen": 2},
    {"rows": 512, "width": 512, "inner": 256, "experts": 16, "chosen": 4},
    {"rows": 2048, "width": 1024, "inner": 512, "experts": 16, "chosen": 4},
)
EXPERTS_SHAPE = "{rows} x {width}, {chosen} of {experts} experts of {inner}"
# a layer normalisation, whose `forward` ends with RESULT
NORM_TEXT = """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        RESULT


def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
"""
BY_VARIANCE = """variance = (x - mean).pow(2).mean(-1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + self.eps)
        return self.weight * x + self.bias"""
STANDARDIZED = "return self.weight * (x - mean) / ({}) + self.bias"
# an RMSNorm by length, whose `forward` ends with RESULT
LENGTH_NORM_TEXT = """
import torch
from torch import nn
from torch.nn import functional as F


class Subject(nn.Module):
    def __init__(self, width, eps=1e-8):
        super().__init__()
        self.g = nn.Parameter(torch.ones(WEIGHT_SHAPE))
        self.scale = width**SIGN0.5
        self.eps = eps

    def forward(self, x):
        return RESULT


def inputs(PARAMETERS):
    return (torch.randn(SIZES),)
"""
BY_ROWS = {"WEIGHT_SHAPE": "width", "PARAMETERS": "batch, length, width"}
BY_ROWS["SIZES"] = BY_ROWS["PARAMETERS"]
LENGTH_NORMS = {
    "a factor and a weight": {
        **BY_ROWS,
        "SIGN": "",
        "RESULT": "F.normalize(x, dim=-1) * self.scale * self.g",
    },
    "a lower bound": {
        **BY_ROWS,
        "SIGN": "-",
        "RESULT": "x / (torch.norm(x, dim=-1, keepdim=True) * self.scale)"
        ".clamp(min=self.eps) * self.g",
    },
    "a summand": {
        **BY_ROWS,
        "SIGN": "-",
        "RESULT": "self.g * (x / (x.norm(2, dim=-1, keepdim=True) * self.scale + self.eps))",
    },
    "channels": {
        "WEIGHT_SHAPE": "1, width, 1, 1",
        "PARAMETERS": "batch, width, side",
        "SIZES": "batch, width, side, side",
        "SIGN": "",
        "RESULT": "F.normalize(x, dim=1) * self.g * self.scale",
    },
}
PICTURES = scaled(
    {"batch": 2, "width": 16, "side": 8},
    {"batch": 8, "width": 64, "side": 56},
    {"batch": 16, "width": 192, "side": 56},
)
PICTURES_SHAPE = "{batch} x {width} x {side} x {side}"


def length_norm_text(name: str) -> str:
    """Return the text of a norm by length."""
    text = LENGTH_NORM_TEXT
    for placeholder, part in LENGTH_NORMS[name].items():
        text = text.replace(placeholder, part)
    return text


EXPERTS_TEXT = '''
import torch
from torch import nn


class Subject(nn.Module):
    """Expert weights stored as 3D tensors."""

    def __init__(self, width, inner, experts):
        super().__init__()
        self.num_experts = experts
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * inner, width) / width**0.5)
        self.down_proj = nn.Parameter(torch.randn(experts, width, inner) / inner**0.5)
        self.act_fn = nn.SiLU()

    def forward(self, hidden_states, top_k_index, top_k_weights):
        final_hidden_states = torch.zeros_like(hidden_states)
        with torch.no_grad():
            expert_mask = torch.nn.functional.one_hot(top_k_index, num_classes=self.num_experts + 1)
            expert_mask = expert_mask.permute(2, 1, 0)
            expert_hit = torch.greater(expert_mask.sum(dim=(-1, -2)), 0).nonzero()
        for expert_idx in expert_hit:
            expert_idx = expert_idx[0]
            if expert_idx == self.num_experts:
                continue
            top_k_pos, token_idx = torch.where(expert_mask[expert_idx])
            current_state = hidden_states[token_idx]
            gate, up = nn.functional.linear(
                current_state, self.gate_up_proj[expert_idx]
            ).chunk(2, dim=-1)
            current_hidden_states = self.act_fn(gate) * up
            current_hidden_states = nn.functional.linear(
                current_hidden_states, self.down_proj[expert_idx]
            )
            current_hidden_states = (
                current_hidden_states * top_k_weights[token_idx, top_k_pos, None]
            )
            final_hidden_states.index_add_(
                0, token_idx, current_hidden_states.to(final_hidden_states.dtype)
            )
        return final_hidden_states


def inputs(rows, width, experts, chosen):
    weights, index = torch.softmax(torch.randn(rows, experts), -1).topk(chosen)
    return torch.randn(rows, width), index, weights / weights.sum(-1, keepdim=True)
'''
MLP_TEXT = """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.w1 = nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)
        self.w3 = nn.Linear(width, inner, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
"""
MLP = scaled(
    {"batch": 2, "length": 16, "width": 32, "inner": 128},
    {"batch": 4, "length": 256, "width": 768, "inner": 2048},
    {"batch": 1, "length": 2048, "width": 1024, "inner": 2816},
)
MLP_SHAPE = "{batch} x {length} x {width}, inner {inner}"
ROTARY_TEXT = """
import torch
from torch import nn


def rotate_half(x):
    {halves}


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


class Subject(nn.Module):
    def __init__(self, length, size):
        super().__init__()
        frequencies = 10000 ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(length)[:, None] * frequencies
        angles = {angles}
        self.register_buffer("cos", angles.cos()[None])
        self.register_buffer("sin", angles.sin()[None])

    def forward(self, q, k):
        q, k = apply_rotary_pos_emb(q, k, self.cos, self.sin)
        return torch.stack((q, k))


def inputs(batch, heads, length, size):
    return torch.randn(batch, heads, length, size), torch.randn(batch, heads, length, size)
"""
RMS_NORM_TEXT = """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
"""


def rotary(halves: str, angles: str) -> str:
    """Return the text of a rotary embedding whose halves are those of a body."""
    return ROTARY_TEXT.replace("{halves}", halves).replace("{angles}", angles)


HALVES = rotary(
    """x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)""",
    "torch.cat((angles, angles), dim=-1)",
)
INTERLEAVED = rotary(
    """x1 = x[..., 0::2]
    x2 = x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)""",
    "angles.repeat_interleave(2, dim=-1)",
)


def standardized(deviation: str) -> str:
    """Return a layer normalisation that divides by an expression of `x`."""
    return NORM_TEXT.replace("RESULT", STANDARDIZED.format(deviation))


def elementwise(body: str, numbers: str = "batch, length, width", shape: str = "") -> str:
    """Return the text of a module whose forward is a body, for an input x of a shape."""
    return f"""
import math

import torch
from torch import nn


class Subject(nn.Module):
    def forward(self, x):
        {body}


def inputs({numbers}):
    return (torch.randn({shape or numbers}),)
"""


SCORES_INPUT = ("batch, heads, length", "batch, heads, length, length")
SUBJECTS = [
    Subject(
        "torch/attention",
        ATTENTION_SHAPE,
        ATTENTION,
        """
import torch
from torch import nn


def eager_attention(module, query, key, value, attention_mask, scaling, dropout=0.0):
    attn_weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        causal_mask = attention_mask[:, :, :, : key.shape[-2]]
        attn_weights = attn_weights + causal_mask
    attn_weights = nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)
    attn_weights = nn.functional.dropout(attn_weights, p=dropout, training=module.training)
    attn_output = torch.matmul(attn_weights, value)
    return attn_output.transpose(1, 2).contiguous(), attn_weights


class Subject(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.size = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        mask = torch.full((length, length), -3e38).triu(1)
        self.register_buffer("mask", mask[None, None])

    def forward(self, x):
        query, key, value = (
            layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        context, weights = eager_attention(self, query, key, value, self.mask, self.size**-0.5)
        return self.output(context.flatten(2)), weights


def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
""",
        name="causal, weights returned",
    ),
    Subject(
        "torch/attention",
        ATTENTION_SHAPE,
        ATTENTION,
        """
import math

import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.attn_dropout = nn.Dropout(0.1)
        self.register_buffer("causal", torch.tril(torch.ones(1, 1, length, length)))

    def forward(self, x):
        length = x.shape[1]
        q, k, v = (
            part.unflatten(-1, (self.heads, self.size)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.size))
        att = att.masked_fill(self.causal[:, :, :length, :length] == 0, float("-inf"))
        att = att.softmax(dim=-1)
        att = self.attn_dropout(att)
        return self.proj((att @ v).transpose(1, 2).flatten(2))


def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
""",
        name="causal, dropout",
    ),
    Subject(
        "torch/channels-first-layer-norm",
        IMAGES_SHAPE,
        IMAGES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


def inputs(batch, channels, side):
    return (torch.randn(batch, channels, side, side),)
""",
    ),
    Subject(
        "torch/exp-softmax",
        SCORES_SHAPE,
        SCORES,
        elementwise(
            "e = torch.exp(x - x.max(dim=-1, keepdim=True)[0])\n"
            "        return e / e.sum(-1, keepdim=True)",
            *SCORES_INPUT,
        ),
        name="maximum subtracted",
    ),
    Subject(
        "torch/exp-softmax",
        SCORES_SHAPE,
        SCORES,
        elementwise("e = torch.exp(x)\n        return e / e.sum(-1, keepdim=True)", *SCORES_INPUT),
        name="plain",
    ),
    Subject("torch/experts", EXPERTS_SHAPE, EXPERTS, EXPERTS_TEXT),
    Subject("torch/gate-up", MLP_SHAPE, MLP, MLP_TEXT),
    Subject(
        "torch/glu",
        SEQUENCE_SHAPE,
        ACTIVATION,
        elementwise(
            "values, gate = x.chunk(2, dim=-1)\n        return values * torch.sigmoid(gate)"
        ),
        name="features",
    ),
    Subject(
        "torch/glu",
        SEQUENCE_SHAPE,
        ACTIVATION,
        elementwise(
            "values, gate = x.chunk(2, dim=1)\n        return values * torch.sigmoid(gate)"
        ),
        name="channels",
    ),
    Subject(
        "torch/gelu",
        SEQUENCE_SHAPE,
        ACTIVATION,
        elementwise("return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))"),
        name="erf",
    ),
    Subject(
        "torch/gelu",
        SEQUENCE_SHAPE,
        ACTIVATION,
        elementwise(
            "return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi)"
            " * (x + 0.044715 * torch.pow(x, 3.0))))"
        ),
        name="tanh",
    ),
    Subject(
        "torch/layer-norm",
        SEQUENCE_SHAPE,
        SEQUENCE,
        NORM_TEXT.replace("RESULT", BY_VARIANCE),
    ),
    Subject(
        "torch/linear-cross-entropy",
        VOCABULARY_SHAPE,
        VOCABULARY,
        """
import torch
from torch import nn
from torch.nn import functional as F


class Subject(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x, labels):
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-1)


def inputs(batch, length, width, vocabulary):
    return torch.randn(batch, length, width), torch.randint(vocabulary, (batch, length))
""",
    ),
    Subject(
        "torch/logits-cross-entropy",
        VOCABULARY_SHAPE,
        VOCABULARY,
        """
import torch
from torch import nn
from torch.nn import functional as F


class Subject(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x, labels):
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1)), logits


def inputs(batch, length, width, vocabulary):
    return torch.randn(batch, length, width), torch.randint(vocabulary, (batch, length))
""",
    ),
    Subject(
        "torch/log-softmax",
        "{batch} x {length} x {vocabulary}",
        VOCABULARY,
        elementwise("return torch.log(torch.softmax(x, dim=-1))", "batch, length, vocabulary"),
    ),
    Subject(
        "torch/quick-gelu",
        SEQUENCE_SHAPE,
        ACTIVATION,
        elementwise("return x * torch.sigmoid(1.702 * x)"),
    ),
    Subject("torch/rms-norm", SEQUENCE_SHAPE, SEQUENCE, RMS_NORM_TEXT),
    *(
        Subject(
            "torch/length-norm",
            PICTURES_SHAPE if name == "channels" else SEQUENCE_SHAPE,
            PICTURES if name == "channels" else SEQUENCE,
            length_norm_text(name),
            name=name,
            devices=("cpu",),
        )
        for name in LENGTH_NORMS
    ),
    Subject("torch/rotary", HEADS_SHAPE, HEADS, HALVES, name="halves"),
    Subject("torch/rotary", HEADS_SHAPE, HEADS, INTERLEAVED, name="interleaved"),
    Subject(
        "torch/rotary",
        HEADS_SHAPE,
        HEADS,
        """
import torch
from torch import nn


def turn(x, cos, sin):
    real, imaginary = x.float().reshape(x.shape[:-1] + (-1, 2)).unbind(-1)
    turned_real = real * cos - imaginary * sin
    turned_imaginary = real * sin + imaginary * cos
    return torch.stack([turned_real, turned_imaginary], dim=-1).flatten(3).type_as(x)


class Subject(nn.Module):
    def __init__(self, length, size):
        super().__init__()
        frequencies = 10000 ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(length)[:, None] * frequencies
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, q, k):
        return torch.stack((turn(q, self.cos, self.sin), turn(k, self.cos, self.sin)))


def inputs(batch, heads, length, size):
    return torch.randn(batch, heads, length, size), torch.randn(batch, heads, length, size)
""",
        name="pairs",
    ),
    Subject("torch/silu", SEQUENCE_SHAPE, ACTIVATION, elementwise("return x * torch.sigmoid(x)")),
    Subject(
        "torch/softmax-round-trip",
        SCORES_SHAPE,
        SCORES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def forward(self, scores):
        return nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)


def inputs(batch, heads, length):
    return (torch.randn(batch, heads, length, length),)
""",
        dtype="bfloat16",
    ),
    Subject(
        "torch/standardize",
        SEQUENCE_SHAPE,
        SEQUENCE,
        standardized("x.std(-1, keepdim=True) + self.eps"),
        name="deviation",
    ),
    Subject(
        "torch/standardize",
        SEQUENCE_SHAPE,
        SEQUENCE,
        standardized("torch.sqrt(x.var(-1, keepdim=True) + self.eps)"),
        name="unbiased variance",
    ),
    Subject(
        "torch/variance",
        IMAGES_SHAPE,
        IMAGES,
        """
import torch
from torch import nn


def statistics(features, eps=1e-5):
    size = features.size()
    assert len(size) == 4
    batch, channels = size[:2]
    variance = features.view(batch, channels, -1).var(dim=2) + eps
    mean = features.view(batch, channels, -1).mean(dim=2)
    return mean.view(batch, channels, 1, 1), variance.sqrt().view(batch, channels, 1, 1)


class Subject(nn.Module):
    def forward(self, content, style):
        size = content.size()
        style_mean, style_deviation = statistics(style)
        mean, deviation = statistics(content)
        normalised = (content - mean.expand(size)) / deviation.expand(size)
        return normalised * style_deviation.expand(size) + style_mean.expand(size)


def inputs(batch, channels, side):
    shape = (batch, channels, side, side)
    return torch.randn(shape), torch.randn(shape)
""",
        name="style transfer",
    ),
    Subject(
        "torch/variance",
        SEQUENCE_SHAPE,
        SEQUENCE,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def forward(self, x):
        frames = torch.relu(x)
        return torch.cat([frames.mean(dim=1), frames.std(dim=1)], dim=1)


def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
""",
        name="pooling",
    ),
]
