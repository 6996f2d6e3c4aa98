"""Find the methods of a model that have to be called before `forward`, such as
`setup_caches(batch, length)`, and call them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from regraft.verification.child.checks.arguments_in_source import syntax_of_class
from regraft.verification.child.drivers.field_tables import PREPARED_SIZES
from regraft.verification.child.drivers.guessed_slots import parameters

Preparation = Mapping[str, Mapping[str, Any]]  # keyword arguments by the name of a method


def preparations(model: Any, module: ModuleType) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield, for each method that the file defines for the class of a model, the method with sizes
    for its parameters: where it assigns an attribute that is None in the model, or in one of its
    modules of the file, and where the names of all parameters without a default tell a size."""
    unset = _unset_attributes(model, module)
    bases = [base for base in type(model).__mro__ if base.__module__ == module.__name__]
    for base in bases if unset else ():
        for node in _methods(base):
            method = getattr(type(model), node.name, None)
            if isinstance(method, FunctionType) and not unset.isdisjoint(_assigned(node)):
                arguments = _sizes_for(method)
                if arguments is not None:
                    yield {node.name: arguments}


def _unset_attributes(model: Any, module: ModuleType) -> set[str]:
    """Return the names of the attributes, buffers and submodules that are None in those of a
    model's modules whose class the file defines."""
    parts = [part for part in model.modules() if type(part).__module__ == module.__name__]
    tables = [
        table
        for part in parts
        for table in (vars(part), vars(part)["_buffers"], vars(part)["_modules"])
    ]
    return {name for table in tables for name, value in table.items() if value is None}


def _methods(cls: type) -> Iterator[ast.FunctionDef]:
    """Yield the methods of a class but `forward` and those of Python's protocols."""
    for definition in ast.walk(syntax_of_class(cls)):
        for node in definition.body if isinstance(definition, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef) and not node.name.startswith(("__", "forward")):
                yield node


def _assigned(method: ast.FunctionDef) -> set[str]:
    """Return the names of the attributes that a method assigns, of any object, and of the buffers
    and modules that it registers."""
    nodes = list(ast.walk(method))
    names = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    registered = (call.args[0] for call in calls if ast.unparse(call.func).count(".register_"))
    return names | {
        name.value
        for name in registered
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    }


def _sizes_for(method: FunctionType) -> dict[str, Any] | None:
    """Return a size for each parameter of a method without a default; None where the name of one
    tells none."""
    arguments: dict[str, Any] = {}
    for parameter in parameters(inspect.signature(method)):
        if parameter.default is not parameter.empty:
            continue
        size = next((size for names, size in PREPARED_SIZES if parameter.name in names), None)
        if size is None:
            return None
        arguments[parameter.name] = size
    return arguments


def prepare(model: Any, preparation: Preparation) -> Any:
    """Call the methods of a preparation on a model, and return the model."""
    for name, arguments in preparation.items():
        getattr(model, name)(**arguments)
    return model
