"""The compilers of regions, behind one protocol. Each is an optional dependency, imported when it
is asked for."""

from regraft.splitting.compiling.compilers.named import NAMES, compiler_named
from regraft.splitting.compiling.compilers.protocol import Compiler

__all__ = ["NAMES", "Compiler", "compiler_named"]
