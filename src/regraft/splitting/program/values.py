"""Values while a network is specialised: each carries what it holds in the example that is
followed."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import torch

ValueT = TypeVar("ValueT", bound="ValueBase")
_CONTAINERS = frozenset({list, dict, set})
NO_TWIN: Any = object()  # the second world holds what the first does


@dataclass(frozen=True, slots=True)
class ValueBase:
    """The part that the values of all kinds share. Every kind has an example, which is the value in
    the call that is followed, and an expression `code` that gives it in the residual program.

    partial: only some of the paths here assign the value.
    """

    partial: bool = field(default=False, kw_only=True)

    @property
    def twin(self) -> Any:
        """Return the value in the example with larger sizes (example_with_larger_sizes.py).

        NO_TWIN where both examples have the same value.
        """
        return NO_TWIN

    @property
    def fields(self) -> dict[Any, ast.expr]:
        """Return the elements of a tuple written in place, or the fields of a record; empty for
        anything else."""
        return {}

    def with_code(self: ValueT, code: ast.expr) -> ValueT:
        """Return a copy of the value whose expression is `code`."""
        return replace(self, code=code)  # type: ignore[call-arg]  # all kinds but EitherValue

    def with_name(self: ValueT, key: str) -> ValueT:
        """Return a copy of the value whose expression is the name `key`."""
        return self.with_code(ast.Name(key, ast.Load()))

    def with_constant(self: ValueT, constant: bool) -> ValueT:
        """Return the value with or without the note that no input decides it; a kind that has no
        such note as it is."""
        return self

    def drop_constants(self: ValueT) -> ValueT:
        """Return the value without the note that no input decides it; a kind that has no such note
        as it is."""
        return self.with_constant(False)


@dataclass(frozen=True, slots=True)
class StaticValue(ValueBase):
    """A value that is known now, whatever the input.

    code: the expression for it. truth: it is the truth of what may be a tensor in the original
    (`a and b`).
    """

    example: Any
    code: ast.expr
    truth: bool = field(default=False, kw_only=True)

    @property
    def second_example(self) -> Any:
        """Return the value in the second world."""
        return self.example


@dataclass(frozen=True, slots=True)
class VaryingValue(ValueBase):
    """The part of values that inputs may decide.

    example: the value in the example that is followed. code: the expression for it. twin: its
    value in the second world (example_with_larger_sizes.py).
    """

    example: Any
    code: ast.expr
    twin: Any = NO_TWIN

    @property
    def second_example(self) -> Any:
        """Return the value in the second world."""
        return self.example if self.twin is NO_TWIN else self.twin


@dataclass(frozen=True, slots=True)
class HostValue(VaryingValue):
    """A Python value that the host, the residual program's Python code, computes at run time.

    constant: no input decides it, here. among: the constants of which it is one, if these are known
    (possible_constants.py). truth: it is the truth of what may be a tensor in the original (`a and
    b`).
    """

    constant: bool = field(default=False, kw_only=True)
    among: tuple[Any, ...] | None = field(default=None, kw_only=True)
    truth: bool = field(default=False, kw_only=True)

    @property
    def fields(self) -> dict[Any, ast.expr]:
        """Return the elements of a tuple written in place; empty for anything else."""
        return dict(enumerate(self.code.elts)) if isinstance(self.code, ast.Tuple) else {}

    def with_fields(self, codes: list[ast.expr]) -> HostValue:
        """Return the tuple with other expressions for its elements."""
        return replace(self, code=ast.Tuple(codes, ast.Load()))

    def with_constant(self, constant: bool) -> HostValue:
        """Return the value with or without the note that no input decides it."""
        return replace(self, constant=constant)

    def drop_constants(self) -> HostValue:
        """Return the value without the notes that no input decides it (`constant`) and which
        constants it may be (`among`)."""
        return replace(self, constant=False, among=None)


@dataclass(frozen=True, slots=True)
class TensorValue(VaryingValue):
    """A tensor, or several, that a region, a compiled part of the network, computes at run time.

    constant: no input decides it, here.
    """

    constant: bool = field(default=False, kw_only=True)

    def with_constant(self, constant: bool) -> TensorValue:
        """Return the value with or without the note that no input decides it."""
        return replace(self, constant=constant)


@dataclass(frozen=True, slots=True)
class RecordValue(VaryingValue):
    """An object with named fields, known field by field.

    code: the call of its class, with a keyword for each field.
    """

    code: ast.Call

    @property
    def fields(self) -> dict[Any, ast.expr]:
        """Return the expressions of the fields, by name."""
        return {keyword.arg: keyword.value for keyword in self.code.keywords}

    def with_code(self, code: ast.expr) -> RecordValue:
        """Return the record with another construction of it."""
        assert isinstance(code, ast.Call)
        return replace(self, code=code)

    def with_fields(self, codes: list[ast.expr]) -> RecordValue:
        """Return the record with other expressions for its fields."""
        keywords = [ast.keyword(key, code) for key, code in zip(self.fields, codes, strict=True)]
        return replace(self, code=ast.Call(self.code.func, [], keywords))


@dataclass(frozen=True, slots=True)
class EitherValue(ValueBase):
    """A value that is one constant on some paths, and on the others a tensor; where the constant is
    None, the host may also compute the value of the other paths.

    alternative: the value where it is not the constant. instead: the constant.
    """

    alternative: HostValue | TensorValue
    instead: Any

    @property
    def example(self) -> Any:
        """Return the example of the alternative."""
        return self.alternative.example

    @property
    def code(self) -> ast.expr:
        """Return the expression for the value, whichever it is."""
        return self.alternative.code

    @property
    def twin(self) -> Any:
        """Return the alternative in the second world; NO_TWIN where that is the example."""
        return self.alternative.twin

    @property
    def second_example(self) -> Any:
        """Return the alternative in the second world."""
        return self.alternative.second_example

    def with_code(self, code: ast.expr) -> EitherValue:
        """Return the value with another expression for it."""
        return replace(self, alternative=self.alternative.with_code(code))

    def with_constant(self, constant: bool) -> EitherValue:
        """Return the value with or without the note that no input decides the alternative."""
        return replace(self, alternative=self.alternative.with_constant(constant))

    def drop_constants(self) -> EitherValue:
        """Return the value with the notes `constant` and `among` dropped from its alternative; the
        constant `instead` stays."""
        return replace(self, alternative=self.alternative.drop_constants())


@dataclass(frozen=True, slots=True)
class LostValue(ValueBase):
    """The value of a name that nothing may read, because its type differs between the paths
    here, or for another reason, which messages give after the name.

    objects: the modules, functions or None of which the name holds one; a statement that reads the
    name is specialised for each (object_choices.py). position: the variable of the host that holds
    which. Without objects nothing can read the name.
    """

    code: ast.expr
    reason: str = "has different types or shapes on the paths that lead here"
    objects: tuple[StaticValue, ...] = ()
    position: str = ""

    @property
    def example(self) -> Any:
        """Return None: there is no example."""
        return None

    @property
    def second_example(self) -> Any:
        """Return None: there is no example."""
        return None

    def drop_constants(self) -> LostValue:
        """Return the value without the objects that it may be."""
        return replace(self, objects=())


ComputedValue: TypeAlias = HostValue | TensorValue
Value: TypeAlias = StaticValue | HostValue | TensorValue | RecordValue | EitherValue | LostValue
Names: TypeAlias = dict[str, Value]


def make_value(example: Any, code: ast.expr, twin: Any = NO_TWIN) -> ComputedValue:
    """Return a value that has a name: regions compute tensors, the host everything else."""
    value_class = TensorValue if isinstance(example, torch.Tensor) else HostValue
    return value_class(example, code, twin)


def convert_to_host(value: StaticValue | ComputedValue) -> HostValue:
    """Return a value as a HostValue with the same example, expression and notes."""
    if isinstance(value, HostValue):
        return value
    return HostValue(
        value.example,
        value.code,
        value.twin,
        constant=isinstance(value, TensorValue) and value.constant,
        truth=isinstance(value, StaticValue) and value.truth,
        partial=value.partial,
    )


def fork(names: Names, memo: dict[int, Any] | None = None) -> Names:
    """Return a copy of the names in which the lists, dictionaries and sets of host values are
    copies, so that one branch's changes stay out of the other's; a container that two names hold is
    copied once.

    memo: gets the copies, by the ids of the containers that were copied.
    """
    memo = {} if memo is None else memo

    def copy_container(value: Any) -> Any:
        """Return a copy of a list, dict or set, with copies of the lists and dicts in it; any other
        value as it is, also a tuple that holds lists."""
        if type(value) not in _CONTAINERS:
            return value
        if id(value) not in memo:
            memo[id(value)] = container = type(value)()
            if isinstance(value, set):
                container.update(value)
            elif isinstance(value, list):
                is_flat = _CONTAINERS.isdisjoint(map(type, value))
                container.extend(value if is_flat else map(copy_container, value))
            else:
                container.update((key, copy_container(element)) for key, element in value.items())
        return memo[id(value)]

    return {
        name: replace(value, example=copy_container(value.example), twin=copy_container(value.twin))
        if isinstance(value, HostValue)
        else value
        for name, value in names.items()
    }
