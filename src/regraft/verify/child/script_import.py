"""Import a script of which a statement fails, such as one that reads its training data: without
that statement, and with those after it that only import, define or assign."""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from regraft.verify.child.drivers.guessed_values import value_for

_FACTS = "__regraft_script__"
_DEFINING = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
)


@dataclass(frozen=True, slots=True)
class Script:
    """A script that was imported in part.

    failing  the syntax tree of the statement that fails, as text
    error    the class and message of its error
    lines    the first lines of the statements that were left out
    guessed  the variables that these assign and that have a guessed value, by name
    """

    failing: str
    error: str
    lines: tuple[int, ...]
    guessed: dict[str, object]

    @property
    def summary(self) -> str:
        """Return a phrase for the domain of a proof: what was left out and guessed."""
        lines = ", ".join(map(str, self.lines))
        values = "".join(f", {name} = {value!r}" for name, value in self.guessed.items())
        return f"without the statements on lines {lines} ({self.error}){values}"


def script_of(module: ModuleType) -> Script | None:
    """Return what is known of a module that `load_script` imported; None for any other module."""
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
    lines = tuple(statement.lineno for statement in left_out)
    setattr(module, _FACTS, Script(failing, error, lines, guessed))
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
    future = [
        node
        for node in statements
        if isinstance(node, ast.ImportFrom) and node.module == "__future__" and node not in chosen
    ]
    tree = ast.Module([*future, *chosen], [])
    exec(compile(tree, str(module.__file__), "exec", dont_inherit=True), vars(module))


def _guess_variables(statements: list[ast.stmt], module: ModuleType) -> dict[str, object]:
    """Give the variables that some statements of a module would have assigned, and that it lacks,
    the values that their names suggest; return these by name."""
    guessed: dict[str, object] = {}
    for name in _assigned_names(statements):
        if name not in vars(module):
            try:
                guessed[name] = value_for(name)
            except LookupError:
                continue
    vars(module).update(guessed)
    return guessed


def _assigned_names(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the variables that plain assignments among some statements store."""
    for statement in statements:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id
