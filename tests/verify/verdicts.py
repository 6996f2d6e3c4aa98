"""Verdicts on a change of one definition, in a file of the test's own directory."""

from __future__ import annotations

from pathlib import Path

from regraft.verification import Verdict, verify

# a function with a backward pass of its own, which a file with `import torch` may define
SWISH = """\
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return grad * (gate * (1 + x * (1 - gate)))
"""


def verdict_on(folder: Path, text: str, before: str, after: str) -> Verdict:
    """Return the verdict on a file with `text` in which `before` becomes `after`."""
    assert before in text
    path = folder / "model.py"
    path.write_text(text)
    (verdict,) = verify(path, text.replace(before, after).encode())
    return verdict
