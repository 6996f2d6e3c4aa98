"""The search for the configuration file of a path."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from regraft.configuration.reading import OWN_NAME, SHARED_NAME, read
from regraft.configuration.settings import Settings


def settings_for(path: Path) -> Settings:
    """Return the settings for a file or folder: those of the nearest configuration file in its
    folder or above, else the defaults.

    Raise ConfigurationError for a configuration file that is wrong.
    """
    return _settings_in(_folder_of(path), {})


def group_by_settings(paths: Iterable[Path]) -> list[tuple[Settings, list[Path]]]:
    """Return the paths by their settings, in order; each configuration file is read once."""
    known_settings: dict[Path, Settings] = {}
    groups: dict[Path | None, tuple[Settings, list[Path]]] = {}
    for path in paths:
        settings = _settings_in(_folder_of(path), known_settings)
        groups.setdefault(settings.path, (settings, []))[1].append(path)
    return list(groups.values())


def _folder_of(path: Path) -> Path:
    """Return the folder, by its absolute path, whose settings hold for a path."""
    absolute = Path(os.path.abspath(path))  # with symbolic links, as the user names it
    return absolute if absolute.is_dir() else absolute.parent


def _settings_in(folder: Path, known_settings: dict[Path, Settings]) -> Settings:
    """Return the settings for the files of a folder, and add them to `known_settings`."""
    if folder not in known_settings:
        known_settings[folder] = _read_settings(folder, known_settings)
    return known_settings[folder]


def _read_settings(folder: Path, known_settings: dict[Path, Settings]) -> Settings:
    for name in (OWN_NAME, SHARED_NAME):
        file = folder / name
        settings = read(file) if _is_there(file) else None
        if settings is not None:
            return settings
    return Settings() if folder.parent == folder else _settings_in(folder.parent, known_settings)


def _is_there(file: Path) -> bool:
    """Return whether a file exists; a link to nowhere does, and reading it is an error."""
    return os.path.isfile(file) or os.path.islink(file)
