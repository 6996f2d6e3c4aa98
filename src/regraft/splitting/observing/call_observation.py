"""Observation of calls: reads of tensors' values into Python, random numbers and changes of tensors
in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from regraft.splitting.observing.clamping_operations import may_clamp, may_divide
from regraft.splitting.observing.fallible_operations import fails_by_sizes, fails_by_values
from regraft.splitting.program.example_with_larger_sizes import (
    first_shape,
    has_least_size,
    sized_by_data,
)
from regraft.splitting.program.residual_expressions import tensors_in

# a tensor that Python made in the call
_LIFTS = (
    torch.ops.aten.lift_fresh.default,
    torch.ops.aten.lift.default,
)
LIKE = frozenset(
    {
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
    }
)


class _Reads(TorchDispatchMode):  # type: ignore[misc]
    """A mode that notes, of the operations that run, reads of tensors' values into Python, shapes
    that values decide, changes of tensors, and operations that may raise.

    constants: tensors that are the same for every input. max_operations: RuntimeError is raised
    beyond so many operations. A tensor that is made during the call from no tensor, as by
    torch.arange(5), is the same for every input: reading it is no decision on a value.
    """

    def __init__(self, constants: Iterable[torch.Tensor], max_operations: float) -> None:
        super().__init__()
        self.operations, self.max_operations = 0, max_operations
        self.scalars: list[str] = []
        self.shapes: list[torch.Size] = []
        self.by_values = self.by_sizes = (
            False  # whether an operation may raise for other values, or sizes
        )
        self.clamps = self.divides = False  # whether a size may stay equal until a bound
        # referenced, so that no other storage gets their addresses
        storages = [tensor.untyped_storage() for tensor in constants]
        self.constant = {storage._cdata: storage for storage in storages}
        self.own_storages: set[int] = set()  # of the results of operations
        self.changed = False  # whether a tensor from outside of the call changed in place

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation as `_run_noted` does; raise RuntimeError beyond `max_operations`
        operations."""
        self.operations += 1
        if self.operations > self.max_operations:
            raise RuntimeError(f"more than {self.max_operations} operations")
        # a constructor such as torch.LongTensor leaves `_Functions` on, which would note reads here
        with torch._C.DisableTorchFunction():
            return self._run_noted(func, args, kwargs or {})

    def _run_noted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation, note what it reads and changes and how it may fail, and return its
        result."""
        operands = tensors_in((args, kwargs))
        constant = all(operand.untyped_storage()._cdata in self.constant for operand in operands)
        if torch.Tag.data_dependent_output in func.tags and not constant:
            self.scalars.append(str(func))
        versions = [operand._version for operand in operands]
        result = func(*args, **kwargs)
        pairs = zip(operands, versions, strict=True)
        written = [operand for operand, version in pairs if operand._version != version]
        self._note_changes(
            func, operands, [*written, *_written_by_schema(func, args, kwargs)], result
        )
        if sized_by_data(func, args):
            self.shapes.append(first_shape(result))
        self.by_values = self.by_values or fails_by_values(func, args, result)
        self.by_sizes = self.by_sizes or fails_by_sizes(func, args)
        self.clamps = self.clamps or may_clamp(func, args) or has_least_size(func, args, result)
        self.divides = self.divides or may_divide(func)
        if torch.Tag.nondeterministic_seeded not in func.tags:
            self._note_results(result, constant or func.overloadpacket.__name__ in LIKE)
        return result

    def note_read(self, tensor: torch.Tensor, name: str) -> None:
        """Note that Python gets the values of a tensor, unless they are the same for every
        input."""
        with torch._C.DisableTorchFunction():
            if tensor.untyped_storage()._cdata not in self.constant:
                self.scalars.append(name)

    def _note_results(self, result: Any, constant: bool) -> None:
        """Add the memory of an operation's results to `self.constant`, that of tensors which are
        the same for every input, or remove it, as `constant` says."""
        for output in tensors_in(result):
            storage = output.untyped_storage()
            if constant:
                self.constant[storage._cdata] = storage
            else:
                self.constant.pop(storage._cdata, None)

    def _note_changes(
        self, func: Any, operands: list[torch.Tensor], written: list[torch.Tensor], result: Any
    ) -> None:
        """Set `changed` where one of the `written` tensors comes from outside of the call, and add
        the memory of the results that is new to `own_storages`."""
        outside = {operand.untyped_storage()._cdata for operand in operands} - self.own_storages
        if func in _LIFTS:
            self.own_storages |= outside
            return
        self.changed = self.changed or any(
            tensor.untyped_storage()._cdata in outside for tensor in written
        )
        outputs = tensors_in(result)
        self.own_storages |= {output.untyped_storage()._cdata for output in outputs} - outside


def _written_by_schema(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """Return the tensors that an operation changes in place, as its schema says."""
    if not func._schema.is_mutable:
        return []
    arguments = enumerate(func._schema.arguments)
    places = [(place, argument.name) for place, argument in arguments if argument.is_write]
    values = [args[place] if place < len(args) else kwargs.get(name) for place, name in places]
    return tensors_in(values)


# methods that give a tensor's values to Python without an operation of PyTorch
_VALUE_READERS = frozenset(
    {
        torch.Tensor.tolist,
        torch.Tensor.numpy,
        torch.Tensor.__array__,
        torch.Tensor.__dlpack__,
        torch.Tensor.data_ptr,
        torch.Tensor.untyped_storage,
        torch.Tensor.__repr__,
        torch.Tensor.__format__,
    }
)


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """A mode that notes reads which are no operations, and takes back the reads of `one_hot` with a
    number of classes, which only check its argument."""

    def __init__(self, reads: _Reads) -> None:
        super().__init__()
        self.reads = reads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, note a read of values by it, and return its result."""
        kwargs = kwargs or {}
        if func in _VALUE_READERS:
            self.reads.note_read(args[0], func.__name__)
        scalars_before = list(self.reads.scalars)
        result = func(*args, **kwargs)
        if func is torch.nn.functional.one_hot:
            count = kwargs.get("num_classes", args[1] if len(args) > 1 else -1)
            if not isinstance(count, torch.Tensor) and count > 0:
                self.reads.scalars[:] = scalars_before
        return result


@dataclass(frozen=True)
class Observed:
    """The result of a call and what was observed of the call.

    reads: it reads a tensor's value into Python. shapes: those that data decided, in turn. random:
    it draws random numbers. changed: a tensor from outside changed in place. constant: the result
    is a tensor that no tensor's values decide. by_values: the call may raise for other values;
    by_sizes: for other sizes or whole numbers. operations: the number of operations. clamps: an
    operation may cut a size at a bound; divides: sizes of a result may be quotients of sizes.
    """

    result: Any
    reads: bool
    shapes: tuple[torch.Size, ...]
    random: bool
    changed: bool
    constant: bool = False
    by_values: bool = False
    by_sizes: bool = False
    operations: int = 0
    clamps: bool = False
    divides: bool = False


def observe(
    call: Callable[[], Any],
    constants: Iterable[torch.Tensor] = (),
    max_operations: float = math.inf,
) -> Observed:
    """Run `call` without gradients and return its result with the observations.

    constants: tensors that are the same for every input. Raises RuntimeError beyond
    `max_operations` operations.
    """
    reads = _Reads(constants, max_operations)

    def run_noted() -> Any:
        """Return the result of the call, run under both modes."""
        with reads, _Functions(reads):
            return call()

    observed = observe_effects(run_noted, ())
    result = observed.result
    constant = (
        isinstance(result, torch.Tensor) and result.untyped_storage()._cdata in reads.constant
    )
    return replace(
        observed,
        reads=bool(reads.scalars),
        shapes=tuple(reads.shapes),
        constant=constant,
        by_values=reads.by_values,
        by_sizes=reads.by_sizes,
        clamps=reads.clamps,
        divides=reads.divides,
        operations=reads.operations,
        changed=reads.changed,
    )


def observe_effects(call: Callable[[], Any], watched: Iterable[torch.Tensor]) -> Observed:
    """Run `call` as `observe` does, but without looking at single operations, which takes a tenth
    of the time.

    Only `result`, `random` and `changed` of the returned observations say something; `changed` is
    about the watched tensors.
    """
    tensors = list(watched)
    versions = [tensor._version for tensor in tensors]
    generator_state = torch.get_rng_state()
    with torch.no_grad():
        result = call()
    random = not torch.equal(generator_state, torch.get_rng_state())
    changed = any(
        tensor._version != version for tensor, version in zip(tensors, versions, strict=True)
    )
    return Observed(result, False, (), random, changed)
