"""The operations of PyTorch that a fake device is asked for."""

from __future__ import annotations

from typing import Any

import torch
from fake_device import Operation, Record
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# operations that reserve memory, or say how to look at it, and run no kernel
NO_KERNEL = frozenset(
    f"aten.{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach"),
        *("_unsafe_view", "lift_fresh", "alias", "is_same_size", "set_", "_assert_async"),
    )
)


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """A mode that records operations, and answers the questions of the host for values of the
    device: a test holds, and a number is 1."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True: `torch.compile` works within this mode, as within that of fake tensors."""
        return True

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.name().replace("::", ".").partition(".")[2]
        name = "aten." + name.partition(".")[0]
        if name in ("aten.equal", "aten._local_scalar_dense") and args[0].device.type == "cuda":
            self.record.host_reads.append(name)
            is_number = name == "aten._local_scalar_dense" and args[0].dtype != torch.bool
            return 1 if is_number else True
        result = function(*args, **(kwargs or {}))
        if runs_kernel(function, name, result):
            tensors = {
                id(leaf): leaf
                for leaf in tree_leaves((args, kwargs, result))
                if isinstance(leaf, torch.Tensor)
            }
            self.record.steps.append(Operation(name, sum(map(byte_count, tensors.values()))))
        return result


def runs_kernel(function: Any, name: str, result: Any) -> bool:
    """Return whether an operation runs a kernel: its result is a tensor on the device, and no view
    of an argument."""
    if name in NO_KERNEL or not any(
        isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda"
        for leaf in tree_leaves(result)
    ):
        return False
    aliases = [returned.alias_info for returned in function._schema.returns]
    return not any(alias is not None and not alias.is_write for alias in aliases)


def byte_count(tensor: torch.Tensor) -> int:
    """Return the bytes of the elements of a tensor; an expanded element counts once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * int(tensor.element_size())
