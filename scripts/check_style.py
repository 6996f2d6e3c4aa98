"""Check what the linters do not: decisions in a function, and names that tell nothing.

    python scripts/check_style.py [FILE_OR_FOLDER ...]      # src/regraft by default

A function makes at most MOST_DECISIONS decisions: branches, loops, conditional expressions,
handlers, cases, operands of `and` and `or`, and clauses of comprehensions. A name has a word
that is not in VAGUE. Prints each place, and exits with 1 where there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_DECISIONS = 15
VAGUE = frozenset(
    [
        "again",
        "done",
        "found",
        "given",
        "held",
        "it",
        "kept",
        "known",
        "made",
        "more",
        "one",
        "others",
        "rest",
        "same",
        "seen",
        "stuff",
        "that",
        "thing",
        "things",
        "this",
    ]
)
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.match_case)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def decisions(function: Function) -> int:
    """Return the number of paths through a function's own body; nested functions are counted by
    themselves."""
    count = 1
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, SCOPES):
            continue
        if isinstance(node, BRANCHES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        pending.extend(ast.iter_child_nodes(node))
    return count


def words(name: str) -> set[str]:
    """Return the words of a name in snake or camel case, in lower case."""
    return {word.lower() for word in re.split(r"_+|(?<=[a-z])(?=[A-Z])", name)}


def bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name


def complaints(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, sentence) for each place of a file that breaks a rule."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, Function) and decisions(node) > MOST_DECISIONS:
            count = decisions(node)
            yield node.lineno, f"`{node.name}` makes {count} decisions, not {MOST_DECISIONS}"
        for name in bound_names(node):
            if words(name) - {""} <= VAGUE and name.strip("_"):
                yield node.lineno, f"`{name}` does not tell what it is"


def main() -> int:
    roots = [Path(argument) for argument in sys.argv[1:]] or [ROOT / "src" / "regraft"]
    files = [
        path
        for root in roots
        for path in ([root] if root.is_file() else sorted(root.rglob("*.py")))
    ]
    places = [(path, *complaint) for path in files for complaint in complaints(path)]
    for path, line, sentence in places:
        print(f"{path}:{line}: {sentence}")
    return int(bool(places))


if __name__ == "__main__":
    sys.exit(main())
