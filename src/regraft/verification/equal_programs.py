"""Find definitions that are the same program in both versions: equal bytecode but for the names of
local variables."""

from __future__ import annotations

import ast
import inspect
from types import CodeType

from regraft.verification.docstring_stripping import NoteStripper
from regraft.verification.introspective_code import accesses_errors, reads_sources, text_only_errors
from regraft.verification.local_names import OWN_VARIABLE_READERS
from regraft.verification.module_level import have_equal_surroundings
from regraft.verification.names_and_scopes import future_imports
from regraft.verification.normal_form import Normaliser


def equal_definitions(
    original: bytes, changed: bytes, *, messages: bool = True, return_classes: bool = False
) -> frozenset[str]:
    """Return the names of the top-level definitions that are the same program in both versions,
    also if their text differs.

    Local variables may have other names, the statements after a branch that leaves may be its
    `else`, a conditional expression may be a statement, and a result may have a name. Without
    `messages` these may differ, too: docstrings; the texts of builtin errors unless the file looks
    into errors; annotations that nothing reads; and `super()` may name its class, below a decorator
    only if decorators `return_classes` as they are. A file that reads source text or frames has no
    such definitions, nor has a file whose module level differs: a name in equal text may mean
    something else there.
    """
    trees = ast.parse(original), ast.parse(changed)
    if any(map(reads_sources, trees)) or not have_equal_surroundings(original, changed):
        return frozenset()
    old_definitions, new_definitions = map(_definitions, trees)
    text_errors = (
        frozenset() if messages or any(map(accesses_errors, trees)) else text_only_errors(trees)
    )
    file_imports = future_imports(trees[0].body)
    pairs = {
        name: (old_definitions[name], new_definitions[name])
        for name in old_definitions.keys() & new_definitions.keys()
    }
    if not messages:
        note_stripper = NoteStripper(trees, return_classes)
        pairs = {
            name: (note_stripper.strip(old), note_stripper.strip(new))
            for name, (old, new) in pairs.items()
        }
    return frozenset(
        name
        for name, (old, new) in pairs.items()
        if _are_equal_programs(old, new, text_errors, file_imports)
    )


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the functions and classes directly at the top level of a file by name, without async
    ones and names that several definitions at any depth have."""
    definition_types = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes_by_name: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(tree):
        if isinstance(node, definition_types):
            nodes_by_name.setdefault(node.name, []).append(node)
    top_level_names = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    return {
        name: nodes[0]
        for name, nodes in nodes_by_name.items()
        if name in top_level_names and len(nodes) == 1
    }


def are_equal_programs(old_definition: ast.stmt, new_definition: ast.stmt) -> bool:
    """Return whether two definitions, which get their normal form in place, compile to the same
    program; False where one does not compile. A file's `__future__` imports are left aside."""
    return _are_equal_programs(old_definition, new_definition, frozenset(), [])


def _are_equal_programs(
    old_definition: ast.stmt,
    new_definition: ast.stmt,
    errors: frozenset[str],
    file_imports: list[ast.ImportFrom],
) -> bool:
    """Return whether two definitions compile to the same program, but for the texts of some errors;
    False where one does not compile."""
    if errors:
        old_definition, new_definition = (
            _ErrorTextRemover(errors).visit(node) for node in (old_definition, new_definition)
        )
    try:
        old_code, new_code = (
            _code_key(_compile(node, file_imports)) for node in (old_definition, new_definition)
        )
    except (SyntaxError, ValueError, RecursionError):
        return False
    return old_code == new_code


def _compile(node: ast.stmt, file_imports: list[ast.ImportFrom]) -> CodeType:
    """Return the code of a definition, which gets its normal form in place, compiled with the
    `__future__` imports of its file."""
    tree = ast.Module([*file_imports, Normaliser().visit(node)], [])
    code = compile(ast.fix_missing_locations(tree), "", "exec", dont_inherit=True, optimize=0)
    assert isinstance(code, CodeType)
    return code


def _code_key(code: CodeType) -> tuple[object, ...]:
    """Return the parts of a code object that decide its behaviour; names of local variables are in
    it where the code can read them."""
    constants = tuple(
        _code_key(value) if isinstance(value, CodeType) else (type(value).__name__, repr(value))
        for value in code.co_consts
    )
    starred_flags = inspect.CO_VARARGS, inspect.CO_VARKEYWORDS
    starred_count = sum(bool(code.co_flags & flag) for flag in starred_flags)
    argument_count = code.co_argcount + code.co_kwonlyargcount + starred_count
    reads_own_variables = not OWN_VARIABLE_READERS.isdisjoint(code.co_names)
    names = code.co_varnames if reads_own_variables else code.co_varnames[:argument_count]
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    sizes = (*counts, code.co_nlocals, code.co_flags)
    cells = code.co_freevars, code.co_cellvars
    handlers = getattr(code, "co_exceptiontable", b"")  # before Python 3.11 a part of the bytecode
    return code.co_name, code.co_code, constants, code.co_names, names, sizes, cells, handlers


class _ErrorTextRemover(ast.NodeTransformer):
    """Takes the literal texts out of the errors that are raised, in place; computed parts of the
    texts stay."""

    def __init__(self, errors: frozenset[str]) -> None:
        self._errors = errors

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        """Take the literal text out of a raised error that has one argument and a name in
        `errors`."""
        match node.exc:
            case ast.Call(ast.Name(name), [argument], []) if name in self._errors:
                node.exc.args = [self._remove_text(argument)]
        return node

    def _remove_text(self, argument: ast.expr) -> ast.expr:
        """Return "" for a literal text, an f-string with its computed parts only, and any other
        argument as it is."""
        match argument:
            case ast.Constant(str()):
                return ast.copy_location(ast.Constant(""), argument)
            case ast.JoinedStr(values):
                computed = [value for value in values if not isinstance(value, ast.Constant)]
                return ast.copy_location(
                    ast.JoinedStr(computed) if computed else ast.Constant(""), argument
                )
        return argument
