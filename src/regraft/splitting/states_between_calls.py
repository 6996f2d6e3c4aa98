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
from regraft.splitting.carried_state import copy_tensors, map_tensors
from regraft.splitting.checking.result_difference import difference
from regraft.splitting.observing.assigned_attributes import Attribute, record_stores
from regraft.splitting.observing.line_limit import LineLimit
from regraft.splitting.observing.module_state import State, version_of

_MOST_CALLS = 6  # in sequence, by which states are known
_MOST_FIRST_CALLS = 4  # of the examples, that are tried as the first one


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
    `_MOST_CALLS`. Raises what the network, or a copy of it, raises.
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
        attribute: [states[attribute] for _, states in sequence] for attribute in attributes
    }
    return ObservedStates(network, [call for call, _ in sequence[:-1]], contents, changed)


def find_states(model: nn.Module, calls: list[dict[str, Any]]) -> list[Attribute]:
    """Return the attributes of modules that calls assign or change and that a later call reads
    before it assigns them; [] where a call changes an attribute of a class, a layer or a parameter.

    What only the first calls assign, and later ones leave, is among them where it depends on their
    inputs.
    """
    network = copy_network(model)
    prepared = run_and_list_changes(network, calls)
    attributes = run_and_list_changes(network, calls)
    attributes += [
        attribute
        for attribute in prepared
        if attribute not in attributes and depends_on_inputs(model, calls, attribute)
    ]
    if any("." in name or name in ("_parameters", "_modules") for _, name in attributes):
        return []
    return [attribute for attribute in attributes if is_read_first(model, calls, attribute)]


def depends_on_first_call(network: nn.Module, calls: list[dict[str, Any]]) -> bool:
    """Return whether example calls give other results where the network was first called with other
    inputs: it then keeps something of its first call. False where it does not take these.

    The network itself stays as it is. Raises what a copy of it raises.
    """
    checked = calls[:1] + calls[1:][-1:]
    untouched = copy_network(network)
    with LineLimit() as counted:
        expected = results_after(untouched, calls[0], checked)
    most = usual_limit(counted)
    firsts = [
        map_tensors(calls[0], change) for change in (opposite_values, large_values, small_values)
    ] + calls[1:_MOST_FIRST_CALLS]
    for first in firsts:
        copied = copy_network(network)
        try:
            with LineLimit(most):
                results = results_after(copied, first, checked)
        except Exception:  # noqa: BLE001 - whatever the network raises for such inputs
            continue
        if difference(results, expected):
            return True
    return False


def usual_limit(counted: LineLimit) -> int:
    """Return how many lines calls with other inputs may run, from the count of usual ones."""
    return 100_000 + 20 * counted.count


def results_after(
    network: nn.Module, first: dict[str, Any], calls: list[dict[str, Any]]
) -> list[Any]:
    """Call a network, and return the results of the calls after that."""
    with torch.no_grad():
        network(**copy_tensors(first))
        return [network(**copy_tensors(call)) for call in calls]


def run_and_list_changes(network: nn.Module, calls: list[dict[str, Any]]) -> list[Attribute]:
    """Run the calls, and return the attributes of modules that one of them assigns or changes,
    buffers by their names."""
    changed: dict[Attribute, None] = {}
    with torch.no_grad(), record_stores(network) as assigned:
        for call in calls:
            before, buffers = State(network), list_buffers(network)
            network(**copy_tensors(call))
            after = list_buffers(network)
            changed.update(dict.fromkeys(before.list_changes(network)))
            changed.update(dict.fromkeys(key for key in after if after[key] != buffers.get(key)))
    return [key for key in {**changed, **dict.fromkeys(assigned)} if key[1] != "_buffers"]


def depends_on_inputs(model: nn.Module, calls: list[dict[str, Any]], attribute: Attribute) -> bool:
    """Return whether an attribute holds other tensors or constants after calls in sequence if the
    inputs have other values; False where the network does not take these."""
    networks = copy_network(model), copy_network(model)
    try:
        with torch.no_grad():
            with LineLimit() as counted:
                for call in calls:
                    networks[0](**copy_tensors(call))
            with LineLimit(usual_limit(counted)):
                for call in calls:
                    networks[1](**map_tensors(call, opposite_values))
    except Exception:  # noqa: BLE001 - whatever the network raises for such inputs
        return False
    contents = [
        [
            leaf
            for leaf in iterate_leaves(getattr(network.get_submodule(attribute[0]), attribute[1]))
            if leaf is None or isinstance(leaf, torch.Tensor | bool | int | float | str)
        ]
        for network in networks
        if hasattr(network.get_submodule(attribute[0]), attribute[1])
    ]
    return len(contents) == 1 or (len(contents) == 2 and bool(difference(*contents)))


def opposite_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same form with numbers of the opposite sign, moved; whole numbers and
    truths in reverse order."""
    if tensor.is_floating_point():
        return 0.25 - 1.5 * tensor
    return tensor.flatten().flip(0).view_as(tensor)


def large_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same form with larger numbers; whole numbers that are larger by one,
    and the opposite truths."""
    if tensor.dtype == torch.bool:
        return ~tensor
    return 400 + 30 * tensor if tensor.is_floating_point() else tensor + 1


def small_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same form with zeros, for truths false ones."""
    return torch.zeros_like(tensor)


def list_buffers(network: nn.Module) -> dict[Attribute, tuple[int, Any]]:
    """Return identity and version of each buffer, by module and name."""
    return {
        (path, name): (id(buffer), version_of(buffer))
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
    None where such a change may show in another state, too, since that may come to hold the same
    tensor, list or dictionary."""
    changed: set[Attribute] = set()
    assigned: set[Attribute] = set()
    is_shared = False
    with torch.no_grad():
        for call in calls:
            before = contents_of(network, attributes)
            versions = {key: versions_in(content) for key, content in before.items()}
            is_shared = is_shared or share_memory(network, before)
            network(**copy_tensors(call))
            after = contents_of(network, attributes)
            assigned |= {key for key in attributes if after[key] is not before[key]}
            changed |= {key for key in attributes if versions_in(before[key]) != versions[key]}
    if changed and (is_shared or changed & assigned or may_meet(after, changed)):
        return None
    return {key for key in changed if isinstance(after[key], torch.Tensor)}


def may_meet(contents: dict[Attribute, Any], changed: set[Attribute]) -> bool:
    """Return whether an attribute that is changed in place may come to hold the same tensor, list
    or dictionary as another one, or twice the same, by what they hold now. Tensors that are changed
    in place themselves stay apart."""
    return any(holds_container(contents[key]) for key in changed) or any(
        kinds_in(contents[key]) & kinds_in(content)
        for key in changed
        for other, content in contents.items()
        if other != key and not (other in changed and isinstance(content, torch.Tensor))
    )


def contents_of(network: nn.Module, attributes: list[Attribute]) -> dict[Attribute, Any]:
    """Return what the attributes of a network's modules hold."""
    return {(path, name): vars(network.get_submodule(path))[name] for path, name in attributes}


def versions_in(content: Any) -> list[tuple[int, Any]]:
    """Return identity and version of each tensor in what an attribute holds."""
    return [
        (id(leaf), version_of(leaf))
        for leaf in iterate_leaves(content)
        if isinstance(leaf, torch.Tensor)
    ]


def holds_container(content: Any) -> bool:
    """Return whether a list, tuple or dictionary holds another list or dictionary."""
    elements = content.values() if isinstance(content, dict) else content
    return isinstance(content, list | tuple | dict) and any(
        isinstance(element, list | dict) or holds_container(element) for element in elements
    )


def kinds_in(content: Any) -> set[Any]:
    """Return the number formats of the tensors in what an attribute holds, and its type if it is a
    list or dictionary: what two attributes may share is in both sets."""
    formats = {leaf.dtype for leaf in iterate_leaves(content) if isinstance(leaf, torch.Tensor)}
    return formats | ({type(content)} if isinstance(content, list | dict) else set())


def share_memory(network: nn.Module, contents: dict[Attribute, Any]) -> bool:
    """Return whether two tensors in the states of a network, or one of them and a parameter or
    buffer, lie in one block of memory."""
    tensors = [leaf for leaf in iterate_leaves(contents) if isinstance(leaf, torch.Tensor)]
    blocks = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()]
    fixed_blocks = {
        tensor.untyped_storage().data_ptr()
        for tensor in (*network.parameters(), *network.buffers())
    }
    return len(set(blocks)) < len(blocks) or not fixed_blocks.isdisjoint(blocks)


def run_sequence(
    network: nn.Module, calls: list[dict[str, Any]], attributes: list[Attribute]
) -> Iterator[tuple[dict[str, Any], dict[Attribute, Any]]]:
    """Yield the arguments of each call with copies of the states before it, and at last the first
    arguments with the states after all; the calls are repeated until there are `_MOST_CALLS`.

    Raises what one of the calls raises the first time; the sequence ends where a repetition raises.
    """
    most = max(len(calls), _MOST_CALLS)
    with torch.no_grad():
        for number, call in enumerate(cycle(calls)):
            yield call, copy_tensors(contents_of(network, attributes))
            if number == most:
                return
            try:
                network(**copy_tensors(call))
            except Exception:
                if number < len(calls):
                    raise
                return
