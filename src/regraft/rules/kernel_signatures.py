"""The signatures of kernels, read without importing them: `regraft.ops` from its source, PyTorch
from the table."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from pathlib import Path

from regraft.source.syntax_iterators import defaults
from regraft.structure.optable import table
from regraft.structure.values_and_nodes import MISSING

OPS = Path(__file__).parent.parent / "ops"


@functools.cache
def kernel_parameters(qualified: str) -> Mapping[str, object]:
    """Return a kernel's parameter names with their defaults, MISSING for none; empty for an unknown
    kernel."""
    module, _, name = qualified.rpartition(".")
    if module == "regraft.ops":
        function = _op_function(name)
        return _parameters(function.args) if function is not None else {}
    op = table().canonical_op(qualified)
    if op is None:
        return {}
    signature = table().operation(op).signatures[0]
    return {
        parameter.name: parameter.default if parameter.optional else MISSING
        for parameter in signature
    }


def positional_parameters(qualified: str) -> int:
    """Return the number of arguments that a kernel takes by position; of all parameters without its
    source."""
    module, _, name = qualified.rpartition(".")
    function = _op_function(name) if module == "regraft.ops" else None
    if function is None:
        return len(kernel_parameters(qualified))
    return len(function.args.posonlyargs) + len(function.args.args)


@functools.cache
def exported_ops() -> Mapping[str, str]:
    """Return the names of the ops, each with the name of the module that the package exports it
    from."""
    return {
        alias.name: (node.module or "").removeprefix("regraft.ops.")
        for node in ast.parse((OPS / "__init__.py").read_bytes()).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regraft.ops.")
        for alias in node.names
    }


def _op_function(name: str) -> ast.FunctionDef | None:
    """Return the definition of an op; None where the package exports no function of the name."""
    module = exported_ops().get(name)
    return _functions_of(module).get(name) if module is not None else None


@functools.cache
def _functions_of(module: str) -> Mapping[str, ast.FunctionDef]:
    """Return the functions of a module of `regraft.ops` by their names."""
    tree = ast.parse((OPS / f"{module}.py").read_bytes())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _parameters(arguments: ast.arguments) -> dict[str, object]:
    """Return the parameter names of a function with their defaults, MISSING for none."""
    parameters: dict[str, object] = dict.fromkeys(
        (
            parameter.arg
            for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        ),
        MISSING,
    )
    parameters.update(
        (parameter.arg, ast.literal_eval(default)) for parameter, default in defaults(arguments)
    )
    return parameters
