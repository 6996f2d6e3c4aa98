"""Products of a query and a key that are computed when somebody looks at them: attention needs no elements."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.attention_form import Form, scores_of, snapshot
from regraft.ops.plain import are_tensors, forced, is_transformed
from regraft.ops.postponed_scores import postponed_scores

_FEW = 4  # times fewer rows of scores than features, from which on a copy of the key costs more than they do
_LEAST = {"cpu": 1 << 19, "cuda": 1 << 23}  # scores, below which following the steps costs more than taking them


def postponed_matmul(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """`torch.matmul(query, key)`, computed as soon as anything but attention is made of it.

    Shapes: `query` is `(..., L, E)`, `key` `(..., E, S)`, the result `(..., L, S)`. Scaled, masked, cast, arranged in
    other leading dimensions, and taken the softmax of over the keys, it stays postponed; its product with a value is
    `torch.nn.functional.scaled_dot_product_attention`. Anything else (active dropout, another operation) computes it
    as the operations say, of copies of the query, the key and the masks, and goes on with ordinary tensors. Hooks and
    `retain_grad` see the gradients of the weights; there are no second derivatives of what the kernel made. Fewer
    scores than pay (half a million on CPU) are computed at once, but for REGRAFT_KERNELS=always in the environment.
    """
    if postponed_matmul_implementation(query, key) != "torch-native":
        return postponed_matmul_reference(query, key)
    query, key = snapshot(query), snapshot(key)
    return postponed_scores(postponed_matmul_reference, (query, key), _form(query, key.transpose(-1, -2)))


def postponed_matmul_reference(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The product itself."""
    return torch.matmul(query, key)


def postponed_matmul_implementation(query: torch.Tensor, key: torch.Tensor) -> str:
    """Name of what runs for these arguments: "torch-native" or "reference"."""
    return "torch-native" if _is_plain(query, key) and _pays(query, key.transpose(-1, -2)) else "reference"


def postponed_einsum(equation: str, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """`torch.einsum(equation, first, second)`, as `postponed_matmul`.

    Shapes: one of the two is a query and the other a key, in any order of their dimensions; the equation sums over one
    dimension, and the result is `(..., L, S)`.
    """
    if postponed_einsum_implementation(equation, first, second) != "torch-native":
        return postponed_einsum_reference(equation, first, second)
    first, second = snapshot(first), snapshot(second)
    query, key = _turned(equation, first, second)

    def call(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation, one, other)

    return postponed_scores(call, (first, second), _form(query, key))


def postponed_einsum_reference(equation: str, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The sum itself."""
    return torch.einsum(equation, first, second)


def postponed_einsum_implementation(equation: str, first: torch.Tensor, second: torch.Tensor) -> str:
    """Name of what runs for these arguments: "torch-native" or "reference"."""
    fits = _is_plain(first, second) and scores_of(equation) is not None
    terms = equation.replace(" ", "").partition("->")[0].split(",") if fits else []
    fits = fits and [len(one) for one in terms] == [first.dim(), second.dim()]
    return "torch-native" if fits and _pays(*_turned(equation, first, second)) else "reference"


def postponed_baddbmm(
    input: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """`torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha)`, as `postponed_matmul`.

    Shapes: `batch1` is a query `(N, L, E)`, `batch2` a key `(N, E, S)`, and `input` broadcasts to `(N, L, S)`.
    """
    if postponed_baddbmm_implementation(input, batch1, batch2, beta=beta, alpha=alpha) != "torch-native":
        return postponed_baddbmm_reference(input, batch1, batch2, beta=beta, alpha=alpha)
    query, key = snapshot(batch1), snapshot(batch2)
    form = Form(query, key.transpose(-1, -2), float(alpha))
    if not beta:  # the input may hold anything
        size = (*query.shape[:-1], key.shape[-1])

        def alone(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.baddbmm(x.new_zeros(()).expand(size), x, y, beta=0, alpha=alpha)

        return postponed_scores(alone, (query, key), form)
    added = snapshot(input)

    def call(z: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(z, x, y, beta=beta, alpha=alpha)

    form = Form(query, key.transpose(-1, -2), float(alpha), added * beta, tuple(query.shape[:-2]))
    return postponed_scores(call, (added, query, key), form)


def postponed_baddbmm_reference(
    input: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """The product and the sum themselves."""
    return torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha)


def postponed_baddbmm_implementation(
    input: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> str:
    """Name of what runs for these arguments: "torch-native" or "reference"."""
    if not _is_plain(input, batch1, batch2):
        return "reference"
    fits = batch1.dim() == 3 and _pays(batch1, batch2.transpose(-1, -2))
    fits = fits and alpha > 0 and input.dtype == batch1.dtype and input.dim() <= 3
    size = (*batch1.shape[:-1], batch2.shape[-1])
    fits = fits and all(own in (1, one) for own, one in zip(input.shape[::-1], size[::-1], strict=False))
    return "torch-native" if fits else "reference"


def _form(query: torch.Tensor, key: torch.Tensor) -> Form:
    return Form(query, key.expand(*query.shape[:-2], *key.shape[-2:]))


def _turned(equation: str, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Query and key of an equation as `(..., L, E)` and `(..., S, E)`."""
    found = scores_of(equation)
    assert found is not None
    query, key = (first, second)[found[0]], (first, second)[1 - found[0]]
    return query.permute(found[1]), key.permute(found[2])


def _is_plain(*tensors: Any) -> bool:
    """Whether these are ordinary tensors of one dtype and device, and nobody traces or transforms."""
    if not are_tensors(*tensors) or any(one.dim() < 2 for one in tensors):
        return False
    first = tensors[0]
    if any(one.dtype != first.dtype or one.device != first.device for one in tensors) or is_transformed():
        return False
    return not torch.is_autocast_enabled(first.device.type) and not torch._C._len_torch_dispatch_stack()


def _pays(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether the kernel takes a query `(..., L, E)` and a key `(..., S, E)`, and has rows enough to be faster."""
    kind, dtype = query.device.type, query.dtype
    # half precision on CPU is slower there than the composition, and less exact
    if kind not in ("cpu", "cuda") or not dtype.is_floating_point or (kind == "cpu" and dtype.itemsize < 4):
        return False
    if query.dim() != key.dim() or query.shape[-1] != key.shape[-1] or not query.numel() or not key.numel():
        return False
    if any(own not in (1, size) for own, size in zip(key.shape[:-2], query.shape[:-2], strict=True)):
        return False
    if query.shape[-2] * _FEW < query.shape[-1]:
        return False
    return forced() or query[..., 0].numel() * key.shape[-2] >= _LEAST[kind]
