"""The environment that the models run in: made under `.cache/` the first time, and when what it needs changes."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
ENVIRONMENT = HERE.parent.parent / ".cache" / "proof199" / "environment"
TORCH = "torch==2.13.0"
_INSTALLED = ENVIRONMENT / "installed.txt"
_CODE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def python() -> str:
    """The interpreter of the environment. Raises CalledProcessError where something cannot be installed."""
    found = ENVIRONMENT / "bin" / "python"
    wanted = f"{TORCH}\n{REQUIREMENTS.read_text()}"
    if not (_INSTALLED.is_file() and _INSTALLED.read_text() == wanted):
        print(f"making {ENVIRONMENT} ({', '.join(wanted.split())})", file=sys.stderr)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, TORCH], check=True)  # first and pinned, so that nothing else chooses a build of it
        subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
        _INSTALLED.write_text(wanted)
    return str(found)


def packages(interpreter: str) -> Path:
    """The folder that the environment's packages are in."""
    done = subprocess.run([interpreter, "-c", _CODE], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())
