"""Calls that change one of their arguments, or write their result into it."""

from __future__ import annotations

import ast
import contextlib
from dataclasses import replace

import torch

from regraft.splitting.program.residual_expressions import MUTATORS, is_torch, method_call
from regraft.splitting.program.values import TensorValue, Value
from regraft.splitting.specialising.call_operands import Call
from regraft.splitting.specialising.code_running import run_operation
from regraft.splitting.specialising.inplace import find_aliases, replace_aliases
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.torch_calls import call_torch


def call_in_place(state: Specialisation, call: Call) -> Value | None:
    """Return the value of a call that changes its first argument, a tensor under a name, and gives
    it, such as of `nn.ReLU(inplace=True)`: all names that hold the tensor hold the result, which is
    computed of a copy. None for other calls. Raises Unsplittable if anything else may see the
    change."""
    argument = call.args[0] if call.args else None
    if not isinstance(argument, TensorValue) or not isinstance(argument.example, torch.Tensor):
        return None
    if not changes_argument(call):
        return None
    key = argument.code.id if isinstance(argument.code, ast.Name) else ""
    if key not in state.names:
        return None
    forget_waiting(state, argument)
    aliases = find_aliases(state, call.node, key)
    copied = method_call(argument.code, "clone")
    code = ast.Call(call.callee.code, [copied, *call.code.args[1:]], call.code.keywords)
    replace_aliases(state, key, aliases, run_operation(state, call.node, code, call.operands))
    state.changed_names.add(key)
    return state.names[key]


def call_with_out(state: Specialisation, call: Call) -> Value | None:
    """Return the value of a function of torch that writes its result into a tensor under a name,
    `out`: all names that hold the tensor hold the result. None for other calls. Raises Unsplittable
    for any other `out`, one of another type than the result, and if anything else may see the
    change."""
    out = call.keywords.get("out")
    if out is None or not is_torch(call.function) or out.example is None:
        return None
    key = out.code.id if isinstance(out.code, ast.Name) else ""
    if key not in state.names or not isinstance(out.example, torch.Tensor):
        raise state.refuse(call.node, "out= is supported for a local tensor only")
    inputs = {keyword: value for keyword, value in call.keywords.items() if keyword != "out"}
    value = call_torch(state, replace(call, keywords=inputs))
    if value is None or getattr(value.example, "dtype", None) != out.example.dtype:
        raise state.refuse(call.node, "out= is a tensor of another type than the result")
    forget_waiting(state, out)
    replace_aliases(state, key, find_aliases(state, call.node, key), value)
    state.changed_names.add(key)
    return state.names[key]


def forget_waiting(state: Specialisation, argument: Value) -> None:
    """Remove an argument of a call, which has read it, from the pending values of its
    expression."""
    waiting = state.pending[-1]
    if waiting is not None:
        waiting[:] = [value for value in waiting if value is not argument]


def changes_argument(call: Call) -> bool:
    """Return whether a call is of a module or function of torch.nn that is told to work in place,
    and changes its first argument, a tensor: a dropout does not while it evaluates."""
    function, inplace = call.function, call.keywords.get("inplace")
    if isinstance(function, torch.nn.Module):
        is_own = type(function).__module__.startswith("torch.nn.")
        is_told = is_own and getattr(function, "inplace", False) is True
    else:
        is_functional = getattr(function, "__module__", "") == "torch.nn.functional"
        is_told = is_functional and inplace is not None and inplace.example is True
    if not is_told:
        return False
    copied, options = call.args[0].example.clone(), [value.example for value in call.args[1:]]
    version = copied._version
    with contextlib.suppress(Exception), torch.no_grad():  # running the operation says what fails
        function(copied, *options, **{key: value.example for key, value in call.keywords.items()})
    return bool(copied._version != version)


def check_changed_container(state: Specialisation, call: Call) -> Value | None:
    """Raise Unsplittable for a method that changes a list, dictionary or set which forward did not
    make; return None for every other call, which this handler leaves to the next ones."""
    owner = getattr(call.function, "__self__", None)
    if call.function_name in MUTATORS and isinstance(owner, (list, dict, set)):
        raise state.refuse(
            call.node,
            f"{call.function_name} changes a {type(owner).__name__} that forward did not make",
        )
    return None
