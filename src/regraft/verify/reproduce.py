"""Write a difference as a script that runs without this package."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(".cache", "regraft", "reproducers")
_TEMPLATE = Path(__file__).with_name("reproducer_template.txt")
_DECODING = Path(__file__).parent / "child" / "checks" / "repeated_calls.py"


def write_reproducer(
    original: Path, changed: bytes, failure: Mapping[str, Any], reason: str
) -> str:
    """Store both versions, the failing inputs and a script below the current folder; return the
    script's path.

    The script exits with 1 where the versions differ. It needs torch and the packages that the file
    itself imports.
    """
    facts = {key: value for key, value in failure.items() if key != "data"}
    facts.update(reason=reason, file=str(original))
    text = json.dumps(facts, indent=1, sort_keys=True, default=str)
    original_text = original.read_bytes()
    inputs = base64.b64decode(failure.get("data", ""))
    key = hashlib.sha256(b"\0".join([original_text, changed, text.encode()])).hexdigest()[:16]
    folder = Path.cwd() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{key}.original.txt").write_bytes(original_text)
    (folder / f"{key}.changed.txt").write_bytes(changed)
    if inputs:
        (folder / f"{key}.pt").write_bytes(inputs)
    root, package = _root_and_package(original)
    script = _TEMPLATE.read_text(encoding="utf-8")
    facts_text = json.dumps(text)
    placeholders = {
        "@KEY@": key,
        "@ROOT@": str(root),
        "@PACKAGE@": package,
        "@FACTS@": facts_text,
        "@DECODING@": _decoding_source(),
    }
    for placeholder, value in placeholders.items():
        script = script.replace(placeholder, value)
    path = folder / f"{key}.py"
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(script, encoding="utf-8")
    os.replace(draft, path)
    return str(path)


def _decoding_source() -> str:
    """Return the source of the class that continues a model from its cache, and what follows it,
    without the imports before it."""
    text = _DECODING.read_text(encoding="utf-8")
    return text[text.index("class ") :].strip()


def _root_and_package(path: Path) -> tuple[Path, str]:
    """Return the folder to import a file's package from, and the dotted name of the package that
    the file is in ("" for none)."""
    parts: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)
