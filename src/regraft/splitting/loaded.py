"""A split network as a callable, just made or loaded from its directory."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.splitting.arguments import Packed
from regraft.splitting.compiling.artifacts import digest
from regraft.splitting.emitting.single import SingleFile
from regraft.splitting.sampling.record import to_numpy, to_torch


@dataclass(frozen=True)
class Report:
    """The parts of a split, and the results of its check.

    models: different structures among the sub-networks, each compiled once. islands: the reasons of
    the sub-networks that torch runs. unseen: sides that no input took, where the host raises.
    inputs_checked: the number of inputs of equal decisions and results. at_threshold: inputs that
    the split network decides differently, where the value compared lies at its threshold. seconds:
    the time of the whole build. one_by_one: places of the sub-networks that a batch runs through
    sample by sample. rounding: inputs whose results differ by no more than those of the original do
    where its weights are rounded differently. not_left: attributes of modules that a call of the
    original leaves behind; here they are variables of the call. analysis: seconds until the
    sub-networks were known.
    """

    subnetworks: int
    models: int
    islands: tuple[str, ...]
    sides: int
    sides_run: int
    unseen: tuple[str, ...]
    inputs_checked: int
    at_threshold: tuple[str, ...]
    seconds: float
    one_by_one: tuple[str, ...] = ()
    rounding: tuple[str, ...] = ()
    not_left: tuple[str, ...] = ()
    analysis: float = 0.0


class SplitModel:
    """A split network, which is called like the original: torch tensors in and out."""

    def __init__(self, directory: Path, report: Report, scratch: Any = None) -> None:
        self.directory, self.report, self._scratch = directory, report, scratch
        self.packed: Packed | None = (
            None  # set: a call takes the original's arguments; None: their parts by name
        )
        spec = importlib.util.spec_from_file_location("regraft_split_host", directory / "host.py")
        if spec is None or spec.loader is None:
            raise ValueError(f"{directory} holds no host")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.host = module.Host(directory)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self.packed is not None:
            args, keywords = (), self.packed.parts(args, keywords)
        return to_torch(
            self.host.forward(
                *map(to_numpy, args), **{key: to_numpy(value) for key, value in keywords.items()}
            )
        )

    def save(self, directory: str | Path) -> None:
        """Write host, sub-networks and manifest; the directory then runs without torch and without
        Regraft."""
        shutil.copytree(
            self.directory,
            directory,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )


def load_split(directory: str | Path) -> SplitModel | SingleFile:
    """Return the network that `save` wrote, a directory or a single file.

    Raises ValueError for a changed file of a directory.
    """
    if Path(directory).is_file():
        single_file = SingleFile(Path(directory))
        single_file.report = report_of(single_file.facts["report"])
        single_file.packed = packing_of(single_file.facts["arguments"])
        return single_file
    manifest = json.loads((Path(directory) / "manifest.json").read_text("utf-8"))
    host = (Path(directory) / "host.py").read_bytes()
    if digest(host) != manifest["host"]:
        raise ValueError("host.py is not the file that the manifest describes")
    split = SplitModel(Path(directory), report_of(manifest["report"]))
    split.packed = packing_of(manifest["arguments"])
    return split


def packing_of(fields: dict[str, Any] | None) -> Packed | None:
    """Return the packing of arguments that a manifest describes; None where there is none."""
    return None if fields is None else Packed(**fields)


def report_of(fields: dict[str, Any]) -> Report:
    """Return the report that a manifest describes."""
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }
    return Report(**values)
