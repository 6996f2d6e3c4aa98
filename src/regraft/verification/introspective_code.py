"""Programs that look at the source, the signatures or the errors of their own functions."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

from regraft.verification.bound_and_read_names import bound_names
from regraft.verification.local_names import OWN_VARIABLE_READERS
from regraft.verification.names_and_scopes import name_of, words_of

# Names through which a file can read variable names, documentation or source text of callers, which
# equal bytecode does not decide.
_SOURCES = frozenset(
    {
        "getsource",
        "getsourcelines",
        "getdoc",
        "__code__",
        "__doc__",
        "script",
        "script_method",
        "script_if_tracing",
    }
    | {
        "inspect",
        "_getframe",
        "_current_frames",
        "f_locals",
        "f_back",
        "f_code",
        "tb_frame",
        "settrace",
        "setprofile",
    }
    | {
        "gi_frame",
        "gi_code",
        "cr_frame",
        "cr_code",
        "ag_frame",
        "ag_code",
        "gc",
        "builtins",
        "__builtins__",
    }
    | {"__file__", "__debug__", "linecache", "dis"}
    | {"triton", "numba", "njit", "numexpr", "pandas", "tilelang", "cutlass", "taichi", "helion"}
)
# of `inspect`
_SIGNATURES = frozenset(
    {"signature", "Parameter", "Signature", "isclass", "isfunction", "ismethod"}
)
# Names through which code gets hold of errors without `except ... as`: there the text of an error
# is a result.
_ERRORS = frozenset(
    {
        "__exit__",
        "__aexit__",
        "exc_info",
        "traceback",
        "excepthook",
        "unraisablehook",
        "exception",
        "throw",
    }
    | {
        "return_exceptions",
        "__context__",
        "__cause__",
        "last_value",
        "last_exc",
        "ExitStack",
        "AsyncExitStack",
    }
)
# Builtin errors whose arguments decide more than their text.
_STRUCTURED_ERRORS = (
    StopIteration,
    StopAsyncIteration,
    UnicodeError,
    OSError,
    ImportError,
    SyntaxError,
)


def reads_sources(tree: ast.Module) -> bool:
    """Return whether a file names anything by which it could read its source text, frames, or local
    variables of other functions."""
    called_ids = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    harmless_words = {"inspect"} if reads_signatures_only(tree) else set()
    for node in ast.walk(tree):
        if _SOURCES.intersection(set(words_of(node)) - harmless_words):
            return True
        if passes_on_own_variables(node, called_ids):
            return True
    return False


def passes_on_own_variables(node: ast.AST, called_ids: set[int]) -> bool:
    """Return whether a node imports a function that reads the variables of its caller, or names one
    without a call of it; `called_ids` are those of the functions that calls name."""
    if isinstance(node, ast.alias):
        return not OWN_VARIABLE_READERS.isdisjoint(words_of(node))
    return (
        isinstance(node, ast.Name)
        and node.id in OWN_VARIABLE_READERS
        and id(node) not in called_ids
    )


def reads_signatures_only(tree: ast.Module) -> bool:
    """Return whether a file uses `inspect` for the signatures and kinds of functions alone."""
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.ImportFrom("inspect", aliases) if (
                not {alias.name for alias in aliases} <= _SIGNATURES
            ):
                return False
            case ast.alias("inspect", str()):
                return False
    signature_uses = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in _SIGNATURES
    }
    return all(id(node) in signature_uses for node in nodes if name_of(node) == "inspect")


def accesses_errors(tree: ast.Module) -> bool:
    """Return whether a file binds an error that was raised (`except ... as`), or names anything
    that gives access to one."""
    nodes = list(ast.walk(tree))
    binds_errors = any(isinstance(node, ast.ExceptHandler) and node.name for node in nodes)
    return binds_errors or any(_ERRORS.intersection(words_of(node)) for node in nodes)


def text_only_errors(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the names of the builtin errors of which nothing but the text depends on their
    arguments, without those that a file of `trees` binds; none where a file imports all names of
    another."""
    bound = frozenset().union(*map(bound_names, trees))
    if "*" in bound:
        return frozenset()
    values = ((name, value) for name, value in vars(builtins).items() if name not in bound)
    errors = (
        (name, value)
        for name, value in values
        if isinstance(value, type) and issubclass(value, Exception)
    )
    return frozenset(name for name, value in errors if not issubclass(value, _STRUCTURED_ERRORS))
