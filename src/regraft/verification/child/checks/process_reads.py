"""Find in changed lines new reads of the process, which no input controls: the clock, the
environment, addresses, callers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import ModuleType

from regraft.verification.child.checks.code_replacement import definition_node, syntax_tree
from regraft.verification.definition_changes import Change
from regraft.verification.types import MODULE

_MODULES = frozenset(
    {
        "sys",
        "os",
        "inspect",
        "gc",
        "time",
        "datetime",
        "socket",
        "platform",
        "subprocess",
        "threading",
        "ctypes",
        "uuid",
        "secrets",
        "tempfile",
        "getpass",
        "importlib",
        "traceback",
        "resource",
        "signal",
        "multiprocessing",
        "pathlib",
    }
)
_FUNCTIONS = frozenset(
    {"id", "hash", "open", "globals", "locals", "vars", "input", "eval", "exec", "__import__"}
)
_METHODS = frozenset(
    {
        "data_ptr",
        "_version",
        "storage_offset",
        "untyped_storage",
        "__module__",
        "__file__",
        "co_name",
        "f_back",
        "initial_seed",
        "get_rng_state",
        "get_num_threads",
        "get_num_interop_threads",
        "device_count",
        "is_available",
    }
)
_NAMES = frozenset({"__file__", "__name__", "__debug__"})


def new_process_reads(change: Change, changed: ModuleType, original: ModuleType) -> tuple[str, ...]:
    """Return a sentence for each read of the process in changed lines that the original's
    definition does not have, sorted by line; () where the changed version lacks the definition."""
    node = _definition_or_file(change.definition, changed)
    original_node = _definition_or_file(change.definition, original)
    if node is None:
        return ()
    reads = _reads(original_node, original) if original_node is not None else ()
    original_reads = {text for _, text in reads}
    lines = {line for start, end in change.statements for line in range(start, end + 1)}
    new_reads = {
        (line, text)
        for line, text in _reads(node, changed)
        if line in lines and text not in original_reads
    }
    return tuple(
        f"line {line} reads `{text}`, which no input controls" for line, text in sorted(new_reads)
    )


def _definition_or_file(definition: str, module: ModuleType) -> ast.AST | None:
    """Return the syntax tree of a definition, or that of the file for the module level; None where
    there is none."""
    return (
        syntax_tree(str(module.__file__))
        if definition == MODULE
        else definition_node(module, definition)
    )


def _reads(tree: ast.AST, module: ModuleType) -> Iterator[tuple[int, str]]:
    """Yield the line and the text (at most 60 characters) of each read of the process: attributes
    of modules like `sys`, methods like `data_ptr`, built-in functions like `id`, and names like
    `__file__`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = _module_name(node.value, module)
            if owner in _MODULES or node.attr in _METHODS:
                yield node.lineno, ast.unparse(node)[:60]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            value = vars(module).get(node.id)
            value_module = str(getattr(value, "__module__", "")).partition(".")[0]
            is_builtin_function = node.id in _FUNCTIONS and node.id not in vars(module)
            if (
                node.id in _NAMES
                or is_builtin_function
                or (callable(value) and value_module in _MODULES)
            ):
                yield node.lineno, node.id


def _module_name(node: ast.expr, module: ModuleType) -> str:
    """Return the top-level name of the module that a name stands for in a file; "" where it stands
    for none."""
    value = vars(module).get(node.id) if isinstance(node, ast.Name) else None
    return value.__name__.partition(".")[0] if isinstance(value, ModuleType) else ""
