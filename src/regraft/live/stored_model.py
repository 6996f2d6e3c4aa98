"""A model in memory and calls of it, stored in a folder for the process that verifies, with drivers
that load them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regraft.source.cache_key import cache_directory, digest_of_file

_MODEL = "model.pt"
_DRIVER = """\
import sys
from pathlib import Path

sys.path[:] = dict.fromkeys([*sys.path, *{path!r}])

from regraft.verification.child.drivers.living_model import load_model


def driver(module):
    return load_model(Path(__file__).with_name({file!r}), {name!r}, module)
"""


def as_calls(example_inputs: Any) -> list[Any]:
    """Return example inputs as a list of calls: a list as it is, anything else as the only call.

    Raises ValueError for an empty list, and for calls that are no tuples, dictionaries or tensors.
    """
    calls = example_inputs if isinstance(example_inputs, list) else [example_inputs]
    if not calls or not all(isinstance(call, tuple | Mapping | torch.Tensor) for call in calls):
        raise ValueError(
            "example_inputs is a call or a list of calls, each a tuple of arguments, a dictionary"
            " of keywords or a tensor"
        )
    return calls


class NotPicklable(ValueError):
    """The error of a model that cannot be handed to another process; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the model cannot be pickled ({reason}), so that no other process can run it: leave"
            " example_inputs out"
        )
        self.reason = reason


class Example:
    """A model and calls in a folder of the user's cache, which is deleted at the end of the `with`
    block unless `is_needed` is set.

    The folder is named by their content, so that verdicts on equal models are found in the cache.
    Raises NotPicklable for a model that cannot be pickled.
    """

    def __init__(self, model: Any, calls: list[Any]) -> None:
        """Write model and calls into a folder of the cache that is named by their content."""
        self.is_needed = False
        root = (cache_directory() or Path(".cache", "regraft").absolute()) / "models"
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as folder:
            file = Path(folder, _MODEL)
            try:
                torch.save((model, calls), file)
            except Exception as problem:
                raise NotPicklable(f"{type(problem).__name__}: {problem}") from problem
            self.folder = root / digest_of_file(file)
            self.folder.mkdir(exist_ok=True)
            file.replace(self.folder / _MODEL)

    def __enter__(self) -> Example:
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the folder, unless `is_needed` is set."""
        if not self.is_needed:
            shutil.rmtree(self.folder, ignore_errors=True)

    def write_driver(self, name: str) -> str:
        """Write a file `NAME.py` into the folder, whose function `driver` loads the model for the
        module `name`; return its reference `FILE:driver`, as `verify` takes it."""
        file = self.folder / f"{name}.py"
        path = [entry or str(Path.cwd()) for entry in sys.path]
        file.write_text(_DRIVER.format(path=path, file=_MODEL, name=name), encoding="utf-8")
        return f"{file}:driver"
