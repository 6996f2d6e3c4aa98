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
    absolute = Path(os.path.abspath(path))
    folder = next(parent for parent in (absolute, *absolute.parents) if parent.is_dir())
    top = _top_of(folder)
    base = _common_commit(top, reference)
    listing = _git(
        top,
        *("diff", "--name-status", "--no-renames", "-z", base, "--"),
        str(absolute),
    )
    words = listing.split("\0")
    names: dict[str, list[str]] = {"M": [], "A": [], "D": []}
    for status, name in zip(words[::2], words[1::2], strict=False):
        if name.endswith(".py") and status in names:
            names[status].append(name)
    changes = BranchChanges(top, base, tuple(names["M"]), tuple(names["A"]), tuple(names["D"]))
    if not (os.path.lexists(absolute) or changes.modified or changes.added or changes.deleted):
        raise GitError(f"{path}: no such file or directory, now or where the branch started")
    return changes


def _top_of(folder: Path) -> Path:
    """Return the top folder of the repository around a folder; raise GitError for none."""
    try:
        return Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    except GitError as error:
        if "not a git repository" not in str(error):
            raise
        raise GitError(
            f"{folder} is in no git repository: name the two versions of a file instead"
            " (regraft verify ORIGINAL CHANGED)"
        ) from error


def _common_commit(top: Path, reference: str) -> str:
    """Return the last common commit of `reference` and HEAD; raise GitError where one of them is no
    commit, or where there is none."""
    commits: list[str] = []
    for name, remedy in (
        (reference, "`git branch --all` lists branches, `git fetch` gets those of a remote"),
        ("HEAD", "commit something first"),
    ):
        arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        try:
            commits.append(_git(top, *arguments).split()[-1])
        except GitError as error:
            raise GitError(f"no commit has the name {name}: {remedy}") from error
    try:
        return _git(top, "merge-base", *commits).strip()
    except GitError as error:
        raise GitError(
            "it has no commit in common with HEAD; a shallow clone lacks the older ones"
            " (git fetch --unshallow)"
        ) from error


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
    """Return the output of git; raise GitError with the command and its message where it
    fails."""
    git = shutil.which("git")
    if git is None:
        raise GitError("git is not installed")
    result = subprocess.run(
        [git, *arguments],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", **(variables or {})},
        capture_output=True,
        check=False,
    )
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(f"git {arguments[0]} fails{': ' if message else ''}{' '.join(message[:2])}")
    return os.fsdecode(result.stdout)
