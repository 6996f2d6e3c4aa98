"""Import a script of which a statement fails, such as one that reads its training data: without
that statement, and with those after it that only import, define or assign."""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

import torch

from regraft.verification.bound_and_read_names import mentioned_names, module_names
from regraft.verification.child.drivers.guessed_values import value_for
from regraft.verification.names_and_scopes import future_imports, name_of
from regraft.verification.top_level_definitions import Definition, definitions_by_name

_FACTS = "__regraft_script__"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DEFINING = (ast.Import, ast.ImportFrom, *_DEFINITIONS, ast.Assign, ast.AnnAssign)
# functions that modify their first argument, also a class or module
_SETTERS = frozenset({"setattr", "delattr"})
# functions through which code may set any variable
_WRITE_ANYTHING = frozenset({"exec", "globals"})
_CONSTANTS = (int, float, complex, str, bytes, tuple, type(None), torch.device, torch.dtype)


@dataclass(frozen=True, slots=True)
class Script:
    """A script that was imported in part.

    failing  the syntax tree of the statement that fails, as text
    error    the class and message of its error
    left_out the statements that were left out
    guessed  the variables that these assign and that have a guessed value, by name
    """

    failing: str
    error: str
    left_out: tuple[ast.stmt, ...]
    guessed: dict[str, object]

    @property
    def lines(self) -> tuple[int, ...]:
        """Return the first lines of the statements that were left out."""
        return tuple(statement.lineno for statement in self.left_out)

    @property
    def failed_names(self) -> tuple[str, ...]:
        """Return the names of the definitions, and of the variables of the assignments, that were
        left out because they fail without what was left out before."""
        return tuple(
            name
            for statement in self.left_out
            if isinstance(statement, _DEFINING)
            for name in sorted(_bound_names(statement))
        )

    def uncertain_names(self, module: ModuleType) -> frozenset[str]:
        """Return the variables of the module that the statements that were left out may set,
        replace or modify, also by functions of the file that they call. Variables without a value,
        or with a guessed value, are left out, as is what only runs as the main program."""
        statements = [node for node in self.left_out if not _is_main_guard(node)]
        definitions = definitions_by_name(ast.parse(Path(str(module.__file__)).read_bytes()))
        called = reached_names(frozenset().union(*map(_read_names, statements)), definitions)
        if called & _WRITE_ANYTHING:
            return frozenset(name for name in vars(module) if not _is_code(vars(module)[name]))
        running = [*statements, *(definitions[name] for name in called & definitions.keys())]
        names = {name for node in statements for name in _bound_names(node)}
        names.update(name for node in running for name in _modified_names(node, module))
        return frozenset(names & vars(module).keys() - self.guessed.keys())

    @property
    def summary(self) -> str:
        """Return a phrase for the domain of a proof: what was left out and guessed."""
        lines = ", ".join(map(str, self.lines))
        values = "".join(f", {name} = {value!r}" for name, value in self.guessed.items())
        return f"without the statements on lines {lines} ({self.error}){values}"


def reached_names(names: frozenset[str], definitions: Mapping[str, Definition]) -> frozenset[str]:
    """Return the variables of a module that some variables lead to: themselves, and what those
    definitions read that are among them, and so on."""
    reached, pending = set(names), list(names)
    while pending:
        definition = definitions.get(pending.pop())
        added = _read_names(definition) - reached if definition is not None else frozenset()
        reached |= added
        pending.extend(added)
    return frozenset(reached)


def _read_names(node: ast.stmt) -> frozenset[str]:
    """Return the variables of the module that a statement or definition reads."""
    return module_names(ast.unparse(node).encode())[1]


def _bound_names(node: ast.stmt) -> frozenset[str]:
    """Return the variables of the module that a statement or definition binds, by `global`, too."""
    return module_names(ast.unparse(node).encode())[0]


def _is_main_guard(node: ast.stmt) -> bool:
    """Return whether a statement is an `if` whose test mentions `__name__`."""
    return isinstance(node, ast.If) and "__name__" in mentioned_names(node.test)


def _modified_names(statement: ast.stmt, module: ModuleType) -> Iterator[str]:
    """Yield the variables that a statement or definition may bind by `global`, or whose value it
    may modify: by assignment to a part, `setattr`, or a call that gets a value that is no code and
    can be modified."""
    if isinstance(statement, _DEFINITIONS):
        yield from _bound_names(statement) - {statement.name}
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                yield _root_name(node)
            case ast.Call(function, arguments, keywords):
                if name_of(function) in _SETTERS and arguments:
                    yield _root_name(arguments[0])
                for part in (function, *arguments, *(keyword.value for keyword in keywords)):
                    value = vars(module).get(_root_name(part))
                    if not _is_code(value) and not isinstance(value, _CONSTANTS):
                        yield _root_name(part)


def _root_name(node: ast.expr) -> str:
    """Return the variable that a chain of attributes and subscripts begins with; "" for none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_code(value: object) -> bool:
    """Return whether a value is a module, a class or a function."""
    return isinstance(value, ModuleType | type | FunctionType | BuiltinFunctionType)


def script_of(module: ModuleType) -> Script | None:
    """Return the `Script` of a module that `load_script` imported; None for any other module."""
    script = vars(module).get(_FACTS)
    return script if isinstance(script, Script) else None


def load_script(path: Path, name: str, failing: str, error: str) -> ModuleType:
    """Import a file as the module `name` without the statement whose syntax tree is `failing`.

    Statements before it run as they are. Of those after it, imports, definitions and assignments
    run, unless they fail, too. A variable that is not assigned then gets a value that its name
    suggests, if there is one. Raises ImportError where the file has no such statement, and what the
    statements before it raise.
    """
    statements = ast.parse(path.read_bytes()).body
    dumps = [ast.dump(statement) for statement in statements]
    if failing not in dumps:
        raise ImportError(f"a statement fails that this version does not have: {error}")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    first = dumps.index(failing)
    _execute(statements[:first], statements, module)
    left_out = [statements[first]]
    for statement in statements[first + 1 :]:
        if not (isinstance(statement, _DEFINING) and _succeeds(statement, statements, module)):
            left_out.append(statement)
    guessed = _guess_variables(left_out, module)
    setattr(module, _FACTS, Script(failing, error, tuple(left_out), guessed))
    return module


def failing_statement(path: Path, error: BaseException) -> str:
    """Return the syntax tree, as text, of the statement at the module level of a file that an error
    came through; "" where there is none, or the error is that something cannot be imported."""
    if isinstance(error, ImportError | SyntaxError | KeyboardInterrupt):
        return ""
    lines = [
        frame.f_lineno if line is None else line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename == str(path)
    ]
    statements = ast.parse(path.read_bytes()).body if lines else []
    containing = [node for node in statements if node.lineno <= lines[0] <= (node.end_lineno or 0)]
    return ast.dump(containing[0]) if containing else ""


def _succeeds(statement: ast.stmt, statements: list[ast.stmt], module: ModuleType) -> bool:
    """Execute a statement in a module; return whether it raises no error."""
    try:
        _execute([statement], statements, module)
    except Exception:  # noqa: BLE001 - the statement needs what was left out; the caller reports it
        return False
    return True


def _execute(chosen: list[ast.stmt], statements: list[ast.stmt], module: ModuleType) -> None:
    """Execute some of a file's statements in a module, under the file's `__future__` imports."""
    future = [node for node in future_imports(statements) if node not in chosen]
    tree = ast.Module([*future, *chosen], [])
    exec(compile(tree, str(module.__file__), "exec", dont_inherit=True), vars(module))


def _guess_variables(statements: list[ast.stmt], module: ModuleType) -> dict[str, object]:
    """Set the variables that some statements of a module would have assigned, and that it lacks, to
    values that their names suggest; return these by name. Variables whose names suggest none stay
    unset."""
    guessed: dict[str, object] = {}
    assignments = (node for node in statements if isinstance(node, ast.Assign | ast.AnnAssign))
    for name in (name for node in assignments for name in sorted(_bound_names(node))):
        if name not in vars(module):
            try:
                guessed[name] = value_for(name)
            except LookupError:
                continue
    vars(module).update(guessed)
    return guessed
