"""Run the tests with one thread, as the networks are too small for more, and time no sub-network
unless a test is about that."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from regraft.cli import main


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Compute with one thread."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def without_gradients() -> Iterator[None]:
    """Compute without gradients, as a split network does."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        yield


@pytest.fixture
def timed() -> None:
    """Let sub-networks be timed, and stay eager where torch is faster."""


@pytest.fixture(autouse=True)
def untimed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no sub-network for slower than torch, unless the test is `timed`: each takes 20 ms to
    time, and on a busy machine some would stay eager."""
    if "timed" not in request.fixturenames:
        comparison = pytest.importorskip("regraft.splitting.compiling.region_comparison")
        monkeypatch.setattr(comparison, "check_speed", lambda *_: None)


@pytest.fixture
def run_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that runs `regraft split` in this process, in the test's own directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return lambda *arguments: CliRunner().invoke(main, ["split", *arguments])
