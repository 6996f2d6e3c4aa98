"""Tell by the syntax which expressions are conditions, and which results each kind of them has to
take.

A condition is a comparison or another truth value, a bound, a minimum, a mask, a remainder or a
rounded number, or an operation whose operand may never matter.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Iterator

from regraft.verification.child.checks.arguments_in_source import literal_value

TRUTH = ("was true", "was false")
CHOICE = ("gave its first operand", "gave its second operand")
RAISED, LOWERED, PASSED = "raised a value", "lowered a value", "let a value pass"
VARIED, PRESENT = ("took a second value",), ("was given",)
UNLIKE_FIRST, UNLIKE_SECOND = (
    f"was another number than its {place} operand" for place in ("first", "second")
)
SPANNED = ("had more than one element along the dimension",)
TIED = ("compared equal numbers",)
WRAPPED = ("took a second value", UNLIKE_FIRST)
_PREDICATES = frozenset(
    {
        "gt",
        "lt",
        "ge",
        "le",
        "eq",
        "ne",
        "greater",
        "less",
        "greater_equal",
        "less_equal",
        "not_equal",
        "equal",
        "isnan",
        "isinf",
        "isfinite",
        "isclose",
        "allclose",
        "logical_and",
        "logical_or",
        "logical_not",
        "logical_xor",
        "isinstance",
        "hasattr",
    }
)
_CHOICES = frozenset({"min", "max", "minimum", "maximum", "fmin", "fmax"})
_LOWER = frozenset({"clamp", "clip", "clamp_min", "clamp_", "clamp_min_", "hardtanh"})
_UPPER = frozenset({"clamp", "clip", "clamp_max", "clamp_", "clamp_max_", "hardtanh"})
_RECTIFIERS = frozenset({"relu", "relu_", "relu6", "threshold"})
_STEPS = frozenset(
    {
        "floor",
        "ceil",
        "trunc",
        "round",
        "sign",
        "sgn",
        "heaviside",
        "floor_divide",
        "remainder",
        "fmod",
        "bucketize",
        "searchsorted",
    }
)
_ALONG_DIMENSIONS = frozenset(
    {
        "softmax",
        "log_softmax",
        "logsumexp",
        "sum",
        "mean",
        "prod",
        "std",
        "var",
        "norm",
        "normalize",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "cumsum",
        "cumprod",
        "flip",
        "roll",
        "sort",
        "argsort",
    }
)
_NAMESPACES = frozenset({"torch", "F", "functional"})


def conditions_of(definition: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a definition that are conditions of any kind: predicates, steps,
    bounds and choices, `and` and `or`, arithmetic with `required_operand_events`, and calls along a
    constant dimension."""
    expressions = (node for node in ast.walk(definition) if isinstance(node, ast.expr))
    kinds = (
        is_predicate,
        is_step,
        _is_bound_or_choice,
        _is_bool_op,
        required_operand_events,
        dimension_of,
    )
    return (node for node in expressions if any(kind(node) for kind in kinds))


def dimension_of(node: ast.expr) -> tuple[str, ...]:
    """Return the function and the constant dimension, both as text, of a call that computes along
    it; () for another expression."""
    if not isinstance(node, ast.Call) or _has_starred(node):
        return ()
    name = called_name(node)
    if name not in _ALONG_DIMENSIONS:
        return ()
    by_keyword = [keyword.value for keyword in node.keywords if keyword.arg in ("dim", "axis")]
    position = int(_is_namespace_call(node))
    dimensions = by_keyword or node.args[position : position + 1]
    dimension = literal_value(dimensions[0]) if dimensions else None
    return (name, str(dimension)) if isinstance(dimension, int | tuple) else ()


def functions_along_other_dimensions(first: ast.AST, second: ast.AST) -> frozenset[str]:
    """Return the names of functions that two definitions call along different dimensions: where a
    tensor has a single element there, both may give the same."""
    own, other = (
        {
            pair
            for node in ast.walk(tree)
            if isinstance(node, ast.expr) and (pair := dimension_of(node))
        }
        for tree in (first, second)
    )
    return frozenset(pair[0] for pair in own - other) & frozenset(pair[0] for pair in other - own)


def is_step(node: ast.expr) -> bool:
    """Return whether an expression may have one value over a wide range.

    It is an integer quotient, a remainder, a right shift, a lookup by a key that is no constant (in
    a dictionary display or by `get`), or a call that rounds. A constant divided by a constant, and
    formatted text, are none.
    """
    match node:
        case ast.BinOp(ast.Constant(first), ast.FloorDiv() | ast.Mod() | ast.RShift(), second):
            is_text_formatted = isinstance(first, str | bytes)
            return not (is_text_formatted or isinstance(second, ast.Constant))
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod() | ast.RShift()):
            return True
        case ast.Subscript(ast.Dict(), key, ast.Load()):
            return not isinstance(key, ast.Constant)
        case ast.Call(ast.Attribute(_, "get"), [key, *_]):
            return not isinstance(key, ast.Constant)
        case ast.Call():
            return called_name(node) in _STEPS
    return False


def _is_bool_op(node: ast.expr) -> bool:
    """Return whether an expression is an `and` or `or`."""
    return isinstance(node, ast.BoolOp)


def required_operand_events(node: ast.expr) -> tuple[str, ...]:
    """Return the events that a test has to see at a sum, difference, product, quotient or
    remainder, so that a lost operand shows; () elsewhere.

    A remainder has to take two values, and to be less than its first operand at some time. A plain
    number that is added must not always be 0, a factor or divisor not always 1; constants are
    exempt.
    """
    match node:
        case ast.BinOp(op=ast.Mod()):
            return WRAPPED if is_step(node) else ()
        case ast.BinOp(first, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op, second):
            is_symmetric = isinstance(op, ast.Add | ast.Mult)
            unlike_first = (UNLIKE_FIRST,) * (not isinstance(second, ast.Constant))
            unlike_second = (UNLIKE_SECOND,) * (not isinstance(first, ast.Constant))
            return unlike_first + unlike_second * is_symmetric
    return ()


def _is_bound_or_choice(node: ast.expr) -> bool:
    """Return whether a call bounds its input, chooses between two, or selects by a mask."""
    return isinstance(node, ast.Call) and (
        bool(required_results(node)) or mask_position(node) is not None
    )


def is_predicate(node: ast.expr) -> bool:
    """Return whether an expression is a negation by `not`, a comparison or a call with a truth
    value."""
    is_negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return (
        is_negation
        or isinstance(node, ast.Compare)
        or (isinstance(node, ast.Call) and called_name(node) in _PREDICATES)
    )


def called_name(node: ast.Call) -> str:
    """Return the name of the called function, or of the attribute for a method or a function of a
    module; "" where the call is of any other expression."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_namespace_call(node: ast.Call) -> bool:
    """Return whether a call is of a plain name or of a function of `torch`, `F` or `functional`,
    and not of a method."""
    owner = getattr(node.func, "value", None)
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return not isinstance(node.func, ast.Attribute) or name in _NAMESPACES


def required_results(node: ast.Call) -> tuple[str, ...]:
    """Return the events that a test has to see at a call: RAISED, LOWERED or both for bounds that
    are finite as in `clamp`, RAISED and PASSED for `relu` and its like, CHOICE for a minimum or
    maximum of at most two arguments; () for other calls and for calls with a starred argument."""
    if _has_starred(node):
        return ()
    name = called_name(node)
    if name in _CHOICES:
        return CHOICE if 1 <= len(node.args) <= 2 and not node.keywords else ()
    if name in _RECTIFIERS and (node.args or not _is_namespace_call(node)):
        return RAISED, PASSED
    if name in _LOWER | _UPPER:
        lower_bounds, upper_bounds = _bounds_of(name, node)
        raised = (RAISED,) * any(map(_is_finite, lower_bounds))
        lowered = (LOWERED,) * any(map(_is_finite, upper_bounds))
        return raised + lowered
    return ()


def _has_starred(node: ast.Call) -> bool:
    """Return whether a call has an argument with a star, which hides the positions of others."""
    return any(isinstance(argument, ast.Starred) for argument in node.args)


def _bounds_of(name: str, node: ast.Call) -> tuple[list[ast.expr], list[ast.expr]]:
    """Return the lower and upper bounds that a call of the function `name` has, by position or
    keyword, each a list of at most two expressions."""
    positional = node.args[1 if _is_namespace_call(node) else 0 :]
    has_single_bound = name.rstrip("_").endswith(("_min", "_max"))
    upper_position = 0 if has_single_bound else 1
    lower_bounds = positional[:1] if name in _LOWER else []
    upper_bounds = positional[upper_position : upper_position + 1] if name in _UPPER else []
    by_keyword = {str(keyword.arg).removesuffix("_val"): keyword.value for keyword in node.keywords}
    if name in _LOWER and "min" in by_keyword:
        lower_bounds = [*lower_bounds, by_keyword["min"]]
    if name in _UPPER and "max" in by_keyword:
        upper_bounds = [*upper_bounds, by_keyword["max"]]
    return lower_bounds, upper_bounds


def _is_finite(bound: ast.expr) -> bool:
    """Return whether a bound may change a value: it is neither None nor infinite."""
    value = bound.value if isinstance(bound, ast.Constant) else 0.0
    return value is not None and not (isinstance(value, float) and math.isinf(value))


def mask_position(node: ast.Call) -> int | None:
    """Return the position of the argument that selects between values in a call of `where`,
    `masked_fill` or `masked_fill_`; None for other calls, and where arguments are starred or too
    few."""
    positions = {"where": 0, "masked_fill": int(_is_namespace_call(node)), "masked_fill_": 0}
    position = positions.get(called_name(node))
    if position is None or len(node.args) <= position + 1 or _has_starred(node):
        return None
    return position


def order_operands(node: ast.expr) -> frozenset[str]:
    """Return the anonymous forms of the two operands of a comparison by `<`, `<=`, `>` or `>=`; an
    empty set for another expression.

    Comparisons of the same operands by different operators differ where the operands are equal.
    """
    match node:
        case ast.Compare(left, [ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()], [right]):
            return frozenset((anonymous_form(left), anonymous_form(right)))
    return frozenset()


def anonymous_form(node: ast.expr) -> str:
    """Return a dump of an expression in which the names of variables are replaced by "_";
    attributes and constants stay."""
    anonymous = copy.deepcopy(node)
    for name_node in ast.walk(anonymous):
        if isinstance(name_node, ast.Name):
            name_node.id = "_"
    return ast.dump(anonymous)


def is_truth_call(node: ast.Call) -> bool:
    """Return whether a call is of a function that returns truth values, such as `isnan`."""
    return called_name(node) in _PREDICATES
