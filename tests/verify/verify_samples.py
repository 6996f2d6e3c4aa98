"""A small model file of our own, and rewrites of its definitions: right ones and wrong ones."""

SOURCE = """
import math

import torch
import torch.nn.functional as F
from torch import nn


class SelfOutput(nn.Module):
    def __init__(self, hidden_size=32, eps=1e-12, p=0.1):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=eps)
        self.dropout = nn.Dropout(p)

    def forward(self, hidden_states, residual):
        hidden_states = self.dropout(self.dense(hidden_states))
        return self.norm(hidden_states + residual)


class RootNorm(nn.Module):
    def __init__(self, hidden_size=32, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class FeedForward(nn.Module):
    def __init__(self, hidden_size=32, inner=64):
        super().__init__()
        self.up = nn.Linear(hidden_size, inner)
        self.down = nn.Linear(inner, hidden_size)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Dropped(nn.Module):
    def __init__(self, p=0.2):
        super().__init__()
        self.p = p

    def forward(self, x):
        return F.dropout(x, self.p, self.training)


class Difference(nn.Module):
    def __init__(self, hidden_size=32):
        super().__init__()
        self.gate = nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        return x - self.gate(x)


def attend(query, key, value, mask=None):
    scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores + mask
    return torch.matmul(torch.softmax(scores, dim=-1), value)


class Attention(nn.Module):
    def __init__(self, hidden_size=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)

    def forward(self, x, mask):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = attend(qkv[0], qkv[1], qkv[2], mask)
        return y.transpose(1, 2).reshape(batch, length, width)


class Block(nn.Module):
    def __init__(self, hidden_size=32):
        super().__init__()
        self.attention = Attention(hidden_size)
        self.output = SelfOutput(hidden_size)
        self.norm = RootNorm(hidden_size)
        self.mlp = FeedForward(hidden_size)
        self.difference = Difference(hidden_size)

    def forward(self, x, mask=None):
        x = self.output(self.attention(x, mask), x)
        return self.difference(self.mlp(self.norm(x)))
"""  # noqa: E501

DRIVER = """
import torch


def block(module):
    torch.manual_seed(1)
    calls = []
    for batch, length in ((1, 5), (3, 8)):
        mask = torch.zeros(batch, 1, 1, length)
        mask[..., -2:] = torch.finfo(torch.float32).min / 2
        calls.append((torch.randn(batch, length, 32), mask))
        calls.append({"x": torch.randn(batch, length, 32)})
    return module.Block(32), calls
"""

LAYER_NORM = "return self.norm(hidden_states + residual)"
DROP = "hidden_states = self.dropout(self.dense(hidden_states))"
ROOT = "return self.weight * wide.to(x.dtype)"
GELU = "F.gelu(self.up(x))"
SOFTMAX = "return torch.matmul(torch.softmax(scores, dim=-1), value)"
ATTEND = SOURCE[SOURCE.index("    scores = torch.matmul") : SOURCE.index("\n\n\nclass Attention")]

EQUAL = {
    "sum in the other order": (
        "SelfOutput",
        LAYER_NORM,
        "return self.norm(residual + hidden_states)",
    ),
    "one statement": (
        "SelfOutput",
        DROP + "\n        " + LAYER_NORM,
        "return self.norm(self.dropout(self.dense(hidden_states)) + residual)",
    ),
    "library root norm": (
        "RootNorm",
        ROOT,
        "return self.weight * F.rms_norm(x.float(), self.weight.shape, None, self.eps).to(x.dtype)",
    ),
    "factor first": ("RootNorm", ROOT, "return wide.to(x.dtype) * self.weight"),
    "gelu by hand": (
        "FeedForward",
        "return self.down(F.gelu(self.up(x)))",
        "x = self.up(x)\n        return self.down(x * 0.5 * (1.0 + torch.erf(x / 2**0.5)))",
    ),
    "fused attention": (
        "attend",
        ATTEND,
        (
            "    import regraft.ops\n\n    scale = query.shape[-1] ** -0.5\n"
            "    return regraft.ops.attention(query, key, value, mask=mask, scale=scale)"
        ),
    ),
    "dropout in another order": (
        "Dropped",
        "return F.dropout(x, self.p, self.training)",
        (
            "if not self.training:\n            return x\n"
            "        keep = torch.rand(x.shape[::-1], device=x.device) >= self.p\n"
            "        keep = keep.permute(*range(x.dim() - 1, -1, -1)).to(x.dtype)\n"
            "        return x * keep / (1 - self.p) if self.p < 1 else x * keep"
        ),
    ),
    "subtraction as addition": (
        "Difference",
        "return x - self.gate(x)",
        "return -self.gate(x) + x",
    ),
}

WRONG = {
    "other eps": (
        "SelfOutput",
        LAYER_NORM,
        (
            "return F.layer_norm(hidden_states + residual, (hidden_states.shape[-1],), "
            "self.norm.weight, self.norm.bias, 1e-5)"
        ),
    ),
    "no residual": ("SelfOutput", LAYER_NORM, "return self.norm(hidden_states)"),
    "hooks bypassed": (
        "SelfOutput",
        DROP,
        "hidden_states = F.dropout(self.dense(hidden_states), self.dropout.p, self.training)",
    ),
    "no norm bias": (
        "SelfOutput",
        LAYER_NORM,
        (
            "return F.layer_norm(hidden_states + residual, "
            "(hidden_states.shape[-1],), self.norm.weight, None, self.norm.eps)"
        ),
    ),
    "no norm weight": ("RootNorm", ROOT, "return wide.to(x.dtype)"),
    "root norm other eps": (
        "RootNorm",
        ROOT,
        "return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)",
    ),
    "returns float32": ("RootNorm", ROOT, "return self.weight.float() * wide"),
    "overwrites its input": (
        "RootNorm",
        ROOT,
        "x.detach().copy_(wide)\n        return self.weight * wide.to(x.dtype)",
    ),
    "dropout always on": (
        "SelfOutput",
        DROP,
        "hidden_states = F.dropout(self.dense(hidden_states), self.dropout.p, True)",
    ),
    "dropout always off": ("SelfOutput", DROP, "hidden_states = self.dense(hidden_states)"),
    "twice the rate": (
        "Dropped",
        "return F.dropout(x, self.p, self.training)",
        "return F.dropout(x, 2 * self.p, self.training)",
    ),
    "drops rows": (
        "Dropped",
        "return F.dropout(x, self.p, self.training)",
        "return F.dropout1d(x, self.p, self.training)",
    ),
    "unscaled dropout": (
        "Dropped",
        "return F.dropout(x, self.p, self.training)",
        "return F.dropout(x, self.p, self.training) * (1 - self.p * self.training)",
    ),
    "approximate gelu": ("FeedForward", GELU, 'F.gelu(self.up(x), approximate="tanh")'),
    "other activation": ("FeedForward", GELU, "F.silu(self.up(x))"),
    "no gradient": ("FeedForward", GELU, "F.gelu(self.up(x).detach())"),
    "swapped operands": ("Difference", "return x - self.gate(x)", "return self.gate(x) - x"),
    "other softmax dimension": (
        "attend",
        SOFTMAX,
        "return torch.matmul(torch.softmax(scores, dim=-2), value)",
    ),
    "one number format": (
        "RootNorm",
        ROOT,
        "return F.rms_norm(x, self.weight.shape, self.weight, self.eps)",
    ),
    "other cast order": ("RootNorm", ROOT, "return (self.weight * wide).to(x.dtype)"),
    "gradients where no key is visible": (
        "attend",
        ATTEND,
        "    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)",
    ),
    "no scale": ("attend", " / math.sqrt(query.shape[-1])", ""),
    "no mask": ("attend", "scores = scores + mask", "scores = scores"),
    "fails": ("attend", SOFTMAX, 'raise RuntimeError("no kernel")'),
    "new parameter": (
        "FeedForward",
        "self.up = nn.Linear(hidden_size, inner)",
        "self.up = nn.Linear(hidden_size, inner)\n        self.extra = nn.Linear(2, 2)",
    ),
}


def rewritten(table: dict[str, tuple[str, str, str]], names: tuple[str, ...]) -> bytes:
    """Return the source with the named rewrites of a table applied, as bytes."""
    text = SOURCE
    for name in names:
        _, old, new = table[name]
        assert text.count(old) == 1, name
        text = text.replace(old, new)
    return text.encode()
