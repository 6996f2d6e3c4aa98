"""Load a split network from the directory or ONNX file that its `save` wrote."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regraft.splitting.carried_state import read_states
from regraft.splitting.compiling.engine_settings import engine_settings, given_settings
from regraft.splitting.compiling.model_and_weight_files import digest
from regraft.splitting.emitting.single import SingleFile
from regraft.splitting.emitting.split_directory import SplitModel
from regraft.splitting.emitting.split_report import Report, check_format
from regraft.splitting.nested_arguments import Packed

__all__ = ["Report", "SplitModel", "load_split"]


def load_split(
    directory: str | Path, threads: int | None = None, providers: Sequence[str] | None = None
) -> SplitModel | SingleFile:
    """Return the network that `save` wrote, from a directory or from a single file, with its
    report.

    threads, providers: the threads of the engine and the execution providers of ONNX Runtime, in
    the place of those that the network was split with; see `split`. Raises OSError where there is
    no such network, ValueError where `host.py`, or a file that the host reads, is not the one that
    was written, for what another version of Regraft wrote in another format, for an ONNX file that
    Regraft did not write, and for threads and providers that are wrong, are missing here, or that
    the network's engine does not take.
    """
    path = Path(directory)
    settings = engine_settings(threads, providers)
    replaced = settings.chosen(given_settings(threads, providers))
    if path.is_file():
        return _load_single_file(SingleFile(path, settings=settings if replaced else None), path)
    manifest_path = path / "manifest.json"
    if not manifest_path.is_file():
        reason = "no split network is there, since there is no manifest.json"
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    text = manifest_path.read_bytes()
    host = (path / "host.py").read_bytes()
    with _errors_as_damage(manifest_path):
        manifest = json.loads(text)
    check_format(manifest, manifest_path)
    with _errors_as_damage(manifest_path):
        report, packed = parse_report(manifest["report"]), parse_packing(manifest["arguments"])
        is_host = digest(host) == manifest["host"]
        states = read_states(path, manifest.get("states"))
        unheeded = replaced.keys() - manifest.get("settings", {}).keys()
    if not is_host:
        raise ValueError("host.py is not the file that the manifest describes")
    if unheeded:
        raise ValueError(
            f"{path}: its sub-networks run with {manifest['compiler']}, which takes no"
            f" {' and no '.join(sorted(unheeded))} here"
        )
    split = SplitModel(path, report, **replaced)
    split.packed, split.carried = packed, states
    split.reset()
    return split


def _load_single_file(single_file: SingleFile, path: Path) -> SingleFile:
    """Return the network of a single file, whose path is `path`, with its report and its packing of
    arguments; raise ValueError where they cannot be read."""
    with _errors_as_damage(path):
        single_file.report = parse_report(single_file.facts["report"])
        single_file.packed = parse_packing(single_file.facts["arguments"])
    return single_file


@contextlib.contextmanager
def _errors_as_damage(path: Path) -> Iterator[None]:
    """Raise ValueError, with the path and the advice to split again, for an error in the `with`
    block that reading damaged content can raise, such as a missing key."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(
            f"{path}: is damaged ({type(problem).__name__}: {problem}): split the network again"
        ) from problem


def parse_packing(fields: dict[str, Any] | None) -> Packed | None:
    """Return the Packed that a manifest describes by its fields; None for None."""
    return None if fields is None else Packed(**fields)


def parse_report(fields: dict[str, Any]) -> Report:
    """Return the Report that a manifest describes by its fields; lists become tuples."""
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }
    return Report(**values)
