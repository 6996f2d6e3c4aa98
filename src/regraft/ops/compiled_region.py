"""Regions that torch.compile runs within eager models, differentiated like the composition that
they replace.

A compiled region by itself differs from eager code in three ways that callers notice: its backward
pass frees buffers that a second one (`retain_graph=True`) needs, it has no second derivative, and
one function is compiled at most eight times, whichever models call it. Here buffers are not
donated, gradients of gradients are those of the composition, and every kind of call has a compiled
function of its own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction

_MAX_KINDS = 128  # kinds of calls whose compiled functions stay in memory
# by version of torch
_LIMIT_ERRORS = (
    "FailOnRecompileLimitHit",
    "FailOnCacheLimitHit",
    "CacheLimitExceeded",
)

_Tensors = tuple[torch.Tensor | None, ...]


class _AutocastState(NamedTuple):
    """The modes of autocast in which a region runs."""

    device: str
    enabled: bool
    dtype: torch.dtype

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Enter these modes."""
        with torch.autocast(self.device, self.dtype, self.enabled):
            yield


class _CallKind(NamedTuple):
    """A kind of call for which one compiled function is enough: all properties of the call but the
    sizes.

    tensors  the kind of each tensor
    modes    the modes of autocast, gradients and inference
    """

    function: Callable[..., Any]
    constants: tuple[Any, ...]
    tensors: tuple[Any, ...]
    modes: tuple[Any, ...]


class _RegionCall(NamedTuple):
    """One call of a region, with all that its derivatives need.

    function   the composition, for second derivatives
    constants  its arguments after the tensors
    autocast   the modes of autocast of the call
    node       the compiled node in the graph, for first derivatives
    """

    function: Callable[..., Any]
    constants: tuple[Any, ...]
    autocast: _AutocastState
    node: Any


def run_region(function: Callable[..., Any], tensors: _Tensors, *constants: Any) -> torch.Tensor:
    """Compute the first result of `function(None, *tensors, *constants)` in a compiled region.

    The function is defined at the top of a module, without a closure, and its constants are
    hashable. It returns the result and its random draws, a tensor or None. If these draws are its
    first argument in the place of None, it computes the same result again. If torch refuses to
    compile the call (at its limit of recompilations), the function runs uncompiled.
    """
    result: torch.Tensor
    result, draws = _run_compiled(function, tensors, constants)
    node = result.grad_fn
    if not isinstance(
        node, BackwardCFunction
    ):  # nothing to differentiate, or the function ran uncompiled
        return result
    if not _allows_second_backward(node):
        result, _ = function(None, *tensors, *constants)
        return result
    call = _RegionCall(function, constants, _autocast_state(tensors), node)
    attached: torch.Tensor = _DifferentiableRegion.apply(call, [result.detach()], draws, *tensors)
    return attached


def compile_region(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for sizes that change.

    The option only changes names of kernels, and with them the keys of torch's cache on disk. The
    keys do not tell whether a backward pass was compiled to use up its buffers; under the default
    keys, torch would load the same function from a compilation elsewhere, whose backward pass may
    do so.
    """
    config = importlib.import_module("torch._inductor.config")
    options = (
        {"kernel_name_max_ops": config.kernel_name_max_ops + 1}
        if hasattr(config, "kernel_name_max_ops")
        else {}
    )
    compiled: Callable[..., Any] = torch.compile(function, dynamic=True, options=options)
    return compiled


def _run_compiled(
    function: Callable[..., Any], tensors: _Tensors, constants: tuple[Any, ...]
) -> Any:
    """Return the result and the random draws of a compiled call, or of the function itself if torch
    refuses it."""
    modes = (_autocast_state(tensors), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    compiled = _compiled_function(
        _CallKind(function, constants, tuple(map(_tensor_kind, tensors)), modes)
    )
    # raised if the user configured an error at the limit
    errors = tuple(
        getattr(torch._dynamo.exc, name)
        for name in _LIMIT_ERRORS
        if hasattr(torch._dynamo.exc, name)
    )
    try:
        with _without_donation():
            return compiled(None, *tensors, *constants)
    except errors:
        return function(None, *tensors, *constants)


@functools.lru_cache(maxsize=_MAX_KINDS)
def _compiled_function(kind: _CallKind) -> Callable[..., Any]:
    """Compile a function for one kind of call, with its own code object, by which torch counts
    recompilations."""
    function: Any = kind.function
    return compile_region(
        types.FunctionType(
            function.__code__.replace(),
            function.__globals__,
            function.__name__,
            function.__defaults__,
        )
    )


def _tensor_kind(tensor: torch.Tensor | None) -> Any:
    """Return all properties of a tensor for which torch recompiles; sizes of 2 and more are
    alike."""
    if tensor is None:
        return None
    size_kinds = tuple(min(size, 2) for size in tensor.shape)
    return (
        tensor.dtype,
        tensor.requires_grad,
        tensor.is_leaf,
        tensor.is_contiguous(),
        type(tensor),
        size_kinds,
    )


def _autocast_state(tensors: _Tensors) -> _AutocastState:
    """Return the current modes of autocast on the device of the first tensor that is not None."""
    device = next(tensor.device.type for tensor in tensors if tensor is not None)
    return _AutocastState(
        device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    )


@contextlib.contextmanager
def _without_donation() -> Iterator[None]:
    """Compile backward passes that keep the buffers which a second one needs, as older versions of
    torch always do."""
    config = torch._functorch.config
    if not hasattr(config, "donated_buffer"):
        yield
        return
    with config.patch(donated_buffer=False):
        yield


def _allows_second_backward(node: Any) -> bool:
    """Return whether a second backward pass through a compiled node is right, and make torch allow
    it.

    Torch compares the list of donated buffers with an empty list, and takes None for a list with
    entries; so None is replaced by an empty list.
    """
    metadata = getattr(getattr(node, "_forward_cls", None), "metadata", None)
    if metadata is not None and getattr(metadata, "bw_donated_idxs", ()) is None:
        metadata.bw_donated_idxs = []
    return not getattr(metadata, "bw_donated_idxs", ())


class _DifferentiableRegion(torch.autograd.Function):  # type: ignore[misc]
    """The result of a compiled region, with the region's own gradients and the composition's second
    derivatives."""

    @staticmethod
    def forward(
        ctx: Any,
        call: _RegionCall,
        results: list[torch.Tensor],
        draws: torch.Tensor | None,
        *tensors: Any,
    ) -> torch.Tensor:
        ctx.call = call
        ctx.save_for_backward(draws, *tensors)
        # the result comes in a list, because autograd would take a tensor for an input
        return results.pop()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        draws, *tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        gradients = (
            None
            if torch.is_grad_enabled()
            else _compiled_gradients(ctx.call.node, draws, tensors, gradient)
        )
        if gradients is None:
            gradients = _composed_gradients(ctx.call, draws, tensors, needed, gradient)
        return None, None, None, *gradients


def _compiled_gradients(
    node: Any,
    draws: torch.Tensor | None,
    tensors: list[torch.Tensor | None],
    gradient: torch.Tensor,
) -> list[torch.Tensor | None] | None:
    """Return the gradients of the compiled region in the order of its tensors; None if they cannot
    be told apart.

    The compiled node is called and not reached through the engine: within another pass of the
    engine, checkpointed layers would be computed once more for every region.
    """
    gradients = node.apply(gradient) if draws is None else node.apply(gradient, None)
    gradients = (gradients,) if isinstance(gradients, torch.Tensor) else gradients
    # inputs that are sizes have no gradient
    present = [grad for grad in gradients if grad is not None]
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    if len(present) != len(edges):
        return None
    by_edge = dict(zip(edges, present, strict=True))
    tensor_gradients = [
        by_edge.pop(_gradient_edge(tensor), None) if tensor is not None else None
        for tensor in tensors
    ]
    return None if by_edge else tensor_gradients


def _gradient_edge(tensor: torch.Tensor) -> Any:
    """Return the node and the input of the node that get the gradient of a tensor; None if it needs
    no gradient."""
    if not tensor.requires_grad:
        return None
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _composed_gradients(
    call: _RegionCall,
    draws: torch.Tensor | None,
    tensors: list[torch.Tensor | None],
    needed: tuple[bool, ...],
    gradient: torch.Tensor,
) -> list[torch.Tensor | None]:
    """Compute the gradients of the composition, which can be differentiated again if gradients are
    enabled."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad(), call.autocast.enter():
        # Views, because one tensor may be several inputs, and each input must get its own gradient.
        views = [tensor if tensor is None else tensor.view_as(tensor) for tensor in tensors]
        result, _ = call.function(draws, *views, *call.constants)
    differentiated = [
        view
        for view, is_needed in zip(views, needed, strict=True)
        if is_needed and view is not None
    ]
    gradients = iter(
        torch.autograd.grad(result, differentiated, gradient, create_graph=differentiable)
    )
    return [next(gradients) if is_needed else None for is_needed in needed]
