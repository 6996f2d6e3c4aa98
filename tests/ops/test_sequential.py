"""Test a Sequential whose neighbours are fused: its results are those of its call, and nothing that
a user does to it or to its modules is bypassed."""

from __future__ import annotations

import copy
import io
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.ops import implementation, sequential  # noqa: E402
from regraft.rewriting.sequential_rewriting import FUSED  # noqa: E402

FILE: Any = sys.modules[sequential.__module__]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold small inputs, too."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


class Doubled(nn.Sequential):
    """A container with a forward of its own."""

    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


class Doubling(nn.Linear):
    """A Linear layer with a forward of its own."""

    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


def warm(container: Any) -> Any:
    """Give the normalisations in a container statistics that are not those of new layers, and set
    evaluation."""
    for module in container.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.running_mean, -2, 2)
            nn.init.uniform_(module.running_var, 0.1, 3)
    return container.eval()


def stem() -> Any:
    """Return a container of convolutions with normalisations, one of them inside another."""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.BatchNorm2d(6), nn.GELU())
    container = nn.Sequential(
        nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 6, 1)
    )
    container.append(inner)
    return warm(container)


def mlp() -> Any:
    """Return a container with Linear layers, activations and a normalisation."""
    torch.manual_seed(0)
    return warm(
        nn.Sequential(
            OrderedDict(
                before=nn.LayerNorm(8),
                up=nn.Linear(8, 16),
                act=nn.GELU(),
                drop=nn.Dropout(0.5),
                down=nn.Linear(16, 8),
                norm=nn.BatchNorm1d(8),
            )
        )
    )


CONTAINERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "stem": (stem, (2, 8, 7, 5)),
    "mlp": (mlp, (5, 8)),
}


def case(name: str) -> tuple[Any, Any]:
    """Return a container and an input for it."""
    make, shape = CONTAINERS[name]
    return make(), torch.randn(shape, generator=torch.Generator().manual_seed(1))


def results(function: Callable[[Any, Any], Any], x: Any, container: Any) -> list[Any]:
    """Return the result of a call on copies, the gradients of input and parameters, and the
    buffers."""
    mine, container = x.clone().requires_grad_(), copy.deepcopy(container)
    torch.manual_seed(2)
    result = function(mine, container)
    leaves = [mine, *(leaf for leaf in container.parameters() if leaf.requires_grad)]
    gradients = torch.autograd.grad(result.square().sum(), leaves)
    return [result.detach(), *gradients, *container.buffers()]


def assert_bits_equal(x: Any, container: Any) -> None:
    """Assert that results, gradients and statistics are those of the call, bit for bit."""
    runs = (
        results(function, x, container) for function in (sequential, lambda x, module: module(x))
    )
    for ours, theirs in zip(*runs, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", CONTAINERS)
def test_fused_neighbours_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    container, x = case(name)
    assert implementation("sequential", x, container) == "fused"
    fused: list[str] = []

    def recorded(op: str) -> Callable[..., Any]:
        wrapped = getattr(ops, op)

        def call(*arguments: Any) -> Any:
            fused.append(op)
            return wrapped(*arguments)

        return call

    for op in ("conv_batch_norm", "linear_batch_norm", "linear_gelu"):
        monkeypatch.setattr(FILE, op, recorded(op))
    with torch.no_grad():
        torch.testing.assert_close(sequential(x, container), container(x))
    expected = {"stem": ["conv_batch_norm"] * 2, "mlp": ["linear_gelu", "linear_batch_norm"]}
    assert fused == expected[name]


@pytest.mark.parametrize("name", CONTAINERS)
def test_training_is_the_call(name: str) -> None:
    container, x = case(name)
    assert_bits_equal(x, container.train())


@pytest.mark.parametrize("name", CONTAINERS)
def test_gradients_in_evaluation(name: str) -> None:
    container, x = case(name)
    container.double()
    for module in container.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.weight.requires_grad_(False)
    runs = (
        results(function, x.double(), container)
        for function in (sequential, lambda x, module: module(x))
    )
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_number_formats_and_autocast(name: str, dtype: Any) -> None:
    container, x = case(name)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(sequential(x, container), container(x))
    ours, theirs = sequential(x.to(dtype), container.to(dtype)), container(x.to(dtype))
    assert ours.dtype == theirs.dtype == dtype
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_members_modes_count_and_not_the_containers(name: str) -> None:
    container, x = case(name)
    for module in container.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    assert_bits_equal(x, container)


def test_a_batch_of_none() -> None:
    container, x = case("stem")
    with torch.no_grad():
        assert sequential(x[:0], container).shape == container(x[:0]).shape


def test_errors_are_those_of_the_call() -> None:
    container, x = case("mlp")
    for wrong in (x[:, :3], x[None], x.long()):
        with pytest.raises((RuntimeError, ValueError)) as theirs:
            container(wrong)
        with pytest.raises(theirs.type) as ours:
            sequential(wrong, container)
        assert str(ours.value) == str(theirs.value)
    with pytest.raises(TypeError):
        sequential(x, None)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "forward hook": lambda m: m.register_forward_hook(lambda _m, _a, output: output + 1),
    "forward pre-hook": lambda m: m.register_forward_pre_hook(lambda _m, args: (args[0] + 1,)),
    "own forward": lambda m: setattr(m, "forward", lambda x: type(m).forward(m, x) + 1),
    "own compiled call": lambda m: m.compile(backend="eager"),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_of_the_container_and_its_members_count(
    name: str, change: Callable[[Any], Any]
) -> None:
    _, x = case(name)
    for position in range(len(list(case(name)[0].modules()))):
        container, _ = case(name)
        change(list(container.modules())[position])
        torch.testing.assert_close(sequential(x, container), container(x))
        if position == 0:
            assert implementation("sequential", x, container) == "reference"
            assert torch.equal(sequential(x, container), container(x))


@pytest.mark.parametrize("name", CONTAINERS)
def test_hooks_fire_once_a_call_in_the_order_of_the_call(name: str) -> None:
    container, x = case(name)
    calls: list[Any] = []
    for module in container.modules():
        module.register_forward_pre_hook(lambda module, _: calls.append(("in", module)))
        module.register_forward_hook(lambda module, *_: calls.append(("out", module)))
        if not getattr(module, "inplace", False) and type(module) is not nn.Conv2d:
            module.register_full_backward_hook(lambda m, *_: calls.append(("back", m)))
    orders = []
    for function in (sequential, lambda x, module: module(x)):
        calls.clear()
        if name == "mlp":
            function(x.clone().requires_grad_(), container).sum().backward()
        else:
            with torch.no_grad():
                function(x, container)
        orders.append(tuple(calls))
    assert orders[0] == orders[1]
    assert len(orders[0]) >= 2 * len(container)


@torch.no_grad()
def test_replaced_members_are_called() -> None:
    container, x = case("mlp")
    weight_normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 16))
    for replacement in (Doubling(8, 16), weight_normed):
        container.up = replacement
        torch.testing.assert_close(sequential(x, container), container(x))
    container[2] = nn.Tanh()
    torch.testing.assert_close(sequential(x, container), container(x))
    del container[2:]
    assert implementation("sequential", x, container) == "reference"
    assert torch.equal(sequential(x, container), container(x))


class Replacing(nn.Module):
    """A module whose call replaces the module after it."""

    def __init__(self, container: Any, successor: Any) -> None:
        super().__init__()
        self.state = (container, successor)

    def forward(self, x: Any) -> Any:
        container, successor = self.state
        container[1] = successor
        return x


@torch.no_grad()
@pytest.mark.parametrize("successor", [nn.Tanh(), nn.Linear(8, 8), nn.Sequential(nn.Tanh())])
def test_a_module_may_replace_its_successor(successor: Any) -> None:
    x = torch.randn(3, 8)
    layers = (nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU())
    results = []
    for call in (sequential, lambda x, container: container(x)):
        container = nn.Sequential(nn.Identity(), *layers)
        container[0] = Replacing(container, successor)
        results.append(call(x, container))
    assert torch.equal(*results)


@torch.no_grad()
def test_a_hook_may_replace_the_successor() -> None:
    container, x = case("mlp")
    up = container.up

    def replace(*_: Any) -> None:
        container.act = nn.Tanh()

    up.register_forward_hook(replace)
    ours = sequential(x, container)
    container.act = nn.GELU()
    torch.testing.assert_close(ours, container(x))


@pytest.mark.parametrize("position", [0, 2, 5])
def test_a_member_that_is_none_is_called(position: int) -> None:
    container, x = case("mlp")
    container[position] = None
    assert implementation("sequential", x, container) == "fused"
    with pytest.raises(TypeError, match="NoneType"):
        sequential(x, container)


@torch.no_grad()
def test_a_stride_may_be_a_number() -> None:
    container, x = case("stem")
    container[0].stride = 2
    torch.testing.assert_close(sequential(x, container), container(x))


@torch.no_grad()
def test_other_modules_are_called() -> None:
    container, x = case("mlp")
    others: list[Any] = [
        Doubled(*container),
        nn.Identity(),
        lambda y: y * 3,
        nn.Sequential(),
        nn.Sequential(Doubled(*container), nn.Tanh()),
    ]
    for module in others:
        assert implementation("sequential", x, module) == "reference"
        assert torch.equal(sequential(x, module), module(x))


def test_the_container_stays_as_it_was() -> None:
    container, x = case("stem")
    before = copy.deepcopy(container)
    with torch.no_grad():
        sequential(x, container)
    file = io.BytesIO()
    torch.save(container.state_dict(), file)
    file.seek(0)
    before.load_state_dict(torch.load(file))
    assert container.state_dict().keys() == before.state_dict().keys()
    assert repr(container) == repr(before)
    assert vars(container).keys() == vars(before).keys()
    assert torch.equal(copy.deepcopy(container)(x), before(x))


class Model(nn.Module):
    """A model with a container, which `call` calls."""

    def __init__(self, container: Any, call: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.container, self.call = container, call

    def forward(self, x: Any) -> Any:
        return self.call(x, self.container)


@pytest.mark.parametrize("name", CONTAINERS)
def test_transformations_of_functions_get_the_call(name: str) -> None:
    container, x = case(name)
    runs = []
    for call in (sequential, lambda x, container: container(x)):
        model = Model(container, call)
        doubled = {key: value * 2 for key, value in model.state_dict().items()}
        runs.append(
            (
                torch.func.functional_call(model, doubled, (x,)),
                torch.func.vmap(lambda row, model=model: model(row[None])[0])(x),
                torch.func.jvp(model, (x,), (x,))[1],
                torch.jit.trace(model, x)(x),
                torch.compile(model, backend="eager", fullgraph=True)(x),
                torch.fx.symbolic_trace(model)(x),
            )
        )
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_results_may_be_written_into() -> None:
    container, x = case("stem")
    container.double()
    del container[4:]
    container.append(nn.BatchNorm2d(6).double().eval().requires_grad_(False))
    container[1].requires_grad_(False)

    def written(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda x, container: call(x, container).mul_(2).relu_()

    runs = [
        results(written(call), x.double(), container)
        for call in (sequential, lambda x, container: container(x))
    ]
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_op_knows_the_kernels_that_the_rewriter_knows() -> None:
    pairs = (
        (nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)),
        (nn.Linear(2, 2), nn.BatchNorm1d(2)),
        (nn.Linear(2, 2), nn.GELU()),
    )
    named = {f"regraft.ops.{FILE._fused_op(*pair).__name__}" for pair in pairs}
    assert named == FUSED
    assert {name.rpartition(".")[2] for name in named} <= ops.REFERENCES.keys()
