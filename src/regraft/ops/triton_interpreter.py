"""Triton's interpreter made fit for Liger's kernels: where there is no GPU, they can be tested, slowly."""

from __future__ import annotations

import os


def interprets() -> bool:
    """Whether Triton is told to interpret its kernels on the CPU (the environment variable TRITON_INTERPRET)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def prepare_interpreter() -> None:
    """Three adjustments of Triton's interpreter (3.9.0), before Liger is imported; nothing where none is needed.

    Numbers that a kernel is given stay numbers of Python, which have no `to`; `rsqrt` and `tanh` of `libdevice` have
    no body; an autotuned kernel asks the driver of a GPU for its clock.
    """
    if interprets():
        _wrap_numbers()
        _define_libdevice()
        _take_first_configuration()


def _wrap_numbers() -> None:
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    convert = interpreter._implicit_cvt

    def with_numbers(argument: object) -> object:
        if type(argument) is not float:
            return convert(argument)
        handle = interpreter.TensorHandle(np.array([argument], dtype=np.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    interpreter._implicit_cvt = with_numbers


def _define_libdevice() -> None:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    # The interpreter takes the text of these functions, in which `tl` must be a name of the module.
    globals()["tl"] = tl
    libdevice.rsqrt = triton.jit(_rsqrt)
    libdevice.tanh = triton.jit(_tanh)


def _rsqrt(x):  # type: ignore[no-untyped-def]
    return tl.math.rsqrt(x)  # type: ignore[name-defined]  # noqa: F821


def _tanh(x):  # type: ignore[no-untyped-def]
    return 2 * tl.sigmoid(2 * x.to(tl.float32)) - 1  # type: ignore[name-defined]  # noqa: F821


def _take_first_configuration() -> None:
    from triton.runtime.autotuner import Autotuner

    def run(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        first = self.configs[0]
        if first.pre_hook is not None:
            first.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **first.all_kwargs()})
        return self.fn.run(*args, **kwargs, **first.all_kwargs())

    Autotuner.run = run
