"""What specialisation holds at any point: names, steps, and how residual code is run in both worlds."""

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

from regraft.splitting.codes import (
    ARGUMENTS,
    access,
    assign,
    holds_tensor,
    is_read_number,
    method_call,
    name,
    storage,
    tensors_in,
)
from regraft.splitting.errors import ReadInside, Unrunnable, Unsplittable, refuse
from regraft.splitting.lists import Lists
from regraft.splitting.probe import Observed, observe
from regraft.splitting.residual import HostStep, Step, TensorStep, reads
from regraft.splitting.scratch import Attribute
from regraft.splitting.values import SAME, Names, Value, lists_in, literal, open_sizes, opened, pattern
from regraft.splitting.worlds import Longer

T = TypeVar("T")
MORE = 20  # times as many operations, which sizes may not cost in the second world


class Frame:
    """One function being specialised: where it is, its globals, its prefix for names, what `self` is."""

    def __init__(self, path: str, scope: dict[str, Any], prefix: str) -> None:
        self.path, self.scope, self.prefix = path, scope, prefix
        self.own: set[str] = set()  # the function's own names
        self.first = ""  # its first parameter
        self.outer: Frame | None = None  # of a function made in another: that one
        self.line = 0  # of the statement that is specialised
        self.again = False  # a loop may run this function's statements again, where its names hold what they held


class NotRun(BaseException):
    """Something ran a local function instead of following it."""


@dataclass(frozen=True)
class Local:
    """A function's statements and the call in which it was made, whose names it sees as they are when it runs."""

    definition: ast.FunctionDef
    frame: Frame


class Interpreter(Lists):
    """The state of specialisation."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.scratch: Collection[Attribute] = ()  # attributes of modules that are variables of a call
        self.stored: list[Attribute] = []  # those that code assigned that was run instead of followed
        self.partial = True  # whether a variable may be read that only some of the paths assign
        self.looping = 0  # loops of an unknown number of iterations around
        self.guarded: set[str] = set()  # of those, the ones that are read only where they were assigned
        self.deleted: set[str] = set()  # names that a `del` took away on some path
        self.local: dict[Any, Local] = {}  # functions that the network makes, by what stands for them
        self.paths = {id(module): path for path, module in model.named_modules(remove_duplicate=False)}
        self.globals: dict[str, Any] = {}
        self.frame = Frame("", {}, "")
        self.steps: list[Step] = []
        self.count = 0
        self.own: set[str] = set()  # names that no statement of the source reads again
        self.inputs: list[torch.Tensor] = []
        self.variables: set[str] = set()  # of forward itself
        self.sizes: set[str] = set()  # names of sizes that regions compute
        self.chosen: dict[int, Value] = {}  # the indices of modules that a side of a choice stands for
        self.varying: set[str] = set()  # names that a loop assigns whose length is not known
        self.reserved: set[str] = set()  # names that the source uses itself, with the prefixes of its functions
        self.numbers: set[int] = set()  # those of names in the source that look like names made here
        self.open: dict[str, set[int]] = {}  # dimensions whose size is open, of the tensors that a name ever holds
        self.pending: list[list[Value] | None] = []  # of each expression around: what is evaluated, but not used yet
        self.implied: dict[tuple[str, bool], ast.expr] = {}  # the test that holds, or does not, where a name does
        self.copies: dict[str, str] = {}  # names that got what others hold, where that may be a constant
        self.tests: list[Value] = []  # first operands, which are asked before what changes something in the others
        self.changed: set[str] = set()  # names that got a new value without an assignment to them in the source
        self.fallible = 0  # operations so far that may raise for other inputs
        self.in_place = 0  # tensors changed in place so far
        self.shared: list[list[torch.Tensor]] = []  # tensors of which a name holds one or another, by the path taken

    def refuse(self, node: ast.AST, reason: str, kind: type[Unsplittable] = Unsplittable) -> Unsplittable:
        return refuse(self.frame.path.removesuffix(ARGUMENTS), node, reason, kind)

    def whole(self, node: ast.AST, called: str, value: Value) -> Value:
        """The value of what the source calls so, if the paths that lead here agree on its type."""
        if value.kind == "lost":
            raise self.refuse(node, f"{called} has different types or shapes on the paths that lead here")
        return value

    def changing(self, run: Callable[[], T]) -> tuple[T, set[str]]:
        """What something gives, and the names that it changes without an assignment to them in the source."""
        before, self.changed = self.changed, set()
        result = run()
        found, self.changed = self.changed, before | self.changed
        return result, found

    @property
    def place(self) -> tuple[str, int]:
        return self.frame.path, self.frame.line

    def fresh(self) -> str:
        key = f"t{self.next_number()}"
        self.own.add(key)
        return key

    def unused(self, wanted: str) -> str:
        """A variable of the function's own, of a name that it does not use."""
        while wanted in self.frame.own or self.frame.prefix + wanted in self.reserved:
            wanted += "_"
        self.frame.own.add(wanted)
        self.reserved.add(self.frame.prefix + wanted)
        return wanted

    def next_number(self) -> int:
        self.count += 1
        while self.count in self.numbers:
            self.count += 1
        return self.count

    def reserve(self, definition: ast.AST, prefix: str) -> None:
        """Keep the names of a function apart from those that are made here."""
        used = {one.id if isinstance(one, ast.Name) else one.arg for one in ast.walk(definition)
                if isinstance(one, (ast.Name, ast.arg))}  # fmt: skip
        self.reserved |= {prefix + one for one in used}
        self.numbers |= {int(found[1]) for found in map(re.compile(r"[tfods](\d+)(_|$)").match, used) if found}

    def static(self, example: Any, code: ast.expr | None = None) -> Value:
        if code is None or literal(example) is not None:
            code = literal(example)
        return Value("static", example, code or self.aliased(type(example).__name__, example))

    def aliased(self, wanted: str, value: Any) -> ast.expr:
        """A name for something that regions need from outside, one for each object."""
        if isinstance(value, torch.nn.Module) and id(value) in self.paths:
            return ast.parse(access(self.paths[id(value)]), mode="eval").body
        wanted = f"g_{wanted}"
        while self.globals.get(wanted, value) is not value or wanted in self.reserved:
            wanted += "_"
        self.globals[wanted] = value
        return name(wanted)

    def watched(self) -> Iterator[torch.Tensor]:
        yield from self.model.parameters()
        yield from self.model.buffers()
        yield from (v.example for v in self.names.values() if isinstance(v.example, torch.Tensor))

    def hold(self, key: str, value: Value) -> Value:
        """Let a name hold a value."""
        if isinstance(value.example, torch.Tensor) and value.twin is not SAME:
            self.open.setdefault(key, set()).update(open_sizes(value))
        made = not (isinstance(value.code, ast.Name) and value.code.id == key)  # else it comes from outside
        free = made and value.kind == "tensor" and key not in self.varying
        constant = free and (value.constant or all(map(self.is_constant, reads(value.code))))
        self.names[key] = replace(value.named(key), constant=constant)
        return self.names[key]

    def is_constant(self, key: str) -> bool:
        if key in self.names:
            return self.names[key].kind == "static" or self.names[key].constant
        return key == "self" or key in self.globals

    def holds_local(self, example: Any) -> bool:
        """Whether it is a function that the network makes, or holds one."""
        if isinstance(example, (tuple, list)):
            return any(map(self.holds_local, example))
        if isinstance(example, dict):
            return any(map(self.holds_local, example.values()))
        return isinstance(example, FunctionType) and example in self.local

    @abstractmethod
    def holds_made(self, example: Any) -> bool:
        """Whether it is an object that forward makes, or holds one."""

    def is_known(self, value: Value) -> bool:
        """Whether a tensor holds the same for every input, sizes included."""
        return value.twin is SAME and (value.constant or all(map(self.is_constant, reads(value.code))))

    def known(self) -> list[torch.Tensor]:
        """Tensors that hold the same for every input; those that a varying name holds, too, are left out."""
        values = self.names.values()
        varying = {storage(one) for one in tensors_in([value.example for value in values if not value.constant])}
        held = tensors_in([value.example for value in values if value.constant])
        return [one for one in held if storage(one) not in varying]

    def run(self, node: ast.AST, code: ast.expr) -> Value:
        """Residual code run on the example, and in the second world where that differs."""
        seen = self.world(node, code, None)
        used = [self.names[key] for key in reads(code) if key in self.names]
        resized = bool(seen.shapes) or any(one.twin is not SAME for one in used)
        numbers = any(one.kind == "host" and isinstance(one.example, int) for one in used)
        self.fallible += seen.by_values or (seen.by_sizes and (resized or numbers))
        twin = SAME
        if resized or isinstance(seen.result, (list, dict)):
            twin = self.world(node, code, seen.shapes, MORE * (seen.operations + 10)).result
        if isinstance(seen.result, list):
            self.met_lists(seen.result, [twin])
            if self.length_depends(code):
                self.ragged.update((id(one), one) for one in lists_in(seen.result))
        pairs = zip(tensors_in([seen.result]), tensors_in([twin]), strict=False)
        if twin is not SAME and any(one.ndim != other.ndim for one, other in pairs):
            raise self.refuse(node, "sizes decide how many dimensions there are, which is not supported")
        made = (
            seen.constant and twin is SAME and not any(one.kind == "host" for one in used)
        )  # of numbers, it is as they are
        value = Value("tensor" if holds_tensor(seen.result) else "host", seen.result, code, twin, constant=made)
        return self.resized_by_numbers(node, value) if value.kind == "tensor" else value

    def resized_by_numbers(self, node: ast.AST, value: Value) -> Value:
        """The value with open sizes where a number that the host reads, such as `int(x)`, decides them."""
        numbers = [key for key in reads(value.code) if key in self.names and is_read_number(self.names[key])]
        for change in (1, -1) if numbers else ():
            scope = self.scope({key: one.example for key, one in self.names.items()})
            scope.update((key, self.names[key].example + change) for key in numbers)
            try:
                with torch.no_grad():
                    other = eval(compile(ast.fix_missing_locations(ast.Expression(value.code)), "", "eval"), scope)
            except Exception:  # noqa: BLE001  (a number that does not fit, such as an index out of range)
                continue
            changed = replace(value, example=other, twin=SAME)
            if pattern(value.example, value.example) == pattern(other, other):
                continue
            wider = opened(value, changed)
            if wider is None:
                raise self.refuse(node, "a number that is read from a tensor decides the sizes of several results")
            value = wider
        return value

    def unsteady(self, node: ast.AST, code: ast.expr) -> bool:
        """Whether code takes another number of operations, or fails, where the sizes are others."""
        seen = self.world(node, code, None)
        used = [self.names[key] for key in reads(code) if key in self.names]
        if not seen.shapes and all(one.twin is SAME for one in used):
            return False
        try:
            other = self.world(node, code, seen.shapes, MORE * (seen.operations + 10))
        except Unsplittable:
            return True
        return other.operations != seen.operations

    def world(
        self, node: ast.AST, code: ast.expr, shapes: tuple[torch.Size, ...] | None, most: float = math.inf
    ) -> Observed:
        """Residual code run in one world; refuses what no static region can do.

        shapes: for the second world, those that data decided in the first. most: operations.
        """
        second = shapes is not None
        if any(key in self.globals and self.holds_made(self.globals[key]) for key in reads(code)):
            raise self.refuse(node, "an object that forward makes goes into something that cannot be followed")
        scope = self.scope({key: value.other if second else value.example for key, value in self.names.items()})
        compiled = compile(ast.fix_missing_locations(ast.Expression(code)), self.frame.path, "eval")
        before = len(self.stored)
        try:
            with Longer(shapes) if shapes is not None else contextlib.nullcontext():
                seen = observe(lambda: eval(compiled, scope), self.watched(), self.known(), most)
        except (Exception, NotRun) as problem:
            what = "cannot be run with other sizes" if second else "cannot be run on the example"
            reason = f"{what}: {type(problem).__name__}: {problem}"
            raise self.refuse(node, reason, Unsplittable if second else Unrunnable) from problem
        if len(self.stored) > before:
            raise self.refuse(node, "an attribute of a module is assigned in a call that cannot be followed")
        if seen.random:
            raise self.refuse(node, "random numbers are drawn here; every run of the network would differ")
        if seen.changed:
            raise self.refuse(node, "a tensor that is used elsewhere is changed in place")
        if seen.reads and holds_tensor(seen.result):
            raise self.refuse(node, "a value of a tensor is read inside a call that cannot be followed", ReadInside)
        return seen

    def scope(self, held: dict[str, Any]) -> dict[str, Any]:
        """What residual code sees; `self` is the network, whatever the source calls so."""
        return {**self.globals, **held, "self": self.model}

    def held(self, value: Value) -> ast.expr:
        """A name under which the host holds a region's result."""
        if isinstance(value.code, ast.Name):
            return value.code
        target = self.fresh()
        self.steps.append(TensorStep(assign(target, value.code), self.place))
        self.hold(target, value)
        return name(target)

    def kept(self, value: Value) -> Value:
        """The value, where it is a region's result under a name."""
        return replace(value, code=self.held(value)) if value.kind == "tensor" else value

    def number_name(self, value: Value) -> Value:
        """A number that the host reads gets a name where it goes into a region."""
        if value.kind != "host" or not isinstance(value.example, (int, float)) or isinstance(value.code, ast.Name):
            return value
        if self.is_size(value):
            return value  # the region computes it
        return self.held_by_host(replace(value, twin=SAME) if value.other == value.example else value)

    def held_by_host(self, value: Value) -> Value:
        """A name for what the host computes once, wherever it is used."""
        target = self.fresh()
        self.steps.append(HostStep(assign(target, value.code)))
        return self.hold(target, value)

    def number(self, value: Value) -> Value:
        """A tensor of one element as the host's number."""
        code = method_call(self.held(value), "item")
        example, other = self.read(value.code, value, torch.Tensor.item)
        return Value("host", example, code, SAME if example == other else other)

    def read(self, node: ast.AST, value: Value, function: Callable[[Any], Any]) -> tuple[Any, Any]:
        """What Python reads of a tensor, in both worlds; the same where the second one's sizes do not fit."""
        try:
            example = function(value.example)
        except Exception as problem:
            reason = f"cannot be run on the example: {type(problem).__name__}: {problem}"
            raise self.refuse(node, reason, Unrunnable) from problem
        try:
            return example, function(value.other)
        except Exception:  # noqa: BLE001  (another number of rows than `if len(rows) == 1` lets through)
            return example, example

    def one_of(self, value: Value, values: list[Value]) -> Value:
        """A value that is one tensor or another, by the path taken; it shares the memory of all."""
        value = replace(value, example=value.example.view_as(value.example))
        self.shared.append([value.example, *(one.example for one in values)])
        return value

    def waiting(self) -> Iterator[Value]:
        """What the expressions around this one have evaluated, but not used yet."""
        several = (one for values in self.pending[:-1] for one in values or ())
        return (one for one in several if not any(one is test for test in self.tests))

    @abstractmethod
    def one_like(self, code: ast.expr, base: Value, example: Any) -> Value:
        """An element of a list of unknown length whose place the example lacks."""

    @abstractmethod
    def taken_apart(self, value: Value) -> list[Value]:
        """The elements of what one expression gives, under names of their own."""

    @abstractmethod
    def is_size(self, value: Value) -> bool:
        """Whether a number is computed from shapes alone, which a region can do."""

    @abstractmethod
    def truth(self, value: Value) -> Value:
        """What `if value` asks, as the host asks it."""

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
    def merge(self, ends: list[tuple[list[Step], Names]], stay: bool = True) -> None:
        """The names after paths that meet."""
