"""The new versions of files after a unified diff, made by `git apply` away from the working
tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from regraft.source.similar_names import suggest_path

_NEW_PATH = re.compile(r"^\+\+\+ (?:\"?b/)?([^\t\n\"]+)", re.MULTILINE)


class DiffError(Exception):
    """An error of a diff that gives no new versions."""


def is_diff(path: Path) -> bool:
    return path.suffix in (".diff", ".patch")


def new_versions(diff: Path, root: Path) -> dict[Path, bytes]:
    """Return the Python files below `root` that a diff changes, with their texts after it; nothing
    is written there.

    Raise DiffError where git or a file is missing, or where the diff does not fit the files.
    """
    git = shutil.which("git")
    if git is None:
        raise DiffError("a diff is applied with git, which is not installed")
    names = _named_files(diff)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        _copy_files(names, root, folder)
        _apply_diff(git, diff, folder)
        return {
            root / name: (folder / name).read_bytes()
            for name in names
            if name.endswith(".py") and (root / name).is_file() and (folder / name).is_file()
        }


def _named_files(diff: Path) -> list[str]:
    """Return the paths of the files that a diff changes or adds; raise DiffError for none, or for
    a diff that cannot be read."""
    try:
        text = diff.read_text("utf-8")
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}{suggest_path(diff)}"
        raise DiffError(reason) from error
    except UnicodeDecodeError as error:
        raise DiffError(f"cannot be read: it is not UTF-8 ({error.reason})") from error
    names = [name for name in dict.fromkeys(_NEW_PATH.findall(text)) if name != "/dev/null"]
    if not names:
        raise DiffError("no file is changed by it: is it a unified diff?")
    return names


def _copy_files(names: Sequence[str], root: Path, folder: Path) -> None:
    """Copy those of the files that exist below `root` to their places below `folder`.

    Raise DiffError for a path that leads out of the root.
    """
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise DiffError(f"{name} lies outside of the directory that it is applied to")
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (root / name).is_file():  # else it is a new file
            shutil.copyfile(root / name, target)


def _apply_diff(git: str, diff: Path, folder: Path) -> None:
    """Apply a diff to the files below `folder`; raise DiffError where it does not fit."""
    # no repository around the folder counts
    environment = {
        **os.environ,
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "LC_ALL": "C",  # its messages are read
    }
    command = [git, "apply", "--whitespace=nowarn", str(diff.resolve())]
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if not result.returncode:
        return
    reverse_result = subprocess.run(
        [*command, "--reverse", "--check"],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
    )
    if reverse_result.returncode == 0:
        raise DiffError("the files are changed already: apply it to the version before")
    raise DiffError(_explain_failure(result.stderr))


def _explain_failure(message: str) -> str:
    """Return a sentence for what `git apply` says about a diff that it refuses."""
    if place := re.search(r"patch failed: (.+):(\d+)$", message, re.MULTILINE):
        file, line = place.groups()
        return (
            f"it does not fit {file}: the lines that it expects from line {line} on are not there;"
            " make it against the files as they are"
        )
    if missing := re.search(r"error: (.+): No such file or directory$", message, re.MULTILINE):
        return (
            f"it changes {missing[1]}, which does not exist: run this in the folder that the paths"
            " of the diff start from"
        )
    if existing := re.search(r"error: (.+): already exists", message):
        return f"it adds {existing[1]}, which exists already"
    if corrupt := re.search(r"corrupt patch at (?:.+:|line )(\d+)", message):
        return f"line {corrupt[1]} of it is no line of a diff: lines or their numbers are missing"
    first, *_ = message.strip().splitlines() or ["it gives no reason"]
    return f"git refuses it: {first.removeprefix('error: ')}"
