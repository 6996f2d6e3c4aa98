"""Classes with rewritten methods: subclasses of the originals that carry their names.

An instance gets such a class in place of its own (`instance.__class__ = ...`), so its parameters,
its buffers, its hooks and every reference to it stay. The class keeps the original's name, and a
copy of an instance has the same class. A pickle holds the original class; loading the pickle warns
that nothing of the instance is rewritten.
"""

from __future__ import annotations

import ast
import copy
import copyreg
import itertools
import linecache
import sys
import types
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

ORIGINAL = "__regraft_original__"
Name = tuple[str, str]  # (class, method), or ("", function)


def original_class(cls: type) -> type:
    """Return the class that a rewritten class stands for, and any other class itself."""
    stood_for: type = cls.__dict__.get(ORIGINAL, cls)
    return stood_for


def restore_class(cls: type) -> type:
    """Return the class without rewritten methods: the original of a rewritten class; for a class
    that a library has derived from a rewritten one, a new class over the original; any other class
    itself."""
    if ORIGINAL in vars(cls) or not any(ORIGINAL in vars(base) for base in cls.__mro__):
        return original_class(cls)
    return rebase_class(cls, tuple(restore_class(base) for base in cls.__bases__))


def restore(model: Any) -> None:
    """Give every module of the model its original class back, in place."""
    for module in model.modules():
        cls = restore_class(type(module))
        if cls is not type(module):
            module.__class__ = cls


def rebase_class(cls: type, bases: tuple[type, ...]) -> type:
    """Return a new class with the name and namespace of `cls` over other bases; a parametrized one
    gets a `__deepcopy__` where no base has one."""
    namespace = {
        name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")
    }
    if is_parametrized(cls) and not any(hasattr(base, "__deepcopy__") for base in bases):
        namespace.setdefault("__deepcopy__", _deep_copy)
    return type(cls)(cls.__name__, bases, namespace)


def is_parametrized(cls: type) -> bool:
    """Return whether `torch.nn.utils.parametrize` has put the class on an instance and will take it
    off again."""
    return cls.__module__ == "torch.nn.utils.parametrize" and len(cls.__bases__) == 1


def definitions(tree: ast.Module) -> dict[Name, ast.AST]:
    """Return the functions at the top level of a file and the methods of the classes there, by
    (class, name); those that are defined twice are left out."""
    node_by_name: dict[Name, ast.AST] = {}
    duplicates: set[Name] = set()
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                name = (owner, member.name)
                duplicates.update({name} & node_by_name.keys())
                node_by_name[name] = member
    return {name: node for name, node in node_by_name.items() if name not in duplicates}


def changed_definitions(before: ast.Module, after: ast.Module) -> set[Name] | None:
    """Return the names of the functions and methods whose code differs; None if anything but their
    bodies and the imports differs."""
    outlines = [ast.unparse(_without_bodies(tree)) for tree in (before, after)]
    if outlines[0] != outlines[1]:
        return None
    nodes_before, nodes_after = definitions(before), definitions(after)
    return {
        name
        for name, node in nodes_after.items()
        if name in nodes_before and ast.dump(node) != ast.dump(nodes_before[name])
    }


def _without_bodies(tree: ast.Module) -> ast.Module:
    """Return a copy of the file without its imports, and with `pass` as the body of each function
    and method."""

    class BodyStripper(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            """Return the function with `pass` as its body."""
            node.body = [ast.Pass()]
            return node

        visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

        def visit_Import(self, node: ast.Import) -> None:
            """Return None, which removes the import."""
            return None

        visit_ImportFrom = visit_Import  # type: ignore[assignment]

    tree = copy.deepcopy(tree)
    statements = [
        statement
        for statement in tree.body
        if not isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    body = [
        (
            BodyStripper().visit(statement)
            if isinstance(statement, ast.ClassDef | ast.FunctionDef)
            else statement
        )
        for statement in statements
    ]
    return ast.Module(body, [])


def definitions_reaching(tree: ast.Module, functions: Collection[str]) -> set[Name]:
    """Return the functions and methods of the file that name one of `functions`, also through other
    functions."""
    names_by_definition = {
        name: {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
        for name, node in definitions(tree).items()
    }
    callers: set[Name] = set()
    targets = set(functions)
    while True:
        new_callers = {
            name
            for name, used_names in names_by_definition.items()
            if name not in callers and not targets.isdisjoint(used_names)
        }
        if not new_callers:
            return callers
        callers |= new_callers
        targets |= {function for owner, function in new_callers if not owner}


_NUMBERS = itertools.count(1)


class RewrittenMethods:
    """The rewritten methods of one file, in a namespace of their own over that of the original
    module.

    text        the rewritten file, whose lines appear in tracebacks
    imports     the import statements that the original file does not have
    methods     the definitions to execute anew: the changed ones, and all that call a changed
                function
    shown_name  the file name that tracebacks show
    globals     the namespace in which the definitions run
    nodes       the definitions of the rewritten file by name
    future      the imports from `__future__` of the rewritten file
    """

    def __init__(
        self,
        module: types.ModuleType,
        file: str,
        text: bytes,
        imports: Collection[ast.stmt],
        methods: Collection[Name],
    ) -> None:
        """Execute the new imports and the definitions in a copy of the module's namespace, and
        collect the rewritten methods by class and name."""
        self.shown_name = f"<regraft {file}>"
        _show_in_tracebacks(self.shown_name, text.decode())
        self.globals = _copied_namespace(module)
        tree = ast.parse(text)
        self.nodes = definitions(tree)
        self.future = [
            statement
            for statement in tree.body
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        ]
        self._execute(list(imports))
        functions = [self.nodes[name] for name in methods if not name[0]]
        self._execute([node for node in functions if isinstance(node, ast.stmt)])
        names_by_owner: dict[str, set[str]] = {}
        for owner, name in methods:
            if owner:
                names_by_owner.setdefault(owner, set()).add(name)
        self.methods: dict[str, dict[str, Any]] = {
            owner: dict(self._methods(owner, names)) for owner, names in names_by_owner.items()
        }

    def _execute(self, body: list[ast.stmt]) -> None:
        """Run statements in the namespace, under the `__future__` imports of the rewritten file."""
        exec(
            compile(
                ast.Module([*self.future, *body], []), self.shown_name, "exec", dont_inherit=True
            ),
            self.globals,
        )

    def _methods(self, owner: str, names: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Yield the named methods of a class of the file by name, decorated as in their class,
        which is executed anew with these alone; `super()` in them is that of the original class."""
        nodes = [
            node
            for (class_name, name), node in self.nodes.items()
            if class_name == owner and name in names
        ]
        original_cls = self.globals[owner]
        class_node = ast.ClassDef(
            owner, [], [], [node for node in nodes if isinstance(node, ast.stmt)], []
        )
        if "type_params" in ast.ClassDef._fields:
            class_node.type_params = []  # type: ignore[attr-defined]
        self._execute([ast.fix_missing_locations(class_node)])
        rewritten_class = self.globals[owner]
        self.globals[owner] = original_cls
        for name in names:
            for function in functions_of(vars(rewritten_class)[name]):
                _bind_super(function, original_cls)
            yield name, vars(rewritten_class)[name]


def _show_in_tracebacks(name: str, source: str) -> None:
    """Enter a source text in `linecache`, so that tracebacks show its lines under the file name
    `name`."""
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)


def _copied_namespace(module: types.ModuleType) -> dict[str, Any]:
    """Return the namespace of a new module, entered in `sys.modules`, with all names of `module`.
    torch.compile looks global names up by their module's name, so the namespace needs a module of
    its own."""
    namespace_module = types.ModuleType(f"{module.__name__}__regraft{next(_NUMBERS)}")
    namespace_module.__dict__.update({**vars(module), "__name__": namespace_module.__name__})
    sys.modules[namespace_module.__name__] = namespace_module
    return vars(namespace_module)


def _bind_super(function: types.FunctionType, cls: type) -> None:
    """Make `super()` in a function start at `cls`, by its closure's cell `__class__`; a function
    without that cell stays."""
    cells = function.__closure__ or ()
    for variable, cell in zip(function.__code__.co_freevars, cells, strict=True):
        if variable == "__class__":
            cell.cell_contents = cls


def functions_of(method: object) -> Iterator[types.FunctionType]:
    """Yield the plain functions in a method, below `staticmethod`, `property`, `__wrapped__` and in
    closures."""
    pending, visited_ids = [method], set()
    while pending:
        candidate = pending.pop()
        if candidate is None or id(candidate) in visited_ids:
            continue
        visited_ids.add(id(candidate))
        if isinstance(candidate, types.FunctionType):
            yield candidate
            pending += [
                cell.cell_contents for cell in candidate.__closure__ or () if _holds_function(cell)
            ]
        pending += [
            getattr(candidate, name, None)
            for name in ("__wrapped__", "__func__", "fget", "fset", "fdel")
        ]


def _holds_function(cell: types.CellType) -> bool:
    """Return whether a closure's cell holds a plain function; an empty cell holds none."""
    try:
        return isinstance(cell.cell_contents, types.FunctionType)
    except ValueError:  # the cell is empty
        return False


def make_subclass(cls: type, methods: Mapping[str, Any]) -> type:
    """Return a new subclass of `cls` with these methods and the name of `cls`. Copies of its
    instances keep the subclass; pickles of them have the original class and a notice."""
    namespace = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__reduce_ex__": _reduce,
        ORIGINAL: cls,
        **methods,
    }
    if not hasattr(cls, "__copy__"):
        namespace["__copy__"] = _shallow_copy
    if not hasattr(cls, "__deepcopy__"):
        namespace["__deepcopy__"] = _deep_copy
    return type(cls)(cls.__name__, (cls,), namespace)


class _Notice:
    """A pickle's stand-in for a warning: loading the pickle calls `warnings.warn` and gives None in
    its place."""

    TEXT = (
        "the model was pickled after regraft.optimize(model), and a pickle holds the original"
        " classes: call regraft.optimize on the loaded model to rewrite it again"
    )

    def __reduce__(self) -> Any:
        """Return what the pickle calls when it is loaded: `warnings.warn` with the text."""
        return warnings.warn, (self.TEXT, UserWarning)


_NOTICE = _Notice()  # a pickler writes one object once, for however many modules


def _reduce(self: Any, protocol: Any) -> Any:
    """Reduce an instance for a pickle with its original class, which loads anywhere, and a notice
    that says so."""
    cls = type(self)
    rewritten = next(base for base in cls.__mro__ if ORIGINAL in vars(base))
    stands_for: Any = original_class(rewritten)
    if cls is not rewritten:  # the class that a library has put above the rewritten one decides
        return stands_for.__reduce_ex__(self, protocol)
    function, arguments, *state_parts = stands_for.__reduce_ex__(self, protocol)
    reconstructor: Any = copyreg._reconstructor  # type: ignore[attr-defined]
    # copyreg.__newobj__ wants the class of the instance; _reconstructor ignores its last argument
    # for plain objects
    if getattr(function, "__name__", "") == "__newobj__" or (
        function is reconstructor and arguments[1] is object
    ):
        return (reconstructor, (stands_for, object, _NOTICE), *state_parts)
    return (
        function,
        tuple(stands_for if argument is cls else argument for argument in arguments),
        *state_parts,
    )


def _shallow_copy(self: Any) -> Any:
    """Return a shallow copy of an instance, with the same rewritten class; used as `__copy__`."""
    state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
    cls: Any = type(self)
    return _restore_state(cls.__new__(cls), self.__dict__ if state is None else state)


def _deep_copy(self: Any, memo: dict[int, Any]) -> Any:
    """Return a deep copy of an instance, with the same rewritten class; used as `__deepcopy__`."""
    cls: Any = type(self)
    copied = cls.__new__(cls)
    memo[id(self)] = copied
    state = (
        self.__getstate__()
        if hasattr(cls, "__getstate__") and not is_parametrized(cls)
        else self.__dict__
    )
    return _restore_state(copied, copy.deepcopy(self.__dict__ if state is None else state, memo))


def _restore_state(copied: Any, state: Any) -> Any:
    """Give a new instance its state, by its `__setstate__` where there is one, and return the
    instance."""
    if hasattr(copied, "__setstate__"):
        copied.__setstate__(state)
    else:
        copied.__dict__.update(state)
    return copied
