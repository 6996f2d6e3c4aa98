"""The subjects on which the rewrites of a benchmark are verified: the user's model and inputs, or
small models of the same classes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regraft.benchmarking.steps import Call

LARGEST_STEP = 0.05  # seconds; a proof runs a model several hundred times, in four number formats

_SMALL = "on small models that Regraft builds of your classes"
_COMPARED = "on your model and inputs both versions are compared in this process"


@dataclass(frozen=True, slots=True)
class Examination:
    """The calls on which the process that verifies runs the user's model, None where it builds
    small models of the classes; `sentence` says to people which of them, and why."""

    calls: tuple[Any, ...] | None
    sentence: str

    @staticmethod
    def without_model(reason: str) -> Examination:
        """Return an examination of small models; the reason says why the user's is not used."""
        return Examination(None, f"proved {_SMALL}: {reason}; {_COMPARED}")


def examination_of(model: Any, calls: Sequence[Call], step_seconds: float) -> Examination:
    """Return the subjects for a model whose step takes so many seconds."""
    if step_seconds > LARGEST_STEP:
        return Examination.without_model(
            f"a step of yours takes {step_seconds:.2g} s, and a proof runs hundreds"
        )
    module_name = _unimportable_module(model)
    if module_name:
        return Examination.without_model(
            f"the process that verifies cannot import the module {module_name} of your model"
        )
    inputs = tuple(kwargs or args for args, kwargs in calls)
    return Examination(inputs, "proved on your model and inputs, and on inputs made of them")


def _unimportable_module(model: Any) -> str:
    """Return the name of a module of the model's classes that another process cannot import, as
    that of a file which is loaded by its path; "" where there is none."""
    for name in dict.fromkeys(type(module).__module__ for module in model.modules()):
        package = name.partition(".")[0]
        if package == "__main__" or not _is_importable(package):
            return name
    return ""


def _is_importable(package: str) -> bool:
    """Return whether Python finds a package on its path, whatever this process has imported."""
    return any(finder.find_spec(package, None) is not None for finder in sys.meta_path)
