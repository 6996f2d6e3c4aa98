"""Test the kernel for losses of postponed logits, in models of transformers with that library's
loss functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from regraft import optimize, restore  # noqa: E402
from regraft.ops import implementation, postponed_linear  # noqa: E402
from regraft.ops.postponed import PostponedTensor  # noqa: E402

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "vocab_size": 70,
    "head_dim": 8,
}
SIZES |= {"num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0}
MODELS: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Gemma2": {"final_logit_softcapping": 2.0},
    "Qwen3Moe": {
        "moe_intermediate_size": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "output_router_logits": True,
    },
}
TOKENS = torch.randint(0, 70, (2, 7), generator=torch.Generator().manual_seed(0))
LABELS = TOKENS.clone()
LABELS[0, :3] = -100


@pytest.mark.parametrize("bias", [True, False])
def test_the_kernel(bias: bool, launches: list[str]) -> None:
    torch.manual_seed(0)
    head, x = nn.Linear(8, 37, bias=bias), torch.randn(19, 8).requires_grad_()
    target = torch.randint(0, 37, (19,))
    target[2] = -100
    runs = []
    projections: tuple[Callable[[], Any], ...] = (
        lambda: postponed_linear(x, head),
        lambda: head(x),
    )
    for make in projections:
        loss = F.cross_entropy((make() * 3.0).float(), target)
        runs.append([loss, *torch.autograd.grad(loss, [x, *head.parameters()])])
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert launches == ["_cross_entropy_kernel"] * 5


def test_within_a_checkpoint(launches: list[str]) -> None:
    head, x = nn.Linear(8, 37), torch.randn(19, 8).requires_grad_()
    runs = []
    for make in (postponed_linear, lambda rows, layer: layer(rows)):

        def loss(rows: Any, make: Any = make) -> Any:
            return F.cross_entropy(torch.tanh(make(rows.tanh(), head)), torch.arange(19))

        result = checkpoint(loss, x, use_reentrant=False)
        runs.append([result, *torch.autograd.grad(result, [x, *head.parameters()])])
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert launches == ["_cross_entropy_kernel"] * 10


def built(name: str) -> Any:
    """Return a small model of transformers by its name."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **MODELS[name])
    return getattr(transformers, f"{name}ForCausalLM")(config).train()


def step(model: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return the output of a training step, and all gradients by name."""
    model.zero_grad()
    output = model(TOKENS, labels=LABELS, use_cache=False, **options)
    output.loss.backward()
    return output, {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    "options", [{}, {"num_items_in_batch": torch.tensor(5)}], ids=["mean", "sum"]
)
@pytest.mark.parametrize("name", MODELS)
def test_models_learn_the_same_without_logits(
    name: str, options: dict[str, Any], launches: list[str]
) -> None:
    model = built(name)
    wanted, slopes = step(model, **options)
    optimize(model, select=["liger/linear-loss"], unsafe=True, verify=False)
    output, ours = step(model, **options)
    assert launches
    assert isinstance(output.logits, PostponedTensor)
    torch.testing.assert_close(output.loss, wanted.loss)
    for parameter, slope in slopes.items():
        torch.testing.assert_close(
            ours[parameter], slope, rtol=1e-5, atol=2e-6 * max(1.0, float(slope.abs().max()))
        )
    torch.testing.assert_close(output.logits, wanted.logits)
    assert type(model.eval()(TOKENS, labels=LABELS).logits) is torch.Tensor
    restore(model)


def test_a_loss_function_of_the_users_own_gets_what_it_asks_for() -> None:
    model = built("Llama")

    def smoothed(logits: Any, labels: Any, vocab_size: int, **kwargs: Any) -> Any:
        return F.cross_entropy(logits.view(-1, vocab_size), labels.view(-1), label_smoothing=0.3)

    model.loss_function = smoothed
    wanted, slopes = step(model)
    optimize(model, select=["liger/linear-loss"], unsafe=True, verify=False)
    output, ours = step(model)
    assert torch.equal(output.loss, wanted.loss)
    assert all(torch.equal(ours[name], slope) for name, slope in slopes.items())


def test_where_the_layer_itself_is_called() -> None:
    x, head = torch.randn(3, 8), nn.Linear(8, 9)
    assert implementation("postponed_linear", x, head) == "liger"
    assert implementation("postponed_linear", x, nn.Linear(8, 8)) == "reference"
    assert implementation("postponed_linear", x, nn.Linear(8, 9).eval()) == "reference"
    assert implementation("postponed_linear", x.double(), nn.Linear(8, 9).double()) == "reference"
    assert (
        implementation("postponed_linear", x, nn.Linear(8, 9).requires_grad_(False)) == "reference"
    )
    assert implementation("postponed_linear", x.half(), nn.Linear(8, 9).half()) == "reference"
    with torch.autocast("cpu", torch.bfloat16):
        assert implementation("postponed_linear", x, head) == "liger"
    with torch.autocast("cpu", torch.float16):  # a gradient that is scaled later would be zero
        assert implementation("postponed_linear", x, head) == "reference"
    with torch.no_grad():
        assert implementation("postponed_linear", x, head) == "reference"
    head.register_forward_hook(lambda *_: None)
    assert implementation("postponed_linear", x, head) == "reference"
