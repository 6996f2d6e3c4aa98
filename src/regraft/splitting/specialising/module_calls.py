"""Calls of modules, and of the methods that change their mode."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import torch

from regraft.splitting.errors import ReadInside
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import Value
from regraft.splitting.specialising.call_operands import Call
from regraft.splitting.specialising.code_running import run_operation
from regraft.splitting.specialising.deciding_modules import is_custom, module_decides
from regraft.splitting.specialising.inlining import inline
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.tensor_calls import check_scalars


def call_module(state: Specialisation, call: Call) -> Value | None:
    """Return the value of a call of a module, run as one operation, or with its forward followed
    where the module decides by values or takes objects to be followed; None for another
    function."""
    module = call.function
    if not isinstance(module, torch.nn.Module):
        return None
    has_to_follow = (
        call.holds_local
        or call.has_mutable_record
        or (call.takes_host_container and is_custom(module))
        or module_decides(state, call.node, module, call.code, call.operands)
    )
    if not has_to_follow:
        check_scalars(state, call.node, call.operands)
        try:
            return run_operation(state, call.node, call.code, call.operands)
        except ReadInside:  # such as AdaptiveLogSoftmaxWithLoss
            pass
    forward, owner = find_forward(state, call.node, module)
    return inline(state, call.node, forward, owner, call.args, call.keywords)


def find_forward(
    state: Specialisation, node: ast.AST, module: torch.nn.Module
) -> tuple[Any, torch.nn.Module]:
    """Return the function that a call of a module runs, and what its first parameter holds: the
    forward of its class, or the method of a module that was assigned to `module.forward`.

    Raises Unsplittable for anything else that was assigned to it.
    """
    if "forward" not in vars(module):
        return type(module).forward, module
    forward = module.forward
    owner = getattr(forward, "__self__", None)
    is_plain = inspect.ismethod(forward) and not hasattr(forward, "__wrapped__")
    if not is_plain or not isinstance(owner, torch.nn.Module):
        raise state.refuse(
            node,
            f"the forward of this {type(module).__name__} was replaced by something that is no"
            " method of a module",
        )
    return forward.__func__, owner


def call_mode_change(state: Specialisation, call: Call) -> Value | None:
    """Return the module for `module.eval()` or `module.train(False)` of one in evaluation mode,
    which changes nothing; None for another function. Raises Unsplittable for other modes."""
    method = getattr(call.function, "__func__", None)
    if method not in (torch.nn.Module.eval, torch.nn.Module.train):
        return None
    module = call.function.__self__
    mode = [operand.example for operand in call.operands]
    is_off = method is torch.nn.Module.eval or (are_static(call.operands) and mode == [False])
    if not is_off or any(part.training for part in module.modules()):
        raise state.refuse(call.node, "training mode is not supported; split in evaluation mode")
    return state.static(module)
