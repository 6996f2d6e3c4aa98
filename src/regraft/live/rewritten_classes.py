"""Classes with rewritten methods: subclasses of the originals that carry their names.

An instance gets such a class in place of its own (`instance.__class__ = ...`), so its parameters,
its buffers, its hooks and every reference to it stay. The class keeps the original's name, and a
copy of an instance has the same class. A pickle holds the original class; loading the pickle warns
that nothing of the instance is rewritten.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from regraft.live.changed_definitions import Name, definitions
from regraft.live.copied_instances import copy_instance, deep_copy_instance, reduce_instance
from regraft.live.original_classes import ORIGINAL, is_parametrized, original_class


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
        namespace.setdefault("__deepcopy__", deep_copy_instance)
    return type(cls)(cls.__name__, bases, namespace)


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
        body = [
            node
            for (class_name, name), node in self.nodes.items()
            if class_name == owner and name in names and isinstance(node, ast.stmt)
        ]
        original_cls = self.globals[owner]
        class_node = ast.ClassDef(owner, [], [], body, [])
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
        "__reduce_ex__": reduce_instance,
        ORIGINAL: cls,
        **methods,
    }
    if not hasattr(cls, "__copy__"):
        namespace["__copy__"] = copy_instance
    if not hasattr(cls, "__deepcopy__"):
        namespace["__deepcopy__"] = deep_copy_instance
    return type(cls)(cls.__name__, (cls,), namespace)
