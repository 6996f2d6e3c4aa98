"""Store verdicts in files by a hash of all that they depend on: an interrupted run over many files
goes on at the file where it stopped.

The key covers what is known before a run: both texts, the driver, the effort, the losses that are
not allowed, Regraft's own source, the versions of Python, of PyTorch, of the libraries of kernels
and of the package that the file belongs to, whether Triton interprets, and the containment. What
the code under test read, modules and data, is known afterwards: verdicts are stored with the state
of these files, and count while that is the same.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from regraft.source.cache_key import entry_content, own_key, write_entry
from regraft.source.qualified_names import package_of
from regraft.verification import Verdict, to_json, verify
from regraft.verification.containment import Containment
from regraft.verification.read_file_states import Reads, are_as_they_were
from regraft.verification.types import Terms

_LIBRARIES = (
    "torch",
    "transformers",
    "triton",
    "liger-kernel",
    "xformers",
    "flash-attn",
    "apex",
    "transformer-engine",
)
_SETTINGS = ("TRITON_INTERPRET", "REGRAFT_INTERPRET_ONE_IN")


def verify_with_cache(
    path: Path,
    changed: bytes,
    driver: str | None = None,
    time_limit: float = 300.0,
    python: str = sys.executable,
    root: Path | None = None,
    terms: Terms = Terms(),
    watch: Callable[[str], None] | None = None,
    containment: Containment = Containment(),
    on_start: Callable[[], None] | None = None,
) -> tuple[Verdict, ...]:
    """Return the verdicts of `verify` from the cache in the folder `root` if it has them, else run
    `verify` and store its verdicts, unless its run was cut short or a version could not be
    imported, as where a package is not installed yet. Without `root` nothing is cached.
    `watch`, `containment` and `on_start` are those of `verify`. Raises VerifyError as `verify`
    does."""
    cache_path = (
        _cache_path(path, changed, driver, python, root, terms, containment)
        if root is not None
        else None
    )
    cached = _load(cache_path, str(path)) if cache_path is not None else None
    if cached is not None:
        return cached
    reads: list[Reads] = []
    verdicts = verify(
        path,
        changed,
        driver=driver,
        time_limit=time_limit,
        python=python,
        effort=terms.effort,
        contract=terms.contract,
        keep=terms.keep,
        by_rules=terms.by_rules,
        model_classes=terms.model_classes,
        confirmed=terms.confirmed,
        watch=watch,
        containment=containment,
        on_start=on_start,
        on_end=reads.append,
    )
    is_final = not any(verdict.is_cut_short or verdict.lacks_import for verdict in verdicts)
    if cache_path is not None and reads and is_final:
        _store(cache_path, verdicts, reads[0])
    return verdicts


def _cache_path(
    path: Path,
    changed: bytes,
    driver: str | None,
    python: str,
    root: Path,
    terms: Terms,
    containment: Containment,
) -> Path | None:
    """Return the path of the file for the verdicts of these arguments, which need not exist; None
    where the model's file or the driver's cannot be read."""
    key = own_key()
    try:
        texts = [path.read_bytes(), changed, str(driver).encode(), repr(terms).encode()]
        driver_file = (driver or "").rpartition(":")[0]
        texts += [Path(driver_file).read_bytes()] if driver_file.endswith(".py") else []
    except OSError:
        return None  # `verify` reports the reason
    package = package_of(path)
    texts.append(_versions(python, (*_LIBRARIES, package.partition(".")[0])).encode())
    texts += [os.environ.get(name, "").encode() for name in _SETTINGS]
    texts.append(containment.key.encode())
    for part in (*texts, str(path.resolve()).encode()):
        key.update(f"\0{len(part)}\0".encode())
        key.update(part)
    name = key.hexdigest()
    return root / name[:2] / f"{name[2:]}.verdicts"


@functools.cache
def _versions(python: str, packages: tuple[str, ...]) -> str:
    """Return what an interpreter prints of its own version and those of its `packages`; "" for an
    interpreter that does not start, which `verify` reports. Answers are cached."""
    try:
        process = subprocess.run(
            [python, "-c", _ASK, *packages], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return process.stdout


_ASK = """
import sys
sys.path[:] = filter(None, sys.path)  # not the working folder, which has code under test
import importlib.metadata
print(sys.version)
for name in sys.argv[1:]:
    print(name, *(one.version for one in importlib.metadata.distributions(name=name)) if name else ())
"""  # noqa: E501


def _load(cache_path: Path, file: str) -> tuple[Verdict, ...] | None:
    """Return the verdicts of a cache file for `file`; None where it is absent or damaged, a
    reproducer is gone, or a file that the run read has changed."""
    try:
        content = entry_content(cache_path.read_bytes())
    except OSError:
        return None
    if content is None:
        return None
    entry = json.loads(content)
    if not are_as_they_were(entry["files"]):
        return None
    verdicts = tuple(
        Verdict(
            file,
            verdict["class"],
            tuple(verdict["lines"]),
            verdict["status"],
            verdict["reason"],
            verdict["evidence"],
        )
        for verdict in entry["verdicts"]
    )
    scripts = (verdict.evidence.get("reproducer") for verdict in verdicts)
    return (
        verdicts
        if all(script is None or Path(str(script)).exists() for script in scripts)
        else None
    )


def _store(cache_path: Path, verdicts: tuple[Verdict, ...], reads: Reads) -> None:
    """Write verdicts, with the state of the files that their run read, to the cache; does nothing
    where the directory cannot be written."""
    content = json.dumps({**to_json(verdicts), "files": reads.states()}).encode()
    try:
        write_entry(cache_path, content)
    except OSError:
        # verdicts are not cached in a directory that cannot be written; the cache of scans does the
        # same
        return
