"""A Linear layer of concatenated parts, of which the enlarged ones are multiplied while they are
small."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.enlarged_parts import EnlargedPart, is_worth_deciding
from regraft.ops.plain import are_kernels_forced, are_tensors, can_read, is_plain

# A product pays for its addition to the others from this width on, and the call of the op from this
# number of multiplications on.
_LEAST_PART_WIDTH = 16
_LEAST_SAVED = 1 << 21
_SUMMED_PARTS = (torch.float32, torch.float64)


class _Columns(NamedTuple):
    """The parts whose product with their columns of the weight is computed at once.

    tensors    one small tensor, or tensors that are concatenated
    width      the number of columns
    part       what enlarges the product; None for a product of the full size
    """

    tensors: tuple[torch.Tensor, ...]
    width: int
    part: EnlargedPart | None = None


def linear_of_parts(
    parts: Sequence[Any], layer: Any, dim: int = -1, *, matrix: Any = None, shape: Any = None
) -> torch.Tensor:
    """Return `layer(torch.cat(parts, dim))`, or `torch.cat(parts, dim) @ matrix`, where parts may
    be those that `expanded_part`, `repeated_part`, `interleaved_part` and `rows_part` give.

    Shapes: the parts are `(..., K_i)`, and the result is `(..., out_features)`. A Linear layer of a
    concatenation is the sum of its columns' products with the parts: that of an enlarged part is
    computed with the small tensor and enlarged afterwards. `layer` is the model's own: a Linear or
    a Sequential that begins with one. One that has hooks, is wrapped, quantised or of another class
    is called with the concatenation, as before. So is any layer where this is not faster, in half
    precision, under autocast, and where the call is traced or compiled.

    matrix  a tensor `(K, N)` instead of a layer, for which the layer is None
    shape   the concatenation is viewed in this shape before it is multiplied
    """
    described = _with_enlarged(parts)
    head = None if described is None else _head_of(layer, matrix, shape)
    columns = None if described is None or head is None else _columns(described, head, dim)
    if head is None or columns is None:
        return linear_of_parts_reference(parts, layer, dim, matrix=matrix, shape=shape)
    result = _sum_of_products(columns, head, parts[0].shape)
    result = result if shape is None else _viewed(result, shape)
    return _call_tail(layer, result) if type(layer) is nn.Sequential else result


def linear_of_parts_reference(
    parts: Sequence[Any], layer: Any, dim: int = -1, *, matrix: Any = None, shape: Any = None
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    joined = torch.cat(whole_parts(parts), dim)
    joined = joined if shape is None else joined.view(shape)
    result: torch.Tensor = layer(joined) if matrix is None else torch.matmul(joined, matrix)
    return result


def linear_of_parts_implementation(
    parts: Sequence[Any], layer: Any, dim: int = -1, *, matrix: Any = None, shape: Any = None
) -> str:
    """Name the implementation for these arguments: "small-products" or "reference"."""
    described, head = _with_enlarged(parts), _head_of(layer, matrix, shape)
    columns = None if described is None or head is None else _columns(described, head, dim)
    return "reference" if columns is None else "small-products"


class _Weights(NamedTuple):
    """The weight `(out_features, in_features)` and the bias of a Linear layer, or a matrix in their
    place. Their shapes count: the numbers that a layer stores are those of its construction."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    @property
    def in_features(self) -> int:
        return int(self.weight.shape[1])

    @property
    def out_features(self) -> int:
        return int(self.weight.shape[0])


def whole_parts(parts: Sequence[Any]) -> Any:
    """Return the parts as tensors."""
    if not any(isinstance(part, EnlargedPart) for part in parts):
        return parts
    return [part.tensor() if isinstance(part, EnlargedPart) else part for part in parts]


def _head_of(layer: Any, matrix: Any, shape: Any) -> _Weights | None:
    """Return the weights of the plain Linear layer that is `layer`, or that a plain Sequential
    calls first, or those that are a plain matrix; None where there are none, or where the shape of
    the product is not that of its operand's rows."""
    if matrix is None:
        if type(layer) is nn.Sequential and len(layer) and is_plain(layer, nn.Sequential):
            layer = next(iter(layer))
        head = _weights_of(layer) if is_plain(layer, nn.Linear) else None
    else:
        is_matrix = are_tensors(matrix) and matrix.dim() == 2
        head = _Weights(matrix.t(), None) if is_matrix else None
    if head is None or shape is None:
        return head
    return head if type(shape) is tuple and shape[-1:] == (head.in_features,) else None


def _weights_of(layer: nn.Linear) -> _Weights | None:
    """Return the weights of a Linear layer; None for those of other shapes, which may have been
    assigned to it."""
    weight, bias = layer.weight, layer.bias
    if not are_tensors(weight) or weight.dim() != 2:
        return None
    if bias is not None and (not are_tensors(bias) or bias.shape != weight.shape[:1]):
        return None
    return _Weights(weight, bias)


def _viewed(result: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a product, which no other code has, with its rows in the shape of the operand."""
    viewed: torch.Tensor = torch.ops.aten._unsafe_view(result, (*shape[:-1], result.shape[-1]))
    return viewed


def _call_tail(layers: nn.Sequential, result: torch.Tensor) -> torch.Tensor:
    """Return the result of the modules of a Sequential after its first one."""
    modules = iter(layers)
    next(modules)
    for module in modules:
        result = module(result)
    return result


def _with_enlarged(parts: Sequence[Any]) -> list[Any] | None:
    """Return the parts, with tensors that `expand` has stretched as enlarged parts if they need no
    gradient; None where no part is enlarged."""
    described = [part if type(part) is EnlargedPart else _as_enlarged(part) for part in parts]
    return described if any(type(part) is EnlargedPart for part in described) else None


def _as_enlarged(part: Any) -> Any:
    """Return a tensor that `expand` has stretched as an enlarged part, if it needs no gradient of
    its own; any other part as it is."""
    if not are_tensors(part) or part.layout is not torch.strided or part.dim() < 2:
        return part
    if (part.requires_grad and torch.is_grad_enabled()) or 0 not in part.stride()[:-1]:
        return part
    if not can_read() or not part.numel() or not is_worth_deciding(part.numel()):
        return part
    places = [slice(0, 1) if step == 0 else slice(None) for step in part.stride()[:-1]]
    return EnlargedPart(part[tuple(places)], part.shape)


def _columns(parts: list[Any], head: _Weights, dim: int) -> list[_Columns] | None:
    """Return the columns of a layer's weight with the parts that each is multiplied by; None where
    the layer is to be called with the concatenation."""
    enlarged = [part for part in parts if type(part) is EnlargedPart]
    if not _may_save(enlarged, head) or not can_read():
        return None
    if not _can_be_multiplied(parts, head) or not _can_be_joined(parts, head, dim):
        return None
    if any(map(EnlargedPart.is_outdated, enlarged)):
        return None  # which the reference reports
    chosen = [type(part) is EnlargedPart and _pays(part, head) for part in parts]
    saved = sum(map(_saved_elements, compress(parts, chosen))) * head.out_features
    if saved <= 0 or (saved < _LEAST_SAVED and not are_kernels_forced()):
        return None
    if _needs_gradient(head) and not all(map(_has_finite_rows, compress(parts, chosen))):
        return None
    return _grouped(parts, chosen)


def _needs_gradient(head: _Weights) -> bool:
    """Return whether the operand of a product is stored, for the gradient of the weight."""
    return bool(torch.is_grad_enabled() and head.weight.requires_grad)


def _has_finite_rows(part: EnlargedPart) -> bool:
    """Return whether a part has no row that the concatenation may lack and whose numbers are not
    finite: such a row's gradient is zero, and its product with infinity is NaN."""
    return part.index is None or math.isfinite(part.source.detach().sum().item())


def _may_save(enlarged: Sequence[EnlargedPart], head: _Weights) -> bool:
    """Return whether the parts are large enough, whatever their sources: a quick test, since small
    ones are most in need of it."""
    most = sum(math.prod(part.shape) for part in enlarged) * head.out_features
    return most >= _LEAST_SAVED or are_kernels_forced()


def _can_be_joined(parts: Sequence[Any], head: _Weights, dim: int) -> bool:
    """Return whether parts are concatenated along the last dimension to the input of a layer."""
    rows = parts[0].shape[:-1]
    if type(dim) is not int or not rows or dim not in (-1, len(rows)):
        return False
    width = 0
    for part in parts:
        shape = part.shape
        if shape[:-1] != rows:
            return False
        width += shape[-1]
    return width == head.in_features


def _can_be_multiplied(parts: Sequence[Any], head: _Weights) -> bool:
    """Return whether products of the parts and a layer's weight are as exact as that of the
    concatenation."""
    dtype = head.weight.dtype
    if dtype not in _SUMMED_PARTS or torch.is_autocast_enabled("cpu"):
        return False
    tensors = [part.source if type(part) is EnlargedPart else part for part in parts]
    tensors.append(head.weight)
    if head.bias is not None:
        tensors.append(head.bias)
    if not are_tensors(*tensors):
        return False
    for tensor in tensors:
        if tensor.dtype is not dtype or not tensor.is_cpu or tensor.layout is not torch.strided:
            return False
        if not tensor.numel():
            return False
    return True


def _pays(part: EnlargedPart, head: _Weights) -> bool:
    """Return whether the multiplications that a small product saves are more than what it takes to
    enlarge and add it, and its memory is no more than that of the enlarged part."""
    if part.index is not None and head.out_features > head.in_features:
        return False
    if are_kernels_forced():
        return True
    return bool(_saved_elements(part) >= _LEAST_PART_WIDTH * math.prod(part.shape[:-1]))


def _saved_elements(part: EnlargedPart) -> int:
    """Return how many elements an enlarged part has more than its source."""
    return int(math.prod(part.shape[:-1]) - part.row_count()) * int(part.shape[-1])


def _grouped(parts: Sequence[Any], chosen: Sequence[bool]) -> list[_Columns]:
    """Return the parts with their columns: each chosen one alone, and neighbours of the others
    together."""
    groups: list[_Columns] = []
    for part, is_chosen in zip(parts, chosen, strict=True):
        width = part.shape[-1]
        if is_chosen:
            groups.append(_Columns((part.source,), width, part))
            continue
        tensor = part.tensor() if type(part) is EnlargedPart else part
        if groups and groups[-1].part is None:
            previous = groups.pop()
            groups.append(_Columns((*previous.tensors, tensor), previous.width + width))
        else:
            groups.append(_Columns((tensor,), width))
    return groups


def _sum_of_products(
    columns: Sequence[_Columns], head: _Weights, shape: torch.Size
) -> torch.Tensor:
    """Return the sum of the products, and the bias, as a new tensor of the shape of the result.

    The bias is added to the smallest product. What the gradient of the weight needs is stored as
    copies, which the concatenation is, too: the model may change the parts in place afterwards.
    """
    stores_operands = _needs_gradient(head)
    weights = head.weight.split([group.width for group in columns], 1)
    row_counts = [group.tensors[0].numel() // group.width for group in columns]
    smallest = row_counts.index(min(row_counts))
    large: list[torch.Tensor] = []
    broadcast: list[torch.Tensor] = []
    for number, (tensors, _, part) in enumerate(columns):
        if len(tensors) > 1:
            x = torch.cat(tensors, -1)
        elif stores_operands:
            x = tensors[0].clone(memory_format=torch.contiguous_format)
        else:
            x = tensors[0]
        bias = head.bias if number == smallest else None
        product = functional.linear(x, weights[number], bias)
        if part is None:
            large.append(product)
        elif part.index is None:
            broadcast.append(product)
        else:
            large.append(_rows_of(product, part.index))
    first, *further = (*large, *broadcast)  # the others are added to a large one in place
    for product in further:
        first = _added(first, product, shape)
    return _as_new(first, torch.Size((*shape[:-1], head.out_features)))


def _rows_of(product: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the rows of a product that an index names."""
    if index.dim() == 1:
        return product.index_select(0, index)
    rows = product.index_select(0, index.reshape(-1))
    return rows.reshape(index.shape + rows.shape[1:])


def _added(total: torch.Tensor, product: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return a sum with a further product, which may be broadcast; in place where the sum has the
    full size."""
    if total.shape[:-1] == shape[:-1] and not total._is_view():
        return total.add_(product)
    return total + product


def _as_new(result: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return a result of the full shape that shares its memory with no other tensor."""
    if result.shape != shape:
        return result.expand(shape).clone(memory_format=torch.contiguous_format)
    return result.clone() if result._is_view() else result.contiguous()
