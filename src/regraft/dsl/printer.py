"""Syntax to text: the canonical spelling, which parses back to an equal syntax tree."""

from __future__ import annotations

import math

from regraft.dsl.build import COMPARISONS, ELLIPSIS, SLICE
from regraft.dsl.syntax import (
    And,
    Apply,
    Attr,
    Condition,
    Const,
    Fragment,
    Group,
    Item,
    Need,
    Node,
    Not,
    Operand,
    Or,
    Predicate,
    Ref,
    RuleSyntax,
    Slice,
    Test,
    Transformation,
    Var,
    Wildcard,
)

# How tightly an expression binds, from `or` to a name; an operand in a tighter place needs parentheses.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _UNARY, _POWER, _POSTFIX = range(9)
_BINARY = {
    **dict.fromkeys(COMPARISONS, _COMPARISON),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "//", "%", "@"), _PRODUCT),
    "**": _POWER,
}
_SIGNS = {"neg": "-", "~": "~"}


def print_rule(rule: RuleSyntax) -> str:
    """A whole rule file, with its final newline; every transformation under a heading of its own."""
    lines = [f"rule {rule.name}", f"  summary {_string(rule.summary)}", f"  safety  {rule.safety}"]
    if rule.off:
        lines.append("  default off")
    if rule.needs:
        lines.append(f"  needs   {', '.join(map(_need, rule.needs))}")
    for heading, transformations in (("init", rule.init), ("forward", rule.forward)):
        for transformation in transformations:
            lines += [heading, *(f"  {line}" for line in print_transformation(transformation).splitlines())]
    for whole in rule.bodies:
        code = [f"  | {line}".rstrip() for line in whole.code.split("\n")]
        lines += ["body", *code, f"  => {print_node(whole.target)}"]
    if rule.where:
        lines += ["where", ",\n".join(f"  {_predicate(predicate)}" for predicate in rule.where)]
    return "\n".join(lines) + "\n"


def print_transformation(transformation: Transformation) -> str:
    """`source => target`, one node a line."""
    target = print_fragment(transformation.target).replace("\n", "\n   ") or "keep"
    return f"{print_fragment(transformation.source)}\n=> {target}"


def print_fragment(fragment: Fragment, separator: str = "\n") -> str:
    """The nodes in order, one a line (or separated by `"; "`)."""
    return separator.join(map(print_node, fragment))


def print_node(node: Node | Wildcard) -> str:
    if isinstance(node, Wildcard):
        return "*"
    if node.skip:
        text = f"skip {'|'.join(node.skip)}({', '.join(map(print_operand, node.apply.args))})"
    elif node.alternatives:
        text = f"alt {' | '.join(map(print_operand, (node.apply, *node.alternatives)))}"
    else:
        text = ("@" if node.layer else "") + print_operand(node.apply)
    if node.optional:
        text = f"opt {text}"
    if node.outputs:
        text += f" -> {', '.join(map(print_operand, node.outputs))}"
    return text if node.guard is None else f"{text} if {print_condition(node.guard)}"


def print_condition(condition: Condition) -> str:
    return _condition(condition, _OR)


def print_operand(operand: Operand) -> str:
    return _operand(operand, _COMPARISON)


def _condition(condition: Condition, place: int) -> str:
    match condition:
        case Or(operands):
            text, own = " or ".join(_condition(operand, _AND) for operand in operands), _OR
        case And(operands):
            text, own = " and ".join(_condition(operand, _NOT) for operand in operands), _AND
        case Not(operand):
            text, own = f"not {_condition(operand, _NOT)}", _NOT
        case Test(left, op, right) if op is not None and right is not None:
            text, own = f"{_operand(left, _SUM)} {op} {_operand(right, _SUM)}", _COMPARISON
        case Test(left):
            return _operand(left, _SUM)
    return text if own >= place else f"({text})"


def _operand(operand: Operand, place: int) -> str:
    match operand:
        case Var(name):
            return f"${name}"
        case Wildcard():
            return "_"
        case Ref(path):
            return "..." if operand == ELLIPSIS else path
        case Const():
            text, own = _constant(operand)
        case Attr(base, name):
            return f"{_base(base)}.{name}"
        case Item(base, index):
            return f"{_operand(base, _POSTFIX)}[{_index(index)}]"
        case Group(items):
            inner = ", ".join(map(print_operand, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
        case Apply(str(operator), args):
            text, own = _operator(operator, args)
        case Apply(callee, args, keywords):
            shown = [*map(print_operand, args), *(f"{name}={print_operand(value)}" for name, value in keywords)]
            return f"{_operand(callee, _POSTFIX)}({', '.join(shown)})"  # type: ignore[arg-type]
    return text if own >= place else f"({text})"


def _operator(operator: str, args: tuple[Operand, ...]) -> tuple[str, int]:
    if len(args) == 1 and operator in _SIGNS:
        # `-1` is a constant, so the negation of one keeps its parentheses.
        number = isinstance(args[0], Const) and not isinstance(args[0].value, str | bool | None)
        inner = f"({print_operand(args[0])})" if number else _operand(args[0], _UNARY)
        return _SIGNS[operator] + inner, _UNARY
    if len(args) != 2 or operator not in _BINARY:
        raise ValueError(f"the notation has no operator {operator!r} with {len(args)} operands")
    own = _BINARY[operator]
    left, right = {_POWER: (_POSTFIX, _UNARY), _COMPARISON: (_SUM, _SUM)}.get(own, (own, own + 1))
    return f"{_operand(args[0], left)} {operator} {_operand(args[1], right)}", own


def _base(base: Operand) -> str:
    """What an attribute is taken of; a name in parentheses keeps `(a).b` apart from the one name `a.b`."""
    text = _operand(base, _POSTFIX)
    return f"({text})" if isinstance(base, Ref) else text


def _index(index: Operand | Slice) -> str:
    if isinstance(index, Slice):
        return _slice(index.start, index.stop)
    if isinstance(index, Group) and len(index.items) > 1:
        return ", ".join(map(_part, index.items))
    return _part(index) if _step(index) else print_operand(index)


def _part(index: Operand) -> str:
    """One index of several, where `slice(a, b)` has its short spelling."""
    match index:
        case Apply(callee, (start, stop), ()) if callee == SLICE:
            return _slice(*(None if part == Const(None) else part for part in (start, stop)))
        case Apply(_, (start, stop, step)) if _step(index):
            return f"{_part(Apply(SLICE, (start, stop)))}:{print_operand(step)}"
    return print_operand(index)


def _step(index: Operand) -> bool:
    return (
        isinstance(index, Apply)
        and index.callee == SLICE
        and len(index.args) == 3
        and index.args[2] != Const(None)
        and not index.keywords
    )


def _slice(start: Operand | None, stop: Operand | None) -> str:
    return ":".join("" if part is None else print_operand(part) for part in (start, stop))


def _constant(constant: Const) -> tuple[str, int]:
    value = constant.value
    if isinstance(value, str):
        return _string(value), _POSTFIX
    if value is None or isinstance(value, bool):
        return repr(value), _POSTFIX
    text = "1e999" if value == math.inf else "-1e999" if value == -math.inf else repr(value)
    # A number takes no attribute or call without parentheses, and `-1 ** 2` is `-(1 ** 2)`.
    return text, _UNARY if text.startswith("-") else _POWER


def _string(value: str) -> str:
    escaped = (f"\\{char}" if char in '"\\' else char if char.isprintable() else repr(char)[1:-1] for char in value)
    return f'"{"".join(escaped)}"'


def _need(need: Need) -> str:
    return f"{need.package} >= {need.version}" if need.version else need.package


def _predicate(predicate: Predicate) -> str:
    return f"{predicate.name}({', '.join(map(print_operand, predicate.args))})"
