"""Test how mean errors of results in half precision are measured."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from regraft.verification.child.call_outcomes import Outcome
from regraft.verification.child.comparison_terms import Largest, Rigour
from regraft.verification.child.half_precision import FEWEST, differing_halves, mean_errors
from regraft.verification.child.jittered_results import farther_outcome
from regraft.verification.child.outcome_comparison import judge

EXACT = torch.linspace(1.0, 2.0, FEWEST, dtype=torch.float64)


def test_errors_are_relative_to_the_exact_result() -> None:
    errors = mean_errors(EXACT.bfloat16(), (EXACT * 1.01).bfloat16(), EXACT)
    assert errors is not None
    assert errors[0] < 0.002 and 0.009 < errors[1] < 0.011


def test_a_float64_result_that_does_not_fit_judges_nothing() -> None:
    assert mean_errors(EXACT.half(), EXACT.half(), EXACT * 2) is None
    assert mean_errors(EXACT.half(), EXACT.half(), EXACT.float()) is None


def test_only_dense_results_of_many_elements_are_compared() -> None:
    original = {
        "dense": EXACT.half(),
        "few": EXACT[:-1].half(),
        "sparse": EXACT.half().to_sparse(),
        "infinite": torch.full_like(EXACT, float("inf")).half(),
    }
    changed = {path: value * 2 for path, value in original.items()}
    assert [path for path, *_ in differing_halves(original, changed)] == ["dense"]


def test_an_inexact_result_does_not_hide_another_result() -> None:
    largest = Largest()
    for _ in range(2):
        largest.add_errors("bfloat16", "[0]", 0.04, 0.04)
        largest.add_errors("bfloat16", "[1]", 0.001, 0.002)
    assert largest.errors == {"bfloat16": {"[0]": (0.08, 0.08), "[1]": (0.002, 0.004)}}


def test_sparse_state_is_compared_like_dense_state() -> None:
    sparse = Outcome(outputs={"heads": torch.tensor([True, False]).to_sparse()})
    other = Outcome(outputs={"heads": torch.tensor([True, True]).to_sparse()})
    farther = farther_outcome(sparse, sparse, other)
    assert farther.outputs["heads"] is other.outputs["heads"]


def test_sparse_gradients_are_judged_by_sparse_float64_ones() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    outcomes = [
        Outcome(gradients={"weight": gradient.to_sparse()})
        for gradient in (exact.float(), exact.float() * (1 + 3e-6), exact * (1 + 3e-6))
    ]
    original, changed, truth = outcomes
    assert judge(original, changed, lambda: truth, Largest(), Rigour(strict=True)) is None
