"""Test `regraft.optimize` in usual training set-ups, each with the library's own wrappers and
layers.

The reference is always the original model in the same set-up: same state, same inputs, same seeds.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
import regraft.ops  # noqa: E402

MODEL = """\
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.query, self.key = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.value = nn.Linear(d, d, bias=False)
        self.out = nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.gelu = nn.GELU()
        self.drop = nn.Dropout(0.0)
        self.norm = nn.LayerNorm(d)
        self.gate, self.raised = nn.Linear(d, d), nn.Linear(d, d)

    def attend(self, x):
        query, key, value = self.query(x), self.key(x), self.value(x)
        weights = torch.softmax(query @ key.transpose(-1, -2), dim=-1)
        return self.out(weights @ value)

    def forward(self, x):
        h = self.attend(x)
        h = self.drop(h)
        x = self.norm(h + x)
        h = self.up(x)
        h = self.gelu(h)
        x = x + self.down(h)
        return F.silu(self.gate(x)) * self.raised(x)


class Model(nn.Module):
    def __init__(self, d=8, classes=16):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.head = nn.Linear(d, classes)
        self.classes = classes

    def hidden(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x, labels):
        x = self.hidden(x)
        logits = self.head(x)
        rows = logits.view(-1, self.classes)
        return F.cross_entropy(rows, labels)


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        x = self.conv(x)
        return self.norm(x)


class Scale(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        x = torch.softmax(x, dim=-1)
        return self.weight * x
"""
RULES = {
    "adopter/biased-gelu",
    "adopter/dropout-layernorm",
    "adopter/fused-qkv",
    "adopter/softmax",
    "torch/gate-up",
    "torch/linear-cross-entropy",
}
SELECT = tuple(sorted(RULES))


@pytest.fixture
def module(tmp_path: Path) -> Iterator[types.ModuleType]:
    """Yield the module of a model's file."""
    path = tmp_path / "setup_model.py"
    path.write_text(MODEL)
    spec = importlib.util.spec_from_file_location("setup_model", path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["setup_model"] = loaded
    spec.loader.exec_module(loaded)
    yield loaded
    del sys.modules["setup_model"]


def batch(seed: int = 1) -> tuple[Any, Any]:
    """Return inputs and labels of more rows than the chunked loss takes at once."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 50, 8, generator=generator), torch.randint(
        0, 16, (300,), generator=generator
    )


def optimized(model: Any, *, rules: set[str] = RULES) -> Any:
    """Optimize a model by rules that must all apply, and return the report."""
    report = regraft.optimize(model, select=tuple(sorted(rules)), verify=False)
    assert rules <= set(report.rules), str(report)
    return report


@pytest.fixture
def every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels that are meant for CUDA on plain tensors of this machine."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    for name in ("linear_gelu", "stacked_linear"):
        place = sys.modules[f"regraft.ops.{name}"]  # the package has a function of that name
        monkeypatch.setattr(
            place,
            "compiles",
            lambda *tensors: all(type(tensor) is torch.Tensor for tensor in tensors),
        )
    region = sys.modules["regraft.ops.linear_gelu"]
    monkeypatch.setattr(
        region,
        "run_region",
        lambda function, arguments, *options: function(None, *arguments, *options)[0],
    )


def assert_runs_alike(model: Any, reference: Any) -> None:
    """Assert that two models have equal results."""
    torch.testing.assert_close(model(*batch()), reference(*batch()))


# Two processes

WORKER = """\
import sys

import regraft
import setup_model
import torch
from torch import nn

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
generator = torch.Generator().manual_seed(rank)
batches = [
    (torch.randn(6, 50, 8, generator=generator), torch.randint(0, 16, (300,), generator=generator)) for _ in range(2)
]


def optimize(model):
    report = regraft.optimize(model, select=SELECT, verify=False)
    assert set(report.rules) == set(SELECT), str(report)


def trained(order, **options):
    torch.manual_seed(0)
    model = setup_model.Model()
    if order == "before":
        optimize(model)
    parallel = nn.parallel.DistributedDataParallel(model, **options)
    if order == "after":
        optimize(parallel)
    if order == "inside":
        optimize(parallel.module)
    optimizer = torch.optim.AdamW(parallel.parameters(), 1e-3)
    record = []
    for x, labels in batches:
        optimizer.zero_grad()
        loss = parallel(x, labels)
        loss.backward()
        record += [loss.detach(), *(one.grad.clone() for one in model.parameters())]
        optimizer.step()
    return record


results = {}
for unused in (False, True):
    for order in ("never", "before", "after", "inside"):
        results[order, unused] = trained(order, find_unused_parameters=unused)
torch.save(results, f"{folder}/{rank}.pt")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_two_processes_in_data_parallel(module: types.ModuleType, tmp_path: Path) -> None:
    """Losses and gradients in both ranks, with the model optimized before it is wrapped,
    and after."""
    worker = tmp_path / "worker.py"
    worker.write_text(f"SELECT = {SELECT!r}\n{WORKER}")
    source = Path(str(regraft.__file__)).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(tmp_path)))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(worker), str(rank), str(tmp_path)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], outputs
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for results in ranks:
        for (order, unused), record in results.items():
            expected = results["never", False]
            torch.testing.assert_close(
                record, expected, msg=lambda text, place=(order, unused): f"{place}: {text}"
            )
    number = len(ranks[0]["never", False]) // 2
    for order in ("never", "before", "after", "inside"):
        first, second = (results[order, False] for results in ranks)
        assert not torch.equal(first[0], second[0])  # each rank has a loss of its own
        assert all(
            torch.equal(*pair) for pair in zip(first[1:number], second[1:number], strict=True)
        )


# State that is resumed


def steps(model: Any, optimizer: Any, seeds: range) -> list[Any]:
    """Return the losses of training steps."""
    losses = []
    for seed in seeds:
        optimizer.zero_grad()
        loss = model(*batch(seed))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
@pytest.mark.parametrize("first", [True, False])
def test_a_resumed_optimizer(module: types.ModuleType, kind: str, first: bool) -> None:
    """Two steps, a checkpoint, and two more steps of the original and of a new model that is
    optimized."""

    def optimizer_of(model: Any) -> Any:
        settings = {"lr": 1e-2, "momentum": 0.9} if kind == "SGD" else {"lr": 1e-2}
        return getattr(torch.optim, kind)(model.parameters(), **settings)

    original = module.Model()
    optimizer = optimizer_of(original)
    steps(original, optimizer, range(2))
    file = io.BytesIO()
    torch.save({"model": original.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    checkpoint = torch.load(file)
    resumed = module.Model()
    if first:
        optimized(resumed)
    resumed.load_state_dict(checkpoint["model"])
    optimizer_of_resumed = optimizer_of(resumed)
    optimizer_of_resumed.load_state_dict(checkpoint["optimizer"])
    if not first:
        optimized(resumed)
    expected = steps(original, optimizer, range(2, 4))
    torch.testing.assert_close(steps(resumed, optimizer_of_resumed, range(2, 4)), expected)
    torch.testing.assert_close(dict(resumed.state_dict()), dict(original.state_dict()))
    slots, slots_of_resumed = optimizer.state_dict(), optimizer_of_resumed.state_dict()
    assert slots["param_groups"] == slots_of_resumed["param_groups"]
    torch.testing.assert_close(slots_of_resumed["state"], slots["state"])


# Layers quantised dynamically


def quantized(model: Any) -> Any:
    """Return a model with dynamically quantized layers."""
    from torch.ao.quantization import quantize_dynamic

    return quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("first", [True, False])
def test_dynamically_quantized_layers(
    module: types.ModuleType, every_kernel: None, first: bool
) -> None:
    """The quantised layers run as they are: their `weight` is a method, and no kernel is
    given it."""
    model = module.Model().eval()
    reference = quantized(copy.deepcopy(model))
    if first:
        optimized(model)
        model = quantized(model)
        assert type(model) is not module.Model
    else:
        model = quantized(model)
        optimized(model)
    assert type(model.head) is type(reference.head) is not nn.Linear
    with torch.no_grad():
        assert_runs_alike(model, reference)
    regraft.restore(model)
    with torch.no_grad():
        assert torch.equal(model(*batch()), reference(*batch()))


# Adapters of PEFT


def adapters(kind: str, **options: Any) -> Any:
    """Return a configuration of peft."""
    peft = pytest.importorskip("peft")
    if kind == "ia3":
        return peft.IA3Config(init_ia3_weights=False, **options)
    return peft.LoraConfig(
        r=2, lora_alpha=8, init_lora_weights=False, use_dora=kind == "dora", **options
    )


def wrapped(model: Any, config: Any) -> Any:
    """Return a model with adapters of peft."""
    import peft

    torch.manual_seed(3)
    return peft.get_peft_model(model, config)


def gradients(model: Any, *inputs: Any, **named: Any) -> dict[str, Any]:
    """Return the loss and the gradients of the trained parameters by name."""
    model.zero_grad()
    result = model(*inputs, **named)
    loss = getattr(result, "loss", result)
    loss.backward()
    return {
        "loss": loss.detach(),
        **{name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad},
    }


LAYERS = ["query", "value", "up", "down", "gate", "raised", "head"]
ADAPTERS: list[tuple[str, dict[str, Any]]] = [
    ("lora", {"target_modules": LAYERS}),
    ("lora", {"target_modules": ["key"], "modules_to_save": ["head", "up", "norm"]}),
    ("dora", {"target_modules": LAYERS}),
    ("ia3", {"target_modules": LAYERS, "feedforward_modules": ["down"]}),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("kind", "options"), ADAPTERS, ids=["lora", "saved", "dora", "ia3"])
@pytest.mark.parametrize("first", [True, False])
def test_adapters_of_peft(
    module: types.ModuleType, every_kernel: None, first: bool, kind: str, options: dict[str, Any]
) -> None:
    """Adapters take part in what kernels compute, separate and merged, and get the original's
    gradients."""
    config = adapters(kind, **options)
    model = module.Model()
    reference = wrapped(copy.deepcopy(model), config)
    if first:
        optimized(model)
    adapted = wrapped(model, config)
    adapted.load_state_dict(reference.state_dict())
    if not first:
        optimized(adapted)
    expected = gradients(reference, *batch())
    result = gradients(adapted, *batch())
    assert all(value.abs().sum() > 0 for name, value in result.items() if name != "loss")
    torch.testing.assert_close(result, expected)
    adapted.eval()
    reference.eval()
    with torch.no_grad():
        assert_runs_alike(adapted, reference)
        with adapted.disable_adapter(), reference.disable_adapter():
            assert not torch.allclose(adapted(*batch()), result["loss"])
            assert_runs_alike(adapted, reference)
        for change in ("merge_adapter", "unmerge_adapter", "merge_and_unload"):
            merged, expected_merged = (
                getattr(model_with_adapters, change)()
                for model_with_adapters in (adapted, reference)
            )
            assert_runs_alike(
                *((merged, expected_merged) if merged is not None else (adapted, reference))
            )
    assert type(merged) is not module.Model and type(expected_merged) is module.Model
    regraft.restore(merged)
    assert type(merged) is module.Model


def test_an_adapter_of_a_convolution(module: types.ModuleType, every_kernel: None) -> None:
    """Batch normalisation is folded into a convolution whose adapter is merged, and into no
    other."""
    stem = module.Stem().eval()
    config = adapters("lora", target_modules=["conv"])
    reference = wrapped(copy.deepcopy(stem), config)
    optimized(stem, rules={"adopter/conv-batchnorm"})
    adapted = wrapped(stem, config)
    adapted.load_state_dict(reference.state_dict())
    x = torch.randn(2, 3, 9, 9)
    for model in (adapted, reference):
        model.eval()
    with torch.no_grad():
        assert torch.equal(adapted(x), reference(x))
        merged, expected = adapted.merge_and_unload(), reference.merge_and_unload()
        assert not torch.equal(merged(x), expected(x))  # folded
        torch.testing.assert_close(merged(x), expected(x), rtol=1e-4, atol=1e-5)


def language_model(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a small language model of transformers and its inputs."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 99,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "attn_implementation": "eager",
    }
    if name == "Bert":
        sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes))
        labels = torch.tensor([0, 1])
    else:
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**sizes, num_key_value_heads=2)
        )
        labels = torch.arange(24).view(2, 12)
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    return model, {
        "input_ids": torch.arange(24).view(2, 12),
        "attention_mask": mask,
        "labels": labels,
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["Bert", "Llama"])
@pytest.mark.parametrize("first", [True, False])
def test_adapters_of_language_models(every_kernel: None, name: str, first: bool) -> None:
    model, inputs = language_model(name)
    task = "SEQ_CLS" if name == "Bert" else "CAUSAL_LM"
    config = adapters("lora", target_modules="all-linear", task_type=task)
    reference = wrapped(copy.deepcopy(model), config)
    names = {"Bert": {"adopter/biased-gelu"}, "Llama": {"adopter/fused-qkv", "torch/rms-norm"}}[
        name
    ]
    if first:
        optimized(model, rules=names | {"torch/attention"})
    adapted = wrapped(model, config)
    adapted.load_state_dict(reference.state_dict())
    if not first:
        optimized(adapted, rules=names | {"torch/attention"})
    result, expected = gradients(adapted, **inputs), gradients(reference, **inputs)
    torch.testing.assert_close(result, expected)
    assert all(value.abs().sum() > 0 for name, value in result.items() if name != "loss")
    with torch.no_grad():
        for change in ("eval", "merge_adapter", "unmerge_adapter"):
            getattr(adapted, change)()
            getattr(reference, change)()
            torch.testing.assert_close(adapted(**inputs).logits, reference(**inputs).logits)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("first", [True, False])
def test_adapters_of_bare_parameters(first: bool) -> None:
    """PEFT parametrizes the experts while the model runs, which gives their module a class of its
    own."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    model = transformers.MixtralForCausalLM(config)
    rules = {"torch/experts", "torch/attention"}
    lora = adapters(
        "lora", target_modules=[], target_parameters=["experts.gate_up_proj", "experts.down_proj"]
    )
    reference = wrapped(copy.deepcopy(model), lora)
    if first:
        optimized(model, rules=rules)
    adapted = wrapped(model, lora)
    adapted.load_state_dict(reference.state_dict())
    if not first:
        optimized(adapted, rules=rules)
    ids = torch.arange(24).view(2, 12)
    result, expected = (
        gradients(network, input_ids=ids, labels=ids) for network in (adapted, reference)
    )
    torch.testing.assert_close(result, expected)
    assert all(value.abs().sum() > 0 for name, value in result.items() if "gate_up" in name)
    regraft.restore(adapted)
    torch.testing.assert_close(
        gradients(adapted, input_ids=ids, labels=ids), expected, rtol=0, atol=0
    )


# Parametrizations


class Doubled(nn.Module):
    """A parametrization that doubles a weight."""

    def forward(self, weight: Any) -> Any:
        return weight * 2


@pytest.mark.parametrize("first", [True, False])
def test_a_parametrized_module(module: types.ModuleType, first: bool) -> None:
    """A parametrization gives a module a class of its own: it can be taken off, and so can the
    rewritten methods."""
    from torch.nn.utils import parametrize

    scale = module.Scale(8)
    x = torch.randn(3, 8)
    alone = scale(x)
    if first:
        optimized(scale, rules={"adopter/softmax"})
    parametrize.register_parametrization(scale, "weight", Doubled())
    doubled = 2 * alone
    if not first:
        optimized(scale, rules={"adopter/softmax"})
    torch.testing.assert_close(scale(x), doubled)
    torch.testing.assert_close(copy.deepcopy(scale)(x), doubled)
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(scale)
    restored = copy.deepcopy(scale)
    regraft.restore(restored)
    assert restored.__class__.__bases__ == (module.Scale,) and torch.equal(restored(x), doubled)
    torch.testing.assert_close(copy.deepcopy(restored)(x), doubled)
    for model in (scale, restored):
        parametrize.remove_parametrizations(model, "weight")
        torch.testing.assert_close(model(x), doubled)
    assert type(restored) is module.Scale
    assert type(scale) is not module.Scale
    regraft.restore(scale)
    assert type(scale) is module.Scale and torch.equal(scale(x), doubled)
