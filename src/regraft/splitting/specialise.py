"""Specialisation: `forward` with its concrete module, and every function that reads a tensor's value, in its place."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection
from typing import Any

import torch

from regraft.splitting.codes import ARGUMENTS, name
from regraft.splitting.interpreter import Frame
from regraft.splitting.local import inside, own_names
from regraft.splitting.loops import Loops
from regraft.splitting.normal import WithoutLeavingElses, mark, tails, without_loop_returns
from regraft.splitting.residual import HostStep, Step, leaves
from regraft.splitting.scratch import Attribute
from regraft.splitting.values import SAME, Value, literal
from regraft.splitting.worlds import longer


class Specialiser(Loops):
    """Makes the residual program of a network."""

    def network(self, calls: list[dict[str, Any]], scratch: Collection[Attribute], *, partial: bool) -> list[Step]:
        """The residual program for calls like these (argument name to value); sizes in which they differ are open.

        scratch: attributes of modules that calls assign, which the modules lack now. partial: whether a variable may
        be read that only some of the paths assign.
        """
        self.scratch, self.partial = scratch, partial
        call = calls[0]
        definition = self.enter(type(self.model).forward, "")
        self.variables = self.frame.own  # they may hide what Python has built in, such as `input`
        if "numpy" in self.variables:
            raise self.refuse(definition, "a variable of the name numpy is not supported")
        self.bind_owner(definition, self.model)
        for key, value in call.items():
            if isinstance(value, torch.Tensor):
                self.inputs.append(value)
                self.hold(key, Value("tensor", value, name(key), self.resized([one[key] for one in calls])))
            else:
                self.names[key] = Value("static", value, literal(value) or name(key))
        if self.frame.path.endswith(ARGUMENTS):
            definition = self.put_together(definition)
        self.block(definition.body)
        if not leaves(self.steps):
            self.steps.append(HostStep(ast.Return(ast.Constant(None))))
        return self.steps

    def put_together(self, definition: ast.FunctionDef) -> ast.FunctionDef:
        """Go on with the network that is given arguments which were put together, as `unpacked` writes it."""
        returned = definition.body[0]
        assert isinstance(returned, ast.Return) and isinstance(returned.value, ast.Call)
        call, network = returned.value, self.model.network
        self.pending.append(None)
        _, words = self.operands(call)
        self.pending.pop()
        for given in words.values():
            self.give(call, given)
        function = type(network).forward
        definition = self.enter(function, "")
        self.variables = self.variables | self.frame.own
        self.bind(call, function, network, [], words)
        return definition

    def resized(self, tensors: list[torch.Tensor]) -> Any:
        """An input in the second world."""
        first = tensors[0]
        dims = {dim for one in tensors for dim in range(first.ndim) if one.shape[dim] != first.shape[dim]}
        for one in tensors:
            if dims and all(one.shape[dim] != first.shape[dim] for dim in dims):
                return one
        return longer(first, sorted(dims)) if dims else SAME

    def bind_owner(self, definition: ast.FunctionDef, owner: Any) -> None:
        first = self.frame.prefix + definition.args.args[0].arg
        self.names[first] = self.static(owner, self.aliased("module", owner))

    def enter(self, function: Any, prefix: str) -> ast.FunctionDef:
        """Make `function` the one whose statements are read; its source has to be there."""
        if function in self.local:
            made = self.local[function]
            self.frame = Frame(made.frame.path, made.frame.scope, prefix)
            self.frame.own, self.frame.outer = own_names(made.definition), made.frame
            self.frame.again = self.looping > 0
            return self.prepared(made.definition)
        try:
            function = inspect.unwrap(function)
            lines, start = inspect.getsourcelines(function)
            path = inspect.getsourcefile(function) or "<unknown>"
        except (OSError, TypeError) as problem:
            raise self.refuse(ast.Pass(), f"{function!r} has no source that can be read") from problem
        tree = ast.parse(textwrap.dedent("".join(lines)))
        ast.increment_lineno(tree, start - 1)
        definition = tree.body[0]
        self.frame = Frame(path, dict(function.__globals__), prefix)
        if function.__closure__:
            cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
            self.frame.scope.update((key, cell.cell_contents) for key, cell in cells)
        if not isinstance(definition, ast.FunctionDef):
            raise self.refuse(definition, "only functions written with def can be followed")
        self.frame.own, self.frame.again = own_names(definition), self.looping > 0
        self.frame.first = next((one.arg for one in [*definition.args.posonlyargs, *definition.args.args]), "")
        return self.prepared(definition)

    def prepared(self, definition: ast.FunctionDef) -> ast.FunctionDef:
        """The function whose statements are read next, in a form that can be followed."""
        self.reserve(definition, self.frame.prefix)
        plain = WithoutLeavingElses(lambda: self.unused("exhausted"))
        plain.generic_visit(definition)
        mark(definition)
        return definition

    def inline(self, node: ast.AST, function: Any, owner: Any, args: list[Value], words: dict[Any, Value]) -> Value:
        """The function's statements in the place of its call."""
        if self.depth > 20:
            raise self.refuse(node, "functions call each other too deeply")
        outer, number = self.frame, self.next_number()
        loops, self.loops = self.loops, []
        definition = self.enter(function, f"f{number}_")
        result = self.unused("loop_result")
        self.guarded.add(self.frame.prefix + result)
        statements = without_loop_returns(definition.body, result, self.unused("loop_returned"))
        body = tails([*statements, ast.copy_location(ast.Return(None), definition)], ast.Return)
        stray = [one for one in inside(ast.Module(body, [])) if isinstance(one, ast.Return)]
        for one in stray:
            if id(one) not in last_returns(body):
                raise self.refuse(one, "a return in try, or in a with that others follow, is not supported")
        self.bind(node, function, owner, args, words)
        if self.pending[-1] is not None:
            self.pending[-1].clear()  # the arguments have names now
        self.depth += 1
        self.block(body)
        self.depth -= 1
        key = f"{self.frame.prefix}result"
        self.frame, self.loops = outer, loops
        prefix = f"f{number}_"
        self.own.update(one for one in self.names if one.startswith(key))
        self.names = {
            one: value for one, value in self.names.items() if one.startswith(key) or not one.startswith(prefix)
        }
        self.collect()
        value = self.names[key]
        parts = [value, *(self.element(value, place) for place in value.fields)]
        if any(part.kind == "lost" for part in parts):
            raise self.refuse(node, "what is returned has different types or shapes on different paths")
        return value

    def bind(self, node: ast.AST, function: Any, owner: Any, args: list[Value], words: dict[Any, Value]) -> None:
        given = [self.static(owner, self.aliased("module", owner)), *args] if owner is not None else args
        try:
            bound = inspect.signature(function).bind(*given, **words)
        except TypeError as problem:
            raise self.refuse(node, str(problem)) from problem
        for parameter in inspect.signature(function).parameters.values():
            value = bound.arguments.get(parameter.name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                value = self.together([self.kept(one) for one in value or ()])
            elif parameter.kind is parameter.VAR_KEYWORD:
                words_left = value or {}
                if any(one.kind != "static" or self.holds_local(one.example) for one in words_left.values()):
                    value = self.make(dict)
                    self.dict_update(node, value.example, **words_left)
                else:
                    value = self.static({key: one.example for key, one in words_left.items()})
            self.keep(self.frame.prefix + parameter.name, value or self.static(parameter.default))


def last_returns(body: list[ast.stmt]) -> set[int]:
    """The returns at the ends of the paths through `body`."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return last_returns(last.body) | last_returns(last.orelse)
    if isinstance(last, ast.With):
        return last_returns(last.body)
    return {id(last)} if isinstance(last, ast.Return) else set()
