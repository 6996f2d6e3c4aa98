"""Find the other definitions of a file that decide the behaviour of a changed class: they have to
run as well."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verify.constructions import Construction, constructions_in

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
SUBCLASS, BUILDER, MODIFIER = "inherits from it", "builds it", "can modify it"

# Attributes whose replacement changes any module, whatever attributes the text of the module
# mentions.
_ALWAYS = frozenset(
    {"forward", "__call__", "__class__", "__dict__", "_modules", "_parameters", "_buffers"}
)
_SETTERS = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})
_REGISTERING = frozenset(
    {"add_module", "register_module", "set_submodule", "register_parameter", "register_buffer"}
)
_CHANGING = frozenset(
    {"append", "insert", "extend", "pop", "clear", "update", "__setitem__", "__delitem__"}
)
_WRAPPING = frozenset(
    {"weight_norm", "spectral_norm", "register_parametrization", "remove_weight_norm"}
)

# Private methods that `nn.Module` itself calls.
_CALLED_BY_MODULE = frozenset(
    {
        "_apply",
        "_call_impl",
        "_wrapped_call_impl",
        "_slow_forward",
        "_get_name",
        "_named_members",
        "_infer_parameters",
        "_load_from_state_dict",
        "_save_to_state_dict",
        "_get_backward_hooks",
        "_get_backward_pre_hooks",
        "_maybe_warn_non_full_backward_hook",
        "_replicate_for_data_parallel",
    }
)


@dataclass(frozen=True, slots=True)
class Relative:
    """A definition that subclasses, builds or modifies a changed class (`why`, in words), with its
    1-based first and last line.

    `constructions` are the calls with which a builder builds the class, where these calls and the
    inputs are all that it adds; None for every other relative.
    """

    name: str
    why: str
    first: int
    last: int
    constructions: tuple[Construction, ...] | None = None

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Relative:
        """Return the relative whose fields `entry` holds."""
        constructions = entry["constructions"]
        if constructions is not None:
            constructions = tuple(
                tuple((name, constant) for name, constant in construction)
                for construction in constructions
            )
        return cls(**{**entry, "constructions": constructions})


class Family:
    """The definitions of one file and the references between them, by name, also through functions
    and variables."""

    def __init__(self, tree: ast.Module, definitions: Mapping[str, Definition]) -> None:
        self._nodes = definitions
        self._names: dict[str, set[str]] = {}
        for name, node in definitions.items():
            self._names.setdefault(_plain_name(name), set()).update(used_names(node))
        self._attributes = {
            name: frozenset(_read_attributes(node)) for name, node in definitions.items()
        }
        for statement in tree.body:
            for target in _targets(statement):
                self._names.setdefault(target, set()).update(_names(statement))
        self._classes = {
            _plain_name(name)
            for name, node in definitions.items()
            if isinstance(node, ast.ClassDef)
        }

    def relatives(
        self, changed: str, mentioned: frozenset[str], edited: frozenset[str] | None = None
    ) -> tuple[Relative, ...]:
        """Return the relatives of a changed class; `mentioned` are the attributes that its two
        versions mention.

        `edited` are the methods that the change is in, None where the change is also outside of
        methods.
        """
        cls = _plain_name(changed)
        subclasses = self._subclasses({cls})
        inheriting = self._inheriting(changed, subclasses, edited)
        builders, redefining = self._builders(cls, subclasses, {cls} | inheriting)
        results = []
        for name, node in self._nodes.items():
            own_name = _plain_name(name)
            if own_name == cls or self._never_refers(node, cls, own_name):
                continue
            if own_name in subclasses:
                if own_name in inheriting:
                    results.append(_relative(name, SUBCLASS, node))
            elif own_name in builders:
                only_builds = (
                    not self._may_modify(own_name, node, mentioned) and own_name not in redefining
                )
                constructions = (
                    self._constructions(cls, own_name, node, inheriting) if only_builds else None
                )
                results.append(_relative(name, BUILDER, node, constructions))
            elif self._may_modify(own_name, node, mentioned):
                results.append(_relative(name, MODIFIER, node))
        return tuple(results)

    def _builders(
        self, cls: str, subclasses: set[str], built: set[str]
    ) -> tuple[set[str], set[str]]:
        """Return the builders of a class, which build one of the classes `built`, and those of them
        that inherit from another and redefine names that it or the class reads.

        Any other subclass of a builder counts only where it defines a function.
        """
        related = subclasses | {cls}
        builders = {
            name
            for name in self._classes - related
            if built & self._reachable_names(name, through_classes=False)
        }
        heirs = self._subclasses(builders) - related
        redefining = {name for name in heirs if self._redefines(name, self._read({cls, name}))}
        with_functions = {name for name in heirs if self._defines_functions(name)}
        return builders | redefining | with_functions, redefining

    def _inheriting(
        self, changed: str, subclasses: set[str], edited: frozenset[str] | None
    ) -> set[str]:
        """Return the subclasses of a changed class that may run its edited methods, or build an
        instance of a class that does."""
        cls = _plain_name(changed)
        inheriting = {
            _plain_name(name)
            for name, node in self._nodes.items()
            if _plain_name(name) in subclasses
            and not (edited and self._avoids_edited_methods(node, changed, edited))
        }
        return inheriting | {
            _plain_name(name)
            for name, node in self._nodes.items()
            if _plain_name(name) in subclasses - inheriting
            and isinstance(node, ast.ClassDef)
            and ({cls} | inheriting) & self._closure(set().union(*map(used_names, node.body)))
        }

    def _constructions(
        self, cls: str, own_name: str, builder: Definition, inheriting: set[str]
    ) -> tuple[Construction, ...] | None:
        """Return the calls with which a builder builds the class `cls`; None where it may reach the
        class in another way than by plain calls, builds a subclass that differs from it, or several
        classes have the name.

        A subclass of a builder that never names the class builds it as its base does. `inheriting`
        are the subclasses that run the edited code.
        """
        direct_names = self._names.get(own_name, set())
        targets = {cls} | inheriting
        if targets & self._closure(direct_names - targets - self._classes):
            return None
        constructions: dict[Construction, None] = {}
        for target in sorted(targets & direct_names) or [cls]:
            built = self._as_built(target, cls)
            calls = constructions_in(builder, built) if built is not None else None
            if calls is None:
                return None
            constructions.update(dict.fromkeys(calls))
        return tuple(constructions)

    def _as_built(self, target: str, cls: str) -> ast.ClassDef | None:
        """Return the class `cls` under the name of the class `target`, which is `cls` or a subclass
        that adds nothing to it; None for another subclass, or where several classes have a name."""
        nodes = [node for name, node in self._nodes.items() if _plain_name(name) == target]
        if len(nodes) != 1 or not isinstance(nodes[0], ast.ClassDef):
            return None
        if target == cls:
            return nodes[0]
        adds_nothing = not nodes[0].decorator_list and all(
            isinstance(statement, ast.Pass) or _is_constant(statement)
            for statement in nodes[0].body
        )
        base = self._as_built(cls, cls) if _inherits_only_from(nodes[0], cls) else None
        if base is None or not adds_nothing:
            return None
        return ast.ClassDef(target, base.bases, base.keywords, base.body, base.decorator_list)

    def _redefines(self, cls: str, attributes: set[str]) -> bool:
        """Return whether a class gives another meaning to one of some attributes or methods, or
        may do so through a decorator, a keyword or a further base."""
        nodes = [node for name, node in self._nodes.items() if _plain_name(name) == cls]
        return any(
            node.decorator_list
            or node.keywords
            or len(node.bases) > 1
            or not attributes.isdisjoint(_bound_names(node))
            for node in nodes
            if isinstance(node, ast.ClassDef)
        )

    def _read(self, classes: set[str]) -> set[str]:
        """Return the attributes that some classes, their bases in this file and the functions and
        classes that these name read."""
        names = self._closure(classes | self._ancestors(classes))
        return {
            attribute
            for name, node in self._nodes.items()
            if _plain_name(name) in names
            for attribute in self._attributes[name]
        }

    def _ancestors(self, classes: set[str]) -> set[str]:
        """Return the direct and indirect bases in this file of some classes."""
        ancestors: set[str] = set()
        pending = set(classes)
        while pending:
            name = pending.pop()
            for node in (n for key, n in self._nodes.items() if _plain_name(key) == name):
                bases = self._closure(_bases(node)) if isinstance(node, ast.ClassDef) else set()
                pending |= (bases & self._classes) - ancestors
                ancestors |= bases & self._classes
        return ancestors

    def mentioned(self, changed: str) -> frozenset[str]:
        """Return the attribute names in the text of a class and of its bases in this file."""
        pending = [_plain_name(changed)]
        visited: set[str] = set()
        attributes: set[str] = set()
        while pending:
            name = pending.pop()
            if name not in visited:
                visited.add(name)
                for node in (n for key, n in self._nodes.items() if _plain_name(key) == name):
                    attributes.update(
                        n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
                    )
                    pending.extend(_bases(node) if isinstance(node, ast.ClassDef) else ())
        return frozenset(attributes)

    def _avoids_edited_methods(
        self, subclass: Definition, changed: str, edited: frozenset[str]
    ) -> bool:
        """Return whether a subclass certainly runs none of the edited methods: it has its own, or
        nothing in it names them. False for a class with further bases or one that names its base in
        its methods."""
        parent = self._nodes[changed]
        cls = _plain_name(changed)
        if not _inherits_only_from(subclass, cls) or not isinstance(parent, ast.ClassDef):
            return False
        assert isinstance(subclass, ast.ClassDef)
        own_methods = {_method_name(node) for node in subclass.body}
        inherited_edits = edited - own_methods
        if inherited_edits and not _only_names_reach(inherited_edits, parent):
            return False
        own_parts = (*subclass.body, *subclass.decorator_list)
        mentioned_words = {word for node in own_parts for word in _words(node)}
        overridden_methods = own_methods - mentioned_words
        inherited_parts = [
            part for part in parent.body if _method_name(part) not in edited | overridden_methods
        ]
        if any(cls in _names(node) for node in (*subclass.body, *inherited_parts)):
            return False
        if inherited_edits:
            mentioned_words.update(*map(_words, inherited_parts))
        return not edited & mentioned_words

    def _never_refers(self, node: Definition, cls: str, own_name: str) -> bool:
        """Return whether a definition mentions a class neither itself nor through other definitions
        and variables."""
        return cls not in self._reachable_names(own_name, through_classes=True)

    def _defines_functions(self, cls: str) -> bool:
        """Return whether a class defines a function at any depth."""
        nodes = (node for name, node in self._nodes.items() if _plain_name(name) == cls)
        return any(
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in nodes
            for child in ast.walk(node)
        )

    def _subclasses(self, parents: set[str]) -> set[str]:
        """Return the direct and indirect subclasses of some classes; a base may be written through
        variables and functions.
        """
        subclasses: set[str] = set()
        while True:
            family = parents | subclasses
            next_subclasses = {
                _plain_name(name)
                for name, node in self._nodes.items()
                if isinstance(node, ast.ClassDef) and family & self._closure(_bases(node))
            }
            if next_subclasses <= family:
                return subclasses
            subclasses |= next_subclasses - parents

    def _reachable_names(self, name: str, *, through_classes: bool) -> set[str]:
        """Return the names that a definition or variable refers to, also through other definitions
        and variables."""
        return self._closure(self._names.get(name, set()), through_classes=through_classes)

    def _closure(self, names: Iterable[str], *, through_classes: bool = False) -> set[str]:
        """Return names and the names that they refer to, directly or not; classes are followed only
        with `through_classes`.
        """
        reached: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                if through_classes or name not in self._classes:
                    pending.extend(self._names.get(name, ()))
        return reached

    def _may_modify(self, own_name: str, node: Definition, mentioned: frozenset[str]) -> bool:
        """Return whether a definition or a function that it uses may change a mentioned attribute
        of another object, or defines a class inside a function.
        """
        reachable = self._reachable_names(own_name, through_classes=False)
        helpers = [
            helper
            for name, helper in self._nodes.items()
            if _plain_name(name) in reachable and not isinstance(helper, ast.ClassDef)
        ]
        defines_class = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            isinstance(child, ast.ClassDef) for child in ast.walk(node)
        )
        return defines_class or any(
            _may_change_attribute(code, mentioned | _ALWAYS) for code in (node, *helpers)
        )


def _plain_name(name: str) -> str:
    """Return the name of a definition in the source: `f` for `f#2`."""
    return name.partition("#")[0]


def _relative(
    name: str,
    why: str,
    node: Definition,
    constructions: tuple[Construction, ...] | None = None,
) -> Relative:
    """Return the relative for a definition, with the lines that it spans."""
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    last = node.end_lineno or node.lineno
    return Relative(_plain_name(name), why, first, last, constructions)


def edited_methods(old_class: Definition | None, new_class: Definition) -> frozenset[str] | None:
    """Return the names of the methods in which two versions of a class differ; None if they also
    differ elsewhere, are no classes (the old one may be None) or define a method twice."""
    if not isinstance(old_class, ast.ClassDef) or not isinstance(new_class, ast.ClassDef):
        return None
    versions = []
    for node in (old_class, new_class):
        methods = [part for part in node.body if _method_name(part)]
        dump_by_method = {_method_name(part): ast.dump(part) for part in methods}
        if len(dump_by_method) != len(methods):
            return None
        other_parts = [part for part in node.body if part not in methods]
        versions.append(
            (
                [
                    ast.dump(part)
                    for part in (*node.bases, *node.keywords, *node.decorator_list, *other_parts)
                ],
                dump_by_method,
            )
        )
    (old_shell, old_methods), (new_shell, new_methods) = versions
    return (
        frozenset(
            name
            for name in {*old_methods, *new_methods}
            if old_methods.get(name) != new_methods.get(name)
        )
        if old_shell == new_shell
        else None
    )


def _method_name(node: ast.AST) -> str:
    """Return the name of a method definition, "" for any other node."""
    return node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""


def _read_attributes(node: ast.AST) -> Iterator[str]:
    """Yield the attributes that a node reads, also by `getattr`; those of `super()`, which no
    subclass redefines, are left out."""
    for child in ast.walk(node):
        match child:
            case ast.Attribute(value=ast.Call(func=ast.Name("super"))):
                continue
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), *_]):
                yield name


def _bound_names(cls: ast.ClassDef) -> set[str]:
    """Return the names that the body of a class binds, methods and nested classes included."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    methods = {node.name for node in cls.body if isinstance(node, definitions)}
    statements = [
        node
        for node in cls.body
        if not isinstance(node, definitions)
        and not (isinstance(node, ast.AnnAssign) and node.value is None)
    ]
    return methods | {
        name.id
        for statement in statements
        for name in ast.walk(statement)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


def _is_constant(statement: ast.stmt) -> bool:
    """Return whether a statement is a constant alone: documentation or an ellipsis."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _inherits_only_from(subclass: Definition, cls: str) -> bool:
    """Return whether a definition is a class whose only base is `cls`, without keywords."""
    return (
        isinstance(subclass, ast.ClassDef)
        and not subclass.keywords
        and [ast.unparse(base) for base in subclass.bases] == [cls]
    )


def _only_names_reach(methods: frozenset[str], cls: ast.ClassDef) -> bool:
    """Return whether only code that names these methods of a class runs them: its only base is
    `nn.Module`, which does not call them."""
    return [ast.unparse(base) for base in cls.bases] == ["nn.Module"] and all(
        map(_is_called_by_name_only, methods)
    )


def _is_called_by_name_only(method: str) -> bool:
    """Return whether only code that names a method runs it: neither Python nor `nn.Module` calls
    it."""
    return (
        method.startswith("_") and not method.startswith("__") and method not in _CALLED_BY_MODULE
    )


def _words(node: ast.AST) -> Iterator[str]:
    """Yield attributes and the words of string constants, through which a method can be named;
    documentation is left out.
    """
    documentation = {
        id(statement.value) for statement in ast.walk(node) if isinstance(statement, ast.Expr)
    }
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute):
            yield child.attr
        elif (
            isinstance(child, ast.Constant)
            and isinstance(child.value, str)
            and id(child) not in documentation
        ):
            yield from re.findall(r"\w+", child.value)


def _names(node: ast.AST) -> set[str]:
    """Return the variables that a node mentions."""
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def used_names(node: ast.AST) -> set[str]:
    """Return the variables that a node mentions, without those that are only the class of a type
    test."""
    return _names(node) - _type_test_names(node)


def _type_test_names(node: ast.AST) -> set[str]:
    """Return the names that occur only in the second argument of `isinstance` and `issubclass`: no
    object is built of them.
    """
    calls = [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    ]
    tested_types = [
        call.args[1]
        for call in calls
        if _names(call.func) & {"isinstance", "issubclass"} and len(call.args) > 1
    ]
    test_nodes = {id(n) for tested_type in tested_types for n in ast.walk(tested_type)}
    elsewhere = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in test_nodes
    }
    return {name for tested_type in tested_types for name in _names(tested_type)} - elsewhere


def _bases(node: ast.ClassDef) -> set[str]:
    """Return the names in the bases and keywords of a class statement."""
    return {
        name
        for base in (*node.bases, *(keyword.value for keyword in node.keywords))
        for name in _names(base)
    }


def _targets(statement: ast.stmt) -> Iterator[str]:
    """Yield the variables in the targets of an assignment, also those of `x.y = ...`; nothing for
    another statement."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (name for target in targets for name in _names(target))


def _may_change_attribute(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether code can change one of the attributes on an object other than its own
    `self`."""
    return any(
        _stores_attribute(child, attributes) or _changes_by_call(child, attributes)
        for child in ast.walk(node)
    )


def _stores_attribute(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether a node assigns or deletes one of the attributes, or an element of it, on an
    object other than `self`.
    """
    if isinstance(node, ast.Attribute):
        is_dictionary = node.attr in ("__dict__", "_modules", "_parameters", "_buffers")
        return (is_dictionary or not isinstance(node.ctx, ast.Load)) and _is_foreign_attribute(
            node, attributes
        )
    return (
        isinstance(node, ast.Subscript)
        and not isinstance(node.ctx, ast.Load)
        and _is_foreign_attribute(node.value, attributes)
    )


def _changes_by_call(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether a node is a call that can change one of the attributes of an object other than
    `self`."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = (
        function.id
        if isinstance(function, ast.Name)
        else function.attr
        if isinstance(function, ast.Attribute)
        else ""
    )
    if name in _SETTERS:
        return _sets_by_name(node, attributes)
    if name in _WRAPPING or name == "vars":
        return True
    if not isinstance(function, ast.Attribute):
        return False
    registers_hook = name.startswith("register_") and name.endswith("hook")
    if name in _REGISTERING or registers_hook:
        return not _is_self(function.value)
    return name in _CHANGING and _is_foreign_attribute(function.value, attributes)


def _sets_by_name(call: ast.Call, attributes: frozenset[str]) -> bool:
    """Return whether `setattr(object, name, ...)` can set one of the attributes of an object other
    than `self`."""
    if len(call.args) < 2 or _is_self(call.args[0]):
        return False
    name = call.args[1]
    return not isinstance(name, ast.Constant) or name.value in attributes


def _is_foreign_attribute(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether a node is one of the attributes of an object other than `self`."""
    return isinstance(node, ast.Attribute) and node.attr in attributes and not _is_self(node.value)


def _is_self(node: ast.AST) -> bool:
    """Return whether a node is the name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"
