"""Test that the models with rewrites by hand compute the same as these."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.source.object_reference import load_source  # noqa: E402

FILE = Path(__file__).parents[1] / "benchmarks" / "worth" / "idiom_models.py"
idiom_models: Any = load_source(FILE, "idiom_models_of_tests")
MAKERS = [
    idiom_models.selective_scan,
    idiom_models.cell_reader,
    idiom_models.quantizer,
    idiom_models.prototypes,
    idiom_models.contrast,
    idiom_models.graph_attention,
    idiom_models.edge_messages,
    idiom_models.neighbours,
    idiom_models.graph_convolution,
    idiom_models.captioner,
    idiom_models.returns,
    idiom_models.smoothed,
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_model_and_its_rewrite_by_hand_are_equal(make: Any) -> None:
    torch.manual_seed(0)
    model, call = make()
    by_hand = copy.deepcopy(model)
    by_hand.__class__ = idiom_models.BY_HAND[type(model)]
    result, expected = by_hand(**call), model(**call)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    result.sum().backward()
    expected.sum().backward()
    for gradient, wanted in zip(by_hand.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(gradient.grad, wanted.grad, rtol=1e-3, atol=1e-3)
