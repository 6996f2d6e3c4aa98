"""The structures of one file: its classes with their layers, and its functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from regraft.source.qualified_names import Names, module_names, package_of
from regraft.source.replaced_attributes import AttributeStores, attribute_stores
from regraft.source.syntax_iterators import statements
from regraft.source.text import SourceFile
from regraft.structure.bound_names import local_names, stored_names
from regraft.structure.class_layers import ClassLayers
from regraft.structure.function_surroundings import Function, Scope
from regraft.structure.lower import lower_function
from regraft.structure.module_scopes import ModuleScopes
from regraft.structure.package import Package
from regraft.structure.replaced_operations import Replacements
from regraft.structure.values_and_nodes import Body, Layer, Structure
from regraft.structure.words_and_calls import WORD_BYTES

_OPERATORS = re.compile(
    rb"def __(?:[ri]?(?:add|sub|mul|truediv|pow|matmul)|neg|getitem|setitem|getattr|getattribute)__"
)

_WORD = re.compile(r"\w+")
# Says whether to lower a function, given the class that it is a method of (None outside classes).
FunctionFilter = Callable[[ast.ClassDef | None, Function], bool]


class Module:
    """The structures of one file, built on demand.

    Base classes and functions that the file imports from its own package are followed into their
    files.
    """

    def __init__(
        self, source: SourceFile, package: str | None = None, inlines: bool = True
    ) -> None:
        self.source = source
        self.inlines = inlines
        self.package = package_of(Path(source.path)) if package is None else package
        self._owners: dict[ast.AST, Module] = {}
        self._bases: dict[tuple[ast.ClassDef, bool], tuple[ast.ClassDef, ...]] = {}
        self._imported: dict[str, tuple[Module, ast.ClassDef | Function] | None] = {}
        self._methods: dict[ast.ClassDef, Mapping[str, Function]] = {}
        self._word_sets: dict[ast.AST, frozenset[bytes]] = {}
        self._lowered_bodies: list[Body] = []
        self._scopes: dict[ast.ClassDef | None, Scope] = {}
        self.rms_norm_by_name: dict[str, bool] = {}  # filled in by `norms.is_rms_norm`

    @cached_property
    def names(self) -> Names:
        return module_names(self.source.tree, self.package, b"global " in self.source.text)

    @cached_property
    def replacements(self) -> Replacements | None:
        """The functions, classes and methods that the file replaces by assigning their names; None
        for nearly every file."""
        lines = self.attribute_stores.lines
        return Replacements.of(lines) if lines else None

    @cached_property
    def attribute_stores(self) -> AttributeStores:
        """The attributes that the file assigns, but for those of the instance itself."""
        return attribute_stores(self.source.tree, self.source.text, self.names, self.package)

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """The classes at the top level (also inside `if` and `try`) by name."""
        return {
            name: node
            for name, node in self.names.definitions.items()
            if isinstance(node, ast.ClassDef)
        }

    @cached_property
    def class_layers(self) -> ClassLayers:
        """The layers that the constructors of the file's classes leave."""
        return ClassLayers(self)

    @cached_property
    def scopes(self) -> ModuleScopes:
        """The scopes of the file's functions."""
        return ModuleScopes(self)

    @cached_property
    def package_files(self) -> Package[Module]:
        """The files of the package that this file reaches by its imports."""
        return Package(self.source.path, self.package, Module)

    def imported(self, qualified: str) -> tuple[Module, ast.ClassDef | Function] | None:
        """Return module and definition of a qualified name; None unless another file of the package
        defines it."""
        if qualified not in self._imported:
            location = (
                self.package_files.locate(qualified)
                if self.package_files.may_define(qualified)
                else None
            )
            is_unresolved = (
                location is None or Path(location[0].source.path) == self.package_files.file
            )
            self._imported[qualified] = (
                None
                if is_unresolved or not location
                else (location[0], location[0].names.definitions[location[1]])
            )
        return self._imported[qualified]

    @property
    def dotted(self) -> str:
        """The qualified name under which other files of the package import this module."""
        stem = Path(self.source.path).stem
        return ".".join(filter(None, (self.package, "" if stem == "__init__" else stem)))

    def owner(self, definition: ast.AST) -> Module:
        """Return the module that defines a class returned by `bases`, or one of its methods."""
        return self._owners.get(definition, self)

    def bases(self, cls: ast.ClassDef, *, followed: bool = True) -> tuple[ast.ClassDef, ...]:
        """Return the class and its base classes, nearest first (left to right, depth first).

        followed  include base classes from other files of the package
        """
        bases = self._bases.get((cls, followed))
        if bases is None:
            ordered: dict[ast.ClassDef, None] = {}
            stack = [cls]
            while stack:
                current = stack.pop(0)
                if current not in ordered:
                    ordered[current] = None
                    stack[:0] = [
                        base
                        for expr in current.bases
                        for base in self._find_base(current, expr, followed)
                    ]
            bases = self._bases[cls, followed] = tuple(ordered)
        return bases

    def _find_base(
        self, cls: ast.ClassDef, expr: ast.expr, followed: bool
    ) -> Iterator[ast.ClassDef]:
        """Yield the class that a base expression of `cls` names, or nothing; note which module
        defines the class."""
        owner = self.owner(cls)
        if isinstance(expr, ast.Name) and expr.id in owner.classes:
            home, base = owner, owner.classes[expr.id]
        else:
            qualified = owner.names.resolve(expr) if followed else None
            definition = self.imported(qualified) if qualified is not None else None
            if definition is None or not isinstance(definition[1], ast.ClassDef):
                return
            home, base = definition[0], definition[1]
        if home is not self:
            self._owners.update((owned, home) for owned in (base, *self.methods(base).values()))
        yield base

    @cached_property
    def subclasses(self) -> Mapping[str, tuple[ast.ClassDef, ...]]:
        """The direct and indirect subclasses in this file, by the name of the base class."""
        subclasses_by_name: dict[str, list[ast.ClassDef]] = {}
        for cls in self.classes.values():
            for base in self.bases(cls, followed=False)[1:]:
                subclasses_by_name.setdefault(base.name, []).append(cls)
        return {name: tuple(classes) for name, classes in subclasses_by_name.items()}

    @cached_property
    def custom_operations(self) -> frozenset[str]:
        """Operations that the file defines itself and that may run any code.

        They are the names of properties, `__iter__` for any iteration and `__add__` for any
        operator.
        """
        text = self.source.text
        names = set()
        if b"yield" in text or b"def __iter__" in text or b"def __next__" in text:
            names.add("__iter__")
        if _OPERATORS.search(text):
            names.add("__add__")
        if b"property" in text:
            functions = (
                node
                for node in statements(self.source.tree.body)
                if isinstance(node, ast.FunctionDef)
            )
            names.update(function.name for function in functions if _is_active_property(function))
        return frozenset(names)

    def methods(self, cls: ast.ClassDef) -> Mapping[str, Function]:
        """Return the methods that a class defines itself, by name."""
        methods = self._methods.get(cls)
        if methods is None:
            methods = self._methods[cls] = {
                member.name: member
                for member in cls.body
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        return methods

    def all_methods(self, cls: ast.ClassDef) -> dict[str, Function]:
        """Return the methods of a class and its bases by name, overridden ones left out."""
        return {
            name: method
            for base in reversed(self.bases(cls))
            for name, method in self.methods(base).items()
        }

    def words(self, definition: ast.ClassDef | Function) -> frozenset[bytes]:
        """Return every word in the text of a class or function of this file."""
        word_set = self._word_sets.get(definition)
        if word_set is None:
            span = self.source.span(definition)
            text = self.source.text[span.start : span.end]
            word_set = self._word_sets[definition] = frozenset(
                text.translate(WORD_BYTES).split()
                if text.isascii()
                else (word.encode() for word in _WORD.findall(text.decode()))
            )
        return word_set

    def layers(self, cls: ast.ClassDef) -> Mapping[str, tuple[Layer, ...]]:
        """Return the layers of a class and its base classes by path (`self.dropout`)."""
        return self.class_layers.layers(cls)

    def release(self) -> None:
        """Release the values of all bodies of the file; they cannot be used afterwards."""
        for body in (*self._lowered_bodies, *self.class_layers.bodies):
            body.release()

    def structures(
        self, is_wanted: FunctionFilter = lambda cls, function: True
    ) -> Iterator[Structure]:
        """Yield one structure for each class, then one for each function; lower those that
        `is_wanted` selects."""
        for cls in self.classes.values():
            bodies = tuple(self._lower_methods(cls, is_wanted))
            if bodies:
                yield Structure(cls.name, cls, self.layers(cls), bodies)
        for name, function in self.names.definitions.items():
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                bodies = tuple(self._lower_with_nested(function, name, None, is_wanted))
                if bodies:
                    yield Structure(name, None, {}, bodies)

    def _lower_methods(self, cls: ast.ClassDef, is_wanted: FunctionFilter) -> Iterator[Body]:
        for name, method in self.methods(cls).items():
            yield from self._lower_with_nested(method, name, cls, is_wanted)

    def _lower_with_nested(
        self,
        function: Function,
        name: str,
        cls: ast.ClassDef | None,
        is_wanted: FunctionFilter,
        enclosing: frozenset[str] = frozenset(),
        instance: str | None = None,
    ) -> Iterator[Body]:
        """Yield the bodies of a function and of the functions nested in it, as far as `is_wanted`
        selects them.

        instance  the name of the instance in the method around a nested function
        """
        if not is_wanted(cls, function):
            return
        static = any(
            isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
            for decorator in function.decorator_list
        )
        is_method = cls is not None and not static and instance is None
        scope = self._scopes.get(cls)
        if scope is None:
            scope = self._scopes[cls] = self.scopes.of(cls)
        body = lower_function(scope, function, name, is_method, enclosing, instance)
        self._lowered_bodies.append(body)
        yield body
        inner_functions = tuple(_inner_functions(function))
        names_in_scope = enclosing | local_names(function) if inner_functions else enclosing
        receiver = next(iter(function.args.args), None) if is_method else None
        outer = receiver.arg if receiver is not None else instance
        for inner in inner_functions:
            is_visible = outer is not None and _keeps(outer, function, inner)
            yield from self._lower_with_nested(
                inner,
                f"{name}.{inner.name}",
                cls if is_visible else None,
                is_wanted,
                names_in_scope,
                outer if is_visible else None,
            )


def _keeps(instance: str, function: Function, inner: Function) -> bool:
    """Return whether a name of the instance means the instance in a function nested in
    `function`, too."""
    is_rebound = instance in stored_names(function.body) or instance in local_names(inner)
    return not is_rebound and not any(
        instance in node.names for node in ast.walk(function) if isinstance(node, ast.Nonlocal)
    )


def _is_active_property(node: ast.FunctionDef) -> bool:
    """Return whether a method is a property that does more than read: its body is not one `return`
    without a call."""
    if not any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
        return False
    body = [
        statement
        for statement in node.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    is_return = len(body) == 1 and isinstance(body[0], ast.Return)
    return not is_return or any(
        isinstance(descendant, ast.Call | ast.Yield | ast.NamedExpr)
        for descendant in ast.walk(body[0])
    )


def _inner_functions(function: Function) -> Iterator[Function]:
    """Yield the functions defined directly in a function, but not those in nested functions or
    classes."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif not isinstance(node, ast.expr | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(node))
