"""Test that printing and parsing preserve all that the syntax can represent."""

from __future__ import annotations

import string

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from regraft.dsl import (
    parse_fragment,
    parse_rule,
    parse_transformation,
    print_condition,
    print_fragment,
    print_operand,
    print_rule,
    print_transformation,
)
from regraft.dsl import syntax as s

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
KEYWORDS = {"if", "not", "and", "or", "is", "in", "True", "False", "None"}
HEADINGS = [
    "rule",
    "summary",
    "safety",
    "default",
    "needs",
    "init",
    "forward",
    "where",
    "keep",
    "opt",
    "alt",
    "skip",
]

# Words of the notation are ordinary names wherever they cannot be meant.
identifiers = st.one_of(
    st.sampled_from([*HEADINGS, "torch", "_x", "x2", "notable", "iff", "größe", "slice"]),
    st.text(string.ascii_letters + "_", min_size=1, max_size=4).filter(
        lambda n: n not in KEYWORDS and n != "_"
    ),
)
variables = st.builds(
    lambda name, primes: s.Var(name + "'" * primes), identifiers, st.integers(0, 2)
)
refs = st.builds(
    lambda head, tail: s.Ref(".".join([head, *tail])),
    identifiers,
    st.lists(identifiers | st.integers(0, 12).map(str), max_size=2),
) | st.just(s.Ref("Ellipsis"))
constants = st.builds(
    s.Const,
    st.one_of(
        st.integers(),
        st.floats(allow_nan=False),
        st.text(max_size=6),
        st.booleans(),
        st.none(),
        st.just("\\\"'\n\0#"),
    ),
)
leaves = st.one_of(variables, refs, constants, st.just(s.Wildcard()))


def _calls(operands: st.SearchStrategy) -> st.SearchStrategy:
    """Return a strategy for calls."""
    keywords = st.lists(
        st.tuples(identifiers, operands), max_size=2, unique_by=lambda pair: pair[0]
    ).map(tuple)
    return st.builds(s.Apply, operands, st.lists(operands, max_size=3).map(tuple), keywords)


def _operators(operands: st.SearchStrategy) -> st.SearchStrategy:
    """Return a strategy for binary and unary operators."""
    symbols = ("+", "-", "*", "/", "//", "%", "@", "**", "==", "!=", "<", "<=", ">", ">=")
    binary = st.builds(s.Apply, st.sampled_from(symbols), st.tuples(operands, operands))
    return binary | st.builds(s.Apply, st.sampled_from(("neg", "~")), st.tuples(operands))


def _compounds(operands: st.SearchStrategy) -> st.SearchStrategy:
    """Return a strategy for operands that are made of operands."""
    optional = st.none() | operands
    slices = st.builds(lambda *parts: s.Apply(s.Ref("slice"), parts), operands, operands, operands)
    indices = st.one_of(operands, st.builds(s.Slice, optional, optional), slices)
    several = st.lists(operands | slices, max_size=3).map(lambda items: s.Group(tuple(items)))
    return st.one_of(
        _calls(operands),
        _operators(operands),
        several,
        st.builds(s.Attr, operands, identifiers),
        st.builds(s.Item, operands, indices | several),
    )


operands = st.recursive(leaves, _compounds, max_leaves=8)


def _is_comparison(operand: s.Operand) -> bool:
    """Return whether an operand is a comparison."""
    return isinstance(operand, s.Apply) and operand.callee in ("==", "!=", "<", "<=", ">", ">=")


# As an atom a comparison is a `Test` with an operator, never the truth of an operator.
truths = st.builds(s.Test, operands.filter(lambda operand: not _is_comparison(operand)))
comparisons = st.builds(
    s.Test,
    operands,
    st.sampled_from(("==", "!=", "<", "<=", ">", ">=", "is", "is not", "in", "not in")),
    operands,
)


def _joined(conditions: st.SearchStrategy) -> st.SearchStrategy:
    """Return a strategy for negated and joined conditions."""
    several = st.lists(conditions, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(s.Not, conditions), st.builds(s.And, several), st.builds(s.Or, several)
    )


conditions = st.recursive(truths | comparisons, _joined, max_leaves=5)
outputs = operands.filter(
    lambda o: isinstance(o, s.Var | s.Wildcard | s.Ref | s.Attr | s.Item | s.Group)
)
computations = _calls(operands) | _operators(operands)
guards = st.none() | conditions
nodes = st.builds(
    s.Node, computations, st.lists(outputs, max_size=3).map(tuple), st.just(False), guards
)
layers = st.builds(
    s.Node, _calls(operands), st.lists(outputs, max_size=2).map(tuple), st.just(True), guard=guards
)
optional_nodes = st.builds(
    s.Node, computations, st.lists(outputs, max_size=3).map(tuple), optional=st.just(True)
)
some_outputs = st.lists(outputs, min_size=1, max_size=2).map(tuple)
alternatives = st.builds(
    s.Node,
    computations,
    some_outputs,
    alternatives=st.lists(computations, min_size=1, max_size=2).map(tuple),
)
skips = st.builds(
    lambda names, operand, outputs: s.Node(
        s.Apply(s.Ref(names[0]), (operand,)), outputs, skip=tuple(names)
    ),
    st.lists(identifiers, min_size=1, max_size=3),
    operands,
    some_outputs,
)
pieces = st.one_of(nodes, layers, optional_nodes, alternatives, skips, st.just(s.Wildcard()))
fragments = st.lists(pieces, max_size=4).map(tuple)
transformations = st.builds(s.Transformation, fragments.filter(bool), fragments)

words = st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True).filter(lambda word: len(word) < 20)
needs = st.builds(
    s.Need,
    words.filter(lambda word: word[0].isalpha()),
    st.sampled_from(["", "2.4", "0.5.2+cu", "1"]),
)
predicates = st.builds(s.Predicate, identifiers, st.lists(operands, max_size=2).map(tuple))
rules = st.builds(
    s.RuleSyntax,
    words,
    st.text(max_size=20),
    st.sampled_from(s.SAFETIES),
    st.lists(needs, max_size=2).map(tuple),
    st.lists(transformations, max_size=2).map(tuple),
    st.lists(transformations, min_size=1, max_size=2).map(tuple),
    st.lists(predicates, max_size=3).map(tuple),
    off=st.booleans(),
)
relaxed = settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@relaxed
@given(operands)
def test_operands(operand: s.Operand) -> None:
    assert parse_fragment(f"f({print_operand(operand)})") == (
        s.Node(s.Apply(s.Ref("f"), (operand,))),
    )


@pytest.mark.slow
@relaxed
@given(conditions)
def test_conditions(condition: s.Condition) -> None:
    assert parse_fragment(f"f() if {print_condition(condition)}") == (
        s.Node(s.Apply(s.Ref("f")), guard=condition),
    )


@pytest.mark.slow
@relaxed
@given(fragments)
def test_fragments(fragment: s.Fragment) -> None:
    assert parse_fragment(print_fragment(fragment)) == fragment
    assert parse_fragment(print_fragment(fragment, ";  ")) == fragment


@pytest.mark.slow
@relaxed
@given(transformations)
def test_transformations(transformation: s.Transformation) -> None:
    assert parse_transformation(print_transformation(transformation)) == transformation


@pytest.mark.slow
@settings(relaxed, max_examples=60)
@given(rules)
def test_rules(rule: s.RuleSyntax) -> None:
    text = print_rule(rule)
    assert parse_rule(text) == rule
    assert parse_rule(text.replace("\n", "\r\n")) == rule


@relaxed
@given(st.text(alphabet="$a_.*;()[]=>-+\"'#@,:\n 1if", max_size=30))
def test_any_text_is_a_fragment_or_a_problem_and_prints_stably(text: str) -> None:
    parsed = parse_fragment(text)
    if not isinstance(parsed, s.SyntaxProblem):
        assert parse_fragment(print_fragment(parsed)) == parsed
    else:
        assert 1 <= parsed.line <= text.count("\n") + 1
        assert 1 <= parsed.column <= max(map(len, text.split("\n"))) + 1


@relaxed
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
@example("'\r'")
@example('"\0"')
def test_no_text_breaks_the_parser(text: str) -> None:
    parse_fragment(text)
    parse_transformation(text)
    parse_rule(text)
