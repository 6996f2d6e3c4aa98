"""Test the ops against the compositions that they replace, on CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.ops import (  # noqa: E402
    dropout_add_layer_norm,
    implementation,
    is_gelu,
    linear_gelu,
    linear_qkv,
    softmax,
)


def composition(x: Any, residual: Any, norm: Any, p: float, training: bool) -> Any:
    """Return the normalised sum in plain operations."""
    return norm(F.dropout(x, p, training) + residual)


def inputs(dtype: Any = None, shape: tuple[int, ...] = (3, 5, 8)) -> tuple[Any, Any]:
    """Return a random input and residual with gradients."""
    generator = torch.Generator().manual_seed(0)
    x, residual = (
        torch.randn(shape, generator=generator).to(dtype or torch.float32) for _ in range(2)
    )
    return x.requires_grad_(), residual.requires_grad_()


def assert_bits_equal(
    op: Callable[..., Any], reference: Callable[..., Any], leaves: list[Any]
) -> None:
    """Assert that results, gradients and the random state afterwards are equal."""
    runs = []
    for function in (op, reference):
        torch.manual_seed(7)
        result = function()
        gradients = torch.autograd.grad(result.float().square().sum(), leaves)
        runs.append((result.detach(), *gradients, torch.get_rng_state()))
    for ours, theirs in zip(*runs, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_dropout_add_layer_norm_has_the_bits_of_the_composition(
    dtype: Any, training: bool, p: float
) -> None:
    x, residual = inputs(dtype)
    norm = nn.LayerNorm(8).to(dtype)
    assert_bits_equal(
        lambda: dropout_add_layer_norm(x, residual, norm, p=p, training=training),
        lambda: composition(x, residual, norm, p, training),
        [x, residual, *norm.parameters()],
    )
    dropout = nn.Dropout(p).train(training)
    assert_bits_equal(
        lambda: dropout_add_layer_norm(x, residual, norm, dropout),
        lambda: norm(dropout(x) + residual),
        [x, residual, *norm.parameters()],
    )
    assert implementation("dropout_add_layer_norm", x, residual, norm) == "torch-native"
    assert implementation("dropout_add_layer_norm", x, residual, norm, dropout) == "torch-native"


@pytest.mark.parametrize("options", [{"elementwise_affine": False}, {"bias": False}, {"eps": 0.5}])
def test_layer_norms_with_other_settings(options: dict[str, Any]) -> None:
    x, residual = inputs()
    norm = nn.LayerNorm(8, **options)
    assert_bits_equal(
        lambda: dropout_add_layer_norm(x, residual, norm, p=0.1, training=True),
        lambda: composition(x, residual, norm, 0.1, True),
        [x, residual],
    )


def test_shapes_that_are_broadcast_strided_or_empty() -> None:
    norm = nn.LayerNorm(8)
    x, residual = torch.randn(8, 3, 4).transpose(0, 2), torch.randn(8)
    ours = dropout_add_layer_norm(x, residual, norm, p=0.5, training=False)
    assert torch.equal(ours, composition(x, residual, norm, 0.5, False))
    empty = torch.randn(0, 8)
    assert dropout_add_layer_norm(empty, empty, norm, p=0.5, training=True).shape == (0, 8)
    assert linear_gelu(empty, nn.Linear(8, 4)).shape == (0, 4)
    assert linear_gelu(torch.randn(8, 6).t(), nn.Linear(8, 4)).shape == (6, 4)
    assert softmax(empty).shape == (0, 8)


def test_inputs_are_not_written_to() -> None:
    x, residual = (torch.randn(2, 8) for _ in range(2))
    copies = x.clone(), residual.clone()
    dropout_add_layer_norm(x, residual, nn.LayerNorm(8), p=0.5, training=True)
    linear_gelu(x, nn.Linear(8, 8))
    softmax(x)
    assert torch.equal(x, copies[0])
    assert torch.equal(residual, copies[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_gelu_has_the_bits_of_the_composition(
    dtype: Any, approximate: str, bias: bool
) -> None:
    x, _ = inputs(dtype)
    linear = nn.Linear(8, 4, bias=bias).to(dtype)
    assert_bits_equal(
        lambda: linear_gelu(x, linear, approximate=approximate),
        lambda: F.gelu(linear(x), approximate=approximate),
        [x, *linear.parameters()],
    )
    layer = nn.GELU(approximate)
    assert_bits_equal(
        lambda: linear_gelu(x, linear, layer), lambda: layer(linear(x)), [x, *linear.parameters()]
    )
    assert implementation("linear_gelu", x, linear) == ("torch-native" if bias else "reference")


@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.bfloat16])
def test_softmax(dim: int, dtype: Any) -> None:
    x, _ = inputs()
    assert_bits_equal(lambda: softmax(x, dim, dtype), lambda: F.softmax(x, dim, dtype=dtype), [x])
    assert implementation("softmax", x) == "torch-native"


def test_gradients_against_finite_differences() -> None:
    x, residual = inputs(torch.float64, (2, 3, 4))
    norm, linear = nn.LayerNorm(4).double(), nn.Linear(4, 3).double()
    torch.autograd.gradcheck(
        lambda a, b: dropout_add_layer_norm(a, b, norm, p=0.5, training=False), (x, residual)
    )
    torch.autograd.gradcheck(lambda a: linear_gelu(a, linear), (x,))
    torch.autograd.gradcheck(softmax, (x,))


def test_autocast_sees_the_same_operations() -> None:
    x, residual = inputs()
    norm, linear = nn.LayerNorm(8), nn.Linear(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear_gelu(x, linear).dtype == torch.bfloat16
        assert torch.equal(linear_gelu(x, linear), F.gelu(linear(x)))
        ours = dropout_add_layer_norm(x, residual, norm, p=0.1, training=False)
        theirs = composition(x, residual, norm, 0.1, False)
    assert ours.dtype == theirs.dtype
    assert torch.equal(ours, theirs)


def test_references_are_the_same_functions() -> None:
    x, residual = inputs()
    norm, linear = nn.LayerNorm(8), nn.Linear(8, 4)
    exported = {name for name, value in vars(ops).items() if isinstance(value, FunctionType)}
    assert set(ops.REFERENCES) == exported - {"implementation", "is_gelu", "open_gate"}
    theirs = ops.REFERENCES["dropout_add_layer_norm"](x, residual, norm, p=0.5, training=False)
    assert torch.equal(theirs, dropout_add_layer_norm(x, residual, norm, p=0.5, training=False))
    assert torch.equal(ops.REFERENCES["linear_gelu"](x, linear), linear_gelu(x, linear))
    assert torch.equal(ops.REFERENCES["softmax"](x), softmax(x))


# Compilers and the region for CUDA


class Model(nn.Module):
    """A model with several ops."""

    def __init__(self, act: Any = F.gelu) -> None:
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(8, 8), nn.LayerNorm(8), act

    def forward(self, x: Any) -> Any:
        hidden = linear_gelu(x, self.linear) if is_gelu(self.act) else self.act(self.linear(x))
        return dropout_add_layer_norm(softmax(hidden), x, self.norm, p=0.1, training=self.training)


@pytest.fixture
def fresh() -> Iterator[None]:
    """Reset the compiler before and after a test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [True, False])
def test_models_compile_as_one_graph(backend: str, training: bool) -> None:
    model = Model().train(training)
    x = torch.randn(3, 8)
    torch.manual_seed(1)
    expected = model(x)
    torch.manual_seed(1)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend=backend)(x), expected)


@pytest.mark.usefixtures("fresh")
def test_compiled_models_keep_their_hooks() -> None:
    model = Model().eval()
    model.norm.register_forward_hook(lambda _module, _args, output: output + 1)
    x = torch.randn(3, 8)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="eager")(x), model(x))


@pytest.mark.parametrize("strict", [True, False])
def test_models_export(strict: bool) -> None:
    model, x = Model().eval(), torch.randn(3, 8)
    program = torch.export.export(model, (x,), strict=strict)
    torch.testing.assert_close(program.module()(x), model(x))


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__ < (2, 13), reason="regions are compiled from PyTorch 2.13 on")
@pytest.mark.usefixtures("fresh")
def test_the_compiled_region_agrees_with_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region for CUDA runs here with the graph capture of the compiler, without its code
    generator."""
    from importlib import import_module

    region = import_module("regraft.ops.compiled_region")
    region._compiled_function.cache_clear()
    monkeypatch.setattr(
        region,
        "compile_region",
        lambda function: torch.compile(function, dynamic=True, fullgraph=True, backend="aot_eager"),
    )
    for name in ("dropout_add_layer_norm", "linear_gelu"):
        monkeypatch.setattr(import_module(f"regraft.ops.{name}"), "compiles", lambda *_: True)
    for shape in ((3, 5, 8), (2, 8), (7, 8)):
        x, residual = inputs(shape=shape)
        for norm in (
            nn.LayerNorm(8),
            nn.LayerNorm(8, bias=False),
            nn.LayerNorm(8, elementwise_affine=False),
        ):
            assert implementation("dropout_add_layer_norm", x, residual, norm) == "torch.compile"
            assert_bits_equal(
                lambda norm=norm, x=x, residual=residual: dropout_add_layer_norm(
                    x, residual, norm, p=0.4, training=False
                ),
                lambda norm=norm, x=x, residual=residual: composition(
                    x, residual, norm, 0.4, False
                ),
                [x, residual, *norm.parameters()],
            )
        linear = nn.Linear(8, 4)
        assert implementation("linear_gelu", x, linear) == "torch.compile"
        torch.testing.assert_close(linear_gelu(x, linear), F.gelu(linear(x)))
    dropped = dropout_add_layer_norm(
        torch.ones(9, 64), torch.zeros(64), nn.LayerNorm(64), p=0.5, training=True
    )
    assert (dropped < 0).any()
    region._compiled_function.cache_clear()


@pytest.mark.parametrize("bias", [True, False])
def test_linear_qkv_calls_the_three_layers(bias: bool) -> None:
    x, _ = inputs()
    layers = [nn.Linear(8, size, bias=bias) for size in (4, 2, 2)]
    weights = [parameter for layer in layers for parameter in layer.parameters()]
    for index in range(3):
        assert_bits_equal(
            lambda index=index: linear_qkv(x, *layers)[index],
            lambda index=index: layers[index](x),
            [x, *weights][:1],
        )
    assert implementation("linear_qkv", x, *layers) == "reference"


@pytest.mark.parametrize("bias", [True, False])
def test_linear_qkv_as_one_product(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["regraft.ops.stacked_linear"], "compiles", lambda *_: True)
    x, layers = inputs()[0], [nn.Linear(8, 4, bias=bias) for _ in range(3)]
    assert implementation("linear_qkv", x, *layers) == "reference"  # gradients are wanted
    with torch.no_grad():
        assert implementation("linear_qkv", x, *layers) == "torch-native"
        for ours, layer in zip(linear_qkv(x, *layers), layers, strict=True):
            torch.testing.assert_close(ours, layer(x))
            assert ours.is_contiguous()
        assert (
            implementation("linear_qkv", x, *layers[:2], nn.Linear(8, 2, bias=bias)) == "reference"
        )
        layers[1].register_forward_hook(lambda _m, _a, output: output + 1)
        torch.testing.assert_close(linear_qkv(x, *layers)[1], layers[1](x))


@pytest.mark.parametrize("bias", [True, False])
def test_gate_and_up_as_one_product(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, gate, up = inputs()[0], nn.Linear(8, 6, bias=bias), nn.Linear(8, 6, bias=bias)
    assert_bits_equal(
        lambda: ops.gated_linear(x, gate, up, F.silu),
        lambda: F.silu(gate(x)) * up(x),
        [x, *gate.parameters(), *up.parameters()],
    )
    monkeypatch.setattr(sys.modules["regraft.ops.stacked_linear"], "compiles", lambda *_: True)
    assert (
        implementation("gated_linear", x, gate, up, F.silu) == "reference"
    )  # gradients are wanted
    with torch.no_grad():
        assert implementation("gated_linear", x, gate, up, F.silu) == "torch-native"
        torch.testing.assert_close(ops.gated_linear(x, gate, up, F.silu), F.silu(gate(x)) * up(x))
        gate.register_forward_hook(lambda _m, _a, output: output + 1)
        torch.testing.assert_close(ops.gated_linear(x, gate, up, F.silu), F.silu(gate(x)) * up(x))


@pytest.mark.parametrize("layout", ["channels first", "channels last", "a slice"])
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (2, 6, 3, 4), (1, 1, 3, 4), (2, 3, 2, 3, 4)])
def test_the_norm_of_channels_is_the_composition_with_its_layout(
    shape: tuple[int, ...], layout: str
) -> None:
    x = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 1
    if layout == "channels last":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    elif layout == "a slice":
        x = torch.cat((x, x), -1)[..., : shape[-1]]
    x.requires_grad_()
    slope = torch.linspace(-1, 1, x.numel()).reshape(shape)
    runs = []
    for op in (ops.channels_first_layer_norm, ops.REFERENCES["channels_first_layer_norm"]):
        result = op(x, eps=1e-5)
        runs.append((result, *torch.autograd.grad(result, x, slope)))
    torch.testing.assert_close(*runs)
    if layout != "a slice" and 1 not in shape:  # whose strides say nothing
        assert runs[0][0].stride() == runs[1][0].stride()


@pytest.mark.parametrize("name", ["channels_first_layer_norm", "quick_gelu"])
def test_gradients_of_derivatives_in_forward_mode(name: str) -> None:
    options = {"eps": 1e-5} if name == "channels_first_layer_norm" else {}
    x, tangent = torch.randn(2, 2, 6, 3, 4, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    gradients = []
    for op in (getattr(ops, name), ops.REFERENCES[name]):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            derivative = torch.autograd.forward_ad.unpack_dual(op(dual, **options)).tangent
            gradients += torch.autograd.grad(derivative.pow(2).sum(), x)
    torch.testing.assert_close(*gradients)


def test_the_norm_of_channels_refuses_complex_numbers() -> None:
    with pytest.raises(TypeError, match="complex"):
        ops.channels_first_layer_norm(torch.randn(2, 3, dtype=torch.complex64), eps=1e-5)


def test_where_the_norm_of_channels_runs_the_kernel() -> None:
    def runs(x: Any) -> str:
        return implementation("channels_first_layer_norm", x)

    x = torch.randn(2, 6, 3, 4)
    assert runs(x.clone().requires_grad_()) == "torch-native"
    assert runs(x.to(memory_format=torch.channels_last)) == "torch-native"
    assert runs(x) == "reference"  # moving the channels costs more than it saves
    with torch.no_grad():
        assert runs(x.clone().requires_grad_()) == "reference"
    for unsupported in (
        torch.ones(2, 6, dtype=torch.int64),
        torch.ones(2, 0, 3, requires_grad=True),
        torch.ones(3),
    ):
        assert runs(unsupported) == "reference"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_quick_gelu(dtype: Any) -> None:
    x = torch.linspace(-30, 30, 999).to(dtype).requires_grad_()
    runs = []
    for op in (ops.quick_gelu, ops.REFERENCES["quick_gelu"]):
        result = op(x)
        runs.append((result.detach(), *torch.autograd.grad(result.float().square().sum(), x)))
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(
            ours, theirs, **({"rtol": 3e-2, "atol": 3e-2} if dtype == torch.bfloat16 else {})
        )
    assert implementation("quick_gelu", x) == "torch-native"


@pytest.mark.parametrize(
    ("size", "options", "used"),
    [
        (6, {}, "torch-native"),
        (3, {}, "reference"),  # of which two are multiplied by one gate
        (3, {"larger_first": False}, "reference"),
    ],
)
def test_gated_halves(size: int, options: dict[str, bool], used: str) -> None:
    x = torch.randn(2, size, 5, requires_grad=True)
    runs = []
    for op in (ops.gated_halves, ops.REFERENCES["gated_halves"]):
        result = op(x, 1, **options)
        runs.append((result.detach(), *torch.autograd.grad(result.square().sum(), x)))
    torch.testing.assert_close(*runs)
    assert implementation("gated_halves", x, 1, **options) == used


def test_gated_halves_of_whole_numbers_and_of_odd_sizes() -> None:
    numbers = torch.arange(4)
    assert torch.equal(ops.gated_halves(numbers, 0), numbers[:2] * torch.sigmoid(numbers[2:]))
    with pytest.raises(RuntimeError, match="must match"):
        ops.gated_halves(torch.randn(2, 5), 1)


@pytest.mark.parametrize("are_columns", [False, True])
@pytest.mark.parametrize("form", ["deviation", "eps_in_root", "root_of_variance"])
@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_standardize(dtype: Any, unbiased: bool, form: str, are_columns: bool) -> None:
    x = torch.randn(6, 5, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0] = 0.0
    x[1] = 2.5  # rows of equal elements have no deviation
    x[2] *= 1e-6
    x[3, 0, 3], x[3, 1, 3] = float("nan"), float("inf")
    if are_columns:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    x.requires_grad_()
    slope = torch.linspace(-1, 1, x.numel()).view_as(x).to(dtype)
    options = {} if form == "deviation" else {form: True}
    runs, strides = [], []
    for op in (ops.standardize, ops.REFERENCES["standardize"]):
        result = op(x, 1e-5, unbiased=unbiased, **options)
        strides.append(result.stride())
        (gradient,) = torch.autograd.grad(result, x, slope, create_graph=True)
        (second,) = torch.autograd.grad(gradient.float()[4:].square().sum(), x)
        runs.append((result.detach(), gradient.detach(), second))
    assert strides[0] == strides[1]
    tolerances = {"rtol": 5e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {}
    result_pair, gradient_pair, second_pair = zip(*runs, strict=True)
    torch.testing.assert_close(*result_pair, equal_nan=True, **tolerances)
    rows = (gradient[3:] for gradient in gradient_pair)
    torch.testing.assert_close(
        *rows, equal_nan=True, **(tolerances or {"rtol": 1e-4, "atol": 1e-4})
    )
    if dtype == torch.float64:
        torch.testing.assert_close(*gradient_pair, equal_nan=True)
        torch.testing.assert_close(*second_pair, equal_nan=True)


def test_where_standardize_runs_kernels() -> None:
    x = torch.randn(2, 4)
    assert implementation("standardize", x, 1e-6) == "torch-native"
    assert implementation("standardize", x.bfloat16(), 1e-6) == "torch-native"
    assert implementation("standardize", x.bfloat16(), 1e-6, eps_in_root=True) == "reference"
    for unsupported in (x[:, :1], x[:0], x.half(), x.to(torch.complex64), torch.tensor(1.0)):
        assert implementation("standardize", unsupported, 1e-6) == "reference"
    assert ops.standardize(x[:, :1], 1e-6).isnan().all()
    with pytest.raises(TypeError):  # as of `Tensor.std`
        ops.standardize(x, 1e-6, unbiased=cast(Any, 2))


def test_standardize_by_an_epsilon_with_a_gradient() -> None:
    x, eps = torch.randn(2, 4), torch.tensor(0.1, requires_grad=True)
    for options in ({}, {"eps_in_root": True}, {"root_of_variance": True}):
        slopes = [
            torch.autograd.grad(op(x, eps, **options).square().sum(), eps)
            for op in (ops.standardize, ops.REFERENCES["standardize"])
        ]
        torch.testing.assert_close(*slopes)


def test_standardize_large_numbers_in_float16() -> None:
    # the norm of the centred elements is beyond the largest number, their deviation is not
    x = torch.linspace(-6000, 6000, 1024).half()
    assert ops.standardize(x, 1e-6).abs().max() > 1.5


def test_gradients_at_equal_elements_of_the_root_of_a_variance() -> None:
    x = torch.full((2, 4), 2.0, requires_grad=True)
    (slope,) = torch.autograd.grad(ops.standardize(x, 1e-6, root_of_variance=True).sum(), x)
    assert slope.isnan().all()


@pytest.mark.parametrize("form", ["unbiased", "eps_in_root", "root_of_variance"])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*jit.*:DeprecationWarning")
def test_standardize_traced_for_other_shapes(form: str) -> None:
    def call(x: Any) -> Any:
        return ops.standardize(x, 0.1, **{form: True})

    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return call(x)

    x, many = torch.randn(3, 8), torch.randn(2, 5, 6)
    traced = torch.jit.trace(call, (x,))
    torch.testing.assert_close(traced(many), call(many))
    sizes = torch.export.Dim("rows"), torch.export.Dim("width")
    exported = torch.export.export(Model(), (x,), dynamic_shapes=(sizes,)).module()
    torch.testing.assert_close(exported(many[0]), call(many[0]))
    compiled = torch.compile(call, backend="eager", fullgraph=True, dynamic=True)
    for inputs in (x, many):
        torch.testing.assert_close(compiled(inputs), call(inputs))


def test_quick_gelu_of_what_may_overflow_and_of_integers() -> None:
    large = torch.tensor([-60000.0, 60000.0]).half()
    assert ops.quick_gelu(large).tolist() == [0.0, 60000.0 - 60000 % 32]
    integers = torch.arange(-2, 3)
    assert torch.equal(ops.quick_gelu(integers), integers * torch.sigmoid(1.702 * integers))
