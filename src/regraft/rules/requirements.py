"""Which packages that rules need are missing from this environment; nothing is imported to find out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from packaging.version import InvalidVersion, Version

from regraft.dsl.syntax import Need

# Packages that the index does not have: it has something else under the same name.
_ELSEWHERE = {"apex": "apex @ git+https://github.com/NVIDIA/apex"}


def requirement(need: Need) -> str:
    """A need as installers take it: `liger-kernel>=0.8`."""
    if need.package in _ELSEWHERE:
        return _ELSEWHERE[need.package]
    return f"{need.package}>={need.version}" if need.version else need.package


def missing(needs: Iterable[Need]) -> tuple[str, ...]:
    """Requirements that this environment does not meet.

    An environment without PyTorch is one for scanning only: there PyTorch is not missing, one that is too old is.
    """
    return tuple(requirement(need) for need in needs if not _met(need))


@cache
def _met(need: Need) -> bool:
    try:
        return Version(version(need.package)) >= Version(need.version or "0")
    except PackageNotFoundError:
        return need.package == "torch"
    except InvalidVersion:  # of a build by hand: nothing says that it is too old
        return True
