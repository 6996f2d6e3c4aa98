"""Test that ops honour what is changed after their first call: hooks, parametrizations, classes and
modes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.overrides import TorchFunctionMode, resolve_name  # noqa: E402

from regraft import ops  # noqa: E402

X = torch.randn(2, 6, 8)
TARGETS = torch.tensor([0, 3, 1, 2, 7, 5])
MANY_TARGETS = torch.arange(360) % 16
WEIGHT = torch.linspace(0.5, 1.5, 8)


class Layers(nn.Module):
    """The layers that ops take."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.conv, self.norm1d, self.rows = nn.Conv1d(6, 6, 1), nn.BatchNorm1d(6), nn.BatchNorm1d(8)
        self.layer_norm, self.rms_norm = nn.LayerNorm(8), nn.RMSNorm(8)
        self.group_norm = nn.GroupNorm(2, 6)
        self.gelu, self.silu, self.softmax = nn.GELU(), nn.SiLU(), nn.Softmax(-1)
        self.dropout, self.loss = nn.Dropout(0.1), nn.CrossEntropyLoss()
        self.head = nn.Linear(8, 16)
        self.attended = nn.MultiheadAttention(8, 2)
        self.container = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        self.lstm_cell = nn.LSTMCell(8, 8)
        self.unfold = nn.Unfold((2, 4), padding=(1, 0))


# op → the layers that it takes, and its call
MODULE_OPS: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "add_rms_norm": (("rms_norm",), lambda m: ops.add_rms_norm(X, X, m.rms_norm)),
    "apex_layer_norm": (("layer_norm",), lambda m: ops.apex_layer_norm(X, m.layer_norm)),
    "attention": (
        ("dropout",),
        lambda m: ops.attention(X, X, X, scale=0.5, dropout=m.dropout),
    ),
    "attention_without_weights": (
        ("attended",),
        lambda m: ops.attention_without_weights(X, X, X, m.attended)[0],
    ),
    "conv_batch_norm": (("conv", "norm1d"), lambda m: ops.conv_batch_norm(X, m.conv, m.norm1d)),
    "conv_of_patches": (
        ("conv",),
        lambda m: ops.conv_of_patches(X[..., :1].contiguous(), m.conv),
    ),
    "cross_entropy": (("loss",), lambda m: ops.cross_entropy(X[0], TARGETS, layer=m.loss)),
    "dropout_add_layer_norm": (
        ("layer_norm", "dropout"),
        lambda m: ops.dropout_add_layer_norm(X, X, m.layer_norm, m.dropout),
    ),
    "gated_activation": (("silu",), lambda m: ops.gated_activation(X, X, m.silu)),
    "gated_linear": (("q", "k", "silu"), lambda m: ops.gated_linear(X, m.q, m.k, m.silu)),
    "group_norm": (("group_norm",), lambda m: ops.group_norm(X, m.group_norm)),
    "layer_norm": (("layer_norm",), lambda m: ops.layer_norm(X, m.layer_norm)),
    "linear_at": (("q",), lambda m: ops.linear_at(X, m.q, -1)),
    "linear_batch_norm": (("q", "rows"), lambda m: ops.linear_batch_norm(X[0], m.q, m.rows)),
    "linear_cross_entropy": (
        ("head", "loss"),
        lambda m: ops.linear_cross_entropy(
            X.reshape(-1, 8).repeat(30, 1), MANY_TARGETS, m.head, layer=m.loss
        ),
    ),
    "linear_gelu": (("q", "gelu"), lambda m: ops.linear_gelu(X, m.q, m.gelu)),
    "linear_of_parts": (
        ("container.0",),
        lambda m: ops.linear_of_parts([ops.expanded_part(X[:, :1], X.shape)], m.container),
    ),
    "linear_qkv": (("q", "k", "v"), lambda m: ops.linear_qkv(X, m.q, m.k, m.v)),
    "recurrent_steps": (
        ("lstm_cell",),
        lambda m: ops.recurrent_steps(X, m.lstm_cell, 1)(0, (X[:, 1], X[:, 2]))[0],
    ),
    "row_softmax": (("softmax",), lambda m: ops.row_softmax(X, layer=m.softmax)),
    "sequential": (("container.0", "container.1"), lambda m: ops.sequential(X, m.container)),
    "softmax": (("softmax",), lambda m: ops.softmax(X, layer=m.softmax)),
    "unfold_conv": (
        ("unfold",),
        lambda m: ops.unfold_conv(X[:, None], m.q.weight, layer=m.unfold),
    ),
    "unfold_einsum": (
        ("unfold",),
        lambda m: ops.unfold_einsum("oi,bil->blo", X[:, None], m.q.weight, layer=m.unfold),
    ),
    "unfold_linear": (
        ("unfold", "q"),
        lambda m: ops.unfold_linear(X[:, None], None, layer=m.unfold, linear=m.q),
    ),
}
PLACES = [(op, layer) for op, (layers, _) in MODULE_OPS.items() for layer in layers]


def negated(result: Any) -> Any:
    """Return a result that no layer gives by itself."""
    if isinstance(result, tuple):
        return (negated(result[0]), *result[1:])
    return -3 - result


def own_forward(module: Any) -> None:
    """Replace the forward of an instance."""
    forward = module.forward
    module.forward = lambda *arguments: negated(forward(*arguments))


def subclass(module: Any) -> None:
    """Make a module one of a subclass with a forward of its own."""
    base = type(module)

    def forward(self: Any, *arguments: Any) -> Any:
        return negated(base.forward(self, *arguments))

    module.__class__ = type(f"Other{base.__name__}", (base,), {"forward": forward})


CHANGES: dict[str, Callable[[Any], Any]] = {
    "forward hook": lambda m: m.register_forward_hook(lambda _m, _a, result: negated(result)),
    "forward pre-hook": lambda m: m.register_forward_pre_hook(
        lambda _m, args: (args[0] * 2 + 1, *args[1:])
    ),
    "own forward": own_forward,
    "subclass": subclass,
}


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for small tensors, too."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


def tensors_of(result: Any) -> tuple[Any, ...]:
    """Return the tensors of a result."""
    return result if isinstance(result, tuple) else (result,)


def called_as_composition(
    name: str, call: Callable[[Any], Any], layers: Any, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Return the result of a call with the composition in the place of the op."""
    with monkeypatch.context() as patch:
        patch.setattr(ops, name, ops.REFERENCES[name])
        return call(layers)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(("name", "layer"), PLACES)
def test_a_layer_may_change_after_the_first_call(
    name: str, layer: str, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, call = Layers().eval(), MODULE_OPS[name][1]
    with torch.no_grad():
        first = call(layers)
        change(layers.get_submodule(layer))
        result = call(layers)
        expected = called_as_composition(name, call, layers, monkeypatch)
        torch.testing.assert_close(result, expected)
    pairs = zip(tensors_of(first), tensors_of(result), strict=True)
    assert not all(torch.equal(before, after) for before, after in pairs)


@pytest.mark.parametrize(("name", "layer"), PLACES)
def test_a_backward_hook_may_come_after_the_first_call(name: str, layer: str) -> None:
    layers, call, seen = Layers().eval(), MODULE_OPS[name][1], []
    inputs = X.clone().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "X", inputs)
        call(layers)
        layers.get_submodule(layer).register_full_backward_hook(lambda *_: seen.append(layer))
        sum(result.sum() for result in tensors_of(call(layers))).backward()
    assert seen == [layer]


@pytest.mark.parametrize(("name", "layer"), PLACES)
def test_a_global_hook_may_come_after_the_first_call(name: str, layer: str) -> None:
    layers, call, seen = Layers().eval(), MODULE_OPS[name][1], []
    with torch.no_grad():
        call(layers)
        handle = nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append(m))
        try:
            call(layers)
        finally:
            handle.remove()
    assert layers.get_submodule(layer) in seen


@pytest.mark.parametrize(
    "name", [name for name, (layers, _) in MODULE_OPS.items() if "q" in layers]
)
def test_a_parametrization_may_come_after_the_first_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, call = Layers().eval(), MODULE_OPS[name][1]
    with torch.no_grad():
        call(layers)
        nn.utils.parametrize.register_parametrization(layers.q, "weight", nn.Tanh())
        expected = called_as_composition(name, call, layers, monkeypatch)
        torch.testing.assert_close(call(layers), expected)


@pytest.mark.parametrize(("name", "layer"), PLACES)
def test_a_class_may_be_patched_after_the_first_call(
    name: str, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, call, seen = Layers().eval(), MODULE_OPS[name][1], []
    kind = type(layers.get_submodule(layer))
    original = kind.forward

    @functools.wraps(original)
    def forward(self: Any, *arguments: Any) -> Any:
        seen.append(self)
        return original(self, *arguments)

    with torch.no_grad():
        call(layers)
        monkeypatch.setattr(kind, "forward", forward)
        call(layers)
    assert layers.get_submodule(layer) in seen


STATELESS: dict[str, Callable[[Any], Any]] = {
    "channels_first_layer_norm": lambda x: ops.channels_first_layer_norm(
        x.mT.contiguous().mT, eps=1e-6
    ),
    "between_diagonals": lambda x: ops.between_diagonals(WEIGHT[:6], x[0, :, :6]),
    "diagonal_matmul": lambda x: ops.diagonal_matmul(WEIGHT[:6], x[0]),
    "diagonals_matmul": lambda x: ops.diagonals_matmul(x[..., 0], x),
    "distances": lambda x: ops.distances(x[:, :, None], x[:, None], -1),
    "expanded_heads": lambda x: F.scaled_dot_product_attention(
        torch.cat([x[None]] * 3, 1), *(ops.expanded_heads(x[None], 3, 1),) * 2
    ),
    "interleaved_rotary": lambda x: ops.interleaved_rotary(x, x[0], x[1]),
    "length_normalize": lambda x: ops.length_normalize(x, -1, minimum=1e-6, weight=WEIGHT),
    "matmul_diagonal": lambda x: ops.matmul_diagonal(x[0], WEIGHT),
    "matmul_diagonals": lambda x: ops.matmul_diagonals(x, x[:, 0]),
    "one_hot_matmul": lambda x: ops.one_hot_matmul(TARGETS, 8, x[0].mT @ x[0], torch.float32),
    "one_hot_rows": lambda x: ops.one_hot_rows(torch.eye(8)[TARGETS], x[0].mT @ x[0]),
    "one_hot_select": lambda x: ops.one_hot_select(x[0], TARGETS, 8),
    "pairwise_cosine": lambda x: ops.pairwise_cosine(x[:, :, None], x[:, None], -1),
    "pairwise_product": lambda x: ops.pairwise_product(x[:, :, None], x[:, None], -1),
    "postponed_matmul": lambda x: torch.softmax(ops.postponed_matmul(x, x.mT), -1) @ x,
    "product_diagonal": lambda x: ops.product_diagonal(x[0], x[0].mT),
    "product_trace": lambda x: ops.product_trace(x[0], x[0].mT),
    "gated_halves": lambda x: ops.gated_halves(x, -1) + 0,
    "quick_gelu": lambda x: ops.quick_gelu(x) + 0,
    "repeated_heads": lambda x: F.scaled_dot_product_attention(
        torch.cat([x[None]] * 3, 1), *(ops.repeated_heads(x[None], 3, 1),) * 2
    ),
    "rms_normalize": lambda x: ops.rms_normalize(x, 1e-6, weight=WEIGHT, casting="rounded"),
    "rolled_rotary": lambda x: ops.rolled_rotary(x, x[0], x[1]),
    "rotated_pairs": lambda x: ops.rotated_pairs(x, x, x[0], x[1]),
    "rounded_softmax": lambda x: ops.rounded_softmax(x.bfloat16(), -1, torch.bfloat16),
    "smoothed_select": lambda x: ops.smoothed_select(
        x[0], TARGETS, 1, classes=8, dtype=torch.float32, scale=0.9, offset=0.1
    ),
    "sorted_head": lambda x: ops.sorted_head(x, 3, -1),
    "sorted_indices": lambda x: ops.sorted_indices(x, 3, -1),
    "squared_distances": lambda x: ops.squared_distances(x[:, :, None], x[:, None], -1),
    "standard_deviation": lambda x: ops.standard_deviation(x, 1),
    "standardize": lambda x: ops.standardize(x, 1e-6),
    "standardize_along": lambda x: ops.standardize_along(x, (1, 2), 1e-6),
    "variance": lambda x: ops.variance(x, 1),
    "variance_and_mean": lambda x: ops.variance_and_mean(x, 1)[0],
}
# What tells the shape or the kind of a tensor, which ops ask for as they like.
QUESTIONS = ("__get__", "dim", "numel", "size", "stride", "is_complex", "is_floating_point")


class Recorder(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """A mode that notes the functions that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[str] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.__name__ not in (*QUESTIONS, "is_contiguous"):
            self.functions.append(resolve_name(function) or str(function))
        return function(*args, **(kwargs or {}))


def functions_of(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return the result of a call, and the functions that a mode sees in it."""
    with torch.no_grad(), Recorder() as recorder:
        result = call()
    return result, recorder.functions


@pytest.mark.parametrize("name", [*STATELESS, *MODULE_OPS])
def test_a_mode_sees_the_functions_of_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = Layers().eval()
    call = (
        functools.partial(STATELESS[name], X)
        if name in STATELESS
        else functools.partial(MODULE_OPS[name][1], layers)
    )
    with torch.no_grad():
        call()
    result, functions = functions_of(call)
    monkeypatch.setattr(ops, name, ops.REFERENCES[name])
    expected, expected_functions = functions_of(call)
    assert functions == expected_functions
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


class Tagged(torch.Tensor):  # type: ignore[name-defined]
    """A subclass of tensors, whose functions give tensors of the same class."""


@pytest.mark.parametrize("name", [*STATELESS, "attention"])
def test_subclasses_of_tensors_get_the_composition(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = STATELESS | {"attention": lambda x: ops.attention(x, x, x, scale=0.5)}
    x = X.clone().as_subclass(Tagged)
    with torch.no_grad():
        calls[name](X)
        result = calls[name](x)
        monkeypatch.setattr(ops, name, ops.REFERENCES[name])
        expected = calls[name](x)
    assert type(result) is type(expected)
    torch.testing.assert_close(result.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor))


def test_a_default_device_changes_nothing() -> None:
    queries = torch.randn(2, 4, 8)
    with torch.device("cpu"):
        assert ops.implementation("attention", queries, queries, queries) == "torch-native"
        assert ops.implementation("rolled_rotary", X, X[0], X[1]) == "torch-native"
        _, functions = functions_of(lambda: F.softmax(X, -1))
    assert functions
