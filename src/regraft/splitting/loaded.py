"""A split network loaded from its directory or file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regraft.splitting.compiling.artifacts import digest
from regraft.splitting.emitting.directory import SplitModel
from regraft.splitting.emitting.report import Report
from regraft.splitting.emitting.single import SingleFile
from regraft.splitting.nested_arguments import Packed

__all__ = ["Report", "SplitModel", "load_split"]


def load_split(directory: str | Path) -> SplitModel | SingleFile:
    """Return the network that `save` wrote, from a directory or from a single file, with its
    report.

    Raises ValueError where `host.py`, or a file that the host reads, is not the one that was
    written, and for an ONNX file that Regraft did not write.
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
