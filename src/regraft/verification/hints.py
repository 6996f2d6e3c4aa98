"""Say which part of the containment an error of code under test comes from."""

from __future__ import annotations

import os
import re

from regraft.verification.containment import Containment
from regraft.verification.environment import is_kept_back

_KEY_ERROR = re.compile(r"KeyError: ['\"](\w+)['\"]")
_MISSING_FILE = re.compile(r"(?:FileNotFoundError|OSError): .*?['\"](/[^'\"]*)['\"]")
_NETWORK_ERRORS = re.compile(
    "Network is unreachable|name resolution|Connection refused|Name or service not known"
)
_NO_MEMORY = re.compile("MemoryError|can't allocate memory")


def with_hint(reason: str, containment: Containment, memory_limit: int | None) -> str:
    """Return a reason, with what the containment has to do with its error in brackets."""
    hint = _hint(reason, containment, memory_limit)
    return f"{reason} ({hint})" if hint else reason


def _hint(reason: str, containment: Containment, memory_limit: int | None) -> str:
    """Return what the containment has to do with the error in a reason; "" where nothing."""
    if (match := _KEY_ERROR.search(reason)) and is_kept_back(
        match[1], os.environ, containment.passed_names
    ):
        return (
            f"verification keeps the environment variable {match[1]} back: --pass-env {match[1]}"
            " lets it through"
        )
    if _NO_MEMORY.search(reason) and memory_limit is not None:
        return f"verification limits the address space to {memory_limit / 1024**3:.0f} GiB"
    if not containment.uses_namespaces:
        return ""
    if "Read-only file system" in reason:
        return "verification lets no files be written: --sandbox off does"
    if _NETWORK_ERRORS.search(reason):
        return "verification has no network: --sandbox off has"
    if (match := _MISSING_FILE.search(reason)) and os.path.exists(match[1]):
        return "verification hides this file: --sandbox off shows it"
    return ""
