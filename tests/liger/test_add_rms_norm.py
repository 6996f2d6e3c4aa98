"""Test the kernel of a residual sum and its RMSNorm: only the layer's use of the sum decides for
it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from regraft.ops import REFERENCES, add_rms_norm, implementation, rms_norm
from regraft.ops.postponed import PostponedTensor

reference = REFERENCES["add_rms_norm"]
HALF, SINGLE = torch.float16, torch.float32
FUSED = "_AddRmsNorm"


class Norm(nn.Module):  # type: ignore[misc]
    """An RMSNorm by the op, with weights that differ."""

    def __init__(self, offset: float = 0.0, casting: str = "llama", dtype: Any = SINGLE) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 2, 7).to(dtype))
        self.offset, self.casting = offset, casting

    def forward(self, x: Any) -> Any:
        return rms_norm(x, weight=self.weight, eps=1e-5, offset=self.offset, casting=self.casting)


def terms(dtype: Any = SINGLE) -> tuple[Any, Any]:
    """Return two tensors to add, with gradients."""
    generator = torch.Generator().manual_seed(0)
    x, y = (
        (3 * torch.randn(2, 3, 7, generator=generator)).to(dtype).requires_grad_() for _ in range(2)
    )
    return x, y


def both(norm: Any, x: Any, y: Any) -> tuple[list[Any], list[Any]]:
    """Return results and gradients through the op, and through the composition."""
    runs = []
    for op in (add_rms_norm, reference):
        total, normed = op(x, y, norm)
        slopes = [
            torch.linspace(-1, 1, tensor.numel()).reshape(tensor.shape).to(tensor.dtype)
            for tensor in (total, normed)
        ]
        leaves = [x, y, *norm.parameters()]
        runs.append([total, normed, *torch.autograd.grad((total, normed), leaves, slopes)])
    return runs[0], runs[1]


@pytest.mark.parametrize(("offset", "casting"), [(0.0, "llama"), (0.0, "gemma"), (1.0, "gemma")])
@pytest.mark.parametrize("dtype", [SINGLE, HALF])
def test_one_kernel_computes_the_sum_and_its_norm(
    offset: float, casting: str, dtype: Any, launches: list[str]
) -> None:
    ours, theirs = both(Norm(offset, casting, dtype), *terms(dtype))
    assert launches == [FUSED, "_rms_norm_kernel"]  # the composition's norm is Liger's, too
    assert torch.equal(ours[0], theirs[0])
    for actual, expected in zip(ours, theirs, strict=True):
        assert type(actual) is torch.Tensor and actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    "norm", [Norm(dtype=SINGLE), Norm(1.0, dtype=HALF)], ids=["wide weight", "Llama with offset"]
)
def test_what_the_kernel_would_round_otherwise_is_added_before(
    norm: Any, launches: list[str]
) -> None:
    ours, theirs = both(norm, *terms(HALF))
    assert launches and FUSED not in launches
    for actual, expected in zip(ours, theirs, strict=True):
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected)


def test_only_one_result_is_used() -> None:
    norm = Norm()
    for used in (0, 1):
        x, y = terms()
        slopes = [
            torch.autograd.grad(op(x, y, norm)[used].sum(), (x, y))
            for op in (add_rms_norm, reference)
        ]
        torch.testing.assert_close(*slopes)


def test_gradients_can_be_differentiated_again() -> None:
    norm = Norm()
    second_derivatives = []
    for op in (add_rms_norm, reference):
        x, y = terms()
        total, normed = op(x, y, norm)
        (slope,) = torch.autograd.grad((normed * total).sum(), x, create_graph=True)
        second_derivatives.append(torch.autograd.grad(slope.pow(2).sum(), (x, y, norm.weight)))
    torch.testing.assert_close(second_derivatives[0], second_derivatives[1])


def test_terms_may_be_overwritten_afterwards() -> None:
    """The composition keeps the sum, and neither of its terms."""
    x, y = terms()
    norm, sums = Norm(), (x * 1, y * 1)
    total, normed = add_rms_norm(*sums, norm)
    expected = reference(*terms(), norm)
    for tensor in sums:
        tensor.data.zero_()
        tensor.add_(1)
    torch.testing.assert_close((total, normed), expected)
    (total + normed).sum().backward()
    assert x.grad is not None


class Seeing(Norm):
    """A layer that looks at its input by other means than the op."""

    def forward(self, x: Any) -> Any:
        self.seen = x
        return super().forward(x + 1) + x.mean()


class Double(torch.autograd.Function):
    """A function of autograd that is not the op's."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


class Foreign(Norm):
    """A layer that passes its input to a function of autograd."""

    def forward(self, x: Any) -> Any:
        return Double.apply(x) * self.weight


class Blind(Norm):
    """A layer that computes without gradients."""

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            return rms_norm(x, weight=self.weight)


@pytest.mark.parametrize("kind", [Seeing, Foreign, Blind])
def test_other_layers_get_the_sum(kind: Any, launches: list[str]) -> None:
    norm = kind()
    ours: list[Any] = []
    theirs: list[Any] = []
    for op, results in ((add_rms_norm, ours), (reference, theirs)):
        x, y = terms()
        total, normed = op(x, y, norm)
        assert type(total) is torch.Tensor and normed.requires_grad == (kind is not Blind)
        results += [total, normed, *torch.autograd.grad((total * 2 + normed).sum(), (x, y))]
    assert FUSED not in launches
    torch.testing.assert_close(ours, theirs)


def test_a_sum_that_a_layer_keeps_is_the_sum() -> None:
    x, y = terms()
    norm = Seeing()
    total, _ = add_rms_norm(x, y, norm)
    assert isinstance(norm.seen, PostponedTensor)
    assert norm.seen.requires_grad and torch.equal(norm.seen + 0, total)
    torch.testing.assert_close(torch.autograd.grad(norm.seen.sum(), x)[0], torch.ones_like(x))


@pytest.mark.parametrize("change", ["hook", "shape", "dtype", "float64"])
def test_what_the_kernel_does_not_take_runs_as_the_composition(
    change: str, launches: list[str]
) -> None:
    x, y = terms(torch.float64 if change == "float64" else SINGLE)
    norm, input_types = Norm(), []
    if change == "hook":
        norm.register_forward_pre_hook(lambda _, arguments: input_types.append(type(arguments[0])))
    y = {"shape": y[:1], "dtype": y.half()}.get(change, y)
    assert implementation("add_rms_norm", x, y, norm) == "reference"
    total, normed = add_rms_norm(x, y, norm)
    assert FUSED not in launches
    assert input_types == ([torch.Tensor] if change == "hook" else [])
    expected = x + y, norm(x + y)
    torch.testing.assert_close((total, normed), expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients(mode: Any, launches: list[str]) -> None:
    x, y = terms()
    with mode():
        total, normed = add_rms_norm(x, y, Norm())
        expected = reference(x, y, Norm())
    assert (
        launches == [FUSED, "_rms_norm_kernel"]
        and not total.requires_grad
        and not normed.requires_grad
    )
    assert total.is_inference() == expected[0].is_inference()
    torch.testing.assert_close((total, normed), expected)


def test_under_a_checkpoint() -> None:
    from torch.utils.checkpoint import checkpoint

    x, y = terms()
    norm = Norm()
    slopes = []
    for op in (add_rms_norm, reference):
        total, normed = checkpoint(op, x, y, norm, use_reentrant=False)
        slopes.append(torch.autograd.grad((total * normed).sum(), (x, y, norm.weight)))
    torch.testing.assert_close(slopes[0], slopes[1])
