"""Whether Triton interprets its kernels, which lets them run on a machine without a GPU."""

from __future__ import annotations

import os


def interprets_kernels() -> bool:
    """Return whether Triton interprets its kernels on the CPU (the environment variable
    TRITON_INTERPRET is "1").

    The ops have a function of their own for it (`regraft.ops.triton_interpreter`): the verifier
    imports no ops, and vendored ops import nothing of Regraft.
    """
    return os.environ.get("TRITON_INTERPRET") == "1"
