"""Printing of syntax in its canonical spelling, which parses back to an equal syntax tree."""

from __future__ import annotations

import math

from regraft.dsl.syntax import (
    COMPARISONS,
    ELLIPSIS,
    SLICE,
    SUBSCRIPT,
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

# Precedences, from `or` to a name; an operand of a lower precedence than its context requires needs
# parentheses.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _UNARY, _POWER, _POSTFIX = range(9)
_BINARY = {
    **dict.fromkeys(COMPARISONS, _COMPARISON),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "//", "%", "@"), _PRODUCT),
    "**": _POWER,
}
_SIGNS = {"neg": "-", "~": "~"}


def print_rule(rule: RuleSyntax) -> str:
    """Return the text of a rule file, with a final newline; every transformation has a heading of
    its own."""
    lines = [f"rule {rule.name}", f"  summary {_string(rule.summary)}", f"  safety  {rule.safety}"]
    if rule.off:
        lines.append("  default off")
    if rule.needs:
        lines.append(f"  needs   {', '.join(map(_need, rule.needs))}")
    for heading, transformations in (("init", rule.init), ("forward", rule.forward)):
        for transformation in transformations:
            lines += [
                heading,
                *(f"  {line}" for line in print_transformation(transformation).splitlines()),
            ]
    for body in rule.bodies:
        code = [f"  | {line}".rstrip() for line in body.code.split("\n")]
        lines += ["block" if body.is_block else "body", *code, f"  => {print_node(body.target)}"]
    if rule.where:
        lines += ["where", ",\n".join(f"  {_predicate(predicate)}" for predicate in rule.where)]
    return "\n".join(lines) + "\n"


def print_transformation(transformation: Transformation) -> str:
    """Return the text `source => target` with one node per line."""
    target = print_fragment(transformation.target).replace("\n", "\n   ") or "keep"
    return f"{print_fragment(transformation.source)}\n=> {target}"


def print_fragment(fragment: Fragment, separator: str = "\n") -> str:
    """Return the text of the nodes in order, one per line unless another `separator` is passed."""
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


def _condition(condition: Condition, minimum: int) -> str:
    """Return the text of a condition, in parentheses if its precedence is below `minimum`."""
    match condition:
        case Or(operands):
            text, precedence = " or ".join(_condition(operand, _AND) for operand in operands), _OR
        case And(operands):
            text, precedence = " and ".join(_condition(operand, _NOT) for operand in operands), _AND
        case Not(operand):
            text, precedence = f"not {_condition(operand, _NOT)}", _NOT
        case Test(left, op, right) if op is not None and right is not None:
            text, precedence = f"{_operand(left, _SUM)} {op} {_operand(right, _SUM)}", _COMPARISON
        case Test(left):
            return _operand(left, _SUM)
    return text if precedence >= minimum else f"({text})"


def _operand(operand: Operand, minimum: int) -> str:
    """Return the text of an operand, in parentheses if its precedence is below `minimum`."""
    match operand:
        case Var(name):
            return f"${name}"
        case Wildcard():
            return "_"
        case Ref(path):
            return "..." if operand == ELLIPSIS else path
        case Const():
            text, precedence = _constant(operand)
        case Attr(base, name):
            return f"{_base(base)}.{name}"
        case Item(base, index):
            return f"{_operand(base, _POSTFIX)}[{_index(index)}]"
        case Group(items):
            inner = ", ".join(map(print_operand, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
        case Apply(callee, (base, index)) if callee == SUBSCRIPT:
            return f"{_operand(base, _POSTFIX)}[{_elements(index)}]"
        case Apply(str(operator), args):
            text, precedence = _operator(operator, args)
        case Apply(callee, args, keywords):
            shown = [
                *map(print_operand, args),
                *(f"{name}={print_operand(value)}" for name, value in keywords),
            ]
            return f"{_operand(callee, _POSTFIX)}({', '.join(shown)})"  # type: ignore[arg-type]
    return text if precedence >= minimum else f"({text})"


def _operator(operator: str, args: tuple[Operand, ...]) -> tuple[str, int]:
    """Return the text and the precedence of an operator with its operands; raise ValueError for an
    unknown one."""
    if len(args) == 1 and operator in _SIGNS:
        # `-1` is a constant, so the negation of a constant keeps its parentheses.
        is_number = isinstance(args[0], Const) and not isinstance(args[0].value, str | bool | None)
        inner = f"({print_operand(args[0])})" if is_number else _operand(args[0], _UNARY)
        return _SIGNS[operator] + inner, _UNARY
    if len(args) != 2 or operator not in _BINARY:
        raise ValueError(f"the notation has no operator {operator!r} with {len(args)} operands")
    precedence = _BINARY[operator]
    left, right = {_POWER: (_POSTFIX, _UNARY), _COMPARISON: (_SUM, _SUM)}.get(
        precedence, (precedence, precedence + 1)
    )
    return f"{_operand(args[0], left)} {operator} {_operand(args[1], right)}", precedence


def _base(base: Operand) -> str:
    """Return the text of an attribute's base; parentheses around a name distinguish `(a).b` from
    the name `a.b`."""
    text = _operand(base, _POSTFIX)
    return f"({text})" if isinstance(base, Ref) else text


def _index(index: Operand | Slice) -> str:
    """Return the text between the brackets of a subscript."""
    if isinstance(index, Slice):
        return _slice(index.start, index.stop)
    is_plain = not isinstance(index, Group) and not _has_step(index)
    return print_operand(index) if is_plain else _elements(index)


def _elements(index: Operand) -> str:
    """Return the text between the brackets of a subscript, in which `slice(a, b)` is written
    `a:b`."""
    if isinstance(index, Group) and len(index.items) > 1:
        return ", ".join(map(_part, index.items))
    return _part(index)


def _part(index: Operand) -> str:
    """Return the text of one of several indices, in which `slice(a, b)` is written `a:b`."""
    match index:
        case Apply(callee, (start, stop), ()) if callee == SLICE:
            return _slice(*(None if part == Const(None) else part for part in (start, stop)))
        case Apply(_, (start, stop, step)) if _has_step(index):
            return f"{_part(Apply(SLICE, (start, stop)))}:{print_operand(step)}"
    return print_operand(index)


def _has_step(index: Operand) -> bool:
    """Return whether an index is a call of `slice` with a step other than None."""
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
    """Return the text of a constant and its precedence."""
    value = constant.value
    if isinstance(value, str):
        return _string(value), _POSTFIX
    if value is None or isinstance(value, bool):
        return repr(value), _POSTFIX
    text = "1e999" if value == math.inf else "-1e999" if value == -math.inf else repr(value)
    # A number takes no attribute or call without parentheses, and `-1 ** 2` is `-(1 ** 2)`.
    return text, _UNARY if text.startswith("-") else _POWER


def _string(value: str) -> str:
    """Return a string literal in double quotes."""
    escaped = (
        f"\\{char}" if char in '"\\' else char if char.isprintable() else repr(char)[1:-1]
        for char in value
    )
    return f'"{"".join(escaped)}"'


def _need(need: Need) -> str:
    return f"{need.package} >= {need.version}" if need.version else need.package


def _predicate(predicate: Predicate) -> str:
    return f"{predicate.name}({', '.join(map(print_operand, predicate.args))})"
