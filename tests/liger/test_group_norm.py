"""Why no rule offers Liger's group normalisation (decision 28): if this fails, the kernel may be worth one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from regraft.ops.liger import liger  # noqa: E402


def error(mean: float, function: object) -> float:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 8, 16, 16) + mean, torch.ones(8), torch.zeros(8)
    exact = F.group_norm(x.double(), 2, weight.double(), bias.double(), 1e-5)
    return float((function(x, weight, bias) - exact).abs().max())  # type: ignore[operator]


def test_the_kernel_loses_digits_where_the_mean_is_large() -> None:
    module = liger("group_norm")
    assert module is not None

    def kernel(x: object, weight: object, bias: object) -> object:
        return module.group_norm_forward(x, 8, 2, weight, bias, 1e-5)[0]

    def torchs(x: object, weight: object, bias: object) -> object:
        return F.group_norm(x, 2, weight, bias, 1e-5)  # type: ignore[arg-type]

    assert error(0, kernel) < 1e-5
    assert error(1000, torchs) < 1e-3
    assert error(1000, kernel) > 1e-2
