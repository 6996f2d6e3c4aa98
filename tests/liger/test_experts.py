"""Experts in grouped products against experts one after the other: the rule's own body, and a
model."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.ops import experts, implementation  # noqa: E402
from regraft.rules import load_rules  # noqa: E402

ROWS, CHOSEN, NUMBER, WIDTH, INNER = 10, 2, 4, 16, 8
NAMES = ("x", "index", "weights", "gate_up", "down", "activation", "number")


def specification() -> Any:
    """The body of the rule as a function of its variables."""
    (rule,), _ = load_rules(["liger/experts"])
    (whole,) = rule.syntax.bodies
    assert [one.name for one in whole.target.apply.args] == list(NAMES)  # type: ignore[union-attr]
    code = f"def body({', '.join(NAMES)}):\n" + textwrap.indent(whole.code.replace("$", ""), "    ")
    scope: dict[str, Any] = {"torch": torch}
    exec(code, scope)
    return scope["body"]


def drawn(dtype: Any = torch.float32, number: int = NUMBER) -> list[Any]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDTH).to(dtype)
    gate_up, down = (
        torch.randn(number, 2 * INNER, WIDTH).to(dtype) / 4,
        torch.randn(number, WIDTH, INNER).to(dtype) / 3,
    )
    index = torch.stack([torch.randperm(number)[:CHOSEN] for _ in range(ROWS)])
    weights = torch.rand(ROWS, CHOSEN).to(dtype)
    for one in (x, gate_up, down, weights):
        one.requires_grad_()
    return [x, index, weights, gate_up, down, nn.SiLU(), number]


def run(function: Any, given: list[Any]) -> list[Any]:
    result = function(*given)
    slope = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)
    leaves = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    return [result, *torch.autograd.grad(result, leaves, slope)]


def same(given: list[Any]) -> None:
    half = given[0].dtype == torch.half
    for ours, theirs in zip(run(experts, given), run(specification(), given), strict=True):
        size = float(theirs.detach().abs().max())
        torch.testing.assert_close(
            ours, theirs, rtol=4e-3 if half else 1e-5, atol=(4e-3 if half else 1e-5) * size
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_kernel(dtype: Any, launches: list[str]) -> None:
    given = drawn(dtype)
    assert implementation("experts", *given) == "liger"
    same(given)
    assert launches == ["_experts_kernel"]


def test_experts_that_nobody_chose_and_one_that_is_chosen_twice(launches: list[str]) -> None:
    given = drawn()
    given[1] = torch.zeros(ROWS, CHOSEN, dtype=torch.long)
    given[1][3:, 1] = 2
    same(given)
    assert launches


@pytest.mark.parametrize(
    "what", ["an index that chooses none", "gelu", "weights of another dtype", "experts' dtype"]
)
def test_the_composition(what: str, launches: list[str]) -> None:
    given = drawn()
    if what == "an index that chooses none":
        given[1][2, 0] = NUMBER
    elif what == "gelu":
        given[5] = nn.GELU()
    elif what == "weights of another dtype":
        given[2] = given[2].detach().double()
    else:
        given = [
            one.detach().double() if isinstance(one, torch.Tensor) and one.requires_grad else one
            for one in given
        ]
    assert implementation("experts", *given) == "reference"
    assert torch.equal(experts(*given), specification()(*given))
    assert not launches


def test_a_second_derivative_is_that_of_the_composition(launches: list[str]) -> None:
    found = []
    for function in (experts, specification()):
        given = drawn()
        (slope,) = torch.autograd.grad(function(*given).sum(), given[0], create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), [given[0], given[3]]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert launches


def test_two_backward_passes_give_the_same() -> None:
    given = drawn()
    result = experts(*given).square().sum()
    first, second = (torch.autograd.grad(result, given[3], retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_model_of_transformers(launches: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    from regraft import optimize

    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "vocab_size": 70,
        "head_dim": 8,
    }
    sizes |= {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "moe_intermediate_size": 8,
        "num_experts": 4,
    }
    torch.manual_seed(0)
    model = transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(**sizes, num_experts_per_tok=2, experts_implementation="eager")
    )
    for one in model.parameters():
        one.data.normal_(std=0.3)
    tokens = torch.randint(0, 70, (2, 7))
    found = []
    for _ in range(2):
        model.zero_grad()
        output = model(tokens, labels=tokens)
        output.loss.backward()
        found.append([output.logits, *(one.grad.clone() for one in model.parameters())])
        if not launches:
            optimize(model, select=["liger/experts"], verify=False)
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(
            ours, theirs, rtol=1e-4, atol=1e-5 * max(1.0, float(theirs.abs().max()))
        )
    assert launches == ["_experts_kernel"]
