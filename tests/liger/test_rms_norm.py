"""Test the kernel of RMSNorm: cast orders, dtypes, gradients, and the defects of patches written by
hand."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import REFERENCES, implementation, rms_norm  # noqa: E402

reference = REFERENCES["rms_norm"]
HALF, SINGLE = torch.float16, torch.float32


def inputs(
    dtype: Any = SINGLE, weight: Any = SINGLE, shape: tuple[int, ...] = (2, 3, 7)
) -> tuple[Any, Any]:
    """Return a random input and weight with gradients."""
    generator = torch.Generator().manual_seed(0)
    x = (3 * torch.randn(shape, generator=generator)).to(dtype).requires_grad_()
    return x, torch.randn(shape[-1:], generator=generator).to(weight).requires_grad_()


def both(run: Any, leaves: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return result and gradients through the kernel, and through the composition."""
    runs = []
    for op in (rms_norm, reference):
        result = run(op)
        slope = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)
        runs.append([result, *torch.autograd.grad(result, leaves, slope)])
    return runs[0], runs[1]


@pytest.mark.parametrize("casting", ["llama", "gemma"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("dtypes", [(SINGLE, SINGLE), (HALF, HALF), (HALF, SINGLE), (SINGLE, HALF)])
def test_it_has_the_dtypes_and_values_of_the_composition(
    casting: str, offset: float, dtypes: tuple[Any, Any], launches: list[str]
) -> None:
    x, weight = inputs(*dtypes)
    ours, theirs = both(
        lambda op: op(x, weight=weight, eps=1e-5, offset=offset, casting=casting), [x, weight]
    )
    assert launches
    for actual, expected in zip(ours, theirs, strict=True):
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("casting", ["llama", "gemma", "statistics", "none"])
@pytest.mark.parametrize("shapes", [((2, 8), ()), ((), ()), ((2, 8), (2, 8)), ((2, 1), (8,))])
def test_a_weight_of_another_shape_runs_as_the_composition(
    casting: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    x, weight = (torch.rand(shape, dtype=SINGLE) for shape in shapes)
    expected = reference(x, weight=weight, casting=casting)
    torch.testing.assert_close(rms_norm(x, weight=weight, casting=casting), expected)


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("dtypes", [(SINGLE, SINGLE), (HALF, HALF), (HALF, SINGLE), (SINGLE, HALF)])
def test_statistics_alone_are_computed_in_float32(
    offset: float, dtypes: tuple[Any, Any], launches: list[str]
) -> None:
    x, weight = inputs(*dtypes)
    actual, expected = (
        op(x, weight=weight, eps=1e-5, offset=offset, casting="statistics")
        for op in (rms_norm, reference)
    )
    assert launches and actual.dtype == expected.dtype == SINGLE
    torch.testing.assert_close(actual, expected)


def test_statistics_leave_the_imaginary_part_of_the_input() -> None:
    x = torch.randn(2, 8, dtype=torch.complex64)
    factor = torch.rsqrt(x.real.pow(2).mean(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(rms_norm(x, casting="statistics"), x * factor)


def test_the_order_of_casts_is_kept_to_the_bit() -> None:
    """Patches written by hand give OLMo 2 and 3 the order of Llama: a quarter of the elements is
    one unit off."""
    x, weight = inputs(HALF, HALF, (64, 33))
    llama, gemma = (rms_norm(x, weight=weight, casting=casting) for casting in ("llama", "gemma"))
    assert not torch.equal(llama, gemma)
    assert torch.equal(llama, reference(x, weight=weight, casting="llama"))
    assert torch.equal(gemma, reference(x, weight=weight, casting="gemma"))


def test_a_wide_weight_gives_a_wide_result() -> None:
    """Liger's own function returns half precision here, where the model returns float32."""
    x, weight = inputs(HALF, SINGLE)
    assert rms_norm(x, weight=weight).dtype == SINGLE


def test_no_gradient_is_overwritten(launches: list[str]) -> None:
    """In-place backward passes give wrong gradients where the result is also added to something
    (glm4v)."""
    x, weight = inputs()

    def block(op: Any) -> Any:
        # the addition hands one gradient to both of its operands
        return x * 2 + op(x, weight=weight)

    ours, theirs = both(block, [x, weight])
    assert launches
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual, expected)
    slope = torch.ones_like(x)
    torch.autograd.grad(rms_norm(x, weight=weight), [x], slope)
    assert torch.equal(slope, torch.ones_like(x))


def test_gradients_can_be_taken_twice_and_differentiated(launches: list[str]) -> None:
    x, weight = inputs()
    result = rms_norm(x, weight=weight)
    first_gradients, second_gradients = (
        torch.autograd.grad(result.sum(), [x, weight], retain_graph=True) for _ in range(2)
    )
    assert launches
    assert all(
        torch.equal(left, right)
        for left, right in zip(first_gradients, second_gradients, strict=True)
    )
    second = []
    for op in (rms_norm, reference):
        (slope,) = torch.autograd.grad(op(x, weight=weight).square().sum(), x, create_graph=True)
        second.append(torch.autograd.grad(slope.square().sum(), [x, weight]))
    for actual, expected in zip(*second, strict=True):
        torch.testing.assert_close(actual, expected)


def test_inputs_that_are_strided_or_frozen(launches: list[str]) -> None:
    x, _ = inputs(shape=(7, 3, 2))
    weight = torch.randn(4)[::2]
    ours, theirs = both(lambda op: op(x.transpose(0, 1), weight=weight), [x])
    assert launches
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual, expected)


def test_what_the_kernel_does_not_take_runs_as_the_composition() -> None:
    x, weight = inputs()
    assert implementation("rms_norm", x, weight) == "liger"
    assert implementation("rms_norm", x.bfloat16(), weight) == "reference"
    assert implementation("rms_norm", x.double(), weight) == "reference"
    assert implementation("rms_norm", x.half(), None, "none") == "reference"
    assert implementation("rms_norm", x, torch.ones(3, 1)) == "reference"
    assert implementation("rms_norm", x[:0], weight) == "reference"
    mapped = torch.func.vmap(lambda row: rms_norm(row, weight=weight))(x)
    torch.testing.assert_close(mapped, reference(x, weight=weight))
    compiled = torch.compile(
        lambda rows: rms_norm(rows, weight=weight), fullgraph=True, backend="eager"
    )(x)
    assert torch.equal(compiled, reference(x, weight=weight))


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is not asked")
def test_the_interpreter_may_be_told_to_take_some_calls(
    monkeypatch: pytest.MonkeyPatch, launches: list[str]
) -> None:
    monkeypatch.setenv("REGRAFT_INTERPRET_ONE_IN", "4")
    drawn = [torch.randn(1, 3, requires_grad=True) for _ in range(64)]
    numbers = []
    for x in [*drawn, *drawn]:
        before = len(launches)
        torch.utils.checkpoint.checkpoint(rms_norm, x, use_reentrant=False).sum().backward()
        numbers.append(len(launches) - before)
    assert (
        set(numbers) == {0, 2} and 4 < sum(map(bool, numbers[:64])) < 32
    )  # a checkpoint runs twice
    assert numbers[:64] == numbers[64:]
