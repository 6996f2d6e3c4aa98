"""The requirements of rules on packages, and those that this environment lacks; no package is
imported to find out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

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
    try:
        return Version(version(need.package)) >= Version(need.version or "0")
    except PackageNotFoundError:
        return need.package == "torch"
    except InvalidVersion:  # the version of a build by hand, which nothing shows to be too old
        return True
