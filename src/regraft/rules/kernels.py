"""The signatures of kernels, read without importing them: `regraft.ops` from its source, PyTorch
from the table."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from pathlib import Path

from regraft.source.names import defaults
from regraft.structure.model import MISSING
from regraft.structure.optable import table

OPS = Path(__file__).parent.parent / "ops"


@functools.cache
def kernel_parameters(qualified: str) -> Mapping[str, object]:
    """Return a kernel's parameter names with their defaults, MISSING for none; empty for an unknown
    kernel."""
    module, _, name = qualified.rpartition(".")
    if module == "regraft.ops":
        function = _op_functions().get(name)
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
    function = _op_functions().get(name) if module == "regraft.ops" else None
    if function is None:
        return len(kernel_parameters(qualified))
    return len(function.args.posonlyargs) + len(function.args.args)


def exported_ops() -> set[str]:
    """Return the names of the ops: those that the package exports from its files."""
    return {
        alias.name
        for node in ast.parse((OPS / "__init__.py").read_bytes()).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regraft.ops.")
        for alias in node.names
    }


@functools.cache
def _op_functions() -> Mapping[str, ast.FunctionDef]:
    """Return the functions that `regraft.ops` exports from its files, by their names."""
    exported = exported_ops()
    trees = (ast.parse(path.read_bytes()) for path in sorted(OPS.glob("*.py"), reverse=True))
    return {
        node.name: node
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in exported
    }


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
