"""What a compiler of regions is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.splitting.artifacts import Artifacts
from regraft.splitting.explore import RegionModule
from regraft.splitting.residual import Region


@dataclass(frozen=True)
class Compiler:
    """A compiler: what it makes of a region, and what the host does with that.

    compile: writes the region's files, and gives its entry in the manifest: `used`, the places of the inputs that it
    reads, and what `host` needs; raises Untaken. host: the methods `prepare(manifest)` and `compiled(entry)` of the
    host, as text; `compiled` gives a function of (None, arrays by name `i0`, `i1`...) to a list of arrays. module:
    what the host imports, beside NumPy. prepare: called before with all regions, their modules and the directory,
    where several can be compiled at once.
    """

    name: str
    module: str
    version: str
    compile: Callable[[Region, RegionModule, Artifacts], dict[str, Any]]
    host: str
    prepare: Callable[[list[Region], list[RegionModule], Path], None] | None = None
