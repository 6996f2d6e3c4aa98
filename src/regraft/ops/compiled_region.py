"""Regions that torch.compile runs within eager models, differentiated like the composition they stand for.

A compiled region by itself differs from eager code in three ways that callers notice: its backward pass frees buffers
that a second one (`retain_graph=True`) needs, it has no second derivative, and one function is compiled at most eight
times, whichever models call it. Here buffers are not donated, gradients of gradients are those of the composition,
and every kind of call has a function of its own.
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

_MAX_KINDS = 128  # of calls, whose compiled functions stay in memory
_LIMIT_ERRORS = ("FailOnRecompileLimitHit", "FailOnCacheLimitHit", "CacheLimitExceeded")  # by version of torch

_Tensors = tuple[torch.Tensor | None, ...]


class _AutocastState(NamedTuple):
    """The modes of autocast in which a region runs."""

    device: str
    enabled: bool
    dtype: torch.dtype

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        with torch.autocast(self.device, self.dtype, self.enabled):
            yield


class _CallKind(NamedTuple):
    """A kind of call, for which one compiled function is enough: everything but the sizes."""

    function: Callable[..., Any]
    constants: tuple[Any, ...]
    tensors: tuple[Any, ...]
    entered: tuple[Any, ...]


class _RegionCall(NamedTuple):
    """One call of a region: the compiled node that differentiates it once, and what differentiates it again."""

    function: Callable[..., Any]
    constants: tuple[Any, ...]
    autocast: _AutocastState
    node: Any


def run_region(function: Callable[..., Any], tensors: _Tensors, *constants: Any) -> torch.Tensor:
    """Compute the first result of `function(None, *tensors, *constants)` in a compiled region.

    The function is one of a module, without a closure, and its constants can be hashed. It returns the result and what
    it drew at random, a tensor or None. Given that in the place of None it computes the same again. Where torch does
    not compile the call any more (its limit of recompilations), the function runs as it stands.
    """
    result: torch.Tensor
    result, drawn = _run_compiled(function, tensors, constants)
    node = result.grad_fn
    if not isinstance(node, BackwardCFunction):  # nothing to differentiate, or the function ran as it stands
        return result
    if not _donates_nothing(node):
        result, _ = function(None, *tensors, *constants)
        return result
    call = _RegionCall(function, constants, _autocast_state(tensors), node)
    attached: torch.Tensor = _DifferentiableRegion.apply(call, [result.detach()], drawn, *tensors)
    return attached


def compile_region(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for sizes that change.

    The option only changes names of kernels, and with them the keys of torch's cache on disk. These do not say whether
    a backward pass was compiled to use up its buffers, so that the same function compiled elsewhere would be taken.
    """
    config = importlib.import_module("torch._inductor.config")
    options = {"kernel_name_max_ops": config.kernel_name_max_ops + 1} if hasattr(config, "kernel_name_max_ops") else {}
    compiled: Callable[..., Any] = torch.compile(function, dynamic=True, options=options)
    return compiled


def _run_compiled(function: Callable[..., Any], tensors: _Tensors, constants: tuple[Any, ...]) -> Any:
    entered = (_autocast_state(tensors), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    compiled = _compiled(_CallKind(function, constants, tuple(map(_kind_of_tensor, tensors)), entered))
    errors = tuple(
        getattr(torch._dynamo.exc, name) for name in _LIMIT_ERRORS if hasattr(torch._dynamo.exc, name)
    )  # raised where the user wants an error at the limit
    try:
        with _without_donation():
            return compiled(None, *tensors, *constants)
    except errors:
        return function(None, *tensors, *constants)


@functools.lru_cache(maxsize=_MAX_KINDS)
def _compiled(kind: _CallKind) -> Callable[..., Any]:
    """Compile a function for one kind of call, by a code object of its own: torch counts compilations by these."""
    function: Any = kind.function
    return compile_region(
        types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__)
    )


def _kind_of_tensor(tensor: torch.Tensor | None) -> Any:
    """Everything of a tensor that torch compiles anew for: of its sizes only those that are 0 or 1."""
    if tensor is None:
        return None
    special = tuple(min(size, 2) for size in tensor.shape)
    return tensor.dtype, tensor.requires_grad, tensor.is_leaf, tensor.is_contiguous(), type(tensor), special


def _autocast_state(tensors: _Tensors) -> _AutocastState:
    device = next(one.device.type for one in tensors if one is not None)
    return _AutocastState(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))


@contextlib.contextmanager
def _without_donation() -> Iterator[None]:
    """Compile backward passes that use up nothing that a second one needs; older versions of torch never do."""
    config = torch._functorch.config
    if not hasattr(config, "donated_buffer"):
        yield
        return
    with config.patch(donated_buffer=False):
        yield


def _donates_nothing(node: Any) -> bool:
    """Whether a second backward pass through a compiled node is right, and torch lets it run.

    Torch compares the list of donated buffers with an empty one, and takes a missing list for one with entries.
    """
    metadata = getattr(getattr(node, "_forward_cls", None), "metadata", None)
    if metadata is not None and getattr(metadata, "bw_donated_idxs", ()) is None:
        metadata.bw_donated_idxs = []
    return not getattr(metadata, "bw_donated_idxs", ())


class _DifferentiableRegion(torch.autograd.Function):  # type: ignore[misc]
    """The result of a compiled region, with the region's own gradients and the composition's second derivatives."""

    @staticmethod
    def forward(
        ctx: Any, call: _RegionCall, results: list[torch.Tensor], drawn: torch.Tensor | None, *tensors: Any
    ) -> torch.Tensor:
        ctx.call = call
        ctx.save_for_backward(drawn, *tensors)
        return results.pop()  # from a list, since autograd would take a tensor for an input

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        drawn, *tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        found = None if torch.is_grad_enabled() else _compiled_gradients(ctx.call.node, drawn, tensors, gradient)
        if found is None:
            found = _composed_gradients(ctx.call, drawn, tensors, wanted, gradient)
        return None, None, None, *found


def _compiled_gradients(
    node: Any, drawn: torch.Tensor | None, tensors: list[torch.Tensor | None], gradient: torch.Tensor
) -> list[torch.Tensor | None] | None:
    """The gradients of the compiled region in the order of its tensors; None if they cannot be told apart.

    The compiled node is called and not reached through the engine: within another pass of the engine, checkpointed
    layers would be computed once more for every region.
    """
    gradients = node.apply(gradient) if drawn is None else node.apply(gradient, None)
    gradients = (gradients,) if isinstance(gradients, torch.Tensor) else gradients
    present = [one for one in gradients if one is not None]  # sizes have none
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    if len(present) != len(edges):
        return None
    by_edge = dict(zip(edges, present, strict=True))
    found = [by_edge.pop(_edge(one), None) if one is not None else None for one in tensors]
    return None if by_edge else found


def _edge(tensor: torch.Tensor) -> Any:
    """Where the gradient of a tensor goes; None for a tensor without."""
    if not tensor.requires_grad:
        return None
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _composed_gradients(
    call: _RegionCall, drawn: torch.Tensor | None, tensors: list[torch.Tensor | None], wanted: tuple[bool, ...],
    gradient: torch.Tensor,
) -> list[torch.Tensor | None]:  # fmt: skip
    """The gradients of the composition, which can be differentiated again if gradients are enabled."""
    again = torch.is_grad_enabled()
    with torch.enable_grad(), call.autocast.enter():
        # Views, because one tensor may be several inputs, and the gradient of each must go to its own.
        views = [one if one is None else one.view_as(one) for one in tensors]
        result, _ = call.function(drawn, *views, *call.constants)
    chosen = [one for one, is_wanted in zip(views, wanted, strict=True) if is_wanted and one is not None]
    gradients = iter(torch.autograd.grad(result, chosen, gradient, create_graph=again))
    return [next(gradients) if is_wanted else None for is_wanted in wanted]
