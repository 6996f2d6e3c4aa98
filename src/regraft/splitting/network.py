"""The network that is split, with its example calls, and the program that becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from regraft.splitting.errors import Unsplittable, line_of_forward
from regraft.splitting.nested_arguments import Packed, unpack_arguments
from regraft.splitting.observing.assigned_attributes import Attribute
from regraft.splitting.preconditions import (
    bind_arguments,
    check_equal_kinds,
    check_form,
    locate_forward,
)
from regraft.splitting.program.residual import Region, Step
from regraft.splitting.program.result_classes import Classes
from regraft.splitting.sampling.branch_exploration import RegionModule
from regraft.splitting.sampling.dynamic_sizes import DynamicSize, Group, make_examples
from regraft.splitting.sampling.numpy_conversion import to_numpy


@dataclass(frozen=True)
class Network:
    """A network that takes tensors and constants, and its example calls.

    path: the file of its forward. calls: the arguments of the example calls, by parameter.
    original, original_calls: the network and the calls of the user. packed: how the user's
    arguments are put together of these; None where both are equal. varied: how many of the calls,
    from the first one on, are perturbed for further inputs. further: calls that are checked only.
    groups: the sizes that inputs may have, in groups that have to be equal.
    """

    model: torch.nn.Module
    path: str
    calls: list[dict[str, Any]]
    original: torch.nn.Module
    original_calls: list[dict[str, Any]]
    packed: Packed | None
    varied: int
    further: list[dict[str, Any]] = field(default_factory=list)
    groups: tuple[Group, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        """Return the file and the line of the network's forward."""
        return self.path, line_of_forward(self.original)

    @property
    def tensor_inputs(self) -> list[str]:
        """Return the names of the parameters that take tensors."""
        return [key for key, value in self.calls[0].items() if isinstance(value, torch.Tensor)]


def bind_network(model: torch.nn.Module, example_inputs: list[Any]) -> Network:
    """Return the network with its example calls by parameter, defaults included.

    example_inputs: a tuple or dict of arguments for each call. Where an argument holds tensors in
    a list, tuple or dict, `model` of the result is a wrapper that takes these tensors one by one.
    Raises Unsplittable for a network that cannot be split, such as one in training mode, and for
    calls that do not fit the network, or differ in types, ranks or constants.
    """
    path = locate_forward(model)
    line = line_of_forward(model)
    check_form(path, line, example_inputs)
    arguments_of_calls = [bind_arguments(model, path, call) for call in example_inputs]
    if model.training:
        raise Unsplittable(path, line, "the network is in training mode; call eval() first")
    unpacking, calls, packed = unpack_arguments(model, path, arguments_of_calls)
    check_equal_kinds(path, line, calls)
    check_tensors(path, line, calls[0])
    return Network(unpacking, path, calls, model, arguments_of_calls, packed, len(calls))


def check_tensors(path: str, line: int, call: dict[str, Any]) -> None:
    """Raise Unsplittable, at `path` and `line`, for an argument that NumPy has no array for, as
    which the host takes it: a sparse tensor, or one of a type such as bfloat16."""
    for key, value in call.items():
        if not isinstance(value, torch.Tensor):
            continue
        if value.layout != torch.strided:
            reason = f"argument {key}: a tensor of {value.layout} is not supported as an input"
            raise Unsplittable(path, line, f"{reason}; make it dense by to_dense()")
        try:
            to_numpy(value)
        except TypeError as problem:
            raise Unsplittable(path, line, f"argument {key}: {problem}") from problem


def add_sizes(network: Network, sizes: list[DynamicSize]) -> Network:
    """Return the network with further example calls, in sizes that its inputs may have; raise
    Unsplittable where it fails on one of these."""
    if not sizes:
        return network
    examples = make_examples(network.model, network.path, network.calls, sizes)
    return replace(
        network,
        calls=examples.calls,
        varied=examples.varied,
        further=examples.further,
        groups=examples.groups,
    )


@dataclass(frozen=True)
class Program:
    """A network as steps of a host and regions.

    parameters: those of forward, as text. classes: the host's classes for objects that forward
    returns. scope: the globals of the regions' statements. assigned: the attributes of modules that
    are variables of a call. messages: sentences on calls that only say something.
    """

    network: Network
    parameters: list[str]
    steps: list[Step]
    regions: list[Region]
    classes: Classes
    scope: dict[str, Any]
    assigned: list[Attribute]
    messages: tuple[str, ...]

    @cached_property
    def modules(self) -> list[RegionModule]:
        """Return the regions as modules of torch."""
        return [self.module_of(region) for region in self.regions]

    def module_of(self, region: Region) -> RegionModule:
        """Return a region, perhaps a part of one of this program's, as a module of torch."""
        return RegionModule(region, self.network.model, self.scope)

    @property
    def name(self) -> str:
        """Return the name of the network's class."""
        return type(self.network.model).__name__

    @property
    def inputs(self) -> list[str]:
        """Return the names of forward's parameters."""
        return list(self.network.calls[0])
