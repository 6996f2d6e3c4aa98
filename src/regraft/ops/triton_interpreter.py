"""Adjustments of Triton's interpreter for Liger's kernels, so that they can be tested, slowly,
without a GPU."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Hashable, Sequence

import torch

# mode, dtypes and shapes → the number that their first call drew
_FIRST_DRAWS: dict[Hashable, int] = {}


def is_interpreting() -> bool:
    """Return whether Triton interprets its kernels on the CPU (the environment variable
    TRITON_INTERPRET is "1")."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_call_drawn(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether the interpreter runs a call on these tensors.

    It runs all calls, or, if REGRAFT_INTERPRET_ONE_IN=N is in the environment, the first call for
    each combination of dtypes and shapes and one in N of the others. The sum of the first tensor's
    numbers decides, so that a forward pass that a checkpoint repeats takes the same path again.
    """
    one_in = int(os.environ.get("REGRAFT_INTERPRET_ONE_IN", "1"))
    if one_in == 1:
        return True
    number = zlib.crc32(struct.pack("d", tensors[0].detach().double().sum()))
    call_kind = (torch.is_grad_enabled(), *((tensor.dtype, tensor.shape) for tensor in tensors))
    return _FIRST_DRAWS.setdefault(call_kind, number) == number or number % one_in == 0


def prepare_interpreter() -> None:
    """Adjust Triton's interpreter (3.9.0), before Liger is imported; do nothing if Triton does not
    interpret.

    The adjustments mend four problems: the numbers among a kernel's arguments stay Python numbers,
    which have no `to`; `rsqrt` and `tanh` of `libdevice` have no body; an autotuned kernel asks the
    driver of a GPU for its clock; and each call of a function in a kernel searches Triton's modules
    again, which takes a third of the time.
    """
    if is_interpreting():
        _wrap_numbers()
        _define_libdevice()
        _take_first_configuration()
        _patch_once()


def _wrap_numbers() -> None:
    """Make the interpreter convert the floats among a kernel's arguments to scalar tensors in
    float32."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    convert = interpreter._implicit_cvt

    def convert_number(argument: object) -> object:
        if type(argument) is not float:
            return convert(argument)
        handle = interpreter.TensorHandle(np.array([argument], dtype=np.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    interpreter._implicit_cvt = convert_number


def _define_libdevice() -> None:
    """Give `rsqrt` and `tanh` of `libdevice` a body."""
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    # The interpreter compiles the text of these functions, in which `tl` must be a global name of
    # this module.
    globals()["tl"] = tl
    libdevice.rsqrt = triton.jit(_rsqrt)
    libdevice.tanh = triton.jit(_tanh)


def _rsqrt(x):  # type: ignore[no-untyped-def]
    return tl.math.rsqrt(x)  # type: ignore[name-defined]  # noqa: F821


def _tanh(x):  # type: ignore[no-untyped-def]
    return 2 * tl.sigmoid(2 * x.to(tl.float32)) - 1  # type: ignore[name-defined]  # noqa: F821


def _take_first_configuration() -> None:
    """Make an autotuned kernel run its first configuration, without measuring any."""
    from triton.runtime.autotuner import Autotuner

    def run(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        configuration = self.configs[0]
        if configuration.pre_hook is not None:
            configuration.pre_hook(
                {
                    **dict(zip(self.arg_names, args, strict=False)),
                    **kwargs,
                    **configuration.all_kwargs(),
                }
            )
        return self.fn.run(*args, **kwargs, **configuration.all_kwargs())

    Autotuner.run = run


def _patch_once() -> None:
    """Patch Triton's language only once in a launch for each function; the patches last until the
    launch ends."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang
    patched: set[object] = set()

    def patch_new_function(function):  # type: ignore[no-untyped-def]
        if function in patched:
            return None  # only the launch uses a scope, that of the kernel, which it patches first
        scope = patch(function)
        restore = scope.restore

        def end_launch() -> None:
            patched.clear()
            restore()

        scope.restore = end_launch
        patched.add(function)
        return scope

    interpreter._patch_lang = patch_new_function
