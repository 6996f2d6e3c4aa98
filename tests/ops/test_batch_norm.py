"""Test batch normalisation after a convolution or a Linear layer: it is folded or the composition
runs, and the result stays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.ops import conv_batch_norm, implementation, linear_batch_norm  # noqa: E402


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold small inputs, too."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


SPACE = {1: (40,), 2: (12, 10), 3: (6, 5, 8)}
CASES: dict[str, tuple[Callable[[], Any], int]] = {
    "1d": (lambda: nn.Conv1d(4, 6, 3), 1),
    "2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), 2),
    "3d": (lambda: nn.Conv3d(4, 6, 2), 3),
    "no bias": (lambda: nn.Conv2d(4, 6, 3, bias=False), 2),
    "grouped": (lambda: nn.Conv2d(4, 8, 3, groups=2), 2),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding="same", dilation=2), 2),
    "reflected": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), 2),
    "circular": (lambda: nn.Conv1d(4, 6, 3, padding=2, padding_mode="circular"), 1),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 6, 3, bias=False), 1),
    "transposed 2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
        2,
    ),
    "transposed 3d": (lambda: nn.ConvTranspose3d(4, 6, 2), 3),
    "transposed, grouped": (lambda: nn.ConvTranspose2d(4, 8, 3, groups=2, dilation=2), 2),
}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "large eps": {"eps": 0.5},
    "not affine": {"affine": False},
    "no momentum": {"momentum": None},
}


def warm(norm: Any) -> Any:
    """Give a normalisation statistics and parameters that differ from those of a new layer."""
    generator = torch.Generator().manual_seed(1)
    for tensor, low, high in (
        (norm.running_mean, -2, 2),
        (norm.running_var, 0.1, 3),
        (norm.weight, 0.5, 2),
    ):
        if tensor is not None:
            tensor.data.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)
    if norm.bias is not None:
        nn.init.uniform_(norm.bias)
    return norm


def case(name: str, **settings: Any) -> tuple[Any, Any, Any]:
    """Return an input, the convolution and its normalisation, in evaluation."""
    torch.manual_seed(0)
    make, dims = CASES[name]
    conv = make().eval()
    return (
        torch.randn(3, 4, *SPACE[dims]),
        conv,
        warm(NORMS[dims](conv.out_channels, **settings)).eval(),
    )


def linear_case(rows: int = 24, **settings: Any) -> tuple[Any, Any, Any]:
    """Return an input, the Linear layer and its normalisation, in evaluation."""
    torch.manual_seed(0)
    return torch.randn(rows, 8), nn.Linear(8, 5).eval(), warm(nn.BatchNorm1d(5, **settings)).eval()


def op_of(layer: Any) -> tuple[str, Any]:
    """Return the name and the op for a layer."""
    return (
        ("linear_batch_norm", linear_batch_norm)
        if type(layer) is nn.Linear
        else ("conv_batch_norm", conv_batch_norm)
    )


def assert_bits_equal(x: Any, layer: Any, norm: Any) -> None:
    """Assert that nothing is folded: results, gradients and statistics are those of the
    composition."""
    name, op = op_of(layer)
    assert implementation(name, x, layer, norm) == "reference"
    runs = []
    for function in (op, lambda x, layer, norm: norm(layer(x))):
        mine, layer_copy, norm_copy = copy.deepcopy((x.detach(), layer, norm))
        mine.requires_grad_()
        result = function(mine, layer_copy, norm_copy)
        leaves = [mine, *layer_copy.parameters(), *norm_copy.parameters()]
        runs.append(
            (
                result.detach(),
                *torch.autograd.grad(result.square().sum(), leaves),
                *norm_copy.buffers(),
            )
        )
    for ours, theirs in zip(*runs, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_folded_convolution_computes_the_same(
    name: str, settings: dict[str, Any], dtype: Any
) -> None:
    x, conv, norm = case(name, **settings)
    x, conv, norm = x.to(dtype), conv.to(dtype), norm.to(dtype)
    with torch.no_grad():
        assert implementation("conv_batch_norm", x, conv, norm) == "folded"
        ours, theirs = conv_batch_norm(x, conv, norm), norm(conv(x))
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_folded_linear_computes_the_same(settings: dict[str, Any], bias: bool) -> None:
    x, _, norm = linear_case(**settings)
    linear = nn.Linear(8, 5, bias=bias).eval()
    with torch.no_grad():
        assert implementation("linear_batch_norm", x, linear, norm) == "folded"
        torch.testing.assert_close(linear_batch_norm(x, linear, norm), norm(linear(x)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_training_is_the_composition(name: str, settings: dict[str, Any]) -> None:
    x, conv, norm = case(name, **settings)
    assert_bits_equal(x, conv.train(), norm.train())


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_training_a_linear_is_the_composition(settings: dict[str, Any]) -> None:
    x, linear, norm = linear_case(**settings)
    assert_bits_equal(x, linear.train(), norm.train())


def test_running_statistics_are_updated_once() -> None:
    x, conv, norm = case("2d")
    norm.train()
    conv_batch_norm(x, conv, norm)
    assert norm.num_batches_tracked == 1


def test_statistics_of_the_batch_in_evaluation() -> None:
    x, conv, _ = case("2d")
    assert_bits_equal(x, conv, nn.BatchNorm2d(6, track_running_stats=False).eval())
    x, linear, _ = linear_case()
    assert_bits_equal(x, linear, nn.BatchNorm1d(5, track_running_stats=False).eval())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_the_composition(dtype: Any) -> None:
    x, conv, norm = case("2d")
    assert_bits_equal(x.to(dtype), conv.to(dtype), norm.to(dtype))
    assert_bits_equal(x.to(dtype), conv.to(dtype), norm.float())  # mixed, as autocast leaves it
    x, linear, norm = linear_case()
    assert_bits_equal(x.to(dtype), linear.to(dtype), norm.to(dtype))


def test_autocast_is_the_composition() -> None:
    x, conv, norm = case("2d")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert implementation("conv_batch_norm", x, conv, norm) == "reference"
        assert torch.equal(conv_batch_norm(x, conv, norm), norm(conv(x)))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", ["2d", "no bias", "reflected", "transposed, grouped", "linear"])
def test_gradients_of_the_input_and_all_parameters(name: str, frozen: bool) -> None:
    """A gradient of the normalisation's weight would be less exact through folded weights: that is
    the composition."""
    x, layer, norm = linear_case() if name == "linear" else case(name)
    x, layer, norm = x.double().requires_grad_(), layer.double(), norm.double()
    norm.weight.requires_grad_(not frozen)
    label, op = op_of(layer)
    assert implementation(label, x, layer, norm) == ("folded" if frozen else "reference")
    leaves = [
        x,
        *layer.parameters(),
        *(parameter for parameter in norm.parameters() if parameter.requires_grad),
    ]
    direction = torch.randn(norm(layer(x)).shape, dtype=torch.float64)
    ours = torch.autograd.grad(op(x, layer, norm), leaves, direction)
    theirs = torch.autograd.grad(norm(layer(x)), leaves, direction)
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual, expected)


def test_gradients_against_finite_differences() -> None:
    x = torch.randn(2, 4, 4, 3, dtype=torch.float64, requires_grad=True)
    conv = nn.Conv2d(4, 8, 1, groups=2).double()
    norm = warm(nn.BatchNorm2d(8, affine=False)).double().eval()
    assert implementation("conv_batch_norm", x, conv, norm) == "folded"
    torch.autograd.gradcheck(lambda x: conv_batch_norm(x, conv, norm), (x,))


def test_weights_that_change_are_seen() -> None:
    x, conv, norm = case("2d")
    with torch.no_grad():
        for change in (conv.weight.data, norm.running_mean, norm.running_var, norm.bias.data):
            conv_batch_norm(x, conv, norm)
            change.mul_(2)
            torch.testing.assert_close(conv_batch_norm(x, conv, norm), norm(conv(x)))


def test_modules_and_inputs_are_not_written_to() -> None:
    x, conv, norm = case("2d")
    copies = copy.deepcopy((x, conv.state_dict(), norm.state_dict()))
    with torch.no_grad():
        conv_batch_norm(x, conv, norm)
    assert torch.equal(x, copies[0])
    for module, before in ((conv, copies[1]), (norm, copies[2])):
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_strided_and_empty_inputs() -> None:
    x, conv, norm = case("2d")
    with torch.no_grad():
        for inputs in (x.transpose(2, 3), x.to(memory_format=torch.channels_last), x[:0]):
            ours, theirs = conv_batch_norm(inputs, conv, norm), norm(conv(inputs))
            torch.testing.assert_close(ours, theirs)
            assert ours.stride() == theirs.stride()
        x, linear, norm = linear_case()
        assert linear_batch_norm(x[:0], linear, norm).shape == (0, 5)


@torch.no_grad()
def test_small_results_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operations on the weights cost more than the pass over the result, unless that is
    large."""
    monkeypatch.delenv("REGRAFT_KERNELS")
    _, linear, norm = linear_case()
    for rows, expected in ((2**20 // 5 + 1, "folded"), (2**20 // 5, "reference")):
        assert implementation("linear_batch_norm", torch.zeros(rows, 8), linear, norm) == expected
    # 64 results for each of 2**20 weights
    wide, normed = (
        nn.Linear(2**14, 64).eval(),
        nn.BatchNorm1d(64).eval(),
    )
    for rows, expected in ((2**20, "folded"), (2**20 - 1, "reference")):
        meta = torch.empty(1, 2**14).expand(rows, -1)
        assert implementation("linear_batch_norm", meta, wide, normed) == expected
    x, conv, norm = case("2d")
    assert implementation("conv_batch_norm", x, conv, norm) == "reference"
    large = torch.zeros(3, 4, 484, 484)
    assert implementation("conv_batch_norm", large, conv, norm) == "folded"
    assert torch.equal(conv_batch_norm(x, conv, norm), norm(conv(x)))


@torch.no_grad()
def test_shapes_that_mean_something_else() -> None:
    _, linear, _ = linear_case()
    # normalises the second axis, not the features
    x, norm = (
        torch.randn(9, 12, 8),
        warm(nn.BatchNorm1d(12)).eval(),
    )
    assert implementation("linear_batch_norm", x, linear, norm) == "reference"
    assert torch.equal(linear_batch_norm(x, linear, norm), norm(linear(x)))
    x, conv, norm = case("1d")
    # without a batch dimension the positions look like channels
    position_norm = warm(nn.BatchNorm1d(38)).eval()
    assert torch.equal(conv_batch_norm(x[0], conv, position_norm), position_norm(conv(x[0])))
    x, conv, norm = case("2d")
    with pytest.raises(ValueError, match="expected 4D input"):
        conv_batch_norm(x[0], conv, norm)
    with pytest.raises(RuntimeError, match="running_mean should contain 6 elements not 1"):
        conv_batch_norm(x, conv, nn.BatchNorm2d(1).eval())
    with pytest.raises(ValueError, match="expected 5D input"):
        conv_batch_norm(x, conv, nn.BatchNorm3d(6).eval())


# Nothing that a user does to a module after construction is bypassed

CHANGES: dict[str, Callable[[Any], Any]] = {
    "forward hook": lambda m: m.register_forward_hook(lambda _m, _a, output: output + 1),
    "forward pre-hook": lambda m: m.register_forward_pre_hook(lambda _m, args: (args[0] + 1,)),
    "backward hook": lambda m: m.register_full_backward_hook(lambda _m, _i, _o: None),
    "own forward": lambda m: setattr(m, "forward", lambda x: type(m).forward(m, x) + 1),
    "parametrization": lambda m: nn.utils.parametrize.register_parametrization(
        m, "weight", nn.Tanh()
    ),
    "spectral norm": lambda m: (
        nn.utils.spectral_norm(m) if m.weight.dim() > 1 else CHANGES["forward hook"](m)
    ),
    "pruning": lambda m: prune.random_unstructured(m, "weight", 0.5),
    "own parameter": lambda m: setattr(m, "weight", Sharded(m.weight.data)),
}


class Sharded(nn.Parameter):
    """A parameter of another class."""

    pass


class Frozen(nn.BatchNorm2d):
    """A normalisation with a forward of its own."""

    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


@torch.no_grad()
@pytest.mark.parametrize("which", ["layer", "norm"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("make", [lambda: case("2d"), lambda: case("transposed 2d"), linear_case])
def test_changed_modules_are_called(
    make: Callable[[], Any], change: Callable[[Any], Any], which: str
) -> None:
    x, layer, norm = make()
    name, op = op_of(layer)
    assert implementation(name, x, layer, norm) == "folded"
    change(layer if which == "layer" else norm)
    assert implementation(name, x, layer, norm) == "reference"
    assert torch.equal(op(x, layer, norm), norm(layer(x)))


@torch.no_grad()
def test_hooks_fire_once_a_call() -> None:
    x, conv, norm = case("2d")
    calls: list[Any] = []
    for module in (conv, norm):
        module.register_forward_hook(lambda module, *_: calls.append(module))
    conv_batch_norm(x, conv, norm)
    assert calls == [conv, norm]


@torch.no_grad()
def test_other_modules_are_called() -> None:
    x, conv, norm = case("2d")
    norms: list[Any] = [
        Frozen(6),
        nn.Identity(),
        nn.GroupNorm(2, 6),
        nn.InstanceNorm2d(6),
        lambda y: y * 2,
    ]
    for replacement in norms:
        assert torch.equal(conv_batch_norm(x, conv, replacement), replacement(conv(x)))
    for replacement in (nn.Identity(), lambda y: y[:, :1].repeat(1, 6, 1, 1)):
        assert torch.equal(conv_batch_norm(x, replacement, nn.Identity()), replacement(x))
    lazy = nn.LazyConv2d(6, 3)
    assert conv_batch_norm(x, lazy, norm).shape == (3, 6, 10, 8)
    assert type(lazy) is nn.Conv2d


class BatchNormAct2d(nn.BatchNorm2d):
    """A layer that computes the documentation of timm 1.0.31 for its layer of this name."""

    def __init__(self, features: int, act: Any, drop: Any = None) -> None:
        super().__init__(features)
        self.drop, self.act = drop or nn.Identity(), act

    def forward(self, x: Any) -> Any:
        return self.act(self.drop(super().forward(x)))


@pytest.fixture
def activated(monkeypatch: pytest.MonkeyPatch) -> type[BatchNormAct2d]:
    """Return the layer under timm's module name."""
    for definition in (BatchNormAct2d, BatchNormAct2d.forward):
        monkeypatch.setattr(definition, "__module__", "timm.layers.norm_act")
    return BatchNormAct2d


@pytest.mark.parametrize(
    "act", [nn.ReLU(inplace=True), nn.SiLU(inplace=True), nn.GELU(), nn.Identity()]
)
@pytest.mark.parametrize("name", ["2d", "transposed 2d"])
def test_a_layer_of_timm_activates(activated: type[BatchNormAct2d], name: str, act: Any) -> None:
    x, conv, _ = case(name)
    norm = warm(activated(6, act, nn.Dropout(0.5))).eval()
    norm.weight.requires_grad_(False)
    assert implementation("conv_batch_norm", x, conv, norm) == "folded"
    runs = []
    for function in (conv_batch_norm, lambda x, conv, norm: norm(conv(x))):
        mine = x.clone().requires_grad_()
        result = function(mine, conv, norm)
        leaves = (mine, *conv.parameters(), norm.bias)
        runs.append((result.detach(), *torch.autograd.grad(result.square().sum(), leaves)))
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    norm.drop.train()
    torch.manual_seed(0)
    dropped = conv_batch_norm(x, conv, norm)
    torch.manual_seed(0)
    torch.testing.assert_close(dropped, norm(conv(x)), rtol=1e-4, atol=1e-4)
    norm.train().requires_grad_().drop.p = 0.0
    assert_bits_equal(x, conv, norm)


@torch.no_grad()
def test_members_of_another_class_of_that_name_are_not_called(
    activated: type[BatchNormAct2d],
) -> None:
    x, conv, _ = case("2d")
    for norm_class in (
        type("BatchNormAct2d", (activated,), {}),
        type("Other", (activated,), {"__module__": "timm.layers"}),
    ):
        norm = warm(norm_class(6, nn.ReLU())).eval()
        assert implementation("conv_batch_norm", x, conv, norm) == "reference"
        assert torch.equal(conv_batch_norm(x, conv, norm), norm(conv(x)))


@torch.no_grad()
def test_a_patched_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x, conv, norm = case("2d")
    monkeypatch.setattr(nn.BatchNorm2d, "forward", lambda _self, x: x)
    assert torch.equal(conv_batch_norm(x, conv, norm), conv(x))


# Compilers


class Model(nn.Module):
    """A model with both ops."""

    def __init__(self) -> None:
        super().__init__()
        _, self.conv, self.norm = case("2d")
        self.linear, self.flat = nn.Linear(6, 8), nn.BatchNorm1d(8)

    def forward(self, x: Any) -> Any:
        x = conv_batch_norm(x, self.conv, self.norm).relu().flatten(2).mean(-1)
        return linear_batch_norm(x, self.linear, self.flat)


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
    model, x = Model().train(training), case("2d")[0]
    duplicate = copy.deepcopy(model)
    expected = model(x)
    torch.testing.assert_close(
        torch.compile(duplicate, fullgraph=True, backend=backend)(x), expected
    )
    for ours, theirs in zip(duplicate.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("strict", [True, False])
def test_models_export(strict: bool) -> None:
    model, x = Model().eval(), case("2d")[0]
    program = torch.export.export(model, (x,), strict=strict)
    torch.testing.assert_close(program.module()(x), model(x))


@torch.no_grad()
def test_traced_models_hold_both_layers() -> None:
    model, x = Model().eval(), case("2d")[0]
    traced = torch.jit.trace(model, (x,))
    assert "batch_norm" in str(traced.inlined_graph)
    torch.testing.assert_close(traced(x), model(x))


@torch.no_grad()
def test_references_are_the_composition() -> None:
    x, conv, norm = case("2d")
    assert torch.equal(ops.REFERENCES["conv_batch_norm"](x, conv, norm), norm(conv(x)))
    x, linear, norm = linear_case()
    assert torch.equal(ops.REFERENCES["linear_batch_norm"](x, linear, norm), norm(linear(x)))
