"""Write a difference down as a script that runs without this package."""

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
_DECODING = Path(__file__).parent / "child" / "checks" / "decoding.py"


def write_reproducer(original: Path, changed: bytes, failure: Mapping[str, Any], reason: str) -> str:
    """Store both versions, the failing inputs and a script below the current folder; return the script's path.

    The script exits with 1 where the versions differ. It needs torch and what the file itself imports.
    """
    facts = {key: value for key, value in failure.items() if key != "data"}
    facts.update(reason=reason, file=str(original))
    text = json.dumps(facts, indent=1, sort_keys=True, default=str)
    before = original.read_bytes()
    data = base64.b64decode(failure.get("data", ""))
    key = hashlib.sha256(b"\0".join([before, changed, text.encode()])).hexdigest()[:16]
    folder = Path.cwd() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{key}.original.txt").write_bytes(before)
    (folder / f"{key}.changed.txt").write_bytes(changed)
    if data:
        (folder / f"{key}.pt").write_bytes(data)
    root, package = _package(original)
    script = _TEMPLATE.read_text(encoding="utf-8")
    facts_text = json.dumps(text)
    marks = {"@KEY@": key, "@ROOT@": str(root), "@PACKAGE@": package, "@FACTS@": facts_text, "@DECODING@": _decoding()}
    for mark, value in marks.items():
        script = script.replace(mark, value)
    path = folder / f"{key}.py"
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(script, encoding="utf-8")
    os.replace(draft, path)
    return str(path)


def _decoding() -> str:
    """The source of the class that continues a model from its cache."""
    text = _DECODING.read_text(encoding="utf-8")
    return text[text.index("class ") :].strip()


def _package(path: Path) -> tuple[Path, str]:
    parts: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)
