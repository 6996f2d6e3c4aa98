"""A state that each step of a loop multiplies and adds to: `h = a[:, t] * h + b[:, t]`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from regraft.ops.plain import (
    are_kernels_forced,
    are_tensors,
    can_read,
    is_batched,
    is_transformed,
    versions_of,
)
from regraft.ops.slices_along import slices_along, slices_along_reference

# The steps of the first scan of a loop; each further scan has twice as many, up to the last slice.
_FIRST_SCAN = 64
_FEWEST_STEPS = 32
# The fewest steps that a scan has to have where the loop left the scan before.
_FEWEST_STEPS_AGAIN = 8
# How often the layout of the results is looked at in a loop without gradients.
_LAYOUT_CHECKS = 3
# The number of slices that are taken together in the time of one subscript.
_STEPS_IN_A_SUBSCRIPT = 5


def linear_recurrence(
    a: torch.Tensor | float, b: torch.Tensor, a_dim: int | None, b_dim: int
) -> Callable[[int, Any], Any]:
    """Return what gives `a[:, i] * state + b[:, i]` (for `a_dim` 1 and `b_dim` 1) when it is called
    with `i` and `state`.

    Shapes: the slices of `a` along `a_dim`, or `a` itself where that is None, and the slices of `b`
    along `b_dim` are broadcast to the state. Where gradients are recorded, and a loop goes through
    the slices in their order or backwards and hands over the last result as it is, the steps that
    follow are computed ahead, 32 or more at once, and one backward pass writes the gradients of `a`
    and `b` for all of them. A result that was computed ahead has the gradient of what uses it,
    without that of later steps. Any other call computes its own step.
    """
    if linear_recurrence_implementation(a, b, a_dim, b_dim) != "torch-native":
        return linear_recurrence_reference(a, b, a_dim, b_dim)
    return _Recurrence(a, b, a_dim, b_dim)


def linear_recurrence_reference(
    a: torch.Tensor | float, b: torch.Tensor, a_dim: int | None, b_dim: int
) -> Callable[[int, Any], Any]:
    """Return a function that computes the step that the op replaces."""
    factors = _slices_of(a, a_dim, slices_along_reference)
    summands = slices_along_reference(b, b_dim)
    return lambda step, state: factors[step] * state + summands[step]


def linear_recurrence_implementation(
    a: torch.Tensor | float, b: torch.Tensor, a_dim: int | None, b_dim: int
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    is_number = a_dim is None and type(a) in (int, float)
    if not are_tensors(b) or not (is_number or are_tensors(a)) or is_transformed():
        return "reference"
    if not _is_usable(b, b_dim):
        return "reference"
    if isinstance(a, torch.Tensor):
        if not _is_usable(a, a_dim) or a.dtype != b.dtype or a.device != b.device:
            return "reference"
        if a_dim is not None and a.shape[a_dim] != b.shape[b_dim]:
            return "reference"
    return "torch-native"


def _is_usable(tensor: torch.Tensor, dim: int | None) -> bool:
    """Return whether a tensor is an ordinary one that may have a gradient, and has the dimension,
    if any."""
    if tensor.layout != torch.strided or tensor.is_nested:
        return False
    has_dim = dim is None or -tensor.dim() <= dim < tensor.dim()
    return has_dim and bool(tensor.is_floating_point() or tensor.is_complex())


def _slices_of(
    a: Any, dim: int | None, slices: Callable[[Any, int], Sequence[torch.Tensor]]
) -> Any:
    """Return what gives the factor of each step."""
    return _Constant(a) if dim is None else slices(a, dim)


class _Recurrence:
    """The steps of one recurrence. The states that were computed ahead stay in `_ahead`, the next
    one last; they hold as long as nothing has changed in place since, and each call hands over the
    result of the call before."""

    def __init__(self, a: Any, b: torch.Tensor, a_dim: int | None, b_dim: int) -> None:
        self._a, self._b, self._a_dim, self._b_dim = a, b, a_dim, b_dim
        self._factor: torch.Tensor = a if isinstance(a, torch.Tensor) else b
        self._count = b.shape[b_dim]
        self._last: Any = None
        self._step = self._next = self._direction = self._last_version = 0
        self._versions: tuple[int, ...] = ()
        self._ahead: list[torch.Tensor] = []
        self._first_size, self._size = _FIRST_SCAN, 0
        self._chunks: list[tuple[Any, torch.Tensor]] = []
        self._patience = max(1.0, self._count / _STEPS_IN_A_SUBSCRIPT)
        self._factors: Any = ()
        self._summands: Sequence[torch.Tensor] = ()
        self._last_without: Any = None
        self._layout_checks = _LAYOUT_CHECKS
        self._slices: tuple[Any, Any] = (None, None)
        self._slices_key: tuple[Any, ...] = ()

    def __call__(self, step: int, state: Any) -> Any:
        if type(step) is not int:  # a tensor as an index gives slices of another shape
            return self._take_slices(step, state)
        if (
            state is self._last
            and step == self._next
            and self._ahead
            and state._version == self._last_version
            and self._versions_now() == self._versions
            and torch.is_grad_enabled()
        ):
            self._last = result = self._ahead.pop()
            self._step, self._next = step, step + self._direction
            return result
        if torch.is_grad_enabled():
            return self._take_step(step, state)
        self._last = None
        return self._take_step_without_gradients(step, state)

    def _versions_now(self) -> tuple[int, ...]:
        """Return what tells whether the operands are those of a scan: their version counters, and
        whether they need gradients."""
        factor, b = self._factor, self._b
        return factor._version, b._version, factor.requires_grad, b.requires_grad

    def _take_step_without_gradients(self, step: int, state: Any) -> Any:
        """Return the result of a step where no gradients are recorded: by one operation if the
        state is a result of this op, and has the layout that the composition gives it."""
        if self._patience >= 1:
            self._patience -= 1
            if self._patience < 1:
                self._summands = self._b.unbind(self._b_dim)
                is_constant = self._a_dim is None
                self._factors = _Constant(self._a) if is_constant else self._a.unbind(self._a_dim)
            return self._take_slices(step, state)
        summand, factor = self._summands[step], self._factors[step]
        if state is self._last_without:
            self._last_without = result = _add_product(summand, state, factor)
            return result
        result = factor * state + summand
        if self._layout_checks:
            self._layout_checks -= 1
            is_same = _can_fuse(factor, summand, result) and can_read()
            self._last_without = result if is_same else None
        return result

    def _take_slices(self, step: Any, state: Any) -> Any:
        """Return the result of a step by subscripts of its own, as the composition computes it."""
        factors = _slices_of(self._a, self._a_dim, slices_along_reference)
        return factors[step] * state + slices_along_reference(self._b, self._b_dim)[step]

    def _take_step(self, step: int, state: Any) -> Any:
        """Return the result of a step that was not computed ahead, after a scan from this step on
        where one is possible."""
        operands = self._factor, self._b
        versions = (*versions_of(operands), *(operand.requires_grad for operand in operands))
        if self._prepare_scan(step, state, versions):
            a, b = self._chunks.pop()
            states = _Scan.apply(a, b, state, self._a_dim, self._b_dim, self._direction < 0)
            self._ahead, self._size = list(states[:0:-1]), len(states)
            result, self._last_version = states[0], states[0]._version
        else:
            factors, summands = self._current_slices(versions)
            result = factors[step] * state + summands[step]
            self._ahead, self._chunks, self._direction = [], [], 0
        self._last, self._versions = result, versions
        self._step, self._next = step, step + self._direction
        return result

    def _current_slices(self, versions: tuple[int, ...]) -> tuple[Any, Any]:
        """Return what gives the factor and the summand of a step with gradients, as the operands
        are now."""
        if self._slices_key != versions:
            self._slices_key = versions
            factors = _slices_of(self._a, self._a_dim, slices_along)
            self._slices = factors, slices_along(self._b, self._b_dim)
        return self._slices

    def _prepare_scan(self, step: int, state: Any, versions: tuple[int, ...]) -> bool:
        """Return whether `_chunks` ends in the operands of a scan from a step on: the next ones of
        the scans that went on until here, or those of a loop that begins at either end."""
        is_next = state is self._last and step == self._next and versions == self._versions
        if is_next and self._chunks and not self._ahead:
            return bool(state._version == self._last_version)
        if self._ahead:  # the loop left the scan, and may do so again after as many steps
            self._first_size = min(self._first_size, self._size - len(self._ahead))
        self._ahead, self._chunks = [], []
        if state is self._last and abs(step - self._step) == 1:
            self._direction = step - self._step
        else:
            self._direction = int(step == 0) - int(step == self._count - 1)
        count = self._steps_ahead(step)
        if count < 1 or not self._can_scan(step, state):
            return False
        sizes = _scan_sizes(count, self._first_size)
        summands = _parts_for_scans(self._b, self._b_dim, sizes, self._direction < 0)
        factors = [self._a] * len(sizes)
        if self._a_dim is not None:
            factors = _parts_for_scans(self._a, self._a_dim, sizes, self._direction < 0)
        self._chunks = list(zip(factors, summands, strict=True))[::-1]
        return True

    def _steps_ahead(self, step: int) -> int:
        """Return the number of steps from this one to the last slice, or to the first one where the
        loop goes backwards; 0 where they are too few for a scan."""
        if not self._direction or step < 0:
            return 0
        count: int = self._count - step if self._direction > 0 else step + 1
        is_short = count < _FEWEST_STEPS or self._first_size < _FEWEST_STEPS_AGAIN
        return 0 if is_short and not are_kernels_forced() else count

    def _can_scan(self, step: int, state: Any) -> bool:
        """Return whether each step from this state on has a result of its shape, layout and dtype,
        with gradients."""
        if not are_tensors(state) or state.layout != torch.strided or not can_read():
            return False
        if any(tensor.is_inference() for tensor in (self._factor, self._b, state)):
            return False
        if state.dtype != self._b.dtype or state.device != self._b.device:
            return False
        if not any(tensor.requires_grad for tensor in (self._factor, self._b, state)):
            return False
        shapes = [_shape_without(self._b, self._b_dim)]
        if isinstance(self._a, torch.Tensor):
            shapes.append(_shape_without(self._a, self._a_dim))
        if not all(_fits_state(shape, state.shape) for shape in shapes):
            return False
        factor = _slices_of(self._a, self._a_dim, slices_along_reference)[step]
        return _can_fuse(factor, slices_along_reference(self._b, self._b_dim)[step], state)


class _Constant:
    """A factor that is the same in all steps."""

    def __init__(self, factor: Any) -> None:
        self._factor = factor

    def __getitem__(self, step: int) -> Any:
        return self._factor


class _Scan(torch.autograd.Function):  # type: ignore[misc]
    """The states after each of several steps, from the first slices on, or from the last ones."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Any,
        b: torch.Tensor,
        state: torch.Tensor,
        a_dim: int | None,
        b_dim: int,
        is_reversed: bool,
    ) -> tuple[torch.Tensor, ...]:
        summands = _in_order(b.unbind(b_dim), is_reversed)
        factors = _factors_of(a, a_dim, len(summands), is_reversed)
        states, first = [], state
        for factor, summand in zip(factors, summands, strict=True):
            state = _add_product(summand, state, factor)
            states.append(state)
        ctx.set_materialize_grads(False)
        ctx.dims, ctx.is_reversed = (a_dim, b_dim), is_reversed
        ctx.shapes = _shape_without(b, b_dim), b.shape
        ctx.number = None if isinstance(a, torch.Tensor) else a
        if ctx.number is None:  # else nothing is saved: the graph may be gone through again
            saved_states = (first, *states[:-1]) if ctx.needs_input_grad[0] else ()
            ctx.save_for_backward(a, *saved_states)
        return tuple(states)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        a, *states = ctx.saved_tensors if ctx.number is None else (None,)
        (a_dim, b_dim), (summand_shape, b_shape) = ctx.dims, ctx.shapes
        example = next((grad for grad in grads if grad is not None), None)
        if example is None:
            return (None,) * 6
        is_plain = _can_write(grads)
        factor = ctx.number if a is None else a.conj()
        factors = _factors_of(factor, a_dim, len(grads), ctx.is_reversed)
        a_grad = b_grad = None
        places: Sequence[torch.Tensor | None] = (None,) * len(grads)
        wants_a, wants_b, wants_state = ctx.needs_input_grad[:3]
        if wants_b and is_plain and summand_shape == tuple(example.shape):
            b_grad = example.new_empty(b_shape)
            places = _in_order(b_grad.unbind(b_dim), ctx.is_reversed)
        adjoints = _adjoints(factors, grads, places)
        if wants_b and b_grad is None:
            terms = [_reduced(adjoint, summand_shape) for adjoint in adjoints]
            b_grad = _join(terms, b_dim, ctx.is_reversed)
        if wants_a:
            a_grad = _factor_grad(a, a_dim, adjoints, states, ctx.is_reversed, is_plain)
        state_grad = adjoints[0] * factors[0] if wants_state else None
        return a_grad, b_grad, state_grad, None, None, None


def _can_write(grads: Sequence[torch.Tensor | None]) -> bool:
    """Return whether gradients may be written to parts of a tensor: nothing differentiates or
    transforms the backward pass."""
    if torch.is_grad_enabled() or not can_read():
        return False
    return not any(grad is not None and is_batched(grad) for grad in grads)


def _can_fuse(factor: Any, summand: torch.Tensor, state: Any) -> bool:
    """Return whether the results of a step and of those after it have the same strides where a
    step is one operation: the first operand whose dimensions have an order determines them, which
    is the factor in a product, and the summand in one operation."""
    if type(state) is not torch.Tensor or state.dtype != summand.dtype:
        return False
    if state.device != summand.device:
        return False
    operands = [x for x in (factor, summand) if isinstance(x, torch.Tensor)]
    are_whole = len(operands) > 1 and all(x.shape == state.shape for x in operands)
    order = list(range(state.dim()))
    if are_whole:
        order.sort(key=lambda dim: -summand.stride(dim))
    checked = operands if are_whole else [*operands, state]
    return all(_has_order(x, order, state.shape) for x in checked)


def _has_order(x: torch.Tensor, order: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether the strides of a tensor decrease in this order of the dimensions of a shape,
    to which it is broadcast."""
    missing = len(shape) - x.dim()
    dims = [dim - missing for dim in order if dim >= missing and x.shape[dim - missing] > 1]
    strides = [x.stride(dim) for dim in dims]
    return all(outer > inner > 0 for outer, inner in itertools.pairwise(strides))


def _add_product(
    summand: torch.Tensor, state: torch.Tensor, factor: Any, place: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the sum of a tensor and a product, written to `place` if that is a tensor."""
    if isinstance(factor, torch.Tensor):
        return torch.addcmul(summand, state, factor, out=place)
    if summand.dtype in (torch.float32, torch.float64):
        return torch.add(summand, state, alpha=factor, out=place)
    return torch.add(summand, state * factor, out=place)  # others would round the number first


def _adjoints(
    factors: Sequence[Any],
    grads: Sequence[torch.Tensor | None],
    places: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    """Return the whole gradient of each state, in its place if it has one: that of its uses, and
    that of the next state times its factor. For the states behind the last one that has uses, the
    place is filled with zeros, and None returned."""
    adjoints: list[torch.Tensor | None] = []
    adjoint = factor = None
    rows = zip(reversed(grads), reversed(factors), reversed(places), strict=True)
    for grad, own_factor, place in rows:
        if adjoint is None:
            adjoint = grad
            if place is not None:
                adjoint = place.zero_() if grad is None else place.copy_(grad)
            adjoint = None if grad is None else adjoint
        elif grad is None:
            adjoint = torch.mul(adjoint, factor, out=place)
        else:
            adjoint = _add_product(grad, adjoint, factor, place)
        adjoints.append(adjoint)
        factor = own_factor
    return adjoints[::-1]


def _factor_grad(
    a: torch.Tensor,
    dim: int | None,
    adjoints: Sequence[torch.Tensor | None],
    states: Sequence[torch.Tensor],
    is_reversed: bool,
    is_plain: bool,
) -> torch.Tensor | None:
    """Return the gradient of the factors, from the whole gradients of the states after each step
    and the states before it."""
    shape = _shape_without(a, dim)
    if dim is not None and is_plain and shape == tuple(states[0].shape):
        total = states[0].new_empty(a.shape)
        places = _in_order(total.unbind(dim), is_reversed)
        for adjoint, state, place in zip(adjoints, states, places, strict=True):
            if adjoint is None:
                place.zero_()
            else:
                torch.mul(adjoint, state.conj(), out=place)
        return total
    products = [
        None if adjoint is None else _reduced(adjoint * state.conj(), shape)
        for adjoint, state in zip(adjoints, states, strict=True)
    ]
    return _sum_of_terms(products) if dim is None else _join(products, dim, is_reversed)


def _reduced(grad: torch.Tensor | None, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Return a gradient as that of a tensor of this shape that was broadcast."""
    return grad if grad is None or tuple(grad.shape) == shape else grad.sum_to_size(shape)


def _factors_of(a: Any, dim: int | None, count: int, is_reversed: bool) -> Sequence[Any]:
    """Return the factor of each step."""
    return [a] * count if dim is None else _in_order(a.unbind(dim), is_reversed)


def _in_order(slices: Sequence[Any], is_reversed: bool) -> Sequence[Any]:
    """Return slices in the order of the steps."""
    return slices[::-1] if is_reversed else slices


def _sum_of_terms(terms: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """Return the sum of gradients, from the last step to the first."""
    total = None
    for term in reversed(terms):
        if term is not None:
            total = term if total is None else total + term
    return total


def _join(terms: list[torch.Tensor | None], dim: int, is_reversed: bool) -> torch.Tensor | None:
    """Return the gradient of a tensor from those of its slices; None stands for zeros."""
    example = next((term for term in terms if term is not None), None)
    if example is None:
        return None
    zeros = torch.zeros_like(example) if None in terms[-1:] else None
    full = [zeros if term is None else term for term in terms]
    return torch.stack(_in_order(full, is_reversed), dim)


def _scan_sizes(count: int, first_size: int) -> list[int]:
    """Return the numbers of steps of the scans over `count` slices."""
    sizes, size = [], first_size
    while count > 0:
        sizes.append(min(size, count))
        count -= size
        size *= 2
    return sizes


def _parts_for_scans(
    tensor: torch.Tensor, dim: int, sizes: Sequence[int], is_reversed: bool
) -> list[torch.Tensor]:
    """Return the parts of a tensor for scans of these numbers of steps, of which the last reaches
    to the last slice, or to the first one."""
    other_steps = tensor.shape[dim] - sum(sizes)
    if is_reversed:
        return list(tensor.split([*reversed(sizes), other_steps], dim))[-2::-1]
    return list(tensor.split([other_steps, *sizes], dim))[1:]


def _shape_without(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    """Return the shape of a tensor's slices along a dimension, or its own where that is None."""
    shape = list(tensor.shape)
    if dim is not None:
        del shape[dim]
    return tuple(shape)


def _fits_state(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Return whether a tensor of a shape is broadcast to a target shape as it is."""
    if len(shape) > len(target):
        return False
    own_sizes = target[len(target) - len(shape) :]
    return all(size in (1, own) for size, own in zip(shape, own_sizes, strict=True))
