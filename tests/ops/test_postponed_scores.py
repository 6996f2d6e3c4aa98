"""Test that postponed scores behave as the scores that they stand for, and that their attention is
the composition's."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

from regraft.ops import (
    implementation,
    postponed_baddbmm,
    postponed_einsum,
    postponed_matmul,
)
from regraft.ops.postponed import PostponedTensor

B, H, L, E = 2, 4, 9, 8
LOWEST = torch.finfo(torch.float32).min
CAUSAL = torch.ones(L, L).tril() == 1
PADDED = torch.zeros(B, 1, 1, L).masked_fill(torch.arange(L) >= L - 2, LOWEST)


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernels whatever the size of the inputs."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of the options of each attention that the kernel computed."""
    calls: list[Any] = []
    kernel = F.scaled_dot_product_attention

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(options)
        return kernel(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    return calls


def inputs(dtype: Any = torch.float32, gradients: bool = True, length: int = L) -> tuple[Any, ...]:
    """Return a random query, key and value."""
    generator = torch.Generator().manual_seed(0)
    tensors = (
        torch.randn(B, length, H, E, generator=generator, dtype=torch.float32) for _ in range(3)
    )
    return tuple(
        tensor.to(dtype).transpose(1, 2).detach().requires_grad_(gradients) for tensor in tensors
    )


Product = Callable[..., Any]


def forward(
    product: Product,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    p: float = 0.0,
    training: bool = False,
    head_mask: Any = None,
) -> tuple[Any, Any]:
    """Return the eager attention of transformers and its weights."""
    weights = product(q, k.transpose(2, 3)) * 0.4
    if mask is not None:
        weights = weights + mask
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    weights = F.dropout(weights, p=p, training=training)
    if head_mask is not None:
        weights = weights * head_mask
    return torch.matmul(weights, v).transpose(1, 2).contiguous(), weights


def bart(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention and weights of batches of heads, with a view that keeps the gradient of the
    weights."""
    q, k, v = (tensor.reshape(B * H, L, E) for tensor in (q * 0.4, k, v))
    weights = product(q, k.transpose(1, 2))
    weights = weights.view(B, H, L, L) + PADDED
    weights = F.softmax(weights.view(B * H, L, L), dim=-1)
    reshaped = weights.view(B, H, L, L)
    weights = F.dropout(reshaped.view(B * H, L, L), p=0.1, training=False)
    return torch.bmm(weights, v).view(B, H, L, E), reshaped


def gpt(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention and weights with a causal mask that is filled in."""
    weights = product(q, k.mT) / torch.sqrt(torch.tensor(8.0))
    weights = weights.masked_fill(~CAUSAL, float("-inf")).softmax(-1).type(v.dtype)
    return weights @ v, weights


def chosen(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention and weights with scores that `torch.where` chooses."""
    weights = torch.where(CAUSAL, product(q, k.mT), torch.tensor(LOWEST)) + PADDED
    weights = nn.Softmax(dim=3)(weights)
    return nn.Dropout(0.5).eval()(weights) @ v, weights


def low(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention and weights with scores that are filled with a finite number."""
    weights = product(q, k.mT).masked_fill(mask=~CAUSAL, value=-1e4).softmax(-1)
    return weights.matmul(v), weights


def twice(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention and weights that are scaled twice."""
    bias = torch.arange(L * 1.0).expand(H, L, L)
    weights = (0.5 * (product(q, k.mT) * 0.4 + bias) - PADDED.neg()).softmax(-1)
    return weights @ v, weights


def scaled_by_head(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention and weights with a factor for each head."""
    weights = (product(q, k.mT) * torch.arange(1.0, H + 1).view(H, 1, 1)).softmax(-1)
    return weights @ v, weights


def many_queries(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention and weights of keys of one head."""
    weights = product(q, k[:, :1].mT).softmax(-1)
    return weights @ v[:, :1], weights


def two_dimensions(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention and weights of matrices."""
    weights = product(q[0, 0], k[0, 0].t()).softmax(1)
    return weights @ v[0, 0], weights


def channels_first(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention whose features come before its positions, and transposed weights."""
    q, k, v = (tensor.reshape(B * H, L, E) for tensor in (q, k, v))
    weights = F.softmax(product(q, k.mT) * 0.4, dim=2).permute(0, 2, 1)
    return torch.bmm(v.mT, weights).view(B, H, E, L), weights


def transposed_twice(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention by weights that are transposed, reshaped and transposed again."""
    weights = product(q, k.mT).softmax(-1).transpose(2, 3).contiguous()
    flat = weights.view(B * H, L, L).mT
    return flat @ v.reshape(B * H, L, E), weights


def transposed_scores(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention whose scores are transposed before softmax."""
    weights = product(k, q.mT).transpose(2, 3).softmax(-1)
    return weights @ v, weights


def detached(product: Product, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return attention, and its weights, of scores that a caller gets without their graph."""
    scores = product(q, k.mT)
    weights = scores.softmax(-1)
    assert not scores.detach().requires_grad
    return weights @ v + (scores.detach() + PADDED).softmax(-1) @ v, weights


FUSED: dict[str, Callable[..., Any]] = {
    "plain": forward,
    "causal": lambda product, q, k, v: forward(
        product, q, k, v, torch.where(CAUSAL, 0.0, LOWEST).expand(B, 1, L, L)
    ),
    "padded": lambda product, q, k, v: forward(product, q, k, v, PADDED),
    "no rate": lambda product, q, k, v: forward(product, q, k, v, p=0.0, training=True),
    "bart": bart,
    "gpt": gpt,
    "chosen": chosen,
    "low": low,
    "twice": twice,
    "scaled by head": scaled_by_head,
    "many queries": many_queries,
    "two dimensions": two_dimensions,
    "channels first": channels_first,
    "transposed twice": transposed_twice,
}
COMPUTED: dict[str, Callable[..., Any]] = {
    "dropout": lambda product, q, k, v: forward(product, q, k, v, p=0.4, training=True),
    "head mask": lambda product, q, k, v: forward(product, q, k, v, head_mask=torch.rand(H, 1, 1)),
    "transposed scores": transposed_scores,
    "low and all hidden": lambda product, q, k, v: (
        low(product, q * 0 + 3, k, v)[:0] + forward(product, q, k, v, head_mask=torch.ones(1))
    ),
}


def results(
    attention: Callable[..., Any], product: Product, use: str, dtype: Any = torch.float32
) -> list[Any]:
    """Return the output and gradients of an attention, with the weights used or not."""
    tensors = inputs(dtype)
    torch.manual_seed(1)
    output, weights = attention(product, *tensors)
    loss = output.float().square().sum()
    extra = []
    if use != "ignored":
        loss = loss + (weights.float() ** 3).sum() * 5
    if use == "hook":
        weights.register_hook(lambda slope: slope * 2)
    if use == "retained":
        weights.retain_grad()
        loss.backward(retain_graph=True)
        extra.append(weights.grad)
    if use == "asked":
        extra += torch.autograd.grad(loss, [weights], retain_graph=True)
    gradients = torch.autograd.grad(loss, tensors)
    return [output, *gradients, *extra, *([weights] if use != "ignored" else [])]


USES = ["ignored", "read", "hook", "retained", "asked"]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "attention", [*FUSED.values(), *COMPUTED.values()], ids=[*FUSED, *COMPUTED]
)
def test_results_and_gradients(attention: Callable[..., Any], use: str) -> None:
    ours, theirs = (
        results(attention, product, use) for product in (postponed_matmul, torch.matmul)
    )
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual.detach(), expected.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("use", USES)
def test_scores_without_their_graph_have_no_gradient(use: str, kernels: list[Any]) -> None:
    ours, theirs = (results(detached, product, use) for product in (postponed_matmul, torch.matmul))
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual.detach(), expected.detach(), rtol=1e-4, atol=1e-4)
    assert len(kernels) == 2


def test_scores_without_their_graph_share_their_memory() -> None:
    q, k, _ = inputs()
    scores = postponed_matmul(q, k.mT)
    copy_of_scores = scores.detach()
    copy_of_scores.zero_()
    assert not scores.any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype: Any) -> None:
    ours, theirs = (
        results(forward, product, "read", dtype) for product in (postponed_matmul, torch.matmul)
    )
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual.detach(), expected.detach())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("attention", FUSED.values(), ids=FUSED)
def test_without_gradients(attention: Callable[..., Any], mode: Any, kernels: list[Any]) -> None:
    tensors = inputs(gradients=False)
    with mode():
        output, weights = attention(postponed_matmul, *tensors)
        assert (
            len(kernels) == 1
            and isinstance(weights, PostponedTensor)
            and weights.record.value is None
        )
        wanted = attention(torch.matmul, *tensors)
        assert weights.is_inference() == wanted[1].is_inference()
    for actual, expected in zip((output, weights), wanted, strict=True):
        torch.testing.assert_close(actual, expected)
        assert actual.shape == expected.shape and actual.is_contiguous() == expected.is_contiguous()


@pytest.mark.parametrize("attention", FUSED.values(), ids=FUSED)
def test_the_weights_are_never_there(attention: Callable[..., Any], kernels: list[Any]) -> None:
    tensors = inputs()
    output, weights = attention(postponed_matmul, *tensors)
    torch.autograd.grad(output.square().sum(), tensors)
    assert len(kernels) == 1 and weights.record.value is None and weights.requires_grad


@pytest.mark.parametrize("attention", COMPUTED.values(), ids=COMPUTED)
def test_what_no_kernel_computes(attention: Callable[..., Any], kernels: list[Any]) -> None:
    assert type(attention(postponed_matmul, *inputs())[1]) is torch.Tensor


def test_only_a_causal_mask_is_causal(kernels: list[Any]) -> None:
    q, k, v = inputs(gradients=False)
    causal = torch.where(CAUSAL, 0.0, LOWEST)
    later = torch.where(torch.ones(L, L).tril(1) == 1, 0.0, LOWEST)
    biased = causal.clone()
    biased[3, 2] = 0.5
    hidden = causal.clone()
    hidden[5, 1] = LOWEST
    for mask in (causal, causal.expand(B, 1, L, L), later, biased, hidden, causal[:, :1], PADDED):
        forward(postponed_matmul, q, k, v, mask)
    assert [options["is_causal"] for options in kernels] == [
        True,
        True,
        False,
        False,
        False,
        False,
        False,
    ]
    forward(postponed_matmul, q, k, v, causal.requires_grad_())
    assert not kernels[-1]["is_causal"]


@pytest.mark.parametrize("value", [-1e4, -1e9, -50.0])
def test_a_row_that_is_hidden_by_a_number(value: float, kernels: list[Any]) -> None:
    """Scores are not lost in a number that replaces all of a row, or that is not low enough."""
    q, k, v = inputs(gradients=False)
    for hidden in (~CAUSAL, ~CAUSAL | (torch.arange(L) == 3)[:, None]):
        ours, theirs = (
            (product(q * 9, k.mT).masked_fill(hidden, value).softmax(-1) @ v)
            for product in (postponed_matmul, torch.matmul)
        )
        torch.testing.assert_close(ours, theirs)
    assert len(kernels) == (value < -50)
    low = (
        (product(q, k.mT).masked_fill(~CAUSAL, value) + 40.0 * CAUSAL.flip(1)).softmax(-1) @ v
        for product in (postponed_matmul, torch.matmul)
    )
    torch.testing.assert_close(*low)


EQUATIONS = [
    ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"),
    ("bkhd,bqhd->bhqk", "bkhd,bhqk->bqhd"),
    ("b q h d, b k h d -> h b q k", "hbqk,bkhd->hbqd"),
]


def test_einstein_sums_of_transposed_weights(kernels: list[Any]) -> None:
    q, k, v = (tensor.reshape(B * H, L, E) for tensor in inputs())
    ours, theirs = (
        torch.einsum("bij,bjk->bik", v.mT, product(q, k.mT).softmax(-1).permute(0, 2, 1))
        for product in (postponed_matmul, torch.matmul)
    )
    torch.testing.assert_close(ours, theirs)
    assert len(kernels) == 1


@pytest.mark.parametrize(("first", "second"), EQUATIONS)
def test_einstein_sums(first: str, second: str, kernels: list[Any]) -> None:
    for gradients in (True, False):
        q, k, v = (tensor.transpose(1, 2) for tensor in inputs(gradients=gradients))
        runs = []
        for product in (postponed_einsum, torch.einsum):
            weights = product(first, *((k, q) if first.startswith("bk") else (q, k))).softmax(-1)
            output = torch.einsum(
                second, *((v, weights) if second.startswith("bk") else (weights, v))
            )
            slopes = torch.autograd.grad(output.square().sum(), [q, k, v]) if gradients else ()
            runs.append([output, *slopes, weights])
        for actual, expected in zip(*runs, strict=True):
            torch.testing.assert_close(actual.detach(), expected.detach(), rtol=1e-4, atol=1e-4)
    assert len(kernels) == 2


@pytest.mark.parametrize(
    "equation",
    [
        "bqhd,bkhd->bhkq",
        "bqhd,bkhd->bqk",
        "bqhd,bkhd->bq",
        "bqhd,bkhe->bhqk",
        "...qhd,...khd->...hqk",
        "ab,bc",
    ],
)
def test_other_sums(equation: str) -> None:
    q, k, _ = (tensor.transpose(1, 2) for tensor in inputs())
    if equation == "ab,bc":
        q, k = q[0, 0], k[0, 0].t()
    torch.testing.assert_close(postponed_einsum(equation, q, k), torch.einsum(equation, q, k))


@pytest.mark.parametrize(("beta", "alpha"), [(1.0, 0.3), (0.5, 1), (0, 0.3), (1, -1.0)])
def test_on_top_of_a_bias(beta: float, alpha: float, kernels: list[Any]) -> None:
    runs = []
    for product in (postponed_baddbmm, torch.baddbmm):
        q, k, v = inputs()
        flat = [tensor.reshape(B * H, L, E) for tensor in (q, k, v)]
        bias = torch.arange(L * 1.0).expand(B * H, 1, L).clone().requires_grad_()
        scores = product(bias, flat[0], flat[1].mT, beta=beta, alpha=alpha)
        weights = (scores.view(B, H, L, L) + PADDED).softmax(-1).view(B * H, L, L)
        output = torch.bmm(weights, flat[2])
        runs.append(
            [
                output,
                *torch.autograd.grad(output.square().sum(), [q, k, v, *([bias] if beta else [])]),
                weights,
            ]
        )
    for actual, expected in zip(*runs, strict=True):
        torch.testing.assert_close(actual.detach(), expected.detach(), rtol=1e-4, atol=1e-4)
    assert len(kernels) == (alpha > 0)


def test_in_place() -> None:
    tensors = inputs(gradients=False)
    for gradients in (False, True):
        results_of_both = []
        for product in (postponed_matmul, torch.matmul):
            q, k, v = (tensor.clone().requires_grad_(gradients) for tensor in tensors)
            scores = product(q, k.mT)
            alias = scores
            scores *= 0.5
            scores.masked_fill_(~CAUSAL, LOWEST)
            scores += PADDED
            weights = alias.softmax(-1)
            results_of_both += [weights @ v, weights, alias]
        for actual, expected in zip(results_of_both[:3], results_of_both[3:], strict=True):
            torch.testing.assert_close(actual, expected)


def test_a_view_of_what_changes_in_place() -> None:
    q, k, _ = inputs(gradients=False)
    scores = postponed_matmul(q, k.mT)
    rows = scores.view(-1, L, L)
    scores.mul_(2.0)
    torch.testing.assert_close(rows, (torch.matmul(q, k.mT) * 2).view(-1, L, L))
    scores[0] = 7.0
    assert bool((rows[:H] == 7).all())


def test_nothing_that_happens_later_changes_the_weights() -> None:
    q, k, v = inputs(gradients=False)
    mask = PADDED.clone()
    wanted = forward(torch.matmul, q, k, v, mask)[1]
    weights = forward(postponed_matmul, q, k, v, mask)[1]
    for tensor in (q, k, v, mask):
        tensor.zero_()
    torch.testing.assert_close(weights, wanted)


def test_a_value_changes_in_place_where_weights_have_no_gradient() -> None:
    q, k, v = inputs()
    gradients = []
    for product in (torch.matmul, postponed_matmul):
        value = v * 1
        result = product(q, k.mT).softmax(-1).detach() @ value
        value.mul_(2.0)
        gradients.append(torch.autograd.grad((result * PADDED.exp()[..., :1]).sum(), v)[0])
    torch.testing.assert_close(*gradients)


def test_what_is_dropped_is_freed() -> None:
    """Neither a graph that lives on nor a cycle keeps the copies of the query and the key."""
    q, k, v = inputs()
    gc.collect()
    gc.disable()
    try:
        output, weights = forward(postponed_matmul, q, k, v)
        records = [
            instance for instance in gc.get_objects() if type(instance).__name__ == "_Scores"
        ]
        assert records
        del weights, records
        assert not [
            instance for instance in gc.get_objects() if type(instance).__name__ == "_Scores"
        ]
        output.sum().backward()
        output, weights = forward(postponed_matmul, q, k, v)
        weights.retain_grad()
        (output.sum() + weights.sum()).backward()
        assert weights.grad is not None
        del output, weights
        assert not [
            instance for instance in gc.get_objects() if type(instance).__name__ == "_Scores"
        ]
    finally:
        gc.enable()


def test_it_is_a_tensor() -> None:
    tensors = inputs()
    (_, weights), (_, wanted) = (
        forward(product, *tensors) for product in (postponed_matmul, torch.matmul)
    )
    assert isinstance(weights, torch.Tensor) and torch.is_tensor(weights) and weights.requires_grad
    assert (weights.shape, weights.dtype, weights.device, len(weights)) == (
        wanted.shape,
        wanted.dtype,
        wanted.device,
        B,
    )
    assert weights.record.value is None
    assert torch.equal(weights, wanted) and str(weights.detach()) == str(wanted.detach())
    assert type(weights.cpu()) is torch.Tensor and not weights.is_leaf
    with torch.no_grad():
        _, weights = forward(postponed_matmul, *tensors)
        for copied in (copy.deepcopy(weights), pickle.loads(pickle.dumps(weights))):
            assert type(copied) is torch.Tensor and torch.equal(copied, wanted)
        file = io.BytesIO()
        torch.save(weights, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=True), wanted)


class Doubled(torch.autograd.Function):
    """A function of somebody else's, which takes the tensor as it is."""

    @staticmethod
    def forward(ctx: Any, y: Any) -> Any:
        return y * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


@pytest.mark.parametrize("first", [True, False], ids=["before the product", "after the product"])
def test_functions_of_others(first: bool) -> None:
    runs = []
    for product in (postponed_matmul, torch.matmul):
        q, k, v = inputs()
        weights = product(q, k.mT).softmax(-1)
        output = torch.zeros(()) if first else weights @ v
        loss = (Doubled.apply(weights) ** 2).sum() + output.sum() + (weights @ v).square().sum()
        runs.append(torch.autograd.grad(loss, [q, k, v]))
    for actual, expected in zip(*runs, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_second_derivatives_where_no_kernel_ran() -> None:
    second_derivatives = []
    for product in (postponed_matmul, torch.matmul):
        q, k, v = inputs()
        output, _ = forward(product, q, k, v, head_mask=torch.ones(1))
        (slope,) = torch.autograd.grad(output.square().sum(), q, create_graph=True)
        second_derivatives.append(torch.autograd.grad(slope.square().sum(), [q, k, v]))
    for actual, expected in zip(*second_derivatives, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


def test_weights_that_were_changed_have_no_gradient() -> None:
    output, weights = forward(postponed_matmul, *inputs())
    weights.retain_grad()
    loss = output.sum() + weights.sum()
    with torch.no_grad():
        weights.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("mode", [torch.compiler.is_compiling, torch.func.vmap, torch.autocast])
def test_where_others_look_on(mode: Any) -> None:
    q, k, v = inputs(gradients=False)
    wanted = forward(torch.matmul, q, k, v)[0]
    if mode is torch.func.vmap:
        output = torch.func.vmap(
            lambda *tensors: forward(postponed_matmul, *(tensor[None] for tensor in tensors))[0][0]
        )(q, k, v)
    elif mode is torch.autocast:
        with torch.autocast("cpu", torch.bfloat16):
            assert implementation("postponed_matmul", q, k.mT) == "reference"
            output = forward(postponed_matmul, q, k, v)[0].float()
            wanted = forward(torch.matmul, q, k, v)[0].float()
    else:
        output = torch.compile(
            lambda *tensors: forward(postponed_matmul, *tensors)[0], backend="eager", fullgraph=True
        )(q, k, v)
    torch.testing.assert_close(output, wanted)


def test_a_step_under_autocast_or_without_gradients() -> None:
    q, k, v = inputs()
    weights = postponed_matmul(q, k.mT).softmax(-1)
    with torch.no_grad():
        torch.testing.assert_close(weights @ v, torch.matmul(q, k.mT).softmax(-1) @ v)
    weights = postponed_matmul(q, k.mT).softmax(-1)
    with torch.autocast("cpu", torch.bfloat16):
        assert (weights @ v).dtype == torch.bfloat16


def test_checkpoints() -> None:
    from torch.utils.checkpoint import checkpoint

    for reentrant in (False, True):
        runs = []
        for product in (postponed_matmul, torch.matmul):
            tensors = inputs()
            output, weights = checkpoint(
                lambda *a, p=product: forward(p, *a), *tensors, use_reentrant=reentrant
            )
            runs.append(backward_of(output.square().sum() + (weights**3).sum(), tensors))
        for actual, expected in zip(*runs, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def backward_of(loss: Any, leaves: Any) -> list[Any]:
    """Return the gradients that a backward pass accumulates."""
    loss.backward()
    return [leaf.grad for leaf in leaves]


def test_few_rows_are_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, _ = inputs()
    assert implementation("postponed_matmul", q, k.mT) == "torch-native"
    assert implementation("postponed_matmul", q[:, :, :1], k.mT) == "reference"
    assert implementation("postponed_matmul", q, k.mT.bfloat16()) == "reference"
    assert implementation("postponed_matmul", q.bfloat16(), k.mT.bfloat16()) == "reference"
    assert implementation("postponed_matmul", q[:, :, :0], k.mT) == "reference"
    assert implementation("postponed_matmul", q, 2.0) == "reference"
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation("postponed_matmul", q, k.mT) == "reference"
    large = torch.zeros(1, 8, 512, 64)
    assert implementation("postponed_matmul", large, large.mT) == "torch-native"
    assert implementation("postponed_einsum", "bhqd,bhkd->bhqk", large, large) == "torch-native"


@pytest.mark.parametrize("repeated", ["key", "query", "bias"])
def test_hooks_on_a_repeated_tensor_see_every_repetition(repeated: str) -> None:
    """Of one head's keys that all heads share by `expand`, the gradient is that of each head."""

    def gradients(product: Product) -> list[Any]:
        q, k, v = inputs()
        inputs_by_name = {"query": q, "key": k, "bias": torch.arange(L * 1.0).repeat(B, H, L, 1)}
        shared = inputs_by_name[repeated][:, :1].detach().requires_grad_()
        inputs_by_name[repeated] = shared.expand(*inputs_by_name[repeated].shape)
        gradients: list[Any] = []
        inputs_by_name[repeated].register_hook(lambda gradient: gradients.append(gradient.clone()))
        inputs_by_name[repeated].retain_grad()
        weights = F.softmax(
            product(inputs_by_name["query"], inputs_by_name["key"].mT) + inputs_by_name["bias"],
            dim=-1,
        )
        (weights @ v).square().sum().backward()
        return [*gradients, inputs_by_name[repeated].grad, shared.grad]

    for ours, theirs in zip(gradients(postponed_matmul), gradients(torch.matmul), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
