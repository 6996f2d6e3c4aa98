"""Kernels that do not run here: what they are given, by their documented signatures, and what runs instead."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft.ops import REFERENCES, apex_layer_norm, apex_rms_norm, apex_rotary, implementation, te_rotary  # noqa: E402
from regraft.ops.apex_norm import layer_norm_through_apex, rms_norm_through_apex  # noqa: E402
from regraft.ops.fused_rotary import position_dimension, rotary_through_apex, rotary_through_te  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16]


def fused_rms_norm_affine(
    input: Any, weight: Any, normalized_shape: Any, eps: float = 1e-6, memory_efficient: bool = False
) -> Any:
    """Apex' documented composition: rounded to the dtype of the input, then multiplied in it."""
    assert input.dtype == weight.dtype and input.shape[-len(normalized_shape) :] == tuple(normalized_shape)
    wide = input.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(input.dtype) * weight


def fused_layer_norm_affine(
    input: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float = 1e-6, memory_efficient: bool = False
) -> Any:
    assert input.dtype == weight.dtype == bias.dtype
    return F.layer_norm(input, tuple(normalized_shape), eps=eps) * weight + bias


def turned(t: Any, cos: Any, sin: Any) -> Any:
    first, second = t.float().chunk(2, dim=-1)
    return (t.float() * cos.float() + torch.cat((-second, first), dim=-1) * sin.float()).to(t.dtype)


def fused_apply_rotary_pos_emb_cached(t: Any, cos: Any, sin: Any, transpose_output_memory: bool = False) -> Any:
    """Apex' documented composition and layout: `[seq_length, ..., dim]`."""
    assert cos.shape == sin.shape == (t.shape[0], 1, 1, t.shape[-1]) and t.dtype == cos.dtype == sin.dtype
    return turned(t, cos, sin)


def apply_rotary_pos_emb(
    t: Any, freqs: Any, tensor_format: str = "sbhd", start_positions: Any = None, interleaved: bool = False,
    fused: bool = False, cu_seqlens: Any = None, cp_size: int = 1, cp_rank: int = 0,
) -> Any:  # fmt: skip
    """Transformer Engine's documented composition and layouts."""
    assert fused and not interleaved and tensor_format == "sbhd" and freqs.dtype == torch.float32
    assert freqs.shape == (t.shape[0], 1, 1, t.shape[-1])
    return turned(t, freqs.cos(), freqs.sin())


def same(ours: Callable[[], Any], theirs: Callable[[], Any], leaves: list[Any]) -> None:
    found = []
    for run in (ours, theirs):
        result = run()
        loss = (result * torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)).sum()
        found.append([result, *torch.autograd.grad(loss, leaves)])
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        torch.testing.assert_close(one, other, **({} if one.dtype == torch.float32 else {"rtol": 2e-2, "atol": 3e-2}))


@pytest.mark.parametrize("dtype", DTYPES)
def test_apex_gets_an_rms_norm(dtype: Any) -> None:
    x, weight = (torch.randn(shape).to(dtype).requires_grad_() for shape in ((2, 5, 8), (8,)))
    same(
        lambda: rms_norm_through_apex(fused_rms_norm_affine, x, weight, 1e-3),
        lambda: apex_rms_norm(x, weight=weight, eps=1e-3),
        [x, weight],
    )
    assert implementation("apex_rms_norm", x, weight=weight) == "reference"


def test_apex_gets_a_layer_norm() -> None:
    norm = nn.LayerNorm((5, 8), eps=1e-3)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    x = torch.randn(2, 5, 8, requires_grad=True)
    leaves = [x, *norm.parameters()]
    same(lambda: layer_norm_through_apex(fused_layer_norm_affine, x, norm), lambda: apex_layer_norm(x, norm), leaves)
    assert implementation("apex_layer_norm", x, norm) == "reference"


LAYOUTS = {
    "heads first": ((2, 3, 5, 6), (1, 1, 5, 6)),
    "heads last": ((2, 5, 3, 6), (1, 5, 1, 6)),
    "positions first": ((5, 2, 3, 6), (5, 1, 1, 6)),
    "a table without batch": ((2, 3, 5, 6), (5, 6)),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_layout_of_a_rotary_embedding(name: str, dtype: Any) -> None:
    shape, table = LAYOUTS[name]
    x, angles = torch.randn(shape).to(dtype).requires_grad_(), torch.rand(table) * 6
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    ours = rotary_through_apex(fused_apply_rotary_pos_emb_cached, x, cos, sin)
    assert ours.is_contiguous()
    same(
        lambda: rotary_through_apex(fused_apply_rotary_pos_emb_cached, x, cos, sin),
        lambda: apex_rotary(x, cos, sin),
        [x],
    )
    same(
        lambda: rotary_through_te(apply_rotary_pos_emb, x, angles),
        lambda: te_rotary(x, angles, rounded=True),
        [x],
    )
    assert implementation("apex_rotary", x, cos, sin) == implementation("te_rotary", x, angles) == "reference"


@pytest.mark.parametrize(
    ("shape", "table"),
    [((2, 3, 5, 6), (2, 1, 5, 6)), ((2, 3, 5, 6), (1, 1, 4, 6)), ((2, 3, 5, 7), (5, 7)), ((3, 5, 6), (5, 6)),
     ((2, 3, 1, 6), (1, 1, 1, 6)), ((2, 3, 5, 6), (1, 1, 5, 1))],
)  # fmt: skip
def test_tables_that_the_kernels_do_not_take(shape: tuple[int, ...], table: tuple[int, ...]) -> None:
    assert position_dimension(torch.zeros(shape), torch.zeros(table)) is None


def test_what_the_kernels_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if on CUDA with both packages: dtypes, shapes and layers that they do not take run as they stand."""
    norms, rotary = (importlib.import_module(f"regraft.ops.{one}") for one in ("apex_norm", "fused_rotary"))
    for module in (norms, rotary):
        monkeypatch.setattr(module, "apex_kernel", lambda name: fused_rms_norm_affine)
        monkeypatch.setattr(module, "apex_takes", lambda *given: len({one.dtype for one in given}) == 1)
    monkeypatch.setattr(rotary, "_te_kernel", lambda: apply_rotary_pos_emb)
    x, half, norm = torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 6).bfloat16(), nn.LayerNorm(6)
    assert implementation("apex_rms_norm", x, weight=torch.ones(6)) == "apex"
    assert implementation("apex_rms_norm", half, weight=torch.ones(6)) == "reference"
    assert implementation("apex_rms_norm", x, weight=torch.ones(1)) == "reference"
    assert implementation("apex_layer_norm", x, norm) == "apex"
    assert implementation("apex_layer_norm", half, norm.bfloat16()) == "reference"
    assert implementation("apex_layer_norm", x, nn.LayerNorm(6, bias=False)) == "reference"
    table, learned = torch.ones(5, 6), torch.ones(5, 6, requires_grad=True)
    assert implementation("apex_rotary", x, table, table) == "apex"
    assert implementation("apex_rotary", half, table, table) == "reference"
    assert implementation("apex_rotary", x, learned, table) == "reference"
    assert implementation("te_rotary", x, table) == implementation("te_rotary", half, table, rounded=True)
    assert implementation("te_rotary", x, table) == "transformer-engine"
    assert implementation("te_rotary", half, table) == "reference"
    assert implementation("te_rotary", x, learned) == "reference"


def test_references_are_the_compositions() -> None:
    x, weight = torch.randn(2, 5, 8).bfloat16(), torch.randn(8)
    wide = x.float()
    expected = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight
    assert torch.equal(REFERENCES["apex_rms_norm"](x, weight=weight), expected)
    assert expected.dtype == torch.float32
