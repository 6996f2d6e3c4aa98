"""Specialisation of `forward` with its concrete module; functions that read a tensor's value are
inlined."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection
from typing import Any

import torch

from regraft.splitting.observing.scratch import Attribute
from regraft.splitting.program.codes import WRAPPER_SUFFIX, name
from regraft.splitting.program.normal import (
    WithoutLeavingElses,
    mark_uses,
    move_exits_to_tails,
    without_loop_returns,
)
from regraft.splitting.program.residual import HostStep, Step, leaves
from regraft.splitting.program.values import SAME, Value, literal
from regraft.splitting.program.worlds import lengthen
from regraft.splitting.specialising.interpreter import Frame
from regraft.splitting.specialising.local import body_nodes, own_names
from regraft.splitting.specialising.loops import Loops


class Specialiser(Loops):
    """Makes the residual program of a network."""

    def specialise_network(
        self, calls: list[dict[str, Any]], scratch: Collection[Attribute], *, partial: bool
    ) -> list[Step]:
        """Return the residual program for calls (argument name to value); sizes in which they
        differ are open.

        scratch: attributes of modules that calls assign, which the modules lack now. partial:
        whether a variable may be read that only some of the paths assign.
        """
        self.scratch, self.allows_partial = scratch, partial
        call = calls[0]
        definition = self.enter_function(type(self.model).forward, "")
        # they may hide what Python has built in, such as `input`
        self.variables = self.frame.own_names
        if "numpy" in self.variables:
            raise self.refuse(definition, "a variable of the name numpy is not supported")
        self.bind_owner(definition, self.model)
        for key, value in call.items():
            if isinstance(value, torch.Tensor):
                self.inputs.append(value)
                self.bind_name(
                    key,
                    Value(
                        "tensor",
                        value,
                        name(key),
                        self.input_twin([other_call[key] for other_call in calls]),
                    ),
                )
            else:
                self.names[key] = Value("static", value, literal(value) or name(key))
        if self.frame.path.endswith(WRAPPER_SUFFIX):
            definition = self.enter_wrapped(definition)
        self.block(definition.body)
        if not leaves(self.steps):
            self.steps.append(HostStep(ast.Return(ast.Constant(None))))
        return self.steps

    def enter_wrapped(self, definition: ast.FunctionDef) -> ast.FunctionDef:
        """Return the definition of the network that a wrapper (unpacked.py) calls, with its
        arguments bound."""
        return_statement = definition.body[0]
        assert isinstance(return_statement, ast.Return) and isinstance(
            return_statement.value, ast.Call
        )
        call, network = return_statement.value, self.model.network
        self.pending.append(None)
        _, keywords = self.operands(call)
        self.pending.pop()
        for argument in keywords.values():
            self.mark_caller_containers(call, argument)
        function = type(network).forward
        definition = self.enter_function(function, "")
        self.variables = self.variables | self.frame.own_names
        self.bind_arguments(call, function, network, [], keywords)
        return definition

    def input_twin(self, tensors: list[torch.Tensor]) -> Any:
        """Return an input in the second world: one that differs in all open sizes; SAME if no size
        differs."""
        first = tensors[0]
        dims = {
            dim
            for tensor in tensors
            for dim in range(first.ndim)
            if tensor.shape[dim] != first.shape[dim]
        }
        for tensor in tensors:
            if dims and all(tensor.shape[dim] != first.shape[dim] for dim in dims):
                return tensor
        return lengthen(first, sorted(dims)) if dims else SAME

    def bind_owner(self, definition: ast.FunctionDef, owner: Any) -> None:
        """Bind the first parameter, such as `self`, to the owner of a method."""
        first = self.frame.prefix + definition.args.args[0].arg
        self.names[first] = self.static(owner, self.alias_global("module", owner))

    def enter_function(self, function: Any, prefix: str) -> ast.FunctionDef:
        """Make `function` the one whose statements are read, and return its definition; refuse it
        without source."""
        if function in self.local_functions:
            local_function = self.local_functions[function]
            self.frame = Frame(local_function.frame.path, local_function.frame.scope, prefix)
            self.frame.own_names, self.frame.outer = (
                own_names(local_function.definition),
                local_function.frame,
            )
            self.frame.may_repeat = self.loop_depth > 0
            return self.prepare(local_function.definition)
        try:
            function = inspect.unwrap(function)
            lines, start = inspect.getsourcelines(function)
            path = inspect.getsourcefile(function) or "<unknown>"
        except (OSError, TypeError) as problem:
            raise self.refuse(
                ast.Pass(), f"{function!r} has no source that can be read"
            ) from problem
        tree = ast.parse(textwrap.dedent("".join(lines)))
        ast.increment_lineno(tree, start - 1)
        definition = tree.body[0]
        self.frame = Frame(path, dict(function.__globals__), prefix)
        if function.__closure__:
            cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
            self.frame.scope.update((key, cell.cell_contents) for key, cell in cells)
        if not isinstance(definition, ast.FunctionDef):
            raise self.refuse(definition, "only functions written with def can be followed")
        self.frame.own_names, self.frame.may_repeat = own_names(definition), self.loop_depth > 0
        self.frame.first_parameter = next(
            (parameter.arg for parameter in [*definition.args.posonlyargs, *definition.args.args]),
            "",
        )
        return self.prepare(definition)

    def prepare(self, definition: ast.FunctionDef) -> ast.FunctionDef:
        """Bring a function whose statements are read next into a form that can be followed, and
        return it."""
        self.reserve_names(definition, self.frame.prefix)
        transformer = WithoutLeavingElses(lambda: self.unused_name("exhausted"))
        transformer.generic_visit(definition)
        mark_uses(definition)
        return definition

    def inline(
        self,
        node: ast.AST,
        function: Any,
        owner: Any,
        args: list[Value],
        keywords: dict[Any, Value],
    ) -> Value:
        """Specialise the function's statements in the place of its call, and return its result."""
        if self.call_depth > 20:
            raise self.refuse(node, "functions call each other too deeply")
        outer_frame, number = self.frame, self.next_number()
        loops, self.loops = self.loops, []
        definition = self.enter_function(function, f"f{number}_")
        result = self.unused_name("loop_result")
        self.guarded_names.add(self.frame.prefix + result)
        statements = without_loop_returns(
            definition.body, result, self.unused_name("loop_returned")
        )
        body = move_exits_to_tails(
            [*statements, ast.copy_location(ast.Return(None), definition)], ast.Return
        )
        returns = [
            node for node in body_nodes(ast.Module(body, [])) if isinstance(node, ast.Return)
        ]
        for statement in returns:
            if id(statement) not in last_returns(body):
                raise self.refuse(
                    statement, "a return in try, or in a with that others follow, is not supported"
                )
        self.bind_arguments(node, function, owner, args, keywords)
        if self.pending[-1] is not None:
            self.pending[-1].clear()  # the arguments have names now
        self.call_depth += 1
        self.block(body)
        self.call_depth -= 1
        key = f"{self.frame.prefix}result"
        self.frame, self.loops = outer_frame, loops
        prefix = f"f{number}_"
        self.unread_names.update(variable for variable in self.names if variable.startswith(key))
        self.names = {
            variable: value
            for variable, value in self.names.items()
            if variable.startswith(key) or not variable.startswith(prefix)
        }
        self.forget_dead_objects()
        value = self.names[key]
        parts = [value, *(self.element(value, place) for place in value.fields)]
        if any(part.kind == "lost" for part in parts):
            raise self.refuse(
                node, "what is returned has different types or shapes on different paths"
            )
        return value

    def bind_arguments(
        self,
        node: ast.AST,
        function: Any,
        owner: Any,
        args: list[Value],
        keywords: dict[Any, Value],
    ) -> None:
        """Bind the parameters of a function to the arguments of its call."""
        positional = (
            [self.static(owner, self.alias_global("module", owner)), *args]
            if owner is not None
            else args
        )
        try:
            bound = inspect.signature(function).bind(*positional, **keywords)
        except TypeError as problem:
            raise self.refuse(node, str(problem)) from problem
        for parameter in inspect.signature(function).parameters.values():
            value = bound.arguments.get(parameter.name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                value = self.make_tuple([self.bind_if_tensor(element) for element in value or ()])
            elif parameter.kind is parameter.VAR_KEYWORD:
                extra_keywords = value or {}
                if any(
                    extra.kind != "static" or self.holds_local_function(extra.example)
                    for extra in extra_keywords.values()
                ):
                    value = self.make_object(dict)
                    self.dict_update(node, value.example, **extra_keywords)
                else:
                    value = self.static(
                        {key: extra.example for key, extra in extra_keywords.items()}
                    )
            self.keep(self.frame.prefix + parameter.name, value or self.static(parameter.default))


def last_returns(body: list[ast.stmt]) -> set[int]:
    """Return the ids of the returns at the ends of the paths through `body`."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return last_returns(last.body) | last_returns(last.orelse)
    if isinstance(last, ast.With):
        return last_returns(last.body)
    return {id(last)} if isinstance(last, ast.Return) else set()
