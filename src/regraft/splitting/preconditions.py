"""Preconditions of a split: a module in eval mode with source, calls that fit it, no randomness, no
changing state."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection
from typing import Any

import torch

from regraft.splitting.checking.result_difference import difference
from regraft.splitting.errors import Unsplittable, line_of_failure, line_of_forward
from regraft.splitting.observing.assigned_attributes import Attribute, record_stores
from regraft.splitting.observing.call_observation import observe_effects
from regraft.splitting.observing.module_state import State, version_of
from regraft.splitting.program.literals import literal
from regraft.splitting.sampling.numpy_conversion import to_numpy

STATE_REMEDY = "make it an argument of forward, and return the new value"
_FLAG_CALLS = 4  # example calls that are run with inputs of equal values and other properties


def locate_forward(model: torch.nn.Module) -> str:
    """Return the path of the file of the network's forward; raise Unsplittable for a network that
    cannot be split: no module, a TorchScript module, or one that `reason_to_refuse` gives a reason
    against."""
    if not isinstance(model, torch.nn.Module):
        reason = f"the model is a {type(model).__name__}, not a torch.nn.Module"
        raise Unsplittable("<model>", 0, reason)
    if isinstance(model, torch.jit.ScriptModule):
        reason = "a TorchScript model has no source; split the module it was made from"
        raise Unsplittable("<TorchScript>", 0, reason)
    forward = inspect.unwrap(type(model).forward)
    source_path = inspect.getsourcefile(forward) if inspect.isfunction(forward) else None
    path = source_path or "<unknown>"
    reason = reason_to_refuse(model, forward)
    if reason:
        raise Unsplittable(path, forward.__code__.co_firstlineno, reason)
    return path


def reason_to_refuse(model: torch.nn.Module, forward: Any) -> str:
    """Return why a network cannot be split, "" where there is no such reason: its forward is a
    generator or coroutine, a module has hooks before or after its forward, or the network has a
    forward of its own instead of its class's.

    forward: the forward of the network's class, a function with `self` as its first parameter.
    """
    if inspect.isgeneratorfunction(forward) or inspect.iscoroutinefunction(forward):
        return "forward is a generator or coroutine"
    has_hooks = any(
        module._forward_hooks or module._forward_pre_hooks for module in model.modules()
    )
    if has_hooks or "forward" in vars(model):
        return "modules with hooks or a replaced forward cannot be split"
    return ""


def texts_of_parameters(model: torch.nn.Module, path: str) -> list[str]:
    """Return the parameters of a network's forward as texts, such as "x" or "scale=1.0"; raise
    Unsplittable, with the file `path`, for a default that is no supported constant."""
    forward, line = inspect.unwrap(type(model).forward), line_of_forward(model)
    return [
        text_of_parameter(parameter, path, line)
        for parameter in list(inspect.signature(forward).parameters.values())[1:]
    ]


def text_of_parameter(parameter: inspect.Parameter, path: str, line: int) -> str:
    """Return the parameter as text, such as "x" or "scale=1.0"; raise Unsplittable, at `path` and
    `line`, where its default is no constant that is supported."""
    if parameter.default is parameter.empty:
        return parameter.name
    code = literal(parameter.default)
    if code is None:
        reason = (
            f"the default of {parameter.name}, {parameter.default!r}, is no constant that is"
            " supported"
        )
        raise Unsplittable(path, line, reason)
    return f"{parameter.name}={ast.unparse(code)}"


def check_form(path: str, line: int, calls: Any) -> None:
    """Raise Unsplittable, at `path` and `line`, unless the example calls are a list of tuples or
    dicts, and not empty."""
    reason = describe_malformed(calls)
    if reason:
        raise Unsplittable(path, line, reason)


def describe_malformed(calls: Any) -> str:
    """Return why example calls are no list of tuples or dicts, or an empty one; "" where they are
    such a list."""
    if not isinstance(calls, list | tuple):
        return f"the example calls are a {type(calls).__name__}, not a list of tuples or dicts"
    for number, call in enumerate(calls):
        if not isinstance(call, list | tuple | dict):
            kind = type(call).__name__
            return f"example call {number} is a {kind}, not a tuple or dict of arguments"
    return "" if calls else "splitting needs at least one example call"


def bind_arguments(model: torch.nn.Module, path: str, call: Any) -> dict[str, Any]:
    """Return the arguments of an example call by parameter, with defaults, but of a forward with
    `**` only what the call states; raise Unsplittable unless the call fits, and for arguments that
    `*` takes."""
    signature = inspect.signature(type(model).forward)
    try:
        keywords = call if isinstance(call, dict) else {}
        bound = signature.bind(model, *(() if isinstance(call, dict) else call), **keywords)
    except TypeError as problem:
        reason = f"the example call does not fit forward: {problem}"
        raise Unsplittable(path, line_of_forward(model), reason) from problem
    if not takes_any_keyword(model):
        bound.apply_defaults()
    arguments = dict(list(bound.arguments.items())[1:])
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(parameter.name, {}))
        elif parameter.kind is parameter.VAR_POSITIONAL and arguments.pop(parameter.name, ()):
            reason = f"the example call gives arguments that forward takes as *{parameter.name}"
            raise Unsplittable(path, line_of_forward(model), reason)
    return arguments


def takes_any_keyword(model: torch.nn.Module) -> bool:
    """Return whether the network's forward takes arguments by `**`."""
    parameters = inspect.signature(type(model).forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def check_equal_kinds(path: str, line: int, calls: list[dict[str, Any]]) -> None:
    """Raise Unsplittable, at `path` and `line`, where an argument has another type, number of
    dimensions or constant in one of the calls than in the first."""
    for call in calls[1:]:
        for key in {**calls[0], **call}:
            first, other = (describe_kind(each, key) for each in (calls[0], call))
            if first != other:
                raise Unsplittable(
                    path,
                    line,
                    f"the example calls differ in argument {key}: {first:.80} and {other:.80},"
                    " which is not supported; split the network once for each",
                )


def describe_kind(call: dict[str, Any], key: str) -> str:
    """Return what has to be equal in all example calls, in words: of an argument that is a tensor
    dtype and number of dimensions, of a constant its text."""
    if key not in call:
        return "nothing"
    value = call[key]
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} with {value.ndim} dimensions"
    return repr(value)


def input_descriptions(calls: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the description of each input, which every call has to fit.

    It holds dtype and sizes of a tensor (None for a size that the examples vary), or the text of a
    constant.
    """
    descriptions: dict[str, dict[str, Any]] = {}
    for key, first in calls[0].items():
        if isinstance(first, torch.Tensor):
            sizes = zip(*(call[key].shape for call in calls), strict=True)
            shape = [values[0] if len(set(values)) == 1 else None for values in sizes]
            descriptions[key] = {"dtype": to_numpy(first).dtype.name, "shape": shape}
        else:
            descriptions[key] = {"value": repr(first)}
    return descriptions


def check_calls(model: torch.nn.Module, path: str, calls: list[dict[str, Any]]) -> list[Attribute]:
    """Run all calls and return the attributes that they assign to modules; check that no call draws
    random numbers or changes its inputs or state, apart from these attributes, and that the first
    call gives the same result again.

    The first call may prepare state that then stays as it is. Raises Unsplittable.
    """
    first = check_runs(model, path, calls[0])
    with record_stores(model) as assigned:
        state = State(model)
        results = [check_runs(model, path, call) for call in calls]
    scratch = list(dict.fromkeys(assigned))
    check_state(model, state, scratch)
    line = line_of_forward(model)
    if difference(results[0], first):
        raise Unsplittable(
            path, line, "the first call gives something else than the same call later"
        )
    check_only_values_decide(model, path, list(zip(calls, results, strict=True))[:_FLAG_CALLS])
    return scratch


def check_only_values_decide(
    model: torch.nn.Module, path: str, calls: list[tuple[dict[str, Any], Any]]
) -> None:
    """Raise Unsplittable where every call gives another result for inputs of equal values in
    another memory layout, or for inputs that require gradients.

    calls: the arguments and the result of each. One call with an equal result is enough, because a
    network with decisions may give another result by rounding. A changed call that the network does
    not take counts as equal.
    """
    line = line_of_forward(model)
    for change, words in (
        (_in_another_layout, "memory layout"),
        (_with_gradients, "requires_grad"),
    ):
        if all(_differs(model, call, result, change) for call, result in calls):
            reason = f"the result depends on the {words} of the inputs, not on their values alone"
            raise Unsplittable(path, line, reason)


def _differs(
    model: torch.nn.Module,
    call: dict[str, Any],
    expected: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
) -> bool:
    """Return whether a call with changed tensors gives something else; False where it raises, or
    where the call as it was gives something else by now, too."""
    changed = {
        key: change(value) if isinstance(value, torch.Tensor) else value
        for key, value in call.items()
    }
    try:
        with torch.no_grad():
            if not difference(model(**changed), expected):
                return False
            return not difference(model(**call), expected)
    except Exception:  # noqa: BLE001 - whatever the network raises for such inputs
        return False


def _in_another_layout(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor that is every second element of its storage, from the second on."""
    return torch.stack([tensor, tensor], dim=-1)[..., 1]


def _with_gradients(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor that requires gradients, if it holds floating-point numbers."""
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def check_runs(model: torch.nn.Module, path: str, call: dict[str, Any]) -> Any:
    """Run a call and return its result; raise Unsplittable where it fails, draws random numbers or
    changes a parameter, a buffer or a tensor among its arguments."""
    line = line_of_forward(model)
    tensors = {
        **{f"the parameter {name}": tensor for name, tensor in model.named_parameters()},
        **{f"the buffer {name}": tensor for name, tensor in model.named_buffers()},
        **{f"the argument {name}": tensor for name, tensor in call.items()},
    }
    watched = {name: value for name, value in tensors.items() if isinstance(value, torch.Tensor)}
    versions = {name: version_of(tensor) for name, tensor in watched.items()}
    try:
        observed = observe_effects(lambda: model(**call), ())
    except Exception as problem:
        reason = f"the example call fails: {type(problem).__name__}: {problem}"
        raise Unsplittable(path, line_of_failure(problem, path, line), reason) from problem
    if observed.random:
        raise Unsplittable(path, line, "random numbers are drawn or seeded in forward")
    for name, value in watched.items():
        if version_of(value) != versions[name]:
            reason = f"{name} is changed in place in forward, which the next call would see"
            raise Unsplittable(path, line, f"{reason}; {STATE_REMEDY}")
    return observed.result


def check_state(model: torch.nn.Module, state: State, scratch: Collection[Attribute]) -> None:
    """Raise Unsplittable where an attribute of a module has changed since `state`, but for those in
    `scratch`."""
    changed = state.first_change(model, scratch)
    if changed is not None:
        module = type(model.get_submodule(changed[0]))
        forward = inspect.unwrap(module.forward)
        raise Unsplittable(
            inspect.getsourcefile(forward) or "<unknown>",
            forward.__code__.co_firstlineno,
            f"a call changes the attribute {changed[1]} of {changed[0] or 'the network'}"
            f" ({module.__name__}), which the next call would see; {STATE_REMEDY}",
        )


class StateGuard:
    """Watches the attributes of a network's modules, except those in `assigned`, which calls
    assign."""

    def __init__(self, model: torch.nn.Module, assigned: Collection[Attribute]) -> None:
        self.model, self.assigned = model, assigned
        self.state = State(model)

    def check(self) -> None:
        """Raise Unsplittable where an attribute has changed."""
        check_state(self.model, self.state, self.assigned)

    def renew(self) -> None:
        """Take the attributes as they are now for unchanged."""
        self.state = State(self.model)
