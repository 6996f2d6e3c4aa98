"""The state of a specialisation: names, steps and what is known of them, and the two entries to the
tables of handlers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from regraft.splitting.errors import Unsplittable
from regraft.splitting.observing.assigned_attributes import Attribute
from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual import HostStep, Step, TensorStep, leaves_block
from regraft.splitting.program.residual_expressions import (
    file_of_wrapped,
    is_made_of_sizes,
    name,
    submodule_text,
)
from regraft.splitting.program.statements import Assign, read_names
from regraft.splitting.program.symbolic_sizes import SymbolicSizes
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.value_kinds_and_parts import is_independent
from regraft.splitting.program.values import (
    NO_TWIN,
    EitherValue,
    HostValue,
    LostValue,
    Names,
    StaticValue,
    TensorValue,
    Value,
    fork,
)
from regraft.splitting.specialising.followed_code import (
    FollowedLoop,
    Frame,
    LocalFunction,
    Location,
)

T = TypeVar("T")


@dataclass
class ClampedSizes:
    """Sizes that are equal in both worlds and depend on others (`settle_clamped_sizes`), and slices
    of a known width between numbers of the host (`slice_widths`).

    guarded: the host checks such sizes; else they are open. fixes_widths: so for slices. count,
    widths: how many sizes and slices there were so far.
    """

    guarded: bool = False
    fixes_widths: bool = False
    count: int = 0
    widths: int = 0

    def checks_same(self, other: ClampedSizes) -> bool:
        """Return whether the host checks the same kinds of sizes."""
        return (self.guarded, self.fixes_widths) == (other.guarded, other.fixes_widths)


@dataclass(frozen=True)
class Plan:
    """What is specialised otherwise than usual, since the program that came of it could not be
    split.

    rolled: loops over ranges that are not unrolled. followed: statements of which the calls are
    followed, where they could be one operation. Both by file and line.
    """

    rolled: frozenset[Location] = frozenset()
    followed: frozenset[Location] = frozenset()


class Cases(Exception):
    """Signals that a value has to be the constant that it may be, or not: the statement is
    specialised for each.

    key: the name that holds the value.
    """

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


@dataclass(eq=False, repr=False)
class Specialisation:
    """The network that is specialised, its residual program so far, and what its names hold.

    evaluate_by_type, execute_by_type: evaluate an expression and specialise a statement, each by
    the table of its module (expressions.py, statements.py), which stands above this one.
    """

    model: torch.nn.Module
    evaluate_by_type: Callable[[Specialisation, ast.expr], Value]
    execute_by_type: Callable[[Specialisation, ast.stmt], None]

    # the residual program, and the place in the source
    steps: list[Step] = field(default_factory=list)
    frame: Frame = field(default_factory=lambda: Frame("", {}, ""))
    call_depth: int = 0
    # objects from outside, by the aliases in the steps
    globals: dict[str, Any] = field(default_factory=dict)
    # classes of the objects that forward returns
    results: dict[str, type] = field(default_factory=dict)

    # names
    names: Names = field(default_factory=dict)
    inputs: list[torch.Tensor] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)  # the variables of forward itself
    last_number: int = 0  # of the names that are made here
    # numbers of source names that look like names made here
    taken_numbers: set[int] = field(default_factory=set)
    # names that the source uses itself, with the prefixes of its functions
    reserved_names: set[str] = field(default_factory=set)
    # names that no statement of the source reads again
    unread_names: set[str] = field(default_factory=set)
    # names that a `del` took away on some path
    deleted_names: set[str] = field(default_factory=set)
    # partial names that are read only where they were assigned
    guarded_names: set[str] = field(default_factory=set)
    # whether a variable may be read that only some of the paths assign
    allows_partial: bool = True
    # names that changed without an assignment to them
    changed_names: set[str] = field(default_factory=set)
    size_names: set[str] = field(default_factory=set)  # names of sizes that regions compute
    # those, and names to which the host assigned another number afterwards
    region_sizes: set[str] = field(default_factory=set)
    tensor_names: set[str] = field(default_factory=set)  # names that hold a tensor somewhere
    # names of other numbers and truth values that the host computes from sizes alone
    derived_from_sizes: set[str] = field(default_factory=set)
    # whether values of tensors decide sizes somewhere in the program so far
    values_decide_sizes: bool = False
    symbolic: SymbolicSizes = field(init=False)
    clamps: ClampedSizes = field(default_factory=ClampedSizes)
    # open dimensions of all tensors that a name ever holds
    open_by_name: dict[str, set[int]] = field(default_factory=dict)
    # of names that hold an EitherValue: the names that they got it from
    copied_from: dict[str, str] = field(default_factory=dict)
    # lists that comprehensions fill, which nothing else can read yet
    lists_being_filled: set[str] = field(default_factory=set)

    # values not used yet, by enclosing expression; None for a statement, which uses its own
    pending: list[list[Value] | None] = field(default_factory=list)
    # of `and` and `or`: tested before the others run
    first_operands: list[Value] = field(default_factory=list)
    fallible_operations: int = 0  # operations so far that may raise for other inputs

    # tensors that share memory
    in_place_changes: int = 0  # tensors changed in place so far
    # tensors of which a name holds one, by the path
    alias_groups: list[list[torch.Tensor]] = field(default_factory=list)

    # lists and dictionaries of the host, by their ids
    # whose lengths differ between the paths here
    ragged: dict[int, list[Any]] = field(default_factory=dict)
    # that two names hold on some paths only
    partly_aliased: dict[int, list[Any]] = field(default_factory=dict)
    caller_containers: dict[int, Any] = field(default_factory=dict)  # that belong to the arguments
    opened_lists: int = 0  # times that sizes of elements of lists were opened

    # objects and functions that forward makes
    mutable: Collection[type] = ()  # dataclasses that are followed attribute by attribute
    # number and stand-in, by the stand-in's id
    stand_ins: dict[int, tuple[int, Any]] = field(default_factory=dict)
    # the objects whose constructors run
    under_construction: list[Value] = field(default_factory=list)
    local_functions: dict[Any, LocalFunction] = field(default_factory=dict)  # by their stand-ins
    # sentences on calls that only say something, which are left out
    messages: dict[str, None] = field(default_factory=dict)
    # operations on tensors that were run so far to find what they give
    operations: int = 0
    # what the names of followed functions that have ended begin with
    ended_prefixes: set[str] = field(default_factory=set)

    # modules, and their attributes that are variables of a call
    paths: dict[int, str] = field(init=False)  # of the modules, by their ids
    scratch: Collection[Attribute] = ()
    scratch_numbers: dict[int, int] = field(default_factory=dict)  # of the modules, by their ids
    # attributes assigned by code that was run, not followed
    stored_attributes: list[Attribute] = field(default_factory=list)
    # the indices of modules that a side of a choice stands for
    chosen_indices: dict[int, Value] = field(default_factory=dict)

    # decisions
    # by name and truth: a test that then has it, too
    implied_tests: dict[tuple[str, bool], ast.expr] = field(default_factory=dict)
    # the statements that are specialised by cases now, with the names
    cases: set[tuple[int, str]] = field(default_factory=set)
    # joined tensors, by the ids of the tensors on each path
    joined_values: dict[tuple[int, ...], TensorValue] = field(default_factory=dict)

    # loops
    plan: Plan = field(default_factory=Plan)
    # statements of `plan.followed` with a call that was followed therefore
    detours: set[Location] = field(default_factory=set)
    # by the places of decisions: the unrolled loops over ranges around them
    unrolled: dict[Location, set[Location]] = field(default_factory=dict)
    loops: list[FollowedLoop] = field(default_factory=list)
    loop_depth: int = 0  # enclosing loops with an unknown number of iterations
    # names that a loop of unknown length assigns
    varying_names: set[str] = field(default_factory=set)
    not_entered: int = 0  # loops so far over lists that are empty where they are followed
    # the steps that raise an error where one of these is entered
    not_entered_errors: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Set `symbolic` and `paths`."""
        self.symbolic = SymbolicSizes(self.scope)
        self.paths = {
            id(module): path for path, module in self.model.named_modules(remove_duplicate=False)
        }

    def evaluate(self, node: ast.expr) -> Value:
        """Return the value of an expression; raise Cases if it has two kinds and its node is not
        marked `either`.

        The value is noted in `pending` for the expression around it. What evaluation needs is added
        to `steps`.
        """
        self.pending.append([])
        try:
            value = self.evaluate_by_type(self, node)
        finally:
            self.pending.pop()
        if not getattr(node, "either", False):
            self.require_single_kind(node, value)
        if self.pending and self.pending[-1] is not None:
            self.pending[-1].append(value)
        return value

    def execute(self, node: ast.stmt) -> None:
        """Specialise one statement: append its steps to `steps`, and let `names` hold what it
        assigns."""
        self.execute_by_type(self, node)

    def execute_block(self, statements: list[ast.stmt]) -> None:
        """Specialise statements in turn; those after the first that leaves the block are left
        out."""
        for statement in statements:
            if leaves_block(self.steps):
                return
            self.execute(statement)

    def refuse(
        self, node: ast.AST, reason: str, kind: type[Unsplittable] = Unsplittable
    ) -> Unsplittable:
        """Return the error of the class `kind`, for the caller to raise, with the reason why the
        network cannot be split and the place of `node`, or of its statement where `node` is made
        here."""
        line = getattr(node, "lineno", 0) or self.frame.line
        return kind(file_of_wrapped(self.frame.path), line, reason)

    def require_single_type(self, node: ast.AST, label: str, value: Value) -> Value:
        """Return the value; raise Unsplittable, which calls it `label`, if it is a LostValue, as
        where the paths here disagree on its type."""
        if isinstance(value, LostValue):
            raise self.refuse(node, f"{label} {value.reason}")
        return value

    def require_single_kind(self, node: ast.AST, value: Value) -> Value:
        """Return the value, unless it is an EitherValue; of that raise Cases with its name, so that
        its statement is specialised for each kind."""
        if isinstance(value, EitherValue):
            assert isinstance(value.code, ast.Name)
            raise Cases(value.code.id)
        return value

    def track_changes(self, run: Callable[[], T]) -> tuple[T, set[str]]:
        """Return the result of `run`, and the names that `run` changes without an assignment to
        them in the source, as a change in place does; changes noted before stay noted, also if
        `run` raises."""
        outer_changes, self.changed_names = self.changed_names, set()
        try:
            return run(), self.changed_names
        finally:
            self.changed_names = outer_changes | self.changed_names

    @property
    def location(self) -> Location:
        """Return the file and the line of the statement that is specialised."""
        return self.frame.path, self.frame.line

    def fresh_name(self) -> str:
        """Return a new name that no statement of the source reads."""
        key = f"t{self.next_number()}"
        self.unread_names.add(key)
        return key

    def unused_name(self, variable: str) -> str:
        """Return `variable`, with underscores added until the followed function uses no such name,
        and reserve it as a variable of this function."""
        while (
            variable in self.frame.own_names or self.frame.prefix + variable in self.reserved_names
        ):
            variable += "_"
        self.frame.own_names.add(variable)
        self.reserved_names.add(self.frame.prefix + variable)
        return variable

    def next_number(self) -> int:
        """Return the next number that stands in no name of the source such as `t3`, and count it as
        used."""
        self.last_number += 1
        while self.last_number in self.taken_numbers:
            self.last_number += 1
        return self.last_number

    def reserve_names(self, definition: ast.AST, prefix: str) -> None:
        """Reserve the names of a function, with `prefix`, and the numbers in names such as `t3`, so
        that fresh names differ from both."""
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

    def static(self, example: Any, code: ast.expr | None = None) -> StaticValue:
        """Return a StaticValue, one that is known now, whatever the input.

        code: the expression for it where it has no literal; by default an alias among `globals`, to
        which the object is added.
        """
        if code is None or literal(example) is not None:
            code = literal(example)
        return StaticValue(example, code or self.alias_global(type(example).__name__, example))

    def alias_global(self, alias: str, value: Any) -> ast.expr:
        """Return the expression for an object that regions need from outside: a submodule's path,
        or else the name of a global, which is added to `globals`.

        alias: what the global is called after `g_`; underscores are added where that name is taken.
        """
        if isinstance(value, torch.nn.Module) and id(value) in self.paths:
            return ast.parse(submodule_text(self.paths[id(value)]), mode="eval").body
        alias = f"g_{alias}"
        while self.globals.get(alias, value) is not value or alias in self.reserved_names:
            alias += "_"
        self.globals[alias] = value
        return name(alias)

    def note_size(self, key: str) -> None:
        """Note that a region assigns a size to the name `key`."""
        self.size_names.add(key)
        self.region_sizes.add(key)

    def bind_name(self, key: str, value: Value) -> Value:
        """Let the name `key` hold a value, note its open sizes, and return the value under this
        name. No step is added.

        A tensor is marked as constant if no input decides the value or what its expression reads.
        """
        if isinstance(value, TensorValue):
            self.tensor_names.add(key)
        if isinstance(value.example, torch.Tensor) and value.twin is not NO_TWIN:
            self.open_by_name.setdefault(key, set()).update(open_dimensions(value))
            if isinstance(value, TensorValue):
                self.symbolic.define(key, value, self.names)
        # else from outside
        is_computed = not (isinstance(value.code, ast.Name) and value.code.id == key)
        constant = (
            isinstance(value, TensorValue)
            and is_computed
            and key not in self.varying_names
            and (value.constant or all(map(self.is_constant, read_names(value.code))))
        )
        if is_computed:
            is_derived = isinstance(value, HostValue) and is_made_of_sizes(
                value.code, self.size_names | self.derived_from_sizes
            )
            (self.derived_from_sizes.add if is_derived else self.derived_from_sizes.discard)(key)
        self.names[key] = value.with_name(key).with_constant(constant)
        return self.names[key]

    def is_constant(self, key: str) -> bool:
        """Return whether no input decides what a name holds; the network itself and globals are
        constant, any other name without a value is not."""
        if key in self.names:
            return isinstance(self.names[key], StaticValue) or is_independent(self.names[key])
        return key == "self" or key in self.globals

    def scope(self, examples: dict[str, Any]) -> dict[str, Any]:
        """Return the variables with which residual code can be run: the globals, the network under
        `self`, and `examples`, the values of the names."""
        return {**self.globals, **examples, "self": self.model}

    def variable_name(self, identifier: str) -> str:
        """Return the name in `names` of a variable that the followed function assigns: of the
        function around it if it is declared `nonlocal`."""
        frame = self.frame
        while identifier in frame.nonlocal_names and frame.outer is not None:
            frame = frame.outer
        return frame.prefix + identifier

    def bind_result(self, value: Value) -> ast.expr:
        """Return the name that holds a region's result; where its expression is no name, a step is
        added that assigns it to a new one."""
        if isinstance(value.code, ast.Name):
            return value.code
        target = self.fresh_name()
        self.steps.append(TensorStep(Assign(target, value.code), self.location))
        self.bind_name(target, value)
        return name(target)

    def write_for_host(self, value: Value) -> ast.expr:
        """Return the expression by which the host reads a value; a tensor's expression is first
        assigned to a new name (`bind_result`)."""
        return self.bind_result(value) if isinstance(value, TensorValue) else value.code

    def bind_if_tensor(self, value: Value) -> Value:
        """Return the value; a tensor whose expression is no name is first assigned to a new one
        (`bind_result`)."""
        is_tensor = isinstance(value, TensorValue)
        return value.with_code(self.bind_result(value)) if is_tensor else value

    def bind_in_host(self, value: Value) -> Value:
        """Add a step in which the host assigns a value to a new name, so that it is computed once,
        and return the value under this name."""
        target = self.fresh_name()
        self.steps.append(HostStep(Assign(target, value.code)))
        return self.bind_name(target, value)

    def merge_aliases(self, value: TensorValue, values: Sequence[Value]) -> TensorValue:
        """Return a copy of the value with a view of its tensor as the example, and note in
        `alias_groups` that this view may share memory with the tensor of each of `values`."""
        value = replace(value, example=value.example.view_as(value.example))
        self.alias_groups.append([value.example, *(alias.example for alias in values)])
        return value

    def pending_values(self) -> Iterator[Value]:
        """Yield the values that the expressions around the current one have evaluated but not used
        yet; first operands of `and` and `or` are left out, because they are tested before the other
        operands run."""
        pending = (value for values in self.pending[:-1] for value in values or ())
        return (
            value for value in pending if not any(value is test for test in self.first_operands)
        )

    def fork_names(self, names: Names) -> Names:
        """Return the names with copies of their lists and dictionaries, so that changes do not
        reach the originals; notes about a container (`ragged` and the like) are made for its copy,
        too."""
        copies: dict[int, Any] = {}
        forked = fork(names, copies)
        for notes in (self.ragged, self.partly_aliased, self.caller_containers):
            notes.update((id(copy), copy) for key, copy in copies.items() if key in notes)
        return forked
