"""Run the tests with one thread: the networks are too small for more, which only wait for each
other."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Compute with one thread."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
