"""The states of random number generators."""

from __future__ import annotations

import functools
import random
import sys
from typing import Any

import torch

from regraft.verification.child.call_observation import random_states


def reseed(seed: int) -> None:
    """Seed the random numbers of every device that is present, of NumPy where it is imported, and
    of Python: models use all of them.

    `torch.manual_seed` formats a stack trace for each kind of device that is absent, which adds up
    over a run.
    """
    if _has_accelerator():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)


@functools.lru_cache(maxsize=32)
def states_of_seed(seed: int, has_numpy: bool) -> dict[str, Any]:
    """Return the state of every source of random numbers right after `reseed`, by name. Only the
    first call for a seed calls `reseed`; the result is cached, since reading the states takes as
    long as a small model."""
    reseed(seed)
    return random_states()


@functools.cache
def _has_accelerator() -> bool:
    """Return whether a device other than the CPU is available. Cached."""
    return bool(
        torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()
    )
