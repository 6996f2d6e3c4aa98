"""Questions for symbolic sizes, with the answers that earlier specialisations of a network got.

Specialisations on several example calls ask much the same. Two questions are equal where all is
equal that their answers follow from; what the examples hold is not, nor are their open sizes.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.splitting.program.statements import read_names
from regraft.splitting.program.values import HostValue, Names, StaticValue, TensorValue, Value

Shape = tuple[int | None, ...]  # None for a size that depends on others
Question = tuple[Hashable, ...]

MAX_DEPTH = 30  # definitions of definitions that are run

# types of constants that have the same text where they are equal
_CONSTANTS = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)
# types of objects that have the same sizes and give the same sizes as long as a network is split
_LASTING = (
    torch.nn.Module,
    torch.Tensor,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
)


@dataclass(frozen=True)
class Definition:
    """How a name got its tensor: the code that was run, and what the names in it held.

    example: the tensor; the definition holds while the name has this one.
    """

    example: torch.Tensor
    code: ast.expr
    operands: Names


@dataclass
class Questions:
    """What was asked after the same earlier questions, with the answers.

    objects: those that stand in the questions by their ids, so that no other gets these.
    """

    answers: dict[Question, Answer] = field(default_factory=dict)
    objects: list[Any] = field(default_factory=list)


@dataclass
class Answer:
    """The answer to a question.

    shapes: None where they cannot be found without data, for the reason `reason`. may_raise:
    whether the code raises for some sizes; no later question follows this one then. following: the
    questions that do.
    """

    shapes: list[Shape] | None
    may_raise: bool
    reason: str = ""
    following: Questions = field(default_factory=Questions)


class Describer:
    """Writes down what answers depend on.

    numbers: those of the examples since the first of the questions that follow each other, by
    their ids; the examples are kept. objects: those of which a question holds the id.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, tuple[int, Any]] = {}
        self.objects: list[Any] = []

    def describe(
        self, code: ast.expr, names: Names, definitions: dict[str, Definition], scope: Any
    ) -> Question:
        """Return all that the answer for code depends on, besides the questions before it: the code
        with what its names hold, their definitions with what the names in these hold, and so on.

        scope: the objects that other names in the code stand for.
        """
        parts: list[Hashable] = []
        depths: dict[tuple[str, int], int] = {}  # the least at which a definition is described

        def add_code(code: ast.expr, names: Names, depth: int) -> None:
            """Describe code whose names hold these values."""
            parts.append(ast.dump(code))
            for key in sorted(read_names(code)):
                parts.append(key)
                if key in names:
                    add_value(key, names[key], depth)
                else:
                    parts.append(self._identify(scope.get(key)))

        def add_value(key: str, value: Value, depth: int) -> None:
            """Describe what a name holds, and how it got it."""
            parts.append(type(value).__name__)
            if isinstance(value, StaticValue):
                parts.append(self._identify(value.example))
            elif isinstance(value, HostValue):
                is_plain = type(value.example) in (bool, float)
                number = repr(value.example) if is_plain else ""
                parts.append((type(value.example), value.constant, number))
            elif isinstance(value, TensorValue):
                parts.append(self._describe_tensors(value.example, value.second_example))
                definition = definitions.get(key)
                if definition is None or definition.example is not value.example:
                    return
                place = key, id(value.example)
                if depth < depths.get(place, MAX_DEPTH):
                    depths[place] = depth
                    add_code(definition.code, definition.operands, depth + 1)

        add_code(code, names, 0)
        return tuple(parts)

    def _describe_tensors(self, example: Any, second_example: Any) -> Hashable:
        """Return a description of the tensors in an example, which tells equal ones: which tensor
        it is, its type, and its sizes, with None for those that are open."""
        if type(example) is tuple and type(second_example) is tuple:
            return tuple(map(self._describe_tensors, example, second_example)), len(example)
        if not isinstance(example, torch.Tensor) or not isinstance(second_example, torch.Tensor):
            return type(example), type(second_example)
        number, _ = self.numbers.setdefault(id(example), (len(self.numbers), example))
        if example.ndim != second_example.ndim:
            return number, example.dtype, tuple(example.shape), tuple(second_example.shape)
        pairs = zip(example.shape, second_example.shape, strict=True)
        sizes = tuple(size if size == other else None for size, other in pairs)
        return number, example.dtype, sizes

    def _identify(self, value: Any) -> Hashable:
        """Return what tells a value from others: the text of a constant, the id of an object of
        which nothing changes that answers follow from; else what is equal to nothing."""
        if type(value) in _CONSTANTS:
            return type(value), repr(value)
        if type(value) is tuple:
            return tuple(map(self._identify, value))
        self.objects.append(value)
        return id(value) if isinstance(value, _LASTING) else object()
