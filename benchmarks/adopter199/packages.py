"""The files of a pinned package that the benchmark scans, and why others are left out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from wheel import unpacked  # noqa: E402

PATTERNS = {"transformers": "transformers/models/*/modeling_*.py"}
OTHER_FRAMEWORKS = ("modeling_tf_", "modeling_flax_")


@dataclass(frozen=True, slots=True)
class Package:
    """A package's directory, the files to scan, and the files that are left out, each with its
    reason."""

    requirement: str
    directory: Path
    files: tuple[Path, ...]
    skipped: tuple[tuple[Path, str], ...]

    def label(self, path: Path | str) -> str:
        return Path(path).relative_to(self.directory).as_posix()


def fetch(requirement: str) -> Package:
    """The package, from the cache or the package registry: model files of transformers, every file
    of others."""
    directory = unpacked(requirement)
    return select(requirement, directory)


def select(requirement: str, directory: Path, under: str = ".") -> Package:
    """The files of a package on disk (`under` a folder); all of them are modules that mention
    torch."""
    files: list[Path] = []
    skipped: list[tuple[Path, str]] = []
    for path in sorted(
        directory.glob(PATTERNS.get(requirement.split("==", maxsplit=1)[0], f"{under}/**/*.py"))
    ):
        reason = _reason(path)
        if reason:
            skipped.append((path, reason))
        else:
            files.append(path)
    return Package(requirement, directory, tuple(files), tuple(skipped))


def _reason(path: Path) -> str:
    if path.name.startswith(OTHER_FRAMEWORKS):
        return "model of another framework"
    return "" if b"torch" in path.read_bytes() else "does not mention torch"
