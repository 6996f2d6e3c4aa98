"""Lowering of calls: tensor operations, layers and opaque calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from regraft.structure.frame import Frame
from regraft.structure.model import MISSING, Layer, Node, Value
from regraft.structure.optable import LayerType, bind, table

# Built-in functions without side effects, with the kind of their result.
PURE_BUILTINS = {
    "len": "int",
    "int": "int",
    "float": "scalar",
    "bool": "bool",
    "str": "str",
    "range": "unknown",
    "isinstance": "bool",
    "issubclass": "bool",
    "hasattr": "bool",
    "getattr": "unknown",
    "tuple": "tuple",
    "list": "tuple",
    "dict": "unknown",
    "set": "unknown",
    "min": "unknown",
    "max": "unknown",
    "sum": "unknown",
    "abs": "unknown",
    "round": "unknown",
    "zip": "unknown",
    "enumerate": "unknown",
    "reversed": "unknown",
    "sorted": "tuple",
    "type": "unknown",
    "id": "int",
    "any": "bool",
    "all": "bool",
    "callable": "bool",
    "super": "unknown",
    "repr": "str",
}

# Tensor methods that convert the data type, as `to`.
CASTS = {
    "float": "torch.float32",
    "half": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "double": "torch.float64",
}

# Functions without side effects that create tensors or numbers and take no tensors.
PURE_FUNCTIONS = frozenset(
    f"torch.{name}"
    for name in [
        "tensor",
        "as_tensor",
        "zeros",
        "ones",
        "full",
        "empty",
        "arange",
        "linspace",
        "logspace",
        "eye",
        "scalar_tensor",
        "finfo",
        "iinfo",
        "is_tensor",
        "device",
        "Size",
        "get_default_dtype",
        "from_numpy",
        "jit.is_tracing",
        "jit.is_scripting",
        "is_autocast_enabled",
        "compiler.is_compiling",
    ]
)
# Built-in functions that iterate over their arguments.
CONSUMERS = frozenset({"list", "tuple", "set", "dict", "sum", "min", "max", "sorted", "any", "all"})
PURE_MODULES = ("math.", "operator.", "itertools.")

CONTAINERS = ("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict")
# Functions of Regraft that only inspect a module: their calls are guards, not side effects.
PREDICATES = frozenset({"is_gelu"})


def own_op(spelling: str) -> str | None:
    """Return the canonical name of an op or predicate of Regraft or a vendored copy; None for any
    other name."""
    module, _, name = spelling.rpartition(".")
    is_own = name.islower() and (module == "regraft.ops" or module.endswith("regraft_ops"))
    return f"regraft.ops.{name}" if is_own else None


def predicate(spelling: str) -> str | None:
    """Return the canonical name of a predicate of Regraft; None for any other name."""
    op = own_op(spelling)
    return op if op is not None and op.rpartition(".")[2] in PREDICATES else None


# Functions of other libraries whose meaning is documented: the module under "gelu" in transformers'
# activation table.
LIBRARY_OPS = {"transformers.activations.gelu": "gelu"}

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Pow: "pow",
}
# Operations that operators compute, also after `tensor_op` and `binary` have simplified it.
OPERATOR_OPS = frozenset({*_BINARY.values(), "neg", "rsqrt"})
# Kinds of values that are certainly no tensors.
NOT_TENSOR = frozenset({"int", "scalar", "bool", "str", "none", "tuple", "dtype", "module"})

Arguments = tuple[Sequence[Value], Mapping[str, Value]]


def tensor_op(frame: Frame, op: str, arguments: Arguments, expr: ast.AST, spelling: str) -> Value:
    """Return the value of a canonical operation with arguments by name, or of an opaque call when
    they do not fit."""
    positional, keywords = arguments
    if op in CASTS or op in ("type", "type_as", "to"):
        cast = _cast(frame, op, positional, keywords, expr, spelling)
        if cast is not None:
            return cast
    if op == "square" and len(positional) == 1 and not keywords:
        op, positional = "pow", (*positional, frame.constant(2))
    operation = frame.scope.table.operation(op)
    bound = bind(operation.signatures, positional, keywords)
    if operation.variadic and (
        bound is None or any(argument.kind == "int" for argument in positional[1:2])
    ):
        packed = glue(frame, "py.tuple", positional[1:], expr, "tuple").output
        packed.items = tuple(positional[1:])
        bound = bind(operation.signatures, (positional[0], packed), keywords) or bound
    if bound is None:
        return call(frame, None, arguments, expr, spelling)
    args, omitted = bound
    defaults = frozenset(parameter.name for parameter in omitted)
    for parameter in omitted:
        args[parameter.name] = frame.constant(parameter.default)
    if op == "pow" and args["exponent"].const == -0.5:
        op, args = "rsqrt", {"input": args["input"]}
    node = frame.node(
        op,
        args,
        expr,
        operation.kind,  # type: ignore[arg-type]
        effect=changes_input(op, args) or op == "batch_norm",
        spelling=spelling,
        defaults=defaults,
        random=operation.random,
    )
    return node.output


def binary(frame: Frame, operator: ast.operator, left: Value, right: Value, expr: ast.AST) -> Value:
    """Return the value of `left op right`: a tensor operation unless both operands are certainly no
    tensors."""
    op = _BINARY.get(type(operator))
    scalars = left.kind in NOT_TENSOR and right.kind in NOT_TENSOR
    if (
        op is None
        or scalars
        or "tuple" in (left.kind, right.kind)
        or "str" in (left.kind, right.kind)
    ):
        kind = (
            "tuple"
            if "tuple" in (left.kind, right.kind)
            else "int"
            if left.kind == right.kind == "int"
            else "unknown"
        )
        node = glue(frame, "py.binary", (left, right), expr, kind)
        node.spelling = "//" if isinstance(operator, ast.FloorDiv) else ""
        return node.output
    kind = "tensor" if "tensor" in (left.kind, right.kind) else "unknown"
    if kind == "unknown":
        record_custom_code(frame, "__add__", expr)
    if op == "mul" and left is right:
        op, args = "pow", {"input": left, "exponent": frame.constant(2)}
    elif op == "pow":
        args = {"input": left, "exponent": right}
        if right.const == -0.5:
            op, args = "rsqrt", {"input": left}
    else:
        args = {"input": left, "other": right}
    defaults: frozenset[str] = frozenset()
    if op in ("add", "sub"):
        args["alpha"] = frame.constant(1)
        defaults = frozenset({"alpha"})
    return frame.node(op, args, expr, kind, spelling=op, defaults=defaults).output  # type: ignore[arg-type]


def writes(node: Node) -> bool:
    """Return whether a node writes into its first argument."""
    return node.op == "py.setitem" or (node.op != "call" and changes_input(node.op, node.args))


def changes_input(op: str, args: Mapping[str, Value]) -> bool:
    """Return whether an operation may write into its input."""
    inplace = args.get("inplace")
    return op.endswith("_") or (inplace is not None and inplace.const is not False)


def _cast(
    frame: Frame,
    op: str,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ast.AST,
    spelling: str,
) -> Value | None:
    """Return the value of `to(input, dtype)` for a cast like `x.float()` or `x.type_as(y)`; None
    for other calls."""
    if not positional:
        return None
    if op in CASTS and len(positional) == 1 and not keywords:
        dtype = frame.global_(CASTS[op], "dtype")
    elif op == "type_as" and len(positional) == 2:
        dtype = attribute(frame, positional[1], "dtype", expr)
    elif (
        op in ("to", "type")
        and len(positional) == 2
        and not keywords
        and positional[1].kind == "dtype"
    ):
        dtype = positional[1]
    elif op == "to" and len(positional) == 1 and set(keywords) == {"dtype"}:
        dtype = keywords["dtype"]
    else:
        return None
    args = {"input": positional[0], "dtype": dtype}
    return frame.node("to", args, expr, "tensor", spelling=spelling).output


def record_custom_code(frame: Frame, name: str, expr: ast.AST) -> None:
    """Record a side effect if the file itself defines the operator, property or iteration of this
    name."""
    if name in frame.scope.custom_operations:
        frame.node("call", {}, expr, effect=True, spelling=name)


def record_iteration(frame: Frame, source: Value, expr: ast.AST) -> None:
    """Record that iterating over a value may run an iterator of the file; tensors, tuples and
    layers have none."""
    if source.kind not in ("tensor", "tuple") and not source.layers:
        record_custom_code(frame, "__iter__", expr)


def attribute(frame: Frame, base: Value, name: str, expr: ast.AST) -> Value:
    """Return the value of an attribute; a second read gives the same value until attributes are
    forgotten."""
    record_custom_code(frame, name, expr)
    key = (base.id, name)
    earlier = frame.attributes.get(key)
    if earlier is not None:
        base.uses.append(frame.node("py.attr", {"base": base}, expr, earlier.kind, spelling=name))
        return earlier
    kinds = {
        "shape": "tuple",
        "dtype": "dtype",
        "T": "tensor",
        "mT": "tensor",
        "data": "tensor",
        "ndim": "int",
    }
    value = frame.node(
        "py.attr",
        {"base": base},
        expr,
        kinds.get(name, "unknown"),  # type: ignore[arg-type]
        spelling=name,
    ).output
    frame.attributes[key] = value
    return value


def construct(frame: Frame, qualified: str, arguments: Arguments, expr: ast.Call) -> Value | None:
    """Return the module value of a constructor call such as `torch.nn.Linear(...)`.

    The result is None when the name is no class of `torch.nn`, or when the arguments do not fit it.
    """
    layer_type = frame.scope.table.layer(qualified)
    if layer_type is None:
        return None
    positional, keywords = arguments
    lines = (expr.lineno, expr.end_lineno or expr.lineno)
    items: tuple[Layer, ...] = ()
    if qualified in CONTAINERS:
        items = _container_items(positional)
        bound = dict(enumerate_args(positional))
    else:
        fitted = bind((layer_type.init,), positional, keywords)
        if fitted is None:
            frame.give_up(expr, f"the arguments do not fit {qualified}")
            return None
        bound = fitted[0]
    all_arguments = {
        **bound,
        **{name: value for name, value in keywords.items() if name not in bound},
    }
    value = frame.node("py.construct", all_arguments, expr, "module", spelling=qualified).output
    value.layers = (Layer(qualified, args=bound, guard=frame.guard, lines=lines, items=items),)
    return value


def mark_possible_layer(frame: Frame, callee: Value, result: Value, expr: ast.Call) -> Value:
    """Add to the result of a call the layers of `torch.nn` that it may be, and return it.

    It may be a layer when the callee is a parameter whose default is a class of `torch.nn`
    (`norm_layer(dim)`), or is computed from one (`get_norm_act_layer(norm_layer, act_layer)(dim)`).
    It may always be something else, too.
    """
    layer_types = dict.fromkeys(_default_layer_types(frame, callee))
    if layer_types:
        lines = (expr.lineno, expr.end_lineno or expr.lineno)
        result.layers = tuple(
            Layer(layer_type, guard=frame.guard, lines=lines) for layer_type in (*layer_types, "")
        )
    return result


def _default_layer_types(frame: Frame, callee: Value) -> Iterator[str]:
    """Yield the classes of `torch.nn` that a value is or is computed from, if parameters have their
    defaults."""
    pending = [callee]
    for value in pending:
        name: str | None = None
        if value.origin == "global":
            name = value.name
        elif value in frame.defaults:
            name = frame.scope.names.resolve(frame.defaults[value])
        else:
            sources = [option for _, option in value.options]
            if value.node is not None and value.node.op == "py.bool":
                sources += value.node.args.values()
            elif (
                value.node is not None
                and value.node.op in ("call", "py.call")
                and "0" in value.node.args
            ):
                sources.append(value.node.args["0"])
            pending += [source for source in sources if source not in pending]
        if name is not None and frame.scope.table.layer(name) is not None:
            yield name


def enumerate_args(positional: Sequence[Value]) -> list[tuple[str, Value]]:
    """Return positional arguments with their numbers as names."""
    return [(str(index), value) for index, value in enumerate(positional)]


def _container_items(positional: Sequence[Value]) -> tuple[Layer, ...]:
    """Return the modules that a container is built of, () when any of them is unknown."""
    values = (
        positional[0].items
        if len(positional) == 1 and positional[0].items is not None
        else positional
    )
    if not values or any(len(value.layers) != 1 for value in values):
        return ()
    return tuple(value.layers[0] for value in values)


def function_op(qualified: str) -> str | None:
    """Return the canonical operation of a function by its qualified name; None when unknown."""
    return table().canonical_op(qualified) or LIBRARY_OPS.get(qualified)


def computed_op(qualified: str) -> str | None:
    """Return the canonical operation of a layer type or a function by its qualified name; None when
    unknown."""
    layer_type = table().layer(qualified)
    return layer_type.op if layer_type is not None else function_op(qualified)


def layer_call(frame: Frame, callee: Value, arguments: Arguments, expr: ast.AST) -> Value:
    """Return the value of a call of a module: that of its operation when the type is known, else of
    an opaque call."""
    positional, keywords = arguments
    layers = callee.layers
    if (
        len(layers) == 1
        and layers[0].type == "torch.nn.Sequential"
        and layers[0].items
        and len(positional) == 1
    ):
        value = positional[0]
        for number, layer in enumerate(layers[0].items):
            inner = frame.value("path", "module", f"{callee.name}[{number}]" if callee.name else "")
            inner.layers = (layer,)
            value = layer_call(frame, inner, ((value,), {}), expr)
        frame.compound[frame.site or expr] = value
        return value
    types = {layer.type for layer in layers}
    function = function_op(layers[0].type) if len(types) == 1 else None
    if function is not None:
        return tensor_op(frame, function, arguments, expr, layers[0].type)
    layer_type = frame.scope.table.layer(next(iter(types))) if len(types) == 1 else None
    if layer_type is None or layer_type.op is None or keywords:
        return call(frame, callee, arguments, expr, "")
    operation = frame.scope.table.operation(layer_type.op)
    inputs = layer_inputs(layer_type)
    if len(positional) != len(inputs):
        return call(frame, callee, arguments, expr, "")
    args = dict(zip(inputs, positional, strict=True))
    for name in layer_type.attributes:
        args[name] = _layer_attribute(frame, callee, layers, name)
    defaults = frozenset(
        parameter.name
        for parameter in operation.signatures[0]
        if parameter.optional and parameter.name not in args
    )
    for parameter in operation.signatures[0]:
        if parameter.name in defaults:
            args[parameter.name] = frame.constant(parameter.default)
    effect = changes_input(layer_type.op, args) or layer_type.op == "batch_norm"
    node = frame.node(
        layer_type.op,
        args,
        expr,
        "tensor",
        effect=effect,
        spelling=layers[0].type,
        layer=callee,
        defaults=defaults,
        random=operation.random,
    )
    return node.output


def layer_inputs(layer_type: LayerType) -> tuple[str, ...]:
    """Return the parameter names of a layer's call: one input, and for losses also a target."""
    operation = table().operation(layer_type.op or "")
    required = [parameter.name for parameter in operation.signatures[0] if not parameter.optional]
    return tuple(
        name
        for name in required
        if name not in layer_type.attributes and name in ("input", "target")
    )


def _layer_attribute(frame: Frame, callee: Value, layers: Sequence[Layer], name: str) -> Value:
    """Return the value of a layer's attribute (`self.dropout.p`), with the constructor's constant
    if it is known."""
    path = frame.path(f"{callee.name}.{name}") if callee.name else frame.value("unknown")
    constant_by_layer = {id(layer): _constructor_constant(frame, layer, name) for layer in layers}
    constants = {repr(const) for const in constant_by_layer.values()}
    if len(constants) == 1 and path.origin == "path" and path.const is MISSING:
        path.const = next(iter(constant_by_layer.values()))
    return path


def _constructor_constant(frame: Frame, layer: Layer, name: str) -> object:
    """Return the constant that the constructor gives an attribute, MISSING when it is no
    constant."""
    if name in layer.args:
        const = layer.args[name].const
    else:
        layer_type = frame.scope.table.layer(layer.type)
        parameters = (
            {parameter.name: parameter for parameter in layer_type.init} if layer_type else {}
        )
        const = (
            parameters[name].default
            if name in parameters and parameters[name].optional
            else MISSING
        )
    if name in ("weight", "bias"):
        affine = layer.args.get("elementwise_affine")
        absent = const is False or (affine is not None and affine.const is False)
        return None if absent else MISSING
    return const


def call(
    frame: Frame, callee: Value | None, arguments: Arguments, expr: ast.AST, spelling: str
) -> Value:
    """Return the value of an opaque call, which uses its arguments and may have side effects."""
    positional, keywords = arguments
    args = dict(enumerate_args(positional))
    args.update((name, value) for name, value in keywords.items())
    if callee is not None and callee.kind != "module":
        args["callee"] = callee
    layer = callee if callee is not None and callee.kind == "module" else None
    return frame.node(
        "call", args, expr, effect=own_op(spelling) is None, spelling=spelling, layer=layer
    ).output


def choice(frame: Frame, base: Value, key: Value, expr: ast.Subscript) -> Value:
    """Return the value of a subscript such as `ACT2FN[config.act]`: a layer whose type depends on a
    run-time value."""
    lines = (expr.lineno, expr.end_lineno or expr.lineno)
    value = frame.node("py.item", {"base": base, "index": key}, expr, "module").output
    source = frame.scope.source.segment(expr)
    value.layers = (
        Layer(
            base.name, args={"key": key}, guard=frame.guard, source=source, choice=True, lines=lines
        ),
    )
    return value


def glue(
    frame: Frame, op: str, values: Sequence[Value], expr: ast.AST, kind: str = "unknown"
) -> Node:
    """Return a new node of Python glue, which has no side effects; its arguments are numbered."""
    return frame.node(op, dict(enumerate_args(values)), expr, kind)  # type: ignore[arg-type]


Expression = Callable[[Frame, ast.expr], Value]
