"""Cache split networks in the user's cache directory, by a hash of the network, its example calls,
the source files and the versions that they were split from."""

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

from regraft import execution
from regraft.source.cache_key import cache_directory

MAX_NETWORKS = 30  # in the cache
SITE_PATHS = tuple(str(Path(path).resolve()) for path in sysconfig.get_paths().values())
PACKAGES = (Path(__file__).parent, Path(execution.__file__).parent)
PLAIN_TYPES = (int, float, complex, bool, type(None))


class _StablePickler(pickle.Pickler):
    """A pickler that gives equal bytes for equal networks, in any process and before and after a
    call."""

    def persistent_id(self, value: Any) -> str | None:
        """Return the text of a plain constant, which is pickled in its place; None for other
        objects."""
        # whether equal constants are one object is no part of the content, and a call may change it
        return sys.intern(repr(value)) if is_constant(value) else None

    def reducer_override(self, value: Any) -> Any:
        """Reduce a tensor, set, inner function or code to its content; leave other objects to
        pickle."""
        content = content_of(value)
        return NotImplemented if content is None else (tuple, (content,))


def content_of(value: Any) -> Any:
    """Return a tuple or list that stands for the content of a tensor, set, inner function or code,
    equal in any process; None for any other value, which pickle writes the same in any process."""
    if isinstance(value, torch.Tensor):
        return content_of_tensor(value)
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    # a lambda, or a function that another function makes
    if isinstance(value, FunctionType) and "<" in value.__qualname__:
        cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
        defaults = value.__defaults__, value.__kwdefaults__
        return value.__module__, value.__qualname__, value.__code__, *defaults, cells
    if isinstance(value, CodeType):
        names = value.co_names, value.co_varnames, value.co_freevars
        return value.co_code, value.co_consts, *names
    return None


def content_of_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the dtype, shape, strides, class and bytes of a tensor."""
    detached = tensor.detach()
    # a contiguous tensor of one element may have any stride, of which `view` takes 1 only
    flat = detached.reshape(-1).clone(memory_format=torch.contiguous_format)
    return (
        str(tensor.dtype),
        tuple(tensor.shape),
        tensor.stride(),
        type(tensor).__name__,
        flat.view(torch.uint8).numpy().tobytes(),
    )


def constants_of_class(kind: type) -> dict[str, Any]:
    """Return the plain constants among a class's own attributes, by name; {} for a class of an
    installed package or the standard library."""
    path = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    namespace = {} if path.startswith(SITE_PATHS) else vars(kind)
    return {
        key: value
        for key, value in namespace.items()
        if type(value) in PLAIN_TYPES or is_constant(value)
    }


def is_constant(value: Any) -> bool:
    """Return whether the value is a string, or a list, tuple or dictionary of nothing but
    constants."""
    if type(value) in (list, tuple):
        return all(type(element) in PLAIN_TYPES or is_constant(element) for element in value)
    if type(value) is dict:
        return all(
            type(element) in PLAIN_TYPES or is_constant(element)
            for pair in value.items()
            for element in pair
        )
    return type(value) is str


def make_key(
    model: torch.nn.Module, calls: list[dict[str, Any]], options: tuple[str, ...]
) -> str | None:
    """Return the key of a network in the cache, a hash of its weights, attributes, calls, options,
    source files and versions; None where something in it cannot be pickled, such as an open file.

    The network is called once before: some networks write what they saw into their attributes, and
    would have another key then.
    """
    hasher = hashlib.sha256()
    buffer = io.BytesIO()
    try:
        with torch.no_grad():
            model(**calls[0])
        kinds = dict.fromkeys(kind for module in model.modules() for kind in type(module).__mro__)
        _StablePickler(buffer).dump((model, calls, [constants_of_class(kind) for kind in kinds]))
    except Exception:  # noqa: BLE001  (whatever the call, or an attribute that cannot be pickled, raises)
        return None
    hasher.update(buffer.getvalue())
    versions = torch.__version__, onnxruntime.__version__, onnx.__version__
    settings = (options, sys.version, torch.get_default_dtype(), *versions)
    hasher.update(repr(settings).encode())
    for source in code_and_versions(model):
        hasher.update(source)
    return hasher.hexdigest()


def source_files() -> set[Path]:
    """Return the Python files of `splitting` and `execution`, and those of all imported modules
    outside of installed packages and the standard library."""
    paths = [getattr(loaded, "__file__", None) or "" for loaded in list(sys.modules.values())]
    own_files = {path for package in PACKAGES for path in package.rglob("*.py")}
    return own_files | {
        Path(path)
        for path in paths
        if path.endswith(".py") and os.path.isabs(path) and not path.startswith(SITE_PATHS)
    }


def code_and_versions(model: torch.nn.Module) -> list[bytes]:
    """Return the texts of code that a key depends on besides the network, each as bytes.

    The first names the versions of the packages that define the model's modules. The others are the
    contents of the Python files of `splitting` and `execution` and of all imported modules outside
    of installed packages and the standard library, in the order of their paths.
    """
    files = source_files()
    packages = {
        kind.__module__.partition(".")[0]
        for module in model.modules()
        for kind in type(module).__mro__
    }
    versions = sorted(
        f"{package} {getattr(sys.modules.get(package), '__version__', '')}" for package in packages
    )
    return [
        repr(versions).encode(),
        *(path.read_bytes() for path in sorted(files) if path.is_file()),
    ]


def find_network(key: str) -> Path | None:
    """Return the directory of the network with this key in the cache, and mark it as used now; None
    where there is none."""
    root = cache_root()
    if root is None or not (root / key / "manifest.json").is_file():
        return None
    os.utime(root / key)
    return root / key


def store_network(key: str, directory: Path) -> None:
    """Copy a directory into the cache in place of an earlier copy, and delete the oldest networks
    beyond `MAX_NETWORKS`; without a cache, or where the copy cannot be written, nothing is
    copied."""
    root = cache_root()
    if root is None:
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as temporary:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(directory, Path(temporary) / key, ignore=ignore)
            shutil.rmtree(root / key, ignore_errors=True)
            os.replace(Path(temporary) / key, root / key)
        networks = (entry for entry in root.iterdir() if entry.is_dir())
        oldest = sorted(networks, key=lambda entry: entry.stat().st_mtime)
        for entry in oldest[:-MAX_NETWORKS]:
            shutil.rmtree(entry, ignore_errors=True)
    except OSError:
        return


def cache_root() -> Path | None:
    """Return the cache's directory of split networks; None where there is no cache."""
    root = cache_directory()
    return root / "split" if root is not None else None
