"""Arguments that a file gives its own classes, classes and functions among them, as in
`ResNet(Bottleneck, [3, 4, 6, 3], widths())`.

The text is read, and names are looked up in the imported file; only functions that take no argument
are called. What depends on variables of a function is left out.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

_MOST_CALLS = 3  # the most calls with different classes and functions whose arguments are tried


def stated_arguments(cls: type, module: ModuleType, source: str) -> Iterator[dict[str, Any]]:
    """Yield the arguments of calls of a class in the source of a module, by the names of the
    parameters, of calls with different classes or functions among them, at most `_MOST_CALLS`."""
    signature = inspect.signature(cls)
    yielded: list[dict[str, Any]] = []
    for call in _calls_of(cls, module, source):
        arguments = _arguments_of(call, signature, module)
        objects = {key: value for key, value in arguments.items() if _is_object(value)}
        if objects and objects not in yielded and len(yielded) < _MOST_CALLS:
            yielded.append(objects)
            yield arguments


def _calls_of(cls: type, module: ModuleType, source: str) -> Iterator[ast.Call]:
    """Yield the calls of a class by its name in the source of a module, in their order."""
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if getattr(module, node.func.id, None) is cls
    ]
    yield from sorted(calls, key=lambda call: call.lineno)


def _arguments_of(
    call: ast.Call, signature: inspect.Signature, module: ModuleType
) -> dict[str, Any]:
    """Return the values of the arguments of a call that are known, by the names of the parameters;
    {} where the call unpacks positional arguments."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return {}
    pairs = [*zip(signature.parameters, call.args, strict=False)]
    pairs += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg]
    return {
        name: value
        for name, expression in pairs
        if name in signature.parameters
        for value in _values_of(expression, module)
    }


def _values_of(expression: ast.expr, module: ModuleType) -> Iterator[Any]:
    """Yield the value of a literal, of the name of a class or function of a module, or of the call
    of such a function without arguments that returns a literal; nothing for other expressions."""
    match expression:
        case ast.Name(name):
            if _is_object(value := getattr(module, name, None)):
                yield value
        case ast.Call(ast.Name(name), [], []):
            function = getattr(module, name, None)
            if isinstance(function, FunctionType):
                yield from _literal_result(function)
        case _:
            try:
                yield ast.literal_eval(expression)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return


def _literal_result(function: FunctionType) -> Iterator[Any]:
    """Yield the result of a function that is called without arguments where it is a literal;
    nothing for another result, and for an error."""
    try:
        result = function()
        if result == ast.literal_eval(repr(result)):
            yield result
    except Exception:  # noqa: BLE001 - code of the file, which may need what is not there
        return


def _is_object(value: Any) -> bool:
    """Return whether a value is a class or a function of Python."""
    return isinstance(value, type | FunctionType)
