"""A mode of PyTorch that sees the result of every operation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class ResultMode(TorchDispatchMode):  # type: ignore[misc]  # torch does not type it
    """Runs operations of ATen while it is active, and passes on their results, or others."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and return what `pass_on` makes of its result."""
        return self.pass_on(func, func(*args, **(kwargs or {})))

    @abstractmethod
    def pass_on(self, operation: Any, result: Any) -> Any:
        """Return what the caller gets for the result of an operation."""
