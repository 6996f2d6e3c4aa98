"""The environment that the mutants run in: torch and the pinned packages, under
`.cache/mutants/`."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

STORE = (Path(__file__).parent.parent.parent / ".cache" / "mutants").resolve()
TORCH = "torch==2.13.0"
PACKAGES = {
    "transformers": "transformers==5.23.0",
    "timm": "timm==1.0.31",
    "diffusers": "diffusers==0.42.1",
}
REQUIRED = (
    PACKAGES["transformers"],
    PACKAGES["diffusers"],
    "numpy==2.2.6",
    "scipy==1.15.3",
    "pillow==12.0.0",
)
# timm asks for a build of torchvision that would choose another torch. It imports these names,
# which no model calls.
_ANY_NAME = """def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
"""
_STAND_IN = {
    "__init__.py": "",
    "models/__init__.py": "",
    "ops/__init__.py": "",
    "ops/misc.py": "import torch\n\n\nclass FrozenBatchNorm2d(torch.nn.Module):\n    pass\n",
    "datasets.py": _ANY_NAME,
    "transforms/__init__.py": _ANY_NAME,
    "transforms/functional.py": (
        """import enum

InterpolationMode = enum.Enum(
    "InterpolationMode",
    {name.upper().replace("-", "_"): name
     for name in ("nearest", "nearest-exact", "bilinear", "bicubic", "box", "hamming", "lanczos")},
)
"""
    ),
}
_CODE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def interpreter(package: str) -> Path:
    """Return the interpreter of a package's environment; raises CalledProcessError where an
    installation fails.

    timm has an environment of its own on top of the other, whose transformers must not see timm's
    torchvision.
    """
    base = _environment("environment", (TORCH, *REQUIRED), _install)
    if package != "timm":
        return base
    return _environment(
        "environment-timm", (str(base), PACKAGES["timm"], *_STAND_IN.values()), _install_timm
    )


def _environment(
    name: str, wanted: tuple[str, ...], install: Callable[[Path, tuple[str, ...]], None]
) -> Path:
    folder = STORE / name
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not (installed.is_file() and installed.read_text() == "\n".join(wanted)):
        print(f"making {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        install(python, wanted)
        installed.write_text("\n".join(wanted))
    return python


def _install(python: Path, wanted: tuple[str, ...]) -> None:
    torch, *others = wanted
    _pip(python, torch)  # first and pinned, so that nothing else chooses a build of it
    _pip(python, *others)


def _install_timm(python: Path, wanted: tuple[str, ...]) -> None:
    base, timm, *_ = wanted
    packages = site_packages(python)
    (packages / "base.pth").write_text(f"{site_packages(Path(base))}\n")
    _pip(python, "--no-deps", timm)
    for name, text in _STAND_IN.items():
        path = packages / "torchvision" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _pip(python: Path, *arguments: str) -> None:
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    subprocess.run(command, check=True)


def site_packages(python: Path) -> Path:
    """Return the folder that an interpreter's packages are in."""
    process = subprocess.run(
        [str(python), "-c", _CODE], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(process.stdout.strip())
