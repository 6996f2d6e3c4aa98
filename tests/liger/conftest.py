"""Tests of Liger's kernels run in Triton's interpreter (`make test-liger`), or natively where there is a GPU."""

from __future__ import annotations

import importlib.util
import os

import pytest

MISSING = [name for name in ("torch", "triton", "liger_kernel") if importlib.util.find_spec(name) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = f"needs {', '.join(MISSING)}: pip install -e '.[liger]'" if MISSING else ""
    if not reason and os.environ.get("TRITON_INTERPRET") != "1":
        reason = "needs Triton's interpreter: make test-liger"
    for item in items:
        if reason and "tests/liger/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels that ran: what a test of them must not leave empty."""
    from regraft.ops import liger

    ran: list[str] = []
    call = liger.LigerKernel.__call__

    def counted(self: liger.LigerKernel, *inputs: object) -> object:
        ran.append(self.forward.__qualname__.partition(".")[0])
        return call(self, *inputs)  # type: ignore[arg-type]

    monkeypatch.setattr(liger.LigerKernel, "__call__", counted)
    return ran
