"""The state of specialisation (names, steps), and the running of residual code in both worlds."""

from __future__ import annotations

import ast
import contextlib
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, TypeVar

import torch

from regraft.splitting.errors import ReadInside, Unrunnable, Unsplittable, refuse
from regraft.splitting.observing.probe import Observed, observe
from regraft.splitting.observing.scratch import Attribute
from regraft.splitting.program.codes import (
    WRAPPER_SUFFIX,
    access,
    assign,
    holds_tensor,
    is_read_number,
    method_call,
    name,
    storage_key,
    tensors_in,
)
from regraft.splitting.program.residual import HostStep, Step, TensorStep, reads
from regraft.splitting.program.values import (
    SAME,
    Names,
    Value,
    lists_in,
    literal,
    open_differing_sizes,
    open_dimensions,
    type_pattern,
)
from regraft.splitting.program.worlds import Longer
from regraft.splitting.specialising.lists import Lists

T = TypeVar("T")
OPERATION_FACTOR = 20  # times the operations on the example: the limit in the second world


class Frame:
    """A function being specialised: its file, its globals, its prefix for names, and its
    own names."""

    def __init__(self, path: str, scope: dict[str, Any], prefix: str) -> None:
        self.path, self.scope, self.prefix = path, scope, prefix
        self.own_names: set[str] = set()  # the function's own names
        self.first_parameter = ""  # its first parameter
        self.outer: Frame | None = None  # for a local function: the one that made it
        self.line = 0  # of the statement that is specialised
        self.may_repeat = (
            False  # a loop may run its statements again, where its names keep their values
        )


class NotRun(BaseException):
    """Signals that a local function was run instead of followed."""


@dataclass(frozen=True)
class LocalFunction:
    """A local function: its statements, and the call that made it, whose names it sees as they are
    when it runs."""

    definition: ast.FunctionDef
    frame: Frame


class Interpreter(Lists):
    """Holds the state of specialisation and runs residual code."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        # attributes of modules that are variables of a call
        self.scratch: Collection[Attribute] = ()
        # attributes assigned by code that was run, not followed
        self.stored_attributes: list[Attribute] = []
        self.allows_partial = (
            True  # whether a variable may be read that only some of the paths assign
        )
        self.loop_depth = 0  # enclosing loops with an unknown number of iterations
        # partial names that are read only where they were assigned
        self.guarded_names: set[str] = set()
        self.deleted_names: set[str] = set()  # names that a `del` took away on some path
        # functions that the network makes, by their stand-ins
        self.local_functions: dict[Any, LocalFunction] = {}
        self.paths = {
            id(module): path for path, module in model.named_modules(remove_duplicate=False)
        }
        self.globals: dict[str, Any] = {}
        self.frame = Frame("", {}, "")
        self.steps: list[Step] = []
        self.last_number = 0
        self.unread_names: set[str] = set()  # names that no statement of the source reads again
        self.inputs: list[torch.Tensor] = []
        self.variables: set[str] = set()  # the variables of forward itself
        self.size_names: set[str] = set()  # names of sizes that regions compute
        # the indices of modules that a side of a choice stands for
        self.chosen_indices: dict[int, Value] = {}
        self.varying_names: set[str] = set()  # names that a loop assigns whose length is not known
        # names that the source uses itself, with the prefixes of its functions
        self.reserved_names: set[str] = set()
        # numbers of source names that look like names made here
        self.taken_numbers: set[int] = set()
        # open dimensions of all tensors that a name ever holds
        self.open_by_name: dict[str, set[int]] = {}
        self.pending: list[list[Value] | None] = []  # by enclosing expression: values not used yet
        # by name and truth: a test that then has it, too
        self.implied_tests: dict[tuple[str, bool], ast.expr] = {}
        self.copied_from: dict[str, str] = {}  # the names whose "either" values names got
        self.first_operands: list[Value] = []  # of `and` and `or`: tested before the others run
        self.changed_names: set[str] = set()  # names that changed without an assignment to them
        self.fallible_operations = 0  # operations so far that may raise for other inputs
        self.in_place_changes = 0  # tensors changed in place so far
        # tensors of which a name holds one, by the path
        self.alias_groups: list[list[torch.Tensor]] = []

    def refuse(
        self, node: ast.AST, reason: str, kind: type[Unsplittable] = Unsplittable
    ) -> Unsplittable:
        return refuse(self.frame.path.removesuffix(WRAPPER_SUFFIX), node, reason, kind)

    def require_one_type(self, node: ast.AST, label: str, value: Value) -> Value:
        """Return the value that the source calls `label`; refuse it if the paths here disagree on
        its type."""
        if value.kind == "lost":
            raise self.refuse(
                node, f"{label} has different types or shapes on the paths that lead here"
            )
        return value

    def track_changes(self, run: Callable[[], T]) -> tuple[T, set[str]]:
        """Return the result of `run`, and the names that change in it without an assignment to them
        in the source."""
        outer_changes, self.changed_names = self.changed_names, set()
        result = run()
        changes, self.changed_names = self.changed_names, outer_changes | self.changed_names
        return result, changes

    @property
    def location(self) -> tuple[str, int]:
        """Return the file and the line of the statement that is specialised."""
        return self.frame.path, self.frame.line

    def fresh_name(self) -> str:
        """Return a new name that no statement of the source reads."""
        key = f"t{self.next_number()}"
        self.unread_names.add(key)
        return key

    def unused_name(self, variable: str) -> str:
        """Reserve a variable of the function's own, by a name that it does not use, and return the
        name."""
        while (
            variable in self.frame.own_names or self.frame.prefix + variable in self.reserved_names
        ):
            variable += "_"
        self.frame.own_names.add(variable)
        self.reserved_names.add(self.frame.prefix + variable)
        return variable

    def next_number(self) -> int:
        """Return the next number that makes no name of the source."""
        self.last_number += 1
        while self.last_number in self.taken_numbers:
            self.last_number += 1
        return self.last_number

    def reserve_names(self, definition: ast.AST, prefix: str) -> None:
        """Reserve the names of a function, so that names that are made here differ from them."""
        source_names = {
            node.id if isinstance(node, ast.Name) else node.arg
            for node in ast.walk(definition)
            if isinstance(node, (ast.Name, ast.arg))
        }
        self.reserved_names |= {prefix + identifier for identifier in source_names}
        self.taken_numbers |= {
            int(match[1])
            for match in map(re.compile(r"[tfods](\d+)(_|$)").match, source_names)
            if match
        }

    def static(self, example: Any, code: ast.expr | None = None) -> Value:
        """Return a value that is known now, whatever the input."""
        if code is None or literal(example) is not None:
            code = literal(example)
        return Value("static", example, code or self.alias_global(type(example).__name__, example))

    def alias_global(self, alias: str, value: Any) -> ast.expr:
        """Return the expression for an object that regions need from outside: a submodule's path,
        or a global."""
        if isinstance(value, torch.nn.Module) and id(value) in self.paths:
            return ast.parse(access(self.paths[id(value)]), mode="eval").body
        alias = f"g_{alias}"
        while self.globals.get(alias, value) is not value or alias in self.reserved_names:
            alias += "_"
        self.globals[alias] = value
        return name(alias)

    def bind_name(self, key: str, value: Value) -> Value:
        """Bind a name to a value, and return the value under this name."""
        if isinstance(value.example, torch.Tensor) and value.twin is not SAME:
            self.open_by_name.setdefault(key, set()).update(open_dimensions(value))
        # else from outside
        is_computed = not (isinstance(value.code, ast.Name) and value.code.id == key)
        can_be_constant = is_computed and value.kind == "tensor" and key not in self.varying_names
        constant = can_be_constant and (
            value.constant or all(map(self.is_constant, reads(value.code)))
        )
        self.names[key] = replace(value.with_name(key), constant=constant)
        return self.names[key]

    def is_constant(self, key: str) -> bool:
        """Return whether no input decides what a name holds."""
        if key in self.names:
            return self.names[key].kind == "static" or self.names[key].constant
        return key == "self" or key in self.globals

    def holds_local_function(self, example: Any) -> bool:
        """Return whether `example` is a function that the network makes, or holds one."""
        if isinstance(example, (tuple, list)):
            return any(map(self.holds_local_function, example))
        if isinstance(example, dict):
            return any(map(self.holds_local_function, example.values()))
        return isinstance(example, FunctionType) and example in self.local_functions

    @abstractmethod
    def holds_stand_in(self, example: Any) -> bool:
        """Return whether `example` is an object that forward makes, or holds one."""

    def is_constant_tensor(self, value: Value) -> bool:
        """Return whether a tensor holds the same for every input, sizes included."""
        return value.twin is SAME and (
            value.constant or all(map(self.is_constant, reads(value.code)))
        )

    def constant_tensors(self, code: ast.expr) -> list[torch.Tensor]:
        """Return the tensors that hold the same for every input, except those that a varying name
        holds, too.

        There are none if the code reads no name of such a tensor.
        """
        if not any(self.names[key].constant for key in reads(code) if key in self.names):
            return []
        values = self.names.values()
        varying_storages = {
            storage_key(tensor)
            for tensor in tensors_in([value.example for value in values if not value.constant])
        }
        constants = tensors_in([value.example for value in values if value.constant])
        return [tensor for tensor in constants if storage_key(tensor) not in varying_storages]

    def run(self, node: ast.AST, code: ast.expr) -> Value:
        """Run residual code on the example, and in the second world if it may differ there; return
        the value."""
        observation = self.run_in_world(node, code, None)
        operands = [self.names[key] for key in reads(code) if key in self.names]
        is_resized = bool(observation.shapes) or any(
            operand.twin is not SAME for operand in operands
        )
        has_numbers = any(
            operand.kind == "host" and isinstance(operand.example, int) for operand in operands
        )
        self.fallible_operations += observation.by_values or (
            observation.by_sizes and (is_resized or has_numbers)
        )
        twin = SAME
        if is_resized or isinstance(observation.result, (list, dict)):
            twin = self.run_in_world(
                node, code, observation.shapes, OPERATION_FACTOR * (observation.operations + 10)
            ).result
        if isinstance(observation.result, list):
            self.note_ragged(observation.result, [twin])
            if self.length_depends(code):
                self.ragged.update(
                    (id(inner_list), inner_list) for inner_list in lists_in(observation.result)
                )
        pairs = zip(tensors_in([observation.result]), tensors_in([twin]), strict=False)
        if twin is not SAME and any(
            tensor.ndim != second_tensor.ndim for tensor, second_tensor in pairs
        ):
            raise self.refuse(
                node, "sizes decide how many dimensions there are, which is not supported"
            )
        # a result of the host's numbers is as constant as they are
        is_constant = (
            observation.constant
            and twin is SAME
            and not any(operand.kind == "host" for operand in operands)
        )
        value = Value(
            "tensor" if holds_tensor(observation.result) else "host",
            observation.result,
            code,
            twin,
            constant=is_constant,
        )
        return self.open_sizes_by_numbers(node, value) if value.kind == "tensor" else value

    def open_sizes_by_numbers(self, node: ast.AST, value: Value) -> Value:
        """Return the value with the sizes open that a number decides which the host reads, such as
        `int(x)`."""
        numbers = [
            key
            for key in reads(value.code)
            if key in self.names and is_read_number(self.names[key])
        ]
        for change in (1, -1) if numbers else ():
            scope = self.scope({key: operand.example for key, operand in self.names.items()})
            scope.update((key, self.names[key].example + change) for key in numbers)
            try:
                with torch.no_grad():
                    other_example = eval(
                        compile(ast.fix_missing_locations(ast.Expression(value.code)), "", "eval"),
                        scope,
                    )
            except Exception:  # noqa: BLE001  (a number that does not fit, such as an index out of range)
                continue
            other_value = replace(value, example=other_example, twin=SAME)
            if type_pattern(value.example, value.example) == type_pattern(
                other_example, other_example
            ):
                continue
            widened = open_differing_sizes(value, other_value)
            if widened is None:
                raise self.refuse(
                    node, "a number that is read from a tensor decides the sizes of several results"
                )
            value = widened
        return value

    def depends_on_sizes(self, node: ast.AST, code: ast.expr) -> bool:
        """Return whether code takes another number of operations, or fails, where the sizes are
        others."""
        observation = self.run_in_world(node, code, None)
        operands = [self.names[key] for key in reads(code) if key in self.names]
        if not observation.shapes and all(operand.twin is SAME for operand in operands):
            return False
        try:
            second_observation = self.run_in_world(
                node, code, observation.shapes, OPERATION_FACTOR * (observation.operations + 10)
            )
        except Unsplittable:
            return True
        return second_observation.operations != observation.operations

    def run_in_world(
        self,
        node: ast.AST,
        code: ast.expr,
        shapes: tuple[torch.Size, ...] | None,
        operation_limit: float = math.inf,
    ) -> Observed:
        """Run residual code in one world; refuse what no static region can do.

        shapes: for the second world, the shapes that data decided in the first. operation_limit:
        the most operations.
        """
        is_second = shapes is not None
        if any(
            key in self.globals and self.holds_stand_in(self.globals[key]) for key in reads(code)
        ):
            raise self.refuse(
                node, "an object that forward makes goes into something that cannot be followed"
            )
        scope = self.scope(
            {
                key: value.second_example if is_second else value.example
                for key, value in self.names.items()
            }
        )
        compiled = compile(ast.fix_missing_locations(ast.Expression(code)), self.frame.path, "eval")
        stored_count = len(self.stored_attributes)
        try:
            with Longer(shapes) if shapes is not None else contextlib.nullcontext():
                observation = observe(
                    lambda: eval(compiled, scope), self.constant_tensors(code), operation_limit
                )
        except (Exception, NotRun) as problem:
            failure = (
                "cannot be run with other sizes" if is_second else "cannot be run on the example"
            )
            reason = f"{failure}: {type(problem).__name__}: {problem}"
            raise self.refuse(node, reason, Unsplittable if is_second else Unrunnable) from problem
        if len(self.stored_attributes) > stored_count:
            raise self.refuse(
                node, "an attribute of a module is assigned in a call that cannot be followed"
            )
        if observation.random:
            raise self.refuse(
                node, "random numbers are drawn here; every run of the network would differ"
            )
        if observation.changed:
            raise self.refuse(node, "a tensor that is used elsewhere is changed in place")
        if observation.reads and holds_tensor(observation.result):
            raise self.refuse(
                node,
                "a value of a tensor is read inside a call that cannot be followed",
                ReadInside,
            )
        return observation

    def scope(self, examples: dict[str, Any]) -> dict[str, Any]:
        """Return what residual code sees; `self` is the network, whatever the source calls
        `self`."""
        return {**self.globals, **examples, "self": self.model}

    def bind_result(self, value: Value) -> ast.expr:
        """Bind a region's result to a name for the host, unless it has one, and return the name."""
        if isinstance(value.code, ast.Name):
            return value.code
        target = self.fresh_name()
        self.steps.append(TensorStep(assign(target, value.code), self.location))
        self.bind_name(target, value)
        return name(target)

    def bind_if_tensor(self, value: Value) -> Value:
        """Return the value; a region's result gets a name first."""
        return replace(value, code=self.bind_result(value)) if value.kind == "tensor" else value

    def bind_number(self, value: Value) -> Value:
        """Return the value; a number that the host reads gets a name, because it goes into a
        region."""
        if (
            value.kind != "host"
            or not isinstance(value.example, (int, float))
            or isinstance(value.code, ast.Name)
        ):
            return value
        if self.is_size(value):
            return value  # the region computes it
        return self.bind_in_host(
            replace(value, twin=SAME) if value.second_example == value.example else value
        )

    def bind_in_host(self, value: Value) -> Value:
        """Bind what the host computes to a new name, so that it is computed once, and return it
        under this name."""
        target = self.fresh_name()
        self.steps.append(HostStep(assign(target, value.code)))
        return self.bind_name(target, value)

    def read_number(self, value: Value) -> Value:
        """Return the number that the host reads of a tensor of one element."""
        code = method_call(self.bind_result(value), "item")
        example, second_example = self.read_in_worlds(value.code, value, torch.Tensor.item)
        return Value("host", example, code, SAME if example == second_example else second_example)

    def read_in_worlds(
        self, node: ast.AST, value: Value, function: Callable[[Any], Any]
    ) -> tuple[Any, Any]:
        """Return what Python reads of a tensor in both worlds; twice the first if the second's
        sizes do not fit."""
        try:
            example = function(value.example)
        except Exception as problem:
            reason = f"cannot be run on the example: {type(problem).__name__}: {problem}"
            raise self.refuse(node, reason, Unrunnable) from problem
        try:
            return example, function(value.second_example)
        except Exception:  # noqa: BLE001  (another number of rows than `if len(rows) == 1` lets through)
            return example, example

    def merge_aliases(self, value: Value, values: list[Value]) -> Value:
        """Return the value as one of several tensors, by the path taken: it shares the memory of
        all."""
        value = replace(value, example=value.example.view_as(value.example))
        self.alias_groups.append([value.example, *(alias.example for alias in values)])
        return value

    def pending_values(self) -> Iterator[Value]:
        """Yield what the enclosing expressions have evaluated, but not used yet."""
        pending = (value for values in self.pending[:-1] for value in values or ())
        return (
            value for value in pending if not any(value is test for test in self.first_operands)
        )

    @abstractmethod
    def element_like(self, code: ast.expr, base: Value, example: Any) -> Value:
        """Return an element of a list of unknown length whose place the example lacks."""

    @abstractmethod
    def take_apart(self, value: Value) -> list[Value]:
        """Return the elements of what one expression gives, under names of their own."""

    @abstractmethod
    def is_size(self, value: Value) -> bool:
        """Return whether a number is computed from shapes alone, which a region can do."""

    @abstractmethod
    def truth(self, value: Value) -> Value:
        """Return what `if value` tests, as the host tests it."""

    @abstractmethod
    def statement(self, node: ast.stmt) -> None:
        """Specialise one statement."""

    @abstractmethod
    def store(self, target: ast.expr, value: Value) -> None:
        """Assign to a target of the source."""

    @abstractmethod
    def keep(self, key: str, value: Value) -> None:
        """Assign to a name as it stands."""

    @abstractmethod
    def merge(self, ends: list[tuple[list[Step], Names]], drop_leaving: bool = True) -> None:
        """Set the names to what they hold after paths that meet."""
