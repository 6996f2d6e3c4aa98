"""Functions of a file as models."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torch import nn

from regraft.verification.child.drivers import input_guesses
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.drivers.subject_reach import with_further_calls
from regraft.verification.child.session import Session


class FunctionModule(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A module whose `forward` is the function `name` of a version of a file, so that the function
    can be run, recorded and compared as a model.

    The function is looked up at each call, so that a replacement in the file is called. A copy
    keeps the version, which cannot be copied.
    """

    def __init__(self, module: ModuleType, name: str) -> None:
        super().__init__()
        self._module_of_function = (module,)
        self._name_of_function = name

    @property
    def signed(self) -> Any:
        """Return the function; `signature_of` takes its signature for that of `forward`."""
        return getattr(self._module_of_function[0], self._name_of_function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the function."""
        return self.signed(*args, **kwargs)

    def __deepcopy__(self, _: Any) -> FunctionModule:
        """Return a module of the same function of the same version."""
        return FunctionModule(self._module_of_function[0], self._name_of_function)


def function_subjects(name: str, session: Session) -> Iterator[Subject]:
    """Yield a function of the file with inputs that it accepts, then, as light subjects, with
    further inputs that reach new lines; nothing, with the reason recorded, where it accepts
    none."""

    def build(module: ModuleType) -> Any:
        """Return the function of a version as a module."""
        return FunctionModule(module, name)

    model = build(session.original)
    try:
        with session.ledger.step("original", "", f"look for inputs of {name}"):
            accepted = input_guesses.find_accepted(model, inner=True, one_batch=True)
    except (input_guesses.NoInputs, LookupError) as error:
        session.ledger.skip(f"{name} (inference): {error}")
        return
    subject = Subject(
        f"{name}(...)",
        "inference",
        build,
        accepted.calls(model),
        {"kind": "function", "name": name},
    )
    yield subject
    yield from with_further_calls(subject, model, accepted, name, session)
