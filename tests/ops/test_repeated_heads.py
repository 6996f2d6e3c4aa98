"""Test heads that are repeated for groups of queries against their copies."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.ops import implementation  # noqa: E402
from regraft.ops.postponed import PostponedTensor  # noqa: E402

REFERENCE = ops.REFERENCES["repeated_heads"]
MASKS = (None, "numbers", "flags", "causal")
BATCH, HEADS, KEYS, WIDTH = 2, 2, 5, 8


@pytest.fixture(autouse=True)
def small_tensors_are_postponed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    torch.manual_seed(0)


def heads(dim: int = 1, dtype: Any = torch.float32, gradient: bool = False) -> Any:
    shape = (BATCH, HEADS, KEYS, WIDTH) if dim in (1, -3) else (BATCH, KEYS, HEADS, WIDTH)
    return torch.randn(shape, dtype=dtype, requires_grad=gradient)


def query(count: int = 3, length: int = KEYS, dtype: Any = torch.float32) -> Any:
    return torch.randn(BATCH, HEADS * count, length, WIDTH, dtype=dtype, requires_grad=True)


def mask_of(kind: str | None, length: int, dtype: Any) -> Any:
    if kind == "flags":
        return torch.rand(BATCH, 1, length, KEYS) > 0.3
    return torch.randn(BATCH, 1, length, KEYS, dtype=dtype) if kind == "numbers" else None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [1, 2, -2, -3])
@pytest.mark.parametrize("kind", MASKS)
def test_attention_reads_the_heads_alone(kind: str | None, dim: int, dtype: Any) -> None:
    for count, length, rate, gradients in itertools.product(
        (1, 2, 3), (1, KEYS), (0.0, 0.3), (True, False)
    ):
        key, value = heads(dim, dtype, True), heads(dim, dtype, True)
        q, mask = query(count, length, dtype), mask_of(kind, length, dtype)
        runs = []
        for op in (ops.repeated_heads, REFERENCE):
            torch.manual_seed(1)
            with torch.set_grad_enabled(gradients):
                k, v = op(key, count, dim), op(value, count, dim)
                postpones = isinstance(k, PostponedTensor)
                if dim in (2, -2):
                    k, v = k.transpose(1, 2), v.transpose(1, 2)
                y = F.scaled_dot_product_attention(q, k, v, mask, rate, is_causal=kind == "causal")
            if op is ops.repeated_heads:
                assert postpones == (count > 1 and not (gradients and dtype == torch.bfloat16))
                assert not postpones or k.record.value is None
            assert type(y) is torch.Tensor
            slope = torch.ones_like(y).cumsum(-1)
            gradient = torch.autograd.grad(y, (q, key, value), slope) if gradients else ()
            runs.append((y, *gradient))
        assert runs[0][0].stride() == runs[1][0].stride()
        tolerances = {"rtol": 0.016, "atol": 2e-3} if dtype == torch.bfloat16 else {}
        for left, right in zip(*runs, strict=True):
            torch.testing.assert_close(left, right, **tolerances)  # PyTorch 2.8 rounds otherwise


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(number: float) -> None:
    key, q = heads(), query().detach()
    key[1, 1, 2, 3] = number
    results = [
        F.scaled_dot_product_attention(q, k, k)
        for k in (ops.repeated_heads(key, 3, 1), REFERENCE(key, 3, 1))
    ]
    torch.testing.assert_close(*results, equal_nan=True)


def test_other_operations_read_the_copy() -> None:
    key = heads(gradient=True)
    repeated = ops.repeated_heads(key, 3, 1)
    assert repeated.requires_grad
    assert repeated.shape == (BATCH, 3 * HEADS, KEYS, WIDTH)
    assert repeated.is_contiguous()
    (repeated * 2).sum().backward()
    torch.testing.assert_close(key.grad, torch.full_like(key, 6.0))
    with torch.no_grad():
        repeated, expected = ops.repeated_heads(key, 3, 1), REFERENCE(key, 3, 1)
        for other in (copy.deepcopy(repeated), pickle.loads(pickle.dumps(repeated))):
            assert type(other) is torch.Tensor
            assert torch.equal(other, expected)
        assert torch.equal(torch.cat([repeated, repeated]), torch.cat([expected, expected]))
        assert (repeated.numpy() == expected.numpy()).all()


def test_changes_in_place_reach_views() -> None:
    key = heads()
    repeated = ops.repeated_heads(key, 3, 1)
    turned = repeated.transpose(1, 2)
    repeated.mul_(2)
    assert torch.equal(turned, REFERENCE(key, 3, 1).mul_(2).transpose(1, 2))
    repeated = ops.repeated_heads(key, 3, 1)
    turned = repeated.transpose(1, 2)
    turned.mul_(2)
    assert torch.equal(repeated, REFERENCE(key, 3, 1) * 2)


def test_a_change_of_the_heads_is_an_error() -> None:
    key, q = heads(), query()
    repeated = ops.repeated_heads(key, 3, 1)
    key.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place"):
        F.scaled_dot_product_attention(q, repeated, repeated)


def test_gradients_of_the_copy() -> None:
    key, q = heads(gradient=True), query()
    seen: list[Any] = []
    repeated = ops.repeated_heads(key, 3, 1)
    repeated.register_hook(seen.append)
    F.scaled_dot_product_attention(q, repeated, repeated).sum().backward()
    assert [gradient.shape for gradient in seen] == [repeated.shape]
    repeated = ops.repeated_heads(key, 3, 1)
    result = F.scaled_dot_product_attention(q, repeated, repeated).sum()
    requests: tuple[Callable[[], Any], ...] = (
        lambda: repeated.register_hook(seen.append),
        repeated.retain_grad,
        lambda: torch.autograd.grad(result, repeated),
        lambda: repeated.transpose(1, 2).retain_grad(),
    )
    for request in requests:
        with pytest.raises(RuntimeError, match="after attention has read"):
            request()


def test_modes_may_change_between() -> None:
    key, q = heads(gradient=True), query()
    with torch.no_grad():
        repeated = ops.repeated_heads(key, 3, 1)
    result = F.scaled_dot_product_attention(q, repeated, repeated)
    (gradient,) = torch.autograd.grad(result.sum(), key, allow_unused=True)
    assert gradient is None
    repeated = ops.repeated_heads(key, 3, 1)
    with torch.no_grad():
        assert not F.scaled_dot_product_attention(q, repeated, repeated).requires_grad
    F.scaled_dot_product_attention(q, repeated, repeated).sum().backward()
    assert key.grad is not None
    with torch.inference_mode():
        inside = heads()
        repeated = ops.repeated_heads(inside, 3, 1)
        result = F.scaled_dot_product_attention(q, repeated, repeated)
    whole = REFERENCE(inside, 3, 1)
    torch.testing.assert_close(result, F.scaled_dot_product_attention(q.detach(), whole, whole))


def test_a_copy_of_one_side_only() -> None:
    key, q = heads(), query()
    whole = REFERENCE(key, 3, 1)
    expected = F.scaled_dot_product_attention(q, whole, whole)
    for k, v in ((ops.repeated_heads(key, 3, 1), whole), (whole, ops.repeated_heads(key, 3, 1))):
        torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v), expected)


def test_queries_of_another_number_of_heads() -> None:
    single = torch.randn(1, 1, KEYS, WIDTH)
    for count, q in ((3, torch.randn(BATCH, 1, KEYS, WIDTH)), (3, query(3)[:1]), (2, query(2)[0])):
        key = single if q.shape[1] == 1 else heads()
        results = [
            F.scaled_dot_product_attention(q, op(key, count, 1), op(key, count, 1))
            for op in (ops.repeated_heads, REFERENCE)
        ]
        torch.testing.assert_close(*results)
    repeated = ops.repeated_heads(heads(), 3, 1)
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(query(5), repeated, repeated)


def test_which_heads_are_postponed(monkeypatch: pytest.MonkeyPatch) -> None:
    key = heads()
    for x, count, dim in (
        (key[0], 2, 1),
        (key, 1, 1),
        (key, torch.tensor(2), 1),
        (key, 2, 0),
        (key, 2, 3),
        (key[:0], 2, 1),
        (key.long(), 2, 1),
        (key.to("meta"), 2, 1),
        (key.requires_grad_().bfloat16(), 2, 1),
    ):
        assert implementation("repeated_heads", x, count, dim) == "reference"
    assert implementation("expanded_heads", key[:, :1], 2, 1) == "reference"
    assert implementation("expanded_heads", key, 2, 1) == "postponed"
    assert implementation("repeated_heads", key[:, :1], 2, 1) == "postponed"
    with torch.autocast("cpu", torch.bfloat16):
        assert implementation("repeated_heads", key, 2, 1) == "reference"
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation("repeated_heads", key, 2, 1) == "reference"
    assert implementation("repeated_heads", key.repeat(1, 1, 400, 4), 4, 1) == "postponed"


def test_an_expansion_is_a_view_where_the_original_is() -> None:
    key = heads()
    assert ops.expanded_heads(key, 1, 1) is key
    assert ops.repeated_heads(key, 1, 1) is not key
    shared = ops.expanded_heads(key[:, :1], 3, 1)
    assert shared.data_ptr() == key.data_ptr()
    for dim in (1, 2):
        x = heads(dim)
        wide = x.repeat_interleave(3, dim)
        assert torch.equal(ops.expanded_heads(x, 3, dim), wide)
        assert torch.equal(ops.REFERENCES["expanded_heads"](x, 3, dim), wide)


@pytest.mark.parametrize("gradient", [True, False])
def test_a_cache_is_written_again_before_the_backward_pass(gradient: bool) -> None:
    """Attention stores the copy for its gradients where the heads are those of a cache."""
    keys, values = heads(gradient=gradient), heads(gradient=gradient)
    gradients = []
    for op in (ops.repeated_heads, REFERENCE):
        q = torch.ones(BATCH, HEADS * 3, 1, WIDTH, requires_grad=True)
        cache = torch.zeros(2, BATCH, HEADS, KEYS, WIDTH)
        results = []
        for end in (2, KEYS):
            cache[0, :, :, :end] = keys[:, :, :end]
            cache[1, :, :, :end] = values[:, :, :end]
            k, v = (op(part[:, :, :end], 3, 1) for part in cache)
            results.append(F.scaled_dot_product_attention(q, k, v).square().sum())
        inputs = (q, keys, values) if gradient else (q,)
        gradients.append(torch.autograd.grad(sum(results), inputs))
    torch.testing.assert_close(*gradients)


def test_a_cache_is_read_without_its_copy_where_nothing_needs_gradients() -> None:
    cache = torch.zeros(BATCH, HEADS, KEYS, WIDTH)
    cache[:, :, 0] = 1.0
    key, value = (ops.repeated_heads(cache, 3, 1) for _ in range(2))
    F.scaled_dot_product_attention(query().detach(), key, value)
    assert key.record.value is None
