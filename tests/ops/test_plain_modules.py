"""Test that no user's change of a module after construction is bypassed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft.ops import dropout_add_layer_norm, implementation, is_gelu, linear_gelu  # noqa: E402
from regraft.ops.activation_recognition import activation_kind  # noqa: E402
from regraft.ops.plain import is_plain  # noqa: E402

X = torch.randn(3, 8)


class Louder(nn.LayerNorm):
    """A layer normalisation with a forward of its own."""

    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


class LowRank(nn.Module):
    """A LoRA-like wrapper, with the attributes of what it wraps."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.down, self.up = (
            base,
            nn.Linear(8, 2, bias=False),
            nn.Linear(2, 4, bias=False),
        )
        self.weight, self.bias = base.weight, base.bias

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


def own_forward(module: Any) -> None:
    """Replace the forward of an instance."""
    original = module.forward
    module.forward = lambda x: original(x) + 1


CHANGES: dict[str, Callable[[Any], Any]] = {
    "forward hook": lambda m: m.register_forward_hook(lambda _m, _a, output: output + 1),
    "forward pre-hook": lambda m: m.register_forward_pre_hook(lambda _m, args: (args[0] + 1,)),
    "backward hook": lambda m: m.register_full_backward_hook(lambda _m, _i, _o: None),
    "backward pre-hook": lambda m: m.register_full_backward_pre_hook(lambda _m, _o: None),
    "own forward": own_forward,
    "own compiled call": lambda m: m.compile(backend="eager"),
    "parametrization": lambda m: nn.utils.parametrize.register_parametrization(
        m, "weight", nn.Tanh()
    ),
    "weight norm": lambda m: (
        nn.utils.parametrizations.weight_norm(m) if isinstance(m, nn.Linear) else own_forward(m)
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_modules_are_called(change: Callable[[Any], Any]) -> None:
    norm, linear = nn.LayerNorm(8), nn.Linear(8, 4)
    with torch.no_grad():
        norm.weight.uniform_(1, 3)
    assert is_plain(norm, nn.LayerNorm)
    assert is_plain(linear, nn.Linear)
    change(norm)
    change(linear)
    assert implementation("dropout_add_layer_norm", X, X, norm) == "reference"
    assert implementation("linear_gelu", X, linear) == "reference"
    assert torch.equal(dropout_add_layer_norm(X, X, norm, p=0.1, training=False), norm(X + X))
    assert torch.equal(linear_gelu(X, linear), F.gelu(linear(X)))


def test_hooks_fire_once_a_call() -> None:
    norm, linear, dropout, gelu, calls = (
        nn.LayerNorm(8),
        nn.Linear(8, 4),
        nn.Dropout(0.1),
        nn.GELU(),
        [],
    )
    for module in (norm, linear, dropout, gelu):
        module.register_forward_hook(lambda module, *_: calls.append(module))
    dropout_add_layer_norm(X, X, norm, dropout)
    linear_gelu(X, linear, gelu)
    assert calls == [dropout, norm, linear, gelu]


def test_subclasses_and_wrappers_are_called() -> None:
    norm, linear = Louder(8), LowRank(nn.Linear(8, 4))
    assert implementation("dropout_add_layer_norm", X, X, norm) == "reference"
    assert implementation("linear_gelu", X, linear) == "reference"
    assert torch.equal(dropout_add_layer_norm(X, X, norm, p=0.1, training=False), norm(X + X))
    assert torch.equal(linear_gelu(X, linear), F.gelu(linear(X)))


@pytest.mark.parametrize("layer", [nn.Identity(), nn.Dropout1d(1.0), nn.ReLU()], ids=type)
def test_replaced_dropouts_and_activations_are_called(layer: nn.Module) -> None:
    norm, linear = nn.LayerNorm(8), nn.Linear(8, 4)
    assert implementation("dropout_add_layer_norm", X, X, norm, layer) == "reference"
    assert implementation("linear_gelu", X, linear, layer) == "reference"
    assert torch.equal(dropout_add_layer_norm(X, X, norm, layer), norm(layer(X) + X))
    assert torch.equal(linear_gelu(X, linear, layer), layer(linear(X)))


def test_callables_that_are_no_modules_are_called() -> None:
    assert torch.equal(linear_gelu(X, lambda x: x * 2), F.gelu(X * 2))


def test_global_hooks_are_seen() -> None:
    linear, calls = nn.Linear(8, 4), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: calls.append(module))
    try:
        assert not is_plain(linear, nn.Linear)
        linear_gelu(X, linear)
    finally:
        handle.remove()
    assert calls == [linear]
    assert is_plain(linear, nn.Linear)


def test_a_patched_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.LayerNorm, "forward", lambda _self, x: x)
    norm = nn.LayerNorm(8)
    assert not is_plain(norm, nn.LayerNorm)
    assert torch.equal(dropout_add_layer_norm(X, X, norm, p=0.1, training=False), X + X)


def test_parameters_of_another_kind_are_seen() -> None:
    class Sharded(nn.Parameter):
        pass

    linear = nn.Linear(8, 4)
    linear.weight = Sharded(linear.weight.data)
    assert not is_plain(linear, nn.Linear)


@pytest.mark.parametrize(
    ("owner", "name"), [(nn.Linear, "forward"), (nn.Module, "__call__"), (nn.Linear, "__call__")]
)
def test_a_class_patched_by_a_wrapper_is_not_plain(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = nn.Linear(8, 8)
    assert is_plain(layer, nn.Linear)
    original = getattr(owner, name)

    @functools.wraps(original)
    def patched(self: Any, x: Any) -> Any:
        return original(self, x) + 1

    monkeypatch.setattr(owner, name, patched)
    assert not is_plain(layer, nn.Linear)


@pytest.mark.parametrize("layer", [nn.GELU(), nn.GELU("tanh"), nn.SiLU()], ids=repr)
def test_a_patched_activation_is_not_known(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_gelu(layer) or activation_kind(layer)
    monkeypatch.setattr(type(layer), "forward", lambda _, x: x + 1)
    assert not is_gelu(layer)
    assert not activation_kind(layer)
