"""Split networks of earlier runs in the user's cache directory, by the content of everything that they come from."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import onnx
import onnxruntime
import torch

from regraft.source.cache_key import cache_directory

KEPT = 30  # networks
SITE = tuple(str(Path(one).resolve()) for one in sysconfig.get_paths().values())
OWN = Path(__file__).parent
PLAIN = (int, float, complex, bool, type(None))


class _Stable(pickle.Pickler):
    """Equal networks give equal bytes, in any process and before and after a call."""

    def persistent_id(self, value: Any) -> str | None:
        # whether equal constants are one object is no content, and a call may change it
        return sys.intern(repr(value)) if is_constant(value) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            shown = value.detach()
            data = shown.contiguous().view(torch.uint8) if shown.ndim else shown.reshape(1).view(torch.uint8)
            kept = str(value.dtype), tuple(value.shape), value.stride(), type(value).__name__, data.numpy().tobytes()
            return tuple, (kept,)
        if isinstance(value, (set, frozenset)):
            return tuple, (sorted(map(repr, value)),)
        if isinstance(value, FunctionType) and "<" in value.__qualname__:  # one that a function made, or a lambda
            cells = tuple(one.cell_contents for one in value.__closure__ or ())
            held = (
                value.__module__,
                value.__qualname__,
                value.__code__,
                value.__defaults__,
                value.__kwdefaults__,
                cells,
            )
            return tuple, (held,)
        if isinstance(value, CodeType):
            return tuple, ((value.co_code, value.co_consts, value.co_names, value.co_varnames, value.co_freevars),)
        return NotImplemented


def attributes(kind: type) -> dict[str, Any]:
    """The constants that a class of the user holds, which a program may have changed."""
    path = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    found = {} if path.startswith(SITE) else vars(kind)
    return {key: one for key, one in found.items() if type(one) in PLAIN or is_constant(one)}


def is_constant(value: Any) -> bool:
    """Strings, and lists, tuples and dictionaries of nothing but constants."""
    if type(value) in (list, tuple):
        return all(type(one) in PLAIN or is_constant(one) for one in value)
    if type(value) is dict:
        return all(type(one) in PLAIN or is_constant(one) for pair in value.items() for one in pair)
    return type(value) is str


def key_of(model: torch.nn.Module, calls: list[dict[str, Any]], options: tuple[str, ...]) -> str | None:
    """The name of a network in the cache; None where something of it has no content, such as an open file.

    The network is called once before: some write what they saw into their attributes, and would be another one then.
    """
    found = hashlib.sha256()
    text = io.BytesIO()
    try:
        with torch.no_grad():
            model(**calls[0])
        kinds = dict.fromkeys(kind for one in model.modules() for kind in type(one).__mro__)
        _Stable(text).dump((model, calls, [attributes(kind) for kind in kinds]))
    except Exception:  # noqa: BLE001  (whatever the call, or an attribute that cannot be pickled, raises)
        return None
    found.update(text.getvalue())
    found.update(
        repr(
            (
                options,
                sys.version,
                torch.get_default_dtype(),
                torch.__version__,
                onnxruntime.__version__,
                onnx.__version__,
            )
        ).encode()
    )
    for source in sources(model):
        found.update(source)
    return found.hexdigest()


def sources(model: torch.nn.Module) -> list[bytes]:
    """This package's own files, all loaded files of the user, and the versions of the packages of the modules."""
    files = set(OWN.rglob("*.py"))
    for one in list(sys.modules.values()):
        path = getattr(one, "__file__", None)
        if path and path.endswith(".py") and os.path.isabs(path) and not path.startswith(SITE):
            files.add(Path(path))
    packages = {kind.__module__.partition(".")[0] for one in model.modules() for kind in type(one).__mro__}
    versions = sorted(f"{one} {getattr(sys.modules.get(one), '__version__', '')}" for one in packages)
    return [repr(versions).encode(), *(path.read_bytes() for path in sorted(files) if path.is_file())]


def find(key: str) -> Path | None:
    """The directory of the network, if it is in the cache."""
    root = place()
    if root is None or not (root / key / "manifest.json").is_file():
        return None
    os.utime(root / key)
    return root / key


def keep(key: str, made: Path) -> None:
    """Copy a directory into the cache; without one, or where it cannot be written, nothing is kept."""
    root = place()
    if root is None:
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as fresh:
            shutil.copytree(made, Path(fresh) / key, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.rmtree(root / key, ignore_errors=True)
            os.replace(Path(fresh) / key, root / key)
        oldest = sorted((one for one in root.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime)
        for one in oldest[:-KEPT]:
            shutil.rmtree(one, ignore_errors=True)
    except OSError:
        return


def place() -> Path | None:
    root = cache_directory()
    return root / "split" if root is not None else None
