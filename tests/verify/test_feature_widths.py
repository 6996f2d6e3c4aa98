"""Test which widths of results are tried for parts of a model."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.checks import feature_widths  # noqa: E402


class _Caching(torch.nn.Module):  # type: ignore[misc,name-defined]  # torch is untyped here
    """Returns a tensor of twice the width with what is no tensor: an empty cache, and a name."""

    def forward(self, x: Any) -> Any:
        return torch.cat([x, x], -1), {"key": None, "count": 3}, "plain"


def test_results_that_are_no_tensors_have_no_width() -> None:
    call = Call((torch.randn(2, 3, 8),), {})
    part: Any = SimpleNamespace(build=lambda _: _Caching(), calls=(call,))
    session: Any = SimpleNamespace(original=None)
    assert feature_widths._result_widths(part, session) == [16]
