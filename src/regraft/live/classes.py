"""Classes with rewritten methods: subclasses of the originals that carry their names.

An instance gets such a class in place of its own (`instance.__class__ = ...`): parameters, buffers, hooks and every
reference to it stay. The class keeps the original's name; a copy of an instance has it, too. A pickle holds the
original class, and loading it warns that nothing of it is rewritten.
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


def original(cls: type) -> type:
    """The class that a rewritten one stands for; any other class itself."""
    found: type = cls.__dict__.get(ORIGINAL, cls)
    return found


def restored(cls: type) -> type:
    """The class without rewritten methods, also where a library has put a class of its own above a rewritten one."""
    if ORIGINAL in vars(cls) or not any(ORIGINAL in vars(base) for base in cls.__mro__):
        return original(cls)
    return rebased(cls, tuple(restored(base) for base in cls.__bases__))


def rebased(cls: type, bases: tuple[type, ...]) -> type:
    """A class with the same namespace over other bases."""
    namespace = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    if is_parametrized(cls) and not any(hasattr(base, "__deepcopy__") for base in bases):
        namespace.setdefault("__deepcopy__", _deep_copy)
    return type(cls)(cls.__name__, bases, namespace)


def is_parametrized(cls: type) -> bool:
    """Whether `torch.nn.utils.parametrize` has put this class on an instance, to take it off again."""
    return cls.__module__ == "torch.nn.utils.parametrize" and len(cls.__bases__) == 1


def definitions(tree: ast.Module) -> dict[Name, ast.AST]:
    """Functions at the top level, and methods of classes there, that are defined once."""
    found: dict[Name, ast.AST] = {}
    twice: set[Name] = set()
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        for one in members:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                name = (owner, one.name)
                twice.update({name} & found.keys())
                found[name] = one
    return {name: node for name, node in found.items() if name not in twice}


def changed(before: ast.Module, after: ast.Module) -> set[Name] | None:
    """Which functions and methods differ; None when anything else does, imports aside."""
    rest = [ast.unparse(_without_bodies(tree)) for tree in (before, after)]
    if rest[0] != rest[1]:
        return None
    old, new = definitions(before), definitions(after)
    return {name for name, node in new.items() if name in old and ast.dump(node) != ast.dump(old[name])}


def _without_bodies(tree: ast.Module) -> ast.Module:
    """A file without its imports and the bodies of its functions."""

    class Strip(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            node.body = [ast.Pass()]
            return node

        visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

        def visit_Import(self, node: ast.Import) -> None:
            return None

        visit_ImportFrom = visit_Import  # type: ignore[assignment]

    tree = copy.deepcopy(tree)
    kept = [one for one in tree.body if not isinstance(one, ast.Import | ast.ImportFrom)]
    body = [Strip().visit(one) if isinstance(one, ast.ClassDef | ast.FunctionDef) else one for one in kept]
    return ast.Module(body, [])


def reaching(tree: ast.Module, functions: Collection[str]) -> set[Name]:
    """Functions and methods of a file that name one of the functions, or one that does."""
    names = {
        name: {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        for name, node in definitions(tree).items()
    }
    found: set[Name] = set()
    wanted = set(functions)
    while True:
        more = {name for name, used in names.items() if name not in found and not wanted.isdisjoint(used)}
        if not more:
            return found
        found |= more
        wanted |= {function for owner, function in more if not owner}


_NUMBERS = itertools.count(1)


class Rewritten:
    """The rewritten methods of one file, in a namespace of their own over that of the original module.

    text      the rewritten file, whose lines tracebacks show
    imports   statements that the original does not have
    methods   what to make anew: everything that changed, and everything that calls a function that did
    """

    def __init__(
        self,
        module: types.ModuleType,
        file: str,
        text: bytes,
        imports: Collection[ast.stmt],
        methods: Collection[Name],
    ) -> None:
        self.shown = f"<regraft {file}>"
        source = text.decode()
        linecache.cache[self.shown] = (len(source), None, source.splitlines(keepends=True), self.shown)
        # a module of its own, because torch.compile looks global names up by their module's name
        space = types.ModuleType(f"{module.__name__}__regraft{next(_NUMBERS)}")
        space.__dict__.update({**vars(module), "__name__": space.__name__})
        sys.modules[space.__name__] = space
        self.globals = vars(space)
        tree = ast.parse(text)
        self.nodes = definitions(tree)
        self.future = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
        self._execute(list(imports))
        functions = [self.nodes[one] for one in methods if not one[0]]
        self._execute([one for one in functions if isinstance(one, ast.stmt)])
        self.methods: dict[str, dict[str, Any]] = {}
        for owner in dict.fromkeys(owner for owner, _ in methods if owner):
            self.methods[owner] = dict(self._methods(owner, {name for one, name in methods if one == owner}))

    def _execute(self, body: list[ast.stmt]) -> None:
        exec(compile(ast.Module([*self.future, *body], []), self.shown, "exec", dont_inherit=True), self.globals)

    def _methods(self, owner: str, names: Collection[str]) -> Iterator[tuple[str, Any]]:
        """The methods, decorated as in the class; `super()` in them is that of the original class."""
        nodes = [node for (one, name), node in self.nodes.items() if one == owner and name in names]
        cls = self.globals[owner]
        head = ast.ClassDef(owner, [], [], [one for one in nodes if isinstance(one, ast.stmt)], [])
        if "type_params" in ast.ClassDef._fields:
            head.type_params = []  # type: ignore[attr-defined]
        self._execute([ast.fix_missing_locations(head)])
        made = self.globals[owner]
        self.globals[owner] = cls
        for name in names:
            for function in functions_of(vars(made)[name]):
                for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                    if variable == "__class__":
                        cell.cell_contents = cls
            yield name, vars(made)[name]


def functions_of(method: object) -> Iterator[types.FunctionType]:
    """The plain functions in a method: below `staticmethod`, `property`, and decorators that say what they wrap."""
    pending, seen = [method], set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, types.FunctionType):
            yield one
            pending += [cell.cell_contents for cell in one.__closure__ or () if _is_function(cell)]
        pending += [getattr(one, name, None) for name in ("__wrapped__", "__func__", "fget", "fset", "fdel")]


def _is_function(cell: types.CellType) -> bool:
    try:
        return isinstance(cell.cell_contents, types.FunctionType)
    except ValueError:  # empty
        return False


def subclass(cls: type, methods: Mapping[str, Any]) -> type:
    """A class that stands for `cls` with other methods."""
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
    """Stands in a pickle for a warning: whoever loads it calls `warnings.warn`, and gets None in its place."""

    TEXT = (
        "the model was pickled after regraft.optimize(model), and a pickle holds the original classes: "
        "call regraft.optimize on the loaded model to rewrite it again"
    )

    def __reduce__(self) -> Any:
        return warnings.warn, (self.TEXT, UserWarning)


_NOTICE = _Notice()  # a pickler writes one object once, for however many modules


def _reduce(self: Any, protocol: Any) -> Any:
    """A pickle holds the original class, which loads anywhere, and a notice that says so."""
    cls = type(self)
    rewritten = next(base for base in cls.__mro__ if ORIGINAL in vars(base))
    stands_for: Any = original(rewritten)
    if cls is not rewritten:  # a library's class above it decides
        return stands_for.__reduce_ex__(self, protocol)
    function, arguments, *rest = stands_for.__reduce_ex__(self, protocol)
    newly: Any = copyreg._reconstructor  # type: ignore[attr-defined]
    # copyreg.__newobj__ wants the very class of the instance; the other ignores its last argument for plain objects
    if getattr(function, "__name__", "") == "__newobj__" or (function is newly and arguments[1] is object):
        return (newly, (stands_for, object, _NOTICE), *rest)
    return (function, tuple(stands_for if one is cls else one for one in arguments), *rest)


def _shallow_copy(self: Any) -> Any:
    state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
    cls: Any = type(self)
    return _restored(cls.__new__(cls), self.__dict__ if state is None else state)


def _deep_copy(self: Any, memo: dict[int, Any]) -> Any:
    cls: Any = type(self)
    copied = cls.__new__(cls)
    memo[id(self)] = copied
    state = self.__getstate__() if hasattr(cls, "__getstate__") and not is_parametrized(cls) else self.__dict__
    return _restored(copied, copy.deepcopy(self.__dict__ if state is None else state, memo))


def _restored(copied: Any, state: Any) -> Any:
    if hasattr(copied, "__setstate__"):
        copied.__setstate__(state)
    else:
        copied.__dict__.update(state)
    return copied
