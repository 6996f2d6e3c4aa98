"""The versions and the machine that a result belongs to."""

from __future__ import annotations

import importlib.metadata
import platform
from datetime import datetime, timezone

PACKAGES = ("torch", "triton", "liger-kernel", "transformers")


def version_of(package: str) -> str:
    """Return the installed version of a package, or "missing"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def print_versions() -> None:
    """Print the date, the versions of Python and of the packages, and the device."""
    import torch

    versions = ", ".join(
        f"{package} {torch.__version__ if package == 'torch' else version_of(package)}"
        for package in PACKAGES
    )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no device"
    date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    print(f"{date}; Python {platform.python_version()}, {versions}; {device}", flush=True)
