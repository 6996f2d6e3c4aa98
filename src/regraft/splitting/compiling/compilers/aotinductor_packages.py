"""A program for a process of its own, which makes packages of AOTInductor from archives of
torch.export.

`python -m regraft.splitting.compiling.compilers.aotinductor_packages exported_0.pt2 ...` writes
`region_0.pt2` beside each archive. An archive that cannot be compiled is skipped; the process that
waits compiles it again to learn the reason.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import torch

EXPORTED, PACKAGED = "exported", "region"  # the beginnings of the names of the files
# With its default, layout_optimization=True, torch 2.13 gives other values for a torch.cond around
# a convolution.
OPTIONS = {"layout_optimization": False}


def package(program: Any, file: Path) -> None:
    """Compile a program of torch.export with AOTInductor, and write the package to `file`; raises
    whatever the compiler raises."""
    with torch.no_grad():
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(file), inductor_configs=OPTIONS
        )


def main(archives: list[str]) -> None:
    """Compile each archive of torch.export and write its package beside it; an archive that cannot
    be compiled is skipped without a message."""
    for archive in map(Path, archives):
        with contextlib.suppress(Exception):
            package(
                torch.export.load(archive),
                archive.with_name(archive.name.replace(EXPORTED, PACKAGED)),
            )


if __name__ == "__main__":
    main(sys.argv[1:])
