"""Specialisation of a network on the first of its example calls that can be followed."""

from __future__ import annotations

import builtins
import importlib
from dataclasses import dataclass
from typing import Any

import torch

from regraft.splitting.errors import Unrunnable
from regraft.splitting.observing.scratch import Attribute, record_stores, run_without
from regraft.splitting.program.records import Mutable
from regraft.splitting.program.residual import Step, all_steps
from regraft.splitting.program.results import Classes, describe_class
from regraft.splitting.specialising.specialiser import Specialiser

MAX_FOLLOWED = 8  # example calls that specialisation is tried on

Call = dict[str, Any]  # the arguments of a call, by parameter


@dataclass(frozen=True)
class Specialised:
    """A network's residual program, and what its statements refer to.

    scope: the globals of the statements. classes: the host's classes for objects that forward
    returns. outside: names that are no variables of the program. open_by_name: the dimensions of
    tensors whose sizes may differ, by variable. assigned: the attributes of modules that are
    variables of a call.
    """

    steps: list[Step]
    scope: dict[str, Any]
    classes: Classes
    outside: frozenset[str]
    open_by_name: dict[str, Any]
    assigned: list[Attribute]


def specialise(
    model: torch.nn.Module, calls: list[Call], assigned: list[Attribute], partial: bool
) -> Specialised:
    """Specialise the network, without the attributes that its calls assign.

    partial: whether a variable may have no value on some paths. Raises Unsplittable.
    """
    specialiser, steps = run_without(
        model, assigned, lambda attributes: follow_calls(model, calls, attributes, partial)
    )
    return Specialised(
        steps,
        specialiser.globals,
        {name: describe_class(kind) for name, kind in specialiser.results.items()},
        names_outside(specialiser),
        specialiser.open_by_name,
        sorted(specialiser.scratch),
    )


def load_lazy_modules() -> None:
    """Import what torch loads at the first use of a mode, so that no analysis sees it load."""
    importlib.import_module("torch._dynamo")


def names_outside(specialiser: Specialiser) -> frozenset[str]:
    """Return the names in the program's statements that are no variables of the program."""
    builtin_names = {*vars(builtins), "math"} - specialiser.variables
    return frozenset({"self", "numpy", *builtin_names, *specialiser.globals, *specialiser.results})


def follow_calls(
    model: torch.nn.Module, calls: list[Call], scratch: set[Attribute], partial: bool
) -> tuple[Specialiser, list[Step]]:
    """Specialise the network on the first call, or on a later one where something cannot be run on
    the earlier ones.

    Returns the specialiser and the residual program. scratch: attributes of modules that calls
    assign. A program without loops that are never entered is preferred; raises Unrunnable where no
    call can be followed.
    """
    first_error: Unrunnable | None = None
    # a program with a loop over lists that are empty for the call
    incomplete: tuple[Specialiser, list[Step]] | None = None
    mutable: set[type] = set()
    number = 0
    while number < min(len(calls), MAX_FOLLOWED):
        specialiser = Specialiser(model)
        specialiser.mutable = mutable
        try:
            with record_stores(model) as specialiser.stored_attributes:
                steps = specialiser.specialise_network(
                    calls[number:] + calls[:number], scratch, partial=partial
                )
        except Unrunnable as problem:
            first_error = first_error or problem
            number += 1
        except Mutable as signal:
            mutable.add(signal.kind)
        else:
            if enters_all_loops(specialiser, steps):
                return specialiser, steps
            incomplete = incomplete or (specialiser, steps)
            number += 1
    if incomplete is not None:
        return incomplete
    raise first_error or AssertionError("there are calls")


def enters_all_loops(specialiser: Specialiser, steps: list[Step]) -> bool:
    """Return whether the program has no loop that the call never entered."""
    error_steps = {id(step) for step in specialiser.not_entered_errors}
    return error_steps.isdisjoint(map(id, all_steps(steps)))
