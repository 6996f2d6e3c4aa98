"""What a definition declares around its functions: decorators, class attributes, keywords that it passes on."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType

from regraft.verify.changes import Change
from regraft.verify.child.checks.edited import definition_node, functions_of

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def undecided_declarations(change: Change, changed: ModuleType, original: ModuleType) -> Iterator[str]:
    """Yield a sentence for each declaration that differs between the versions and that no call decides.

    A decorator that is gone may act under conditions of its own; code in other files may read a class attribute; what
    `**kwargs` would carry is in no call.
    """
    before, after = definition_node(original, change.definition), definition_node(changed, change.definition)
    if before is None or after is None:
        return
    for name, decorators in _decorators(before).items():
        for gone in (decorators - _decorators(after).get(name, Counter())).elements():
            yield f"the decorator `{gone[:60]}` of {name} is gone, and no input shows when it acts"
    ours, theirs = _attributes(before), _attributes(after)
    for name in dict.fromkeys((*ours, *theirs)):
        if ours.get(name) != theirs.get(name):
            yield f"the class attribute {name} is another, and code in other files may read it"
    passed = _passed_on(after)
    for name, count in _passed_on(before).items():
        if passed.get(name, count) < count:
            yield f"{name} passes on its `**` keywords to fewer calls, and no call has such keywords"


def _decorators(definition: ast.AST) -> dict[str, Counter[str]]:
    nodes = (node for node in ast.walk(definition) if isinstance(node, _DEFINITIONS))
    return {node.name: Counter(ast.unparse(decorator) for decorator in node.decorator_list) for node in nodes}


def _attributes(definition: ast.AST) -> dict[str, str]:
    """Return the texts of what a class body assigns, by name; functions assigned in it aside."""
    assigned: dict[str, str] = {}
    for statement in definition.body if isinstance(definition, ast.ClassDef) else ():
        match statement:
            case ast.Assign(targets, value):
                assigned.update((ast.unparse(target), ast.dump(value)) for target in targets)
            case ast.AnnAssign(target, _, ast.expr() as value):
                assigned[ast.unparse(target)] = ast.dump(value)
    return assigned


def _passed_on(definition: ast.AST) -> dict[str, int]:
    """Return by function how many calls get its `**` keywords."""
    counts: dict[str, int] = {}
    for function in (node for node in ast.walk(definition) if isinstance(node, _FUNCTIONS)):
        if function.args.kwarg is not None:
            counts[function.name] = _calls_with(function, function.args.kwarg.arg)
    return counts


def _calls_with(function: ast.AST, keywords: str) -> int:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return sum(
        keyword.arg is None and isinstance(keyword.value, ast.Name) and keyword.value.id == keywords
        for call in calls
        for keyword in call.keywords
    )


def is_returned(name: str, modules: Iterable[ModuleType]) -> bool:
    """Whether the name of a class means the class that its own methods know, whatever decorates it."""
    pairs = []
    for module in modules:
        cls = getattr(module, name, None)
        if not isinstance(cls, type):
            return False
        for function in functions_of(cls, str(module.__file__)):
            variables = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
            if "__class__" in variables:
                pairs.append((variables["__class__"].cell_contents, cls))
    return bool(pairs) and all(known is cls for known, cls in pairs)
