"""The options of a split, and the compilers that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regraft.splitting.compiling.compilers import (
    AUTO,
    Compiler,
    compiler_named,
    installed_compilers,
)
from regraft.splitting.compiling.engine_settings import EngineSettings
from regraft.splitting.emitting.artefact_protocol import Emitter
from regraft.splitting.emitting.emitters import EMITTERS


@dataclass(frozen=True)
class Options:
    """The options of a split that its result depends on; see `split`.

    artefact: a key of `EMITTERS`.
    """

    compiler: Compiler
    unseen: str
    artefact: str
    measure: bool
    settings: EngineSettings
    dynamic: tuple[str, ...]

    @property
    def emitter(self) -> Emitter:
        """Return the emitter of the artefact."""
        return EMITTERS[self.artefact]

    @property
    def in_words(self) -> tuple[str, ...]:
        """Return the options as text, equal in every process that splits with them."""
        compiler = self.compiler
        return (
            compiler.name,
            compiler.version,
            self.unseen,
            self.artefact,
            str(self.measure),
            str(self.settings),
            *self.dynamic,
        )


def check_options(
    compiler: str, unseen: str, single_file: bool, batched: bool, measure: bool
) -> None:
    """Raise ValueError for a wrong value of `unseen`, and for options that do not go together."""
    if unseen not in ("refuse", "raise"):
        raise ValueError(f"unseen is {unseen!r}; there are 'refuse' and 'raise'")
    if single_file and compiler not in ("onnxruntime", AUTO):
        raise ValueError("single files are for ONNX Runtime; leave the compiler out")
    if single_file and batched:
        raise ValueError("a single file takes one sample")
    if compiler == AUTO and not measure:
        raise ValueError('compiler="auto" takes the fastest one, so it has to measure')


def chosen_compilers(name: str, settings: Mapping[str, Any]) -> list[Compiler]:
    """Return the compiler of this name; for "auto" all that are installed and take the settings.

    Raises ValueError for an unknown name, and for a compiler that does not take one of the
    settings.
    """
    if name == AUTO:
        return [choice for choice in installed_compilers() if settings.keys() <= choice.settings]
    compiler = compiler_named(name)
    for setting in settings.keys() - compiler.settings:
        raise ValueError(f"the compiler {name} takes no {setting}; leave them out")
    return [compiler]
