"""What a call of a network leaves on its modules for the next one, as calls in sequence show it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import nn

from regraft.execution.nested import iterate_leaves
from regraft.splitting.carried_state import copy_tensors
from regraft.splitting.checking.result_difference import difference
from regraft.splitting.observing.assigned_attributes import Attribute, record_stores
from regraft.splitting.observing.module_state import State

MOST_CALLS = 6  # in sequence, by which states are known


@dataclass(frozen=True)
class ObservedStates:
    """The states of a network and what they hold.

    network: a copy of the network, on which buffers among the states are plain attributes. calls:
    the arguments of the calls in sequence. contents: for each state what it holds before each call,
    and after the last one. changed: the states whose tensor a call changes in place.
    """

    network: nn.Module
    calls: list[dict[str, Any]]
    contents: dict[Attribute, list[Any]]
    changed: set[Attribute]


def observe_states(model: nn.Module, calls: list[dict[str, Any]]) -> ObservedStates | None:
    """Return the states of a network, which itself stays as it is: the attributes that calls assign
    or change and that a later call reads first. None where there are none, one of them is not there
    before the first call, or is changed in place as a part of another one.

    The calls are run one after the other, and again from the first one on, until there are
    `MOST_CALLS`. Raises what the network, or a copy of it, raises.
    """
    attributes = find_states(model, calls)
    network = copy_network(model)
    make_plain(network, attributes)
    if not attributes or any(not has_state(network, attribute) for attribute in attributes):
        return None
    changed = tensors_changed_in_place(copy_network(network), calls, attributes)
    if changed is None:
        return None
    sequence = list(run_sequence(network, calls, attributes))
    contents = {
        attribute: [states[place] for _, states in sequence]
        for place, attribute in enumerate(attributes)
    }
    return ObservedStates(network, [call for call, _ in sequence[:-1]], contents, changed)


def find_states(model: nn.Module, calls: list[dict[str, Any]]) -> list[Attribute]:
    """Return the attributes of modules that calls assign or change and that a later call reads
    before it assigns them; [] where a call changes an attribute of a class."""
    network = copy_network(model)
    changed: dict[Attribute, None] = {}
    with torch.no_grad():
        for call in calls:  # what the first calls prepare, and later ones leave, is no state
            network(**copy_tensors(call))
        with record_stores(network) as assigned:
            for call in calls:
                before, buffers = State(network), list_buffers(network)
                network(**copy_tensors(call))
                after = list_buffers(network)
                changed.update(dict.fromkeys(before.list_changes(network)))
                changed.update(
                    dict.fromkeys(key for key in after if after[key] != buffers.get(key))
                )
    attributes = [key for key in {**changed, **dict.fromkeys(assigned)} if key[1] != "_buffers"]
    if any("." in name for _, name in attributes):
        return []
    return [attribute for attribute in attributes if is_read_first(model, calls, attribute)]


def list_buffers(network: nn.Module) -> dict[Attribute, tuple[int, int]]:
    """Return identity and version of each buffer, by module and name."""
    return {
        (path, name): (id(buffer), buffer._version)
        for path, module in network.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    }


def is_read_first(model: nn.Module, calls: list[dict[str, Any]], attribute: Attribute) -> bool:
    """Return whether the example calls need what an attribute holds when they begin: without it one
    of them raises an error or gives another result."""
    complete, partial = copy_network(model), copy_network(model)
    with torch.no_grad():
        for call in calls:
            expected = complete(**copy_tensors(call))
            module = partial.get_submodule(attribute[0])
            module._buffers.pop(attribute[1], None)
            vars(module).pop(attribute[1], None)
            try:
                result = partial(**copy_tensors(call))
            except Exception:  # noqa: BLE001 - mostly an AttributeError
                return True
            if difference(result, expected):
                return True
    return False


def copy_network(model: nn.Module) -> nn.Module:
    """Return a copy of a network with the same parameters, and with buffers and other attributes of
    its own."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    return copy.deepcopy(model, shared)


def make_plain(network: nn.Module, attributes: list[Attribute]) -> None:
    """Turn buffers among the attributes into plain attributes, as which a call can assign them."""
    for path, name in attributes:
        module = network.get_submodule(path)
        if name in module._buffers:
            vars(module)[name] = module._buffers.pop(name)


def has_state(network: nn.Module, attribute: Attribute) -> bool:
    """Return whether a module has the attribute as one of its own."""
    return attribute[1] in vars(network.get_submodule(attribute[0]))


def tensors_changed_in_place(
    network: nn.Module, calls: list[dict[str, Any]], attributes: list[Attribute]
) -> set[Attribute] | None:
    """Run the calls, and return the attributes that held a tensor which a call changed in place;
    None where that is seen in another state, too."""
    changed: set[Attribute] = set()
    is_shared = False
    with torch.no_grad():
        for call in calls:
            contents = {
                (path, name): vars(network.get_submodule(path))[name] for path, name in attributes
            }
            versions = {
                key: (tensor, tensor._version)
                for key, tensor in contents.items()
                if isinstance(tensor, torch.Tensor)
            }
            is_shared = is_shared or share_memory(network, attributes)
            network(**copy_tensors(call))
            changed |= {
                key for key, (tensor, version) in versions.items() if tensor._version != version
            }
    return None if changed and is_shared else changed


def share_memory(network: nn.Module, attributes: list[Attribute]) -> bool:
    """Return whether two tensors in the states of a network, or one of them and a parameter or
    buffer, lie in one block of memory."""
    contents = [vars(network.get_submodule(path))[name] for path, name in attributes]
    tensors = [leaf for leaf in iterate_leaves(contents) if isinstance(leaf, torch.Tensor)]
    blocks = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()]
    fixed_blocks = {
        tensor.untyped_storage().data_ptr()
        for tensor in (*network.parameters(), *network.buffers())
    }
    return len(set(blocks)) < len(blocks) or not fixed_blocks.isdisjoint(blocks)


def run_sequence(
    network: nn.Module, calls: list[dict[str, Any]], attributes: list[Attribute]
) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield the arguments of each call with copies of the states before it, and at last the first
    arguments with the states after all; the calls are repeated until there are `MOST_CALLS`.

    Raises what one of the calls raises the first time; the sequence ends where a repetition raises.
    """
    most = max(len(calls), MOST_CALLS)
    with torch.no_grad():
        for number, call in enumerate(cycle(calls)):
            states = [
                copy_tensors(vars(network.get_submodule(path))[name]) for path, name in attributes
            ]
            yield (call, states)
            if number == most:
                return
            try:
                network(**copy_tensors(call))
            except Exception:
                if number < len(calls):
                    raise
                return
