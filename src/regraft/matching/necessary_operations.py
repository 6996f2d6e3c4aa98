"""The operations, calls and layers without which no match in a body can meet the conditions of a
rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from regraft.dsl.syntax import Predicate
from regraft.matching.condition_table import REQUIRED_CLASSES, REQUIRED_OPERATIONS
from regraft.matching.constants import operand_text
from regraft.matching.pattern import Pattern, variables
from regraft.structure.optable import table


def required_calls(pattern: Pattern, where: tuple[Predicate, ...]) -> Iterator[tuple[str, str]]:
    """Yield the operations that a body must have for the conditions `feeds` and `part_of`, on
    outputs of a pattern, to hold: `call` with the name of a function, or a canonical operation with
    "".
    """
    for predicate in where:
        if predicate.name in ("feeds", "part_of") and any(
            variable in pattern.producers for variable in variables(predicate.args[0])
        ):
            name = operand_text(predicate.args[1])
            op = table().canonical_op(name)
            yield ("call", name) if op is None else (op, "")


def required_classes(where: tuple[Predicate, ...]) -> tuple[str, ...]:
    """Return the kinds of layers of the model's own classes that the conditions need."""
    return _look_up(REQUIRED_CLASSES, where)


def required_operations(where: tuple[Predicate, ...]) -> tuple[str, ...]:
    """Return the operations that a body must contain for the conditions to hold."""
    return _look_up(REQUIRED_OPERATIONS, where)


def _look_up(
    requirements: Mapping[str, tuple[str, ...]], where: tuple[Predicate, ...]
) -> tuple[str, ...]:
    """Return the entries of `requirements` for the names of the conditions, each entry once, in
    order."""
    names = (name for predicate in where for name in requirements.get(predicate.name, ()))
    return tuple(dict.fromkeys(names))
