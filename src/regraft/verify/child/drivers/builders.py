"""What the functions of a file that build its models give the classes: `def resnet18(**kwargs) -> ResNet`.

Such a function is called while the constructor of the class only notes its arguments. So nothing is built, and what
is known of the class are values that somebody chose for it, instead of guesses from names.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

from torch import nn

from regraft.verify.child.drivers.base import guarded
from regraft.verify.child.ledger import Ledger

# Functions of one class that are tried: a file may have a hundred, which differ in sizes.
EACH = 3


@dataclass(frozen=True, slots=True)
class Builder:
    """A function of the file, the class that it builds, and the plain ones among what it gives its constructor.

    `takes` are the keywords that the function has; None where it takes any.
    """

    name: str
    cls: type
    values: Mapping[str, Any]
    takes: frozenset[str] | None

    def overrides(self, small: Mapping[str, Any]) -> dict[str, Any]:
        """What the function has to be given so that the constructor gets these values."""
        return {
            key: value
            for key, value in small.items()
            if value != self.values.get(key) and (self.takes is None or key in self.takes)
        }


class _Noted(BaseException):
    """Ends a function where it builds its class; not an Exception, which it might handle."""

    def __init__(self, cls: type, values: dict[str, Any]) -> None:
        super().__init__()
        self.cls, self.values = cls, values


def builders(module: ModuleType, ledger: Ledger) -> Iterator[Builder]:
    """Yield the functions that need no argument and return a model of the file, a few for each class."""
    every = dict(vars(module))
    own = {name: value for name, value in every.items() if _is_own(value, type, module)}
    classes = {name: value for name, value in own.items() if issubclass(value, nn.Module)}
    count: dict[type, int] = {}
    for name, function in every.items():
        if _is_own(function, FunctionType, module):
            yield from guarded(_builders_of(name, function, classes, count), ledger, f"{name} (builders)")


def _builders_of(
    name: str, function: FunctionType, classes: Mapping[str, type], count: dict[type, int]
) -> Iterator[Builder]:
    """Yield a function that builds a model of one of the classes, unless `count` has enough of that class."""
    if not _needs_nothing(function):
        return
    returned = _returned(function, frozenset())
    wanted = [value for one, value in classes.items() if one in returned]
    wanted += [value for value in classes.values() if issubclass(value, tuple(wanted)) and value not in wanted]
    if not wanted or all(count.get(one, 0) >= EACH for one in wanted):
        return
    noted = _given(function, wanted)
    if noted is not None and count.get(noted.cls, 0) < EACH:
        count[noted.cls] = count.get(noted.cls, 0) + 1
        keywords = inspect.signature(function).parameters.values()
        some = any(one.kind is one.VAR_KEYWORD for one in keywords)
        yield Builder(name, noted.cls, noted.values, None if some else frozenset(one.name for one in keywords))


def _is_own(value: Any, kind: type, module: ModuleType) -> bool:
    return isinstance(value, kind) and getattr(value, "__module__", "") == module.__name__


def _needs_nothing(function: FunctionType) -> bool:
    """Whether it can be called without arguments."""
    named = (one for one in inspect.signature(function).parameters.values() if one.kind < one.VAR_KEYWORD)
    return all(one.default is not one.empty or one.kind is one.VAR_POSITIONAL for one in named)


def _returned(function: FunctionType, visited: frozenset[str]) -> set[str]:
    """Return the names of the classes that a function says it returns, or else of what its results are made with.

    That is: what it calls for a result, what such a call is given by its name (`build(Model, ...)`), and what other
    functions of the file return that are called for it; `visited` are those whose results are asked for already.
    """
    note = function.__annotations__.get("return")
    if note is not None:
        return {note.rpartition(".")[2] if isinstance(note, str) else getattr(note, "__name__", "")}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return set()
    results = [node.value for node in ast.walk(body) if isinstance(node, ast.Return)]
    variables = {result.id for result in results if isinstance(result, ast.Name)}
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in variables for target in node.targets
        ):
            results.append(node.value)
    calls = [result for result in results if isinstance(result, ast.Call)]
    parts = [part for call in calls for part in (call.func, *call.args)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    for name in names - visited:
        helper = function.__globals__.get(name)
        if isinstance(helper, FunctionType) and helper.__module__ == function.__module__:
            names = names | _returned(helper, visited | names)
    return names


def _given(function: FunctionType, classes: list[type]) -> _Noted | None:
    """What the function gives the constructor of the first of the classes that it builds, defaults included."""
    with ExitStack() as stack:
        for cls in classes:
            stack.enter_context(mock.patch.object(cls, "__init__", _noting(cls)))
        try:
            function()
        except _Noted as noted:
            return noted
        except Exception:  # noqa: BLE001 - it needs something that is not there; then it tells nothing
            return None
    return None


def _noting(cls: type) -> Any:
    signature = inspect.signature(cls)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        values = dict(given.arguments)
        for key, one in signature.parameters.items():
            if one.kind is one.VAR_KEYWORD:
                values.update(values.pop(key, {}))
            elif one.kind is one.VAR_POSITIONAL:
                values.pop(key, None)
        raise _Noted(type(self), {key: value for key, value in values.items() if _is_plain(value)})

    return __init__


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    return value is None or isinstance(value, bool | int | float | str)
