"""Write a difference down as a script that runs without this package."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regraft.verify.fewest import fewest

FOLDER = Path(".cache", "regraft", "reproducers")
_TEMPLATE = Path(__file__).with_name("reproducer_template.txt")


def reproduce(
    original: Path, changed: bytes, failure: Mapping[str, Any], reason: str, python: str, seconds: float
) -> tuple[str, tuple[int, ...]]:
    """A script that shows a difference with the fewest patches, and their lines if these are not all.

    python: the interpreter that tries which of them are enough; seconds: for all of these runs.
    """
    end = time.monotonic() + seconds

    def differs(version: bytes) -> bool:
        with tempfile.TemporaryDirectory(prefix="regraft-") as folder:
            script = write_reproducer(original, version, failure, reason, Path(folder))
            left = end - time.monotonic()
            if left <= 0:
                return False
            try:
                ran = subprocess.run([python, script], capture_output=True, timeout=left, check=False)
            except subprocess.TimeoutExpired:
                return False
            return ran.returncode == 1 and b"Traceback" not in ran.stderr

    version, lines = fewest(original.read_bytes(), changed, differs)
    return write_reproducer(original, version, failure, reason, Path.cwd() / FOLDER), lines


def write_reproducer(original: Path, changed: bytes, failure: Mapping[str, Any], reason: str, folder: Path) -> str:
    """Store both versions, the failing inputs and a script in a folder; return the script's path.

    The script exits with 1 where the versions differ. It needs torch and what the file itself imports.
    """
    facts = {key: value for key, value in failure.items() if key != "data"}
    facts.update(reason=reason, file=str(original))
    text = json.dumps(facts, indent=1, sort_keys=True, default=str)
    before = original.read_bytes()
    data = base64.b64decode(failure.get("data", ""))
    key = hashlib.sha256(b"\0".join([before, changed, text.encode()])).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{key}.original.txt").write_bytes(before)
    (folder / f"{key}.changed.txt").write_bytes(changed)
    if data:
        (folder / f"{key}.pt").write_bytes(data)
    root, package = _package(original)
    script = _TEMPLATE.read_text(encoding="utf-8")
    facts_text = json.dumps(text)
    for mark, value in (("@KEY@", key), ("@ROOT@", str(root)), ("@PACKAGE@", package), ("@FACTS@", facts_text)):
        script = script.replace(mark, value)
    path = folder / f"{key}.py"
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(script, encoding="utf-8")
    os.replace(draft, path)
    return str(path)


def _package(path: Path) -> tuple[Path, str]:
    parts: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)
