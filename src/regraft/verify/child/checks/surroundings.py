"""Reads of the process around a model: the clock, the environment, addresses, callers. No input controls these."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import ModuleType

from regraft.verify.changes import Change
from regraft.verify.child.checks.edited import definition_node, syntax_tree
from regraft.verify.types import MODULE

_MODULES = frozenset({
    "sys", "os", "inspect", "gc", "time", "datetime", "socket", "platform", "subprocess", "threading", "ctypes",
    "uuid", "secrets", "tempfile", "getpass", "importlib", "traceback", "resource", "signal", "multiprocessing",
    "pathlib",
})  # fmt: skip
_FUNCTIONS = frozenset({"id", "hash", "open", "globals", "locals", "vars", "input", "eval", "exec", "__import__"})
_METHODS = frozenset({
    "data_ptr", "_version", "storage_offset", "untyped_storage", "__module__", "__file__", "co_name", "f_back",
    "initial_seed", "get_rng_state", "get_num_threads", "get_num_interop_threads", "device_count", "is_available",
})  # fmt: skip
_NAMES = frozenset({"__file__", "__name__", "__debug__"})


def reads_of_surroundings(change: Change, changed: ModuleType, original: ModuleType) -> tuple[str, ...]:
    """Return a sentence for each read of the process in changed lines that the original's definition does not have."""
    node, before = _tree(change.definition, changed), _tree(change.definition, original)
    if node is None:
        return ()
    known = {text for _, text in _reads(before, original)} if before is not None else set()
    lines = {line for start, end in change.statements for line in range(start, end + 1)}
    new = {(line, text) for line, text in _reads(node, changed) if line in lines and text not in known}
    return tuple(f"line {line} reads `{text}`, which no input controls" for line, text in sorted(new))


def _tree(definition: str, module: ModuleType) -> ast.AST | None:
    return syntax_tree(str(module.__file__)) if definition == MODULE else definition_node(module, definition)


def _reads(tree: ast.AST, module: ModuleType) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = _module_name(node.value, module)
            if owner in _MODULES or node.attr in _METHODS:
                yield node.lineno, ast.unparse(node)[:60]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            value = vars(module).get(node.id)
            home = str(getattr(value, "__module__", "")).partition(".")[0]
            function = node.id in _FUNCTIONS and node.id not in vars(module)
            if node.id in _NAMES or function or (callable(value) and home in _MODULES):
                yield node.lineno, node.id


def _module_name(node: ast.expr, module: ModuleType) -> str:
    """Return the top-level name of the module that a name stands for in a file, or ""."""
    value = vars(module).get(node.id) if isinstance(node, ast.Name) else None
    return value.__name__.partition(".")[0] if isinstance(value, ModuleType) else ""
