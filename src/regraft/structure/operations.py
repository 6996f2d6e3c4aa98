"""Lowering of tensor operations: functions, methods and operators."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from regraft.structure.calls import (
    Arguments,
    attribute,
    call,
    changes_input,
    glue,
    record_custom_code,
)
from regraft.structure.last_dimension import split_sizes
from regraft.structure.library_activations import LIBRARY_OPS
from regraft.structure.lowering_state import Frame
from regraft.structure.optable import (
    POWERS,
    ROOTS,
    STATEFUL_OPS,
    WRITING_ARGUMENTS,
    Operation,
    Parameter,
    bind,
    table,
)
from regraft.structure.values_and_nodes import Kind, Value

# Tensor methods that convert the data type, as `to`.
CASTS = {
    "float": "torch.float32",
    "half": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "double": "torch.float64",
}
# Operations that convert the data type; all become `to`.
CAST_OPS = frozenset({*CASTS, "type", "type_as", "to"})

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Pow: "pow",
}
BINARY_OPS = frozenset(_BINARY.values())
# Operations that operators compute, also after `tensor_op` and `binary` have simplified it.
OPERATOR_OPS = BINARY_OPS | {"neg", *ROOTS.values()}
# Operations with the factor `alpha` of the second operand, which an operator leaves at 1.
_SCALED_OPS = frozenset({"add", "sub"})
# Names of parameters in NumPy, which functions of PyTorch also take.
_NUMPY_KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}
# Kinds of values that are certainly no tensors.
NOT_TENSOR = frozenset({"int", "scalar", "bool", "str", "none", "tuple", "dtype", "module"})
# Kinds of operands with operators of their own, which compute no tensor.
_SEQUENCES = ("tuple", "str")


def function_op(qualified: str) -> str | None:
    """Return the canonical operation of a function by its qualified name; None when unknown."""
    return table().canonical_op(qualified) or LIBRARY_OPS.get(qualified)


def tensor_op(frame: Frame, op: str, arguments: Arguments, expr: ast.AST, spelling: str) -> Value:
    """Return the value of a canonical operation with arguments by name, or of an opaque call when
    they do not fit."""
    positional, keywords = arguments
    if op in CAST_OPS:
        cast = _cast(frame, op, positional, keywords, expr, spelling)
        if cast is not None:
            return cast
    if op == "size" and len(positional) + len(keywords) <= 2:
        return _size(frame, positional[0], (*positional[1:], *keywords.values()), expr)
    if op in POWERS and len(positional) == 1 and not keywords:
        op, positional = "pow", (*positional, frame.constant(POWERS[op]))
    if op == "einsum":
        positional = _listed_operands(positional, expr)
    operation = frame.scope.table.operation(op)
    keywords = _own_keywords(keywords, spelling)
    binding = _bind_arguments(frame, operation, positional, keywords, expr)
    if binding is None:
        return call(frame, None, arguments, expr, spelling)
    args, omitted = binding
    if "keepdim" in args and "dim" in args:
        args["dim"] = _single_dimension(args["dim"], expr)
    for parameter in omitted:
        args[parameter.name] = frame.constant(parameter.default)
    op, args = _simplify_power(op, args)
    sizes = split_sizes(op, args, frame.is_current)
    if sizes is not None:
        return unflattened(frame, args["input"], sizes, expr, tuple(args.values())[1:])
    node = frame.node(
        op,
        args,
        expr,
        operation.kind,  # type: ignore[arg-type]
        effect=has_effect(op, args),
        spelling=spelling,
        defaults=frozenset(parameter.name for parameter in omitted),
        random=operation.random,
    )
    return node.output


def _listed_operands(positional: Sequence[Value], expr: ast.AST) -> Sequence[Value]:
    """Return the arguments of a call of `einsum` with the elements of a list of operands that is
    written there, `einsum("ij,jk->ik", [x, y])`, in the place of the list."""
    match expr:
        case ast.Call(args=[_, ast.List(elements) | ast.Tuple(elements)]):
            operands = positional[1].items if len(positional) == 2 else None
            if operands is not None and len(operands) == len(elements):
                return (positional[0], *operands)
    return positional


def unflattened(
    frame: Frame,
    tensor: Value,
    sizes: tuple[int, int],
    expr: ast.AST,
    read: Sequence[Value] = (),
) -> Value:
    """Return the value of the operation that splits the last dimension of a tensor, which also
    reads the values of `read`, such as the shape."""
    parts = tuple(frame.constant(size) for size in sizes)
    shape = glue(frame, "py.tuple", parts, expr, "tuple").output
    shape.items = parts
    reads = {f"read{number}": value for number, value in enumerate(read)}
    args = {"input": tensor, "dim": frame.constant(-1), "sizes": shape, **reads}
    spelling, defaults = "torch.Tensor.unflatten", frozenset(reads)
    node = frame.node("unflatten", args, expr, "tensor", spelling=spelling, defaults=defaults)
    return node.output


def _size(frame: Frame, tensor: Value, dims: Sequence[Value], expr: ast.AST) -> Value:
    """Return the value of `tensor.size()` or `tensor.size(dim)` as that of `tensor.shape` or its
    item."""
    shape = attribute(frame, tensor, "shape", expr)
    if not dims:
        return shape
    return frame.node("py.item", {"base": shape, "index": dims[0]}, expr, "int").output


def _own_keywords(keywords: Mapping[str, Value], spelling: str) -> Mapping[str, Value]:
    """Return the keywords of a call with PyTorch's names for those of NumPy.

    Functions of `torch` take both. A method may be that of an array of NumPy, and functions of
    `torch.nn.functional` do not take them.
    """
    if _NUMPY_KEYWORDS.keys().isdisjoint(keywords) or spelling.rpartition(".")[0] != "torch":
        return keywords
    renamed = {_NUMPY_KEYWORDS.get(name, name): value for name, value in keywords.items()}
    return renamed if len(renamed) == len(keywords) else keywords


def _single_dimension(dims: Value, call_expr: ast.AST) -> Value:
    """Return the dimension of `(dim,)` or `[dim]`, as an operation means it that keeps dimensions;
    `dims` itself for other values."""
    node = dims.node
    if node is None or dims.items is None or len(dims.items) != 1 or dims.items[0].kind != "int":
        return dims
    expr = node.inner or node.expr
    may_change = isinstance(expr, ast.List) and not _is_argument(expr, call_expr)
    return dims if may_change else dims.items[0]


def _is_argument(expr: ast.AST, call_expr: ast.AST) -> bool:
    """Return whether an expression stands in a call as an argument."""
    if not isinstance(call_expr, ast.Call):
        return False
    return expr in call_expr.args or any(expr is keyword.value for keyword in call_expr.keywords)


def _bind_arguments(
    frame: Frame,
    operation: Operation,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
    expr: ast.AST,
) -> tuple[dict[str, Value], tuple[Parameter, ...]] | None:
    """Return the arguments by name and the omitted parameters; None when no signature fits. Several
    integers stand for a sequence where the operation takes one: `x.view(2, 3)`."""
    binding = bind(operation.signatures, positional, keywords)
    if not operation.variadic or not positional:
        return binding
    has_integers = any(argument.kind == "int" for argument in positional[1:2])
    if binding is not None and not has_integers:
        return binding
    sizes = tuple(positional[1:])
    packed = glue(frame, "py.tuple", sizes, expr, "tuple").output
    packed.items = sizes
    return bind(operation.signatures, (positional[0], packed), keywords) or binding


def _simplify_power(op: str, args: dict[str, Value]) -> tuple[str, dict[str, Value]]:
    """Return an operation with its arguments, a root for a power of 0.5 or -0.5."""
    exponent = args["exponent"].const if op == "pow" else None
    if isinstance(exponent, float) and exponent in ROOTS:
        return ROOTS[exponent], {"input": args["input"]}
    return op, args


def has_effect(op: str, args: Mapping[str, Value]) -> bool:
    """Return whether an operation may write into its input, into the buffers of its layer or into
    one of its other arguments."""
    if changes_input(op, args) or op in STATEFUL_OPS:
        return True
    return any(name in args and args[name].const is not None for name in WRITING_ARGUMENTS)


def binary(frame: Frame, operator: ast.operator, left: Value, right: Value, expr: ast.AST) -> Value:
    """Return the value of `left op right`: a tensor operation unless both operands are certainly no
    tensors."""
    op = _BINARY.get(type(operator))
    if op is None or not _can_be_tensor_operator(left, right):
        return _python_operator(frame, operator, left, right, expr)
    kind: Kind = "tensor" if "tensor" in (left.kind, right.kind) else "unknown"
    if kind == "unknown":
        record_custom_code(frame, "__add__", expr)
    op, args = _operator_arguments(frame, op, left, right)
    defaults: frozenset[str] = frozenset()
    if op in _SCALED_OPS:
        args["alpha"] = frame.constant(1)
        defaults = frozenset({"alpha"})
    return frame.node(op, args, expr, kind, spelling=op, defaults=defaults).output


def _can_be_tensor_operator(left: Value, right: Value) -> bool:
    """Return whether an operator between two values may compute a tensor."""
    if left.kind in NOT_TENSOR and right.kind in NOT_TENSOR:
        return False
    return left.kind not in _SEQUENCES and right.kind not in _SEQUENCES


def _python_operator(
    frame: Frame, operator: ast.operator, left: Value, right: Value, expr: ast.AST
) -> Value:
    """Return the value of an operator between numbers or sequences, as glue."""
    node = glue(frame, "py.binary", (left, right), expr, _operator_kind(operator, left, right))
    node.spelling = "//" if isinstance(operator, ast.FloorDiv) else ""
    return node.output


def _operator_kind(operator: ast.operator, left: Value, right: Value) -> Kind:
    """Return the kind of the result of an operator between values that are no tensors."""
    kinds = {left.kind, right.kind}
    if "tuple" in kinds:
        return "tuple"
    if not kinds <= {"int", "scalar"}:
        return "unknown"
    is_integer = kinds == {"int"} and not isinstance(operator, ast.Div)
    return "int" if is_integer else "scalar"


def _operator_arguments(
    frame: Frame, op: str, left: Value, right: Value
) -> tuple[str, dict[str, Value]]:
    """Return the operation of an operator and its arguments; a square is `pow`."""
    if op == "mul" and left is right:
        return "pow", {"input": left, "exponent": frame.constant(2)}
    if op == "pow":
        return _simplify_power(op, {"input": left, "exponent": right})
    return op, {"input": left, "other": right}


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
    elif op in ("to", "type") and _is_dtype_argument(positional[1:], keywords):
        dtype = positional[1]
    elif op == "to" and len(positional) == 1 and set(keywords) == {"dtype"}:
        dtype = keywords["dtype"]
    else:
        return None
    args = {"input": positional[0], "dtype": dtype}
    return frame.node("to", args, expr, "tensor", spelling=spelling).output


def _is_dtype_argument(further: Sequence[Value], keywords: Mapping[str, Value]) -> bool:
    """Return whether the arguments after the input are one data type."""
    return len(further) == 1 and not keywords and further[0].kind == "dtype"
