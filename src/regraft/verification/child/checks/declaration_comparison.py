"""Compare what a definition declares around the bodies of its functions: decorators, class
attributes, keywords passed on."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType

from regraft.verification.child.checks.code_replacement import definition_node, functions_of
from regraft.verification.definition_changes import Change

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def undecided_declarations(
    change: Change, changed: ModuleType, original: ModuleType
) -> Iterator[str]:
    """Yield a sentence for each declaration that differs between the versions and that no call
    decides; nothing where either version lacks the definition.

    A removed decorator may act under conditions of its own; code in other files may read a class
    attribute that has another value, is new or gone; no recorded call has the keywords that
    `**kwargs` would carry. A new decorator yields nothing.
    """
    node_before, node_after = (
        definition_node(original, change.definition),
        definition_node(changed, change.definition),
    )
    if node_before is None or node_after is None:
        return
    for name, decorators in _decorators_by_name(node_before).items():
        for decorator in (
            decorators - _decorators_by_name(node_after).get(name, Counter())
        ).elements():
            yield (
                f"the decorator `{decorator[:60]}` of {name} is gone, and no input shows when it"
                " acts"
            )
    attributes_before, attributes_after = (
        _assigned_by_class_body(node_before),
        _assigned_by_class_body(node_after),
    )
    for name in dict.fromkeys((*attributes_before, *attributes_after)):
        if attributes_before.get(name) != attributes_after.get(name):
            yield f"the class attribute {name} is another, and code in other files may read it"
    forwards_after = _forwarding_calls(node_after)
    for name, count in _forwarding_calls(node_before).items():
        if forwards_after.get(name, count) < count:
            yield (
                f"{name} passes on its `**` keywords to fewer calls, and no call has such keywords"
            )


def _decorators_by_name(definition: ast.AST) -> dict[str, Counter[str]]:
    """Return by name the decorators, as text, of the definition and of all definitions in it; of
    equal names, the last counts."""
    nodes = (node for node in ast.walk(definition) if isinstance(node, _DEFINITIONS))
    return {
        node.name: Counter(ast.unparse(decorator) for decorator in node.decorator_list)
        for node in nodes
    }


def _assigned_by_class_body(definition: ast.AST) -> dict[str, str]:
    """Return by name a text of each value that a class body assigns; methods are left out, and {}
    is returned for a function."""
    assigned: dict[str, str] = {}
    for statement in definition.body if isinstance(definition, ast.ClassDef) else ():
        match statement:
            case ast.Assign(targets, value):
                assigned.update((ast.unparse(target), ast.dump(value)) for target in targets)
            case ast.AnnAssign(target, _, ast.expr() as value):
                assigned[ast.unparse(target)] = ast.dump(value)
    return assigned


def _forwarding_calls(definition: ast.AST) -> dict[str, int]:
    """Return, by the name of each function in a definition that takes `**` keywords, the number of
    calls in the function that pass these keywords on. Of functions of the same name only the last
    in the definition counts."""
    counts: dict[str, int] = {}
    for function in (node for node in ast.walk(definition) if isinstance(node, _FUNCTIONS)):
        if function.args.kwarg is not None:
            counts[function.name] = _count_calls_with(function, function.args.kwarg.arg)
    return counts


def _count_calls_with(function: ast.AST, keywords: str) -> int:
    """Return the number of calls in a function that get `**keywords`."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return sum(
        keyword.arg is None and isinstance(keyword.value, ast.Name) and keyword.value.id == keywords
        for call in calls
        for keyword in call.keywords
    )


def is_bound_to_own_class(name: str, modules: Iterable[ModuleType]) -> bool:
    """Return whether a class's name means the very class to which its own methods refer (by
    `super()` or `__class__`), in all modules.

    A decorator of the class may return another class. Return False where no method refers to its
    class, or the name is no class.
    """
    pairs = []
    for module in modules:
        cls = getattr(module, name, None)
        if not isinstance(cls, type):
            return False
        for function in functions_of(cls, str(module.__file__)):
            cells = dict(
                zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            )
            if "__class__" in cells:
                pairs.append((cells["__class__"].cell_contents, cls))
    return bool(pairs) and all(own_class is cls for own_class, cls in pairs)
