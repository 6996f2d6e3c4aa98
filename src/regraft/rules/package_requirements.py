"""The requirements of rules on packages, and those that this environment lacks; no package is
imported to find out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache

from packaging.version import InvalidVersion, Version

from regraft.dsl.syntax import Need

# Requirements of packages that the index does not have: it has other packages under the same names.
_URL_REQUIREMENTS = {"apex": "apex @ git+https://github.com/NVIDIA/apex"}


def requirement(need: Need) -> str:
    """Return a need in the notation of installers: `liger-kernel>=0.8`."""
    if need.package in _URL_REQUIREMENTS:
        return _URL_REQUIREMENTS[need.package]
    return f"{need.package}>={need.version}" if need.version else need.package


def missing_requirements(needs: Iterable[Need]) -> tuple[str, ...]:
    """Return the requirements that this environment does not meet.

    An environment without PyTorch is one for scanning only: PyTorch is not missing there, but one
    that is too old is.
    """
    return tuple(requirement(need) for need in needs if not _is_met(need))


@cache
def _is_met(need: Need) -> bool:
    """Return whether the installed version of a package is high enough."""
    version = installed_version(need.package)
    if version is None:
        return need.package == "torch"
    try:
        return Version(version) >= Version(need.version or "0")
    except InvalidVersion:  # the version of a build by hand, which nothing shows to be too old
        return True


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None where it is not installed.

    The name of the folder with its metadata says so. Where no folder has the package's name,
    `importlib.metadata` is asked, whose import takes as long as the scan of a small file.
    """
    for folder in sys.path:
        for name in _metadata_names(folder):
            stem, ending = os.path.splitext(name)
            version = stem.removeprefix(f"{package}-")
            if ending == ".dist-info" and version != stem and version[:1].isdigit():
                return version
            if ending == ".egg-info" and stem.startswith(package):
                return _version_by_metadata(package)
    return _version_by_metadata(package)


def _metadata_names(folder: str) -> list[str]:
    """Return the names of folders and files with metadata of packages in a folder of the path."""
    try:
        names = os.listdir(folder or ".")
    except OSError:  # not a folder, or gone
        return []
    return [name for name in names if name.endswith((".dist-info", ".egg-info"))]


def _version_by_metadata(package: str) -> str | None:
    """Return the version of a package as its metadata state it; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
