"""Definitions without what a caller of them does not see: docstrings, annotations, the arguments of `super`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from typing import Any

from regraft.verify.changes import binds
from regraft.verify.syntax import SCOPES, words_of

# What reads annotations, or binds names of a file other than by statements.
_ANNOTATIONS = frozenset(
    {"__annotations__", "annotation", "get_type_hints", "get_annotations", "singledispatch", "singledispatchmethod"}
    | {"custom_op", "infer_schema", "dataclass", "register_fake", "signature", "Signature", "overload"}
)
_NAMESPACES = frozenset({"globals", "setattr", "modules", "__dict__", "import_module", "*"})
_TYPES = (
    ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.BitOr, ast.Constant, ast.Tuple, ast.List, ast.Load
)  # fmt: skip


class Noteless(ast.NodeTransformer):
    """Takes out what a caller of a definition does not see: docstrings, annotations, and the arguments of `super`.

    Annotations stay where they do more than name types, below decorators, which may read them, and in a file that
    reads some. `super(A, self)` stays where the file may give the name `A` to something else, and in a class with a
    decorator unless decorators `return_classes` as they are.
    """

    def __init__(self, trees: Iterable[ast.Module], return_classes: bool = False) -> None:
        self._return_classes = return_classes
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._noted = any(_ANNOTATIONS.intersection(words_of(node)) for node in nodes)
        self._bound = {name for node in nodes if not isinstance(node, ast.ClassDef) for name in binds(node)}
        self._open = any(_NAMESPACES.intersection(words_of(node)) for node in nodes)
        self._class: ast.ClassDef | None = None

    def form_of(self, definition: ast.stmt) -> ast.stmt:
        """Return a copy of a definition at the top level of a file without its notes."""
        self._class = None
        form = self.visit(copy.deepcopy(definition))
        assert isinstance(form, ast.stmt)
        return form

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        outer, self._class = self._class, node
        self._without_docstring(node)
        self.generic_visit(node)
        self._class = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._without_docstring(node)
        if not (self._noted or node.decorator_list or (self._class and self._class.decorator_list)):
            self._without_annotations(node)
        if self._class is not None and self._is_method(node, self._class):
            _ShortSuper(self._class.name, node.args.args[0].arg).visit_body(node)
        outer, self._class = self._class, None
        self.generic_visit(node)
        self._class = outer
        return node

    def _without_docstring(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        match node.body:
            case [ast.Expr(ast.Constant(str())), *rest]:
                node.body = rest or [ast.Pass()]

    def _without_annotations(self, node: ast.FunctionDef) -> None:
        arguments = [part for part in ast.walk(node.args) if isinstance(part, ast.arg)]
        if all(_names_types(note) for note in (node.returns, *(argument.annotation for argument in arguments))):
            node.returns = None
            for argument in arguments:
                argument.annotation = None

    def _is_method(self, node: ast.FunctionDef, cls: ast.ClassDef) -> bool:
        """Whether the first parameter and the name of the class are what `super()` takes by itself."""
        arguments = [*node.args.posonlyargs, *node.args.args]
        if self._open or (cls.decorator_list and not self._return_classes) or node.args.posonlyargs or not arguments:
            return False
        stored = {
            part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
        }
        return arguments[0].arg not in stored and not {cls.name, "super"} & self._bound


class _ShortSuper(ast.NodeTransformer):
    """Writes `super(A, self)` as `super()` in a method of `A`, not in the functions inside of it."""

    def __init__(self, cls: str, first: str) -> None:
        self._names = cls, first

    def visit_body(self, function: ast.FunctionDef) -> None:
        function.body = [self.visit(statement) for statement in function.body]

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        match node:
            case ast.Call(ast.Name("super"), [ast.Name(cls), ast.Name(first)], []) if (cls, first) == self._names:
                node.args = []
        self.generic_visit(node)
        return node


def _names_types(note: ast.expr | None) -> bool:
    """Whether an annotation does nothing but to name types; true for none."""
    if note is None:
        return True
    return all(isinstance(part, _TYPES) for part in ast.walk(note))
