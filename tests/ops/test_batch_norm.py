"""Test batch normalisation after a convolution or a Linear layer: it is folded or the composition
runs, and the result stays."""

from __future__ import annotations

import copy
import importlib
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def scaled_copy(module: Any) -> dict[str, Any]:
    """Return a state of a module in which every floating tensor is another one."""
    return {
        name: tensor * 1.5 + 0.25 if tensor.is_floating_point() else tensor
        for name, tensor in module.state_dict().items()
    }


def step(kind: Callable[..., Any], **options: Any) -> Callable[[Any, Any], None]:
    """Return a function that takes one step of an optimizer of all parameters."""

    def update(layer: Any, norm: Any) -> None:
        parameters = [*layer.parameters(), *norm.parameters()]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        kind(parameters, lr=0.3, **options).step()

    return update


def by_numpy(tensor: Any) -> None:
    """Change a tensor through a NumPy array of its memory."""
    array = tensor.detach().numpy()
    array *= 3


def to_double_and_back(layer: Any, norm: Any) -> None:
    layer.double(), norm.double()
    layer.weight.data.mul_(2)
    layer.float(), norm.float()


def swap_parameter(layer: Any, norm: Any) -> None:
    layer.weight = nn.Parameter(layer.weight.detach() * 2)
    norm.running_mean = norm.running_mean + 1


def share_memory(layer: Any, norm: Any) -> None:
    other = torch.from_numpy(layer.weight.detach().numpy())
    other.add_(1)


def train_once(layer: Any, norm: Any) -> None:
    """Let the normalisation see a batch in training mode, which changes its statistics."""
    norm.train()(torch.randn(7, norm.num_features, *[5] * (layer.weight.dim() - 2)) * 4 + 1)
    norm.eval()


UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "load_state_dict": lambda m, n: (
        m.load_state_dict(scaled_copy(m)),
        n.load_state_dict(scaled_copy(n)),
    ),
    "load_state_dict, assigned": lambda m, n: (
        m.load_state_dict(scaled_copy(m), assign=True),
        n.load_state_dict(scaled_copy(n), assign=True),
    ),
    "statistics in place": lambda m, n: (n.running_mean.add_(3), n.running_var.mul_(2)),
    "statistics by data": lambda m, n: (n.running_mean.data.add_(3), n.running_var.data.mul_(2)),
    "statistics by NumPy": lambda m, n: by_numpy(n.running_var),
    "reset statistics": lambda m, n: n.reset_running_stats(),
    "a batch in training": train_once,
    "another epsilon": lambda m, n: setattr(n, "eps", 0.5),
    "assigned data": lambda m, n: setattr(m.weight, "data", m.weight.detach() * 2),
    "data in place": lambda m, n: (m.weight.data.mul_(2), n.weight.data.add_(1)),
    "data of the bias": lambda m, n: (m.bias.data.add_(1), n.bias.data.add_(1)),
    "a row in place": lambda m, n: m.weight[0].zero_(),
    "a row of data in place": lambda m, n: m.weight.data[0].zero_(),
    "foreach": lambda m, n: torch._foreach_mul_([m.weight, n.weight, n.running_var], 2),
    "foreach on data": lambda m, n: torch._foreach_mul_([m.weight.data, n.weight.data], 2),
    "NumPy": lambda m, n: by_numpy(m.weight),
    "memory shared with NumPy": share_memory,
    "SGD": step(torch.optim.SGD),
    "SGD, foreach": step(torch.optim.SGD, foreach=True),
    "Adam, fused": step(torch.optim.Adam, fused=True),
    "another dtype and back": to_double_and_back,
    "another parameter": swap_parameter,
    "initialisation": lambda m, n: nn.init.normal_(m.weight),
    "vector_to_parameters": lambda m, n: nn.utils.vector_to_parameters(
        torch.randn(m.weight.numel()), [m.weight]
    ),
    "inference mode": lambda m, n: torch.inference_mode()(lambda: m.weight.mul_(2))(),
}


def layer_case(name: str) -> tuple[Any, Any, Any]:
    """Return the case of a convolution, or of the Linear layer."""
    return linear_case() if name == "linear" else case(name)


def folded_result(x: Any, layer: Any, norm: Any) -> Any:
    """Return the result of the op, which folds."""
    name, op = op_of(layer)
    assert implementation(name, x, layer, norm) == "folded"
    return op(x, layer, norm)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("name", ["2d", "transposed, grouped", "linear"])
def test_folded_weights_are_never_stale(name: str, update: Callable[[Any, Any], Any]) -> None:
    x, layer, norm = layer_case(name)
    with torch.no_grad():
        before = folded_result(x, layer, norm)
        update(layer, norm)
        after = folded_result(x, layer, norm)
        torch.testing.assert_close(after, norm(layer(x)))
        assert not torch.allclose(before, after)


@pytest.mark.parametrize("name", ["2d", "linear"])
def test_a_call_folds_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, layer, norm = layer_case(name)
    file, calls = importlib.import_module(f"regraft.ops.{op_of(layer)[0]}"), []
    fold = file.scale_and_shift

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return fold(*arguments)

    monkeypatch.setattr(file, "scale_and_shift", counted)
    with torch.no_grad():
        for count in (1, 2, 3):
            folded_result(x, layer, norm)
            assert len(calls) == count


def test_a_fold_follows_modes_and_parametrizations() -> None:
    x, conv, norm = case("2d")
    with torch.no_grad():
        folded_result(x, conv, norm)
        norm.train()
        trained = copy.deepcopy(norm)
        assert torch.equal(conv_batch_norm(x, conv, norm), trained(conv(x)))
        assert torch.equal(norm.running_mean, trained.running_mean)
        norm.eval()
        torch.testing.assert_close(folded_result(x, conv, norm), norm(conv(x)))
        nn.utils.parametrize.register_parametrization(conv, "weight", nn.Tanh())
        assert implementation("conv_batch_norm", x, conv, norm) == "reference"
        assert torch.equal(conv_batch_norm(x, conv, norm), norm(conv(x)))
        nn.utils.parametrize.remove_parametrizations(conv, "weight")
        torch.testing.assert_close(folded_result(x, conv, norm), norm(conv(x)))
    norm.requires_grad_(False)
    folded_result(x, conv, norm)
    norm.requires_grad_(True)
    assert implementation("conv_batch_norm", x, conv, norm) == "reference"


def test_copies_and_pickles_fold_their_own_parameters() -> None:
    x, conv, norm = case("2d")
    with torch.no_grad():
        folded_result(x, conv, norm)
        for copied in (copy.deepcopy((conv, norm)), pickle.loads(pickle.dumps((conv, norm)))):
            copied[0].weight.data.mul_(2)
            torch.testing.assert_close(folded_result(x, *copied), copied[1](copied[0](x)))
        torch.testing.assert_close(folded_result(x, conv, norm), norm(conv(x)))


class Block(nn.Module):
    """A convolution with its normalisation, by the op."""

    def __init__(self, conv: Any, norm: Any) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x: Any) -> Any:
        return conv_batch_norm(x, self.conv, self.norm)


def test_functional_calls_and_stacked_parameters_are_folded_as_given() -> None:
    x, conv, norm = case("2d")
    block = Block(conv, norm)
    states = [dict(block.state_dict()), scaled_copy(block)]
    stacked = {
        name: torch.stack([state[name] for state in states])
        for name, tensor in states[0].items()
        if tensor.is_floating_point()
    }
    with torch.no_grad():
        block(x)
        expected = []
        for state in states:
            mine = copy.deepcopy(block)
            mine.load_state_dict(state)
            expected.append(mine.norm(mine.conv(x)))
            torch.testing.assert_close(torch.func.functional_call(block, state, (x,)), expected[-1])
        results = torch.vmap(lambda state: torch.func.functional_call(block, state, (x,)))(stacked)
    torch.testing.assert_close(results, torch.stack(expected))


def test_threads_fold_what_they_are_given() -> None:
    cases = [(x, layer, norm) for x, layer, norm in map(layer_case, ("2d", "no bias", "linear"))]

    def is_right(number: int) -> bool:
        x, layer, norm = copy.deepcopy(cases[number % len(cases)])
        with torch.no_grad():
            layer.weight.data.mul_(1 + number / 8)
            return torch.allclose(
                folded_result(x, layer, norm), norm(layer(x)), rtol=1e-4, atol=1e-4
            )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_right, range(48)))
