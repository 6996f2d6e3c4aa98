"""The command `regraft config`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.command_settings import CONFIG, load_chosen, settings_of
from regraft.cli.shared_options import PATH, print_error, stop

if TYPE_CHECKING:
    from regraft.configuration import Settings

_UNSET = {
    "select": "the rules that need nothing but PyTorch and pay on the target",
    "python": "this interpreter",
    "baseline": "none",
    "line-length": "that of ruff or black in this project, else that of the file",
}


@click.command("config")
@click.argument("path", type=PATH, default=".")
@CONFIG
def config_command(path: Path, config: Path | None) -> None:
    """Print the settings that hold for PATH (default: the working directory), as TOML, and where
    each comes from.

    Exits with 2 when the configuration file has an error, or names a rule that does not exist.
    """
    if not path.exists():
        stop(f"{path}: no such file or directory, whose settings could be shown")
    ((settings, _),) = settings_of((path,), config, no_config=False)
    for line in _lines(settings):
        click.echo(line)
    _, problems = load_chosen(settings)
    for problem in problems:
        print_error(problem)
    if problems:
        sys.exit(2)


def _lines(settings: Settings) -> Iterator[str]:
    """Yield the lines of the settings in effect."""
    from regraft.configuration import KEYS

    if settings.path is None:
        yield "# no regraft.toml, and no pyproject.toml with [tool.regraft], here or above"
    else:
        yield f"# {settings.path}"
    for key in KEYS:
        value = _value_of(key, settings)
        if value is None:
            yield f"# {key}: {_UNSET[key]} (default)"
        else:
            yield f"{key} = {_as_toml(value)}  # {_origin(key, settings)}"


def _origin(key: str, settings: Settings) -> str:
    """Return the place that states a key, or the word `default`."""
    if settings.path is None or key not in settings.lines:
        return "default"
    line = settings.lines[key]
    return f"{settings.path.name}:{line}" if line else settings.path.name


def _value_of(key: str, settings: Settings) -> object:
    """Return the value of a key as the configuration file would state it; None where there is
    none."""
    value = getattr(settings, key.replace("-", "_"))
    if key == "exclude":
        return [pattern for patterns in value for pattern in patterns.patterns]
    return value


def _as_toml(value: object) -> str:
    """Return a value in TOML, on one line."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_as_toml(entry)}" for key, entry in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_as_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(os.fspath(value) if isinstance(value, Path) else value)
