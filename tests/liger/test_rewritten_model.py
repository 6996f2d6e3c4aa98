"""Test a small model that the whole pack rewrites against itself, with all that patches by class
name miss or drop."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.rules import load_rules  # noqa: E402
from regraft.scanning import check_source, compile_rules, rewrite_file  # noqa: E402
from regraft.source.text import SourceFile, parse  # noqa: E402

MODEL = """
import torch
from torch import nn


ACTIVATIONS = {"silu": nn.SiLU, "gelu": nn.GELU, "relu": nn.ReLU}


class Norm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


class Mlp(nn.Module):
    def __init__(self, size, act, bias):
        super().__init__()
        self.gate_proj = nn.Linear(size, 2 * size, bias=bias)
        self.up_proj = nn.Linear(size, 2 * size, bias=bias)
        self.down_proj = nn.Linear(2 * size, size, bias=bias)
        self.act_fn = nn.SiLU() if act == "silu" else nn.GELU() if act == "gelu" else nn.ReLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


class Model(nn.Module):
    def __init__(self, size=8, act="silu", bias=True):
        super().__init__()
        self.heads = 2
        self.qkv = nn.Linear(size, 3 * size)
        self.q_norm, self.k_norm = Norm(size // 2), Norm(size // 2)
        self.input_norm, self.post_norm = Norm(size), Norm(size)
        self.expert, self.shared_expert = Mlp(size, act, bias), Mlp(size, act, bias)

    def forward(self, x, cos, sin):
        q, k, v = (one.unflatten(-1, (self.heads, -1)) for one in self.qkv(self.input_norm(x)).chunk(3, -1))
        q, k, v = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2), v.transpose(1, 2)
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        h = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        x = x + self.post_norm(h)
        return x + self.expert(x) + self.shared_expert(x)
"""  # noqa: E501


def rewritten() -> str:
    """Return the model's source after all rules of the pack."""
    source = parse("model.py", MODEL.encode())
    assert isinstance(source, SourceFile)
    compiled, _ = compile_rules(load_rules(["liger"])[0])
    return rewrite_file(check_source(source, compiled), compiled)[0].decode()


def run(text: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return the result and gradients of the model of a text; its checkpoint does not depend on the
    text."""
    scope: dict[str, Any] = {}
    exec(compile(text, "model.py", "exec"), scope)
    torch.manual_seed(0)
    model = scope["Model"](**options)
    x = torch.randn(2, 5, 8, requires_grad=True)
    angles = torch.rand(2, 5, 2).repeat(1, 1, 2)
    result = model(x, angles.cos(), angles.sin())
    result.square().sum().backward()
    return result, {
        "x": x.grad,
        **{name: parameter.grad for name, parameter in model.named_parameters()},
    }


@pytest.mark.parametrize("act", ["silu", "gelu", "relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_results_gradients_and_names_are_those_of_the_original(
    act: str, bias: bool, launches: list[str]
) -> None:
    """Patches written by hand compute SiLU whatever the configuration says, and drop
    `mlp_bias=True`."""
    (ours, slopes), (theirs, wanted) = (
        run(text, act=act, bias=bias) for text in (rewritten(), MODEL)
    )
    torch.testing.assert_close(ours, theirs)
    assert slopes.keys() == wanted.keys()
    for name in wanted:
        scale = float(wanted[name].abs().max())
        torch.testing.assert_close(
            slopes[name], wanted[name], rtol=1e-5, atol=2e-6 * max(scale, 1.0)
        )
    assert launches


def test_every_norm_and_every_expert_runs_the_kernel(launches: list[str]) -> None:
    """Patches of named attributes miss norms of queries and keys, and shared experts."""
    run(rewritten())
    assert launches.count("_rms_norm_kernel") == 4
    assert launches.count("_gated_kernel") == 2
    assert launches.count("rotary") == 2  # and once in the backward pass
