"""Verdicts of files that were verified before: an interrupted run over many files goes on where it stopped.

The key is everything that a verdict depends on: both texts, the driver, the effort, what is to be kept, Regraft's own
source, the versions of Python, of PyTorch, of the libraries of kernels and of the package that the file belongs to,
and whether Triton interprets.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

from regraft.source.cache_key import checksum, own_key
from regraft.source.names import package_of
from regraft.source.text import write_whole
from regraft.verify import Verdict, to_json, verify
from regraft.verify.types import Terms

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


def verified(
    path: Path,
    changed: bytes,
    driver: str | None = None,
    time_limit: float = 300.0,
    python: str = sys.executable,
    root: Path | None = None,
    terms: Terms = Terms(),
) -> tuple[Verdict, ...]:
    """As `verify`, from the cache in `root` where the same was verified before; raises VerifyError."""
    entry = _entry(path, changed, driver, python, root, terms) if root is not None else None
    known = _load(entry, str(path)) if entry is not None else None
    if known is not None:
        return known
    found = verify(
        path, changed, driver=driver, time_limit=time_limit, python=python, effort=terms.effort,
        contract=terms.contract, keep=terms.keep,
    )  # fmt: skip
    if entry is not None and not any("time limit" in one.reason or "did not finish" in one.reason for one in found):
        _store(entry, found)
    return found


def _entry(
    path: Path, changed: bytes, driver: str | None, python: str, root: Path, terms: Terms
) -> Path | None:
    key = own_key()
    try:
        texts = [path.read_bytes(), changed, str(driver).encode(), repr(terms).encode()]
        file = (driver or "").rpartition(":")[0]
        texts += [Path(file).read_bytes()] if file.endswith(".py") else []
    except OSError:
        return None  # verifying will say why
    package = package_of(path)
    texts.append(_versions(python, (*_LIBRARIES, package.partition(".")[0])).encode())
    texts += [os.environ.get(name, "").encode() for name in _SETTINGS]
    for part in (*texts, str(path.resolve()).encode()):
        key.update(f"\0{len(part)}\0".encode())
        key.update(part)
    name = key.hexdigest()
    return root / name[:2] / f"{name[2:]}.verdicts"


@functools.cache
def _versions(python: str, packages: tuple[str, ...]) -> str:
    """Of an interpreter and of packages that it has; "" for one that does not start, as verifying will say."""
    try:
        asked = subprocess.run([python, "-c", _ASK, *packages], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return asked.stdout


_ASK = """
import importlib.metadata, sys
print(sys.version)
for name in sys.argv[1:]:
    print(name, *(one.version for one in importlib.metadata.distributions(name=name)) if name else ())
"""


def _load(entry: Path, file: str) -> tuple[Verdict, ...] | None:
    try:
        head, _, content = entry.read_bytes().partition(b"\n")
    except OSError:
        return None
    if head != checksum(content):
        return None
    found = tuple(
        Verdict(file, one["class"], tuple(one["lines"]), one["status"], one["reason"], one["evidence"])
        for one in json.loads(content)["verdicts"]
    )
    scripts = (one.evidence.get("reproducer") for one in found)
    return found if all(script is None or Path(str(script)).exists() for script in scripts) else None


def _store(entry: Path, found: tuple[Verdict, ...]) -> None:
    content = json.dumps(to_json(found)).encode()
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_whole(entry, checksum(content) + b"\n" + content, 0o600)
    except OSError:
        return  # a directory that cannot be written is left alone, as for scans
