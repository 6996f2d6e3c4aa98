"""Add to the error of code under test which restriction of its sandbox it probably comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from regraft.verification.child_environment import is_kept_back
from regraft.verification.containment import Containment

_KEY_ERROR = re.compile(r"KeyError: ['\"](\w+)['\"]")
_MISSING_FILE = re.compile(r"(?:FileNotFoundError|OSError): .*?['\"](/[^'\"]*)['\"]")
_NETWORK_ERRORS = re.compile(
    "Network is unreachable|no internet connection|name resolution|Connection refused"
    "|Name or service not known"
)
_READ_VARIABLE = re.compile(rb"(?:environ(?:\.get\(|\[)|getenv\()\s*['\"](\w+)['\"]")
# of a file that does not import; a module that is missing is no file that is hidden
_IMPORT_ERROR = re.compile(
    r"the original does not import: "
    r"(?!(?:ImportError|ModuleNotFoundError|SyntaxError|IndentationError|NameError)\b)"
)
_NO_MEMORY = re.compile("MemoryError|can't allocate memory")
_NO_OPERATOR = re.compile(r"operator (\w+)::\w+ does not exist")


def with_hint(
    reason: str,
    containment: Containment,
    memory_limit: int | None,
    *,
    notes: Sequence[str] = (),
    source: bytes = b"",
    absent: Sequence[str] = (),
) -> str:
    """Return `reason`, the text of an error, followed by a hint in brackets where a restriction of
    the sandbox probably caused it; else `reason` alone. The hint comes from the reason itself, else
    from errors in the `notes`, else from variables of the environment that the text `source` reads
    and does not get, else, where the file does not import, from a file that is here and was
    `absent` where the code under test tried to open it."""
    hints = (_hint(text, containment, memory_limit) for text in (reason, *notes))
    hint = next(filter(None, hints), "") or _hint_of_variables(kept_back_names(source, containment))
    if not hint and containment.uses_namespaces and _IMPORT_ERROR.match(reason):
        hidden = next(filter(os.path.exists, absent), None)
        hint = f"verification hides {hidden}: --sandbox off shows it" if hidden else ""
    return f"{reason} ({hint})" if hint else reason


def kept_back_names(source: bytes, containment: Containment) -> tuple[str, ...]:
    """Return the variables of the environment that a source text reads, that are set here, and that
    code under test does not get."""
    names = (match[1].decode() for match in _READ_VARIABLE.finditer(source))
    return tuple(
        name
        for name in dict.fromkeys(names)
        if is_kept_back(name, os.environ, containment.passed_names)
    )


def _hint_of_variables(names: Sequence[str]) -> str:
    """Return the sentence that verification keeps these variables back and which option passes
    them; "" for no names."""
    if not names:
        return ""
    subject = "variable" if len(names) == 1 else "variables"
    options = " ".join(f"--pass-env {name}" for name in names)
    verb = "lets it through" if len(names) == 1 else "lets them through"
    return f"verification keeps the environment {subject} {', '.join(names)} back: {options} {verb}"


def _hint(reason: str, containment: Containment, memory_limit: int | None) -> str:
    """Return what caused the error in a text: a variable kept back, the limit of memory, a package
    whose compiled part was not loaded, read-only files, no network, or a hidden file; "" where it
    is none of these."""
    if (match := _KEY_ERROR.search(reason)) and is_kept_back(
        match[1], os.environ, containment.passed_names
    ):
        return _hint_of_variables([match[1]])
    if _NO_MEMORY.search(reason) and memory_limit is not None:
        return f"verification limits the address space to {memory_limit / 1024**3:.0f} GiB"
    if match := _NO_OPERATOR.search(reason):
        return f"the installed {match[1]} does not fit the installed torch: install one for it"
    if not containment.uses_namespaces:
        return ""
    if "Read-only file system" in reason:
        return "verification lets no files be written: --sandbox off does"
    if _NETWORK_ERRORS.search(reason):
        return "verification has no network: --sandbox off has"
    if (match := _MISSING_FILE.search(reason)) and os.path.exists(match[1]):
        return "verification hides this file: --sandbox off shows it"
    return ""
