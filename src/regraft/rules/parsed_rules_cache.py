"""Parsed rules in the user's cache directory: parsing the built-in rules takes longer than scanning
a file.

An entry is named by the texts of a rule and its page, and by Regraft's own source, which parses and
checks them; it is JSON, so that reading it runs no code. An entry that cannot be read is parsed
again; a directory that cannot be written is left alone.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from regraft.dsl import syntax
from regraft.dsl.syntax import RuleSyntax
from regraft.source.cache_key import cache_directory, entry_content, own_key, write_entry


def key_of(*texts: str) -> str:
    """Return the name of the entry for the names of a rule's pack and file, its text and that of
    its page."""
    key = own_key(of_scans=True)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        key.update(f"\0{len(data)}\0".encode())
        key.update(data)
    return key.hexdigest()


def load(key: str) -> RuleSyntax | None:
    """Return the rule of an entry; None where there is none, or its content is no rule."""
    entry = _path(key)
    if entry is None:
        return None
    try:
        content = entry_content(entry.read_bytes())
        rule = decode(content) if content is not None else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return rule if isinstance(rule, RuleSyntax) else None


def store(key: str, rule: RuleSyntax) -> None:
    """Write an entry, unless the cache cannot be written."""
    entry = _path(key)
    if entry is not None:
        content = json.dumps(encode(rule), separators=(",", ":")).encode()
        with contextlib.suppress(OSError):
            write_entry(entry, content)


def encode(value: Any) -> Any:
    """Return syntax as plain data: a dataclass as a dictionary from its name to the list of its
    fields, a tuple as a list."""
    if is_dataclass(value):
        values = [encode(getattr(value, field.name)) for field in fields(value)]
        return {type(value).__name__: values}
    return [encode(element) for element in value] if isinstance(value, tuple) else value


def decode(content: bytes) -> Any:
    """Return the syntax that `encode` was given, from the JSON text of its result."""
    return json.loads(content, object_hook=_syntax_of)


def _syntax_of(encoded: dict[str, list[Any]]) -> Any:
    """Return the syntax of a dictionary from its name to the list of its fields."""
    ((name, values),) = encoded.items()
    return getattr(syntax, name)(*map(_frozen, values))


def _frozen(value: Any) -> Any:
    """Return a list with all lists in it as tuples, and any other value as it is."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _path(key: str) -> Path | None:
    """Return the file of an entry; None where the user has no place for caches."""
    root = cache_directory()
    return root / "rules" / key[:2] / key[2:] if root is not None else None
