"""Test `regraft.optimize`: the instances stay, their methods are replaced, and `restore` puts them
back."""

from __future__ import annotations

import copy
import gc
import importlib.util
import io
import pickle
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.live import DifferentConditions, NothingOptimized  # noqa: E402
from regraft.rules import load_rules  # noqa: E402
from regraft.rules.lock_file import NAME, Lock, pin_rule, write  # noqa: E402

CODE = """\
import functools

import torch
from torch import nn


def weights(scores):
    return torch.softmax(scores, dim=-1)


def logged(method):
    @functools.wraps(method)
    def wrapper(self, *arguments):
        self.calls = self.calls + 1
        return method(self, *arguments)

    return wrapper


class Base(nn.Module):
    def forward(self, x):
        return x * 2


class Block(Base):
    calls = 0

    def __init__(self, d):
        super().__init__()
        self.dense = nn.Linear(d, d)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.LayerNorm(d)

    @logged
    def forward(self, x):
        h = self.dense(x)
        h = self.drop(h)
        h = self.norm(h + x)
        return super().forward(h)


class Wide(Block):
    def forward(self, x):
        return super().forward(x) + 1


class Model(nn.Module):
    def __init__(self, d, kind=Block):
        super().__init__()
        self.blocks = nn.ModuleList(kind(d) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.scores(x)

    def scores(self, x):
        return weights(x)
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[types.ModuleType]:
    """Yield the module of a model's file."""
    path = tmp_path / "live_model.py"
    path.write_text(getattr(request, "param", CODE))
    spec = importlib.util.spec_from_file_location("live_model", path)
    assert spec is not None and spec.loader is not None
    loaded_module = importlib.util.module_from_spec(spec)
    sys.modules["live_model"] = loaded_module
    spec.loader.exec_module(loaded_module)
    yield loaded_module
    del sys.modules["live_model"]


@pytest.fixture
def model(module: types.ModuleType) -> Any:
    """Return a small model in evaluation."""
    torch.manual_seed(0)
    return module.Model(8).eval()


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def optimized(model: Any, **options: Any) -> Any:
    """Optimize a model without verification, by all rules of two packs where none are chosen."""
    if not options.keys() & {"packs", "select", "lock"}:
        options["packs"] = ("adopter", "torch")
    return regraft.optimize(model, verify=False, **options)


def test_the_instances_stay_and_run_the_kernels(model: Any) -> None:
    before, parts, state = model(X), list(model.modules()), list(model.state_dict())
    result = optimized(model)
    assert {change.method: (change.rules, change.modules) for change in result.changes} == {
        "Block.forward": (("adopter/dropout-layernorm",), 2),
        "Model.scores": (("adopter/softmax",), 1),  # it calls a function that was rewritten
    }
    assert list(model.modules()) == parts and list(model.state_dict()) == state
    assert "dropout_add_layer_norm" in type(model.blocks[0]).forward.__wrapped__.__code__.co_names
    torch.testing.assert_close(model(X), before)
    assert model.blocks[0].calls == 2  # the decorator is there
    assert "Block.forward: adopter/dropout-layernorm (2 modules)" in str(result)


def test_names_and_isinstance_stay(model: Any, module: types.ModuleType) -> None:
    shown = repr(model)
    optimized(model)
    assert repr(model) == shown
    assert isinstance(model.blocks[0], module.Block)
    assert type(model.blocks[0]).__qualname__ == "Block"


def test_restore_gives_the_same_bits_and_classes(model: Any, module: types.ModuleType) -> None:
    before = model(X)
    optimized(model)
    regraft.restore(model)
    assert type(model) is module.Model and type(model.blocks[0]) is module.Block
    assert torch.equal(model(X), before)


def test_as_a_context_manager(model: Any, module: types.ModuleType) -> None:
    with optimized(model) as result:
        assert result.changes and type(model) is not module.Model
    assert type(model) is module.Model


def test_other_models_of_the_class_are_left_alone(model: Any, module: types.ModuleType) -> None:
    untouched = module.Model(8)
    optimized(model)
    assert type(untouched) is module.Model and module.weights.__code__.co_filename.endswith(
        "live_model.py"
    )


def test_optimizing_twice_chooses_anew(model: Any) -> None:
    optimized(model)
    result = optimized(model, select=["adopter/softmax"])
    assert [change.method for change in result.changes] == ["Model.scores"]


def test_gradients_hooks_and_optimizer_references(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    hook_calls: list[str] = []
    model.blocks[0].register_forward_hook(lambda *_: hook_calls.append("block"))
    model.blocks[0].drop.register_forward_hook(lambda *_: hook_calls.append("drop"))
    original = copy.deepcopy(model)
    optimized(model)
    for network in (original, model):
        network.zero_grad()
        network(X).square().sum().backward()
    for mine, theirs in zip(model.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    optimizer.step()
    assert hook_calls == ["drop", "block"] * 2


def test_copies_and_pickles(model: Any, module: types.ModuleType) -> None:
    optimized(model)
    copied = copy.deepcopy(model)
    assert (
        type(copied) is type(model)
        and copied.blocks[0].dense.weight is not model.blocks[0].dense.weight
    )
    torch.testing.assert_close(copied(X), model(X))
    twin = copy.copy(model.blocks[0])
    assert type(twin) is type(model.blocks[0]) and twin.dense is model.blocks[0].dense
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.warns(UserWarning, match="call regraft.optimize on the loaded model") as warned:
            loaded = pickle.loads(pickle.dumps(model, protocol))
        assert len(warned) == 1
        assert type(loaded) is module.Model and type(loaded.blocks[0]) is module.Block
        torch.testing.assert_close(loaded(X), model(X))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with pytest.warns(UserWarning, match="call regraft.optimize on the loaded model"):
        loaded = torch.load(file, weights_only=False)
    assert type(loaded) is module.Model and type(loaded.blocks[0]) is module.Block
    optimized(loaded)
    assert type(loaded) is not module.Model
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    module.Model(8).load_state_dict(torch.load(file), strict=True)


def test_tracebacks_show_the_rewritten_lines(model: Any) -> None:
    optimized(model)
    with pytest.raises(RuntimeError) as caught:
        model(torch.randn(3, 7))
    model.blocks[0].norm.normalized_shape = (3,)
    with pytest.raises(RuntimeError) as inner:
        model(X)
    text = "".join(traceback.format_exception(inner.value))
    assert "dropout_add_layer_norm(h, x, self.norm, self.drop)" in text
    assert "h = self.dense(x)" in "".join(traceback.format_exception(caught.value))


def test_methods_of_a_base_class(module: types.ModuleType) -> None:
    model = module.Model(8, module.Wide).eval()
    result = optimized(model)
    assert [change.method for change in result.changes] == ["Model.scores"]
    assert any("Wide has another one" in place.reason for place in result.unchanged)


def test_methods_replaced_at_run_time_are_left(model: Any, module: types.ModuleType) -> None:
    module.Block.forward = lambda self, x: x
    model.scores = lambda x: x
    with pytest.warns(NothingOptimized, match="something has replaced it"):
        result = optimized(model)
    assert {place.reason for place in result.unchanged} == {
        "something has replaced it since its file was read",
        "this module has one of its own",
    }
    assert torch.equal(model(X), X)


def test_a_file_that_has_changed_since_is_left(model: Any, module: types.ModuleType) -> None:
    path = Path(str(module.__file__))
    path.write_text(path.read_text().replace("x * 2", "x * 3").replace("dim=-1", "dim=1"))
    with pytest.warns(NothingOptimized):
        result = optimized(model, select=["adopter/softmax"])
    assert not result.changes


def test_nothing_to_do_is_said() -> None:
    with pytest.warns(NothingOptimized, match="no rule matches"):
        assert optimized(nn.Sequential(nn.Linear(2, 2))).changes == []


@pytest.mark.parametrize("select", ["adopter/sofmax", "nothing"])
def test_rules_that_do_not_exist(model: Any, select: str) -> None:
    with pytest.raises(ValueError, match="no rule has this name"):
        optimized(model, select=[select])


@pytest.mark.skipif(
    torch.__version__ < (2, 13), reason="2.4 does not compile the original, which sets an attribute"
)
@pytest.mark.parametrize("first", [True, False])
def test_with_compile(model: Any, first: bool) -> None:
    expected = model(X)
    if first:
        compiled = torch.compile(model, backend="eager")
        compiled(X)
        optimized(model)
    else:
        optimized(model)
        compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), expected)


def test_only_what_is_proved(module: types.ModuleType) -> None:
    model = module.Model(8)
    result = regraft.optimize(model, select=["adopter/softmax"])
    assert [change.method for change in result.changes] == ["Model.scores"], str(result)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Bert", "Llama", "ViT"])
def test_real_models(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 37,
    }
    sizes_of_inputs = {"image_size": 16, "patch_size": 8} if name == "ViT" else {"vocab_size": 99}
    config = getattr(transformers, f"{name}Config")(
        **sizes, **sizes_of_inputs, attn_implementation="eager"
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config).eval()
    value = torch.randn(2, 3, 16, 16) if name == "ViT" else torch.arange(14).view(2, 7)
    before, state = (
        model(value)[0],
        {key: tensor.clone() for key, tensor in model.state_dict().items()},
    )
    result = optimized(model)
    assert len(result.changes) >= 2, str(result)
    after = model(value)[0]
    torch.testing.assert_close(after, before)
    gradients = torch.autograd.grad(after.square().sum(), model.parameters(), allow_unused=True)
    model.load_state_dict(state, strict=True)
    regraft.restore(model)
    assert torch.equal(model(value)[0], before)
    original = torch.autograd.grad(
        model(value)[0].square().sum(), model.parameters(), allow_unused=True
    )
    for actual, expected in zip(gradients, original, strict=True):
        assert (actual is None) == (expected is None)
        if actual is not None:
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def locked(folder: Path, *names: str, version: str = torch.__version__) -> Path:
    """Write a lock of rules to a folder and return its path."""
    rules = load_rules(names)[0] if names else ()
    path = folder / NAME
    write(
        path,
        Lock(
            "m:f",
            "fastest",
            "inference",
            "cpu",
            "",
            version,
            tuple(pin_rule(rule, {}) for rule in rules),
        ),
    )
    return path


def test_the_rules_of_a_lock(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = locked(tmp_path, "adopter/softmax")
    result = optimized(model, lock=path)
    assert result.rules == ("adopter/softmax",) and str(path) in str(result)
    monkeypatch.chdir(tmp_path)
    for choice in (None, True, NAME):
        assert optimized(model, lock=choice).rules == ("adopter/softmax",)
    unlocked = optimized(model, lock=False, packs=("adopter", "torch"))
    assert unlocked.rules == ("adopter/dropout-layernorm", "adopter/softmax")
    assert optimized(model, select=["dropout-layernorm"]).lock is None


def test_a_lock_without_rules(model: Any, tmp_path: Path) -> None:
    with pytest.warns(NothingOptimized, match=r"regraft.lock.toml holds no rule"):
        assert optimized(model, lock=locked(tmp_path)).changes == []


def test_a_lock_that_was_measured_elsewhere(model: Any, tmp_path: Path) -> None:
    with pytest.warns(DifferentConditions, match="measured with PyTorch 1.0, here is"):
        assert optimized(model, lock=locked(tmp_path, "adopter/softmax", version="1.0")).changes


def test_locks_that_do_not_fit(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = locked(tmp_path, "adopter/softmax")
    with pytest.raises(ValueError, match="not by both"):
        optimized(model, lock=path, packs=["torch"])
    text = path.read_text()
    path.write_text(text.replace("adopter/softmax", "adopter/gone"))
    with pytest.raises(ValueError, match="no rule adopter/gone any more"):
        optimized(model, lock=path)
    path.write_text(text.replace('sha256 = "', 'sha256 = "0'))
    with pytest.raises(ValueError, match="is not the one that was measured"):
        optimized(model, lock=path)
    monkeypatch.chdir("/")
    with pytest.raises(ValueError, match=r"there is no regraft.lock.toml"):
        optimized(model, lock=True)


def test_a_locked_rule_that_changes_what_callers_see_is_not_applied_unasked(
    model: Any, tmp_path: Path
) -> None:
    with pytest.warns(NothingOptimized, match="only with unsafe=True"):
        result = optimized(model, lock=locked(tmp_path, "torch/log-softmax"))
    assert [place.place for place in result.unchanged] == ["torch/log-softmax"]


LOGITS = """
import torch
import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.output = nn.Linear(8, 16)

    def forward(self, x):
        return torch.log(F.softmax(self.output(x), dim=-1))
"""


@pytest.mark.parametrize("module", [LOGITS], indirect=True)
def test_a_place_of_a_rule_that_changes_what_callers_see_is_listed(
    module: types.ModuleType,
) -> None:
    model = module.Head()
    with pytest.warns(NothingOptimized, match="only with unsafe=True"):
        result = optimized(model, select=["torch/log-softmax"])
    (place,) = result.unchanged
    assert (place.place, place.reason) == (
        "Head.forward",
        ("torch/log-softmax: changes what callers see (safety contract): only with unsafe=True"),
    )
    assert optimized(model, select=["torch/log-softmax"], unsafe=True).changes


class LowRank(nn.Module):
    """The original with a product of low rank beside it, as adapter libraries put it in place of a
    Linear layer."""

    def __init__(self, layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base_layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base_layer(x) + self.up(self.down(x))


GATED = """\
import torch
from torch import nn
from torch.nn import functional as F


class Gated(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dense = nn.Linear(d, d)
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(d, d)
        self.value = nn.Linear(d, d)

    def forward(self, x):
        h = F.gelu(self.dense(x))
        query, key, value = self.query(h), self.key(h), self.value(h)
        return torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ value
"""


@pytest.fixture
def adapted(module: types.ModuleType, tmp_path: Path) -> Any:
    """Return a model with adapters."""
    path = Path(str(module.__file__))
    path.write_text(GATED)
    spec = importlib.util.spec_from_file_location("live_model", path)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return module.Gated(8).eval()


def trained(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the result of a training step and the gradients by name."""
    model.zero_grad()
    result = model(X)
    result.square().sum().backward()
    return result.detach(), {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


@pytest.mark.parametrize("first", [True, False])
def test_with_adapters_of_low_rank(adapted: Any, first: bool) -> None:
    """Kernels that are given a layer see that another module stands there, whenever it was put
    there."""
    if first:
        optimized(adapted)
    for name in ("dense", "query", "value"):
        setattr(adapted, name, LowRank(getattr(adapted, name)))
    if first:
        after = trained(adapted)
        regraft.restore(adapted)
        before = trained(adapted)
    else:
        before = trained(adapted)
        assert {"adopter/biased-gelu", "adopter/fused-qkv"} <= set(optimized(adapted).rules)
        after = trained(adapted)
    torch.testing.assert_close(after, before)
    assert {name.rpartition(".")[0] for name in after[1]} == {
        "key",
        *(f"{layer}.{part}" for layer in ("dense", "query", "value") for part in ("down", "up")),
    }
    regraft.restore(adapted)
    restored = trained(adapted)
    assert torch.equal(restored[0], before[0])
    assert all(torch.equal(restored[1][name], before[1][name]) for name in before[1])


@pytest.mark.parametrize("first", [True, False])
def test_in_data_parallel(adapted: Any, tmp_path: Path, first: bool) -> None:
    """In one process, with real hooks for gradients: a module is optimized before it is wrapped, or
    after."""
    before = trained(adapted)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        compare_in_parallel(adapted, before, first)
    finally:  # torch 2.13 waits for itself where a wrapper outlives its group
        gc.collect()
        torch.distributed.destroy_process_group()


def compare_in_parallel(adapted: Any, before: Any, first: bool) -> None:
    """Assert that a model in DistributedDataParallel has the results and gradients of before."""
    if first:
        optimized(adapted)
    parallel = nn.parallel.DistributedDataParallel(adapted)
    if not first:
        assert optimized(parallel).changes
    result, gradients = trained(parallel)
    torch.testing.assert_close(result, before[0])
    assert gradients.keys() == {f"module.{name}" for name in before[1]}
    torch.testing.assert_close(list(gradients.values()), list(before[1].values()))
    regraft.restore(parallel)
    assert torch.equal(trained(parallel)[0], before[0])
