"""Test that each op is plain calls of PyTorch while something traces or compiles a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft import ops  # noqa: E402

WEIGHT = torch.linspace(0.5, 1.5, 8)
TARGETS = torch.tensor([0, 3, 1, 2, 7, 5])


class Layers(nn.Module):
    """Layers that an op may take, and a forward that computes with them."""

    def __init__(self, computed: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.computed = computed
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.container = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        self.conv, self.norm1d, self.rows = nn.Conv1d(6, 6, 1), nn.BatchNorm1d(6), nn.BatchNorm1d(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm_cell = nn.LSTMCell(8, 8)
        self.layer_norm, self.group_norm, self.rms_norm = (
            nn.LayerNorm(8),
            nn.GroupNorm(2, 6),
            nn.RMSNorm(8),
        )
        self.gelu, self.silu, self.softmax, self.dropout = (
            nn.GELU(),
            nn.SiLU(),
            nn.Softmax(-1),
            nn.Dropout(0.1),
        )

    def forward(self, x: Any) -> Any:
        return self.computed(self, x)


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "add_rms_norm": lambda m, x: ops.add_rms_norm(x, x, m.rms_norm)[1],
    "apex_gelu_mlp": lambda m, x: ops.apex_gelu_mlp(x, m.q, m.k, activation=m.gelu),
    "apex_layer_norm": lambda m, x: ops.apex_layer_norm(x, m.layer_norm),
    "apex_rms_norm": lambda m, x: ops.apex_rms_norm(x, weight=WEIGHT),
    "attention": lambda m, x: ops.attention(x, x, x, scale=0.5),
    "attention_without_weights": lambda m, x: ops.attention_without_weights(
        *(torch.cat((x, x, x), 1),) * 3, m.attention
    )[0][:, :6],
    "channels_first_layer_norm": lambda m, x: ops.channels_first_layer_norm(x[..., None], eps=1e-6),
    "conv_batch_norm": lambda m, x: ops.conv_batch_norm(x, m.conv, m.norm1d),
    "conv_of_patches": lambda m, x: ops.conv_of_patches(x[..., :1].contiguous(), m.conv),
    "cross_entropy": lambda m, x: ops.cross_entropy(x[0], TARGETS),
    "between_diagonals": lambda m, x: ops.between_diagonals(WEIGHT[:6], x[0, :, :6]),
    "diagonal_matmul": lambda m, x: ops.diagonal_matmul(WEIGHT[:6], x[0]),
    "diagonals_matmul": lambda m, x: ops.diagonals_matmul(x[..., 0], x),
    "distances": lambda m, x: ops.distances(x[:, :, None], x[:, None], -1),
    "dropout_add_layer_norm": lambda m, x: ops.dropout_add_layer_norm(
        x, x, m.layer_norm, m.dropout
    ),
    "expanded_heads": lambda m, x: ops.expanded_heads(x[None], 3, 1),
    "expanded_part": lambda m, x: ops.linear_of_parts(
        [ops.expanded_part(x[:, :1, :4], (2, 6, 4)), x[..., 4:]], m.q
    ),
    "flash_add_layer_norm": lambda m, x: ops.flash_add_layer_norm(x, x, m.layer_norm),
    "flash_add_layer_norm_pair": lambda m, x: ops.flash_add_layer_norm_pair(x, x, m.layer_norm)[1],
    "flash_attention": lambda m, x: ops.flash_attention(x[None], x[None], x[None], scale=0.5),
    "flash_gelu_mlp": lambda m, x: ops.flash_gelu_mlp(x, m.q, m.k, activation=m.gelu),
    "gated_activation": lambda m, x: ops.gated_activation(m.q(x), m.k(x), F.silu),
    "gated_linear": lambda m, x: ops.gated_linear(x, m.q, m.k, m.silu),
    "gated_product": lambda m, x: ops.gated_product(ops.open_gate(m.q(x), m.silu), m.k(x)),
    "functional_layer_norm": lambda m, x: ops.functional_layer_norm(x, WEIGHT.shape, WEIGHT, None),
    "group_norm": lambda m, x: ops.group_norm(x, m.group_norm),
    "interleaved_part": lambda m, x: ops.linear_of_parts(
        [ops.interleaved_part(x[0, :3, :4], 2, 0), x[0, :, 4:]], m.q
    ),
    "interleaved_rows_part": lambda m, x: ops.linear_of_parts(
        [ops.interleaved_rows_part(x[0, :3, :4], 2, 6, -1), x[0, :, 4:]],
        None,
        matrix=WEIGHT.diag(),
        shape=(2, 3, 8),
    ),
    "interleaved_rotary": lambda m, x: ops.interleaved_rotary(x, x, x),
    "layer_norm": lambda m, x: ops.layer_norm(x, m.layer_norm),
    "length_normalize": lambda m, x: ops.length_normalize(
        x, -1, minimum=1e-6, scale=2.0, weight=WEIGHT
    ),
    "linear_at": lambda m, x: ops.linear_at(x, m.q, -1),
    "linear_batch_norm": lambda m, x: ops.linear_batch_norm(x[:, 0], m.q, m.rows),
    "linear_gelu": lambda m, x: ops.linear_gelu(x, m.q, m.gelu),
    "linear_of_parts": lambda m, x: ops.linear_of_parts([x[..., :4], x[..., 4:]], m.container, 2),
    "linear_qkv": lambda m, x: sum(ops.linear_qkv(x, m.q, m.k, m.v)),
    "linear_recurrence": lambda m, x: ops.linear_recurrence(x, x, 1, 1)(0, x[:, 0]),
    "matmul_diagonal": lambda m, x: ops.matmul_diagonal(x[0], WEIGHT),
    "matmul_diagonals": lambda m, x: ops.matmul_diagonals(x, x[:, 0]),
    "memory_efficient_attention": lambda m, x: ops.memory_efficient_attention(
        x[None], x[None], x[None], scale=0.5
    ),
    "one_hot_matmul": lambda m, x: ops.one_hot_matmul(TARGETS, 8, x[0].mT @ x[0], torch.float32),
    "one_hot_rows": lambda m, x: ops.one_hot_rows(torch.eye(8)[TARGETS], x[0].mT @ x[0]),
    "one_hot_select": lambda m, x: ops.one_hot_select(x[0], TARGETS, 8),
    "pairwise_cosine": lambda m, x: ops.pairwise_cosine(x[:, :, None], x[:, None], -1),
    "postponed_baddbmm": lambda m, x: torch.softmax(
        ops.postponed_baddbmm(x[:, :, :6], x, x.mT, beta=1, alpha=1), -1
    ),
    "postponed_einsum": lambda m, x: torch.softmax(ops.postponed_einsum("bld,bsd->bls", x, x), -1),
    "postponed_linear": lambda m, x: ops.postponed_linear(x, m.q),
    "postponed_matmul": lambda m, x: torch.softmax(
        ops.postponed_matmul(x, x.transpose(-1, -2)), -1
    ),
    "pairwise_product": lambda m, x: ops.pairwise_product(x[:, :, None], x[:, None], -1),
    "product_diagonal": lambda m, x: ops.product_diagonal(x[0], x[0].mT),
    "product_trace": lambda m, x: ops.product_trace(x[0], x[0].mT),
    "gated_halves": lambda m, x: ops.gated_halves(x, -1),
    "quick_gelu": lambda m, x: ops.quick_gelu(x),
    "repeated_part": lambda m, x: ops.linear_of_parts(
        [ops.repeated_part(x[:, :1, :4], (1, 6, 1)), x[..., 4:]], m.q
    ),
    "repeated_heads": lambda m, x: ops.repeated_heads(x[None], 3, 1),
    "recurrent_steps": lambda m, x: ops.recurrent_steps(x, m.lstm_cell, 1)(0, (x[:, 1], x[:, 2]))[
        0
    ][:, None],
    "rms_norm": lambda m, x: ops.rms_norm(x, weight=WEIGHT, eps=1e-6),
    "rms_normalize": lambda m, x: ops.rms_normalize(x, 1e-6, weight=WEIGHT, casting="rounded"),
    "rolled_rotary": lambda m, x: ops.rolled_rotary(x, x, x),
    "rotated_pairs": lambda m, x: ops.rotated_pairs(x, x, x, x),
    "rotary": lambda m, x: ops.rotary(x[None], x[None], x[None]),
    "rotary_pair": lambda m, x: ops.rotary_pair(x[None], x[None], x, x)[0],
    "rounded_softmax": lambda m, x: ops.rounded_softmax(x, -1, torch.float32),
    "row_softmax": lambda m, x: ops.row_softmax(x),
    "rows_part": lambda m, x: ops.linear_of_parts(
        [ops.rows_part(x[0, :, :4], TARGETS % 6), ops.rows_part(x[0, :, 4:], TARGETS % 6)], m.q
    ),
    "sequential": lambda m, x: ops.sequential(x, m.container),
    "slices_along": lambda m, x: ops.slices_along(x, 1)[2] + ops.slices_along(x, -1)[0][:, :1],
    "smoothed_select": lambda m, x: ops.smoothed_select(
        x[0], TARGETS[:, None], 1, like=x[0], scale=0.9, offset=0.1
    ),
    "softmax": lambda m, x: ops.softmax(x, layer=m.softmax),
    "sorted_head": lambda m, x: ops.sorted_head(x, 3, -1),
    "sorted_indices": lambda m, x: ops.sorted_indices(x, 3, -1),
    "squared_distances": lambda m, x: ops.squared_distances(x[:, :, None], x[:, None], -1),
    "standard_deviation": lambda m, x: ops.standard_deviation(x, 1),
    "standardize": lambda m, x: ops.standardize(x, 1e-6),
    "standardize_along": lambda m, x: ops.standardize_along(x, (1, 2), 1e-6),
    "te_rotary": lambda m, x: ops.te_rotary(x[None], x[None, :1]),
    "unfold_conv": lambda m, x: ops.unfold_conv(
        x[:, None], m.q.weight[:6], kernel_size=(2, 4), padding=(1, 0)
    ).transpose(1, 2)[:, :6],
    "unfold_einsum": lambda m, x: ops.unfold_einsum(
        "oi,bil->blo", x[:, None], m.q.weight, kernel_size=(2, 4)
    ),
    "unfold_linear": lambda m, x: ops.unfold_linear(
        x[:, None], m.q.weight, kernel_size=(2, 4), bias=m.q.bias
    ),
    "variance": lambda m, x: ops.variance(x, 1),
    "variance_and_mean": lambda m, x: ops.variance_and_mean(x, 1)[0],
}


COMPILED = CASES | {
    "linear_cross_entropy": lambda m, x: ops.linear_cross_entropy(x[0], TARGETS, m.q),
    "substitute_rows": lambda m, x: ops.substitute_rows(x * 0.5, 6),
}
# `one_hot` itself reads indices, which `make_fx` refuses.
UNTRACEABLE = {"one_hot_matmul", "one_hot_select"}


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for small tensors, too, on the same numbers in every test."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    torch.manual_seed(0)


def calls_of(graph: Any) -> list[Any]:
    """Return what a graph calls: functions, and the names of methods."""
    assert not [node for node in graph.nodes if node.op == "call_module"]
    return [node.target for node in graph.nodes if node.op in ("call_function", "call_method")]


def is_plain(target: Any) -> bool:
    """Return whether a function or the name of a method is PyTorch's or Python's own."""
    names = target if isinstance(target, str) else f"{target.__module__}.{target.__name__}"
    owner = names.partition(".")[0]
    return isinstance(target, str) or owner in ("torch", "_operator", "builtins", "math")


@pytest.mark.parametrize("gradients", [False, True], ids=["inference", "gradients"])
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiler_sees_plain_calls_in_one_graph(name: str, gradients: bool) -> None:
    torch._dynamo.reset()
    model, x, graphs = Layers(COMPILED[name]).eval(), torch.randn(2, 6, 8), []

    def record(module: Any, _: Any) -> Any:
        graphs.append(module.graph)
        return module

    with torch.set_grad_enabled(gradients):
        compiled = torch.compile(model, backend=record, fullgraph=True)
        torch.testing.assert_close(compiled(x), model(x))
    (graph,) = graphs
    calls = calls_of(graph)
    assert calls
    assert [target for target in calls if not is_plain(target)] == []


@pytest.mark.skipif(
    torch.__version__ < (2, 13), reason="F.one_hot asks for the largest number before, in export"
)
@pytest.mark.parametrize("name", COMPILED)
def test_an_exported_model_holds_operations_of_pytorch(name: str) -> None:
    model, x = Layers(COMPILED[name]).eval(), torch.randn(2, 6, 8)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
        torch.testing.assert_close(program.module()(x), model(x))
    calls = calls_of(program.graph)
    assert calls
    assert {target.namespace for target in calls if target.__module__ != "_operator"} == {"aten"}


@pytest.mark.parametrize("tensors", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", sorted(set(COMPILED) - UNTRACEABLE))
def test_operations_are_traced_without_a_look_at_the_numbers(name: str, tensors: str) -> None:
    model, x, other = Layers(COMPILED[name]).eval(), torch.randn(2, 6, 8), torch.randn(2, 6, 8)

    def call(x: Any) -> Any:
        return model(x)

    with torch.no_grad():
        traced = make_fx(call, tracing_mode=tensors, _allow_non_fake_inputs=True)(x)
        torch.testing.assert_close(traced(other), model(other))


@pytest.mark.parametrize("name", COMPILED)
def test_a_jit_trace_holds_for_other_numbers(name: str) -> None:
    model, x, other = Layers(COMPILED[name]).eval(), torch.randn(2, 6, 8), torch.randn(2, 6, 8)
    with torch.no_grad():
        traced = torch.jit.trace(model, (x,))
        torch.testing.assert_close(traced(other), model(other))


def test_a_compiled_attention_is_the_kernel_that_compilers_know() -> None:
    seen: list[Any] = []

    def record(module: Any, _: Any) -> Any:
        seen.extend(calls_of(module.graph))
        return module

    model, x = Layers(CASES["attention"]).eval(), torch.randn(2, 6, 8)
    with torch.no_grad():
        torch.compile(model, backend=record, fullgraph=True)(x)
    assert F.scaled_dot_product_attention in seen
    assert torch.softmax not in seen


@pytest.mark.parametrize("name", CASES)
def test_a_model_with_an_op_is_traced(name: str) -> None:
    model, x = Layers(CASES[name]).eval(), torch.randn(2, 6, 8)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), model(x))


def test_nothing_but_loops_over_experts_or_rows_and_losses_is_left_out() -> None:
    left_out = {"experts", "grouped_experts", "linear_cross_entropy", "logits_cross_entropy"}
    left_out.add("substitute_rows")  # `torch.fx` knows no writes into a tensor
    assert set(ops.REFERENCES) - set(CASES) == left_out
