"""Find functions of a file that build its models, such as `def resnet18(**kwargs) -> ResNet`, and
the values that they give the classes.

Such a function is called while the constructor of the class is replaced by one that only records
its arguments. So nothing is built, and the values for the class are ones that somebody chose for
it, instead of guesses from names.
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

from regraft.verification.child.drivers.driver_protocol import yield_until_error
from regraft.verification.child.evidence_record import Ledger

# The most functions of one class that are tried: a file may have a hundred, which differ in sizes.
EACH = 3


@dataclass(frozen=True, slots=True)
class Builder:
    """A function of the file, the class that it builds, and the plain values (`_is_plain`) that it
    gives the constructor, defaults included.

    `takes` are the names of the function's parameters; None where it accepts any keyword.
    """

    name: str
    cls: type
    values: Mapping[str, Any]
    takes: frozenset[str] | None

    def overrides(self, small: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the function with which the constructor gets the values of
        `small`: those that differ from `values`. Arguments that the function does not take are left
        out, so the constructor may get some of its old values."""
        return {
            key: value
            for key, value in small.items()
            if value != self.values.get(key) and (self.takes is None or key in self.takes)
        }


class _Construction(BaseException):
    """Raised by a replaced constructor to end the function that called it: the class and the plain
    values that the constructor got.

    It is no Exception, since the function might handle one.
    """

    def __init__(self, cls: type, values: dict[str, Any]) -> None:
        super().__init__()
        self.cls, self.values = cls, values


def builders(module: ModuleType, ledger: Ledger) -> Iterator[Builder]:
    """Yield the functions of a module that need no argument and return a model of the module's own
    classes, at most `EACH` for a class. An error of a function is recorded in the ledger."""
    attributes = dict(vars(module))
    own_classes = {
        name: value for name, value in attributes.items() if _is_own(value, type, module)
    }
    classes = {name: value for name, value in own_classes.items() if issubclass(value, nn.Module)}
    count_by_class: dict[type, int] = {}
    for name, function in attributes.items():
        if _is_own(function, FunctionType, module):
            yield from yield_until_error(
                _builders_of(name, function, classes, count_by_class), ledger, f"{name} (builders)"
            )


def _builders_of(
    name: str, function: FunctionType, classes: Mapping[str, type], count_by_class: dict[type, int]
) -> Iterator[Builder]:
    """Yield the builder of a function, or nothing where the function needs arguments, builds none
    of the classes, or builds one that has `EACH` builders in `count_by_class`, where it is
    counted."""
    if not _has_all_defaults(function):
        return
    built_classes = _built_classes(function, classes)
    if not built_classes or all(count_by_class.get(cls, 0) >= EACH for cls in built_classes):
        return
    construction = _first_construction(function, built_classes)
    if construction is not None and count_by_class.get(construction.cls, 0) < EACH:
        count_by_class[construction.cls] = count_by_class.get(construction.cls, 0) + 1
        keywords = inspect.signature(function).parameters.values()
        takes_any = any(keyword.kind is keyword.VAR_KEYWORD for keyword in keywords)
        yield Builder(
            name,
            construction.cls,
            construction.values,
            None if takes_any else frozenset(keyword.name for keyword in keywords),
        )


def _built_classes(function: FunctionType, classes: Mapping[str, type]) -> list[type]:
    """Return those of some classes that a function is annotated to return, or else those that its
    results call or pass on (`_returned_names`); then those that inherit from them. [] for none."""
    returned_names = _returned_names(function, frozenset())
    named_classes = [value for class_name, value in classes.items() if class_name in returned_names]
    heirs = [value for value in classes.values() if issubclass(value, tuple(named_classes))]
    return named_classes + [value for value in heirs if value not in named_classes]


def _is_own(value: Any, kind: type, module: ModuleType) -> bool:
    """Return whether a value is an instance of `kind` and is defined in a module."""
    return isinstance(value, kind) and getattr(value, "__module__", "") == module.__name__


def _has_all_defaults(function: FunctionType) -> bool:
    """Return whether a function can be called without arguments."""
    parameters = (
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind < parameter.VAR_KEYWORD
    )
    return all(
        parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL
        for parameter in parameters
    )


def _returned_names(function: FunctionType, visited: frozenset[str]) -> set[str]:
    """Return the name of the class that a function is annotated to return ("" for an annotation
    without a name), or else the names of what builds its results.

    These are the functions and classes that it calls for a result, the positional arguments of such
    a call that are names (`build(Model, ...)`), and the names that the called functions of the same
    file return. `visited` are the functions that were already looked up.
    """
    annotation = function.__annotations__.get("return")
    if annotation is not None:
        return {
            annotation.rpartition(".")[2]
            if isinstance(annotation, str)
            else getattr(annotation, "__name__", "")
        }
    names = _names_in_results(function)
    for name in names - visited:
        helper = function.__globals__.get(name)
        if isinstance(helper, FunctionType) and helper.__module__ == function.__module__:
            names = names | _returned_names(helper, visited | names)
    return names


def _names_in_results(function: FunctionType) -> set[str]:
    """Return the names that a function calls for a result, and the names among the positional
    arguments of such calls; an empty set where its source is not available."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return set()
    calls = [result for result in _result_expressions(body) if isinstance(result, ast.Call)]
    parts = [part for call in calls for part in (call.func, *call.args)]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def _result_expressions(body: ast.Module) -> list[ast.expr | None]:
    """Return the expressions after every `return` (None for a bare one; the variable itself for
    `return x`), then those that are assigned to a variable that is returned, anywhere in the body.
    Functions in it count, too."""
    nodes = list(ast.walk(body))
    results = [node.value for node in nodes if isinstance(node, ast.Return)]
    variables = {result.id for result in results if isinstance(result, ast.Name)}
    assignments = [node for node in nodes if isinstance(node, ast.Assign)]
    return results + [node.value for node in assignments if _has_target(node, variables)]


def _has_target(assignment: ast.Assign, variables: set[str]) -> bool:
    """Return whether an assignment binds one of some variables to its whole value, not to a part of
    it as in `a, b = ...`."""
    return any(
        isinstance(target, ast.Name) and target.id in variables for target in assignment.targets
    )


def _first_construction(function: FunctionType, classes: list[type]) -> _Construction | None:
    """Call a function, which ends where it first builds one of some classes; return that class and
    the plain values for its constructor. None where it builds none of them or raises an error."""
    with ExitStack() as stack:
        for cls in classes:
            stack.enter_context(mock.patch.object(cls, "__init__", _ending_constructor(cls)))
        try:
            function()
        except _Construction as construction:
            return construction
        except Exception:  # noqa: BLE001 - it needs something that is not there; then it tells nothing
            return None
    return None


def _ending_constructor(cls: type) -> Any:
    """Return a constructor for a class that raises _Construction with its plain arguments by name,
    defaults included. Other arguments and those of `*args` are left out."""
    signature = inspect.signature(cls)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        """Raise _Construction with the plain arguments; build nothing."""
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                values.update(values.pop(name, {}))
            elif parameter.kind is parameter.VAR_POSITIONAL:
                values.pop(name, None)
        raise _Construction(
            type(self), {name: value for name, value in values.items() if _is_plain(value)}
        )

    return __init__


def _is_plain(value: Any) -> bool:
    """Return whether a value is a boolean, a number, a string or None, or a list, tuple or
    dictionary with string keys of such values."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(element) for key, element in value.items())
    return value is None or isinstance(value, bool | int | float | str)
