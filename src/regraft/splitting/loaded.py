"""A split network as a callable, made or loaded from its directory."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.splitting.artifacts import digest
from regraft.splitting.record import to_numpy, to_torch
from regraft.splitting.single import SingleFile
from regraft.splitting.unpacked import Packed


@dataclass(frozen=True)
class Report:
    """What a split consists of, and how it was checked.

    models: different structures among the sub-networks, each compiled once. islands: sub-networks that torch runs.
    unseen: sides that no input took, where the host raises.
    inputs_checked: inputs of equal decisions and results. at_threshold: inputs that the split network decides
    differently, where the value compared lies at its threshold. seconds: the whole build. one_by_one: places of the
    sub-networks that a batch runs through sample by sample. rounding: inputs whose results differ by no more than
    those of the original do where its weights are rounded differently. not_left: attributes of modules that a call of
    the original leaves behind; here they are variables of the call. analysis: seconds until the sub-networks
    were known.
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
    """Called like the original network: torch tensors in and out."""

    def __init__(self, directory: Path, report: Report, scratch: Any = None) -> None:
        self.directory, self.report, self._scratch = directory, report, scratch
        self.packed: Packed | None = None  # with it a call gives what the original takes, else its parts by name
        spec = importlib.util.spec_from_file_location("regraft_split_host", directory / "host.py")
        if spec is None or spec.loader is None:
            raise ValueError(f"{directory} holds no host")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.host = module.Host(directory)

    def __call__(self, *args: Any, **words: Any) -> Any:
        if self.packed is not None:
            args, words = (), self.packed.parts(args, words)
        return to_torch(
            self.host.forward(*map(to_numpy, args), **{key: to_numpy(value) for key, value in words.items()})
        )

    def save(self, directory: str | Path) -> None:
        """Write host, sub-networks and manifest; the directory then runs without torch and without Regraft."""
        shutil.copytree(self.directory, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def load_split(directory: str | Path) -> SplitModel | SingleFile:
    """What `save` wrote, a directory or a single file; a changed file of a directory raises ValueError."""
    if Path(directory).is_file():
        made = SingleFile(Path(directory))
        made.report = report_of(made.facts["report"])
        made.packed = packed_as(made.facts["arguments"])
        return made
    manifest = json.loads((Path(directory) / "manifest.json").read_text("utf-8"))
    host = (Path(directory) / "host.py").read_bytes()
    if digest(host) != manifest["host"]:
        raise ValueError("host.py is not the file that the manifest describes")
    split = SplitModel(Path(directory), report_of(manifest["report"]))
    split.packed = packed_as(manifest["arguments"])
    return split


def packed_as(fields: dict[str, Any] | None) -> Packed | None:
    return None if fields is None else Packed(**fields)


def report_of(fields: dict[str, Any]) -> Report:
    made: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in fields.items()}
    return Report(**made)
