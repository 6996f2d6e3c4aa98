"""Read from the source of a model's `forward` which layers it applies to its inputs."""

from __future__ import annotations

import ast
from typing import Any

from torch import nn

from regraft.verification.child.checks.source_reads import syntax_of


def layers_by_input(model: nn.Module) -> dict[str, nn.Module]:
    """Return, by parameter of a model's `forward`, the first submodule that its source calls with
    the parameter as the first argument, as in `self.embed(tokens)`, before the name gets another
    value; {} where the source cannot be read."""
    tree = syntax_of(type(model).forward)
    calls = [(_end(node), 0, *call) for node in ast.walk(tree) for call in _layer_calls(node)]
    stores = [
        (_end(node), 1, name.id, "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    ]
    layers: dict[str, nn.Module] = {}
    stored: set[str] = set()
    for _, is_store, name, attribute in sorted((*calls, *stores)):
        layer = None if is_store or name in stored else getattr(model, attribute, None)
        if is_store:
            stored.add(name)
        elif isinstance(layer, nn.Module):
            layers.setdefault(name, layer)
    return layers


def _layer_calls(node: ast.AST) -> list[tuple[str, str]]:
    """Return the name of the first argument and the attribute of `self` where a node is a call of
    such an attribute with a name; [] for any other node."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name("self"), attr=attribute), args=[ast.Name(name), *_]
        ):
            return [(name, attribute)]
    return []


def _end(node: Any) -> tuple[int, int]:
    """Return the place where an expression or statement ends."""
    return node.end_lineno, node.end_col_offset
