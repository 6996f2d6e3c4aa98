"""Test that the launcher's example is traced by every means, and leaves no trace of its own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from regraft.verification.child.checks.symbolic_sizes import guards_of  # noqa: E402
from regraft.verification.child.graph_capture import CAPTURES, run_capture  # noqa: E402
from regraft.verification.child.tracing_warm_up import example, trace_example  # noqa: E402


@pytest.mark.parametrize("means", CAPTURES)
def test_the_example_is_captured(means: str) -> None:
    target, call = example()
    result = run_capture(CAPTURES[means], target, call)
    assert isinstance(result, dict), result


def test_the_example_runs_on_sizes_that_are_symbols() -> None:
    assert guards_of(*example()) is not None


def test_random_numbers_and_threads_stay() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    threads = torch.get_num_threads()
    torch.manual_seed(3)
    trace_example()
    assert torch.equal(torch.rand(4), expected)
    assert torch.get_num_threads() == threads
