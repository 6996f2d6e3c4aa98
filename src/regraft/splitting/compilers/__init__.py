"""The compilers of regions, behind one protocol. Each is an optional dependency, imported when it
is asked for."""

from regraft.splitting.compilers.named import NAMES, compiler_named
from regraft.splitting.compilers.protocol import Compiler

__all__ = ["NAMES", "Compiler", "compiler_named"]
