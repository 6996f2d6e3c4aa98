"""Test that random initial values are compared by what they are drawn for, not by their order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.initial_values import (  # noqa: E402
    initial_difference,
    starts_alike,
)

pytestmark = pytest.mark.usefixtures("here")

init = torch.nn.init
LAYER = """\
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.xavier_uniform_(self.weight, gain=1.0)

    def forward(self, x):
        return x @ self.weight
"""


def model_with(fill: Callable[[Any, Any], None], seed: int) -> Any:
    """Return a layer with eight inputs and outputs whose weight and bias `fill` sets."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(8, 8)
    torch.manual_seed(seed)
    with torch.no_grad():
        fill(model.weight, model.bias)
    return model


def difference_of(first: Callable[[Any, Any], None], second: Callable[[Any, Any], None]) -> str:
    """Return the sentence of the difference between two ways to initialise a layer, "" for none."""

    def build(seed: int) -> tuple[Any, Any]:
        return model_with(first, seed), model_with(second, seed)

    difference = initial_difference(*build(0), build)
    return difference.sentence if difference else ""


def normal(weight: Any, bias: Any) -> None:
    init.normal_(weight, std=0.02)
    init.zeros_(bias)


def test_numbers_in_another_order_are_no_difference() -> None:
    def reordered(weight: Any, bias: Any) -> None:
        init.zeros_(bias)
        torch.rand(3)
        init.normal_(weight, std=0.02)

    assert difference_of(normal, normal) == difference_of(normal, reordered) == ""


def test_another_factor_is_a_difference() -> None:
    def scaled(weight: Any, bias: Any) -> None:
        init.normal_(weight, std=0.021)
        init.zeros_(bias)

    assert "same random numbers" in difference_of(normal, scaled)


def test_another_distribution_is_a_difference_in_another_order() -> None:
    def of_two_values(weight: Any, bias: Any) -> None:
        torch.rand(3)
        init.normal_(weight, std=0.02)
        weight.copy_(weight.sign() * 0.02)  # of the same mean and spread
        init.zeros_(bias)

    assert "another distribution" in difference_of(normal, of_two_values)


def test_a_constant_among_random_values_is_compared() -> None:
    def with_zeros(weight: Any, bias: Any) -> None:
        normal(weight, bias)
        weight[0] = 0.0

    assert "not random" in difference_of(with_zeros, normal)


def test_tiny_values_are_not_zero() -> None:
    tiny = torch.full((4,), 1e-6)
    assert not starts_alike(tiny, torch.zeros(4))
    assert starts_alike(tiny, tiny * (1 + 1e-7))
    assert starts_alike(torch.zeros(0), torch.zeros(0))


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_values_of_sparse_buffers(layout: Any) -> None:
    value = torch.eye(3).to_sparse(layout=layout)
    assert starts_alike(value, value.clone())
    assert not starts_alike(value, value * 2)


def test_values_of_complex_buffers() -> None:
    value = torch.polar(torch.ones(3), torch.arange(3.0))
    assert starts_alike(value, value.clone())
    assert not starts_alike(value, value.conj())


def test_values_on_the_device_meta_are_alike() -> None:
    value = torch.empty(3, device="meta")
    assert starts_alike(value, value.clone())


@pytest.mark.slow
def test_another_gain_is_refuted(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, LAYER, "gain=1.0", "gain=1.05")
    assert verdict.status == "refuted"
    assert "computed from the same random numbers" in verdict.reason


@pytest.mark.slow
def test_an_error_for_other_seeds_is_refuted(tmp_path: Path) -> None:
    before = "        nn.init.xavier_uniform_(self.weight, gain=1.0)\n"
    after = (
        "        torch.rand(1)\n"
        "        nn.init.xavier_uniform_(self.weight, gain=1.0)\n"
        "        if not self.weight.is_meta and abs(float(self.weight[0, 0])) > 0.3:\n"
        '            raise ValueError("unlucky")\n'
    )
    verdict = verdict_on(tmp_path, LAYER, before, after)
    assert verdict.status == "refuted"
    assert "with seed" in verdict.reason
    assert "unlucky" in verdict.reason
