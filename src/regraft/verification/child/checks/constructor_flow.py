"""Follow, in the text of constructors, which parameters and fields of configurations decide what an
attribute of `self` is. Nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regraft.verification.child.checks.arguments_in_source import keyword_lookups
from regraft.verification.names_and_scopes import name_of

# Methods that add their arguments to the object that they are called on.
_ADDING = frozenset(("append", "extend", "insert", "add", "update", "setdefault"))
# Methods of modules, and functions, that make an attribute whose name is a constant argument.
_REGISTERING = frozenset(
    ("register_buffer", "register_parameter", "register_module", "add_module", "setattr")
)
# Expressions that compute with what they read and call nothing.
_PLAIN = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


@dataclass(slots=True)
class Flow:
    """The expressions that decide what the names in a constructor stand for.

    `sources` has, by the name of a local variable or, as `self.name`, of an attribute, the
    expressions that are assigned to it, added to it or passed to it, and the tests and iterables of
    the `if` statements and loops around these. `values` are the ids of those that a statement
    assigns to a single attribute.
    """

    sources: dict[str, list[ast.expr]] = field(default_factory=dict)
    values: set[int] = field(default_factory=set)

    def add_constructor(self, cls: ast.ClassDef, methods: Mapping[str, ast.FunctionDef]) -> None:
        """Add the sources of all names that the constructor of a class assigns, and those of
        `methods` that it calls on `self`, directly or through others; the parameters of such a
        method get the arguments of its calls. Nothing for a class without a constructor."""
        constructor = constructor_of(cls)
        pending = [constructor] if constructor is not None else []
        visited: set[str] = set()
        while pending:
            function = pending.pop()
            self._add_statements(function.body, ())
            for call in ast.walk(function):
                match call:
                    case ast.Call(func=ast.Attribute(value=ast.Name("self"), attr=name)) if (
                        name in methods
                    ):
                        self._add_arguments(methods[name], call)
                        pending += [methods[name]] if name not in visited else []
                        visited.add(name)

    def _add_arguments(self, method: ast.FunctionDef, call: ast.Call) -> None:
        """Append the expression of each argument of a call to the sources of the parameter that it
        is for, by the parameter's name in `method`; none for an argument `**kwargs`."""
        parameters = [argument.arg for argument in (*method.args.posonlyargs, *method.args.args)]
        pairs = [
            *zip(parameters[1:], call.args, strict=False),
            *((keyword.arg, keyword.value) for keyword in call.keywords),
        ]
        for name, value in pairs:
            if name is not None:
                self.sources.setdefault(name, []).append(value)

    def _add_statements(
        self, statements: Iterable[ast.stmt], controls: tuple[ast.expr, ...]
    ) -> None:
        """Add the sources of the names that statements below the tests and iterables `controls`
        assign. Nested functions and classes are left out."""
        for statement in statements:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            self._add_statement(statement, controls)
            own_controls = (*controls, *_controls_of(statement))
            for name in ("body", "orelse", "finalbody"):
                self._add_statements(getattr(statement, name, ()), own_controls)
            for handler in getattr(statement, "handlers", ()):
                self._add_statements(handler.body, own_controls)

    def _add_statement(self, statement: ast.stmt, controls: tuple[ast.expr, ...]) -> None:
        """Add the values that a statement assigns, adds or passes to names itself, not in its body,
        and the tests and iterables `controls` around it, to the sources of these names."""
        match statement:
            case ast.Assign(targets=targets, value=value):
                if len(targets) == 1 and key_of(targets[0]).startswith("self."):
                    self.values.add(id(value))
                for target in targets:
                    self._assign(target, (value, *controls))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, (value, *controls))
            case ast.AugAssign(target=target, value=value):
                self._assign(target, (value, *controls))
            case ast.For(target=target, iter=iterable):
                self._assign(target, (iterable, *controls))
            case ast.With(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, (item.context_expr, *controls))
            case ast.Expr(value=ast.Call() as call):
                self._add_call(call, controls)

    def _assign(self, target: ast.expr, values: tuple[ast.expr, ...]) -> None:
        """Add values to the sources of all names in the target of an assignment; that of an item
        or a part of an object counts as one of the object."""
        match target:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self._assign(element, values)
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                self._assign(inner, values)
            case ast.Attribute(value=ast.Attribute() as inner):
                self._assign(inner, values)
            case _:
                if key := key_of(target):
                    self.sources.setdefault(key, []).extend(values)

    def _add_call(self, call: ast.Call, controls: tuple[ast.expr, ...]) -> None:
        """Add the arguments of a call that adds to an object, or registers an attribute, to the
        sources of that object or attribute."""
        arguments = (*call.args, *(keyword.value for keyword in call.keywords))
        method = name_of(call.func)
        names = [
            argument.value
            for argument in arguments
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        if method in _REGISTERING and names:
            self.sources.setdefault(f"self.{names[0]}", []).extend((*arguments, *controls))
        elif method in _ADDING and isinstance(call.func, ast.Attribute):
            self._assign(call.func.value, (*arguments, *controls))

    def expressions(self, key: str, *, through_objects: bool) -> Iterator[ast.expr]:
        """Yield each expression that decides, directly or through local variables and other
        attributes, what a name stands for; without `through_objects` only the values that are
        assigned to it, without what these read and what decides whether they are assigned."""
        if not through_objects:
            yield from (source for source in self.sources.get(key, ()) if id(source) in self.values)
            return
        pending, visited = [key], {key}
        while pending:
            for source in self.sources.get(pending.pop(), ()):
                yield source
                inner_keys = {key_of(node) for node in ast.walk(source)} - visited - {""}
                visited |= inner_keys
                pending += sorted(inner_keys)


def key_of(node: ast.AST) -> str:
    """Return the name of a local variable, `self.name` for an attribute of `self`, and "" for other
    nodes."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name("self"), attr=name):
            return f"self.{name}"
    return ""


def _controls_of(statement: ast.stmt) -> tuple[ast.expr, ...]:
    """Return the expression that decides whether, or how often, the body of a statement runs, in a
    tuple: the test of an `if` or `while`, or what a `for` runs over; () for other statements."""
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return (test,)
        case ast.For(iter=iterable):
            return (iterable,)
    return ()


def is_plain(expression: ast.expr) -> bool:
    """Return whether an expression computes with names, attributes and constants and makes no
    object: it calls nothing and contains no item, list, function, comprehension or mapping."""
    return all(isinstance(node, _PLAIN) for node in ast.walk(expression))


def keyword_defaults(function: ast.FunctionDef) -> dict[str, Any]:
    """Return by name the defaults of the options that a constructor reads from its `**kwargs` by
    `kwargs.get("name", constant)` or `kwargs.pop("name", constant)`; a missing default is None."""
    if function.args.kwarg is None:
        return {}
    defaults: dict[str, Any] = {}
    for name, default in keyword_lookups(function, function.args.kwarg.arg):
        try:
            defaults[name] = None if default is None else ast.literal_eval(default)
        except ValueError:
            continue  # an expression, whose value nothing here can tell
    return defaults


def base_classes(node: ast.AST | None, tree: ast.Module) -> list[ast.ClassDef]:
    """Return the classes of the file that a class inherits from, directly or through others, each
    once, without the class itself; [] for a function or None."""
    classes_by_name = {cls.name: cls for cls in tree.body if isinstance(cls, ast.ClassDef)}
    bases: list[ast.ClassDef] = []
    pending = [node]
    while pending:
        current = pending.pop(0)
        for base in current.bases if isinstance(current, ast.ClassDef) else ():
            base_class = classes_by_name.get(name_of(base))
            if base_class is not None and base_class is not node and base_class not in bases:
                bases.append(base_class)
                pending.append(base_class)
    return bases


def constructor_of(node: ast.AST | None) -> ast.FunctionDef | None:
    """Return the `__init__` that a class defines itself; None where it has none."""
    body = node.body if isinstance(node, ast.ClassDef) else ()
    return next(
        (
            method
            for method in body
            if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        ),
        None,
    )


def flow_of(classes: Iterable[ast.AST | None]) -> Flow:
    """Return the flow of the constructors that some classes define themselves, taken together; of
    methods with the same name, the first class's is followed."""
    definitions = [cls for cls in classes if isinstance(cls, ast.ClassDef)]
    methods = {
        method.name: method
        for cls in reversed(definitions)
        for method in cls.body
        if isinstance(method, ast.FunctionDef) and method.name != "__init__"
    }
    flow = Flow()
    for cls in definitions:
        flow.add_constructor(cls, methods)
    return flow


def all_keyword_defaults(classes: Iterable[ast.AST | None]) -> Mapping[str, Any]:
    """Return `keyword_defaults` of the constructors that some classes define themselves; those of
    an earlier class win."""
    defaults: dict[str, Any] = {}
    for cls in classes:
        constructor = constructor_of(cls)
        if constructor is not None:
            defaults = {**keyword_defaults(constructor), **defaults}
    return defaults
