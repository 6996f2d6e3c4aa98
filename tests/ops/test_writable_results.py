"""Test that the results of ops may be written into, where rewrites rely on it: gradients are those
of the composition, and no argument changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.rewriting.match_checks import _WRITABLE_RESULTS  # noqa: E402

SCALES = torch.arange(1.0, 25.0)[:, None]
INDEX = torch.arange(24) % 8
LINEAR, CONV = nn.Linear(8, 4), nn.Conv2d(2, 4, (2, 2), stride=2)
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True)
COS, SIN = torch.randn(24, 8), torch.randn(24, 8)

# op → how it is called with 24 x 8 numbers
CALLS: dict[str, Callable[[Any], Any]] = {
    "regraft.ops.attention_without_weights": lambda x: ops.attention_without_weights(
        x[None], x[None], x[None], ATTENTION
    )[0],
    "regraft.ops.conv_of_patches": lambda x: ops.conv_of_patches(x.view(24, 2, 2, 2), CONV),
    "regraft.ops.interleaved_rotary": lambda x: ops.interleaved_rotary(x, COS, SIN),
    "regraft.ops.linear_at": lambda x: ops.linear_at(x.view(4, 6, 8), LINEAR, -1),
    "regraft.ops.one_hot_matmul": lambda x: ops.one_hot_matmul(INDEX, 24, x, x.dtype),
    "regraft.ops.one_hot_rows": lambda x: ops.one_hot_rows(torch.eye(24, dtype=x.dtype)[INDEX], x),
    "regraft.ops.one_hot_select": lambda x: ops.one_hot_select(x, INDEX, 8, dtype=x.dtype),
    "regraft.ops.gated_halves": lambda x: ops.gated_halves(x, -1),
    "regraft.ops.rms_normalize": lambda x: ops.rms_normalize(x, 1e-6, weight=COS[0]),
    "regraft.ops.rolled_rotary": lambda x: ops.rolled_rotary(x, COS, SIN),
    "regraft.ops.sorted_head": lambda x: ops.sorted_head(x, 3, 1),
    "regraft.ops.sorted_indices": lambda x: ops.sorted_indices(SCALES * x.flatten(), 3, 1),
    "regraft.ops.squared_distances": lambda x: ops.squared_distances(x[:, None], x[None], -1),
    "torch.nn.functional.gelu": lambda x: F.gelu(x, approximate="tanh"),
    "torch.nn.functional.layer_norm": lambda x: F.layer_norm(x, (8,), eps=1e-6),
    "torch.nn.functional.silu": F.silu,
}


@pytest.mark.parametrize("name", CALLS)
def test_writes_into_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    assert name.startswith(_WRITABLE_RESULTS)
    numbers = torch.randn(24, 8, generator=torch.Generator().manual_seed(1))
    for has_gradient in (True, False):
        in_place, copied = (numbers.clone().requires_grad_(has_gradient) for _ in range(2))
        result = CALLS[name](in_place)
        result.mul_(3).add_(1)
        expected = CALLS[name](copied) * 3 + 1
        torch.testing.assert_close(result, expected, equal_nan=True)
        assert torch.equal(in_place.detach(), numbers)
    if not result.is_floating_point():
        return
    in_place, copied = (numbers.clone().requires_grad_() for _ in range(2))
    CALLS[name](in_place).mul_(3.0).square().sum().backward()
    (CALLS[name](copied) * 3.0).square().sum().backward()
    torch.testing.assert_close(in_place.grad, copied.grad)
