"""Test experts in grouped products against experts one after the other, by the rule's own body and
in a model."""

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
    """Return the body of the rule as a function of its variables."""
    (rule,), _ = load_rules(["liger/experts"])
    (body,) = rule.syntax.bodies
    assert [argument.name for argument in body.target.apply.args] == list(NAMES)  # type: ignore[union-attr]
    code = f"def body({', '.join(NAMES)}):\n" + textwrap.indent(body.code.replace("$", ""), "    ")
    scope: dict[str, Any] = {"torch": torch}
    exec(code, scope)
    return scope["body"]


def drawn(dtype: Any = torch.float32, number: int = NUMBER) -> list[Any]:
    """Return random arguments of the op."""
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDTH).to(dtype)
    gate_up, down = (
        torch.randn(number, 2 * INNER, WIDTH).to(dtype) / 4,
        torch.randn(number, WIDTH, INNER).to(dtype) / 3,
    )
    index = torch.stack([torch.randperm(number)[:CHOSEN] for _ in range(ROWS)])
    weights = torch.rand(ROWS, CHOSEN).to(dtype)
    for tensor in (x, gate_up, down, weights):
        tensor.requires_grad_()
    return [x, index, weights, gate_up, down, nn.SiLU(), number]


def run(function: Any, arguments: list[Any]) -> list[Any]:
    """Return the result of a function and the gradients of its arguments."""
    result = function(*arguments)
    slope = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)
    leaves = [
        argument
        for argument in arguments
        if isinstance(argument, torch.Tensor) and argument.requires_grad
    ]
    return [result, *torch.autograd.grad(result, leaves, slope)]


def assert_agrees(arguments: list[Any]) -> None:
    """Assert that the op and the rule's body have equal results and gradients."""
    half = arguments[0].dtype == torch.half
    for ours, theirs in zip(run(experts, arguments), run(specification(), arguments), strict=True):
        size = float(theirs.detach().abs().max())
        torch.testing.assert_close(
            ours, theirs, rtol=4e-3 if half else 1e-5, atol=(4e-3 if half else 1e-5) * size
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_kernel(dtype: Any, launches: list[str]) -> None:
    arguments = drawn(dtype)
    assert implementation("experts", *arguments) == "liger"
    assert_agrees(arguments)
    assert launches == ["_experts_kernel"]


def test_experts_that_nobody_chose_and_one_that_is_chosen_twice(launches: list[str]) -> None:
    arguments = drawn()
    arguments[1] = torch.zeros(ROWS, CHOSEN, dtype=torch.long)
    arguments[1][3:, 1] = 2
    assert_agrees(arguments)
    assert launches


@pytest.mark.parametrize(
    "what", ["an index that chooses none", "gelu", "weights of another dtype", "experts' dtype"]
)
def test_the_composition(what: str, launches: list[str]) -> None:
    arguments = drawn()
    if what == "an index that chooses none":
        arguments[1][2, 0] = NUMBER
    elif what == "gelu":
        arguments[5] = nn.GELU()
    elif what == "weights of another dtype":
        arguments[2] = arguments[2].detach().double()
    else:
        arguments = [
            argument.detach().double()
            if isinstance(argument, torch.Tensor) and argument.requires_grad
            else argument
            for argument in arguments
        ]
    assert implementation("experts", *arguments) == "reference"
    assert torch.equal(experts(*arguments), specification()(*arguments))
    assert not launches


def test_a_second_derivative_is_that_of_the_composition(launches: list[str]) -> None:
    second_derivatives = []
    for function in (experts, specification()):
        arguments = drawn()
        (slope,) = torch.autograd.grad(function(*arguments).sum(), arguments[0], create_graph=True)
        second_derivatives.append(
            torch.autograd.grad(slope.square().sum(), [arguments[0], arguments[3]])
        )
    for ours, theirs in zip(*second_derivatives, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert launches


def test_two_backward_passes_give_the_same() -> None:
    arguments = drawn()
    result = experts(*arguments).square().sum()
    first, second = (
        torch.autograd.grad(result, arguments[3], retain_graph=True)[0] for _ in range(2)
    )
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
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    tokens = torch.randint(0, 70, (2, 7))
    runs = []
    for _ in range(2):
        model.zero_grad()
        output = model(tokens, labels=tokens)
        output.loss.backward()
        runs.append([output.logits, *(parameter.grad.clone() for parameter in model.parameters())])
        if not launches:
            optimize(model, select=["liger/experts"], verify=False)
    for theirs, ours in zip(*runs, strict=True):
        torch.testing.assert_close(
            ours, theirs, rtol=1e-4, atol=1e-5 * max(1.0, float(theirs.abs().max()))
        )
    assert launches == ["_experts_kernel"]
