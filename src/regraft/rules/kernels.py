"""Signatures of kernels, read without importing them: `regraft.ops` from its source, PyTorch from the table."""

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
    """Parameter names of a kernel with their defaults (MISSING where there is none); empty when it is unknown."""
    module, _, name = qualified.rpartition(".")
    if module == "regraft.ops":
        function = _ops().get(name)
        return _parameters(function.args) if function is not None else {}
    op = table().spelled(qualified)
    if op is None:
        return {}
    signature = table().operation(op).signatures[0]
    return {one.name: one.default if one.optional else MISSING for one in signature}


def positional_parameters(qualified: str) -> int:
    """How many arguments a kernel takes by position; all of its parameters where its source is not at hand."""
    module, _, name = qualified.rpartition(".")
    function = _ops().get(name) if module == "regraft.ops" else None
    if function is None:
        return len(kernel_parameters(qualified))
    return len(function.args.posonlyargs) + len(function.args.args)


@functools.cache
def _ops() -> Mapping[str, ast.FunctionDef]:
    trees = (ast.parse(path.read_bytes()) for path in sorted(OPS.glob("*.py"), reverse=True))
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


def _parameters(arguments: ast.arguments) -> dict[str, object]:
    found: dict[str, object] = dict.fromkeys(
        (one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)), MISSING
    )
    found.update((one.arg, ast.literal_eval(default)) for one, default in defaults(arguments))
    return found
