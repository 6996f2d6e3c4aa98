"""Find changed definitions that are equivalent on all tensors because only spellings differ: a
sum with its operands exchanged, `x[None]` for `x.unsqueeze(0)`, `x.shape[0]` for `x.size(0)`,
`x.reshape` for `x.view`.

For such a change it is enough that the lines ran on tensors: which inputs led there, and whether an
optional input was there, decides nothing.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from types import ModuleType

import torch

from regraft.verification.bound_and_read_names import bound_names, declared_names
from regraft.verification.child.checks.code_replacement import definition_node
from regraft.verification.child.checks.operand_kinds import OperandKinds
from regraft.verification.definition_changes import Change
from regraft.verification.equal_programs import are_equal_programs
from regraft.verification.names_and_scopes import parts_in_own_scope
from regraft.verification.top_level_definitions import Definition

NUMERIC, TENSOR = ("was a number or tensor",), ("was a tensor",)
NEITHER = "was of another type"
# functions of `torch` that are methods of tensors, too, with the same arguments
_METHODS = frozenset(
    {
        "abs",
        "argmax",
        "bmm",
        "chunk",
        "cos",
        "cumsum",
        "exp",
        "flatten",
        "flip",
        "gather",
        "index_select",
        "log",
        "log_softmax",
        "masked_fill",
        "mean",
        "neg",
        "pow",
        "relu",
        "reshape",
        "roll",
        "rsqrt",
        "sigmoid",
        "sin",
        "softmax",
        "sqrt",
        "squeeze",
        "sum",
        "tanh",
        "topk",
        "transpose",
        "unbind",
        "unsqueeze",
    }
)
_SHARED_KEYWORDS = frozenset({"dim", "dim0", "dim1", "keepdim", "dtype"})
_ACTIVATIONS = frozenset({"relu", "sigmoid", "tanh"})
_ALONG_DIMENSION = frozenset({"softmax", "log_softmax"})
_RUNS_CODE = ast.Call | ast.Await | ast.Yield | ast.YieldFrom


def definitions_equal_for_tensors(
    changes: Iterable[Change], original: ModuleType, changed: ModuleType
) -> frozenset[str]:
    """Return the names of those changed definitions that are the same program on tensors in both
    versions."""
    names = {change.definition for change in changes}
    pairs = {
        name: (definition_node(original, name), definition_node(changed, name)) for name in names
    }
    return frozenset(
        name
        for name, (old, new) in pairs.items()
        if old is not None and new is not None
        if are_equal_for_tensors(original, old, changed, new)
    )


def are_equal_for_tensors(
    original: ModuleType, old: Definition, changed: ModuleType, new: Definition
) -> bool:
    """Return whether two definitions, one of each module, are the same program on tensors.

    A `view` of the original may be a `reshape` in the changed version, which gives the same where
    `view` is possible; not the other way round. Where the original has a `reshape`, and the changed
    version a `view`, both stay as they are, because no place tells which became which.
    """
    has_same_views = _mentions_attribute(old, "reshape") and _mentions_attribute(new, "view")
    forms = [
        _TensorForm(
            callable_torch_functions(module, definition), writes_views=not has_same_views
        ).visit(copy.deepcopy(definition))
        for module, definition in ((original, old), (changed, new))
    ]
    return are_equal_programs(*forms)


def _mentions_attribute(definition: Definition, name: str) -> bool:
    """Return whether a definition mentions an attribute of a name."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(definition)
    )


def callable_torch_functions(module: ModuleType, definition: Definition) -> frozenset[str]:
    """Return the texts, such as "torch.softmax" and "F.relu", by which a definition could call the
    functions of `torch` and `torch.nn.functional` that are methods of tensors, too (`_METHODS`),
    whether or not it calls them. Each function is returned under every name that the module gives
    to `torch` or `torch.nn.functional`, except names that the definition binds itself."""
    bound = bound_names(definition)
    names = {name: value for name, value in vars(module).items() if name not in bound}
    methods = {torch: _METHODS, torch.nn.functional: _ACTIVATIONS | _ALONG_DIMENSION}
    return frozenset(
        f"{name}.{method}"
        for name, value in names.items()
        if isinstance(value, ModuleType)
        for method in methods.get(value, ())
    )


def operands_of_respelling(
    node: ast.expr, functions: frozenset[str]
) -> tuple[tuple[ast.expr, ...], tuple[str, ...]]:
    """Return the operands of an expression that has another spelling for tensors, and of which
    types they have to be for that, NUMERIC or TENSOR; no operands for other expressions.

    functions: the texts of functions that are methods of tensors, too, as
    `callable_torch_functions` returns them for the definition.
    """
    match node:
        case ast.BinOp(left, ast.Add() | ast.Mult(), right):
            return (left, right), NUMERIC
        case ast.BinOp(left, ast.MatMult(), right):
            return (left, right), TENSOR
        case ast.Subscript(value, index, ast.Load()) if _new_dimension(index) is not None:
            return (value,), TENSOR
        case ast.Subscript(ast.Attribute(value, "shape"), _, ast.Load()):
            return (value,), TENSOR
        case ast.Call(ast.Attribute(), [operand, *_]) if _is_method_like(node, functions):
            return (operand,), TENSOR
        case ast.Call(ast.Attribute(value, "matmul"), [other], []):
            return (value, other), TENSOR
        case ast.Call(ast.Attribute(value, method)) if method in _METHODS | {"view", "size"}:
            return (value,), TENSOR
    return (), ()


class _TensorForm(ast.NodeTransformer):
    """Rewrites expressions that have several spellings for tensors into one of them, in place."""

    def __init__(self, functions: frozenset[str], *, writes_views: bool) -> None:
        """Start with the functions that `callable_torch_functions` returns; `writes_views` writes
        `view` as `reshape`."""
        self._functions, self._writes_views = functions, writes_views
        self._locals: frozenset[str] = frozenset()
        self._operands = OperandKinds()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Visit the parts of a function; its local variables are constant while an expression
        runs."""
        outer = self._locals, self._operands
        self._locals, self._operands = _plain_locals(node), OperandKinds(node)
        self.generic_visit(node)
        self._locals, self._operands = outer
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Visit the parts of a function that others can interrupt: no variable is constant."""
        outer = self._locals, self._operands
        self._locals, self._operands = frozenset(), OperandKinds()
        self.generic_visit(node)
        self._locals, self._operands = outer
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Order the operands of a sum or product by their texts, where the order in which they run
        decides nothing, and the sum can be none of lists or texts."""
        self.generic_visit(node)
        may_join = isinstance(node.op, ast.Add) and self._operands.may_be_sequence(node)
        is_symmetric = isinstance(node.op, ast.Add | ast.Mult) and not may_join
        if is_symmetric and self._are_exchangeable(node):
            node.left, node.right = sorted((node.left, node.right), key=ast.dump)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Write an index that only adds a dimension as `unsqueeze`."""
        self.generic_visit(node)
        dimension = _new_dimension(node.slice)
        if dimension is None or not isinstance(node.ctx, ast.Load):
            return node
        function = ast.Attribute(node.value, "unsqueeze", ast.Load())
        return ast.copy_location(ast.Call(function, [_number_node(dimension)], []), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Write functions of `torch` as methods, sizes as entries of `shape`, `matmul` as `@` and
        `view` as `reshape`."""
        self.generic_visit(node)
        if _is_method_like(node, self._functions):
            assert isinstance(node.func, ast.Attribute)
            function = ast.Attribute(node.args[0], node.func.attr, ast.Load())
            node = ast.copy_location(ast.Call(function, node.args[1:], node.keywords), node)
        match node:
            case ast.Call(ast.Attribute(value, "size"), [dimension], []):
                shape = ast.Attribute(value, "shape", ast.Load())
                return ast.copy_location(ast.Subscript(shape, dimension, ast.Load()), node)
            case ast.Call(ast.Attribute(value, "size"), [], []):
                return ast.copy_location(ast.Attribute(value, "shape", ast.Load()), node)
            case ast.Call(ast.Attribute(value, "matmul"), [other], []):
                return ast.copy_location(ast.BinOp(value, ast.MatMult(), other), node)
            case ast.Call(ast.Attribute(_, "view") as function) if self._writes_views:
                function.attr = "reshape"
        return node

    def _are_exchangeable(self, node: ast.BinOp) -> bool:
        """Return whether the operands may run in either order: neither calls anything, or one is a
        local variable or a constant."""
        parts = [part for side in (node.left, node.right) for part in ast.walk(side)]
        if any(isinstance(part, ast.NamedExpr) for part in parts):
            return False
        if not any(isinstance(part, _RUNS_CODE) for part in parts):
            return True
        return any(
            isinstance(side, ast.Constant)
            or (isinstance(side, ast.Name) and side.id in self._locals)
            for side in (node.left, node.right)
        )


def _is_method_like(node: ast.Call, functions: frozenset[str]) -> bool:
    """Return whether a call of a function of `torch` means the method of its first argument that
    has the function's name. False with starred arguments or keywords other than those that both
    take, along a dimension that is not stated, and for an activation with more than one
    argument."""
    if not isinstance(node.func, ast.Attribute) or ast.unparse(node.func) not in functions:
        return False
    has_plain_arguments = not any(isinstance(argument, ast.Starred) for argument in node.args)
    keywords = {keyword.arg for keyword in node.keywords}
    if not node.args or not has_plain_arguments or not keywords <= _SHARED_KEYWORDS:
        return False
    if node.func.attr in _ALONG_DIMENSION:
        return len(node.args) == 2 or "dim" in keywords
    return node.func.attr not in _ACTIVATIONS or (len(node.args) == 1 and not keywords)


def _new_dimension(index: ast.expr) -> int | None:
    """Return the dimension that an index adds, if it does nothing else: the number of colons before
    its None, or -1 for `..., None`; None for any other index."""
    match index:
        case ast.Constant(None):
            return 0
        case ast.Tuple([ast.Constant(value), ast.Constant(None)]) if value is ...:
            return -1
        case ast.Tuple([*before, ast.Constant(None)]) if all(map(_is_colon, before)):
            return len(before)
    return None


def _is_colon(index: ast.expr) -> bool:
    """Return whether a part of an index takes a whole dimension."""
    return isinstance(index, ast.Slice) and not (index.lower or index.upper or index.step)


def _number_node(value: int) -> ast.expr:
    """Return the expression that an integer is written as; a negative one is a negation."""
    return ast.parse(str(value), mode="eval").body


def _plain_locals(function: ast.FunctionDef) -> frozenset[str]:
    """Return the local variables and parameters of a function that it does not declare `global` or
    `nonlocal` anywhere, so that no call can rebind them."""
    parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    stored = {
        node.id
        for node in parts_in_own_scope(function.body)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return frozenset(parameters | stored) - declared_names(ast.walk(function))
