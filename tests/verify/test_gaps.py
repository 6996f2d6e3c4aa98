"""Test the distance of two tensors against a plain computation of it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.verification.child.result_comparison import close  # noqa: E402
from regraft.verification.child.tensor_distance import is_certainly_close, magnitude, measure  # noqa: E402

FORMATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SPECIAL = (0.0, -1.0, 1e-5, 3e4, math.inf, -math.inf, math.nan)


def plain_distance(original: Any, changed: Any) -> Any:
    """Return the largest difference at places where both are finite, and the largest finite
    magnitude of the original."""
    pairs = list(
        zip(original.double().flatten().tolist(), changed.double().flatten().tolist(), strict=True)
    )
    gaps = [abs(a - b) for a, b in pairs if math.isfinite(a - b)]
    sizes = [abs(a) for a, _ in pairs if math.isfinite(a)]
    return max(gaps, default=0.0), max(sizes, default=0.0)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_the_distance_is_that_of_a_plain_computation(dtype: Any) -> None:
    for values in itertools.product(SPECIAL, repeat=3):
        original = torch.tensor([*values, 2.0], dtype=dtype)
        changed = torch.tensor([*values[1:], 2.5, values[0]], dtype=dtype)
        absolute, scale = plain_distance(original, changed)
        gap = measure(original, changed)
        assert (gap.absolute, gap.scale) == (absolute, scale)
        assert gap.relative == (absolute / scale if scale else 0.0)
        is_finite = bool(torch.isfinite(original).all() and torch.isfinite(changed).all())
        assert gap.all_finite == is_finite
        assert magnitude(original) == scale


def test_numbers_without_a_point_are_counted() -> None:
    gap = measure(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 5, 3, 0]))
    assert gap[:2] == (2.0, 0.5) and gap.all_finite
    complex_gap = measure(torch.tensor([1 + 1j, math.nan]), torch.tensor([1 + 1j, 2]))
    assert complex_gap[:2] == (1.0, 0.5) and not complex_gap.all_finite
    assert measure(torch.zeros(0, 3), torch.zeros(0, 3)) == (0.0, 0.0, 0.0, True)
    assert magnitude(torch.tensor([3 + 4j])) == 5.0
    assert magnitude(torch.tensor([True, False])) == 1.0 and magnitude(torch.zeros(0)) == 0.0


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_what_the_distance_decides_is_what_the_tolerances_say(dtype: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    decided = []
    for exponent in range(-9, 1):
        for scale in (1e-4, 1.0, 1e3):
            original = (torch.randn(200, generator=generator) * scale).to(dtype)
            noise = torch.randn(200, generator=generator) * scale * 10.0**exponent
            changed = (original + noise).to(dtype)
            decision = is_certainly_close(original, measure(original, changed))
            decided.append(decision)
            assert decision in (None, close(original, changed))
    assert {True, False} <= set(decided)
