"""Run as a process of its own: archives of torch.export become packages of AOTInductor beside them.

`python -m regraft.splitting.compilers.package exported_0.pt2 ...` writes `region_0.pt2`; an archive that cannot be
compiled is left alone, and the process that waits compiles it again to hear why.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import torch

EXPORTED, PACKAGED = "exported", "region"  # how the names of the files begin
# With its default, layout_optimization=True, torch 2.13 gives other values for a torch.cond around a convolution.
OPTIONS = {"layout_optimization": False}


def package(program: Any, file: Path) -> None:
    with torch.no_grad():
        torch._inductor.aoti_compile_and_package(program, package_path=str(file), inductor_configs=OPTIONS)


def main(archives: list[str]) -> None:
    for one in map(Path, archives):
        with contextlib.suppress(Exception):
            package(torch.export.load(one), one.with_name(one.name.replace(EXPORTED, PACKAGED)))


if __name__ == "__main__":
    main(sys.argv[1:])
