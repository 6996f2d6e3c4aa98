"""Find in the source of a file the attributes of a class that code assigns after construction."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from regraft.verification.bound_and_read_names import mentioned_names
from regraft.verification.child.checks.attribute_variants import read_attributes
from regraft.verification.names_and_scopes import name_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})
# objects that have attributes of the names of modules' attributes, and are no modules
_NO_MODULES = ("config", "cfg", "ctx")


@dataclass(frozen=True, slots=True)
class LateStore:
    """The assignments of an attribute after construction.

    `function` is the name of the function that makes the first of them, `independent` tells that
    each gives a value of its own to the attribute: no other attribute that matters changes with it.
    `initial` is the repr of the constant with which instances start, "" where it is none.
    """

    function: str
    independent: bool
    initial: str


@dataclass(frozen=True, slots=True)
class _Store:
    """An assignment of a value to an attribute of an object, `attribute` is "" where its name is
    computed."""

    owner: ast.expr
    attribute: str
    value: ast.expr


@dataclass(frozen=True, slots=True)
class _Code:
    """A function of a file with the class whose method it is, "" for none."""

    node: Function
    cls: str

    @property
    def receiver(self) -> str:
        """Return the name of the parameter for the instance or class, "" for a plain function."""
        arguments = [*self.node.args.posonlyargs, *self.node.args.args]
        is_static = any(name_of(entry) == "staticmethod" for entry in self.node.decorator_list)
        return arguments[0].arg if self.cls and arguments and not is_static else ""


def late_stores(
    tree: ast.Module, definition: str, attributes: frozenset[str], relatives: frozenset[str]
) -> dict[str, LateStore]:
    """Return by name those of some attributes of a class that code of its file assigns after
    construction: methods of the class and of its family, and foreign code. Return {} where the file
    has no such class.

    Of attributes that are properties, those that they read count. Constructors of the family and of
    `relatives`, classes that have to run, are left out, with the private methods that only these
    call. Stores on configurations are left out, too.
    """
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    if definition not in classes:
        return {}
    functions = tuple(_functions(tree.body, ""))
    family = _family(definition, classes)
    names = attributes | _read_by_properties(functions, family, attributes)
    constructing = _methods_of_construction(functions, family | relatives)
    results: dict[str, LateStore] = {}
    for code in functions:
        is_constructor = code.cls in family | relatives and code.node.name in constructing
        stores = [
            store
            for store in _stores(code.node)
            if not is_constructor and _may_be_on_family(store, code, family, classes)
        ]
        for name, independent in _stored_names(stores, code, names):
            earlier = results.get(name)
            results[name] = LateStore(
                earlier.function if earlier else code.node.name,
                independent and (earlier is None or earlier.independent),
                _initial_value(name, functions, constructing, classes, family),
            )
    return results


def _functions(body: Iterable[ast.AST], cls: str) -> Iterator[_Code]:
    """Yield the functions of a body that are in no other function, also inside classes, branches
    and loops, each with its innermost class, `cls` at the top."""
    for node in body:
        if isinstance(node, Function):
            yield _Code(node, cls)
        else:
            inner_cls = node.name if isinstance(node, ast.ClassDef) else cls
            statements = (
                child
                for child in ast.iter_child_nodes(node)
                if isinstance(child, ast.stmt | ast.ExceptHandler)
            )
            yield from _functions(statements, inner_cls)


def _family(definition: str, classes: Mapping[str, ast.ClassDef]) -> frozenset[str]:
    """Return the classes whose methods instances of a class or of its subclasses have: the class
    itself, its subclasses in the file, and all bases in the file of these."""
    bases = {name: {name_of(base) for base in node.bases} for name, node in classes.items()}
    subclasses = {definition}
    while added := {name for name in bases if bases[name] & subclasses} - subclasses:
        subclasses |= added
    family = set(subclasses)
    while added := {base for name in family for base in bases[name] if base in classes} - family:
        family |= added
    return frozenset(family)


def _read_by_properties(
    functions: Iterable[_Code], family: frozenset[str], attributes: frozenset[str]
) -> frozenset[str]:
    """Return the attributes of `self` that decorated methods of a family of classes read, if the
    methods have the name of one of some attributes."""
    return frozenset(
        name
        for code in functions
        if code.cls in family and code.node.name in attributes and code.node.decorator_list
        for name in read_attributes(
            node for node in ast.walk(code.node) if isinstance(node, ast.expr)
        )
    )


def _methods_of_construction(functions: Iterable[_Code], classes: frozenset[str]) -> frozenset[str]:
    """Return the names of the methods of some classes that run during construction only:
    constructors, and methods with one leading underscore that only these mention."""
    users_by_name: dict[str, set[tuple[str, str]]] = {}
    for code in functions:
        for name in _mentioned_attributes(code.node) - {code.node.name}:
            users_by_name.setdefault(name, set()).add((code.cls, code.node.name))
    private_names = {
        code.node.name
        for code in functions
        if code.cls in classes and re.match("_(?!_)", code.node.name)
    }
    constructing = set(_CONSTRUCTORS)
    while added := {
        name
        for name in private_names - constructing
        if (users := users_by_name.get(name))
        and all(cls in classes and user in constructing for cls, user in users)
    }:
        constructing |= added
    return frozenset(constructing)


def _mentioned_attributes(function: ast.AST) -> set[str]:
    """Return the attribute names and all strings in a function, by both of which it may call a
    method."""
    nodes = list(ast.walk(function))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} | {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _stores(function: ast.AST) -> Iterator[_Store]:
    """Yield the assignments of attributes in a function, by `=`, `+=` or a loop, to `__dict__` or
    `vars()`, and by `setattr`, nested functions included; a computed name and a `__dict__.update`
    are stores of the attribute ""."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets, value):
                for target in targets:
                    yield from _stores_of_target(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _stores_of_target(target, value)
            case ast.AugAssign(target=target, value=value):
                yield from _stores_of_target(target, value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from _stores_of_target(target, value)
            case ast.Call(func, [owner, name, value]) if name_of(func) in (
                "setattr",
                "__setattr__",
            ):
                yield _Store(owner, _constant_string(name), value)
            case ast.Call(ast.Attribute(ast.Attribute(owner, "__dict__"), "update")):
                yield _Store(owner, "", node)


def _stores_of_target(target: ast.expr, value: ast.expr) -> Iterator[_Store]:
    """Yield the assignments of attributes among the targets of an assignment of a value; targets in
    a tuple or list get their own part of the value where it is a tuple or list of equal length,
    else all of it. Plain variables are skipped."""
    match target:
        case ast.Tuple(elts) | ast.List(elts):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            if len(values) != len(elts):
                values = [value] * len(elts)
            for element, part in zip(elts, values, strict=True):
                yield from _stores_of_target(element, part)
        case ast.Starred(element):
            yield from _stores_of_target(element, value)
        case ast.Attribute(owner, name):
            yield _Store(owner, name, value)
        case ast.Subscript(ast.Attribute(owner, "__dict__"), name) | ast.Subscript(
            ast.Call(ast.Name("vars"), [owner]), name
        ):
            yield _Store(owner, _constant_string(name), value)


def _constant_string(node: ast.expr) -> str:
    """Return the string that an expression is, "" for any other expression."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _may_be_on_family(
    store: _Store, code: _Code, family: frozenset[str], classes: Mapping[str, ast.ClassDef]
) -> bool:
    """Return whether a store may be on an instance of a family of classes, or on one of these
    classes.

    A receiver or a class of the file decides by its class. Any other owner counts unless its name
    ends like that of a configuration or context; for a computed name it does not count.
    """
    owner = store.owner
    match owner:
        case ast.Call(ast.Name("type"), [inner]) | ast.Attribute(inner, "__class__"):
            owner = inner
    if isinstance(owner, ast.Name) and owner.id == code.receiver:
        return code.cls in family
    if isinstance(owner, ast.Name) and owner.id in classes:
        return owner.id in family
    return bool(store.attribute) and not name_of(owner).endswith(_NO_MODULES)


def _stored_names(
    stores: list[_Store], code: _Code, names: frozenset[str]
) -> Iterator[tuple[str, bool]]:
    """Yield a pair of a name and a flag for each assignment in a function to an attribute among
    `names`. The flag tells that it and the assignments to each other such attribute depend on
    parameters, and on no common one. A name may come several times. An assignment with a computed
    name yields all names, with True."""
    relevant = [store for store in stores if store.attribute in names]
    origins = [_origins(store.value, code) for store in relevant]
    for store, own in zip(relevant, origins, strict=True):
        other_origins = (
            origin
            for other, origin in zip(relevant, origins, strict=True)
            if other.attribute != store.attribute
        )
        is_independent = all(own and origin and own.isdisjoint(origin) for origin in other_origins)
        yield store.attribute, is_independent
    if any(not store.attribute for store in stores):
        yield from ((name, True) for name in sorted(names))


def _assignments(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of the assignments and loops in a function, with what it gets."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets, assigned):
                yield from ((target, assigned) for target in targets)
            case ast.For(target=target, iter=assigned) | ast.NamedExpr(target, assigned):
                yield target, assigned


def _origins(value: ast.expr, code: _Code) -> frozenset[str]:
    """Return the parameters of a function, without its receiver, *args and **kwargs, that a value
    depends on directly or through variables."""
    names_by_variable: dict[str, set[str]] = {}
    for target, assigned in _assignments(code.node):
        for variable in mentioned_names(target):
            names_by_variable.setdefault(variable, set()).update(mentioned_names(assigned))
    reached: set[str] = set()
    pending = set(mentioned_names(value))
    while pending:
        name = pending.pop()
        reached.add(name)
        pending |= names_by_variable.get(name, set()) - reached
    arguments = code.node.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return frozenset({argument.arg for argument in parameters} - {code.receiver}) & reached


def _initial_value(
    attribute: str,
    functions: Iterable[_Code],
    constructing: frozenset[str],
    classes: Mapping[str, ast.ClassDef],
    family: frozenset[str],
) -> str:
    """Return the repr of the constant that constructors and bodies of a family of classes assign to
    an attribute; "" where there is none, more than one value, or a value that is no constant."""
    values = [
        store.value
        for code in functions
        if code.cls in family and code.node.name in constructing
        for store in _stores(code.node)
        if store.attribute in (attribute, "") and name_of(store.owner) == code.receiver
    ]
    values += [
        value
        for name in family
        for statement in classes[name].body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and (value := statement.value) is not None
        and attribute in {name_of(target) for target in _targets(statement)}
    ]
    texts = {_constant_text(value) for value in values}
    return texts.pop() if len(texts) == 1 else ""


def _constant_text(value: ast.expr) -> str:
    """Return the repr of the value of a constant expression, "" for any other expression."""
    try:
        return repr(ast.literal_eval(value))
    except (ValueError, TypeError):
        return ""


def _targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """Return the targets of an assignment."""
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]
