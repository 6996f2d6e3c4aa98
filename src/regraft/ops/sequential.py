"""The modules of a Sequential, called one after the other, with neighbours fused by ops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from regraft.ops.conv_batch_norm import NORM_AFTER, conv_batch_norm
from regraft.ops.linear_batch_norm import linear_batch_norm
from regraft.ops.linear_gelu import linear_gelu
from regraft.ops.plain import are_tensors, is_plain, is_transformed

_END = object()  # stands after the last module; None may be a member of a container


def sequential(x: torch.Tensor, container: Any) -> torch.Tensor:
    """Return `container(x)`.

    `container` is the model's own module. If it is a plain `torch.nn.Sequential`, its modules are
    called one after the other, and a Linear with a GELU or a batch normalisation after it, or a
    convolution with a batch normalisation after it, run as `linear_gelu`, `linear_batch_norm` or
    `conv_batch_norm`. Modules of a plain `Sequential` inside it count as its own. Any other module,
    a subclass or a hooked Sequential among them, is called as the model calls it.
    """
    if not _may_gain(x, container) or not _is_walked(x, container):
        return sequential_reference(x, container)
    result = x
    modules = _modules(container)
    module: Any = next(modules, _END)
    while module is not _END:
        # Only a plain module surely leaves its successor as it is: after any other, which may
        # replace it, the successor is read when the module has returned.
        if not _leads_pairs(module):
            result, module = module(result), next(modules, _END)
            continue
        successor: Any = next(modules, _END)
        op = _fused_op(module, successor)
        if op is None:
            result, module = module(result), successor
        else:
            result, module = op(result, module, successor), next(modules, _END)
    return result


def sequential_reference(x: torch.Tensor, container: Any) -> torch.Tensor:
    """Call the container as the model calls it."""
    result: torch.Tensor = container(x)
    return result


def sequential_implementation(x: torch.Tensor, container: Any) -> str:
    """Name the implementation for these arguments: "fused" or "reference"."""
    if not _is_walked(x, container):
        return "reference"
    modules = list(_modules(container))
    pairs = itertools.pairwise(modules)
    return "fused" if any(_fused_op(first, second) for first, second in pairs) else "reference"


def _is_walked(x: Any, container: Any) -> bool:
    """Return whether the modules of a container may be called in its place."""
    return is_plain(container, nn.Sequential) and are_tensors(x) and not is_transformed()


def _may_gain(x: Any, container: Any) -> bool:
    """Return whether any op may gain in a container: a quick look at the classes of its modules.

    On CPU, `linear_gelu` is the two calls that it replaces, as is each op for a batch normalisation
    in training.
    """
    if type(container) is not nn.Sequential or not are_tensors(x):
        return False
    for module in container._modules.values():
        if isinstance(module, _BatchNorm):
            if not module.training:
                return True
        elif isinstance(module, nn.Sequential) or (type(module) is nn.GELU and not x.is_cpu):
            return True
    return False


def _modules(container: nn.Sequential) -> Iterator[nn.Module]:
    """Yield the modules of a plain Sequential and of those inside it, in the order of their
    calls."""
    for module in container:
        if is_plain(module, nn.Sequential):
            yield from _modules(module)
        else:
            yield module


def _leads_pairs(module: Any) -> bool:
    """Return whether a module is a plain layer that an op may fuse with the next one."""
    kind = type(module)
    return (kind is nn.Linear or kind in NORM_AFTER) and is_plain(module, kind)


def _fused_op(first: Any, second: Any) -> Callable[..., torch.Tensor] | None:
    """Return the op for two neighbours; None where no op may fuse them."""
    if type(first) is nn.Linear:
        if type(second) is nn.GELU:
            return linear_gelu
        return linear_batch_norm if isinstance(second, nn.BatchNorm1d) else None
    norm = NORM_AFTER.get(type(first))
    return conv_batch_norm if norm is not None and isinstance(second, norm) else None
