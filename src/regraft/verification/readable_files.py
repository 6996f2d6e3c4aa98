"""The files that code under test may read wherever they lie: its repository, its packages, its
interpreter, and models that were downloaded before."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from regraft.source.qualified_names import REPOSITORY_MARKS, root_and_package

_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")
_HUB_PARTS = ("hub", "modules", "datasets", "assets")  # not the token beside them
_HUB_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE", "TORCH_HOME")


def readable_paths(
    original: Path, driver: str | None, environment: Mapping[str, str] = os.environ
) -> tuple[Path, ...]:
    """Return the files and folders that code of a file and its driver may read wherever they lie:
    the folder that the file is imported from, its repository, the working folder, the driver's
    folder, the folders that this process imports from, those that variables such as PATH name, and
    caches of downloaded models. Only absolute paths are returned, each once."""
    driver_file = (driver or "").rpartition(":")[0]
    paths = [
        root_and_package(original)[0],
        *filter(None, [repository_of(original)]),
        Path.cwd(),
        *([Path(driver_file).resolve().parent] if driver_file.endswith(".py") else []),
        *map(Path, filter(None, sys.path)),
        *_named_paths(environment),
        *_model_caches(environment),
    ]
    return tuple(dict.fromkeys(path for path in paths if path.is_absolute()))


def interpreter_paths() -> Iterator[Path]:
    """Yield the folders that this interpreter, its packages (also those installed in development
    mode) and this package are in."""
    yield from map(Path, (sys.prefix, sys.base_prefix, sys.exec_prefix))
    yield from (Path(entry) for entry in sys.path if os.path.isabs(entry))
    yield Path(__file__).resolve().parents[1]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):  # packages that are installed where they are developed
            yield from (Path(place) for place in getattr(module, "MAPPING", {}).values())


def repository_of(path: Path) -> Path | None:
    """Return the nearest folder above a file that contains a mark of a repository, such as `.git`;
    None where there is none."""
    marked = (
        folder
        for folder in path.parents
        if any(os.path.exists(folder / mark) for mark in REPOSITORY_MARKS)
    )
    return next(marked, None)


def _named_paths(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders that the environment variables for programs and libraries name, such as
    PATH and CUDA_HOME."""
    for name in _SEARCH_PATHS:
        yield from map(Path, filter(None, environment.get(name, "").split(os.pathsep)))


def _model_caches(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders in which the libraries of Hugging Face and PyTorch keep what they
    downloaded."""
    cache = Path(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    hub = Path(environment.get("HF_HOME") or cache / "huggingface")
    yield from (hub / part for part in _HUB_PARTS)
    yield cache / "torch"
    yield from (Path(environment[name]) for name in _HUB_VARIABLES if environment.get(name))
