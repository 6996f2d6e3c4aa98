"""Test that results of every format reach the judging process as they are."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.verification.child.call_outcomes import Outcome  # noqa: E402
from regraft.verification.child.comparison_terms import Largest, Rigour  # noqa: E402
from regraft.verification.child.judge_process import Judge  # noqa: E402

torch.manual_seed(0)
TENSORS = {
    "float": torch.randn(3, 5),
    "large": torch.randn(1_500_000),
    "strided": torch.arange(10.0)[::3],
    "expanded": torch.ones(1).expand(7),
    "transposed": torch.randn(4, 6).T,
    "half": torch.randn(9).half(),
    "bfloat16": torch.randn(9).bfloat16()[::2],
    "float8": torch.randn(8).to(torch.float8_e4m3fn),
    "complex": torch.randn(4, dtype=torch.complex64),
    "conjugate": torch.randn(4, dtype=torch.complex64).conj(),
    "bool": torch.tensor([True, False]),
    "whole": torch.arange(5),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "sparse": torch.eye(3).to_sparse(),
    "meta": torch.zeros(2, device="meta"),
}


@pytest.fixture(scope="module")
def judge() -> Any:
    return Judge()


def compare(judge: Judge, original: Any, changed: Any) -> Any:
    truth = Outcome(outputs={})
    return judge(
        Outcome(outputs=original),
        Outcome(outputs=changed),
        lambda: truth,
        Largest(),
        Rigour(strict=True),
    )


def test_equal_results_are_equal_in_the_other_process(judge: Judge) -> None:
    assert judge.isolated
    copies = {name: tensor.clone() for name, tensor in TENSORS.items()}
    assert compare(judge, TENSORS, copies) is None


@pytest.mark.parametrize("name", [name for name in TENSORS if name not in ("empty", "meta")])
def test_a_changed_number_is_seen_there(judge: Judge, name: str) -> None:
    tensor = TENSORS[name].to_dense() if name == "sparse" else TENSORS[name].clone()
    changed = tensor.contiguous().clone()
    last = changed.view(torch.uint8) if name == "float8" else changed
    if name == "bool":
        last.view(-1)[-1] = not last.view(-1)[-1]
    else:  # of eight bits the sign
        last.view(-1)[-1] += 128 if name == "float8" else 3
    difference = compare(judge, {name: tensor}, {name: changed})
    assert difference is not None and difference.path == name


def test_another_format_is_a_difference(judge: Judge) -> None:
    for name in ("sparse", "meta"):
        dense = torch.eye(3) if name == "sparse" else torch.zeros(2)
        assert compare(judge, {name: TENSORS[name]}, {name: dense}) is not None


def test_the_end_of_the_other_process_is_an_error() -> None:
    judge = Judge()
    assert judge._channel is not None
    judge._channel.close()
    with pytest.raises((EOFError, OSError)):
        compare(judge, TENSORS, TENSORS)
