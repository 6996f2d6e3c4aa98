"""The one reader of configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regraft.configuration.settings import KEYS, Settings
from regraft.source.similar_names import suggest
from regraft.source.text import SourceError
from regraft.source.toml_library import tomllib

OWN_NAME = "regraft.toml"
SHARED_NAME = "pyproject.toml"
_PLACE = re.compile(r" ?\(at line (\d+), column (\d+)\)")


class ConfigurationError(ValueError):
    """The errors of a configuration file, each with its place."""

    def __init__(self, errors: Iterable[SourceError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(error.message for error in self.errors))


def read(path: Path) -> Settings | None:
    """Return the settings of a configuration file; None for a `pyproject.toml` that has none.

    Raise ConfigurationError for a file that cannot be read, an unknown key or a value of the wrong
    type.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _failure(path, 0, 0, f"cannot be read: {error.strerror or error}") from error
    is_shared = path.name == SHARED_NAME
    if is_shared and b"regraft" not in data:
        return None
    text, document = _parse(path, data)
    if not is_shared:
        return _settings(path, document, text, "")
    tools = document.get("tool")
    if not isinstance(tools, dict) or "regraft" not in tools:
        return None
    table = tools["regraft"]
    if not isinstance(table, dict):
        raise _failure(path, 0, 0, "tool.regraft has to be a table: [tool.regraft]")
    return _settings(path, table, text, "tool.regraft")


def _parse(path: Path, data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text and the document of the bytes of a TOML file; raise ConfigurationError where
    they are none."""
    try:
        text = data.decode("utf-8-sig")  # some editors write a byte order mark
        return text, tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise _failure(path, 0, 0, f"is not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise _failure(path, 0, 0, "is nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place else (0, 0)
        raise _failure(path, line, column, f"is not TOML: {_PLACE.sub('', str(error))}") from error


def _settings(path: Path, table: Mapping[str, object], text: str, header: str) -> Settings:
    """Return the settings of a table; raise ConfigurationError with all its errors."""
    values: dict[str, Any] = {}
    errors: list[SourceError] = []
    lines = {key: _line_of(key, text, header) for key in table}
    for key, value in table.items():
        accept = KEYS.get(key)
        if accept is None:
            errors.append(SourceError(str(path), lines[key], 0, _unknown_key(key)))
            continue
        try:
            values[key.replace("-", "_")] = accept(value, path)
        except ValueError as error:
            message = f"`{key}` has to be {error}; it is {value!r}"
            errors.append(SourceError(str(path), lines[key], 0, message))
    if errors:
        raise ConfigurationError(errors)
    return Settings(path=path, lines=lines, **values)


def _unknown_key(key: str) -> str:
    """Return the message about a key that does not exist, with the nearest one that does."""
    if key == "tool":
        return f"unknown key `tool`; in {OWN_NAME} the keys stand without [tool.regraft]"
    keys = f"the keys are {', '.join(KEYS)}"
    return f"unknown key `{key}`{suggest(key.replace('_', '-'), KEYS, form='`{}`', otherwise=keys)}"


def _line_of(key: str, text: str, header: str) -> int:
    """Return the line (1-based) that states a key of a table; 0 where it is not found.

    `tomllib` keeps no places, so this looks for the text of a key, or for the header of a table
    below it.
    """
    names = rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')"
    prefix = rf"{re.escape(header)}\s*\.\s*" if header else ""
    statement = re.compile(rf"\s*{names}\s*[=.]")
    subtable = re.compile(rf"\s*\[\s*{prefix}{names}\s*[\].]")
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if subtable.match(line) or (current == header and statement.match(line)):
            return number
        if opened := re.match(r"\s*\[\s*([^\]]*?)\s*\]", line):
            current = re.sub(r"\s*\.\s*", ".", opened[1])
    return 0


def _failure(path: Path, line: int, column: int, message: str) -> ConfigurationError:
    return ConfigurationError([SourceError(str(path), line, column, message)])
