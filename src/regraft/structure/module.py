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
from regraft.structure.factories import made_by
from regraft.structure.frame import Function, Scope
from regraft.structure.lower import local_names, lower_function
from regraft.structure.model import Body, Layer, Structure, Value
from regraft.structure.optable import table
from regraft.structure.package import Package, is_class_name

_DYNAMIC = re.compile(r"\bsetattr\(self\b|self\.(?:add_module|register_module|_modules|__dict__)\b|def __[gs]etattr")
_DYNAMIC_WORDS = (b"setattr", b"add_module", b"register_module", b"_modules", b"__dict__", b"__getattr")

_SUPER = re.compile(r"super\([^()]*\)\.(?!__init__)(\w+)\(")
# `self.layers.append(...)`, `self.layers[0] = ...`
_CHANGED = re.compile(r"(self(?:\.\w+)+?)(?:\.(?:append|insert|extend|pop)\(|\[)")
_OPERATORS = re.compile(
    rb"def __(?:[ri]?(?:add|sub|mul|truediv|pow|matmul)|neg|getitem|setitem|getattr|getattribute)__"
)

_WORD = re.compile(r"\w+")
# Whether to lower a function, given the class that it is a method of.
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SET = re.compile(rb"\.(\w+)\s*=(?!=)|\bsetattr\([^,\n]*,\s*[\"'](\w+)")
Wanted = Callable[[ast.ClassDef | None, Function], bool]


class Module:
    """Structures of one file, made on demand.

    Base classes and functions that it imports from its own package are followed into their files.
    """

    def __init__(self, source: SourceFile, package: str | None = None, inlines: bool = True) -> None:
        self.source = source
        self.inlines = inlines
        self._inlinable: dict[ast.AST, bool] = {}
        self.package = package_of(Path(source.path)) if package is None else package
        self._owners: dict[ast.AST, Module] = {}
        self._bases: dict[tuple[ast.ClassDef, bool], tuple[ast.ClassDef, ...]] = {}
        self._imported: dict[str, tuple[Module, ast.ClassDef | Function] | None] = {}
        self._dynamic: dict[ast.ClassDef, bool] = {}
        self._words: dict[ast.AST, frozenset[bytes]] = {}
        self._layers: dict[str, Mapping[str, tuple[Layer, ...]]] = {}
        self._made: list[Body] = []
        self._stores: dict[ast.AST, frozenset[str]] = {}
        self._constructors: dict[ast.AST, Body] = {}
        self.rms_norms: dict[str, bool] = {}  # classes that are one, or not, as far as somebody asked

    @cached_property
    def names(self) -> Names:
        return module_names(self.source.tree, self.package, b"global " in self.source.text)

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """Classes at the top level (also inside `if` and `try`), by name."""
        return {name: node for name, node in self.names.definitions.items() if isinstance(node, ast.ClassDef)}

    @cached_property
    def around(self) -> Package[Module]:
        """The files of the package, as this file reaches them."""
        return Package(self.source.path, self.package, Module)

    def imported(self, qualified: str) -> tuple[Module, ast.ClassDef | Function] | None:
        """The class or function of another file of the package that a qualified name stands for, and its module."""
        if qualified not in self._imported:
            found = self.around.locate(qualified) if self.around.own(qualified) else None
            here = found is None or Path(found[0].source.path) == self.around.file
            self._imported[qualified] = None if here or not found else (found[0], found[0].names.definitions[found[1]])
        return self._imported[qualified]

    @property
    def dotted(self) -> str:
        """The module's name as its package's files import it."""
        stem = Path(self.source.path).stem
        return ".".join(filter(None, (self.package, "" if stem == "__init__" else stem)))

    def owner(self, definition: ast.AST) -> Module:
        """The module of a class that `bases` gave, or of a method of it."""
        return self._owners.get(definition, self)

    def bases(self, cls: ast.ClassDef, *, followed: bool = True) -> tuple[ast.ClassDef, ...]:
        """The class and its base classes, nearest first (left to right, depth first).

        followed  with those of other files of the package
        """
        known = self._bases.get((cls, followed))
        if known is None:
            found: dict[ast.ClassDef, None] = {}
            stack = [cls]
            while stack:
                one = stack.pop(0)
                if one not in found:
                    found[one] = None
                    stack[:0] = [base for expr in one.bases for base in self._base(one, expr, followed)]
            known = self._bases[cls, followed] = tuple(found)
        return known

    def _base(self, cls: ast.ClassDef, expr: ast.expr, followed: bool) -> Iterator[ast.ClassDef]:
        owner = self.owner(cls)
        if isinstance(expr, ast.Name) and expr.id in owner.classes:
            found, base = owner, owner.classes[expr.id]
        else:
            qualified = owner.names.resolve(expr) if followed else None
            other = self.imported(qualified) if qualified is not None else None
            if other is None or not isinstance(other[1], ast.ClassDef):
                return
            found, base = other[0], other[1]
        if found is not self:
            self._owners.update((one, found) for one in (base, *self.methods(base).values()))
        yield base

    @cached_property
    def subclasses(self) -> Mapping[str, tuple[ast.ClassDef, ...]]:
        """Direct and indirect subclasses in this file of each class."""
        found: dict[str, list[ast.ClassDef]] = {}
        for cls in self.classes.values():
            for base in self.bases(cls, followed=False)[1:]:
                found.setdefault(base.name, []).append(cls)
        return {name: tuple(classes) for name, classes in found.items()}

    @cached_property
    def custom(self) -> frozenset[str]:
        """What the file defines for itself: names of properties, `__iter__` for iteration, `__add__` for operators."""
        text = self.source.text
        found = set()
        if b"yield" in text or b"def __iter__" in text or b"def __next__" in text:
            found.add("__iter__")
        if _OPERATORS.search(text):
            found.add("__add__")
        if b"property" in text:
            functions = (node for node in statements(self.source.tree.body) if isinstance(node, ast.FunctionDef))
            found.update(one.name for one in functions if _is_active_property(one))
        return frozenset(found)

    def methods(self, cls: ast.ClassDef) -> dict[str, Function]:
        return {one.name: one for one in cls.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}

    def all_methods(self, cls: ast.ClassDef) -> dict[str, Function]:
        """The methods of a class and its bases, as an instance has them."""
        return {name: method for one in reversed(self.bases(cls)) for name, method in self.methods(one).items()}

    def words(self, definition: ast.ClassDef | Function) -> frozenset[bytes]:
        """Every word in the text of a class or function of this file."""
        found = self._words.get(definition)
        if found is None:
            words = _WORD.findall(self.source.segment(definition))
            found = self._words[definition] = frozenset(word.encode() for word in words)
        return found

    def scope(self, cls: ast.ClassDef | None) -> Scope:
        if cls is None:
            return Scope(
                self.source, self.names, table(), {}, custom=self.custom, inlines=self.inlines,
                inlinable=self._inlinable, imported=self._function,
            )  # fmt: skip
        methods = self.all_methods(cls)
        overridden = {name for sub in self.subclasses.get(cls.name, ()) for name in self.methods(sub)}
        customs = (self.owner(one).custom for one in self.bases(cls))
        return Scope(
            self.source, self.names, table(), self.layers(cls), methods, self.custom.union(*customs),
            frozenset(name for name in methods.keys() - overridden if self._is_final(cls, name)),
            self.inlines, self._inlinable, self._function,
        )  # fmt: skip

    def _function(self, qualified: str) -> tuple[Scope, Function] | None:
        """A function that the file imports from its package, with what it sees."""
        if is_class_name(qualified):
            return None
        other, function = self.imported(qualified) or (self, None)
        if function is None or isinstance(function, ast.ClassDef):
            return None
        scope = Scope(
            other.source, other.names, table(), {}, custom=other.custom, inlines=self.inlines,
            inlinable=other._inlinable, imported=self._function, home=other.dotted,
        )  # fmt: skip
        return scope, function

    def _is_final(self, cls: ast.ClassDef, name: str) -> bool:
        """Whether `self.name` certainly is the method that this file shows: no guess is needed, nothing sets it."""
        if name in self._set_somewhere:
            return False
        one = cls
        while name not in self.methods(one):
            bases = [base.id for base in one.bases if isinstance(base, ast.Name)]
            if len(one.bases) != 1 or not bases or bases[0] not in self.classes or name in self._assigned_names(one):
                return False
            one = self.classes[bases[0]]
        twice = sum(isinstance(statement, _FUNCTIONS) and statement.name == name for statement in one.body) > 1
        return not twice and name not in self._assigned_names(one)

    def _assigned_names(self, cls: ast.ClassDef) -> set[str]:
        others = [one for one in cls.body if not isinstance(one, _FUNCTIONS)]
        return {target.id for target in _targets(others) if isinstance(target, ast.Name)}

    @cached_property
    def _set_somewhere(self) -> frozenset[str]:
        """Names of attributes that the file sets on anything."""
        return frozenset(name.decode() for found in _SET.finditer(self.source.text) for name in found.groups() if name)

    def layers(self, cls: ast.ClassDef) -> Mapping[str, tuple[Layer, ...]]:
        """Layers of a class by path (`self.dropout`), its base classes' included."""
        found = self._layers.get(cls.name)
        if found is None:
            self._layers[cls.name] = {}  # a class that refers to itself while its layers are made
            found = self._layers[cls.name] = self._build(cls)
        return found

    def _build(self, cls: ast.ClassDef) -> Mapping[str, tuple[Layer, ...]]:
        """Layers that the constructors of a class and its bases leave, methods resolved as in an instance."""
        order = self.bases(cls)
        merged: dict[str, list[Layer]] = {}
        ran: set[ast.AST] = set()
        built: dict[ast.ClassDef, Collection[str]] = {}
        for one in reversed(order):
            found = self._constructed(one, order, ran)
            merged.update(found)
            built[one] = found.keys()
        for one in order:
            # what a class of another file may do by such means is only held against the layers that it builds
            seen = merged if self.owner(one) is self else {path: merged[path] for path in built[one]}
            if not seen:
                continue
            for path in (*self._reassigned(one, ran), *self._shadowed(one, seen)):
                # stored by a method that may run at any time, or by other means: its type is not known
                if path in seen:
                    merged[path].append(Layer("", path))
        return {path: tuple(layers) for path, layers in merged.items()}

    def _constructed(
        self, cls: ast.ClassDef, order: tuple[ast.ClassDef, ...], ran: set[ast.AST]
    ) -> dict[str, list[Layer]]:
        """What the `__init__` of one class stores, with the methods that it calls on the instance."""
        found: dict[str, list[Layer]] = {}
        pending = [(cls, self.methods(cls)["__init__"])] if "__init__" in self.methods(cls) else []
        seen: set[ast.AST] = set()
        while pending:
            owner, function = pending.pop()
            if function in seen:
                continue
            seen.add(function)
            body = self._constructor_body(owner, function)
            pending += self._called(owner, order, function, body)
            home = self.owner(owner)
            for store in body.stores:
                made = (*_stored_layers(*store), *self._by_function(home, *store))
                here = home is self
                found.setdefault(store[0], []).extend(made if here else (replace(one, lines=(0, 0)) for one in made))
        ran |= seen
        return found

    def _by_function(
        self, home: Module, path: str, guard: guards.Guard, value: Value, statement: ast.stmt
    ) -> Iterator[Layer]:
        """Layers that a function of the file or its package may have made, and what else it may be."""
        for one in (value, *(option for _, option in value.options)):
            if one.node is not None and one.node.op == "call" and not one.layers:
                made = made_by(self, home, one.node.spelling)
                lines = (statement.lineno, statement.end_lineno or statement.lineno)
                yield from (Layer(name, path, {}, guard, lines=lines) for name in (*made, "") if made)

    def _constructor_body(self, owner: ast.ClassDef, function: Function) -> Body:
        if self.owner(owner) is not self:
            return self.owner(owner)._constructor_body(owner, function)
        body = self._constructors.get(function)
        if body is None:
            scope = Scope(self.source, self.names, table(), {}, self.methods(owner), self.custom)
            body = self._constructors[function] = lower_function(scope, function, function.name, method=True)
            self._made.append(body)
        return body

    def _called(
        self, owner: ast.ClassDef, order: tuple[ast.ClassDef, ...], function: Function, body: Body
    ) -> Iterator[tuple[ast.ClassDef, Function]]:
        """Methods that a constructor calls: `self.build()` as the instance's class has it, `super().build()` above."""
        named = [
            (node.spelling[5:], order) for node in body.index.get("call", ()) if node.spelling.startswith("self.")
        ]
        above = order[order.index(owner) + 1 :]
        text = self.owner(owner).source.segment(function)
        named += [(match[1], above) for match in _SUPER.finditer(text)]
        for name, classes in named:
            found = next((one for one in classes if name in self.methods(one)), None)
            if found is not None:
                yield found, self.methods(found)[name]

    def _shadowed(self, cls: ast.ClassDef, paths: Mapping[str, list[Layer]]) -> list[str]:
        """Layers that something else than a plain assignment may set or hide: their type is not known."""
        home = self.owner(cls)
        text = home.source.segment(cls)
        dynamic = home._is_dynamic and home._sets_attributes(cls)
        containers = {
            path for path, layers in paths.items() if any(one.type == "torch.nn.Sequential" for one in layers)
        }
        changed = {found[1] for found in _CHANGED.finditer(text)} if containers else set()
        functions = [one for one in cls.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        others = [one for one in cls.body if one not in functions]
        names = {one.name for one in functions}
        names |= {target.id for target in _targets(others) if isinstance(target, ast.Name)}
        return [path for path in paths if dynamic or path in containers & changed or path.split(".")[1] in names]

    def _sets_attributes(self, cls: ast.ClassDef) -> bool:
        """Whether a class of this file sets attributes by other means than an assignment."""
        found = self._dynamic.get(cls)
        if found is None:
            found = self._dynamic[cls] = _DYNAMIC.search(self.source.segment(cls)) is not None
        return found

    @cached_property
    def _is_dynamic(self) -> bool:
        return any(word in self.source.text for word in _DYNAMIC_WORDS)

    def _reassigned(self, cls: ast.ClassDef, constructors: set[ast.AST]) -> set[str]:
        methods = (one for one in self.methods(cls).values() if one not in constructors and one.args.args)
        home = self.owner(cls)
        return {path for method in methods for path in home._assigned(method)}

    def _assigned(self, method: Function) -> frozenset[str]:
        """Attributes of the instance that a method stores."""
        found = self._stores.get(method)
        if found is None:
            receiver = method.args.args[0].arg
            targets = (one for one in _targets(method.body) if isinstance(one, ast.Attribute))
            found = self._stores[method] = frozenset(
                f"self.{one.attr}" for one in targets if isinstance(one.value, ast.Name) and one.value.id == receiver
            )
        return found

    def release(self) -> None:
        """Take apart what was made of the file, when it is no longer needed."""
        for body in self._made:
            body.release()

    def structures(self, wanted: Wanted = lambda cls, function: True) -> Iterator[Structure]:
        """One structure for each class, then one for each function; `wanted` chooses the functions to lower."""
        for cls in self.classes.values():
            bodies = tuple(self._bodies(cls, wanted))
            if bodies:
                yield Structure(cls.name, cls, self.layers(cls), bodies)
        for name, function in self.names.definitions.items():
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                bodies = tuple(self._nested(function, name, None, wanted))
                if bodies:
                    yield Structure(name, None, {}, bodies)

    def _bodies(self, cls: ast.ClassDef, wanted: Wanted) -> Iterator[Body]:
        for name, method in self.methods(cls).items():
            yield from self._nested(method, name, cls, wanted)

    def _nested(
        self, function: Function, name: str, cls: ast.ClassDef | None, wanted: Wanted,
        enclosing: frozenset[str] = frozenset(),
    ) -> Iterator[Body]:  # fmt: skip
        if not wanted(cls, function):
            return
        static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in function.decorator_list)
        body = lower_function(self.scope(cls), function, name, cls is not None and not static, enclosing)
        self._made.append(body)
        yield body
        inner_functions = tuple(_inner_functions(function))
        around = enclosing | local_names(function) if inner_functions else enclosing
        for inner in inner_functions:
            yield from self._nested(inner, f"{name}.{inner.name}", None, wanted, around)


def _is_active_property(node: ast.FunctionDef) -> bool:
    """A property that does more than read: its body is not one `return` without a call."""
    if not any("property" in ast.unparse(one) for one in node.decorator_list):
        return False
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    reads = len(body) == 1 and isinstance(body[0], ast.Return)
    return not reads or any(isinstance(one, ast.Call | ast.Yield | ast.NamedExpr) for one in ast.walk(body[0]))


def _targets(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """Assignment targets of statements, nested ones included; expressions are not searched."""
    for statement in statements(body):
        if isinstance(statement, ast.Expr | ast.Return | ast.If):
            continue
        found = [*getattr(statement, "targets", ()), getattr(statement, "target", None)]
        found += [item.optional_vars for item in getattr(statement, "items", ())]
        while found:
            target = found.pop()
            if isinstance(target, ast.Tuple | ast.List):
                found += target.elts
            elif target is not None:
                yield target


def _inner_functions(function: Function) -> Iterator[Function]:
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif not isinstance(node, ast.expr | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(node))


def _stored_layers(path: str, guard: guards.Guard, value: Value, statement: ast.stmt) -> Iterator[Layer]:
    lines = (statement.lineno, statement.end_lineno or statement.lineno)
    for function in (value, *(option for _, option in value.options)):
        if function.origin == "global" and "." in function.name:
            # a function kept as an attribute is called like a layer
            yield Layer(function.name, path, {"value": function}, guard, lines=lines)
    if not value.layers and value.const is not None and value.origin not in ("global", "phi"):
        yield Layer("", path, {"value": value}, guard, lines=lines)
    for layer in value.layers:
        yield Layer(
            layer.type, path, layer.args, guards.conjoin(guard, layer.guard) if layer.guard is not guard else guard,
            layer.source, layer.choice, layer.items, layer.lines,
        )  # fmt: skip
