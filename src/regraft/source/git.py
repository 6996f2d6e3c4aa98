"""What a branch changes, as git says it, and the tree that it started from."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path


class GitError(Exception):
    """The reason why git cannot say what changed."""


@dataclass(frozen=True, slots=True)
class BranchChanges:
    """The Python files that differ from where a branch started, committed or not.

    top       the folder of the repository
    base      the commit where the branch started
    modified, added, deleted  paths below `top`, with slashes; what is not tracked does not count
    """

    top: Path
    base: str
    modified: tuple[str, ...]
    added: tuple[str, ...]
    deleted: tuple[str, ...]


def changes_since(reference: str, path: Path) -> BranchChanges:
    """Return what the working tree changes at or below a path, against the last common commit of
    `reference` and HEAD. Raise GitError."""
    folder = path if path.is_dir() else path.parent
    top = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    base = _git(top, "merge-base", "--end-of-options", reference, "HEAD").strip()
    listing = _git(
        top,
        *("diff", "--name-status", "--no-renames", "-z", base, "--"),
        os.path.abspath(path),
    )
    words = listing.split("\0")
    names: dict[str, list[str]] = {"M": [], "A": [], "D": []}
    for status, name in zip(words[::2], words[1::2], strict=False):
        if name.endswith(".py") and status in names:
            names[status].append(name)
    return BranchChanges(top, base, tuple(names["M"]), tuple(names["A"]), tuple(names["D"]))


def write_tree(changes: BranchChanges, folder: Path) -> None:
    """Write the tree that a branch started from into a folder, which is emptied before. Raise
    GitError."""
    target = Path(os.path.abspath(folder))
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as index_folder:
        index = {"GIT_INDEX_FILE": os.path.join(index_folder, "index")}
        _git(changes.top, "read-tree", changes.base, variables=index)
        _git(changes.top, "checkout-index", "-a", f"--prefix={target}/", variables=index)


def _git(folder: Path, *arguments: str, variables: dict[str, str] | None = None) -> str:
    """Return the output of git; raise GitError with its message where it fails."""
    git = shutil.which("git")
    if git is None:
        raise GitError("git is not installed")
    result = subprocess.run(
        [git, *arguments],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        check=False,
    )
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(message[0] if message else f"git {arguments[0]} failed")
    return os.fsdecode(result.stdout)
