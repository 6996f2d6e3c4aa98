"""Triton's interpreter made fit for Liger's kernels: where there is no GPU, they can be tested, slowly."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Hashable, Sequence

import torch

_FIRST: dict[Hashable, int] = {}  # by dtypes and shapes, what the first call of them drew


def interprets() -> bool:
    """Whether Triton is told to interpret its kernels on the CPU (the environment variable TRITON_INTERPRET)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_drawn(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the interpreter runs a call: all, or by REGRAFT_INTERPRET_ONE_IN=N the first of its shapes and 1 in N.

    The sum of the first tensor's numbers draws: a forward pass that a checkpoint runs again takes the same way again.
    """
    one_in = int(os.environ.get("REGRAFT_INTERPRET_ONE_IN", "1"))
    if one_in == 1:
        return True
    number = zlib.crc32(struct.pack("d", tensors[0].detach().double().sum()))
    kind = (torch.is_grad_enabled(), *((one.dtype, one.shape) for one in tensors))
    return _FIRST.setdefault(kind, number) == number or number % one_in == 0


def prepare_interpreter() -> None:
    """Four adjustments of Triton's interpreter (3.9.0), before Liger is imported; nothing where none is needed.

    Numbers that a kernel is given stay numbers of Python, which have no `to`; `rsqrt` and `tanh` of `libdevice` have
    no body; an autotuned kernel asks the driver of a GPU for its clock; and each call of a function in a kernel
    looks through Triton's modules anew, which takes a third of the time.
    """
    if interprets():
        _wrap_numbers()
        _define_libdevice()
        _take_first_configuration()
        _patch_once()


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


def _patch_once() -> None:
    """Patch Triton's language for each function once in a launch: until it ends nothing takes that back."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang
    patched: set[object] = set()

    def once(function):  # type: ignore[no-untyped-def]
        if function in patched:
            return None  # the kernel itself comes first, and only its launch asks for what it has to take back
        scope = patch(function)
        restore = scope.restore

        def ended() -> None:
            patched.clear()
            restore()

        scope.restore = ended
        patched.add(function)
        return scope

    interpreter._patch_lang = once
