"""Test that bounds of slices which are negative in usual calls are zero once."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.checks.argument_variants import calls_with_zero  # noqa: E402
from regraft.verification.child.checks.attribute_variants import (  # noqa: E402
    attribute_calls_with_zero,
)

pytestmark = pytest.mark.usefixtures("here")

NAMES = frozenset(("window", "scale", "length"))
KEEP = """\
import torch


def keep(cache, new, window: int = 16):
    both = torch.cat([cache, new], dim=2)
    return both[:, :, max(both.shape[2] - window, 0):]
"""


def test_integers_with_names_are_zero_once() -> None:
    def shorten(x: object, window: int = 16, other: int = 16) -> None:
        raise NotImplementedError

    calls = list(calls_with_zero(Call((1,), {}), shorten, frozenset(("window", "x"))))
    assert [(call.args, call.kwargs) for call in calls] == [((0,), {}), ((1,), {"window": 0})]
    module = torch.nn.Module()
    module.window, module.scale = 4, 0.5
    labels = [call.label for call in attribute_calls_with_zero(calls[0], module, NAMES)]
    assert labels == ["self.window = 0"]
    assert not list(attribute_calls_with_zero(calls[0], None, NAMES))


@pytest.mark.slow
def test_a_slice_from_minus_zero_is_compared(tmp_path: Path) -> None:
    before = "max(both.shape[2] - window, 0):"
    wrong = verdict_on(tmp_path, KEEP, before, "-window:")
    assert wrong.status == "refuted" and "window=0" in wrong.reason
    right = verdict_on(tmp_path, KEEP, before, "-window if window else both.shape[2]:")
    assert right.status != "refuted", right
