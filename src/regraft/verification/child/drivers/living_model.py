"""Load a pickled model of the caller's process in the child, with the classes of either version."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


def load_model(file: Path, name: str, module: ModuleType) -> tuple[Any, list[Any]]:
    """Return a pickled model and its calls, with the definitions of a version of a file.

    file: a pair of the model and the calls, written by `torch.save`. name: the name that the file's
    module had in the process that wrote it. module: the version, which stands in for that module.

    Unpickling runs the code that the file names, so the file has to be trusted. Raises
    AttributeError where the version lacks a definition, and what `torch.load` raises.
    """

    class Unpickler(pickle.Unpickler):
        """Looks the names of the module `name` up in `module`."""

        def find_class(self, module_name: str, qualified_name: str) -> Any:
            """Return the object that a pickle names by its module and its qualified name."""
            if module_name == name:
                return functools.reduce(getattr, qualified_name.split("."), module)
            return super().find_class(module_name, qualified_name)

    pickle_module = SimpleNamespace(Unpickler=Unpickler, __name__="pickle")
    model, calls = torch.load(file, pickle_module=pickle_module, weights_only=False)
    return model, calls
