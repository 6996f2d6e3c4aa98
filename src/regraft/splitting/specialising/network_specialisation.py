"""Specialisation of `forward` with its concrete module; functions that read a tensor's value are
inlined."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection
from typing import Any

import torch

from regraft.splitting.observing.assigned_attributes import Attribute
from regraft.splitting.program.example_with_larger_sizes import lengthen
from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual import HostStep, Step, leaves_block
from regraft.splitting.program.residual_expressions import WRAPPER_SUFFIX, name
from regraft.splitting.program.statements import Return
from regraft.splitting.program.values import NO_TWIN, StaticValue, TensorValue
from regraft.splitting.specialising.expressions import evaluate_by_type
from regraft.splitting.specialising.inlining import bind_arguments, bind_owner, enter_function
from regraft.splitting.specialising.local_functions import find_followed
from regraft.splitting.specialising.method_calls import evaluate_arguments
from regraft.splitting.specialising.object_changes import mark_caller_containers
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.statements import execute_by_type


def start_specialisation(model: torch.nn.Module) -> Specialisation:
    """Return the state in which the specialisation of a network starts."""
    return Specialisation(model, evaluate_by_type, execute_by_type)


def specialise_network(
    state: Specialisation,
    calls: list[dict[str, Any]],
    scratch: Collection[Attribute],
    *,
    partial: bool,
) -> list[Step]:
    """Return the residual program for calls (argument name to value); the first is followed, and
    sizes in which the calls differ are open. Raises Unsplittable where `forward` has a local
    variable `numpy`: the host's text calls NumPy by this name.

    scratch: attributes of modules that calls assign, which the modules lack now. partial: whether a
    variable may be read that only some of the paths assign.
    """
    state.scratch, state.allows_partial = scratch, partial
    definition = enter_forward(state, type(state.model).forward)
    # they may hide what Python has built in, such as `input`
    state.variables = state.frame.own_names
    if "numpy" in state.variables:
        raise state.refuse(definition, "a variable of the name numpy is not supported")
    bind_owner(state, definition, state.model)
    bind_inputs(state, calls)
    if state.frame.path.endswith(WRAPPER_SUFFIX):
        definition = enter_wrapped(state, definition)
    state.execute_block(definition.body)
    if not leaves_block(state.steps):
        state.steps.append(HostStep(Return(ast.Constant(None))))
    return state.steps


def bind_inputs(state: Specialisation, calls: list[dict[str, Any]]) -> None:
    """Let the names of the arguments hold those of the first call; sizes in which the calls differ
    are open."""
    for key, value in calls[0].items():
        if isinstance(value, torch.Tensor):
            state.inputs.append(value)
            twin = make_input_twin([call[key] for call in calls])
            state.bind_name(key, TensorValue(value, name(key), twin))
        else:
            state.names[key] = StaticValue(value, literal(value) or name(key))


def call_with_parameters(function_name: str, arguments: ast.arguments) -> ast.Call:
    """Return the call of a function with the parameters of another one as arguments."""
    positional = [name(parameter.arg) for parameter in [*arguments.posonlyargs, *arguments.args]]
    keywords = [
        ast.keyword(parameter.arg, name(parameter.arg)) for parameter in arguments.kwonlyargs
    ]
    return ast.Call(name(function_name), positional, keywords)


def enter_forward(state: Specialisation, forward: Any) -> ast.FunctionDef:
    """Make a network's forward the function that is specialised, and return its definition; of one
    with a decorator of the user's own, a function with the parameters of forward that calls the
    decorated one. Raises Unsplittable for such a forward with `*` or `**`."""
    followed = find_followed(forward)
    if not hasattr(followed, "__wrapped__"):
        return enter_function(state, forward, "")
    definition = enter_function(state, inspect.unwrap(forward), "")
    if definition.args.vararg or definition.args.kwarg:
        raise state.refuse(definition, "a decorated forward with * or ** is not supported")
    alias = state.unused_name("decorated")
    state.frame.own_names.discard(alias)
    state.frame.scope[alias] = followed
    call = call_with_parameters(alias, definition.args)
    statement = ast.copy_location(ast.Return(call), definition)
    definition.body = [ast.fix_missing_locations(statement)]
    return definition


def enter_wrapped(state: Specialisation, definition: ast.FunctionDef) -> ast.FunctionDef:
    """Make the network that a wrapper (nested_arguments.py) calls the one that is specialised, and
    return its definition; its parameters hold the arguments that the wrapper, `definition`, puts
    together."""
    return_statement = definition.body[0]
    assert isinstance(return_statement, ast.Return) and isinstance(return_statement.value, ast.Call)
    call, network = return_statement.value, state.model.network
    state.pending.append(None)
    _, keywords = evaluate_arguments(state, call)
    state.pending.pop()
    for argument in keywords.values():
        mark_caller_containers(state, call, argument)
    function = type(network).forward
    definition = enter_function(state, function, "")
    state.variables = state.variables | state.frame.own_names
    bind_arguments(state, call, function, network, [], keywords, definition)
    return definition


def make_input_twin(tensors: list[torch.Tensor]) -> Any:
    """Return the tensor that stands for an input in the second world; NO_TWIN if the input has the
    same sizes in all calls.

    tensors: the input in each call, the first being the example. The result differs from it in
    every size that differs between the calls: another call's tensor, or the lengthened first.
    """
    first = tensors[0]
    dims = {
        dim
        for tensor in tensors
        for dim in range(first.ndim)
        if tensor.shape[dim] != first.shape[dim]
    }
    if not dims:
        return NO_TWIN
    distances = [[abs(tensor.shape[dim] - first.shape[dim]) for dim in dims] for tensor in tensors]
    best = max(range(len(tensors)), key=lambda place: rank_distances(distances[place]))
    return tensors[best] if all(distances[best]) else lengthen(first, sorted(dims))


def rank_distances(distances: list[int]) -> tuple[int, int]:
    """Return a rank, the higher the better, of the differences of sizes between the worlds: large
    and odd ones leave few sizes equal by chance that are computed from these, such as paddings."""
    return (sum(distance % 2 for distance in distances), min(distances))
