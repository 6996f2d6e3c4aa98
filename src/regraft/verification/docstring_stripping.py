"""Strip definitions of their notes, which a caller does not see: docstrings, annotations and the
arguments of `super`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from typing import Any

from regraft.verification.bound_and_read_names import names_bound_by
from regraft.verification.names_and_scopes import SCOPES, words_of

# Names of functions and attributes that read annotations, and of those that bind names of a file
# without a statement.
_ANNOTATIONS = frozenset(
    {
        "__annotations__",
        "annotation",
        "get_type_hints",
        "get_annotations",
        "singledispatch",
        "singledispatchmethod",
    }
    | {
        "custom_op",
        "infer_schema",
        "dataclass",
        "register_fake",
        "signature",
        "Signature",
        "overload",
    }
)
_NAMESPACES = frozenset({"globals", "setattr", "modules", "__dict__", "import_module", "*"})
_TYPES = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.BinOp,
    ast.BitOr,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Load,
)


class NoteStripper(ast.NodeTransformer):
    """Strips a definition of its notes, the parts that its caller does not see: docstrings,
    annotations, and the arguments of `super`.

    Annotations stay where they do more than name types, below decorators, which may read them, and
    in a file that reads annotations. `super(A, self)` stays where the file may give the name `A` to
    something else, and in a class with a decorator unless decorators `return_classes` as they are.
    """

    def __init__(self, trees: Iterable[ast.Module], return_classes: bool = False) -> None:
        """Note what the files of `trees`, both versions, read and bind: it decides which notes may
        be stripped."""
        self._return_classes = return_classes
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._reads_annotations = any(_ANNOTATIONS.intersection(words_of(node)) for node in nodes)
        self._bound = {
            name
            for node in nodes
            if not isinstance(node, ast.ClassDef)
            for name in names_bound_by(node)
        }
        self._has_dynamic_names = any(_NAMESPACES.intersection(words_of(node)) for node in nodes)
        self._class: ast.ClassDef | None = None

    def strip(self, definition: ast.stmt) -> ast.stmt:
        """Return a copy of a definition at the top level of a file without its notes: docstrings,
        and, where they certainly change nothing, annotations and the arguments of `super`."""
        self._class = None
        form = self.visit(copy.deepcopy(definition))
        assert isinstance(form, ast.stmt)
        return form

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Take out the notes of a class and of its methods."""
        outer, self._class = self._class, node
        self._remove_docstring(node)
        self.generic_visit(node)
        self._class = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Take out the docstring of a function, its annotations where nothing can read them, and in
        a method of a class the arguments of `super` where they certainly change nothing."""
        self._remove_docstring(node)
        if not (
            self._reads_annotations
            or node.decorator_list
            or (self._class and self._class.decorator_list)
        ):
            self._remove_annotations(node)
        if self._class is not None and self._has_short_super(node, self._class):
            _ShortSuper(self._class.name, node.args.args[0].arg).visit_body(node)
        outer, self._class = self._class, None
        self.generic_visit(node)
        self._class = outer
        return node

    def _remove_docstring(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        """Remove the docstring in place; a body without other statements becomes `pass`."""
        match node.body:
            case [ast.Expr(ast.Constant(str())), *statements]:
                node.body = statements or [ast.Pass()]

    def _remove_annotations(self, node: ast.FunctionDef) -> None:
        """Remove all annotations of a function's signature if each only names types, else none."""
        arguments = [part for part in ast.walk(node.args) if isinstance(part, ast.arg)]
        if all(
            _only_names_types(annotation)
            for annotation in (node.returns, *(argument.annotation for argument in arguments))
        ):
            node.returns = None
            for argument in arguments:
                argument.annotation = None

    def _has_short_super(self, node: ast.FunctionDef, cls: ast.ClassDef) -> bool:
        """Return whether `super()` in a method of `cls` certainly means `super(cls, first
        parameter)`: the file binds neither name otherwise, the method does not assign its first
        parameter, and no decorator may return another class."""
        arguments = [*node.args.posonlyargs, *node.args.args]
        if (
            self._has_dynamic_names
            or (cls.decorator_list and not self._return_classes)
            or node.args.posonlyargs
            or not arguments
        ):
            return False
        stored = {
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
        }
        return arguments[0].arg not in stored and not {cls.name, "super"} & self._bound


class _ShortSuper(ast.NodeTransformer):
    """Writes `super(A, self)` as `super()` in a method of `A`, in place, not in the functions
    inside of it."""

    def __init__(self, cls: str, first_parameter: str) -> None:
        self._names = cls, first_parameter

    def visit_body(self, function: ast.FunctionDef) -> None:
        """Rewrite the statements of a method, in place."""
        function.body = [self.visit(statement) for statement in function.body]

    def visit(self, node: ast.AST) -> Any:
        """Return a nested function, class or comprehension as it is, any other node after a visit
        of its parts."""
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Take the arguments out of a call of `super` with the names of the class and of `self`."""
        match node:
            case ast.Call(ast.Name("super"), [ast.Name(cls), ast.Name(first_argument)], []) if (
                cls,
                first_argument,
            ) == self._names:
                node.args = []
        self.generic_visit(node)
        return node


def _only_names_types(annotation: ast.expr | None) -> bool:
    """Return whether an annotation does nothing but name types; True for None."""
    if annotation is None:
        return True
    return all(isinstance(part, _TYPES) for part in ast.walk(annotation))
