"""Calls of the ops that the rules of packs `adopter`, `torch` and `idioms` write, and the calls of
PyTorch that each of them ends in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from subjects import ATTENTION, SEQUENCE, VOCABULARY, adopter, idioms
from subjects import torch as torch_subjects
from torch import Tensor, nn
from torch.nn import functional

from regraft import ops

Call = Callable[[], object]
Numbers = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Calls:
    """A call of an op, and what it ends in.

    op     the call of the op
    fast   the operations of its fast path, those that read elements to decide included
    small  the operations in which a call ends that is too small for the fast path; None where no
           size is too small
    """

    op: Call
    fast: Call
    small: Call | None = None


MakeCalls = Callable[..., Calls]


@dataclass(frozen=True, slots=True)
class OpCase:
    """An op with its sizes.

    op        the name of the op
    make      makes the calls at a size
    least     the numbers of a small size at which its fast path runs
    tiny      the numbers of a size that is too small for it
    typical   the numbers of the typical size of the rule's subject
    """

    op: str
    make: Callable[..., Calls]
    least: Numbers
    tiny: Numbers
    typical: Numbers


def case(op: str, sizes: Mapping[str, Numbers], make: Callable[..., Calls], **least: int) -> OpCase:
    """Return the case of an op at the small and the typical size of a subject; the fast path runs
    at the small size, too, or is demanded there, unless its least size is given."""
    return OpCase(op, make, least or sizes["small"], sizes["small"], sizes["typical"])


def with_batch_norm(layer: nn.Module, norm: nn.Module, x: Tensor) -> Calls:
    """Return the call of a folded normalisation: its plain call has the weights folded before."""
    layer, norm = layer.eval(), norm.eval()
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    weight = layer.weight * scale.reshape(-1, *[1] * (layer.weight.dim() - 1))
    bias = norm.bias - norm.running_mean * scale
    if isinstance(layer, nn.Linear):
        return Calls(
            lambda: ops.linear_batch_norm(x, layer, norm),
            lambda: functional.linear(x, weight, bias),
            lambda: norm(layer(x)),
        )
    return Calls(
        lambda: ops.conv_batch_norm(x, layer, norm),
        lambda: layer._conv_forward(x, weight, bias),
        lambda: norm(layer(x)),
    )


def conv_batch_norm(channels: int, side: int, batch: int) -> Calls:
    conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return with_batch_norm(conv, nn.BatchNorm2d(channels), torch.randn(batch, channels, side, side))


def conv_of_patches(patches: int, width: int, side: int) -> Calls:
    conv, x = nn.Conv3d(3, width, (2, side, side)), torch.randn(patches, 3, 2, side, side)
    return Calls(
        lambda: ops.conv_of_patches(x, conv),
        lambda: functional.linear(x.flatten(1), conv.weight.flatten(1), conv.bias),
    )


def substitute_rows(heads: int, length: int, width: int) -> Calls:
    matrices = torch.randn(1, heads, length // 64, 64, 64).tril(-1) / 64
    is_below = torch.ones(64, 64, dtype=torch.bool).tril(-1)

    def fast() -> Tensor:
        below = matrices.tril(-1)
        matrices.triu().count_nonzero().item()
        solution = torch.linalg.solve_triangular(-below, below, upper=False, unitriangular=True)
        solution.sum().isfinite().item()
        return matrices.copy_(torch.where(is_below, solution, matrices))

    return Calls(lambda: ops.substitute_rows(matrices, 64), fast)


def unfold_conv(batch: int, channels: int, side: int) -> Calls:
    x, kernels = torch.randn(batch, channels, side, side), torch.randn(channels, channels, 3, 3)
    weight = kernels.view(channels, -1)
    return Calls(
        lambda: ops.unfold_conv(x, weight, 3, padding=1),
        lambda: functional.conv2d(x, kernels, padding=1),
    )


def unfold_einsum(batch: int, channels: int, side: int) -> Calls:
    x, kernels = torch.randn(batch, channels, side, side), torch.randn(channels, channels, 3, 3)
    weight = kernels.view(channels, -1)
    return Calls(
        lambda: ops.unfold_einsum("oi,bil->bol", x, weight, 3, padding=1),
        lambda: functional.conv2d(x, kernels, padding=1),
    )


def unfold_linear(batch: int, channels: int, side: int) -> Calls:
    x, kernels = torch.randn(batch, channels, side, side), torch.randn(channels, channels, 3, 3)
    weight = kernels.view(channels, -1)
    return Calls(
        lambda: ops.unfold_linear(x, weight, 3, padding=1),
        lambda: functional.conv2d(x, kernels, padding=1).permute(0, 2, 3, 1).contiguous(),
    )


def linear_batch_norm(rows: int, width: int, out: int) -> Calls:
    return with_batch_norm(
        nn.Linear(width, out, bias=False), nn.BatchNorm1d(out), torch.randn(rows, width)
    )


def heads_of(batch: int, length: int, width: int, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a query, a key and a value."""
    shape = (batch, heads, length, width // heads)
    return torch.randn(shape), torch.randn(shape), torch.randn(shape)


def attention(batch: int, length: int, width: int, heads: int) -> Calls:
    query, key, value = heads_of(batch, length, width, heads)
    dropout, size = nn.Dropout(0.1).eval(), width // heads
    return Calls(
        lambda: ops.attention(query, key, value, dropout=dropout, divisor=size**0.5),
        lambda: functional.scaled_dot_product_attention(query, key, value).contiguous(),
    )


def masked_attention(batch: int, length: int, width: int, heads: int) -> Calls:
    query, key, value = heads_of(batch, length, width, heads)
    mask = torch.zeros(batch, 1, 1, length)

    def fast() -> Tensor:
        bool((mask.detach().amax(-1, keepdim=True) <= -1e3).any())
        return functional.scaled_dot_product_attention(query, key, value, mask).contiguous()

    return Calls(
        lambda: ops.attention(query, key, value, mask=mask, divisor=(width // heads) ** 0.5), fast
    )


def postponed_matmul(batch: int, length: int, width: int, heads: int) -> Calls:
    query, key, value = heads_of(batch, length, width, heads)
    mask, scale = torch.zeros(batch, 1, 1, length), (width // heads) ** -0.5

    def attend(product: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        scores = product(query, key.transpose(-1, -2)) * scale + mask
        return torch.matmul(torch.softmax(scores, -1), value)

    def fast() -> Tensor:
        bool((mask.detach().amax(-1, keepdim=True) <= -1e3).any())
        return functional.scaled_dot_product_attention(query, key, value, mask).contiguous()

    return Calls(lambda: attend(ops.postponed_matmul), fast, lambda: attend(torch.matmul))


def postponed_einsum(batch: int, length: int, width: int, heads: int) -> Calls:
    query, key, _ = heads_of(batch, length, width, heads)
    equation = "bhld,bhsd->bhls"
    return Calls(
        lambda: ops.postponed_einsum(equation, query, key) + 0,
        lambda: torch.einsum(equation, query, key) + 0,
        lambda: torch.einsum(equation, query, key) + 0,
    )


def postponed_baddbmm(batch: int, length: int, width: int, heads: int) -> Calls:
    query, key, _ = (each.flatten(0, 1) for each in heads_of(batch, length, width, heads))
    added = torch.zeros(1, 1, length)

    def plain() -> Tensor:
        return torch.baddbmm(added, query, key.mT, beta=1, alpha=1) + 0

    return Calls(
        lambda: ops.postponed_baddbmm(added, query, key.mT, beta=1, alpha=1) + 0, plain, plain
    )


def linear_gelu(batch: int, length: int, width: int) -> Calls:
    x, linear, gelu = torch.randn(batch, length, width), nn.Linear(width, 4 * width), nn.GELU()
    return Calls(lambda: ops.linear_gelu(x, linear, gelu), lambda: gelu(linear(x)))


def dropout_add_layer_norm(batch: int, length: int, width: int) -> Calls:
    x, residual = torch.randn(2, batch, length, width)
    norm, dropout = nn.LayerNorm(width), nn.Dropout(0.1).eval()
    return Calls(
        lambda: ops.dropout_add_layer_norm(x, residual, norm, dropout),
        lambda: norm(dropout(x) + residual),
    )


def linear_qkv(batch: int, length: int, width: int) -> Calls:
    x = torch.randn(batch, length, width)
    query, key, value = (nn.Linear(width, width) for _ in range(3))
    return Calls(lambda: ops.linear_qkv(x, query, key, value), lambda: (query(x), key(x), value(x)))


def gated_linear(batch: int, length: int, width: int, inner: int) -> Calls:
    x, activation = torch.randn(batch, length, width), nn.SiLU()
    gate, up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
    return Calls(
        lambda: ops.gated_linear(x, gate, up, activation), lambda: activation(gate(x)) * up(x)
    )


def sequential(batch: int, length: int, width: int) -> Calls:
    x = torch.randn(batch, length, width)
    container = nn.Sequential(
        nn.LayerNorm(width),
        nn.Linear(width, 4 * width),
        nn.GELU(),
        nn.Dropout(0.0),
        nn.Linear(4 * width, width),
    )
    return Calls(lambda: ops.sequential(x, container), lambda: container(x))


def softmax(batch: int, heads: int, length: int) -> Calls:
    x, layer = torch.randn(batch, heads, length, length), nn.Softmax(-1)
    return Calls(lambda: ops.softmax(x, layer=layer), lambda: layer(x))


def rounded_softmax(batch: int, heads: int, length: int) -> Calls:
    x = torch.randn(batch, heads, length, length).bfloat16()
    return Calls(
        lambda: ops.rounded_softmax(x, -1, torch.bfloat16), lambda: functional.softmax(x, -1)
    )


def channels_first_layer_norm(batch: int, channels: int, side: int) -> Calls:
    x = torch.randn(batch, channels, side, side).contiguous(memory_format=torch.channels_last)
    return Calls(
        lambda: ops.channels_first_layer_norm(x, eps=1e-6),
        lambda: (
            functional.layer_norm(x.movedim(1, -1), (channels,), eps=1e-6).movedim(-1, 1).detach()
        ),
    )


def standardize(batch: int, length: int, width: int) -> Calls:
    x, factor = torch.randn(batch, length, width), (width - 1) ** -0.5

    def computation() -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        length = torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
        return centred / (length * factor + 1e-6)

    return Calls(lambda: ops.standardize(x, 1e-6), computation)


def rms_normalize(batch: int, length: int, width: int) -> Calls:
    x, weight = torch.randn(batch, length, width), torch.ones(width)

    def fast() -> Tensor:
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * lengths.square_().div_(width).add_(1e-6).rsqrt_()).mul_(weight)

    def small() -> Tensor:
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    return Calls(lambda: ops.rms_normalize(x, 1e-6, weight=weight), fast, small)


def length_normalize(batch: int, length: int, width: int) -> Calls:
    x, weight, scale = torch.randn(batch, length, width), torch.ones(width), width**0.5

    def fast() -> Tensor:
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x / (lengths.clamp(min=1e-12) / scale)).mul_(weight)

    def small() -> Tensor:
        lengths = torch.norm(x, p=2, dim=-1, keepdim=True)
        return x / lengths.clamp(min=1e-12) * scale * weight

    return Calls(
        lambda: ops.length_normalize(x, -1, minimum=1e-12, scale=scale, weight=weight), fast, small
    )


def statistics(op: str, plain: Callable[..., object], *, is_root: bool = False) -> MakeCalls:
    """Return what makes the calls of an op that computes variances, and of `plain`, which it
    replaces."""

    def make(batch: int, channels: int, side: int) -> Calls:
        x = torch.randn(batch, channels, side, side)
        rows = x.flatten(0, 1).split(max(1, 2**18 // side**2))

        def computation() -> object:
            results = []
            for chunk in rows:
                mean = chunk.mean((1, 2), keepdim=True)
                squares = (chunk - mean).square_().sum((1, 2), keepdim=True)
                squares.mul_(1 / (side**2 - 1))
                least = mean.square_().mul_(1e-6).clamp_(min=1e-28)
                bool(((squares > least) & (squares < 1e36)).all())
                results.append(squares.sqrt_() if is_root else squares)
            return torch.cat(results)

        return Calls(lambda: getattr(ops, op)(x, (2, 3)), computation, lambda: plain(x, (2, 3)))

    return make


def standardize_along(batch: int, channels: int, side: int) -> Calls:
    x = torch.randn(batch, channels, side, side)
    return Calls(
        lambda: ops.standardize_along(x, (2, 3), 1e-5, by_squares=True),
        lambda: functional.layer_norm(x, x.shape[2:], eps=1e-5),
    )


def repeated_heads(heads: int, groups: int, length: int, width: int) -> Calls:
    query, key = torch.randn(1, heads, 1, width), torch.randn(1, groups, length, width)

    def op() -> Tensor:
        repeated = ops.repeated_heads(key, heads // groups, 1)
        return functional.scaled_dot_product_attention(query, repeated, repeated)

    return Calls(
        op,
        lambda: functional.scaled_dot_product_attention(query, key, key, enable_gqa=True),
        lambda: functional.scaled_dot_product_attention(
            query, *(key.repeat_interleave(heads // groups, 1),) * 2
        ),
    )


def gated_halves(batch: int, length: int, width: int) -> Calls:
    x = torch.randn(batch, length, width)
    return Calls(lambda: ops.gated_halves(x, -1), lambda: functional.glu(x, -1))


def quick_gelu(batch: int, length: int, width: int) -> Calls:
    x = torch.randn(batch, length, width)
    return Calls(lambda: ops.quick_gelu(x), lambda: functional.silu(1.702 * x) / 1.702)


def table_of(length: int, size: int) -> tuple[Tensor, Tensor]:
    """Return tables of cosines and sines of a rotary embedding."""
    angles = torch.randn(length, size)
    return angles.cos(), angles.sin()


def rolled_rotary(batch: int, heads: int, length: int, size: int) -> Calls:
    x, (cos, sin) = torch.randn(batch, heads, length, size), table_of(length, size)
    half = size // 2
    return Calls(
        lambda: ops.rolled_rotary(x, cos, sin),
        lambda: torch.addcmul(
            x * cos,
            torch.roll(x, half, -1),
            torch.cat((-sin[..., :half], sin[..., half:]), dim=-1),
        ),
    )


def interleaved_rotary(batch: int, heads: int, length: int, size: int) -> Calls:
    x, (cos, sin) = torch.randn(batch, heads, length, size), table_of(length, size)
    return Calls(
        lambda: ops.interleaved_rotary(x, cos, sin),
        lambda: torch.addcmul(
            x * cos,
            torch.stack((x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2),
            torch.stack((-sin[..., ::2], sin[..., 1::2]), dim=-1).flatten(-2),
        ),
    )


def rotated_pairs(batch: int, heads: int, length: int, size: int) -> Calls:
    first, second = torch.randn(2, batch, heads, length, size // 2)
    cos, sin = table_of(length, size // 2)
    return Calls(
        lambda: ops.rotated_pairs(first, second, cos, sin),
        lambda: torch.view_as_real(
            (torch.complex(first, second) * torch.complex(cos, sin)).contiguous()
        ).detach(),
    )


def linear_cross_entropy(batch: int, length: int, width: int, vocabulary: int) -> Calls:
    x, head = torch.randn(batch, length, width), nn.Linear(width, vocabulary, bias=False)
    target, loss = torch.randint(vocabulary, (batch * length,)), nn.CrossEntropyLoss()

    def plain() -> Tensor:
        result: Tensor = loss(head(x).reshape(-1, vocabulary), target)
        return result

    return Calls(
        lambda: ops.linear_cross_entropy(x, target, head, flat=True, layer=loss), plain, plain
    )


def logits_cross_entropy(batch: int, length: int, vocabulary: int) -> Calls:
    x, target = (
        torch.randn(batch * length, vocabulary),
        torch.randint(vocabulary, (batch * length,)),
    )

    def plain() -> Tensor:
        return functional.cross_entropy(x, target)

    return Calls(lambda: ops.logits_cross_entropy(x, target), plain, plain)


def grouped_experts(rows: int, width: int, inner: int, experts: int, chosen: int) -> Calls:
    weights, index = torch.softmax(torch.randn(rows, experts), -1).topk(chosen)
    x, activation = torch.randn(rows, width), nn.SiLU()
    gate_up, down = torch.randn(experts, 2 * inner, width), torch.randn(experts, width, inner)

    def fast() -> Tensor:
        lowest, highest = torch.aminmax(index)
        lowest.item(), highest.item()
        order = index.flatten().argsort(stable=True)
        row = order // chosen
        ends = torch.bincount(index.flatten(), minlength=experts).cumsum(0).to(torch.int32)
        gate, up = functional.grouped_mm(x[row], gate_up.transpose(1, 2), offs=ends).chunk(2, -1)
        given = functional.grouped_mm(activation(gate) * up, down.transpose(1, 2), offs=ends)
        given = given * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add_(0, row, given.to(x.dtype))

    return Calls(
        lambda: ops.grouped_experts(x, index, weights, gate_up, down, activation, experts), fast
    )


def diagonal_matmul(rows: int, width: int) -> Calls:
    scales, matrix = torch.rand(rows), torch.randn(rows, rows)

    def fast() -> Tensor:
        scales.detach().sum().item(), matrix.detach().sum().item()
        return scales.unsqueeze(-1) * matrix

    return Calls(
        lambda: ops.diagonal_matmul(scales, matrix),
        fast,
        lambda: torch.matmul(torch.diag(scales), matrix),
    )


def between_diagonals(rows: int, width: int) -> Calls:
    scales, matrix = torch.rand(rows), torch.randn(rows, rows)

    def fast() -> Tensor:
        scales.detach().sum().item(), matrix.detach().sum().item()
        half = scales.unsqueeze(-1) * matrix
        half.detach().sum().item()
        return half * scales

    def slow() -> Tensor:
        diagonal = torch.diag(scales)
        return torch.matmul(torch.matmul(diagonal, matrix), diagonal)

    return Calls(lambda: ops.between_diagonals(scales, matrix), fast, slow)


def matmul_diagonal(rows: int, width: int) -> Calls:
    matrix, scales = torch.randn(rows, width), torch.rand(width)

    def fast() -> Tensor:
        scales.detach().sum().item(), matrix.detach().sum().item()
        return matrix * scales

    return Calls(
        lambda: ops.matmul_diagonal(matrix, scales),
        fast,
        lambda: torch.matmul(matrix, torch.diag(scales)),
    )


def diagonals_matmul(rows: int, width: int) -> Calls:
    scales, matrices = torch.rand(2, rows), torch.randn(2, rows, rows)

    def fast() -> Tensor:
        scales.detach().sum().item(), matrices.detach().sum().item()
        return (scales.unsqueeze(-1) * matrices).contiguous()

    return Calls(
        lambda: ops.diagonals_matmul(scales, matrices),
        fast,
        lambda: torch.matmul(torch.diag_embed(scales), matrices),
    )


def matmul_diagonals(rows: int, width: int) -> Calls:
    matrices, scales = torch.randn(2, rows, width), torch.rand(2, width)

    def fast() -> Tensor:
        scales.detach().sum().item(), matrices.detach().sum().item()
        return (matrices * scales.unsqueeze(-2)).contiguous()

    return Calls(
        lambda: ops.matmul_diagonals(matrices, scales),
        fast,
        lambda: torch.matmul(matrices, torch.diag_embed(scales)),
    )


def product_diagonal(rows: int, width: int) -> Calls:
    first, second = torch.randn(rows, width), torch.randn(width, rows)
    return Calls(
        lambda: ops.product_diagonal(first, second),
        lambda: (first[:rows] * second[:, :rows].mT).sum(-1),
        lambda: torch.diagonal(torch.matmul(first, second)),
    )


def product_trace(rows: int, width: int) -> Calls:
    first, second = torch.randn(rows, width), torch.randn(width, rows)
    return Calls(
        lambda: ops.product_trace(first, second),
        lambda: (first[:rows] * second[:, :rows].mT).sum(-1).sum(),
        lambda: torch.trace(torch.matmul(first, second)),
    )


def linear_at(batch: int, length: int, width: int) -> Calls:
    x, head = torch.randn(batch, length, width), nn.Linear(width, width)
    return Calls(
        lambda: ops.linear_at(x, head, -1),
        lambda: functional.linear(x[:, -1], head.weight, head.bias),
    )


def attention_without_weights(batch: int, length: int, width: int) -> Calls:
    x, layer = torch.randn(batch, length, width), nn.MultiheadAttention(width, 4, batch_first=True)
    return Calls(
        lambda: ops.attention_without_weights(x, x, x, layer),
        lambda: layer(x, x, x, need_weights=False),
    )


def smoothed_select(rows: int, classes: int) -> Calls:
    values, index = torch.randn(rows, classes), torch.randint(classes, (rows,))
    column = index.unsqueeze(1)

    def fast() -> Tensor:
        index.aminmax()[0].item()
        values.sum().item()
        return values.gather(-1, column).squeeze(-1) * 0.9 + values.sum(-1) * 0.1

    def small() -> Tensor:
        hot = torch.zeros_like(values).scatter(1, column, 1)
        return ((hot * 0.9 + 0.1) * values).sum(1)

    return Calls(
        lambda: ops.smoothed_select(values, column, 1, like=values, scale=0.9, offset=0.1),
        fast,
        small,
    )


def linear_of_parts(batch: int, length: int, width: int) -> Calls:
    hidden, outputs = torch.randn(batch, 1, width), torch.randn(batch, length, width)
    layer = nn.Linear(2 * width, width)

    def op() -> Tensor:
        return ops.linear_of_parts((ops.repeated_part(hidden, (1, length, 1)), outputs), layer, 2)

    def fast() -> Tensor:
        first, second = layer.weight.split([width, width], 1)
        small = functional.linear(hidden, first, layer.bias)
        return functional.linear(outputs, second).add_(small)

    return Calls(op, fast, lambda: layer(torch.cat((hidden.repeat(1, length, 1), outputs), 2)))


def linear_recurrence(batch: int, length: int, width: int) -> Calls:
    a, b = torch.rand(2, batch, length, width)
    first = torch.zeros(batch, width)
    return Calls(
        lambda: ops.linear_recurrence(a, b, 1, 1)(0, first),
        lambda: torch.addcmul(b[:, 0], a[:, 0], first),
        lambda: a[:, 0] * first + b[:, 0],
    )


def recurrent_steps(batch: int, length: int, width: int) -> Calls:
    cell, x = nn.LSTMCell(width, width), torch.randn(batch, length, width)
    state = torch.zeros(batch, width), torch.zeros(batch, width)
    weights = tuple(cell.parameters())

    def fast() -> Tensor:
        first = tuple(tensor.unsqueeze(0) for tensor in state)
        part = x.transpose(0, 1)[:64]
        states, *_ = torch.lstm(part, first, weights, True, 1, 0.0, True, False, False)
        return torch.unbind_copy(states)[0]

    return Calls(
        lambda: ops.recurrent_steps(x, cell, 1)(0, state), fast, lambda: cell(x[:, 0], state)
    )


def slices_along(batch: int, length: int, width: int) -> Calls:
    x = torch.randn(batch, length, width)
    return Calls(lambda: ops.slices_along(x, 1), lambda: x.unbind(1))


def one_hot_matmul(rows: int, classes: int, width: int) -> Calls:
    index, weight = torch.randint(classes, (rows,)), torch.randn(classes, width)

    def fast() -> Tensor:
        lowest, highest = torch.aminmax(index)
        lowest.item(), highest.item(), weight.detach().sum().item()
        return functional.embedding(index, weight)

    return Calls(
        lambda: ops.one_hot_matmul(index, classes, weight, torch.float32),
        fast,
        lambda: functional.one_hot(index, classes).to(torch.float32) @ weight,
    )


def one_hot_rows(rows: int, classes: int, width: int) -> Calls:
    vectors = functional.one_hot(torch.randint(classes, (rows,)), classes).float()
    weight = torch.randn(classes, width)

    def fast() -> Tensor:
        flat = vectors.reshape(-1)
        torch.dot(flat, flat).item(), weight.detach().sum().item()
        index = torch.mv(vectors, torch.arange(classes, dtype=torch.float32)).long()
        lowest, highest = torch.aminmax(index)
        lowest.item(), highest.item()
        (vectors.gather(1, index.unsqueeze(1)) == 1).all().item()
        return functional.embedding(index, weight)

    return Calls(lambda: ops.one_hot_rows(vectors, weight), fast, lambda: vectors @ weight)


def one_hot_select(rows: int, classes: int) -> Calls:
    values, index = torch.randn(rows, classes), torch.randint(classes, (rows,))

    def fast() -> Tensor:
        lowest, highest = torch.aminmax(index)
        lowest.item(), highest.item(), values.detach().sum().item()
        return values.gather(-1, index.unsqueeze(-1)).squeeze(-1)

    return Calls(
        lambda: ops.one_hot_select(values, index, classes),
        fast,
        lambda: (functional.one_hot(index, classes) * values).sum(-1),
    )


def points_of(points: int, others: int, width: int) -> tuple[Tensor, Tensor]:
    """Return two sets of points that are broadcast against each other."""
    return torch.randn(points, 1, width), torch.randn(1, others, width)


def pairwise_product(points: int, others: int, width: int) -> Calls:
    x, y = points_of(points, others, width)

    def fast() -> Tensor:
        first, second = x.reshape(1, points, width), y.reshape(1, others, width)
        return torch.bmm(first, second.mT).reshape(points, others).detach()

    return Calls(lambda: ops.pairwise_product(x, y, -1), fast, lambda: (x * y).sum(-1))


def pairwise_cosine(points: int, others: int, width: int) -> Calls:
    x, y = points_of(points, others, width)

    def unit(vectors: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clone()
        with torch.no_grad():
            lengths.clamp_min_(1e-8)
        return vectors / lengths

    def fast() -> Tensor:
        first, second = x.reshape(1, points, width), y.reshape(1, others, width)
        return torch.bmm(unit(first), unit(second).mT).reshape(points, others).detach()

    return Calls(
        lambda: ops.pairwise_cosine(x, y, -1),
        fast,
        lambda: functional.cosine_similarity(x, y, -1, 1e-8),
    )


def squares_of(x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the squared distances of all pairs of rows by their products, and the near pairs."""
    (points, _, width), others = x.shape, y.shape[1]
    first, second = x.reshape(1, points, width), y.reshape(1, others, width)
    centre = second.detach().mean(-2, keepdim=True)
    first, second = first - centre, second - centre
    rows, columns = first.square().sum(-1), second.square().sum(-1)
    products = torch.baddbmm(columns.unsqueeze(-2), first, second.mT, alpha=-2)
    rows = rows.reshape(points, 1)
    squares = products.reshape(points, others) + rows
    with torch.no_grad():
        least = columns.reshape(1, others) * 0.125 + 1e-30
        is_exact = squares > torch.add(least, rows, alpha=0.125)
        return squares, is_exact.logical_not_().nonzero(as_tuple=True)


def far_points_of(points: int, others: int, width: int) -> tuple[Tensor, Tensor]:
    """Return two sets of points of which no pair is near, as in most data."""
    x, y = points_of(points, others, width)
    x[..., width // 2 :], y[..., : width // 2] = 0, 0
    return x, y


def squared_distances(points: int, others: int, width: int) -> Calls:
    x, y = far_points_of(points, others, width)

    def fast() -> Tensor:
        squares, near = squares_of(x, y)
        if near[0].numel():
            raise ValueError("a pair is near")
        return squares

    return Calls(lambda: ops.squared_distances(x, y, -1), fast, lambda: ((x - y) ** 2).sum(-1))


def distances(points: int, others: int, width: int) -> Calls:
    x, y = far_points_of(points, others, width)

    def fast() -> Tensor:
        squares, near = squares_of(x, y)
        if near[0].numel():
            raise ValueError("a pair is near")
        return squares.sqrt()

    return Calls(lambda: ops.distances(x, y, -1), fast, lambda: torch.norm(x - y, dim=-1))


def sorted_head(rows: int, classes: int, first: int) -> Calls:
    x = torch.randn(rows, classes)
    return Calls(
        lambda: ops.sorted_head(x, first, -1, descending=True), lambda: x.topk(first, -1)[0]
    )


def sorted_indices(rows: int, classes: int, first: int) -> Calls:
    x = torch.randn(rows, classes)
    return Calls(lambda: ops.sorted_indices(x, first, -1), lambda: x.argsort(-1)[..., :first])


HEAD_COUNTS: Mapping[str, Any] = {
    "small": {"rows": 4, "classes": 32, "first": 4},
    "typical": {"rows": 64, "classes": 1000, "first": 16},
}
# as many channels as at the typical size, because folding runs on the weights
FEW_POSITIONS: Mapping[str, Any] = {
    "small": {"batch": 1, "channels": 64, "side": 1},
    "typical": adopter.IMAGES["typical"],
}
FEW_CLASSES: Numbers = {"batch": 1, "length": 32, "width": 4, "vocabulary": 8}
FEW_LOGITS: Numbers = {"batch": 1, "length": 32, "vocabulary": 8}
LOGITS = {
    name: {each: size[each] for each in FEW_LOGITS}
    for name, size in torch_subjects.VOCABULARY.items()
}
STATISTICS_SIZE = {"batch": 4, "channels": 16, "side": 16}
CASES = [
    case("attention", ATTENTION, attention),
    case("attention, masked", ATTENTION, masked_attention),
    case("attention_without_weights", SEQUENCE, attention_without_weights),
    case("between_diagonals", idioms.MATRICES, between_diagonals, rows=162, width=1),
    case("channels_first_layer_norm", torch_subjects.IMAGES, channels_first_layer_norm),
    case("conv_batch_norm", FEW_POSITIONS, conv_batch_norm),
    case("conv_of_patches", idioms.PATCHES, conv_of_patches),
    case("diagonal_matmul", idioms.MATRICES, diagonal_matmul, rows=162, width=1),
    case("diagonals_matmul", idioms.MATRICES, diagonals_matmul, rows=114, width=1),
    case("distances", idioms.POINTS, distances, points=64, others=64, width=320),
    case("dropout_add_layer_norm", adopter.LAYERS, dropout_add_layer_norm),
    case("gated_linear", torch_subjects.MLP, gated_linear),
    case("grouped_experts", torch_subjects.EXPERTS, grouped_experts),
    case("interleaved_rotary", torch_subjects.HEADS, interleaved_rotary),
    case("linear_at", SEQUENCE, linear_at),
    case("linear_batch_norm", adopter.FEATURES, linear_batch_norm),
    case("linear_cross_entropy", VOCABULARY, linear_cross_entropy, **FEW_CLASSES),
    case("linear_gelu", adopter.LAYERS, linear_gelu),
    case("linear_of_parts", idioms.QUERIES, linear_of_parts),
    case("linear_qkv", adopter.LAYERS, linear_qkv),
    case("linear_recurrence", idioms.STEPS, linear_recurrence, batch=8, length=8, width=64),
    case("logits_cross_entropy", LOGITS, logits_cross_entropy, **FEW_LOGITS),
    case("matmul_diagonal", idioms.MATRICES, matmul_diagonal, rows=162, width=162),
    case("matmul_diagonals", idioms.MATRICES, matmul_diagonals, rows=114, width=114),
    case("one_hot_matmul", idioms.LOOK_UP, one_hot_matmul, rows=1024, classes=32, width=32),
    case("one_hot_rows", idioms.LOOK_UP, one_hot_rows, rows=1024, classes=32, width=32),
    case("one_hot_select", idioms.BATCHES, one_hot_select, rows=64, classes=1024),
    case("pairwise_cosine", idioms.POINTS, pairwise_cosine, points=32, others=32, width=64),
    case("pairwise_product", idioms.POINTS, pairwise_product, points=32, others=32, width=64),
    case("postponed_baddbmm", ATTENTION, postponed_baddbmm),
    case("postponed_einsum", ATTENTION, postponed_einsum),
    case("postponed_matmul", ATTENTION, postponed_matmul),
    case("product_diagonal", idioms.MATRICES, product_diagonal, rows=2048, width=1),
    case("product_trace", idioms.MATRICES, product_trace, rows=2048, width=1),
    case("gated_halves", torch_subjects.ACTIVATION, gated_halves),
    case("quick_gelu", torch_subjects.ACTIVATION, quick_gelu),
    case("recurrent_steps", idioms.STEPS, recurrent_steps, batch=4, length=8, width=32),
    case(
        "repeated_heads", idioms.GROUPED, repeated_heads, heads=16, groups=4, length=256, width=64
    ),
    case("rolled_rotary", torch_subjects.HEADS, rolled_rotary),
    case("rotated_pairs", torch_subjects.HEADS, rotated_pairs),
    case("rounded_softmax", adopter.SCORES, rounded_softmax),
    case("sequential", adopter.LAYERS, sequential),
    case("slices_along", idioms.STEPS, slices_along, batch=8, length=8, width=64),
    case("smoothed_select", idioms.BATCHES, smoothed_select, rows=64, classes=1024),
    case("softmax", adopter.SCORES, softmax),
    case("sorted_head", HEAD_COUNTS, sorted_head),
    case("sorted_indices", HEAD_COUNTS, sorted_indices),
    case("squared_distances", idioms.POINTS, squared_distances, points=64, others=64, width=320),
    case(
        "standard_deviation",
        torch_subjects.IMAGES,
        statistics("standard_deviation", torch.std, is_root=True),
        **STATISTICS_SIZE,
    ),
    case("rms_normalize", SEQUENCE, rms_normalize),
    case("length_normalize", SEQUENCE, length_normalize),
    case("standardize", SEQUENCE, standardize),
    case("standardize_along", torch_subjects.IMAGES, standardize_along),
    case("substitute_rows", idioms.CHUNKS, substitute_rows),
    case("unfold_conv", idioms.UNFOLDED, unfold_conv),
    case("unfold_einsum", idioms.UNFOLDED, unfold_einsum),
    case("unfold_linear", idioms.UNFOLDED, unfold_linear),
    case("variance", torch_subjects.IMAGES, statistics("variance", torch.var), **STATISTICS_SIZE),
    case(
        "variance_and_mean",
        torch_subjects.IMAGES,
        statistics("variance_and_mean", torch.var_mean),
        **STATISTICS_SIZE,
    ),
]
