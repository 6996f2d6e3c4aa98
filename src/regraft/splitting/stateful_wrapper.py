"""State that a call of a network leaves to the next one, as an input and an output of a network
around it.

A recurrent layer that keeps its hidden state on `self`, a cache of keys and values and a counter
are such states. The network around it stores the states that it gets in the attributes, calls the
network, and returns the attributes beside the result.
"""

from __future__ import annotations

import inspect
from itertools import compress
from typing import Any

import torch
from torch import nn

from regraft.splitting.carried_state import CarriedState, CarriedValue, copy_tensors
from regraft.splitting.checking.result_difference import difference
from regraft.splitting.errors import Unsplittable, line_of_forward
from regraft.splitting.nested_arguments import declared_parameters, define_wrapper
from regraft.splitting.observing.assigned_attributes import Attribute
from regraft.splitting.preconditions import (
    text_of_parameter,
)
from regraft.splitting.program.argument_templates import (
    leaf_names,
    make_template,
    template_expression,
)
from regraft.splitting.program.residual_expressions import STATE_SUFFIX
from regraft.splitting.program.unused_names import unused_name
from regraft.splitting.states_between_calls import (
    ObservedStates,
    copy_network,
    depends_on_first_call,
    observe_states,
)


def carry_state(
    model: nn.Module, path: str, calls: list[dict[str, Any]]
) -> tuple[nn.Module, list[dict[str, Any]], CarriedState] | None:
    """Return the network around a copy of `model` that takes and returns its states, the arguments
    of its example calls, and the states; None where no call reads what an earlier one left, or the
    states are no tensors and numbers whose structure stays.

    The example calls are run in sequence (`observe_states`); each of them is an example of a first
    call, too. The copy has the weights of `model`, whose own states stay as they are. path: the
    file of the network. calls: the arguments of its example calls, by parameter.
    """
    try:
        return wrap_with_states(model, path, calls)
    except Exception:  # noqa: BLE001 - whatever the network, its copy or the network around raises
        return None


def wrap_with_states(
    model: nn.Module, path: str, calls: list[dict[str, Any]]
) -> tuple[nn.Module, list[dict[str, Any]], CarriedState] | None:
    """Return what `carry_state` does. Raises what the network raises, and SyntaxError for
    attributes that no assignment can name."""
    observed = observe_states(model, calls)
    values = describe_states(observed) if observed is not None else None
    if observed is None or values is None:
        return None
    taken = {*calls[0], *inspect.signature(type(model).forward).parameters}
    states = CarriedState(unused_name("state", taken), values)
    wrapper = build_stateful_wrapper(observed, path, states)
    if not gives_equal_results(wrapper, states, copy_network(model), calls):
        return None
    start = [value.start for value in values]
    examples = [
        *zip(observed.calls, zip(*observed.contents.values(), strict=True), strict=False),
        *((call, start) for call in calls[1:]),
    ]
    stated_calls = [
        {**call, states.parameter: states.encode(dict(zip(states.names, contents, strict=True)))}
        for call, contents in examples
    ]
    return None if depends_on_first_call(wrapper, stated_calls) else (wrapper, stated_calls, states)


def gives_equal_results(
    wrapper: nn.Module, states: CarriedState, original: nn.Module, calls: list[dict[str, Any]]
) -> bool:
    """Return whether calls in sequence give the same in the network around, which gets the states
    that it returned, as in the original, which keeps them.

    They differ where two states are one tensor that a call changes in place.
    """
    current = states.first_state()
    with torch.no_grad():
        for call in calls:
            expected = original(**copy_tensors(call))
            argument = {states.parameter: states.encode(current)}
            result, following = wrapper(**copy_tensors(call), **argument)
            if difference(result, expected):
                return False
            current = dict(zip(states.names, following, strict=True))
    return True


def describe_states(observed: ObservedStates) -> list[CarriedValue] | None:
    """Return the states as values of the network around; None where one of them has no such form
    (`describe_state`), or some of those that may be absent are there before a call and others are
    not."""
    values = [
        describe_state(attribute, contents, attribute in observed.changed)
        for attribute, contents in observed.contents.items()
    ]
    described = [value for value in values if value is not None]
    if len(described) < len(values):
        return None
    presences = {
        tuple(map(value.is_there, contents))
        for value, contents in zip(described, observed.contents.values(), strict=True)
        if value.absent
    }
    return described if len(presences) < 2 else None


def describe_state(
    attribute: Attribute, contents: list[Any], is_changed: bool
) -> CarriedValue | None:
    """Return a state that holds these contents before the calls; None where they are of several
    structures, or neither numbers nor made of tensors.

    is_changed: whether calls change its tensor in place.
    """
    name = ".".join(filter(None, attribute))
    kinds = {type(content) for content in contents}
    if len(kinds) == 1 and kinds <= {bool, int, float}:
        return CarriedValue(name, kinds.pop().__name__, contents[0], contents[0])
    try:
        templates = [make_template("state", content, set()) for content in contents]
    except TypeError:
        return None
    filled = [bool(leaf_names(template)) for template in templates]
    texts = [template_expression(template) for template in templates]
    structures = set(compress(texts, filled))
    absences = set(texts) - structures
    if len(structures) != 1 or len(absences) > 1 or (absences and is_changed):
        return None
    kind = "changed" if is_changed else "value"
    return CarriedValue(name, kind, contents[0], contents[filled.index(True)], "".join(absences))


def build_stateful_wrapper(observed: ObservedStates, path: str, states: CarriedState) -> nn.Module:
    """Return a network of the same name that takes the states as one more argument, and returns the
    network's result with the states after the call.

    Its source stands in no file, but in `linecache`, at the line of the original's. path: the
    original's file.
    """
    network = observed.network
    line = line_of_forward(network)
    parameters = declared_parameters(network, observed.calls[0])
    declarations = [text_of_parameter(parameter, path, line) for parameter in parameters]
    arguments = ", ".join(f"{parameter.name}={parameter.name}" for parameter in parameters)
    places = [place_of(network, attribute) for attribute in observed.contents]
    calling = [*storing_statements(places, states, True), f"result = self.network({arguments})"]
    first = next((number for number, value in enumerate(states.values) if value.absent), None)
    if first is not None:
        without = [*storing_statements(places, states, False), calling[-1]]
        calling = [
            f"if {states.parameter}[{first}][0]:",
            *(f"    {statement}" for statement in calling),
            "else:",
            *(f"    {statement}" for statement in without),
        ]
    return define_wrapper(
        network,
        f"{path}{STATE_SUFFIX}",
        [*declarations, f"{states.parameter}=None"],
        [*calling, f"return result, ({', '.join(places)},)"],
    )


def place_of(network: nn.Module, attribute: Attribute) -> str:
    """Return the expression for an attribute of a module, from the wrapper's `self` on."""
    text = "self.network"
    module = network
    for part in filter(None, attribute[0].split(".")):
        text += f"[{part}]" if isinstance(module, nn.ModuleList | nn.Sequential) else f".{part}"
        module = module.get_submodule(part)
    return f"{text}.{attribute[1]}"


def storing_statements(places: list[str], states: CarriedState, is_there: bool) -> list[str]:
    """Return the lines of a wrapper that store the states at their places.

    is_there: whether the states that may be absent are there.
    """
    return [
        f"{place} = {stored_expression(value, f'{states.parameter}[{number}]', is_there)}"
        for number, (place, value) in enumerate(zip(places, states.values, strict=True))
    ]


def stored_expression(value: CarriedValue, argument: str, is_there: bool) -> str:
    """Return the expression for what a wrapper stores of its argument, an expression, too.

    is_there: whether the states that may be absent are there.
    """
    if value.absent:
        return copying_expression(value.example, f"{argument}[1]") if is_there else value.absent
    if value.kind == "changed":
        return f"{argument}.clone()"
    if value.kind == "value":
        return copying_expression(value.example, argument)
    return f"{value.kind}({argument})"


def copying_expression(content: Any, argument: str) -> str:
    """Return the expression for what an argument holds, in new lists and dictionaries, which the
    network may change. content: an example of it."""
    if isinstance(content, dict):
        elements = (
            f"{key!r}: {copying_expression(element, f'{argument}[{key!r}]')}"
            for key, element in content.items()
        )
        return f"{{{', '.join(elements)}}}"
    if not isinstance(content, list | tuple):
        return argument
    texts = [
        copying_expression(element, f"{argument}[{place}]") for place, element in enumerate(content)
    ]
    if isinstance(content, list):
        return f"[{', '.join(texts)}]"
    return f"({''.join(f'{text}, ' for text in texts)})"


def refuse_both(refused: Unsplittable, with_states: Unsplittable) -> Unsplittable:
    """Return the error for a network that cannot be split, neither as it is nor with its states as
    inputs."""
    reason = (
        f"{refused.reason}; with its states as inputs and outputs it cannot be split, either:"
        f" {with_states}"
    )
    return Unsplittable(refused.path, refused.line, reason)
