"""The number of threads with which torch computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch compute an operation in `number` threads in the body; afterwards in as many as
    before."""
    number_before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(number_before)
