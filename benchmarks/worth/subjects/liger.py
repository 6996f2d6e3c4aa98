"""The subjects of pack `liger`, whose kernels run on CUDA alone."""

from subjects import (
    SEQUENCE,
    SEQUENCE_SHAPE,
    VOCABULARY,
    VOCABULARY_SHAPE,
    Size,
    Subject,
    scaled,
)
from subjects.torch import (
    EXPERTS,
    EXPERTS_SHAPE,
    EXPERTS_TEXT,
    HALVES,
    HEADS,
    HEADS_SHAPE,
    MLP,
    MLP_SHAPE,
    MLP_TEXT,
    RMS_NORM_TEXT,
    SCORES,
    SCORES_SHAPE,
)

CUDA = ("cuda",)
ROWS_INPUT = """

def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
"""
NORM = RMS_NORM_TEXT.partition("\n\ndef inputs")[0].replace("class Subject", "class Norm")


def cuda_subject(
    name: str,
    shape: str,
    sizes: dict[str, Size],
    text: str,
    also: tuple[str, ...] = (),
) -> Subject:
    """Return a subject of a rule of the pack."""
    return Subject(f"liger/{name}", shape, sizes, text, devices=CUDA, also=also)


SUBJECTS = [
    cuda_subject(
        "add-rms-norm",
        SEQUENCE_SHAPE,
        SEQUENCE,
        NORM
        + """

class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.Linear(width, width)
        self.mlp = nn.Linear(width, width)
        self.norm = Norm(width)

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states = self.attention(hidden_states)
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.norm(hidden_states)
        hidden_states = self.mlp(hidden_states)
        return residual + hidden_states
"""
        + ROWS_INPUT,
        also=("liger/rms-norm",),
    ),
    cuda_subject(
        "cross-entropy",
        "{batch} x {length} x {vocabulary}",
        VOCABULARY,
        """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), labels.view(-1))


def inputs(batch, length, vocabulary):
    return torch.randn(batch, length, vocabulary), torch.randint(vocabulary, (batch, length))
""",
    ),
    cuda_subject("experts", EXPERTS_SHAPE, EXPERTS, EXPERTS_TEXT),
    cuda_subject("gated-activation", MLP_SHAPE, MLP, MLP_TEXT),
    cuda_subject(
        "group-norm",
        "{batch} x {channels} x {side} x {side}",
        scaled(
            {"batch": 2, "channels": 32, "side": 8},
            {"batch": 4, "channels": 320, "side": 64},
            {"batch": 16, "channels": 320, "side": 64},
        ),
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, channels, groups=32):
        super().__init__()
        self.norm1 = nn.GroupNorm(num_groups=groups, num_channels=channels, eps=1e-6)
        self.act = nn.SiLU()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1)

    def forward(self, x):
        return self.conv1(self.act(self.norm1(x)))


def inputs(batch, channels, side):
    return (torch.randn(batch, channels, side, side),)
""",
    ),
    cuda_subject(
        "layer-norm",
        SEQUENCE_SHAPE,
        SEQUENCE,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(self.norm1(x))
"""
        + ROWS_INPUT,
    ),
    cuda_subject(
        "linear-loss",
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

    def forward(self, x, targets=None):
        if targets is not None:
            logits = self.head(x)
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        else:
            logits = self.head(x[:, [-1], :])
            loss = None
        return loss, logits


def inputs(batch, length, width, vocabulary):
    return torch.randn(batch, length, width), torch.randint(vocabulary, (batch, length))
""",
    ),
    cuda_subject("rms-norm", SEQUENCE_SHAPE, SEQUENCE, RMS_NORM_TEXT),
    cuda_subject("rotary", HEADS_SHAPE, HEADS, HALVES),
    cuda_subject(
        "row-softmax",
        SCORES_SHAPE,
        SCORES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def forward(self, scores):
        return scores.softmax(dim=-1, dtype=torch.float32)


def inputs(batch, heads, length):
    return (torch.randn(batch, heads, length, length),)
""",
    ),
]
