"""A split network in a directory: the class that loads its host and is called like the network, and
the writer of the host's text and manifest."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from regraft.splitting.carried_state import CarriedState, write_states
from regraft.splitting.compiling.model_and_weight_files import digest
from regraft.splitting.emitting.split_report import FORMAT, Report
from regraft.splitting.nested_arguments import Packed
from regraft.splitting.sampling.numpy_conversion import to_numpy, to_torch


class SplitModel:
    """A split network, which is called like the original: torch tensors in and out.

    directory: contains `host.py` and the files beside it; ValueError is raised where Python cannot
    import a host from it. scratch: an object, such as a temporary directory, that is kept alive as
    long as this one. settings: those of the engine that replace the manifest's, by name.
    """

    def __init__(
        self, directory: Path, report: Report, scratch: Any = None, **settings: Any
    ) -> None:
        """Load the module `host.py` of the directory, and make its host. Raises ValueError where
        the directory has no such module."""
        self.directory, self.report, self._scratch = directory, report, scratch
        self.carried: CarriedState | None = None  # what calls leave to the next, if anything
        self.state: dict[str, Any] = {}  # the states as they are now, by name
        self.packed: Packed | None = (
            None  # set: a call takes the original's arguments; None: their parts by name
        )
        spec = importlib.util.spec_from_file_location("regraft_split_host", directory / "host.py")
        if spec is None or spec.loader is None:
            raise ValueError(f"{directory} holds no host")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.host = module.Host(directory, **settings)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Return the network's result, with torch tensors, for arguments by position or by name;
        the host raises ValueError for arguments that the network was not split for."""
        if self.carried is None:
            return self._run(args, keywords)
        states = self.carried.encode(self.state)
        result, following = self._run(args, {**keywords, self.carried.parameter: states})
        self.state = dict(zip(self.carried.names, following, strict=True))
        return result

    def reset(self) -> None:
        """Set the states to those that the original had when it was split; without states nothing
        happens."""
        self.state = {} if self.carried is None else self.carried.first_state()

    def _run(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Return what the host gives for these arguments, with torch tensors."""
        if self.packed is not None:
            args, keywords = (), self.packed.parts(args, keywords)
        return to_torch(
            self.host.forward(
                *map(to_numpy, args), **{key: to_numpy(value) for key, value in keywords.items()}
            )
        )

    def carry(self, states: CarriedState) -> None:
        """Keep these states from call to call, and write them into the directory."""
        self.carried = states
        self.reset()
        self._change_manifest("states", write_states(self.directory, states))

    def replace_report(self, report: Report) -> None:
        """Take this report in the place of the one that the network and its manifest have."""
        self.report = report
        self._change_manifest("report", dataclasses.asdict(report))

    def _change_manifest(self, key: str, fields: dict[str, Any]) -> None:
        """Write the manifest with other fields under a key."""
        manifest = json.loads((self.directory / "manifest.json").read_text("utf-8"))
        write_manifest(self.directory, {**manifest, key: fields})

    def save(self, directory: str | Path) -> None:
        """Copy host, sub-networks and manifest into a directory, which is created if needed; the
        files of a network that was saved there before are removed. The copy needs no Regraft, and
        torch only where torch runs a sub-network."""
        target = Path(directory)
        former = set(_saved_files(target))
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(self.directory, target, dirs_exist_ok=True, ignore=ignore)
        files = sorted(
            str(path.relative_to(self.directory))
            for path in self.directory.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        )
        for name in former.difference(files):
            (target / name).unlink(missing_ok=True)
        manifest = json.loads((target / "manifest.json").read_text("utf-8"))
        write_manifest(target, {**manifest, "files": files})


def _saved_files(directory: Path) -> list[str]:
    """Return the names of the files that an earlier `save` wrote into a directory, relative to it
    and below it; [] where there is none, or another file in the place of its manifest."""
    try:
        files = json.loads((directory / "manifest.json").read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    names = [Path(name) for name in files if isinstance(name, str)]
    return [str(name) for name in names if not name.is_absolute() and ".." not in name.parts]


def write_directory(directory: Path, host: str, manifest: dict[str, Any], report: Report) -> None:
    """Write the host's text as `host.py` into the directory, and beside it `manifest.json`: the
    manifest with the digest of that text and the report. Files of these names are replaced."""
    (directory / "host.py").write_text(host, "utf-8")
    contents = {
        "format": FORMAT,
        "host": digest(host.encode()),
        **manifest,
        "report": dataclasses.asdict(report),
    }
    write_manifest(directory, contents)


def write_manifest(directory: Path, contents: dict[str, Any]) -> None:
    """Write `manifest.json` into the directory."""
    (directory / "manifest.json").write_text(json.dumps(contents, separators=(",", ":")), "utf-8")
