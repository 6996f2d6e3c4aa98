"""A model of the caller's process: the child loads it with the classes of either version."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


def load_model(file: Path, name: str, module: ModuleType) -> tuple[Any, list[Any]]:
    """Return a pickled model and its calls, with the definitions of a version of a file.

    file: written by `torch.save`. name: the name that the file's module had in the process that
    wrote it. module: the version, which stands in for that module.
    """

    class Unpickler(pickle.Unpickler):
        """Looks the names of one module up in another one."""

        def find_class(self, module_name: str, qualified_name: str) -> Any:
            """Return the object that a pickle names."""
            if module_name == name:
                return functools.reduce(getattr, qualified_name.split("."), module)
            return super().find_class(module_name, qualified_name)

    pickle_module = SimpleNamespace(Unpickler=Unpickler, __name__="pickle")
    model, calls = torch.load(file, pickle_module=pickle_module, weights_only=False)
    return model, calls
