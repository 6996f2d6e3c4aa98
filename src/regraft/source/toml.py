"""The reader of TOML files: `tomllib`, or on Python 3.10 `tomli`, which has the same functions."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["tomllib"]
