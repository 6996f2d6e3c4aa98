"""Test the calls of kernels that do not run here, by their documented signatures, and the
compositions in their place."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

from regraft.ops import (
    REFERENCES,
    apex_gelu_mlp,
    apex_layer_norm,
    apex_rms_norm,
    flash_add_layer_norm,
    flash_add_layer_norm_pair,
    flash_gelu_mlp,
    implementation,
    te_rotary,
)
from regraft.ops.apex_norm import layer_norm_through_apex, rms_norm_through_apex
from regraft.ops.flash_norm import norm_through_flash_attn
from regraft.ops.fused_rotary import position_dimension, rotary_through_te
from regraft.ops.gelu_mlp import mlp_through_apex, mlp_through_flash_attn
from regraft.ops.plain import differentiable_once, library_function

DTYPES = [torch.float32, torch.bfloat16]


def fused_rms_norm_affine(
    input: Any,
    weight: Any,
    normalized_shape: Any,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Any:
    """Compute Apex' documented composition: rounded to the dtype of the input, then multiplied in
    it."""
    assert input.dtype == weight.dtype and input.shape[-len(normalized_shape) :] == tuple(
        normalized_shape
    )
    wide = input.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(input.dtype) * weight


def fused_layer_norm_affine(
    input: Any,
    weight: Any,
    bias: Any,
    normalized_shape: Any,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Any:
    """Compute Apex' documented composition of a layer normalisation."""
    assert input.dtype == weight.dtype == bias.dtype
    return F.layer_norm(input, tuple(normalized_shape), eps=eps) * weight + bias


def turned(t: Any, cos: Any, sin: Any) -> Any:
    """Return a tensor turned by half-width rotations."""
    first, second = t.float().chunk(2, dim=-1)
    return (t.float() * cos.float() + torch.cat((-second, first), dim=-1) * sin.float()).to(t.dtype)


def apply_rotary_pos_emb(
    t: Any,
    freqs: Any,
    tensor_format: str = "sbhd",
    start_positions: Any = None,
    interleaved: bool = False,
    fused: bool = False,
    cu_seqlens: Any = None,
    cp_size: int = 1,
    cp_rank: int = 0,
) -> Any:
    """Compute Transformer Engine's documented composition and layouts."""
    assert fused and not interleaved and tensor_format == "sbhd" and freqs.dtype == torch.float32
    assert freqs.shape == (t.shape[0], 1, 1, t.shape[-1])
    return turned(t, freqs.cos(), freqs.sin())


def fused_dense_gelu_dense(input: Any, weight1: Any, bias1: Any, weight2: Any, bias2: Any) -> Any:
    """Compute Apex' documented composition, for rows."""
    assert input.dim() == 2 and input.is_contiguous()
    return F.linear(F.gelu(F.linear(input, weight1, bias1), approximate="tanh"), weight2, bias2)


def fused_mlp_func(
    x: Any,
    weight1: Any,
    weight2: Any,
    bias1: Any = None,
    bias2: Any = None,
    activation: str = "gelu_approx",
    save_pre_act: bool = True,
    return_residual: bool = False,
    checkpoint_lvl: int = 0,
    heuristic: int = 0,
    process_group: Any = None,
    sequence_parallel: bool = True,
) -> Any:
    """Compute flash-attn's documented composition."""
    assert (
        activation == "gelu_approx"
        and save_pre_act == torch.is_grad_enabled()
        and not return_residual
    )
    return F.linear(F.gelu(F.linear(x, weight1, bias1), approximate="tanh"), weight2, bias2)


def layer_norm_fn(
    x: Any,
    weight: Any,
    bias: Any,
    residual: Any = None,
    x1: Any = None,
    weight1: Any = None,
    bias1: Any = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Any = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
) -> Any:
    """Compute flash-attn's documented composition: the sum is rounded only if it is returned."""
    assert residual.shape == x.shape and prenorm and not is_rms_norm
    total = F.dropout(x.float(), dropout_p) + residual.float()
    bias = None if bias is None else bias.float()
    return F.layer_norm(total, weight.shape, weight.float(), bias, eps).to(x.dtype), total.to(
        residual.dtype
    )


def assert_agrees(ours: Callable[[], Any], theirs: Callable[[], Any], leaves: list[Any]) -> None:
    """Assert that two functions have equal results and gradients."""
    runs = []
    for run in (ours, theirs):
        result = run()
        loss = (
            result * torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)
        ).sum()
        runs.append([result, *torch.autograd.grad(loss, leaves)])
    for actual, expected in zip(*runs, strict=True):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        torch.testing.assert_close(
            actual,
            expected,
            **({} if actual.dtype == torch.float32 else {"rtol": 2e-2, "atol": 3e-2}),
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_apex_gets_an_rms_norm(dtype: Any) -> None:
    x, weight = (torch.randn(shape).to(dtype).requires_grad_() for shape in ((2, 5, 8), (8,)))
    assert_agrees(
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
    assert_agrees(
        lambda: layer_norm_through_apex(fused_layer_norm_affine, x, norm),
        lambda: apex_layer_norm(x, norm),
        leaves,
    )
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
    assert rotary_through_te(apply_rotary_pos_emb, x, angles).is_contiguous()
    assert_agrees(
        lambda: rotary_through_te(apply_rotary_pos_emb, x, angles),
        lambda: te_rotary(x, angles, rounded=True),
        [x],
    )
    assert implementation("te_rotary", x, angles) == "reference"


@pytest.mark.parametrize(
    ("shape", "table"),
    [
        ((2, 3, 5, 6), (2, 1, 5, 6)),
        ((2, 3, 5, 6), (1, 1, 4, 6)),
        ((2, 3, 5, 7), (5, 7)),
        ((3, 5, 6), (5, 6)),
        ((2, 3, 1, 6), (1, 1, 1, 6)),
        ((2, 3, 5, 6), (1, 1, 5, 1)),
    ],
)
def test_tables_that_the_kernels_do_not_take(
    shape: tuple[int, ...], table: tuple[int, ...]
) -> None:
    assert position_dimension(torch.zeros(shape), torch.zeros(table)) is None


def test_what_the_kernels_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA with both packages, dtypes, shapes and layers that they do not take run
    unchanged."""
    norms, rotary = (
        importlib.import_module(f"regraft.ops.{name}") for name in ("apex_norm", "fused_rotary")
    )
    for module in (norms, rotary):
        monkeypatch.setattr(
            module, "on_one_gpu", lambda *tensors: len({tensor.dtype for tensor in tensors}) == 1
        )
    monkeypatch.setattr(norms, "_apex_norm_kernel", lambda name: fused_rms_norm_affine)
    monkeypatch.setattr(rotary, "_te_kernel", lambda: apply_rotary_pos_emb)
    x, half, norm = torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 6).bfloat16(), nn.LayerNorm(6)
    assert implementation("apex_rms_norm", x, weight=torch.ones(6)) == "apex"
    assert implementation("apex_rms_norm", half, weight=torch.ones(6)) == "reference"
    assert implementation("apex_rms_norm", x, weight=torch.ones(1)) == "reference"
    assert implementation("apex_layer_norm", x, norm) == "apex"
    assert implementation("apex_layer_norm", half, norm.bfloat16()) == "reference"
    assert implementation("apex_layer_norm", x, nn.LayerNorm(6, bias=False)) == "reference"
    table, learned = torch.ones(5, 6), torch.ones(5, 6, requires_grad=True)
    assert implementation("te_rotary", x, table) == implementation(
        "te_rotary", half, table, rounded=True
    )
    assert implementation("te_rotary", x, table) == "transformer-engine"
    assert implementation("te_rotary", half, table) == "reference"
    assert implementation("te_rotary", x, learned) == "reference"


def mlp(*sizes: int, dtype: Any = torch.float32, bias: bool = True) -> tuple[Any, Any]:
    """Return two Linear layers of three widths."""
    first, second, third = sizes
    return nn.Linear(first, second, bias=bias, dtype=dtype), nn.Linear(second, third, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 5, 8), (3, 8), (8,)])
def test_two_layers_and_their_gelu(dtype: Any, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape).to(dtype).requires_grad_()
    up, down = mlp(8, 16, 24, dtype=dtype)
    leaves = [x, *up.parameters(), *down.parameters()]
    for ours, kernel, op in (
        (mlp_through_apex, fused_dense_gelu_dense, apex_gelu_mlp),
        (mlp_through_flash_attn, fused_mlp_func, flash_gelu_mlp),
    ):
        assert_agrees(
            partial(ours, kernel, x, up, down),
            partial(op, x, up, down),
            leaves,
        )
        assert torch.equal(op(x, up, down), down(F.gelu(up(x), approximate="tanh")))
        assert torch.equal(op(x, up, down, nn.ReLU()), down(F.relu(up(x))))
    with torch.no_grad():
        mlp_through_flash_attn(fused_mlp_func, x, up, down)


@pytest.mark.parametrize("name", ["apex_gelu_mlp", "flash_gelu_mlp"])
def test_which_layers_the_fused_ones_take(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Kernels are chosen as on CUDA with both packages."""
    module = importlib.import_module("regraft.ops.gelu_mlp")
    monkeypatch.setattr(
        module, "on_one_gpu", lambda *tensors: len({tensor.dtype for tensor in tensors}) == 1
    )
    for kernel in ("_apex_mlp_kernel", "_flash_mlp_kernel"):
        monkeypatch.setattr(module, kernel, lambda: fused_mlp_func)
    half = torch.bfloat16
    x, layers = torch.randn(4, 8, dtype=half), mlp(8, 16, 24, dtype=half)

    def runs(*arguments: Any) -> bool:
        return implementation(name, *arguments) != "reference"

    dropout = nn.Dropout(0.5)
    assert (
        runs(x, *layers) and runs(x, *layers, nn.GELU("tanh")) and not runs(x, *layers, nn.GELU())
    )
    assert not runs(x, *layers, nn.GELU("tanh"), dropout) and runs(x, *layers, None, dropout.eval())
    assert not runs(x.float(), *mlp(8, 16, 24)) and not runs(x, *mlp(8, 16, 24))
    assert not runs(x, *mlp(8, 16, 24, dtype=half, bias=False)) and not runs(
        x, *mlp(8, 12, 24, dtype=half)
    )
    layers[0].register_forward_hook(lambda *_: None)
    assert not runs(x, *layers)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_a_residual_sum_and_its_layer_norm(dtype: Any, bias: bool) -> None:
    norm = nn.LayerNorm(8, eps=1e-3, bias=bias, dtype=dtype)
    nn.init.normal_(norm.weight)
    x, residual = (torch.randn(2, 5, 8).to(dtype).requires_grad_() for _ in range(2))
    leaves = [x, residual, *norm.parameters()]

    def by_kernel(place: int) -> Any:
        return norm_through_flash_attn(layer_norm_fn, x, residual, norm, 0.0)[1 - place]

    def by_op(place: int) -> Any:
        return flash_add_layer_norm_pair(x, residual, norm)[place]

    for place in (0, 1):
        last = 2 if place == 0 else None
        assert_agrees(partial(by_kernel, place), partial(by_op, place), leaves[:last])
    assert torch.equal(flash_add_layer_norm(x, residual, norm), norm(x + residual))
    _, total = norm_through_flash_attn(
        layer_norm_fn, torch.ones(8), torch.zeros(8), nn.LayerNorm(8), 0.5
    )
    assert set(total.tolist()) <= {0.0, 2.0}


def test_which_norms_the_fused_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are chosen as on CUDA with flash-attn."""
    module = importlib.import_module("regraft.ops.flash_norm")
    monkeypatch.setattr(
        module, "on_one_gpu", lambda *tensors: len({tensor.dtype for tensor in tensors}) == 1
    )
    monkeypatch.setattr(module, "_flash_norm_kernel", lambda: layer_norm_fn)
    x, norm, dropout = torch.randn(2, 8), nn.LayerNorm(8), nn.Dropout(0.5)

    def runs(*arguments: Any, **options: Any) -> bool:
        implementations = [
            implementation(f"flash_add_layer_norm{suffix}", *arguments, **options)
            for suffix in ("", "_pair")
        ]
        assert (implementations[0] == "flash-attn") == (implementations[1] == "flash-attn")
        return implementations[1] != "reference"

    assert runs(x, x, norm) and runs(x, x, norm, dropout) and runs(x, x, norm, p=0.5, training=True)
    assert not runs(x, x, norm, nn.Dropout(1.0)) and runs(x, x, norm, nn.Dropout(1.0).eval())
    assert not runs(x, x, norm, p=1.5, training=True) and not runs(x, x, norm, nn.AlphaDropout())
    assert not runs(x, x[:1], norm) and not runs(x, x.bfloat16(), norm)
    assert not runs(x, x, nn.LayerNorm((2, 8))) and not runs(
        x, x, nn.LayerNorm(8, elementwise_affine=False)
    )
    wide = torch.empty(1, 16385)
    assert not runs(wide, wide, nn.LayerNorm(16385)) and runs(
        wide[:, 1:], wide[:, 1:], nn.LayerNorm(16384)
    )
    assert flash_add_layer_norm(x, x, norm)[0].shape == (
        8,
    )  # the composition, where a kernel would have run
    norm.register_forward_hook(lambda *_: None)
    assert not runs(x, x, norm)


def test_second_derivatives_are_refused() -> None:
    x = torch.randn(3, requires_grad=True)
    once = differentiable_once(x * x)
    torch.autograd.grad(once.sum(), x, retain_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(once.sum(), x, create_graph=True)
    assert differentiable_once(x) is x


class Foreign(torch.autograd.Function):
    """A kernel whose backward pass reads memory without asking for strides."""

    @staticmethod
    def forward(ctx: Any, strides: list[Any], *arguments: Any) -> Any:
        ctx.strides, ctx.given = (
            strides,
            [argument for argument in arguments if isinstance(argument, torch.Tensor)],
        )
        return arguments[0].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.strides.append((gradient.stride(), gradient.is_contiguous()))
        return None, gradient, *(None for _ in range(len(ctx.given) - 1))


def test_backward_passes_of_kernels_get_contiguous_gradients() -> None:
    from regraft.ops.flash_attention import through_flash_attn
    from regraft.ops.memory_efficient_attention import through_xformers

    strides: list[Any] = []

    def kernel(*arguments: Any, **_: Any) -> Any:
        return Foreign.apply(
            strides, *(argument for argument in arguments if isinstance(argument, torch.Tensor))
        )

    x, norm, (up, down) = torch.randn(3, 8, requires_grad=True), nn.LayerNorm(8), mlp(8, 8, 8)
    heads = torch.randn(2, 3, 5, 6, requires_grad=True)
    table = torch.ones(5, 6)
    for result in (
        mlp_through_apex(kernel, x, up, down),
        mlp_through_flash_attn(kernel, x, up, down),
        rms_norm_through_apex(kernel, x, norm.weight, 1e-6),
        layer_norm_through_apex(kernel, x, norm),
        norm_through_flash_attn(
            lambda *arguments, **_: (kernel(*arguments), kernel(*arguments)), x, x, norm, 0.0
        )[0],
        rotary_through_te(kernel, heads, table),
        through_flash_attn(kernel, heads, heads, heads, 0.0, 1.0),
        through_xformers(kernel, heads, heads, heads, None, 0.0, 1.0),
    ):
        strides.clear()
        result.sum().backward()
        assert strides and all(contiguous for _, contiguous in strides), strides


def test_libraries_that_are_missing_or_do_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library_function("no.such.library", "f") is None
    assert library_function("math", "no_such_function") is None
    assert library_function("math", "sqrt", "no_such_extension") is None
    assert library_function("math", "sqrt") is not None


def test_references_are_the_compositions() -> None:
    x, weight = torch.randn(2, 5, 8).bfloat16(), torch.randn(8)
    wide = x.float()
    expected = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(
        x.dtype
    ) * weight
    assert torch.equal(REFERENCES["apex_rms_norm"](x, weight=weight), expected)
    assert expected.dtype == torch.float32
