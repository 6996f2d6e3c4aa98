"""Lowering of expressions: each becomes one value, and every use of a value is recorded on
a node."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence

from regraft.source.qualified_names import dotted
from regraft.structure import calls, guards, layers, operations
from regraft.structure.call_expressions import lower_call, lower_part
from regraft.structure.calls import attribute, glue
from regraft.structure.conditions import comparison_guard, truth_guard
from regraft.structure.containers import element, loop_element, unpack
from regraft.structure.guards import Guard
from regraft.structure.library_activations import ACTIVATION_TABLES, ACTIVATIONS
from regraft.structure.lowering_state import Frame
from regraft.structure.optable import is_dtype
from regraft.structure.values_and_nodes import Kind, Layer, Value


def lower(frame: Frame, expr: ast.expr) -> Value:
    """Lower an expression and return its value."""
    return _DISPATCH.get(type(expr), _any_expression)(frame, expr)


def condition(frame: Frame, expr: ast.expr) -> Guard:
    """Lower a test and return it as a guard; its values are used by a `py.test` node."""
    if isinstance(expr, ast.BoolOp):
        parts = [condition(frame, value) for value in expr.values]
        join = guards.conjoin if isinstance(expr.op, ast.And) else guards.disjoin
        return functools.reduce(join, parts)
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.Not):
        return guards.negate(condition(frame, expr.operand))
    if isinstance(expr, ast.Compare) and len(expr.ops) == 1:
        return _comparison(frame, expr)
    value = lower(frame, expr)
    glue(frame, "py.test", (value,), expr)
    return truth_guard(frame, expr, value)


def _comparison(frame: Frame, expr: ast.Compare) -> Guard:
    """Lower a comparison of two operands and return it as a guard."""
    left, right = lower(frame, expr.left), lower(frame, expr.comparators[0])
    glue(frame, "py.test", (left, right), expr)
    return comparison_guard(frame, expr, left, right)


# leaves


def _constant(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.Constant)
    return frame.constant(expr.value)


def _name(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a name: a local binding, else a global value, or an opaque one if the
    module rebinds it."""
    assert isinstance(expr, ast.Name)
    bound = frame.env.get(expr.id)
    if bound is not None:
        return bound.value
    names = frame.scope.names
    qualified = names.qualified.get(expr.id, expr.id)
    if frame.scope.home and expr.id in names.bound and expr.id not in names.qualified:
        if expr.id not in names.definitions:
            return frame.value("unknown")  # a variable of another file
        qualified = f"{frame.scope.home}.{expr.id}"
    if expr.id in names.rebound:
        # any call may change it
        return frame.node("call", {}, expr, effect=True, spelling=expr.id).output
    if expr.id in names.numbers:
        return frame.global_(qualified, "int" if names.numbers[expr.id] else "scalar")
    return frame.global_(qualified, _kind_of_name(qualified))


# the numbers of libraries by which formulas are written
_NUMBERS = frozenset(
    {"math.pi", "math.e", "math.tau", "numpy.pi", "numpy.e", "torch.pi", "torch.e"}
)


def _kind_of_name(qualified: str) -> Kind:
    """Return the kind of what a qualified name stands for: a data type of PyTorch, a number such as
    `math.pi`, or "unknown"."""
    if qualified in _NUMBERS:
        return "scalar"
    return "dtype" if is_dtype(qualified) else "unknown"


def _attribute(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of an attribute: a path of the instance, a qualified name, or an attribute
    of a value."""
    assert isinstance(expr, ast.Attribute)
    path = dotted(expr)
    if path is not None:
        root, attributes = path
        if root == frame.receiver and root in frame.env and frame.env[root].value.origin == "param":
            for name in attributes.split("."):
                calls.record_custom_code(frame, name, expr)
            return frame.path(f"self.{attributes}")
        if root not in frame.env and root in frame.scope.names.qualified:
            qualified = f"{frame.scope.names.qualified[root]}.{attributes}"
            return frame.global_(qualified, _kind_of_name(qualified))
    base = lower(frame, expr.value)
    if base.layers and base.name and base.origin == "path":
        return frame.path(f"{base.name}.{expr.attr}")
    return attribute(frame, base, expr.attr, expr)


# operators


def _binop(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.BinOp)
    left, right = lower(frame, expr.left), lower(frame, expr.right)
    return operations.binary(frame, expr.op, left, right, expr)


def _unary(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a unary operator: a constant, the tensor operation `neg`, or glue."""
    assert isinstance(expr, ast.UnaryOp)
    operand = lower(frame, expr.operand)
    if isinstance(expr.op, ast.USub):
        if isinstance(operand.const, int | float) and not isinstance(operand.const, bool):
            return frame.constant(-operand.const)
        if operand.kind not in operations.NOT_TENSOR:
            return frame.node("neg", {"input": operand}, expr, operand.kind, spelling="neg").output
    return glue(
        frame,
        "py.unary",
        (operand,),
        expr,
        "bool" if isinstance(expr.op, ast.Not) else operand.kind,
    ).output


def _boolop(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.BoolOp)
    return glue(frame, "py.bool", [lower(frame, value) for value in expr.values], expr).output


def _compare(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.Compare)
    return glue(
        frame,
        "py.compare",
        [lower(frame, operand) for operand in (expr.left, *expr.comparators)],
        expr,
    ).output


def _ifexp(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a conditional expression: a φ of its two values unless they are
    the same."""
    assert isinstance(expr, ast.IfExp)
    test = condition(frame, expr.test)
    outer = frame.guard
    frame.guard = guards.conjoin(outer, test)
    then = lower(frame, expr.body)
    frame.guard = guards.conjoin(outer, guards.negate(test))
    otherwise = lower(frame, expr.orelse)
    frame.guard = outer
    if then is otherwise:
        return then
    glue(frame, "py.phi", (then, otherwise), expr)
    return frame.phi(((test, then), (guards.negate(test), otherwise)))


# containers, subscripts and other expressions


def _sequence(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.Tuple | ast.List)
    has_star = any(isinstance(element, ast.Starred) for element in expr.elts)
    values = [lower_part(frame, element) for element in expr.elts]
    value = glue(frame, "py.tuple", values, expr, "tuple").output
    value.items = None if has_star else tuple(values)
    return value


def _subscript(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a subscript: a layer, an item that is known, or a node `py.item`."""
    assert isinstance(expr, ast.Subscript)
    base, index = lower(frame, expr.value), lower(frame, expr.slice)
    if base.origin == "global":
        if base.name in ACTIVATION_TABLES and index.const in ACTIVATIONS:
            return _activation(frame, str(index.const), expr)
        return layers.choice(frame, base, index, expr)
    if base.layers and base.layers[0].type in layers.CONTAINERS:
        return element(frame, base, expr)
    items, number = base.items, index.const
    if items is not None and isinstance(number, int) and -len(items) <= number < len(items):
        glue(frame, "py.item", (base, index), expr)
        return items[number]
    kind: Kind = "tensor" if base.kind == "tensor" else "unknown"
    if base.kind == "unknown":
        calls.record_custom_code(frame, "__add__", expr)
    if base.kind == "tuple" and base.attribute() is not None:
        kind = "tuple" if isinstance(expr.slice, ast.Slice) else "int"  # of x.shape
    return frame.node("py.item", {"base": base, "index": index}, expr, kind).output


def _activation(frame: Frame, name: str, expr: ast.Subscript) -> Value:
    """Return the module value of an entry of a table of activations, such as `ACT2FN['gelu']`."""
    lines = (expr.lineno, expr.end_lineno or expr.lineno)
    value = frame.node("py.construct", {}, expr, "module", spelling=ACTIVATIONS[name]).output
    value.layers = (Layer(ACTIVATIONS[name], guard=frame.guard, lines=lines),)
    return value


def _slice(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.Slice)
    parts = (("start", expr.lower), ("stop", expr.upper), ("step", expr.step))
    args = {
        name: frame.constant(None) if bound is None else lower(frame, bound)
        for name, bound in parts
    }
    return frame.node("py.slice", args, expr).output


def _dict(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a dictionary display; record its entries when all keys are strings."""
    assert isinstance(expr, ast.Dict)
    keys = [lower(frame, key) for key in expr.keys if key is not None]
    values = [lower(frame, value) for value in expr.values]
    dictionary = glue(frame, "py.dict", [*keys, *values], expr).output
    names = [key.const for key in keys]
    if len(keys) == len(values) and all(isinstance(name, str) for name in names):
        frame.dicts[dictionary] = {
            str(name): value for name, value in zip(names, values, strict=True)
        }
    return dictionary


def _walrus(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.NamedExpr)
    value = lower(frame, expr.value)
    if isinstance(expr.value, ast.Name):
        glue(frame, "py.use", (value,), expr)
    if isinstance(expr.target, ast.Name):
        frame.bind(expr.target.id, value)
    return value


def _lambda(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.Lambda)
    return glue(frame, "py.lambda", captured(frame, [expr]), expr).output


def captured(frame: Frame, body: Sequence[ast.AST]) -> list[Value]:
    """Return the values of this function that a nested function, class or lambda reads."""
    values: dict[Value, None] = {}
    for root in body:
        for node in ast.walk(root):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and node.id in frame.env
            ):
                values[frame.env[node.id].value] = None
    return list(values)


def _comprehension(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a comprehension, whose element is lowered once in a loop of its own."""
    assert isinstance(expr, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp)
    # a walrus binds outside the comprehension
    walrus_names = [node.target.id for node in ast.walk(expr) if isinstance(node, ast.NamedExpr)]
    for name in walrus_names:
        glue(frame, "py.use", [frame.env[name].value] if name in frame.env else [], expr)
        frame.bind(name, frame.fresh(name))
    mark, outer_guard, outer_loop = len(frame.trail), frame.guard, frame.loop
    frame.loops += 1
    for generator in expr.generators:
        source = lower(frame, generator.iter)
        calls.record_iteration(frame, source, generator.iter)
        frame.loop = frame.loops
        _bind_names(frame, generator.target, loop_element(frame, source, generator.iter))
        for test in generator.ifs:
            frame.guard = guards.conjoin(frame.guard, condition(frame, test))
    parts = [expr.key, expr.value] if isinstance(expr, ast.DictComp) else [expr.elt]
    values = [lower(frame, part) for part in parts]
    frame.guard, frame.loop = outer_guard, outer_loop
    frame.rewind(mark)
    for name in walrus_names:
        frame.bind(name, frame.fresh(name))
    value = glue(
        frame,
        "py.comprehension",
        values,
        expr,
        "tuple" if isinstance(expr, ast.ListComp) else "unknown",
    ).output
    if isinstance(expr, ast.ListComp) and values[0].layers:
        value.items = (values[0],)
    return value


def _bind_names(frame: Frame, target: ast.expr, value: Value) -> None:
    """Bind the names in a comprehension's target; give up on attributes and subscripts."""
    for inner_target, part in unpack(frame, target, value):
        if isinstance(inner_target, ast.Name):
            frame.bind(inner_target.id, part)
        else:
            frame.give_up(inner_target, "a comprehension that assigns to something else than names")


def _effectful(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of `await` or `yield`: control leaves the function, so anything may
    happen."""
    operand = getattr(expr, "value", None)
    values = [lower(frame, operand)] if operand is not None else []
    frame.give_up(expr, f"{type(expr).__name__.lower()} leaves the function")
    return frame.node("call", dict(calls.enumerate_args(values)), expr, effect=True).output


def _any_expression(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of any other expression (f-string, set, starred), which uses its parts
    without side effect."""
    parts = [child for child in ast.iter_child_nodes(expr) if isinstance(child, ast.expr)]
    return glue(frame, "py.other", [lower(frame, part) for part in parts], expr).output


_DISPATCH: dict[type[ast.expr], Callable[[Frame, ast.expr], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: lower_call,
    ast.BinOp: _binop,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolop,
    ast.Compare: _compare,
    ast.IfExp: _ifexp,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Dict: _dict,
    ast.NamedExpr: _walrus,
    ast.Lambda: _lambda,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.Await: _effectful,
    ast.Yield: _effectful,
    ast.YieldFrom: _effectful,
}
