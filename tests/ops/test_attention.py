"""Test the attention op against the composition that it replaces, on CPU."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

from regraft.ops import attention, flash_attention, implementation, memory_efficient_attention
from regraft.ops.flash_attention import through_flash_attn
from regraft.ops.memory_efficient_attention import through_xformers


def inputs(dtype: Any = None, shape: tuple[int, ...] = (2, 3)) -> list[Any]:
    """Return a random query, key and value with gradients."""
    generator = torch.Generator().manual_seed(0)
    sizes = [(*shape, 5, 8), (*shape, 7, 8), (*shape, 7, 4)]
    return [
        torch.randn(size, generator=generator).to(dtype or torch.float32).requires_grad_()
        for size in sizes
    ]


def composition(query: Any, key: Any, value: Any, mask: Any = 0.0, scale: float = 1.0) -> Any:
    """Return the attention in plain operations."""
    return torch.softmax(query @ key.transpose(-1, -2) * scale + mask, -1) @ value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3), (4,)])
@pytest.mark.parametrize("masked", [True, False])
def test_results_and_gradients_are_close(dtype: Any, shape: tuple[int, ...], masked: bool) -> None:
    tensors = inputs(dtype, shape)
    mask = torch.zeros(5, 7, dtype=dtype).masked_fill(
        torch.ones(5, 7).triu(3) > 0, torch.finfo(dtype).min
    )
    assert implementation("attention", *tensors) == (
        "reference" if dtype == torch.bfloat16 else "torch-native"
    )
    ours = attention(
        *tensors,
        mask=mask if masked else None,
        divisor=2.0,
        factor=1.5,
        dropout=nn.Dropout(0.5).eval(),
    )
    query, key, value = tensors
    theirs = composition(query, key, value, mask=mask if masked else 0.0, scale=1 / 3)
    gradients = [
        torch.autograd.grad(result.double().square().sum(), tensors) for result in (ours, theirs)
    ]
    close = {"atol": 0.05, "rtol": 0.05} if dtype == torch.bfloat16 else {}
    for actual, expected in zip((ours, *gradients[0]), (theirs, *gradients[1]), strict=True):
        torch.testing.assert_close(actual, expected, **close)
    exact = composition(
        query.double(),
        key.double(),
        value.double(),
        mask=mask.double() if masked else 0.0,
        scale=1 / 3,
    )
    errors = [(result - exact).abs().mean().item() for result in (ours, theirs)]
    assert errors[0] <= 1.5 * errors[1] + 1e-7


def test_a_learned_bias_gets_its_gradient() -> None:
    (query, key, value), bias = inputs(), torch.randn(3, 5, 7, requires_grad=True)
    ours = attention(query, key, value, mask=bias)
    theirs = composition(query, key, value, bias)
    for actual, expected in zip(
        *(torch.autograd.grad(y.square().sum(), [bias]) for y in (ours, theirs)), strict=True
    ):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("fill", [None, "lowest", "tensor"])
@pytest.mark.parametrize("masked", [True, False])
def test_scores_that_are_filled(fill: str | None, masked: bool) -> None:
    tensors, keep = inputs(), torch.ones(5, 7, dtype=torch.bool).tril(2)
    lowest = torch.finfo(torch.float32).min
    mask = torch.randn(2, 1, 1, 7) if masked else None
    fill_value = {"lowest": lowest, "tensor": torch.full([], lowest)}.get(fill or "")
    ours = attention(*tensors, keep=keep, fill=fill_value, mask=mask, scale=0.5)
    scores = (tensors[0] @ tensors[1].transpose(-1, -2) * 0.5).masked_fill(~keep, lowest)
    theirs = torch.softmax(scores if mask is None else scores + mask, -1) @ tensors[2]
    torch.testing.assert_close(ours, theirs)


def test_a_fill_that_is_not_lost_in_the_mask_takes_the_composition() -> None:
    tensors, keep = inputs(), torch.ones(5, 7, dtype=torch.bool).tril(2)
    scores = torch.where(keep, tensors[0] @ tensors[1].transpose(-1, -2), torch.tensor(-3.0))
    torch.testing.assert_close(
        attention(*tensors, keep=keep, fill=-3.0), torch.softmax(scores, -1) @ tensors[2]
    )


def test_dropout_keeps_its_rate() -> None:
    tensors = [tensor.detach() for tensor in inputs()]
    assert torch.equal(attention(*tensors, p=0.9, training=False), attention(*tensors))
    assert attention(*tensors, dropout=nn.Dropout(1.0)).abs().sum() == 0
    torch.manual_seed(0)
    runs = torch.stack([attention(*tensors, p=0.5, training=True) for _ in range(3000)])
    torch.testing.assert_close(runs.mean(0), attention(*tensors), atol=0.12, rtol=0)
    assert runs.std(0).min() > 0.001


@pytest.mark.parametrize("layer", [nn.Identity(), nn.ReLU()], ids=type)
def test_other_modules_are_called(layer: nn.Module) -> None:
    tensors, calls = inputs(), []
    layer.register_forward_hook(lambda *_: calls.append(1))
    assert implementation("attention", *tensors) == "torch-native"
    torch.testing.assert_close(attention(*tensors, dropout=layer.eval()), composition(*tensors))
    assert calls == [1]


def test_what_the_kernel_does_not_take_runs_as_the_composition() -> None:
    query, key, value = inputs()
    temperature = torch.rand(3, 1, 1) + 1
    torch.testing.assert_close(
        attention(query, key, value, divisor=temperature),  # type: ignore[arg-type]
        torch.softmax(query @ key.transpose(-1, -2) / temperature, -1) @ value,
    )
    wide = torch.zeros(5, 7, dtype=torch.float64)
    assert attention(query, key, value, mask=wide).dtype == torch.float32
    torch.testing.assert_close(
        attention(query[0, 0], key[0, 0], value[0, 0]),
        composition(query[0, 0], key[0, 0], value[0, 0]),
    )
    assert attention(query[:0], key[:0], value[:0]).shape == (0, 3, 5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (
            attention(query, key, value).dtype == F.linear(torch.ones(1, 1), torch.ones(1, 1)).dtype
        )


def strict_kernel(
    query: Any, key: Any, value: Any, attn_bias: Any = None, p: float = 0.0, scale: Any = None
) -> Any:
    """Compute xFormers' documented composition, with its kernel's demands of the layout."""
    batch, length, heads, _ = query.shape
    if attn_bias is not None:
        assert attn_bias.shape == (batch, heads, length, key.shape[1])
        assert attn_bias.stride(-2) % 8 == 0
        assert attn_bias.dtype == query.dtype
    query, key, value = (
        (tensor * (scale if index == 0 else 1)).transpose(1, 2)
        for index, tensor in enumerate((query, key, value))
    )
    scores = query @ key.transpose(-2, -1)
    weights = (scores if attn_bias is None else scores + attn_bias).softmax(-1)
    return (F.dropout(weights, p) @ value).transpose(1, 2)


@pytest.mark.parametrize("shape", [None, (7,), (5, 7), (2, 1, 1, 7), (2, 3, 5, 7)])
def test_xformers_gets_its_layout(shape: tuple[int, ...] | None) -> None:
    query, key, value = inputs()
    mask = None if shape is None else torch.randn(shape)
    ours = through_xformers(strict_kernel, query, key, value, mask, 0.0, 0.5)
    theirs = composition(query, key, value, 0.0 if mask is None else mask, 0.5)
    torch.testing.assert_close(ours, theirs)
    assert ours.is_contiguous()


def test_without_xformers_or_a_gpu_it_runs_as_attention() -> None:
    tensors, mask = inputs(), torch.randn(5, 7)
    assert implementation("memory_efficient_attention", *tensors) == "torch-native"
    keep = torch.ones(5, 7, dtype=torch.bool).tril()
    for arguments in ({"mask": mask}, {"keep": keep, "divisor": 2.0}, {"keep": keep, "fill": 1.0}):
        ours, theirs = (
            memory_efficient_attention(*tensors, **arguments),
            attention(*tensors, **arguments),
        )
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def strict_flash_kernel(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    softmax_scale: Any = None,
    causal: bool = False,
) -> Any:
    """Compute flash-attn's documented composition, with its kernel's demands of the layout."""
    assert (
        not causal
        and query.shape[3] == key.shape[3] == value.shape[3]
        and query.shape[2] == key.shape[2]
    )
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    weights = (query @ key.transpose(-2, -1) * softmax_scale).softmax(-1)
    return (F.dropout(weights, dropout_p) @ value).transpose(1, 2)


def test_flash_attn_gets_its_layout() -> None:
    query, key, _ = inputs()
    value = torch.randn_like(key)
    ours = through_flash_attn(strict_flash_kernel, query, key, value, 0.0, 0.5)
    torch.testing.assert_close(ours, composition(query, key, value, 0.0, 0.5))
    assert ours.is_contiguous()


def test_without_flash_attn_or_a_gpu_it_runs_as_attention() -> None:
    tensors, mask = inputs(), torch.randn(5, 7)
    assert implementation("flash_attention", *tensors) == "torch-native"
    for arguments in ({}, {"mask": mask}, {"divisor": 2.0}, {"p": 0.5, "training": False}):
        ours, theirs = flash_attention(*tensors, **arguments), attention(*tensors, **arguments)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("sizes", "mask", "dtype", "expected"),
    [
        ((64, 64, 64), False, torch.bfloat16, "flash-attn"),
        ((64, 64, 64), False, torch.float32, "torch-native"),
        ((64, 64, 64), True, torch.bfloat16, "torch-native"),
        ((64, 64, 32), False, torch.bfloat16, "torch-native"),
        ((288, 288, 288), False, torch.bfloat16, "torch-native"),
    ],
)
def test_what_flash_attn_is_given(
    sizes: tuple[int, ...],
    mask: bool,
    dtype: torch.dtype,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kernels are chosen as on CUDA with flash-attn installed."""
    flash = importlib.import_module("regraft.ops.flash_attention")
    monkeypatch.setattr(flash, "_flash_attention_kernel", lambda: strict_flash_kernel)
    monkeypatch.setattr(flash, "attention_implementation", lambda *_, **__: "torch-native")
    tensors = [
        SimpleNamespace(
            dim=lambda: 4, shape=(1, 2, 4, size), dtype=dtype, device=torch.device("cuda")
        )
        for size in sizes
    ]
    bias = torch.ones(4, 4, dtype=dtype) if mask else None
    assert implementation("flash_attention", *tensors, mask=bias) == expected


def test_a_layer_of_softmax_is_called_where_the_kernel_is_not_its_own() -> None:
    tensors, layer, calls = inputs(), nn.Softmax(dim=-1), list[Any]()
    expected = composition(*tensors)
    assert implementation("attention", *tensors, softmax=layer) == "torch-native"
    torch.testing.assert_close(attention(*tensors, softmax=layer), expected)
    layer.register_forward_hook(lambda *call: calls.append(call))
    torch.testing.assert_close(attention(*tensors, softmax=layer), expected)
    assert len(calls) == 1
    queries = torch.softmax(tensors[0] @ tensors[1].transpose(-1, -2), -2) @ tensors[2]
    torch.testing.assert_close(attention(*tensors, softmax=nn.Softmax(dim=-2)), queries)
