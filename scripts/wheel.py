"""Unpack a pinned wheel under `.cache/`, for its text: nothing of it is installed or imported.

python scripts/wheel.py transformers==4.34.0
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache" / "wheels"


def unpacked(requirement: str) -> Path:
    """Directory of the unpacked wheel; fetched from the package registry the first time."""
    target = CACHE / requirement.replace("==", "-")
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
            ]
            subprocess.run(
                [*command, "--only-binary=:all:", "--dest", directory, requirement], check=True
            )
            wheel = next(Path(directory).glob("*.whl"))
            part = Path(directory) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(part)
            part.rename(target)
    return target


if __name__ == "__main__":
    print(unpacked(sys.argv[1]))
