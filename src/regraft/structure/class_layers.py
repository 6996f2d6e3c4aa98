"""The layers that the constructors of a file's classes leave in the attributes of an instance."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from regraft.structure import guards
from regraft.structure.bound_names import assignment_targets, class_variables
from regraft.structure.function_surroundings import Function, Scope
from regraft.structure.layer_factories import returned_layer_types
from regraft.structure.layers import SEQUENTIAL
from regraft.structure.lower import lower_function
from regraft.structure.optable import table
from regraft.structure.values_and_nodes import Body, Layer, Value

if TYPE_CHECKING:
    from regraft.structure.module_structures import Module

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
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class ClassLayers:
    """The layers of the classes of one file, built on demand."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._layers: dict[str, Mapping[str, tuple[Layer, ...]]] = {}
        self._constructors: dict[ast.AST, Body] = {}
        self._returned: dict[Function, tuple[Layer, ...]] = {}
        self._returning: list[Body] = []
        self._dynamic_classes: dict[ast.ClassDef, bool] = {}
        self._stores: dict[ast.AST, frozenset[str]] = {}

    @property
    def bodies(self) -> Iterable[Body]:
        """The bodies, lowered so far, of the constructors and of the functions that build layers
        for them."""
        return (*self._constructors.values(), *self._returning)

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
        order = self.module.bases(cls)
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
            is_own = self.module.owner(base) is self.module
            paths = merged.keys() if is_own else paths_by_class[base]
            for path in self._uncertain_paths(base, constructors, {p: merged[p] for p in paths}):
                merged[path].append(Layer("", path))
        return {path: tuple(layers) for path, layers in merged.items()}

    def _uncertain_paths(
        self, cls: ast.ClassDef, constructors: set[ast.AST], layers: Mapping[str, list[Layer]]
    ) -> list[str]:
        """Return the paths of layers of unknown type.

        They are stored by a method that may run at any time, or by something else than an
        assignment.
        """
        if not layers:
            return []
        reassigned = self._reassigned_paths(cls, constructors)
        shadowed = self._shadowed_paths(cls, layers)
        return [path for path in (*reassigned, *shadowed) if path in layers]

    def _constructed_layers(
        self, cls: ast.ClassDef, order: tuple[ast.ClassDef, ...], constructors: set[ast.AST]
    ) -> dict[str, list[Layer]]:
        """Return the layers that `__init__` of a class and the methods that it calls on the
        instance store, by path.

        The constructor and these methods are added to `constructors`.
        """
        module = self.module
        layers: dict[str, list[Layer]] = {}
        methods = module.methods(cls)
        pending = [(cls, methods["__init__"])] if "__init__" in methods else []
        visited: set[ast.AST] = set()
        while pending:
            owner, function = pending.pop()
            if function in visited:
                continue
            visited.add(function)
            home = module.owner(owner)
            body = home.class_layers.constructor_body(owner, function)
            pending += self._called_methods(owner, order, function, body)
            for store in body.stores:
                stored_layers = (*_stored_layers(*store), *self._factory_layers(home, *store))
                stored_layers = tuple(
                    home.class_layers.without_late_arguments(store[0], stored_layers)
                )
                if home is not module:  # lines of another file
                    stored_layers = tuple(replace(layer, lines=(0, 0)) for layer in stored_layers)
                layers.setdefault(store[0], []).extend(stored_layers)
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
                layer_types = returned_layer_types(self.module, home, candidate.node.spelling)
                lines = (statement.lineno, statement.end_lineno or statement.lineno)
                yield from (
                    Layer(name, path, {}, guard, lines=lines)
                    for name in (*layer_types, "")
                    if layer_types
                )

    def without_late_arguments(self, path: str, layers: Iterable[Layer]) -> Iterator[Layer]:
        """Yield the layers at a path, without the arguments of attributes that this file assigns
        later (`self.norm.eps = 1e-3`)."""
        late_paths = self.module.attribute_stores.paths
        name = path.rpartition(".")[2]
        for layer in layers:
            layer_type = table().layer(layer.type) if late_paths else None
            attributes = layer_type.attributes if layer_type is not None else ()
            late = {
                attribute: Value(0, "unknown")
                for attribute in attributes
                if f"{name}.{attribute}" in late_paths
            }
            yield replace(layer, args={**layer.args, **late}) if late else layer

    def constructor_body(self, owner: ast.ClassDef, function: Function) -> Body:
        """Return the body of a constructor or of a method that it calls; it is cached."""
        body = self._constructors.get(function)
        if body is None:
            module = self.module
            scope = Scope(
                module.source,
                module.names,
                table(),
                {},
                module.methods(owner),
                module.custom_operations,
                returned=self.returned_layers,
                late_attributes=module.attribute_stores.names,
                replacements=module.replacements,
            )
            body = self._constructors[function] = lower_function(
                scope, function, function.name, method=True
            )
        return body

    def returned_layers(self, function: Function) -> tuple[Layer, ...]:
        """Return the layers that a function of this file may return, an unknown one among them.

        Only a function whose text names a `Sequential` is looked at; the result is () where it
        returns no container whose modules are known.
        """
        layers = self._returned.get(function)
        if layers is None:
            self._returned[function] = ()  # ends the recursion for a function that calls itself
            layers = self._returned[function] = self._find_returned_layers(function)
        return layers

    def _find_returned_layers(self, function: Function) -> tuple[Layer, ...]:
        """Return the layers of the values that a function of this file returns."""
        module = self.module
        if module.owner(function) is not module or b"Sequential" not in module.words(function):
            return ()
        scope = Scope(
            module.source,
            module.names,
            table(),
            {},
            returned=self.returned_layers,
            late_attributes=module.attribute_stores.names,
            replacements=module.replacements,
        )
        body = lower_function(scope, function, function.name, method=False)
        self._returning.append(body)
        values = [value for node in body.index.get("py.return", ()) for value in node.args.values()]
        layers = tuple(layer for value in values for layer in value.layers if layer.type)
        return (*layers, Layer("")) if any(layer.items for layer in layers) else ()

    def _called_methods(
        self, owner: ast.ClassDef, order: tuple[ast.ClassDef, ...], function: Function, body: Body
    ) -> Iterator[tuple[ast.ClassDef, Function]]:
        """Yield the methods that a constructor calls, each with its class. `self.build()` is looked
        up from the instance's class on, `super().build()` above the `owner`."""
        calls = [
            (node.spelling[5:], order)
            for node in body.index.get("call", ())
            if node.spelling.startswith("self.")
        ]
        above = order[order.index(owner) + 1 :]
        text = self.module.owner(owner).source.segment(function)
        calls += [(match[1], above) for match in _SUPER_CALL.finditer(text)]
        for name, classes in calls:
            definer = next(
                (candidate for candidate in classes if name in self.module.methods(candidate)), None
            )
            if definer is not None:
                yield definer, self.module.methods(definer)[name]

    def _shadowed_paths(self, cls: ast.ClassDef, paths: Mapping[str, list[Layer]]) -> list[str]:
        """Return paths of layers of unknown type: something but a plain assignment may set or hide
        them."""
        home = self.module.owner(cls)
        if home.class_layers.sets_attributes(cls):
            return list(paths)
        names = {member.name for member in cls.body if isinstance(member, _FUNCTIONS)}
        names |= class_variables(cls)
        changed = _changed_containers(home.source.segment(cls), paths)
        return [path for path in paths if path in changed or path.split(".")[1] in names]

    def sets_attributes(self, cls: ast.ClassDef) -> bool:
        """Return whether a class of this file may set attributes by other means than an
        assignment."""
        if not self._is_dynamic:
            return False
        is_dynamic = self._dynamic_classes.get(cls)
        if is_dynamic is None:
            is_dynamic = self._dynamic_classes[cls] = (
                _DYNAMIC.search(self.module.source.segment(cls)) is not None
            )
        return is_dynamic

    @cached_property
    def _is_dynamic(self) -> bool:
        """True when the file contains a word that occurs in code that sets attributes without an
        assignment."""
        return any(word in self.module.source.text for word in _DYNAMIC_WORDS)

    def _reassigned_paths(self, cls: ast.ClassDef, constructors: set[ast.AST]) -> set[str]:
        """Return the attributes (`self.x`) that methods of a class other than its `constructors`
        assign."""
        methods = (
            method
            for method in self.module.methods(cls).values()
            if method not in constructors and method.args.args
        )
        home = self.module.owner(cls).class_layers
        return {path for method in methods for path in home.assigned_paths(method)}

    def assigned_paths(self, method: Function) -> frozenset[str]:
        """Return the attributes of the instance that a method assigns (`self.x`)."""
        paths = self._stores.get(method)
        if paths is None:
            receiver = method.args.args[0].arg
            targets = (
                target
                for target in assignment_targets(method.body)
                if isinstance(target, ast.Attribute)
            )
            paths = self._stores[method] = frozenset(
                f"self.{target.attr}"
                for target in targets
                if isinstance(target.value, ast.Name) and target.value.id == receiver
            )
        return paths


def _changed_containers(text: str, paths: Mapping[str, list[Layer]]) -> set[str]:
    """Return the paths of `Sequential` containers whose modules the text changes."""
    containers = {
        path for path, layers in paths.items() if any(layer.type == SEQUENTIAL for layer in layers)
    }
    if not containers:
        return set()
    return containers & {match[1] for match in _CONTAINER_CHANGE.finditer(text)}


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
        own_guard = guards.conjoin(guard, layer.guard) if layer.guard is not guard else guard
        yield replace(layer, path=path, guard=own_guard)
