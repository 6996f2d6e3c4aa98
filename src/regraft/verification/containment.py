"""The settings of the sandbox in which code under test runs, and whether this system has one
(docs/proof.md)."""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from regraft.verification.resource_limits import Limits
from regraft.verification.types import VerifyError

SandboxMode = Literal["auto", "require", "off"]
_PROBE_SECONDS = 20.0
# imports two modules of this package without the packages around them, which take longer
_PROBE = """
import sys, types
place = sys.argv[1]
for name, folder in (("regraft", place), ("regraft.verification", place + "/verification")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from regraft.verification.namespaces import probe
probe()
"""
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Containment:
    """The containment of a verification.

    sandbox         "auto" uses namespaces where the system has them, "require" refuses to run
                    without, "off" never uses them
    passed_names    environment variables that the code under test gets besides the usual ones
    limits          what its processes may use together
    readable        files and folders that it may read wherever they lie
    """

    sandbox: SandboxMode = "auto"
    passed_names: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    readable: tuple[Path, ...] = ()

    @property
    def uses_namespaces(self) -> bool:
        """Whether code under test runs in namespaces of its own."""
        return self.sandbox != "off" and not namespaces_refusal()

    def check(self) -> None:
        """Raise VerifyError where the settings require a sandbox and this system has none."""
        if self.sandbox == "require" and (refusal := namespaces_refusal()):
            raise VerifyError(f"--sandbox require: there is no sandbox: {refusal}")

    @property
    def key(self) -> str:
        """The containment's part of a verdict's cache key, as text: what decides whether code under
        test works."""
        return f"{self.uses_namespaces} {sorted(self.passed_names)} {self.limits}"

    def notice(self, name: str) -> str:
        """Return the line that says that code of a file runs now, and how it is contained."""
        if self.uses_namespaces:
            how = "no network, files read-only: --sandbox off turns this off"
        elif self.sandbox == "off":
            how = "without a sandbox: it may use the network and write files"
        else:
            how = f"without a sandbox: {namespaces_refusal()}"
        return f"verification runs code of {name} ({how})"


@functools.cache
def namespaces_refusal() -> str:
    """Return why this system gives a process no namespaces of its own, "" where it does; a child
    process tries it, and the answer is cached."""
    if sys.platform != "linux":
        return f"{sys.platform} has no namespaces"
    try:
        probe = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROBE, str(_PACKAGE)],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"namespaces could not be tried: {error}"
    if probe.returncode == 0:
        return ""
    lines = probe.stderr.strip().splitlines()
    return lines[-1] if lines else f"namespaces fail with status {probe.returncode}"
