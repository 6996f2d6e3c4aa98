"""Test that causal masks are recognised by their elements, and that nothing else is."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from regraft.ops import attention  # noqa: E402
from regraft.ops.attention import attention_reference  # noqa: E402

LOWEST = torch.finfo(torch.float32).min
B, H, T, E = 2, 3, 300, 8  # more than two blocks of rows


@pytest.fixture
def causal_calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each call of PyTorch's kernel was causal, without a mask."""
    calls: list[bool] = []
    kernel = functional.scaled_dot_product_attention

    def record(query: Any, key: Any, value: Any, mask: Any = None, *args: Any, **kw: Any) -> Any:
        calls.append(kw["is_causal"] and mask is None)
        return kernel(query, key, value, mask, *args, **kw)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", record)
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    return calls


def operands() -> list[Any]:
    """Return a random query, key and value with gradients."""
    torch.manual_seed(0)
    return [torch.randn(B, H, T, E, requires_grad=True) for _ in range(3)]


def causal_mask(low: float = -math.inf) -> Any:
    """Return the causal mask of T queries."""
    return torch.full((T, T), low).triu(1)


def assert_equal_gradients(tensors: list[Any], mask: Any) -> None:
    """Assert that the op and the composition give the same results and gradients."""
    results = [attention(*tensors, mask=mask), attention_reference(*tensors, mask=mask)]
    torch.testing.assert_close(*results, equal_nan=True)
    weights = torch.randn(results[0].shape)
    gradients = [torch.autograd.grad(result, tensors, weights) for result in results]
    torch.testing.assert_close(*gradients, equal_nan=True)


MASKS = {
    "infinite": causal_mask(),
    "lowest": causal_mask(LOWEST),
    "-10000": causal_mask(-1e4),
    "of a batch": causal_mask().expand(B, 1, T, T),
    "copied for a batch": causal_mask().repeat(B, 1, 1, 1),
    "a part of a larger buffer": torch.full((2 * T, 2 * T), -math.inf).triu(1)[:T, :T],
    "of each head": causal_mask().repeat(H, 1, 1),
}


@pytest.mark.parametrize("name", MASKS)
def test_causal_masks_are_recognised(name: str, causal_calls: list[bool]) -> None:
    assert_equal_gradients(operands(), MASKS[name])
    assert causal_calls == [True]


def changed(*places: tuple[int, int, float], batch: bool = False) -> Any:
    """Return the causal mask with other numbers at some places, of the last entry of a batch if
    `batch` is true."""
    mask = causal_mask().repeat(B, 1, 1, 1) if batch else causal_mask()
    for row, column, number in places:
        mask.reshape(-1, T, T)[-1, row, column] = number
    return mask


OTHERS = {
    "a visible key after the query": changed((10, 11, 0.0)),
    "a visible key in another block": changed((10, 200, 0.0)),
    "a high number in another block": changed((10, 200, -740.0)),
    "a number that leaves weights": causal_mask(-700.0),
    "a hidden key before the query": changed((200, 10, -math.inf)),
    "a bias before the query": changed((200, 10, 0.5)),
    "a bias on the diagonal": changed((130, 130, 0.25)),
    "a hidden key in the last block": changed((T - 1, T - 2, LOWEST)),
    "NaN above the diagonal": changed((3, 200, math.nan)),
    "NaN below the diagonal": changed((200, 3, math.nan)),
    "in one entry of a batch": changed((200, 10, -math.inf), batch=True),
    "a window": changed(*((row, row - 250, -math.inf) for row in range(250, T))),
    "the other triangle": causal_mask().T,
    "a diagonal further": torch.full((T, T), -math.inf).triu(2),
    "nothing": torch.zeros(T, T),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_masks_are_kept(name: str, causal_calls: list[bool]) -> None:
    assert_equal_gradients(operands(), OTHERS[name])
    assert causal_calls == [False]


def test_other_sizes_of_query_and_key_are_kept(causal_calls: list[bool]) -> None:
    query, key, value = operands()
    mask = torch.full((100, T), -math.inf).triu(T - 99)
    assert_equal_gradients([query[:, :, -100:], key, value], mask)
    assert causal_calls == [False]


@pytest.mark.parametrize("scale", [0.0, -0.3])
def test_scales_that_the_kernel_does_not_take(scale: float, causal_calls: list[bool]) -> None:
    query, key, value = operands()
    torch.testing.assert_close(
        attention(query, key, value, mask=causal_mask(), scale=scale),
        attention_reference(query, key, value, mask=causal_mask(), scale=scale),
    )
    assert causal_calls == [False]


def test_another_default_device(causal_calls: list[bool]) -> None:
    tensors, mask = operands(), causal_mask()
    with torch.device("meta"):
        attention(*tensors, mask=mask)
    assert len(causal_calls) == 1


def test_a_mask_with_gradients_is_kept(causal_calls: list[bool]) -> None:
    tensors, mask = operands(), causal_mask(-1e30).requires_grad_()
    result = attention(*tensors, mask=mask)
    expected = attention_reference(*tensors, mask=mask)
    torch.testing.assert_close(
        torch.autograd.grad(result.sum(), mask), torch.autograd.grad(expected.sum(), mask)
    )
    assert causal_calls == [False]


def test_large_scores_need_a_lower_mask(causal_calls: list[bool]) -> None:
    query, key, value = operands()
    tensors = [query * 1e3, key, value]
    for low in (-1e4, -1e6):
        torch.testing.assert_close(
            attention(*tensors, mask=causal_mask(low)),
            attention_reference(*tensors, mask=causal_mask(low)),
        )
    assert causal_calls == [False, True]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("position", range(3))
def test_hidden_keys_that_are_not_finite_reach_all_results(
    position: int, number: float, causal_calls: list[bool]
) -> None:
    tensors = [tensor.detach() for tensor in operands()]
    tensors[position][0, 0, T - 2, 3] = number
    torch.testing.assert_close(
        attention(*tensors, mask=causal_mask()).isnan(),
        attention_reference(*tensors, mask=causal_mask()).isnan(),
    )
    assert causal_calls == [False]


def test_short_masks_are_not_read(
    causal_calls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REGRAFT_KERNELS")
    attention(*operands(), mask=causal_mask())
    assert causal_calls == [False]
