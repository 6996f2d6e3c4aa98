"""Trace an example as verification traces code under test, so that processes which are forked
afterwards find what PyTorch computes at its first trace."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.execution.threads import torch_threads
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_outcomes import Target
from regraft.verification.child.checks.symbolic_sizes import guards_of
from regraft.verification.child.graph_capture import CAPTURES, run_capture

_WIDTH = 8


class _Example(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A block of attention with a normalisation and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.projection, self.output = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: Any) -> Any:
        """Return the block's result for a tensor of shape (rows, length, width)."""
        rows, length, width = x.shape
        query, key, value = (
            part.view(rows, length, 2, width // 2).transpose(1, 2)
            for part in self.projection(self.norm(x)).chunk(3, dim=-1)
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / (width // 2) ** 0.5
        context = torch.matmul(torch.softmax(scores, dim=-1), value)
        mixed = nn.functional.gelu(self.output(context.transpose(1, 2).reshape(x.shape)))
        scaled = mixed * torch.rsqrt(mixed.pow(2).mean(-1, keepdim=True) + 1e-6)
        return torch.cat([x + scaled, x], dim=-1)


def example() -> tuple[Target, Call]:
    """Return a new example and a call of it; its parameters and the input are random."""
    return Target(_Example().eval()), Call((torch.randn(2, 3, _WIDTH),), {})


def trace_example() -> None:
    """Trace the example with symbolic sizes and by each means of capture; random numbers and
    the number of threads are as before afterwards."""
    # a pool of threads would not exist in forked processes
    with torch_threads(1), torch.random.fork_rng(devices=[]):
        target, call = example()
        guards_of(target, call)
        for capture in CAPTURES.values():
            run_capture(capture, target, call)
