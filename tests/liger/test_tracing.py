"""Test that verification traces the model's file, and not Triton's interpreter in a kernel of a
library."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import rms_norm  # noqa: E402
from regraft.verification.child.line_tracing import stop_tracing_kernels  # noqa: E402


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of Triton's interpreter, which is restored afterwards."""
    module = pytest.importorskip("triton.runtime.interpreter")
    # put back at the end
    monkeypatch.setattr(module.GridExecutor, "__call__", module.GridExecutor.__call__)
    return module


def traced_files(run: Any) -> set[str]:
    """Return the files whose lines are traced while a function runs."""
    files: set[str] = set()

    def tracer(frame: FrameType, _event: str, _arg: Any) -> None:
        files.add(frame.f_code.co_filename)

    outer = sys.gettrace()
    sys.settrace(tracer)
    try:
        run()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(outer)
    return files


def normed() -> None:
    """Run the kernel of RMSNorm forward and backward."""
    x = torch.randn(2, 8, requires_grad=True)
    rms_norm(x, weight=torch.ones(8)).sum().backward()


def test_kernels_of_libraries_are_left_out(interpreter: Any, launches: list[str]) -> None:
    assert any(path.endswith("triton/language/semantic.py") for path in traced_files(normed))
    stop_tracing_kernels(())
    files = traced_files(normed)
    assert not any(path.endswith("triton/language/semantic.py") for path in files)
    assert any(
        path.endswith("ops/rms_norm.py") for path in files
    )  # what launches them is the evidence that they ran
    assert launches


def test_kernels_of_the_file_are_traced(interpreter: Any, launches: list[str]) -> None:
    normed()
    stop_tracing_kernels((str(sys.modules["liger_kernel.ops.rms_norm"].__file__),))
    assert any(path.endswith("triton/language/semantic.py") for path in traced_files(normed))
    assert launches


def test_an_error_in_a_kernel_does_not_end_the_tracing(
    interpreter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("in the kernel")

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", fails)
    stop_tracing_kernels(())

    def run() -> None:
        with pytest.raises(ValueError, match="in the kernel"):
            normed()

    traced_files(run)
