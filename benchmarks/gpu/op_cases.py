"""Calls of ops that the measured subjects do not make: options, second derivatives, and kernels of
libraries that are not installed, for which their documented compositions stand in."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from cases import CUDA, Call, Case, Version
from torch import nn
from torch.nn import functional

from regraft import ops

Maker = Callable[[], tuple[Call, Call, list[Any]]]
HALF = torch.bfloat16


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor on the fake device that needs gradients."""
    return torch.randn(*shape, device=CUDA, dtype=dtype).requires_grad_()


def halves(*shape: int) -> torch.Tensor:
    """Return a table of cosines or sines, of which both halves are equal."""
    half = torch.randn(*shape[:-1], shape[-1] // 2, device=CUDA)
    return torch.cat((half, half), dim=-1)


def case(
    name: str, make: Maker, *, training: bool = True, twice: bool = False, fails: str = ""
) -> Case:
    """Return the case of two calls, which `make` returns with the tensors and modules that get
    gradients.

    With `fails`, the second derivative of the op has to raise RuntimeError with these words.
    """

    def versions() -> tuple[Version, Version]:
        ours, plain, sources = make()
        leaves = [
            leaf
            for source in sources
            for leaf in (source.parameters() if isinstance(source, nn.Module) else [source])
        ]
        if fails:
            ours = refusing_second_derivatives(ours, leaves, fails)
        return Version(ours, leaves), Version(plain, leaves)

    return Case(name, versions, training, twice)


def refusing_second_derivatives(call: Call, leaves: list[torch.Tensor], words: str) -> Call:
    """Return a call that first checks that it has no second derivative."""

    def checked() -> Any:
        try:
            torch.autograd.grad(call().sum(), leaves, create_graph=True)
        except RuntimeError as problem:
            if words not in str(problem):
                raise
            return call()
        raise AssertionError(f"a second derivative is computed, and not refused: {words}")

    return checked


def op_cases() -> Iterator[Case]:
    """Yield all cases of this file."""
    yield from norm_cases()
    yield from region_cases()
    yield from loss_cases()
    yield from other_cases()
    yield from library_cases()


def norm_cases() -> Iterator[Case]:
    """Yield calls of normalisations."""
    for casting, offset, dtype in [
        ("statistics", 0.0, HALF),
        ("llama", 1.0, HALF),
        ("gemma", 1.0, HALF),
        ("none", 0.0, torch.float32),
        ("llama", 0.0, torch.float32),
    ]:
        yield case(
            f"rms_norm ({casting}, offset {offset})",
            lambda casting=casting, offset=offset, dtype=dtype: rms_norm_calls(  # type: ignore[misc]
                casting, offset, dtype
            ),
            twice=dtype == torch.float32,
        )
    # Liger has kernels of their own for many short rows
    for casting in ("llama", "gemma"):
        yield case(
            f"rms_norm ({casting}, many short rows)",
            lambda casting=casting: rms_norm_calls(casting, 0.0, HALF, rows=1 << 15),  # type: ignore[misc]
        )
    yield case("add_rms_norm (second derivative)", added_norm_calls, twice=True)
    yield case("add_rms_norm (another norm)", sum_gradient_calls)

    def layer_norm() -> tuple[Call, Call, list[Any]]:
        x, norm = numbers(4, 8, 64), nn.LayerNorm(64, device=CUDA)
        return lambda: ops.layer_norm(x, norm), lambda: norm(x), [x, norm]

    def functional_layer_norm() -> tuple[Call, Call, list[Any]]:
        x, weight = numbers(4, 8, 64), numbers(64)
        call = (x, (64,), weight, None, 1e-5)
        return (
            lambda: ops.functional_layer_norm(*call),
            lambda: functional.layer_norm(*call),
            [x, weight],
        )

    def group_norm() -> tuple[Call, Call, list[Any]]:
        x, norm = numbers(2, 32, 8, 8), nn.GroupNorm(8, 32, device=CUDA)
        return lambda: ops.group_norm(x, norm), lambda: norm(x), [x, norm]

    yield case("layer_norm (second derivative)", layer_norm, twice=True)
    yield case("functional_layer_norm (no bias)", functional_layer_norm)
    yield case("group_norm (second derivative)", group_norm, twice=True)


def rms_norm_calls(
    casting: str, offset: float, dtype: torch.dtype, rows: int = 8
) -> tuple[Call, Call, list[Any]]:
    """Return calls of an RMSNorm with a weight."""
    x, weight = numbers(4, rows, 64, dtype=dtype), numbers(64, dtype=dtype)
    options = {"weight": weight, "offset": offset, "casting": casting}
    reference = ops.REFERENCES["rms_norm"]
    return lambda: ops.rms_norm(x, **options), lambda: reference(x, **options), [x, weight]


class LigerNorm(nn.Module):  # type: ignore[misc]
    """An RMSNorm as the rules rewrite it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, device=CUDA))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(x, weight=self.weight)


class PlainNorm(LigerNorm):
    """The composition of a LigerNorm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ops.REFERENCES["rms_norm"](x, weight=self.weight)
        return result


def added_norm_calls() -> tuple[Call, Call, list[Any]]:
    """Return calls of a residual sum with its norm."""
    x, residual, ours, plain = numbers(4, 64), numbers(4, 64), LigerNorm(), PlainNorm()
    plain.weight = ours.weight
    reference = ops.REFERENCES["add_rms_norm"]
    return (
        lambda: ops.add_rms_norm(x, residual, ours),
        lambda: reference(x, residual, plain),
        [x, residual, ours],
    )


def sum_gradient_calls() -> tuple[Call, Call, list[Any]]:
    """Return calls that differentiate a postponed sum itself."""
    x, residual = numbers(4, 64), numbers(4, 64)

    class Scale(nn.Module):  # type: ignore[misc]
        """A module that gets the sum, and asks for its gradient."""

        def forward(self, total: torch.Tensor) -> torch.Tensor:
            scaled = total * 2
            return torch.autograd.grad(scaled.sum(), x, retain_graph=True)[0] + scaled

    reference = ops.REFERENCES["add_rms_norm"]
    scale = Scale()
    return (
        lambda: ops.add_rms_norm(x, residual, scale),
        lambda: reference(x, residual, scale),
        [x, residual],
    )


def region_cases() -> Iterator[Case]:
    """Yield calls of compiled regions."""

    def linear_gelu() -> tuple[Call, Call, list[Any]]:
        x, linear = numbers(4, 8, 64), nn.Linear(64, 128, device=CUDA)
        gelu = nn.GELU(approximate="tanh")
        return lambda: ops.linear_gelu(x, linear, gelu), lambda: gelu(linear(x)), [x, linear]

    def dropout_norm(rate: float) -> tuple[Call, Call, list[Any]]:
        x, residual, norm = numbers(4, 64), numbers(4, 64), nn.LayerNorm(64, device=CUDA)
        dropout = nn.Dropout(rate)
        return (
            lambda: ops.dropout_add_layer_norm(x, residual, norm, dropout),
            lambda: norm(dropout(x) + residual),
            [x, residual, norm],
        )

    def plain_norm() -> tuple[Call, Call, list[Any]]:
        x, residual = numbers(4, 64), torch.randn(4, 64, device=CUDA)
        norm = nn.LayerNorm(64, elementwise_affine=False, device=CUDA)
        return (
            lambda: ops.dropout_add_layer_norm(x, residual, norm, p=0.1),
            lambda: norm(functional.dropout(x, 0.1) + residual),
            [x],
        )

    for twice in (False, True):
        suffix = " (second derivative)" if twice else ""
        yield case(f"linear_gelu{suffix}", linear_gelu, twice=twice)
        for rate in (0.0, 0.1):
            yield case(
                f"dropout_add_layer_norm, {rate}{suffix}",
                lambda rate=rate: dropout_norm(rate),  # type: ignore[misc]
                twice=twice,
            )
    yield case("dropout_add_layer_norm (no weight)", plain_norm)


def loss_cases() -> Iterator[Case]:
    """Yield calls of losses."""

    def layer_loss() -> tuple[Call, Call, list[Any]]:
        x, target = numbers(16, 100), torch.zeros(16, dtype=torch.int64, device=CUDA)
        loss = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
        return lambda: ops.cross_entropy(x, target, layer=loss), lambda: loss(x, target), [x]

    def losses_of_rows() -> tuple[Call, Call, list[Any]]:
        x, target = numbers(16, 100), torch.zeros(16, dtype=torch.int64, device=CUDA)
        return (
            lambda: ops.cross_entropy(x, target, reduction="none"),
            lambda: functional.cross_entropy(x, target, reduction="none"),
            [x],
        )

    yield case("cross_entropy (no reduction)", losses_of_rows)
    refused = "derivative for liger_backward is not implemented"
    yield case("cross_entropy (layer)", layer_loss, fails=refused)
    yield case("postponed_linear (loss)", lambda: logits_calls(scaled_loss), fails=refused)
    yield case("postponed_linear (kept)", lambda: logits_calls(kept_loss))
    yield case("postponed_linear (elements)", lambda: logits_calls(lambda y, _: y.square()))
    yield case("postponed_linear (watched)", lambda: logits_calls(watched_loss))
    yield case("postponed_linear (differentiated)", lambda: logits_calls(differentiated_logits))
    yield case("postponed_linear (function)", lambda: logits_calls(lambda y, _: Doubled.apply(y)))
    yield case("postponed_linear (selected)", lambda: logits_calls(selected_loss))


def logits_calls(
    use: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> tuple[Call, Call, list[Any]]:
    """Return calls that compute something of the logits of a layer with a bias, and a target."""
    x, head = numbers(2, 16, 64), nn.Linear(64, 100, device=CUDA)
    target = torch.zeros(2, 16, dtype=torch.int64, device=CUDA)
    return (
        lambda: use(ops.postponed_linear(x, head), target),
        lambda: use(head(x), target),
        [x, head],
    )


def scaled_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the loss of scaled logits."""
    return functional.cross_entropy((logits * 2.0).float().view(-1, 100), target.view(-1))


def kept_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the loss of logits that somebody keeps."""
    loss = functional.cross_entropy(logits.view(-1, 100), target.view(-1))
    loss.logits = logits
    return loss


def selected_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the loss of all positions but the last."""
    rows = logits[:, :-1, :].contiguous().view(-1, 100)
    return functional.cross_entropy(rows, target[:, 1:].reshape(-1))


def watched_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the loss of logits whose gradients are watched after the loss was computed."""
    scaled = logits * 2.0
    loss = functional.cross_entropy(scaled[..., :-1, :].reshape(-1, 100), target[:, 1:].flatten())
    del scaled
    logits.register_hook(lambda gradient: gradient)
    return loss


class Doubled(torch.autograd.Function):  # type: ignore[misc]
    """A function of a user, which gets logits as they are."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def differentiated_logits(logits: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return the logits plus their gradient in a sum of squares."""
    (gradient,) = torch.autograd.grad(logits.square().sum(), logits, retain_graph=True)
    return logits + gradient.detach()


def other_cases() -> Iterator[Case]:
    """Yield calls of other ops."""

    def gate(activation: Any, **options: Any) -> Maker:
        def make() -> tuple[Call, Call, list[Any]]:
            x, up = numbers(4, 8, 64), numbers(4, 8, 64)
            return (
                lambda: ops.gated_activation(x, up, activation, **options),
                lambda: activation(x, **options) * up,
                [x, up],
            )

        return make

    def opened_gate() -> tuple[Call, Call, list[Any]]:
        x, up, silu = numbers(4, 8, 64), numbers(4, 8, 64), nn.SiLU()
        return (
            lambda: ops.gated_product(ops.open_gate(x, silu), up),
            lambda: silu(x) * up,
            [x, up],
        )

    def one_rotary() -> tuple[Call, Call, list[Any]]:
        x, table = numbers(2, 4, 16, 64), halves(1, 1, 16, 64)
        reference = ops.REFERENCES["rotary"]
        return lambda: ops.rotary(x, table, table), lambda: reference(x, table, table), [x]

    def rotary_in_inference() -> tuple[Call, Call, list[Any]]:
        with torch.inference_mode():
            table = halves(1, 16, 1, 64)
        x = torch.randn(2, 16, 4, 64, device=CUDA)
        reference = ops.REFERENCES["rotary_pair"]
        return (
            lambda: ops.rotary_pair(x, x, table, table),
            lambda: reference(x, x, table, table),
            [],
        )

    def softmax() -> tuple[Call, Call, list[Any]]:
        x = numbers(4, 8, 8192)
        return lambda: ops.row_softmax(x), lambda: x.softmax(-1), [x]

    def query_key_value() -> tuple[Call, Call, list[Any]]:
        x = torch.randn(4, 8, 64, device=CUDA)
        layers = [nn.Linear(64, 64, bias=False, device=CUDA) for _ in range(3)]
        return (
            lambda: ops.linear_qkv(x, *layers),
            lambda: tuple(each(x) for each in layers),
            [],
        )

    yield case("gated_activation (SiLU)", gate(functional.silu), twice=True)
    yield case("gated_activation (GELU)", gate(functional.gelu, approximate="tanh"), twice=True)
    yield case(
        "gated_activation (GELU, first derivative)", gate(functional.gelu, approximate="tanh")
    )
    yield case("gated_product", opened_gate)
    yield case("rotary (second derivative)", one_rotary, twice=True)
    yield case("rotary_pair (inference)", rotary_in_inference, training=False)
    yield case("row_softmax (second derivative)", softmax, twice=True)
    yield case("linear_qkv (no bias)", query_key_value, training=False)


def library_cases() -> Iterator[Case]:
    """Yield calls of the kernels of other libraries."""

    def apex_rms_norm() -> tuple[Call, Call, list[Any]]:
        x, weight = numbers(4, 64, dtype=HALF), numbers(64, dtype=HALF)
        reference = ops.REFERENCES["apex_rms_norm"]
        return (
            lambda: ops.apex_rms_norm(x, weight=weight),
            lambda: reference(x, weight=weight),
            [x, weight],
        )

    def apex_layer_norm() -> tuple[Call, Call, list[Any]]:
        x, norm = numbers(4, 64), nn.LayerNorm(64, device=CUDA)
        return lambda: ops.apex_layer_norm(x, norm), lambda: norm(x), [x, norm]

    def gelu_mlp(name: str) -> tuple[Call, Call, list[Any]]:
        x = numbers(2, 8, 64, dtype=HALF)
        up, down = (nn.Linear(*sizes, device=CUDA, dtype=HALF) for sizes in ((64, 256), (256, 64)))
        reference = ops.REFERENCES[name]
        return (
            lambda: getattr(ops, name)(x, up, down),
            lambda: reference(x, up, down),
            [x, up, down],
        )

    def flash_norm(name: str) -> tuple[Call, Call, list[Any]]:
        x, residual = numbers(4, 64), numbers(4, 64)
        norm, dropout = nn.LayerNorm(64, device=CUDA), nn.Dropout(0.1)
        reference = ops.REFERENCES[name]
        return (
            lambda: getattr(ops, name)(x, residual, norm, dropout),
            lambda: reference(x, residual, norm, dropout),
            [x, residual, norm],
        )

    def te_rotary() -> tuple[Call, Call, list[Any]]:
        x, angles = numbers(2, 16, 4, 64, dtype=HALF), torch.randn(1, 16, 1, 64, device=CUDA)
        reference = ops.REFERENCES["te_rotary"]
        return (
            lambda: ops.te_rotary(x, angles, rounded=True),
            lambda: reference(x, angles, rounded=True),
            [x],
        )

    yield with_libraries("apex_rms_norm", apex_rms_norm)
    yield with_libraries("apex_layer_norm", apex_layer_norm)
    for name in ("apex_gelu_mlp", "flash_gelu_mlp"):
        yield with_libraries(name, lambda name=name: gelu_mlp(name))  # type: ignore[misc]
    for name in ("flash_add_layer_norm", "flash_add_layer_norm_pair"):
        yield with_libraries(name, lambda name=name: flash_norm(name))  # type: ignore[misc]
    yield with_libraries("te_rotary", te_rotary)
    yield with_libraries("flash_attention", lambda: attention_calls("flash_attention"))
    xformers = "memory_efficient_attention"
    yield with_libraries(xformers, lambda: attention_calls(xformers))
    yield with_libraries(f"{xformers} (mask)", lambda: attention_calls(xformers, with_mask=True))


def attention_calls(name: str, *, with_mask: bool = False) -> tuple[Call, Call, list[Any]]:
    """Return calls of an attention by another library's kernel."""
    query, key, value = (numbers(2, 4, 17, 64, dtype=HALF) for _ in range(3))
    mask = torch.zeros(1, 1, 17, 17, device=CUDA, dtype=HALF) if with_mask else None
    options: dict[str, Any] = {"scale": 0.125}
    options |= {"mask": mask} if with_mask else {}
    reference = ops.REFERENCES[name]
    return (
        lambda: getattr(ops, name)(query, key, value, **options),
        lambda: reference(query, key, value, **options),
        [query, key, value],
    )


def with_libraries(name: str, make: Maker) -> Case:
    """Return a case whose op gets the compositions that stand in for kernels of other libraries;
    one of them has to be called. A second derivative is refused."""

    def with_stand_ins() -> tuple[Call, Call, list[Any]]:
        ours, plain, sources = make()
        called: list[str] = []

        def library_function(_: str, kernel: str, extension: str = "") -> Any:
            function = STAND_INS.get(kernel)
            if function is None:
                return None

            def call(*arguments: Any, **options: Any) -> Any:
                called.append(kernel)
                return function(*arguments, **options)

            return SimpleNamespace(apply=call) if kernel == "FusedDenseGeluDenseFunc" else call

        def call_ours() -> Any:
            with contextlib.ExitStack() as stack:
                for module_name, module in list(sys.modules.items()):
                    is_op = module_name.startswith("regraft.ops.")
                    if is_op and hasattr(module, "library_function"):
                        stack.enter_context(
                            mock.patch.object(module, "library_function", library_function)
                        )
                result = ours()
            if not called:
                raise AssertionError("the kernel of the library is not called")
            return result

        return call_ours, plain, sources

    return case(f"{name} (library)", with_stand_ins)


def attention_stand_in(
    query: Any, key: Any, value: Any, *, attn_bias: Any = None, **_: Any
) -> torch.Tensor:
    """Compute attention in the layout `(batch, length, heads, size)`."""
    heads_first = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return functional.scaled_dot_product_attention(*heads_first, attn_mask=attn_bias).transpose(
        1, 2
    )


def norm_stand_in(x: Any, weight: Any, bias: Any, *, residual: Any, **_: Any) -> Any:
    """Compute the norm of a sum, and the sum."""
    total = x + residual
    return functional.layer_norm(total, weight.shape, weight, bias), total


def mlp_stand_in(x: Any, up: Any, down: Any, up_bias: Any, down_bias: Any, **_: Any) -> Any:
    """Compute two layers with a GELU between."""
    hidden = functional.gelu(functional.linear(x, up, up_bias), approximate="tanh")
    return functional.linear(hidden, down, down_bias)


STAND_INS: dict[str, Callable[..., Any]] = {
    "fused_rms_norm_affine": lambda x, weight, shape, eps: functional.rms_norm(x, shape, weight),
    "fused_layer_norm_affine": lambda x, weight, bias, shape, eps: functional.layer_norm(
        x, shape, weight, bias
    ),
    "FusedDenseGeluDenseFunc": lambda x, up, up_bias, down, down_bias: mlp_stand_in(
        x, up, down, up_bias, down_bias
    ),
    "fused_mlp_func": mlp_stand_in,
    "layer_norm_fn": norm_stand_in,
    "apply_rotary_pos_emb": lambda x, angles, **_: (x * angles.cos()).to(x.dtype),
    "flash_attn_func": attention_stand_in,
    "memory_efficient_attention": attention_stand_in,
}
