"""Place the changed version of a file where it has the neighbours of the original."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from regraft.verification.readable import repository_of

_LEAST_PARTS = 3  # of a path, its folders and its name: messages show them
_MOST_PARTS = 12
# bytecode of the original would stand for the changed text where both are as long and as old
_UNLINKED = "__pycache__"


def write_changed(text: bytes, original: Path, folder: Path) -> Path:
    """Write the changed text of the file `original` below `folder`, and return its path.

    Folders up to the original's repository are there, too, with links to all that is in them
    beside: code reads files whose place it knows from `__file__`.
    """
    parts = original.parts[1:]  # without the root, which would win
    repository = repository_of(original)
    count = _LEAST_PARTS
    if repository is not None:
        count = min(max(count, len(parts) + 2 - len(repository.parts)), _MOST_PARTS)
    changed = folder.resolve().joinpath(*parts[-count:])
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_bytes(text)
    place, twin = original, changed
    while twin.parent != folder.resolve():
        place, twin = place.parent, twin.parent
        _link_entries(place, twin)
    return changed


def _link_entries(place: Path, twin: Path) -> None:
    """Link the files and folders in `place` from the folder `twin`, but for those that it has."""
    with contextlib.suppress(OSError):  # folders of other users; systems without links
        for name in os.listdir(place):
            if name != _UNLINKED and not os.path.lexists(twin / name):
                (twin / name).symlink_to(place / name)
