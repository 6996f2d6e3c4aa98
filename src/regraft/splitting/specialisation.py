"""Specialisation of a network on the first of its example calls that can be followed."""

from __future__ import annotations

import builtins
import importlib
from dataclasses import dataclass
from typing import Any

import torch

from regraft.splitting.errors import Unrunnable
from regraft.splitting.observing.assigned_attributes import Attribute, record_stores, run_without
from regraft.splitting.program.record_classes import Mutable
from regraft.splitting.program.residual import Step, all_steps
from regraft.splitting.program.result_classes import Classes, describe_class
from regraft.splitting.program.size_questions import Questions
from regraft.splitting.program.symbolic_sizes import SymbolicSizes
from regraft.splitting.specialising.followed_code import Location
from regraft.splitting.specialising.network_specialisation import (
    specialise_network,
    start_specialisation,
)
from regraft.splitting.specialising.state import ClampedSizes, Plan, Specialisation

MAX_FOLLOWED = 8  # example calls that specialisation is tried on

Call = dict[str, Any]  # the arguments of a call, by parameter


@dataclass(frozen=True)
class Specialised:
    """A network's residual program, and what its statements refer to.

    scope: the globals of the statements. classes: the host's classes for objects that forward
    returns. outside: names that are no variables of the program. open_by_name: the dimensions of
    tensors whose sizes may differ, by variable. size_names: variables that only ever hold a size of
    a tensor. region_sizes: variables to which regions assign sizes, and the host perhaps other
    numbers. tensor_names: variables that hold a tensor somewhere. assigned: the attributes of
    modules that are variables of a call. messages: sentences on calls that only say something, and
    are left out. unrolled: the unrolled loops over ranges around each decision, by the place of the
    decision. detours: the statements with a call that was followed because the plan says so.
    """

    steps: list[Step]
    scope: dict[str, Any]
    classes: Classes
    outside: frozenset[str]
    open_by_name: dict[str, Any]
    size_names: frozenset[str]
    region_sizes: frozenset[str]
    tensor_names: frozenset[str]
    assigned: list[Attribute]
    messages: tuple[str, ...]
    unrolled: dict[Location, set[Location]]
    detours: frozenset[Location]


def specialise(
    model: torch.nn.Module,
    calls: list[Call],
    assigned: list[Attribute],
    partial: bool,
    plan: Plan,
    clamps: ClampedSizes,
) -> Specialised:
    """Return the network's residual program: its steps, and what they refer to. The attributes that
    calls assign, `assigned`, are taken off the modules meanwhile.

    partial: whether a variable may have no value on some paths. plan: what is specialised otherwise
    than usual. clamps: whether the host checks sizes that bounds decide, and their count. Raises
    Unsplittable.
    """
    state, steps = run_without(
        model,
        assigned,
        lambda attributes: follow_calls(model, calls, attributes, partial, plan, clamps),
    )
    return Specialised(
        steps,
        state.globals,
        {name: describe_class(kind) for name, kind in state.results.items()},
        names_outside(state),
        state.open_by_name,
        frozenset(state.size_names - state.tensor_names),
        frozenset(state.region_sizes - state.tensor_names),
        frozenset(state.tensor_names),
        sorted(state.scratch),
        tuple(state.messages),
        state.unrolled,
        frozenset(state.detours),
    )


def load_lazy_modules() -> None:
    """Import what torch loads at the first use of a mode, so that no analysis sees it load."""
    importlib.import_module("torch._dynamo")


def names_outside(state: Specialisation) -> frozenset[str]:
    """Return the names that statements of the program may read and that are no variables of it:
    `self`, `numpy`, objects from outside, classes of results, and builtins and `math` unless a
    variable has their name."""
    builtin_names = {*vars(builtins), "math"} - state.variables
    return frozenset({"self", "numpy", *builtin_names, *state.globals, *state.results})


def follow_calls(
    model: torch.nn.Module,
    calls: list[Call],
    scratch: set[Attribute],
    partial: bool,
    plan: Plan,
    clamps: ClampedSizes,
) -> tuple[Specialisation, list[Step]]:
    """Specialise the network on the first call; on a later one where something cannot be run on the
    earlier ones, or a loop is never entered. Returns the state and the residual program.

    scratch: attributes of modules that calls assign. partial: whether a variable may have no value
    on some paths. plan, clamps: as in `specialise`. Where no call enters
    all loops, the first program is returned; raises Unrunnable where no call can be followed.
    """
    first_error: Unrunnable | None = None
    # a program with a loop over lists that are empty for the call
    incomplete: tuple[Specialisation, list[Step]] | None = None
    mutable: set[type] = set()
    questions = Questions()
    number = 0
    while number < min(len(calls), MAX_FOLLOWED):
        state = start_specialisation(model)
        state.mutable, state.plan, state.clamps = mutable, plan, clamps
        state.symbolic = SymbolicSizes(state.scope, questions)
        try:
            with record_stores(model) as state.stored_attributes:
                steps = specialise_network(
                    state,
                    calls[number:] + calls[:number],
                    scratch,
                    partial=partial,
                )
        except Unrunnable as problem:
            first_error = first_error or problem
            number += 1
        except Mutable as signal:
            mutable.add(signal.kind)
        else:
            if enters_all_loops(state, steps):
                return state, steps
            incomplete = incomplete or (state, steps)
            number += 1
    if incomplete is not None:
        return incomplete
    raise first_error or AssertionError("there are calls")


def enters_all_loops(state: Specialisation, steps: list[Step]) -> bool:
    """Return whether the program has no loop that the call never entered."""
    error_steps = {id(step) for step in state.not_entered_errors}
    return error_steps.isdisjoint(map(id, all_steps(steps)))
