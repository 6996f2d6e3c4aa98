"""Test that the differences of results are those of torch.testing, wherever they are decided."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.splitting.checking import result_difference  # noqa: E402

NAN, INF = float("nan"), float("inf")
VALUES = [
    torch.tensor([1.0, 2.0]),
    torch.tensor([1.0, 2.0 + 1e-6]),
    torch.tensor([1.0, 2.1]),
    torch.tensor([1.0, NAN]),
    torch.tensor([1.0, INF]),
    torch.tensor([1.0, -INF]),
    torch.tensor([1.0, 2.0], dtype=torch.float64),
    torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    torch.tensor([1.0, 2.0], dtype=torch.float16),
    torch.tensor([1, 2]),
    torch.tensor([1, 3]),
    torch.tensor([1, 2], dtype=torch.int32),
    torch.tensor([True, False]),
    torch.tensor([1 + 2j, 2]),
    torch.tensor([[1.0, 2.0]]),
    torch.nn.Parameter(torch.tensor([1.0, 2.0])),
    torch.empty(0),
]
SPARSE = torch.tensor([1.0, 2.0]).to_sparse()


@pytest.mark.parametrize("expected", VALUES, ids=repr)
def test_two_tensors_differ_where_torch_testing_says_so(expected: Any) -> None:
    for value in (*VALUES, SPARSE):
        try:
            torch.testing.assert_close(value, expected, equal_nan=True)
        except AssertionError:
            differs = True
        else:
            differs = False
        assert bool(result_difference.difference(value, expected)) == differs, value


def test_torch_testing_is_asked_only_about_what_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def note(got: Any, *_: Any, **__: Any) -> str:
        asked.append(got)
        return "no"

    monkeypatch.setattr(result_difference, "describe_mismatch", note)
    assert result_difference.difference(VALUES[1], VALUES[0]) == "" and not asked
    assert result_difference.difference(VALUES[2], VALUES[0]) == "no" and len(asked) == 1
