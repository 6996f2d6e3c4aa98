"""Loops over generators: the body of the loop becomes an inner function, which the generator calls
in the place of each `yield`."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

import torch

from regraft.splitting.program.control_flow import contains_leave, returns_in_loop
from regraft.splitting.program.statements import assigned_names
from regraft.splitting.program.unused_names import unused_name
from regraft.splitting.program.values import StaticValue, Value
from regraft.splitting.specialising.followed_code import Frame, LocalFunction
from regraft.splitting.specialising.inlining import inline
from regraft.splitting.specialising.local_functions import body_nodes, make_stand_in_function
from regraft.splitting.specialising.method_calls import evaluate_arguments
from regraft.splitting.specialising.state import Specialisation

YIELDS = (ast.Yield, ast.YieldFrom)
# functions that use a generator up at once
READERS = frozenset({"list", "tuple", "sum", "max", "min", "sorted", "set"})


@dataclass(frozen=True)
class Generator:
    """A call of a generator function: the function, what its first parameter holds (None for a
    plain function), and the call."""

    function: Any
    owner: Any
    call: ast.Call


def find_generator(state: Specialisation, node: ast.expr) -> Generator | None:
    """Return the call of a generator function that an expression of the source is; None for any
    other expression, of which nothing is evaluated then.

    Only names and chains of attributes are looked at as the function.
    """
    if not isinstance(node, ast.Call) or not is_path(node.func):
        return None
    if not is_generator(state, read_path(state, node.func)):
        return None
    callee = state.evaluate(node.func)
    function = callee.example
    if not isinstance(callee, StaticValue) or not is_generator(state, function):
        return None
    if inspect.ismethod(function):
        return Generator(function.__func__, function.__self__, node)
    return Generator(function, None, node)


def is_path(node: ast.expr) -> bool:
    """Return whether an expression is a name, or attributes of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def read_path(state: Specialisation, node: ast.expr) -> Any:
    """Return the object that a name, or attributes of one, stand for in the source, with no
    property run; None where that is not known."""
    if isinstance(node, ast.Attribute):
        owner = read_path(state, node.value)
        parts = getattr(owner, "_modules", {}) if isinstance(owner, torch.nn.Module) else {}
        member = parts.get(node.attr, inspect.getattr_static(owner, node.attr, None))
        return getattr(member, "__func__", member)
    assert isinstance(node, ast.Name)
    frame: Frame | None = state.frame
    while frame is not None:
        value = state.names.get(frame.prefix + node.id)
        if value is not None:
            return value.example if isinstance(value, StaticValue) else None
        frame = frame.outer
    return state.frame.scope.get(node.id)


def is_generator(state: Specialisation, function: Any) -> bool:
    """Return whether a function is a generator function, also one that forward makes."""
    if inspect.isfunction(function) and function in state.local_functions:
        return has_yield(state.local_functions[function].definition)
    return inspect.isgeneratorfunction(function)


def has_yield(definition: ast.FunctionDef) -> bool:
    """Return whether a function's own statements yield."""
    return any(isinstance(node, YIELDS) for node in body_nodes(definition))


def execute_for_generator(state: Specialisation, node: ast.For, generator: Generator) -> None:
    """Specialise a loop over a generator: the generator is followed, and calls the loop's body for
    each value that it yields. Raises Unsplittable for an `else`, and a return in the body."""
    if node.orelse or any(
        isinstance(part, ast.Return) or contains_leave(part, ast.Return) or returns_in_loop(part)
        for part in node.body
    ):
        raise state.refuse(
            node, "a loop over a generator takes no else and no return: leave it by break"
        )
    args, keywords = evaluate_arguments(state, generator.call)
    callback = make_callback(state, node)
    function, name = make_calling_function(state, node, generator)
    inline(state, node, function, generator.owner, args, {**keywords, name: callback})


def read_at_once(state: Specialisation, node: ast.Call) -> ast.Call:
    """Return a call such as `list(self.steps(x))`, which uses a generator up, with a comprehension
    over the generator in its place; any other call as it is."""
    is_reader = isinstance(node.func, ast.Name) and node.func.id in READERS
    if not is_reader or len(node.args) != 1 or find_generator(state, node.args[0]) is None:
        return node
    element = state.fresh_name()
    part = ast.comprehension(ast.Name(element, ast.Store()), node.args[0], [], 0)
    elements = ast.ListComp(ast.Name(element, ast.Load()), [part])
    call = ast.Call(node.func, [elements], node.keywords)
    return ast.fix_missing_locations(ast.copy_location(call, node))


def expand_counting_loop(state: Specialisation, node: ast.For) -> list[ast.stmt] | None:
    """Return the statements that a loop over `enumerate(generator)` or `zip(generator, others)`
    stands for, a counter and a loop over the generator; None for any other loop. Raises
    Unsplittable for a generator behind another argument of `zip`, and keywords."""
    call = node.iter
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args):
        return None
    are_generators = [find_generator(state, argument) is not None for argument in call.args]
    if call.func.id not in ("enumerate", "zip") or not any(are_generators):
        return None
    if call.keywords or are_generators[1:] != [False] * (len(call.args) - 1):
        raise state.refuse(node, f"{call.func.id}() takes a generator as its first argument only")
    counter, element = state.unused_name("count"), state.unused_name("element")
    count = ast.Name(counter, ast.Load())
    start: ast.expr = ast.Constant(0)
    setup: list[ast.stmt] = []
    checks: list[ast.stmt] = []
    parts: list[ast.expr] = [ast.Name(element, ast.Load())]
    if call.func.id == "enumerate":
        start = call.args[1] if len(call.args) > 1 else start
        parts.insert(0, count)
    for argument in call.args[1:] if call.func.id == "zip" else ():
        sequence_name = state.unused_name("sequence")
        sequence = ast.Name(sequence_name, ast.Load())
        setup.append(ast.Assign([ast.Name(sequence_name, ast.Store())], argument))
        checks.append(leave_at_end(count, sequence))
        parts.append(ast.Subscript(sequence, count, ast.Load()))
    increment = ast.BinOp(count, ast.Add(), ast.Constant(1))
    body = [
        *checks,
        ast.Assign([node.target], ast.Tuple(parts, ast.Load())),
        ast.Assign([ast.Name(counter, ast.Store())], increment),
        *node.body,
    ]
    loop = ast.For(ast.Name(element, ast.Store()), call.args[0], body, node.orelse)
    statements = [ast.Assign([ast.Name(counter, ast.Store())], start), *setup, loop]
    module = ast.Module([copy.deepcopy(statement) for statement in statements], [])
    for statement in module.body:
        ast.fix_missing_locations(ast.copy_location(statement, node))
    return module.body


def leave_at_end(count: ast.expr, sequence: ast.expr) -> ast.stmt:
    """Return the statement that leaves a loop where `count` has reached the length of
    `sequence`."""
    length = ast.Call(ast.Name("len", ast.Load()), [sequence], [])
    return ast.If(ast.Compare(count, [ast.GtE()], [length]), [ast.Break()], [])


def make_callback(state: Specialisation, node: ast.For) -> Value:
    """Return the inner function that runs the body of a loop for one element, and returns whether
    the loop is left."""
    element = state.unused_name("element")
    body = [_LoopExits().visit(copy.deepcopy(statement)) for statement in node.body]
    assignment = ast.Assign([copy.deepcopy(node.target)], ast.Name(element, ast.Load()))
    assigned = assigned_names(ast.Module(node.body, [])) | assigned_names(node.target)
    read = {part.id for part in ast.walk(ast.Module(body, [])) if isinstance(part, ast.Name)}
    state.frame.own_names |= {
        *(assigned - state.frame.nonlocal_names),
        *(key for key in read if state.frame.prefix + key in state.names),
    }
    goes_on = ast.Return(ast.Constant(False))
    definition = ast.FunctionDef(
        name=state.unused_name("body"),
        args=ast.arguments([], [ast.arg(element)], None, [], [], None, []),
        body=[ast.Nonlocal(sorted(assigned)), assignment, *body, goes_on],
        decorator_list=[],
    )
    return bind_function(state, node, definition, state.frame)


class _LoopExits(ast.NodeTransformer):
    """Replaces `break` and `continue` of a loop by returns: True where the loop is left."""

    def visit_Break(self, node: ast.Break) -> ast.AST:
        """Return `return True`."""
        return ast.copy_location(ast.Return(ast.Constant(True)), node)

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        """Return `return False`."""
        return ast.copy_location(ast.Return(ast.Constant(False)), node)

    def visit_inner(self, node: ast.AST) -> ast.AST:
        """Return a loop or function within the loop unchanged, but for the `else` of a loop."""
        if isinstance(node, (ast.For, ast.While)):
            node.orelse = [self.visit(statement) for statement in node.orelse]
        return node

    visit_For = visit_While = visit_FunctionDef = visit_Lambda = visit_inner


def bind_function(
    state: Specialisation, node: ast.AST, definition: ast.FunctionDef, frame: Frame
) -> Value:
    """Return a function that forward makes, with these statements, as a value."""
    for part in ast.walk(definition):
        if not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    ast.fix_missing_locations(definition)
    function = make_stand_in_function(definition, [], [], frame.scope)
    state.local_functions[function] = LocalFunction(definition, frame)
    return state.static(function)


def words_of(definition: ast.AST) -> set[str]:
    """Return the names that the text of a function has anywhere: of variables, parameters,
    functions, classes, attributes, keywords and imports; and its texts."""
    fields = (field for part in ast.walk(definition) for field in ast.iter_fields(part))
    return {value for _, value in fields if isinstance(value, str)}


def make_calling_function(
    state: Specialisation, node: ast.For, generator: Generator
) -> tuple[Any, str]:
    """Return the generator as a function with one parameter more, which it calls in the place of
    each `yield`, returning where that gives True; and the name of the parameter. Raises
    Unsplittable for a `yield` whose value is used."""
    definition, frame = find_definition(state, node, generator.function)
    name = unused_name("consume", words_of(definition))
    may_leave = any(
        isinstance(part, ast.Break) or contains_leave(part, ast.Break) for part in node.body
    )
    definition = _Yields(name, may_leave).visit(definition)
    if has_yield(definition):
        raise state.refuse(node, "a generator that gets values by `yield` is not supported")
    definition.args.kwonlyargs.append(ast.arg(name))
    definition.args.kw_defaults.append(None)
    definition.decorator_list = []
    defaults = generator.function.__defaults__ or ()
    parameters = zip(definition.args.kwonlyargs, definition.args.kw_defaults, strict=True)
    keyword_defaults = [
        (generator.function.__kwdefaults__ or {})[parameter.arg]
        for parameter, default in parameters
        if default is not None
    ]
    function = make_stand_in_function(definition, [*defaults], keyword_defaults, frame.scope)
    state.local_functions[function] = LocalFunction(ast.fix_missing_locations(definition), frame)
    return function, name


def find_definition(
    state: Specialisation, node: ast.AST, function: Any
) -> tuple[ast.FunctionDef, Frame]:
    """Return a copy of the definition of a generator function, and the frame whose names it sees;
    raise Unsplittable for one without source, or with decorators."""
    if function in state.local_functions:
        local = state.local_functions[function]
        return copy.deepcopy(local.definition), local.frame
    try:
        lines, start = inspect.getsourcelines(function)
    except (OSError, TypeError) as problem:
        raise state.refuse(node, f"{function!r} has no source that can be read") from problem
    definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        raise state.refuse(node, "a generator with decorators is not supported")
    ast.increment_lineno(definition, start - 1)
    frame = Frame(inspect.getsourcefile(function) or "", dict(function.__globals__), "")
    closure = inspect.getclosurevars(function).nonlocals
    frame.scope.update(closure)
    return definition, frame


class _Yields(ast.NodeTransformer):
    """Replaces `yield x` as a statement by `if name(x): return`, and `yield from y` by a loop.

    may_leave: whether the loop over the generator has a `break`.
    """

    def __init__(self, name: str, may_leave: bool) -> None:
        self.name, self.may_leave = name, may_leave

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Return the statement for a `yield`; any other as it is."""
        if isinstance(node.value, ast.Yield):
            value = node.value.value or ast.Constant(None)
            return ast.copy_location(self.write_call(value), node)
        if isinstance(node.value, ast.YieldFrom):
            each = ast.Name(f"{self.name}_each", ast.Load())
            target = ast.Name(each.id, ast.Store())
            loop = ast.For(target, node.value.value, [self.write_call(each)], [])
            return ast.copy_location(loop, node)
        return node

    def write_call(self, value: ast.expr) -> ast.stmt:
        """Return `if name(value): return`; the call alone where the loop has no `break`."""
        call = ast.Call(ast.Name(self.name, ast.Load()), [value], [])
        if not self.may_leave:
            return ast.Expr(call)
        return ast.If(call, [ast.Return(None)], [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Visit the generator itself; leave an inner function unchanged."""
        if not hasattr(self, "entered"):
            self.entered = True
            return self.generic_visit(node)
        return node
