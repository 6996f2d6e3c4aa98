"""The compilers of regions, behind one protocol. Each is an optional dependency, imported when it
is asked for."""

from regraft.splitting.compiling.compilers.compilers_by_name import (
    AUTO,
    NAMES,
    compiler_named,
    installed_compilers,
)
from regraft.splitting.compiling.compilers.protocol import Compiler

__all__ = ["AUTO", "NAMES", "Compiler", "compiler_named", "installed_compilers"]
