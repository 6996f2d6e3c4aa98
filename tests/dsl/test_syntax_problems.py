"""Test that every syntax problem names the mistake and stands exactly at its place."""

from __future__ import annotations

import pytest

from regraft.dsl import parse_fragment, parse_rule, parse_transformation
from regraft.dsl.syntax import SyntaxProblem

HEAD = 'rule r\n  summary "s"\n  safety exact\n'  # three lines
FORWARD = "forward\n  f($x) -> $y => g($x) -> $y\n"

RULES = {
    "empty": ("", 1, 1, "a rule file starts with `rule NAME`"),
    "only comments": ("# nothing\n\n", 1, 1, "starts with `rule NAME`"),
    "not a rule": ("hello", 1, 1, "unexpected `hello`; expected a section"),
    "starts with another section": ('summary "s"\n', 1, 1, "starts with `rule NAME`"),
    "no name": ("rule\n  safety exact\n", 1, 5, "the line ends too early; expected a name"),
    "no name at the end": ("rule", 1, 5, "the text ends too early; expected a name"),
    "nul": ("rule r\n \0", 2, 2, "a NUL character"),
    "binary": ("\x89PNG\r\n", 1, 1, "unexpected the character '\\x89'"),
    "unknown section": (HEAD + "  colour red\n", 4, 3, "unexpected `colour`; expected a section"),
    "unknown safety": (
        "rule r\n  safety sure\n",
        2,
        10,
        "unknown safety `sure`; it is one of exact, numeric",
    ),
    "second summary": (HEAD + '  summary "t"\n' + FORWARD, 4, 3, "a second `summary`"),
    "unknown default": (
        HEAD + "  default on\n",
        4,
        11,
        "unknown default `on`; a rule is on, or says `default off`",
    ),
    "second safety": (HEAD + "  safety exact\n" + FORWARD, 4, 3, "a second `safety`"),
    "second where": (HEAD + FORWARD + "where p($x)\nwhere q($x)\n", 7, 1, "a second `where`"),
    "second name": (HEAD + FORWARD + "rule q\n", 6, 1, "a second `rule`"),
    "no forward": (HEAD, 1, 1, "rule `r` has no `forward`"),
    "no summary": ("\n rule r\n  safety exact\n" + FORWARD, 2, 2, "rule `r` has no `summary`"),
    "no safety": ('rule r\n  summary "s"\n' + FORWARD, 1, 1, "rule `r` has no `safety`"),
    "summary without quotes": (
        "rule r\n  summary fast\n",
        2,
        11,
        "unexpected `fast`; expected a value",
    ),
    "unterminated string": (
        'rule r\n  summary "fast\n',
        2,
        11,
        "this string does not end on its line",
    ),
    "bad escape": ('rule r\n  summary "a\\q"\n', 2, 11, "an unknown escape"),
    "need with another relation": (HEAD + "  needs torch > 2\n", 4, 15, "unexpected `>`"),
    "need without a version": (
        HEAD + "  needs torch >=\n",
        4,
        17,
        "the line ends too early; expected a version",
    ),
    "no arrow": (HEAD + "forward\n  f($x) -> $y\n", 4, 1, "`forward` needs `source => target`"),
    "empty forward": (HEAD + "forward\n", 4, 1, "`forward` needs `source => target`"),
    "empty source": (HEAD + "forward\n  => f($x) -> $y\n", 5, 3, "nothing before `=>`"),
    "empty target": (HEAD + "forward\n  f($x) -> $y =>\nwhere\n", 5, 15, "nothing after `=>`"),
    "two arrows": (
        HEAD + "forward\n  f() => g() => h()\n",
        5,
        14,
        "a second `=>`: `forward` holds one",
    ),
    "unclear target": (
        HEAD + "init\n a() => b(); c() => d()\n",
        5,
        18,
        "not clear where the first replacement ends",
    ),
    "keep among others": (HEAD + "forward\n  f() => keep; g()\n", 5, 10, "`keep` stands alone"),
    "keyword in where": (HEAD + FORWARD + "where p(x=1)", 6, 7, "`p` takes no keyword arguments"),
    "where without a call": (
        HEAD + FORWARD + "where\n  used_once\n",
        7,
        12,
        "the line ends too early",
    ),
}
FRAGMENTS = {
    "no name after $": ("f($x) -> $", 1, 10, "`$` needs a name after it"),
    "number after $": ("f($1)", 1, 3, "`$` needs a name after it"),
    "never closed": ("f($x,\n  g($y", 2, 4, "`(` is never closed"),
    "not closed before the next line": (
        "f($x\ng($y)",
        2,
        1,
        "expected a value, an operator, `)` or `,` (",
    ),
    "closed too late": (
        "f($x\n  -> $y)",
        2,
        3,
        "unexpected `->`; expected `)` or `,` (`(` opened at 1:2)",
    ),
    "wrong bracket": (
        "a[$x) -> $y",
        1,
        5,
        "unexpected `)`; expected `]` or `,` (`[` opened at 1:2)",
    ),
    "closed too often": ("f($x)) -> $y", 1, 6, "unexpected `)`"),
    "no separator": ("f($x) g($y)", 1, 7, "unexpected `g`"),
    "no output": ("f($x) ->", 1, 9, "the text ends too early; expected a value"),
    "no operand": ("$a + -> $b", 1, 6, "unexpected `->`; expected a value"),
    "unknown character": ("f($x) ? $y", 1, 7, "unexpected `?`"),
    "not a number": ("f(1_ , 2)", 1, 3, "`1_` is not a number"),
    "name without a call": ("$a -> $b", 1, 1, "a node is a call, an operator or a subscript"),
    "layer of an operator": ("@($a + $b) -> $c", 1, 2, "`@` marks the construction of a layer"),
    "computed output": ("f($x) -> g($x)", 1, 10, "an output is a name"),
    "constant output": ("f($x) -> 1", 1, 10, "an output is a name"),
    "condition as a value": (
        "f($x, not $y)",
        1,
        7,
        "a condition cannot stand where a value is expected",
    ),
    "positional after keyword": (
        "f(a=1, $x)",
        1,
        8,
        "a positional argument after a keyword argument",
    ),
    "keyword twice": ("f(a=1, a=2)", 1, 8, "`a` is given twice"),
    "dotted keyword": ("f(a.b=1)", 1, 3, "`a.b` cannot name an argument"),
    "empty guard": ("f($x) if", 1, 9, "the text ends too early; expected a value"),
    "chained comparison": ("f() if $a < $b < $c", 1, 16, "unexpected `<`"),
    "keep in a fragment": ("f($x)\nkeep", 2, 1, "`keep` stands alone"),
}
TRANSFORMATIONS = {
    "no arrow": ("\n f($x) -> $y", 2, 2, "no `=>`"),
    "two arrows": ("f() => g() => h()", 1, 12, "a second `=>`"),
    "nothing": ("", 1, 1, "no `=>`"),
}


def check(problem: object, line: int, column: int, message: str) -> None:
    """Assert the message and the position of a syntax problem."""
    assert isinstance(problem, SyntaxProblem)
    assert message in problem.message
    assert (problem.line, problem.column) == (line, column), problem


@pytest.mark.parametrize(("text", "line", "column", "message"), RULES.values(), ids=RULES)
def test_rules(text: str, line: int, column: int, message: str) -> None:
    check(parse_rule(text), line, column, message)


@pytest.mark.parametrize(("text", "line", "column", "message"), FRAGMENTS.values(), ids=FRAGMENTS)
def test_fragments(text: str, line: int, column: int, message: str) -> None:
    check(parse_fragment(text), line, column, message)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"), TRANSFORMATIONS.values(), ids=TRANSFORMATIONS
)
def test_transformations(text: str, line: int, column: int, message: str) -> None:
    check(parse_transformation(text), line, column, message)
