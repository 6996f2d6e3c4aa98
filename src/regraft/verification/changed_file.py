"""Write the changed version of a file into a folder in which links stand for the files and folders
beside the original."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from regraft.verification.readable_files import repository_of

_LEAST_PARTS = 3  # of a path, its folders and its name: messages show them
_MOST_PARTS = 12
# bytecode of the original would stand for the changed text where both are as long and as old
_UNLINKED = "__pycache__"


def write_changed(text: bytes, original: Path, folder: Path) -> Path:
    """Write the changed text of the file `original` below `folder`, in folders named as the last
    ones of the original's path, and return its path. Each of these folders, up to the original's
    repository, gets links to the entries of its counterpart: code reads files whose place it knows
    from `__file__`."""
    parts = original.parts[1:]  # without the root, which would win
    repository = repository_of(original)
    count = _LEAST_PARTS
    if repository is not None:
        count = min(max(count, len(parts) + 2 - len(repository.parts)), _MOST_PARTS)
    changed = folder.resolve().joinpath(*parts[-count:])
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_bytes(text)
    old_folder, new_folder = original, changed
    while new_folder.parent != folder.resolve():
        old_folder, new_folder = old_folder.parent, new_folder.parent
        _link_entries(old_folder, new_folder)
    return changed


def _link_entries(old_folder: Path, new_folder: Path) -> None:
    """Create in `new_folder` a link to each entry of `old_folder` but `__pycache__` and what has
    its name there already; stop where the system refuses."""
    with contextlib.suppress(OSError):  # folders of other users; systems without links
        for name in os.listdir(old_folder):
            if name != _UNLINKED and not os.path.lexists(new_folder / name):
                (new_folder / name).symlink_to(old_folder / name)
