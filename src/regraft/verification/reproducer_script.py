"""Write a script that shows a difference between two versions and runs without this package."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regraft.source.qualified_names import root_and_package

FOLDER = Path(".cache", "regraft", "reproducers")
_TEMPLATE = Path(__file__).with_name("reproducer_template.txt")
_CHILD = Path(__file__).parent / "child"
# files whose source the script contains from a line on, by placeholder
_SHARED = {
    "@ALTERATIONS@": (_CHILD / "parameter_alterations.py", "ZERO"),
    "@FLAGS@": (_CHILD / "drivers" / "module_flags.py", "def build_with_flags("),
    "@LAYERS@": (_CHILD / "drivers" / "layer_replacement.py", "SHORTER"),
    "@MODULES@": (_CHILD / "missing_modules.py", "MOST_MODULES"),
    "@PACKAGES@": (_CHILD / "package_stand_ins.py", "LEFT_OUT"),
    "@NETWORKS@": (_CHILD / "drivers" / "stand_in_network.py", "class "),
    "@DECODING@": (_CHILD / "checks" / "repeated_calls.py", "class "),
}


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
    root, package = root_and_package(original)
    script = _TEMPLATE.read_text(encoding="utf-8")
    facts_text = json.dumps(text)
    placeholders = {
        "@KEY@": key,
        "@ROOT@": str(root),
        "@PACKAGE@": package,
        "@FACTS@": facts_text,
        **{name: _source_from(*place) for name, place in _SHARED.items()},
    }
    for placeholder, value in placeholders.items():
        script = script.replace(placeholder, value)
    path = folder / f"{key}.py"
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(script, encoding="utf-8")
    os.replace(draft, path)
    return str(path)


def _source_from(path: Path, first_words: str) -> str:
    """Return the source of a file from the first line that begins with some words to its end."""
    text = path.read_text(encoding="utf-8")
    return text[text.index(f"\n{first_words}") :].strip()
