"""Read from the source of a model's `forward` which layers it applies to its inputs, and of which
type it tests them to be."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from torch import nn

from regraft.verification.child.checks.arguments_in_source import syntax_of

_DEPTH = 2  # the most methods that are followed, one from the other


def layers_by_input(model: nn.Module) -> dict[str, nn.Module]:
    """Return, by parameter of a model's `forward`, the first submodule with parameters that its
    source calls with the parameter as the first argument, as in `self.embed(tokens)`, before the
    name gets another value; of a method that is called so, the submodule which the method calls
    with it. {} where the source cannot be read."""
    return _layers_by_parameter(model, type(model).forward, _DEPTH)


def layers_by_list(model: nn.Module) -> dict[str, nn.ModuleList]:
    """Return, by parameter of a model's `forward`, the list of layers of which it applies one to
    each element of the parameter, as in `for i, x in enumerate(states): self.layers[i](x)` or
    `for layer, x in zip(self.layers, states): layer(x)`."""
    lists: dict[str, nn.ModuleList] = {}
    children = dict(model.named_children())
    for loop in ast.walk(syntax_of(type(model).forward)):
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call):
            names = [part.id for part in loop.iter.args if isinstance(part, ast.Name)]
            nodes = [node for part in (loop.iter, *loop.body) for node in ast.walk(part)]
            attributes = (node.attr for node in nodes if isinstance(node, ast.Attribute))
            values = [children.get(attribute) for attribute in attributes]
            layers = next((value for value in values if isinstance(value, nn.ModuleList)), None)
            if layers is not None and getattr(loop.iter.func, "id", "") in ("enumerate", "zip"):
                lists.update(dict.fromkeys(names, layers))
    return lists


def names_tested_for(model: nn.Module, kind: str) -> frozenset[str]:
    """Return the names that the source of a model's `forward` tests for being of a type, as in
    `isinstance(states, tuple)`."""
    return frozenset(
        node.args[0].id
        for node in ast.walk(syntax_of(type(model).forward))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and len(node.args) == 2
        and isinstance(node.args[0], ast.Name)
        and kind in {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
    )


def _layers_by_parameter(model: nn.Module, function: Any, depth: int) -> dict[str, nn.Module]:
    """Return the submodules of `layers_by_input` for a method; methods that it calls are followed
    `depth` deep."""
    tree = syntax_of(function)
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
        layer = None if is_store or name in stored else _layer_of(model, attribute, depth)
        if is_store:
            stored.add(name)
        elif layer is not None and any(True for _ in layer.parameters()):
            layers.setdefault(name, layer)
    return layers


def _layer_of(model: nn.Module, attribute: str, depth: int) -> nn.Module | None:
    """Return the submodule that a call of an attribute of a model gives its first argument to: the
    attribute, or what a method of the model calls with it; None where there is none."""
    value = getattr(model, attribute, None)
    method = getattr(type(model), attribute, None)
    if isinstance(value, nn.Module):
        return value
    if depth == 0 or not inspect.isfunction(method):
        return None
    first = next(iter([*inspect.signature(method).parameters][1:]), "")
    return _layers_by_parameter(model, method, depth - 1).get(first)


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
