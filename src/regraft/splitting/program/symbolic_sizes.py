"""Sizes as symbols: what residual code gives for tensors without data whose open sizes are unknown.

A size of the result that is a number is that for every input. PyTorch's own shape functions say so;
no size is read from an example.
"""

from __future__ import annotations

import ast
import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from regraft.splitting.program.residual_expressions import tensors_in
from regraft.splitting.program.size_questions import (
    MAX_DEPTH,
    Answer,
    Definition,
    Describer,
    Questions,
    Shape,
)
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.values import HostValue, Names, StaticValue, TensorValue, Value


class Unknown(Exception):
    """Signals that the sizes of a result cannot be found without data."""


@dataclass
class SymbolicSizes:
    """Runs residual code on tensors without data.

    scope: returns the variables of the code, given those of the program. first_questions: those
    asked with new symbols, also in specialisations on other example calls. definitions: of names
    that hold tensors with open sizes.
    """

    scope: Callable[[dict[str, Any]], dict[str, Any]]
    first_questions: Questions = field(default_factory=Questions)
    definitions: dict[str, Definition] = field(default_factory=dict)
    # tensors without data, by the ids of the examples, which are kept
    stand_ins: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    mode: Any = None
    # the questions that follow those asked since the symbols are new
    questions: Questions = field(init=False)
    describer: Describer = field(default_factory=Describer)
    # the questions asked since then of which the answer was known, with the definitions
    postponed: list[tuple[ast.expr, Names, dict[str, Definition]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Set `questions`."""
        self.questions = self.first_questions

    def define(self, key: str, value: TensorValue, names: Names) -> None:
        """Note how the name `key` gets a tensor with open sizes. names: the values of names now."""
        operands = {other: names[other] for other in read_names(value.code) if other in names}
        self.definitions[key] = Definition(value.example, value.code, operands)

    def shapes(self, code: ast.expr, names: Names) -> tuple[list[Shape], bool]:
        """Return the shape of each tensor in what the code gives, with None for the sizes that
        depend on open ones, and whether the code raises for some of the open sizes: the shapes are
        those where it does not. Raises Unknown where PyTorch cannot tell it without data.

        The answer follows from this question and those since the symbols are new. Where all of them
        were asked before in this order, it is known, and nothing is run until another one is asked.
        """
        question = self.describer.describe(code, names, self.definitions, self.scope({}))
        answer = self.questions.answers.get(question)
        operands = {key: names[key] for key in read_names(code) if key in names}
        if answer is None:
            for postponed in self.postponed:
                self._answer(*postponed)
            self.postponed.clear()
            answer = self._answer(code, operands, self.definitions)
            self.questions.answers[question] = answer
            self.questions.objects.extend(self.describer.objects)
        else:
            self.postponed.append((code, operands, dict(self.definitions)))
        self.describer.objects.clear()
        self.questions = answer.following
        if answer.may_raise:  # what holds after this code need not hold on other paths
            self._renew()
        if answer.shapes is None:
            raise Unknown(answer.reason)
        return answer.shapes, answer.may_raise

    def _renew(self) -> None:
        """Drop the symbols, and what was asked and noted of them; the next use makes new ones."""
        self.mode = None
        self.stand_ins.clear()
        self.questions, self.describer = self.first_questions, Describer()
        self.postponed.clear()

    def _answer(self, code: ast.expr, names: Names, definitions: dict[str, Definition]) -> Answer:
        """Return the answer to a question, with these definitions, by running the code."""
        now, self.definitions = self.definitions, definitions
        try:
            for key, value in names.items():
                self._stand_in(key, value, 0)
            facts = self._facts()
            shapes, reason = self._try_run(code, names)
            return Answer(shapes, self._facts() != facts, reason)
        except Unknown as problem:
            return Answer(None, False, str(problem))
        finally:
            self.definitions = now

    def _try_run(self, code: ast.expr, names: Names) -> tuple[list[Shape] | None, str]:
        """Return the shapes of the tensors in what the code gives, or None and the reason why it
        cannot be run."""
        try:
            results = tensors_in([self._run(code, names, 0)])
        except Unknown as problem:
            return None, str(problem)
        return [tuple(map(_as_number, result.shape)) for result in results], ""

    def _facts(self) -> tuple[Any, ...]:
        """Return what is known of the symbols, to be compared."""
        environment = self._mode().shape_env
        asserted = sum(map(len, environment.deferred_runtime_asserts.values()))
        return len(environment.guards), asserted, dict(environment.replacements)

    def _run(self, code: ast.expr, names: Names, depth: int) -> Any:
        """Return what the code gives on tensors without data; raise Unknown for any error."""
        operands = {
            key: self._stand_in(key, names[key], depth) for key in read_names(code) if key in names
        }
        compiled = compile(ast.fix_missing_locations(ast.Expression(code)), "<sizes>", "eval")
        logger = logging.getLogger("torch._subclasses.fake_tensor")
        try:
            with (
                torch.no_grad(),
                mock.patch.object(logger, "disabled", True),
                _Padding(),
                self._mode(),
            ):
                return eval(compiled, {**self.scope(operands), **_FUNCTIONS, **operands})
        except Exception as problem:
            raise Unknown(str(problem)) from problem

    def _mode(self) -> Any:
        """Return the mode of tensors without data, the same in every call."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        if self.mode is None:
            environment = ShapeEnv(duck_shape=False, specialize_zero_one=False)
            self.mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
        return self.mode

    def _stand_in(self, key: str, value: Value, depth: int) -> Any:
        """Return what stands for a value: a tensor without data, a symbol for a whole number of the
        host, a constant as it is. Raises Unknown for other values of the host."""
        if isinstance(value, StaticValue):
            return value.example
        if isinstance(value, TensorValue):
            if isinstance(value.example, torch.Tensor):
                return self._tensor(key, value, depth)
            if type(value.example) is tuple:
                pairs = zip(value.example, value.second_example, strict=True)
                return tuple(
                    self._fresh_tensor(TensorValue(example, value.code, twin))
                    for example, twin in pairs
                )
        if isinstance(value, HostValue) and type(value.example) is int and not value.constant:
            return self._mode().shape_env.create_unbacked_symint()
        if isinstance(value, HostValue) and type(value.example) in (bool, float):
            return value.example
        raise Unknown(f"{key} is no tensor and no number")

    def _tensor(self, key: str, value: TensorValue, depth: int) -> torch.Tensor:
        """Return the tensor without data for one that a name holds: what its definition gives,
        where that is known; else one whose open sizes have new symbols."""
        example, stand_in = self.stand_ins.get(id(value.example), (None, None))
        if example is value.example and stand_in is not None and _has_open(stand_in, value):
            return stand_in
        definition = self.definitions.get(key)
        stand_in = None
        if definition is not None and definition.example is value.example and depth < MAX_DEPTH:
            try:
                stand_in = self._run(definition.code, definition.operands, depth + 1)
            except Unknown:
                stand_in = None
        is_right = isinstance(stand_in, torch.Tensor) and stand_in.ndim == value.example.ndim
        if not (is_right and _has_open(stand_in, value)):
            stand_in = self._fresh_tensor(value)
        self.stand_ins[id(value.example)] = value.example, stand_in
        return stand_in

    def _fresh_tensor(self, value: TensorValue) -> torch.Tensor:
        """Return a tensor without data of the value's sizes, with a new symbol for each that is
        open; raise Unknown for a value that is no single tensor."""
        if not isinstance(value.example, torch.Tensor):
            raise Unknown("tensors in a tuple in a tuple")
        mode, open_dims = self._mode(), open_dimensions(value)
        with mode:
            shape = [
                self._new_size() if dim in open_dims else size
                for dim, size in enumerate(value.example.shape)
            ]
            return torch.empty(shape, dtype=value.example.dtype)

    def _new_size(self) -> Any:
        """Return a symbol for a size."""
        from torch.utils._sympy.numbers import int_oo

        environment = self._mode().shape_env
        size = environment.create_unbacked_symint()
        environment.constrain_symbol_range(size.node.expr, 0, int_oo)
        return size


def _as_number(size: Any) -> int | None:
    """Return a size as a number; None where it depends on symbols."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_number else None


def _has_open(stand_in: torch.Tensor, value: TensorValue) -> bool:
    """Return whether each open size of a value depends on symbols in the tensor that stands for
    it."""
    return all(_as_number(stand_in.shape[dim]) is None for dim in open_dimensions(value))


class _Padding(TorchFunctionMode):  # type: ignore[misc]
    """Gives the result of padding with a constant by its sizes; torch 2.13 has none for symbols."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return a new tensor for `F.pad` with a constant; else what the function gives."""
        kwargs = kwargs or {}
        mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
        if func is not torch.nn.functional.pad or mode != "constant" or len(args) < 2:
            return func(*args, **kwargs)
        shape, pads = list(args[0].shape), list(args[1])
        for place in range(len(pads) // 2):
            dim = len(shape) - 1 - place
            shape[dim] = shape[dim] + pads[2 * place] + pads[2 * place + 1]
        return args[0].new_empty(shape)


def _length(value: Any) -> Any:
    """Return the first size of a tensor, the length of anything else."""
    return value.shape[0] if isinstance(value, torch.Tensor) else len(value)


# what stands for Python's functions, which would ask for the values of symbols
_FUNCTIONS: Mapping[str, Any] = {
    "min": lambda *numbers: _fold(torch.sym_min, numbers),
    "max": lambda *numbers: _fold(torch.sym_max, numbers),
    "len": _length,
}


def _fold(function: Callable[[Any, Any], Any], numbers: tuple[Any, ...]) -> Any:
    """Return a function of two numbers over all numbers, given one by one or as a sequence."""
    return functools.reduce(function, numbers if len(numbers) > 1 else numbers[0])
