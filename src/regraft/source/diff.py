"""The new versions of files after a unified diff, made by `git apply` away from the working
tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path, PurePosixPath

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
    try:
        text = diff.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DiffError(f"cannot be read: {error}") from error
    names = [name for name in dict.fromkeys(_NEW_PATH.findall(text)) if name != "/dev/null"]
    if not names:
        raise DiffError("no file is changed by it: is it a unified diff?")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts:
                raise DiffError(f"{name} lies outside of the directory that it is applied to")
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if (root / name).is_file():  # else it is a new file
                shutil.copyfile(root / name, target)
        # no repository around it counts
        environment = {
            **os.environ,
            "GIT_CEILING_DIRECTORIES": str(Path(folder).parent),
        }
        command = [git, "apply", "--whitespace=nowarn", str(diff.resolve())]
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            reverse_result = subprocess.run(
                [*command, "--reverse", "--check"],
                cwd=folder,
                env=environment,
                capture_output=True,
                check=False,
            )
            if reverse_result.returncode == 0:
                raise DiffError("the files are changed already: apply it to the version before")
            raise DiffError(result.stderr.strip() or "git apply fails")
        changed = [name for name in names if name.endswith(".py") and (root / name).is_file()]
        return {
            root / name: Path(folder, name).read_bytes()
            for name in changed
            if Path(folder, name).is_file()
        }
