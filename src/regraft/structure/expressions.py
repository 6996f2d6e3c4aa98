"""Lowering of expressions: each becomes one value, and every use of a value is recorded on
a node."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from regraft.source.names import dotted
from regraft.structure import calls, guards
from regraft.structure.calls import Arguments, attribute, glue
from regraft.structure.containers import element, loop_element, unpack
from regraft.structure.frame import Frame, Function, Scope
from regraft.structure.guards import Atom, Guard
from regraft.structure.inline import inline
from regraft.structure.model import MISSING, Layer, Value
from regraft.structure.optable import is_dtype

# Names of other libraries whose meaning is documented: `transformers.activations` (a table from
# configuration strings to activation modules, and the module it holds under "gelu").
ACTIVATION_TABLES = frozenset({"transformers.activations.ACT2FN"})
ACTIVATIONS = {
    "gelu": "torch.nn.GELU",
    "relu": "torch.nn.ReLU",
    "silu": "torch.nn.SiLU",
    "swish": "torch.nn.SiLU",
    "tanh": "torch.nn.Tanh",
    "sigmoid": "torch.nn.Sigmoid",
    "relu6": "torch.nn.ReLU6",
    "leaky_relu": "torch.nn.LeakyReLU",
}


def lower(frame: Frame, expr: ast.expr) -> Value:
    """Lower an expression and return its value."""
    return _DISPATCH.get(type(expr), _any_expression)(frame, expr)


def condition(frame: Frame, expr: ast.expr) -> Guard:
    """Lower a test and return it as a guard; its values are used by a `py.test` node."""
    if isinstance(expr, ast.BoolOp):
        parts = [condition(frame, value) for value in expr.values]
        join = guards.conjoin if isinstance(expr.op, ast.And) else guards.disjoin
        result = parts[0]
        for part in parts[1:]:
            result = join(result, part)
        return result
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.Not):
        return guards.negate(condition(frame, expr.operand))
    if isinstance(expr, ast.Compare) and len(expr.ops) == 1:
        return _comparison(frame, expr)
    value = lower(frame, expr)
    glue(frame, "py.test", (value,), expr)
    if value.const is not MISSING:
        return guards.TRUE if value.const else guards.FALSE
    node = value.node
    predicate = calls.predicate(node.spelling) if node is not None and node.op == "call" else None
    if node is not None and predicate is not None and "0" in node.args:
        return Atom(
            "call",
            f"{predicate}({node.args['0'].key()})",
            None,
            _text(frame, expr),
            _test_time(frame),
        )
    return Atom("truth", value.key(), None, _text(frame, expr), _test_time(frame))


def _comparison(frame: Frame, expr: ast.Compare) -> Guard:
    """Return a comparison of two operands as a guard; the atom is opaque unless one operand is a
    constant."""
    left, right = lower(frame, expr.left), lower(frame, expr.comparators[0])
    glue(frame, "py.test", (left, right), expr)
    operator = expr.ops[0]
    order = _ORDERS.get(type(operator))
    negated = isinstance(operator, ast.IsNot | ast.NotEq)
    atom: Guard
    if left.const is not MISSING and right.const is MISSING:
        left, right = right, left
        order = order and order.translate(_MIRRORED)
    if isinstance(operator, ast.Is | ast.IsNot) and right.const is None:
        if left.const is not MISSING:
            return guards.TRUE if (left.const is None) is not negated else guards.FALSE
        text, opposite = _comparison_texts(frame, expr, ast.Is(), ast.IsNot())
        atom = Atom("none", left.key(), None, text, _test_time(frame), opposite)
    elif isinstance(operator, ast.Eq | ast.NotEq) and right.const is not MISSING:
        text, opposite = _comparison_texts(frame, expr, ast.Eq(), ast.NotEq())
        atom = Atom("eq", left.key(), right.const, text, _test_time(frame), opposite)
    elif order and type(right.const) in (int, float):
        return Atom(order, left.key(), right.const, _text(frame, expr), _test_time(frame))
    else:
        text = _text(frame, expr)
        subject = f"{left.key()} {type(operator).__name__} {right.key()}"
        return Atom("opaque", subject, None, text, _test_time(frame))
    return guards.negate(atom) if negated else atom


def _comparison_texts(
    frame: Frame, expr: ast.Compare, positive: ast.cmpop, negative: ast.cmpop
) -> tuple[str, str]:
    """Return a comparison and its opposite as the source writes them."""
    if not (isinstance(expr.left, _SIMPLE) and isinstance(expr.comparators[0], _SIMPLE)):
        texts = (
            ast.unparse(ast.Compare(expr.left, [operator], expr.comparators))
            for operator in (positive, negative)
        )
    else:
        left, right = _text(frame, expr.left), _text(frame, expr.comparators[0])
        texts = (f"{left} {_WORDS[type(operator)]} {right}" for operator in (positive, negative))
    written, opposite = texts
    return written, opposite


_ORDERS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_MIRRORED = str.maketrans("lg", "gl")
_WORDS = {ast.Is: "is", ast.IsNot: "is not", ast.Eq: "==", ast.NotEq: "!="}
_SIMPLE = (ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Subscript)


def _text(frame: Frame, expr: ast.expr) -> str:
    """Return the text of an expression in the source, or its normal form when the text has odd
    white space."""
    segment = frame.scope.source.segment(expr)
    plain = "\n" not in segment and "  " not in segment and "\t" not in segment
    return segment if plain else ast.unparse(expr)


def _test_time(frame: Frame) -> int:
    """Return the time of a test; negative inside an inlined function, which has names of
    its own."""
    return frame.time if frame.site is None else -frame.time


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
    return frame.global_(qualified, "dtype" if is_dtype(qualified) else "unknown")


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
            return frame.global_(qualified, "dtype" if is_dtype(qualified) else "unknown")
    base = lower(frame, expr.value)
    if base.layers and base.name:
        return (
            frame.path(f"{base.name}.{expr.attr}")
            if base.origin == "path"
            else attribute(frame, base, expr.attr, expr)
        )
    return attribute(frame, base, expr.attr, expr)


# calls


def _call(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a call of a method, a layer, a global or local function, or of an opaque
    call."""
    assert isinstance(expr, ast.Call)
    function = expr.func
    if isinstance(function, ast.Attribute):
        value = _method_call(frame, expr, function)
        if value is not None:
            return value
    callee = lower(frame, function)
    arguments = _lower_arguments(frame, expr)
    if callee.layers:
        return (
            calls.layer_call(frame, callee, arguments, expr)
            if arguments
            else _starred_call(frame, expr, callee)
        )
    if arguments is None:
        return calls.mark_possible_layer(frame, callee, _starred_call(frame, expr, callee), expr)
    if callee.origin == "global":
        return _global_call(frame, expr, callee, arguments)
    if callee in frame.local_functions and frame.can_see(frame.local_functions[callee]):
        value = _inline_call(
            frame,
            expr,
            frame.local_functions[callee],
            frame.local_functions[callee].name,
            arguments,
            closure=True,
        )
        if value is not None:
            return value
    return calls.mark_possible_layer(
        frame, callee, calls.call(frame, callee, arguments, expr, callee.name), expr
    )


def _method_call(frame: Frame, expr: ast.Call, function: ast.Attribute) -> Value | None:
    """Return the value of a method call like `x.softmax(-1)` or `self.name()`; None for any other
    call."""
    path = dotted(function)
    if path is not None:
        root, attributes = path
        if root not in frame.env and root in frame.scope.names.qualified:
            return None
        if root == frame.receiver and "." not in attributes:
            return _self_call(frame, expr, attributes)
    op = frame.scope.table.method(function.attr)
    if op is None:
        return None
    base = lower(frame, function.value)
    if base.kind in calls.NOT_TENSOR or (base.origin == "global" and base.name not in frame.env):
        return None
    arguments = _lower_arguments(frame, expr)
    if arguments is None:
        return _starred_call(frame, expr, base)
    positional, keywords = arguments
    return calls.tensor_op(
        frame, op, ((base, *positional), keywords), expr, f"torch.Tensor.{function.attr}"
    )


def _self_call(frame: Frame, expr: ast.Call, name: str) -> Value | None:
    """Return the value of `self.name(...)` for a method of the class; None for other attributes,
    such as layers."""
    if name not in frame.scope.methods:
        return None
    arguments = _lower_arguments(frame, expr)
    if arguments is not None and name in frame.scope.final:
        method = frame.scope.methods[name]
        receiver = None if method.decorator_list else frame.env[frame.receiver or ""].value
        value = _inline_call(frame, expr, method, f"self.{name}", arguments, receiver)
        if value is not None:
            return value
    args = arguments if arguments is not None else ((_starred_call(frame, expr, None),), {})
    return calls.call(frame, None, args, expr, f"self.{name}")


def _inline_call(
    frame: Frame,
    expr: ast.Call,
    function: Function,
    name: str,
    arguments: Arguments,
    receiver: Value | None = None,
    closure: bool = False,
    scope: Scope | None = None,
) -> Value | None:
    """Return the value of a call by inlining the function; None when it cannot be inlined."""
    assert frame.lower_block is not None
    return inline(
        frame, expr, function, name, arguments, frame.lower_block, receiver, closure, scope
    )


def _lower_arguments(frame: Frame, expr: ast.Call) -> Arguments | None:
    """Lower the arguments of a call; None when there are star arguments whose number or names are
    unknown."""
    if any(isinstance(argument, ast.Starred) for argument in expr.args):
        return None
    if any(
        keyword.arg is None and not _is_known_dict(frame, keyword.value)
        for keyword in expr.keywords
    ):
        return None
    positional = [lower(frame, argument) for argument in expr.args]
    keywords: dict[str, Value] = {}
    for keyword in expr.keywords:
        value = lower(frame, keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        else:
            glue(frame, "py.star", (value,), keyword.value)
            keywords.update(frame.dicts[value])
    return positional, keywords


def _is_known_dict(frame: Frame, expr: ast.expr) -> bool:
    """Return whether an expression names a dictionary display that nothing but `**` has
    used since."""
    bound = frame.env.get(expr.id) if isinstance(expr, ast.Name) else None
    if bound is None or bound.value not in frame.dicts or bound.value.joins:
        return False
    return all(use.op == "py.star" for use in bound.value.uses)


def _starred_call(frame: Frame, expr: ast.Call, callee: Value | None) -> Value:
    """Return the value of an opaque call with star arguments; give up on a container of modules."""
    values = [
        lower(frame, argument.value if isinstance(argument, ast.Starred) else argument)
        for argument in expr.args
    ]
    values += [lower(frame, keyword.value) for keyword in expr.keywords]
    if callee is not None and callee.layers and callee.layers[0].type in calls.CONTAINERS:
        frame.give_up(expr, "star arguments: the number of modules is unknown")
    return calls.call(frame, callee, (values, {}), expr, callee.name if callee is not None else "")


def _global_call(frame: Frame, expr: ast.Call, callee: Value, arguments: Arguments) -> Value:
    """Return the value of a call of an imported, built-in or module-level name; the call is opaque
    if nothing fits."""
    name = callee.name
    op = calls.function_op(name)
    stars_known = all(star.split(".")[0] == "torch" for star in frame.scope.names.stars)
    if op is None and "." not in name and name not in frame.scope.names.bound and stars_known:
        for star in frame.scope.names.stars:
            op = op or frame.scope.table.canonical_op(f"{star}.{name}")
    if op is not None:
        return calls.tensor_op(frame, op, arguments, expr, name)
    module = calls.construct(frame, name, arguments, expr)
    if module is not None:
        return module
    if name in frame.scope.names.definitions:
        return _definition_call(frame, expr, name, arguments)
    definition = frame.scope.imported(name) if "." in name else None
    if definition is not None:
        result = _inline_call(frame, expr, definition[1], name, arguments, scope=definition[0])
        if result is not None:
            return result
    if name in calls.PURE_FUNCTIONS or name.startswith(calls.PURE_MODULES):
        positional, keywords = arguments
        kind = "scalar" if name.startswith("math.") else "unknown"
        node = glue(frame, "py.call", (*positional, *keywords.values()), expr, kind)
        node.spelling = name
        return node.output
    if name in calls.PURE_BUILTINS:
        positional, keywords = arguments
        if name in calls.CONSUMERS:
            for value in positional:
                calls.record_iteration(frame, value, expr)
        elif name == "getattr" and len(positional) > 1:
            calls.record_custom_code(frame, str(positional[1].const), expr)
        node = glue(
            frame, "py.call", (*positional, *keywords.values()), expr, calls.PURE_BUILTINS[name]
        )
        node.spelling = name
        return node.output
    return calls.call(frame, None, arguments, expr, name)


def _definition_call(frame: Frame, expr: ast.Call, name: str, arguments: Arguments) -> Value:
    """Return the value of a call of a class or function of the file.

    A class is taken to be a module type; a function is inlined where possible.
    """
    definition = frame.scope.names.definitions[name]
    if not isinstance(definition, ast.ClassDef):
        result = _inline_call(frame, expr, definition, name, arguments)
        if result is not None:
            return result
    value = calls.call(frame, None, arguments, expr, name)
    if isinstance(definition, ast.ClassDef):
        positional, keywords = arguments
        args = {**dict(calls.enumerate_args(positional)), **keywords}
        lines = (expr.lineno, expr.end_lineno or expr.lineno)
        value.layers = (Layer(name, args=args, guard=frame.guard, lines=lines),)
        value.kind = "module"
    return value


# operators


def _binop(frame: Frame, expr: ast.expr) -> Value:
    assert isinstance(expr, ast.BinOp)
    left, right = lower(frame, expr.left), lower(frame, expr.right)
    return calls.binary(frame, expr.op, left, right, expr)


def _unary(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a unary operator: a constant, the tensor operation `neg`, or glue."""
    assert isinstance(expr, ast.UnaryOp)
    operand = lower(frame, expr.operand)
    if isinstance(expr.op, ast.USub):
        if isinstance(operand.const, int | float) and not isinstance(operand.const, bool):
            return frame.constant(-operand.const)
        if operand.kind not in calls.NOT_TENSOR:
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
    values = [
        lower(frame, element.value if isinstance(element, ast.Starred) else element)
        for element in expr.elts
    ]
    value = glue(frame, "py.tuple", values, expr, "tuple").output
    value.items = None if has_star else tuple(values)
    return value


def _subscript(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a subscript: a layer, an item whose value is known, or a node
    `py.item`."""
    assert isinstance(expr, ast.Subscript)
    base, index = lower(frame, expr.value), lower(frame, expr.slice)
    if base.origin == "global":
        if base.name in ACTIVATION_TABLES and index.const in ACTIVATIONS:
            return _activation(frame, str(index.const), expr)
        return calls.choice(frame, base, index, expr)
    if base.layers and base.layers[0].type in calls.CONTAINERS:
        return element(frame, base, expr)
    if (
        base.items is not None
        and isinstance(index.const, int)
        and -len(base.items) <= index.const < len(base.items)
    ):
        glue(frame, "py.item", (base, index), expr)
        return base.items[index.const]
    kind = "tensor" if base.kind == "tensor" else "unknown"
    if base.kind == "unknown":
        calls.record_custom_code(frame, "__add__", expr)
    if base.kind == "tuple" and base.attribute() is not None:
        kind = "tuple" if isinstance(expr.slice, ast.Slice) else "int"  # of x.shape
    return frame.node("py.item", {"base": base, "index": index}, expr, kind).output  # type: ignore[arg-type]


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
    ast.Call: _call,
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
