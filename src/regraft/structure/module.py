"""The structures of one file: its classes with their layers, and its functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from regraft.source.names import Names, module_names, package_of, statements
from regraft.source.text import SourceFile
from regraft.structure import guards
from regraft.structure.factories import returned_layer_types
from regraft.structure.frame import Function, Scope
from regraft.structure.lower import local_names, lower_function
from regraft.structure.model import Body, Layer, Structure, Value
from regraft.structure.optable import table
from regraft.structure.package import Package, is_class_name

_DYNAMIC = re.compile(
    r"\bsetattr\(self\b|self\.(?:add_module|register_module|_modules|__dict__)\b|def __[gs]etattr"
)
_DYNAMIC_WORDS = (
    b"setattr",
    b"add_module",
    b"register_module",
    b"_modules",
    b"__dict__",
    b"__getattr",
)

_SUPER_CALL = re.compile(r"super\([^()]*\)\.(?!__init__)(\w+)\(")
# `self.layers.append(...)`, `self.layers[0] = ...`
_CONTAINER_CHANGE = re.compile(r"(self(?:\.\w+)+?)(?:\.(?:append|insert|extend|pop)\(|\[)")
_OPERATORS = re.compile(
    rb"def __(?:[ri]?(?:add|sub|mul|truediv|pow|matmul)|neg|getitem|setitem|getattr|getattribute)__"
)

_WORD = re.compile(r"\w+")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ATTRIBUTE_STORE = re.compile(rb"\.(\w+)\s*=(?!=)|\bsetattr\([^,\n]*,\s*[\"'](\w+)")
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
        self._inlinable: dict[ast.AST, bool] = {}
        self.package = package_of(Path(source.path)) if package is None else package
        self._owners: dict[ast.AST, Module] = {}
        self._bases: dict[tuple[ast.ClassDef, bool], tuple[ast.ClassDef, ...]] = {}
        self._imported: dict[str, tuple[Module, ast.ClassDef | Function] | None] = {}
        self._dynamic_classes: dict[ast.ClassDef, bool] = {}
        self._word_sets: dict[ast.AST, frozenset[bytes]] = {}
        self._layers: dict[str, Mapping[str, tuple[Layer, ...]]] = {}
        self._lowered_bodies: list[Body] = []
        self._stores: dict[ast.AST, frozenset[str]] = {}
        self._constructors: dict[ast.AST, Body] = {}
        self.rms_norm_by_name: dict[str, bool] = {}  # filled in by `norms.is_rms_norm`

    @cached_property
    def names(self) -> Names:
        return module_names(self.source.tree, self.package, b"global " in self.source.text)

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """The classes at the top level (also inside `if` and `try`) by name."""
        return {
            name: node
            for name, node in self.names.definitions.items()
            if isinstance(node, ast.ClassDef)
        }

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

    def methods(self, cls: ast.ClassDef) -> dict[str, Function]:
        return {
            member.name: member
            for member in cls.body
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
        }

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
            words = _WORD.findall(self.source.segment(definition))
            word_set = self._word_sets[definition] = frozenset(word.encode() for word in words)
        return word_set

    def scope(self, cls: ast.ClassDef | None) -> Scope:
        """Return the scope of the methods of a class, or of the functions outside classes
        (None)."""
        if cls is None:
            return Scope(
                self.source,
                self.names,
                table(),
                {},
                custom_operations=self.custom_operations,
                inlines=self.inlines,
                inlinable=self._inlinable,
                imported=self._imported_function,
            )
        methods = self.all_methods(cls)
        overridden = {
            name
            for subclass in self.subclasses.get(cls.name, ())
            for name in self.methods(subclass)
        }
        customs = (self.owner(base).custom_operations for base in self.bases(cls))
        return Scope(
            self.source,
            self.names,
            table(),
            self.layers(cls),
            methods,
            self.custom_operations.union(*customs),
            frozenset(name for name in methods.keys() - overridden if self._is_final(cls, name)),
            self.inlines,
            self._inlinable,
            self._imported_function,
        )

    def _imported_function(self, qualified: str) -> tuple[Scope, Function] | None:
        """Return the scope and the definition of an imported function; None unless the package
        defines it."""
        if is_class_name(qualified):
            return None
        home, function = self.imported(qualified) or (self, None)
        if function is None or isinstance(function, ast.ClassDef):
            return None
        scope = Scope(
            home.source,
            home.names,
            table(),
            {},
            custom_operations=home.custom_operations,
            inlines=self.inlines,
            inlinable=home._inlinable,
            imported=self._imported_function,
            home=home.dotted,
        )
        return scope, function

    def _is_final(self, cls: ast.ClassDef, name: str) -> bool:
        """Return whether `self.name` is certainly a method found in this file, one that nothing
        overwrites."""
        if name in self._attributes_set_anywhere:
            return False
        owner = cls
        while name not in self.methods(owner):
            bases = [base.id for base in owner.bases if isinstance(base, ast.Name)]
            if (
                len(owner.bases) != 1
                or not bases
                or bases[0] not in self.classes
                or name in self._assigned_names(owner)
            ):
                return False
            owner = self.classes[bases[0]]
        is_redefined = (
            sum(
                isinstance(statement, _FUNCTIONS) and statement.name == name
                for statement in owner.body
            )
            > 1
        )
        return not is_redefined and name not in self._assigned_names(owner)

    def _assigned_names(self, cls: ast.ClassDef) -> set[str]:
        """Return the names that a class body assigns outside its methods."""
        members = [member for member in cls.body if not isinstance(member, _FUNCTIONS)]
        return {
            target.id for target in _assignment_targets(members) if isinstance(target, ast.Name)
        }

    @cached_property
    def _attributes_set_anywhere(self) -> frozenset[str]:
        """The names of all attributes that the file sets, on whatever object."""
        return frozenset(
            name.decode()
            for match in _ATTRIBUTE_STORE.finditer(self.source.text)
            for name in match.groups()
            if name
        )

    def layers(self, cls: ast.ClassDef) -> Mapping[str, tuple[Layer, ...]]:
        """Return the layers of a class and its base classes by path (`self.dropout`)."""
        layers = self._layers.get(cls.name)
        if layers is None:
            self._layers[cls.name] = {}  # ends the recursion for a class that refers to itself
            layers = self._layers[cls.name] = self._build_layers(cls)
        return layers

    def _build_layers(self, cls: ast.ClassDef) -> Mapping[str, tuple[Layer, ...]]:
        """Return the layers that the constructors of a class and its bases leave; methods are those
        of an instance."""
        order = self.bases(cls)
        merged: dict[str, list[Layer]] = {}
        constructors: set[ast.AST] = set()
        paths_by_class: dict[ast.ClassDef, Collection[str]] = {}
        for base in reversed(order):
            constructed = self._constructed_layers(base, order, constructors)
            merged.update(constructed)
            paths_by_class[base] = constructed.keys()
        for base in order:
            # a class of another file is taken to change, outside its constructor, only the layers
            # that it builds
            affected = (
                merged
                if self.owner(base) is self
                else {path: merged[path] for path in paths_by_class[base]}
            )
            if not affected:
                continue
            for path in (
                *self._reassigned_paths(base, constructors),
                *self._shadowed_paths(base, affected),
            ):
                # stored by a method that may run at any time, or not by an assignment: the type is
                # unknown
                if path in affected:
                    merged[path].append(Layer("", path))
        return {path: tuple(layers) for path, layers in merged.items()}

    def _constructed_layers(
        self, cls: ast.ClassDef, order: tuple[ast.ClassDef, ...], constructors: set[ast.AST]
    ) -> dict[str, list[Layer]]:
        """Return the layers that `__init__` of a class and the methods that it calls on the
        instance store, by path.

        The constructor and these methods are added to `constructors`.
        """
        layers: dict[str, list[Layer]] = {}
        pending = [(cls, self.methods(cls)["__init__"])] if "__init__" in self.methods(cls) else []
        visited: set[ast.AST] = set()
        while pending:
            owner, function = pending.pop()
            if function in visited:
                continue
            visited.add(function)
            body = self._constructor_body(owner, function)
            pending += self._called_methods(owner, order, function, body)
            home = self.owner(owner)
            for store in body.stores:
                stored_layers = (*_stored_layers(*store), *self._factory_layers(home, *store))
                is_own_file = home is self
                layers.setdefault(store[0], []).extend(
                    stored_layers
                    if is_own_file
                    else (replace(layer, lines=(0, 0)) for layer in stored_layers)
                )
        constructors |= visited
        return layers

    def _factory_layers(
        self, home: Module, path: str, guard: guards.Guard, value: Value, statement: ast.stmt
    ) -> Iterator[Layer]:
        """Yield the layers that a called function may return, with an unknown layer as a further
        alternative.

        The function is one of the file or its package; nothing is yielded when it returns no layer
        of `torch.nn`.
        """
        for candidate in (value, *(option for _, option in value.options)):
            if candidate.node is not None and candidate.node.op == "call" and not candidate.layers:
                layer_types = returned_layer_types(self, home, candidate.node.spelling)
                lines = (statement.lineno, statement.end_lineno or statement.lineno)
                yield from (
                    Layer(name, path, {}, guard, lines=lines)
                    for name in (*layer_types, "")
                    if layer_types
                )

    def _constructor_body(self, owner: ast.ClassDef, function: Function) -> Body:
        """Return the body of a constructor or a method that it calls, from the cache if
        possible."""
        if self.owner(owner) is not self:
            return self.owner(owner)._constructor_body(owner, function)
        body = self._constructors.get(function)
        if body is None:
            scope = Scope(
                self.source, self.names, table(), {}, self.methods(owner), self.custom_operations
            )
            body = self._constructors[function] = lower_function(
                scope, function, function.name, method=True
            )
            self._lowered_bodies.append(body)
        return body

    def _called_methods(
        self, owner: ast.ClassDef, order: tuple[ast.ClassDef, ...], function: Function, body: Body
    ) -> Iterator[tuple[ast.ClassDef, Function]]:
        """Yield the methods that a constructor calls, each with its class.

        `self.build()` is looked up from the instance's class on, `super().build()` above the
        `owner`.
        """
        calls = [
            (node.spelling[5:], order)
            for node in body.index.get("call", ())
            if node.spelling.startswith("self.")
        ]
        above = order[order.index(owner) + 1 :]
        text = self.owner(owner).source.segment(function)
        calls += [(match[1], above) for match in _SUPER_CALL.finditer(text)]
        for name, classes in calls:
            definer = next(
                (candidate for candidate in classes if name in self.methods(candidate)), None
            )
            if definer is not None:
                yield definer, self.methods(definer)[name]

    def _shadowed_paths(self, cls: ast.ClassDef, paths: Mapping[str, list[Layer]]) -> list[str]:
        """Return paths of layers of unknown type: something but a plain assignment may set or hide
        them."""
        home = self.owner(cls)
        text = home.source.segment(cls)
        dynamic = home._is_dynamic and home._sets_attributes(cls)
        containers = {
            path
            for path, layers in paths.items()
            if any(layer.type == "torch.nn.Sequential" for layer in layers)
        }
        changed_paths = (
            {match[1] for match in _CONTAINER_CHANGE.finditer(text)} if containers else set()
        )
        functions = [
            member
            for member in cls.body
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        class_statements = [member for member in cls.body if member not in functions]
        names = {member.name for member in functions}
        names |= {
            target.id
            for target in _assignment_targets(class_statements)
            if isinstance(target, ast.Name)
        }
        return [
            path
            for path in paths
            if dynamic or path in containers & changed_paths or path.split(".")[1] in names
        ]

    def _sets_attributes(self, cls: ast.ClassDef) -> bool:
        """Return whether a class of this file may set attributes by other means than an
        assignment."""
        is_dynamic = self._dynamic_classes.get(cls)
        if is_dynamic is None:
            is_dynamic = self._dynamic_classes[cls] = (
                _DYNAMIC.search(self.source.segment(cls)) is not None
            )
        return is_dynamic

    @cached_property
    def _is_dynamic(self) -> bool:
        """True when the file contains a word that occurs in code that sets attributes without an
        assignment."""
        return any(word in self.source.text for word in _DYNAMIC_WORDS)

    def _reassigned_paths(self, cls: ast.ClassDef, constructors: set[ast.AST]) -> set[str]:
        """Return the attributes (`self.x`) that methods of a class other than its `constructors`
        assign."""
        methods = (
            method
            for method in self.methods(cls).values()
            if method not in constructors and method.args.args
        )
        home = self.owner(cls)
        return {path for method in methods for path in home._assigned_paths(method)}

    def _assigned_paths(self, method: Function) -> frozenset[str]:
        """Return the attributes of the instance that a method assigns (`self.x`)."""
        paths = self._stores.get(method)
        if paths is None:
            receiver = method.args.args[0].arg
            targets = (
                target
                for target in _assignment_targets(method.body)
                if isinstance(target, ast.Attribute)
            )
            paths = self._stores[method] = frozenset(
                f"self.{target.attr}"
                for target in targets
                if isinstance(target.value, ast.Name) and target.value.id == receiver
            )
        return paths

    def release(self) -> None:
        """Release the values of all bodies of the file; they cannot be used afterwards."""
        for body in self._lowered_bodies:
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
    ) -> Iterator[Body]:
        """Yield the bodies of a function and of the functions nested in it, as far as `is_wanted`
        selects them."""
        if not is_wanted(cls, function):
            return
        static = any(
            isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
            for decorator in function.decorator_list
        )
        body = lower_function(
            self.scope(cls), function, name, cls is not None and not static, enclosing
        )
        self._lowered_bodies.append(body)
        yield body
        inner_functions = tuple(_inner_functions(function))
        names_in_scope = enclosing | local_names(function) if inner_functions else enclosing
        for inner in inner_functions:
            yield from self._lower_with_nested(
                inner, f"{name}.{inner.name}", None, is_wanted, names_in_scope
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


def _assignment_targets(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the assignment targets of statements, nested statements included; expressions are not
    searched."""
    for statement in statements(body):
        if isinstance(statement, ast.Expr | ast.Return | ast.If):
            continue
        pending = [*getattr(statement, "targets", ()), getattr(statement, "target", None)]
        pending += [with_item.optional_vars for with_item in getattr(statement, "items", ())]
        while pending:
            target = pending.pop()
            if isinstance(target, ast.Tuple | ast.List):
                pending += target.elts
            elif target is not None:
                yield target


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


def _stored_layers(
    path: str, guard: guards.Guard, value: Value, statement: ast.stmt
) -> Iterator[Layer]:
    """Yield the layers that an attribute may hold after a store of `value`, one of type "" when it
    is unknown."""
    lines = (statement.lineno, statement.end_lineno or statement.lineno)
    for function in (value, *(option for _, option in value.options)):
        if function.origin == "global" and "." in function.name:
            # a function that is stored in an attribute is called like a layer
            yield Layer(function.name, path, {"value": function}, guard, lines=lines)
    if not value.layers and value.const is not None and value.origin not in ("global", "phi"):
        yield Layer("", path, {"value": value}, guard, lines=lines)
    for layer in value.layers:
        yield Layer(
            layer.type,
            path,
            layer.args,
            guards.conjoin(guard, layer.guard) if layer.guard is not guard else guard,
            layer.source,
            layer.choice,
            layer.items,
            layer.lines,
        )
