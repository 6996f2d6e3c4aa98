"""Test every attention op on queries whose keys are all masked, against the composition."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.ops import (  # noqa: E402
    attention,
    memory_efficient_attention,
    postponed_einsum,
    postponed_matmul,
)

LOWEST = torch.finfo(torch.float32).min
B, H, L, S, E = 3, 2, 6, 6, 4


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernels whatever the size of the inputs."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


@pytest.fixture(params=["reading", "not reading"])
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether elements of the mask are read, as on CPU, or not, as on CUDA and while
    something traces."""
    if request.param == "not reading":
        for name in ("masked_rows", "causal_masks"):
            module = importlib.import_module(f"regraft.ops.{name}")
            monkeypatch.setattr(module, "can_read", lambda: False)
    return bool(request.param == "reading")


def inputs(dtype: Any = torch.float32) -> list[Any]:
    """Return a random query, key and value with gradients."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((B, H, L, E), (B, H, S, E), (B, H, S, E))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def masks(low: float) -> dict[str, Any]:
    """Return additive masks by name: left padding under a causal mask, a batch entry without keys,
    a hole, two sums."""
    causal = torch.ones(L, S).triu(1).bool()
    left_padding = torch.zeros(B, 1, L, S)
    left_padding.masked_fill_(causal, low)
    for entry, padding in enumerate((0, 3, 5)):
        left_padding[entry, :, :, :padding] = low
    empty = torch.zeros(B, 1, 1, S)
    empty[1] = low
    hole = torch.zeros(B, 1, L, S)
    hole[0, :, 2] = low
    padding = torch.zeros(B, 1, 1, S)
    padding[2, ..., :4] = low
    sums = torch.zeros(L, S).masked_fill(causal, low) + padding
    return {
        "left padding": left_padding,
        "an entry without keys": empty,
        "a hole": hole,
        "two sums": sums,
    }


def by_matmul(query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Return the attention by a postponed product."""
    scores = postponed_matmul(query, key.transpose(-1, -2)) * 0.5
    return torch.softmax(scores + mask, dim=-1) @ value


def by_einsum(query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Return the attention by a postponed Einstein sum."""
    scores = postponed_einsum("bhqd,bhkd->bhqk", query, key) * 0.5
    return torch.softmax(scores + mask, dim=-1) @ value


def by_attention(query: Any, key: Any, value: Any, mask: Any, op: Any = attention) -> Any:
    """Return the attention by an op."""
    return op(query, key, value, mask=mask.to(query.dtype), scale=0.5)


def composition(query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Return the attention in plain operations."""
    scores = query @ key.transpose(-1, -2) * 0.5
    return torch.softmax(scores + mask.to(query.dtype), dim=-1).to(query.dtype) @ value


OPS: dict[str, Callable[..., Any]] = {
    "attention": by_attention,
    "xformers": partial(by_attention, op=memory_efficient_attention),
    "matmul": by_matmul,
    "einsum": by_einsum,
}


def assert_equal(ours: Callable[..., Any], theirs: Callable[..., Any], tensors: list[Any]) -> None:
    """Assert that two functions have equal results and gradients."""
    runs = []
    for function in (ours, theirs):
        result = function(*tensors)
        direction = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(
            result.dtype
        )
        runs.append((result, *torch.autograd.grad(result, tensors, direction, allow_unused=True)))
    for actual, expected, name in zip(*runs, ("result", "query", "key", "value"), strict=True):
        torch.testing.assert_close(
            actual, expected, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("low", [LOWEST, -1e9, -math.inf])
@pytest.mark.parametrize("case", masks(LOWEST))
@pytest.mark.parametrize("op", OPS)
def test_results_and_gradients_of_added_masks(op: str, case: str, low: float, reads: bool) -> None:
    mask = masks(low)[case]
    assert_equal(partial(OPS[op], mask=mask), partial(composition, mask=mask), inputs())


@pytest.mark.parametrize("op", ["attention", "xformers"])
@pytest.mark.parametrize("case", masks(LOWEST))
def test_half_precision(op: str, case: str) -> None:
    lowest = torch.finfo(torch.bfloat16).min
    mask = masks(lowest)[case].to(torch.bfloat16)
    tensors = inputs(torch.bfloat16)
    assert_equal(partial(OPS[op], mask=mask), partial(composition, mask=mask), tensors)


def filled_attention(query: Any, key: Any, value: Any, keep: Any, mask: Any) -> Any:
    """Return the attention of filled scores by the op."""
    return attention(query, key, value, keep=keep, fill=LOWEST, mask=mask, scale=0.5)


def filled_scores(
    query: Any, key: Any, value: Any, keep: Any, mask: Any, matmul: Any = torch.matmul
) -> Any:
    """Return the attention of filled scores in plain operations."""
    scores = matmul(query, key.transpose(-1, -2)) * 0.5
    scores = scores.masked_fill(~keep, LOWEST)
    return torch.softmax(scores if mask is None else scores + mask, dim=-1) @ value


@pytest.mark.parametrize(
    "ours", [filled_attention, partial(filled_scores, matmul=postponed_matmul)]
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("case", masks(LOWEST))
def test_scores_that_are_filled_have_no_gradient(
    ours: Any, masked: bool, case: str, reads: bool
) -> None:
    keep = masks(LOWEST)[case] == 0
    mask = masks(LOWEST)["an entry without keys"] if masked else None
    assert_equal(
        partial(ours, keep=keep, mask=mask),
        partial(filled_scores, keep=keep, mask=mask),
        inputs(),
    )


def test_a_learned_bias_gets_its_gradient_in_masked_rows(reads: bool) -> None:
    query, key, value = inputs()
    learned = torch.randn(H, L, S, requires_grad=True)
    mask = masks(LOWEST)["left padding"]
    for leaf in (query, key, learned):
        runs = [
            torch.autograd.grad(run(query, key, value, mask + learned).square().sum(), leaf)[0]
            for run in (by_attention, by_matmul, composition)
        ]
        torch.testing.assert_close(runs[0], runs[2])
        torch.testing.assert_close(runs[1], runs[2])


def test_many_masked_rows_are_computed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("regraft.ops.masked_rows")
    sizes: list[int] = []
    compose = module._composition

    def counting(query: Any, *arguments: Any) -> Any:
        sizes.append(query.shape[-2])
        return compose(query, *arguments)

    monkeypatch.setattr(module, "_composition", counting)
    monkeypatch.setattr(module, "_CHUNK", 2 * H * S)
    mask = masks(LOWEST)["an entry without keys"]
    assert_equal(partial(by_attention, mask=mask), partial(composition, mask=mask), inputs())
    assert set(sizes) == {2}
    assert len(sizes) == L  # three chunks, once more each in the backward pass


def test_dropout_also_drops_weights_of_masked_rows() -> None:
    query, key, _ = (tensor.detach() for tensor in inputs())
    ones = torch.ones(B, H, S, E).requires_grad_()
    mask = torch.full((B, 1, L, S), LOWEST)
    torch.manual_seed(0)
    result = attention(query, key, ones, mask=mask, dropout=nn.Dropout(0.5))
    assert result.detach().unique().numel() > 2


def test_a_compiled_attention_has_the_gradients_of_masked_rows() -> None:
    mask = masks(LOWEST)["left padding"]
    compiled = torch.compile(
        lambda query, key, value: by_attention(query, key, value, mask),
        backend="aot_eager",
        fullgraph=True,
    )
    assert_equal(compiled, partial(composition, mask=mask), inputs())


def test_ordinary_rows_never_take_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("regraft.ops.masked_rows")
    monkeypatch.setattr(module, "_composition", lambda *arguments: pytest.fail("no row is masked"))
    mask = torch.zeros(B, 1, L, S).masked_fill(torch.ones(L, S).triu(1).bool(), LOWEST)
    mask[..., :2, 1] = -1.0
    for op in OPS.values():
        op(*inputs(), mask).sum().backward()
