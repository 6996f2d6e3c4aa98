"""Find and invert boolean flags that no argument sets: attributes of modules (`self.fused_attn`),
attributes of classes (`Attention.fused`) and variables of the file (`HAS_SDPA`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import nn


def inverted_flags(
    model: Any, module: ModuleType, changed: ModuleType, text: str
) -> Iterator[tuple[str, bool]]:
    """Yield pairs of a flag, as `text` reads it, and the opposite of its value: flags of the
    model's modules of this file, then those of the file's classes, then variables of the file.

    Left out are `training`, which is no flag, and flags of classes and of the file that the changed
    version lacks.
    """
    flag_values = {
        f"self.{name}": value
        for part in _modules_of_file(model, module)
        for name, value in vars(part).items()
    }
    for name, value in tuple(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            flag_values.update((f"{name}.{key}", entry) for key, entry in vars(value).items())
        else:
            flag_values[name] = value
    for flag, value in flag_values.items():
        is_read = type(value) is bool and flag != "self.training" and _is_read(flag, text)
        if is_read and (flag.startswith("self.") or _has_flag(changed, flag)):
            yield flag, not value


def _has_flag(module: ModuleType, flag: str) -> bool:
    """Return whether a module has a variable, or a class of it an attribute, of a flag's name."""
    owner, _, name = flag.rpartition(".")
    place = getattr(module, owner, None) if owner else module
    return name in getattr(place, "__dict__", {})


def _is_read(flag: str, text: str) -> bool:
    """Return whether a text reads a flag; one of a class also where it reads it from `self`."""
    owner, _, name = flag.rpartition(".")
    before = rf"\b(?:self|cls|{owner})\." if owner else r"(?<!\.)\b"
    return re.search(rf"{before}{name}\b", text) is not None


def with_flags(
    build: Callable[[ModuleType], Any], chosen: Mapping[str, bool]
) -> Callable[[ModuleType], Any]:
    """Return a function that builds the same model with the `chosen` flags in those of its modules
    of the file that have them.

    Constructors find the flags set as soon as they have assigned them, because they may build
    further parts by them. Where a constructor raises then, the flags are set afterwards.
    """
    return (lambda module: build_with_flags(build, module, chosen)) if chosen else build


def build_with_flags(
    build: Callable[[ModuleType], Any], module: ModuleType, chosen: Mapping[str, bool]
) -> Any:
    """Build a model of a file with the `chosen` flags and return it. Flags of classes and of the
    file hold while the model is built, and whenever it is called: for these the model is wrapped in
    `Flagged`."""
    names = [flag for flag in chosen if not flag.startswith("self.")]
    flags_of_file = {flag: chosen[flag] for flag in names}
    flags_of_parts = {
        flag.removeprefix("self."): value for flag, value in chosen.items() if flag not in names
    }
    random_state = torch.get_rng_state()
    with flags_set(module, flags_of_file):
        try:
            with _flags_in_constructors(module, flags_of_parts):
                model = build(module)
        except Exception:  # noqa: BLE001 - the constructor does not take the flags; they are set later
            torch.set_rng_state(random_state)
            model = build(module)
    for part in _modules_of_file(model, module):
        vars(part).update(
            {
                name: value
                for name, value in flags_of_parts.items()
                if type(vars(part).get(name)) is bool
            }
        )
    return Flagged(model, module, flags_of_file) if flags_of_file else model


class Flagged(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A model whose `forward` runs while flags of its file's classes and variables are set."""

    def __init__(self, model: Any, module: ModuleType, flags: Mapping[str, bool]) -> None:
        super().__init__()
        self.model = model
        self.module_name, self.flags = module.__name__, dict(flags)
        if hasattr(model, "config"):
            self.config = model.config

    @property
    def signed(self) -> Any:
        """Return the function whose signature `forward` has."""
        return getattr(self.model, "signed", self.model.forward)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the model, which runs while the flags are set."""
        with flags_set(sys.modules[self.module_name], self.flags):
            return self.model(*args, **kwargs)


@contextmanager
def flags_set(module: ModuleType, flags: Mapping[str, bool]) -> Iterator[None]:
    """Set flags of a file's classes ("Class.NAME") and variables ("NAME") in the body, and restore
    their values at its end."""
    places = [
        (getattr(module, owner) if owner else module, name, value)
        for flag, value in flags.items()
        for owner, _, name in (flag.rpartition("."),)
    ]
    old_values = [vars(owner)[name] for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), old_value in zip(places, old_values, strict=True):
            setattr(owner, name, old_value)


@contextmanager
def _flags_in_constructors(module: ModuleType, chosen: Mapping[str, bool]) -> Iterator[None]:
    """Replace `nn.Module.__setattr__` in the body, so that the `chosen` flags get their values
    whenever a module of the file assigns them a boolean."""
    set_plainly = nn.Module.__setattr__

    def set_attribute(part: Any, name: str, value: Any) -> None:
        """Set an attribute of a module: a chosen flag of a module of the file to its chosen value
        where the value to set is a boolean, any other to `value`."""
        is_flag = name in chosen and type(value) is bool
        is_of_file = type(part).__module__ == module.__name__
        set_plainly(part, name, chosen[name] if is_flag and is_of_file else value)

    nn.Module.__setattr__ = set_attribute
    try:
        yield
    finally:
        nn.Module.__setattr__ = set_plainly


def _modules_of_file(model: Any, module: ModuleType) -> Iterator[Any]:
    """Return those of the model's modules, itself included, whose class the file defines."""
    return (part for part in model.modules() if type(part).__module__ == module.__name__)
