"""Statements of the residual program: what they read, assign and do, and their text."""

from __future__ import annotations

import ast
from typing import Any

import pytest

pytest.importorskip("torch")

from regraft.splitting.program.statements import (
    Assign,
    Break,
    Check,
    Continue,
    Evaluate,
    Raise,
    Return,
    Statement,
    StoreItem,
    Unpack,
    assigned_names,
    raise_message,
    read_names,
    rename,
    write_statement,
)
from regraft.splitting.sampling.branch_exploration import Explorer


def expression(text: str) -> ast.expr:
    """Return an expression."""
    return ast.parse(text, mode="eval").body


STATEMENTS: dict[str, Statement] = {
    "x = (a, b)": Assign("x", expression("(a, b)")),
    "x, a = [b, a + 1]": Unpack(("x", "a"), expression("[b, a + 1]")),
    "x, = (b,)": Unpack(("x",), expression("(b,)")),
    "(a or items)[b - 1] = [a]": StoreItem(
        expression("a or items"), expression("b - 1"), expression("[a]")
    ),
    "items.append(a)": Evaluate(expression("items.append(a)")),
    "assert a < b": Check(expression("a < b")),
    "assert a > b": Check(expression("a > b")),
    "raise ValueError(a, 'no')": Raise(expression("ValueError(a, 'no')")),
    "raise KeyError": Raise(expression("KeyError")),
    "raise RuntimeError('it\\'s \"so\"')": raise_message("RuntimeError", 'it\'s "so"'),
}
EXITS: dict[str, Statement] = {
    "return": Return(expression("(a, items)")),
    "break": Break(),
    "continue": Continue(),
}


def outcome(run: Any) -> Any:
    """Return the names after a run that starts with the same ones, or the error that it raises."""
    names = {"a": 0, "b": 1, "items": [5, 6]}
    try:
        run(names)
    except Exception as problem:  # noqa: BLE001  (whatever the statement raises)
        return type(problem), problem.args
    return names


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_that_explores_does_what_its_text_does(text: str) -> None:
    statement, explorer = STATEMENTS[text], Explorer("", [], [], {})
    assert ast.dump(ast.parse(write_statement(statement))) == ast.dump(ast.parse(text))
    explored = outcome(lambda names: explorer.run_host_statement(statement, names))
    assert explored == outcome(lambda names: exec(text, {}, names))


@pytest.mark.parametrize("way", EXITS)
def test_a_statement_that_leaves_says_how(way: str) -> None:
    names = {"a": 0, "items": [5]}
    assert Explorer("", [], [], {}).run_host_statement(EXITS[way], names) == way
    assert names.get("return") == ((0, [5]) if way == "return" else None)
    assert write_statement(EXITS[way]).startswith(way)


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_reads_and_assigns_the_names_of_its_text(text: str) -> None:
    names = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    for names_of, context in ((read_names, ast.Load), (assigned_names, ast.Store)):
        expected = {node.id for node in names if isinstance(node.ctx, context)}
        assert names_of(STATEMENTS[text]) == names_of(ast.parse(text)) == expected


def test_a_renamed_expression_is_a_copy() -> None:
    code = expression("f(x, y.x)[x]")
    assert ast.unparse(rename(code, {"x": "y", "y": "x"})) == "f(y, x.x)[y]"
    assert ast.unparse(code) == "f(x, y.x)[x]"
