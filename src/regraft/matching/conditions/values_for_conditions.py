"""The values that the conditions of a rule read, and their names in reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from regraft.dsl.syntax import Operand, Var
from regraft.matching.constants import operand_text
from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Structure, Value

Arguments = tuple[Operand, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The values of a match's variables that conditions are about, and the structure and file that
    hold the values."""

    bindings: Mapping[str, Value]
    structure: Structure
    module: Module

    def value(self, operand: Operand) -> Value | None:
        """Return the value of a variable; None for another operand and for a variable that is not
        bound."""
        return self.bindings.get(operand.name) if isinstance(operand, Var) else None


def variable_text(operand: Operand) -> str:
    """Return a variable with its `$`, another operand as in messages, for reasons."""
    return f"${operand.name}" if isinstance(operand, Var) else operand_text(operand)
