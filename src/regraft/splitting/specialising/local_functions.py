"""Functions that forward makes itself, lambdas and inner functions, which are followed where they
are called."""

from __future__ import annotations

import ast
import copy
import os
import site
from typing import Any

import torch

from regraft.splitting.specialising.followed_code import NotRun

# what has names of its own
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def as_definition(node: ast.Lambda) -> ast.FunctionDef:
    """Return a function definition with the lambda's parameters that returns the lambda's
    expression."""
    body = ast.copy_location(ast.Return(node.body), node)
    definition = ast.FunctionDef(name="local", args=node.args, body=[body], decorator_list=[])
    return ast.copy_location(definition, node)


def make_stand_in_function(
    node: ast.Lambda | ast.FunctionDef,
    defaults: list[Any],
    keyword_defaults: list[Any],
    scope: dict[str, Any],
) -> Any:
    """Return a function with the name and signature of the definition, which raises NotRun when
    called.

    defaults, keyword_defaults: the values of the positional and of the keyword-only defaults.
    scope: the globals of the definition, of which the function gets only `__name__`.
    """
    parameters = without_expressions(node.args)
    function_name = node.name if isinstance(node, ast.FunctionDef) else "local"
    body: list[ast.stmt] = [ast.Raise(ast.Call(ast.Name("NotRun", ast.Load()), [], []))]
    definition = ast.FunctionDef(
        name=function_name, args=parameters, body=body, decorator_list=[], lineno=1, col_offset=0
    )
    stand_in_scope: dict[str, Any] = {"NotRun": NotRun, "__name__": scope.get("__name__", "")}
    exec(
        compile(ast.fix_missing_locations(ast.Module([definition], [])), "<local>", "exec"),
        stand_in_scope,
    )
    function = stand_in_scope[function_name]
    function.__defaults__ = tuple(defaults) or None
    keys = [
        parameter.arg
        for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
        if default is not None
    ]
    function.__kwdefaults__ = dict(zip(keys, keyword_defaults, strict=True)) or None
    if isinstance(node, ast.Lambda):
        function.__name__ = function.__qualname__ = "<lambda>"
    return function


def list_parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters of a definition, `*args` and `**kwargs` last."""
    starred = [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *starred]


def without_expressions(arguments: ast.arguments) -> ast.arguments:
    """Return a copy of the parameters of a definition without annotations, and with None as each
    default."""
    parameters = copy.deepcopy(arguments)
    for parameter in list_parameters(parameters):
        parameter.annotation = None
    parameters.defaults = [ast.Constant(None) for _ in parameters.defaults]
    parameters.kw_defaults = [
        None if default is None else ast.Constant(None) for default in parameters.kw_defaults
    ]
    return parameters


def find_followed(function: Any) -> Any:
    """Return the function that is followed in the place of a decorated one: the one inside of
    decorators that change no result, such as `torch.no_grad()`, and of those of installed packages;
    a wrapper in the user's own code is followed itself."""
    while hasattr(function, "__wrapped__") and is_passed_over(function):
        function = function.__wrapped__
    return function


def is_passed_over(wrapper: Any) -> bool:
    """Return whether a wrapper stands in an installed package."""
    code = getattr(wrapper, "__code__", None)
    installed = (
        *site.getsitepackages(),
        os.path.dirname(os.__file__),
        os.path.dirname(torch.__file__),
    )
    return code is None or code.co_filename.startswith(installed)


def own_names(definition: ast.FunctionDef) -> set[str]:
    """Return the names that belong to the function itself: its parameters, what it assigns or
    deletes itself, comprehension variables among it, and the functions, classes and imports in
    it."""
    names = {parameter.arg for parameter in list_parameters(definition.args)}
    for node in body_nodes(definition):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return names - nonlocal_names(definition)


def nonlocal_names(definition: ast.FunctionDef) -> set[str]:
    """Return the names that a function declares `nonlocal`."""
    return {
        name
        for node in body_nodes(definition)
        if isinstance(node, ast.Nonlocal)
        for name in node.names
    }


def body_nodes(definition: ast.AST) -> list[ast.AST]:
    """Return the nodes of the body of a function or other statement, without its decorators and
    parameters, in no particular order. A function, lambda or class in it counts as one node: what
    is inside of it is left out. [] for a node without a body."""
    nodes: list[ast.AST] = []
    pending = list(getattr(definition, "body", []))
    while pending:
        node = pending.pop()
        nodes.append(node)
        if not isinstance(node, DEFINITIONS):
            pending.extend(ast.iter_child_nodes(node))
    return nodes
