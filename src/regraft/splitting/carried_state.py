"""The states of a split network, which one call leaves to the next, and their file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from regraft.execution.nested import map_leaves
from regraft.splitting.compiling.model_and_weight_files import digest
from regraft.splitting.program.argument_templates import (
    build_value,
    leaf_names,
    make_template,
    take_leaves,
    template_expression,
)
from regraft.splitting.sampling.numpy_conversion import to_numpy

STATES = "states.npz"  # the file beside the host
_NUMBERS = ("bool", "int", "float")  # kinds
_CONTENTS = ("start", "example")  # of a value, in its file


@dataclass(frozen=True)
class CarriedValue:
    """An attribute of a module that one call leaves to the next.

    name: its path, as in "cell.h". kind: "value" (a tensor, or a list, tuple or dictionary of
    these), "changed" (a tensor that calls change in place), or the type of a number. start: the
    value before the first call. example: a value with tensors, or a number. absent: the text of the
    constant that it holds where it holds no tensors, such as "None"; "" where it always does.
    """

    name: str
    kind: str
    start: Any
    example: Any
    absent: str = ""

    def is_there(self, value: Any) -> bool:
        """Return whether the attribute with this value holds tensors. Raises ValueError where it
        holds neither these nor what it holds in their place."""
        template = make_template("state", value, set())
        if not leaf_names(template) and template_expression(template) != self.absent:
            raise ValueError(f"{self.name} is {value!r}; without tensors it is {self.absent}")
        return bool(leaf_names(template))

    def encode(self, value: Any) -> Any:
        """Return a value as the network around takes it: a number as a tensor, and what may be
        absent with a tensor that tells whether it is there."""
        if self.absent:
            is_there = self.is_there(value)
            return torch.tensor(is_there), value if is_there else self.example
        return self.encode_number(value)

    def encode_number(self, value: Any) -> Any:
        """Return a number as a tensor, another value as it is."""
        if self.kind not in _NUMBERS:
            return value
        return torch.tensor(value, dtype=torch.float64 if self.kind == "float" else None)


@dataclass(frozen=True)
class CarriedState:
    """What calls of a network leave to the next ones.

    parameter: the argument of the network around that takes the values, a tuple.
    """

    parameter: str
    values: list[CarriedValue]

    @property
    def names(self) -> list[str]:
        """Return the names of the values."""
        return [value.name for value in self.values]

    def encode(self, state: dict[str, Any]) -> tuple[Any, ...]:
        """Return the argument that holds a state, values by name. Raises ValueError unless these
        are the names, and where some of the values that may be absent are there and others are
        not."""
        if list(state) != self.names:
            raise ValueError(f"the states are {', '.join(self.names)}, in this order")
        presences = {value.is_there(state[value.name]) for value in self.values if value.absent}
        if len(presences) > 1:
            absent = ", ".join(
                f"{value.name} is {value.absent}" for value in self.values if value.absent
            )
            raise ValueError(f"a state begins where {absent}; here it does in some of them only")
        return tuple(value.encode(state[value.name]) for value in self.values)

    def first_state(self) -> dict[str, Any]:
        """Return copies of the values before the first call, by name."""
        return {value.name: copy_tensors(value.start) for value in self.values}


def copy_tensors(value: Any) -> Any:
    """Return the value with copies of the tensors in it, in new lists, tuples and dictionaries."""
    return map_tensors(value, torch.Tensor.clone)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the value with `change` applied to the tensors in it, in new lists, tuples and
    dictionaries."""
    return map_leaves(value, lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf)


def write_states(directory: Path, states: CarriedState) -> dict[str, Any]:
    """Write the tensors of states, before the first call and as examples, into the directory of a
    split network; return the description of the states for its manifest."""
    used_names: set[str] = set()
    leaves: dict[str, Any] = {}
    values = []
    for value in states.values:
        templates = {}
        for key in _CONTENTS:
            content = value.encode_number(getattr(value, key))
            templates[key] = make_template("state", content, used_names)
            take_leaves("state", templates[key], content, leaves)
        values.append({"name": value.name, "kind": value.kind, "absent": value.absent, **templates})
    path = directory / STATES
    numpy.savez(path, **{name: to_numpy(leaf) for name, leaf in leaves.items()})
    return {
        "parameter": states.parameter,
        "values": values,
        "file": digest(path.read_bytes()),
    }


def read_states(directory: Path, fields: dict[str, Any] | None) -> CarriedState | None:
    """Return the states that a manifest describes by its fields; None for None. Raises ValueError
    where the file with their tensors is not the one that was written."""
    if fields is None:
        return None
    path = directory / STATES
    if digest(path.read_bytes()) != fields["file"]:
        raise ValueError(f"{STATES} is not the file that the manifest describes")
    with numpy.load(path, allow_pickle=False) as arrays:
        leaves = {name: torch.from_numpy(array) for name, array in arrays.items()}
    values = []
    for value in fields["values"]:
        start, example = (
            decode_number(value["kind"], build_value(value[key], leaves)) for key in _CONTENTS
        )
        values.append(CarriedValue(value["name"], value["kind"], start, example, value["absent"]))
    return CarriedState(fields["parameter"], values)


def decode_number(kind: str, content: Any) -> Any:
    """Return a value that `CarriedValue.encode_number` gave as the number that it was; other values
    as they are."""
    return content.item() if kind in _NUMBERS else content
