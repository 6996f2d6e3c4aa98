"""The protocol of the compilers of regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.splitting.compiling.model_and_weight_files import Artifacts
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.branch_exploration import RegionModule


@dataclass(frozen=True)
class Compiler:
    """A compiler of regions, and the methods by which the host runs its files.

    name: NAME of the file `with_NAME.py`. module: what the host imports, beside NumPy. compile:
    writes a region's files, compares them with torch (`samples.compare`, which raises Uncompilable;
    such a region stays eager), and returns the entry in the manifest: `used`, the positions of the
    inputs that the region reads; `file` and `sha256`, where the host is to read a file by
    `self.read(entry)`; and what else `host` needs. host: the methods `prepare(manifest)` and
    `compiled(entry)` of the host, as text; `compiled` returns a function of (None, arrays by name
    `i0`, `i1`..., those of `used` in their order) that gives a list of arrays. prepare: called
    first with all regions, their modules and the directory, for compilers that can take several at
    once; it is not the host's method of this name. settings: the names of the fields of
    `EngineSettings` that it heeds; the host finds their values in `manifest["settings"]`. programs:
    the commands that it needs.
    """

    name: str
    module: str
    version: str
    compile: Callable[[Region, RegionModule, Artifacts], dict[str, Any]]
    host: str
    prepare: Callable[[list[Region], list[RegionModule], Path], None] | None = None
    settings: frozenset[str] = frozenset()
    programs: tuple[str, ...] = ()
