"""The installation of rewritten methods: a model's modules get classes that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regraft.live.changed_definitions import Name
from regraft.live.optimization_result import Change, Optimization, dotted_name
from regraft.live.original_classes import is_parametrized
from regraft.live.rewritten_classes import make_subclass, rebase_class
from regraft.live.source_rewriting import ModelFile

Method = tuple[ModelFile, Name]  # a rewritten method: its file, and its class and name


def install(model: Any, files: Sequence[ModelFile], result: Optimization) -> None:
    """Give each of the model's modules that runs a rewritten method a class with it, in place of
    its own class. Add to `result` the changes, and the methods that cannot be installed.

    files   the files with rewritten methods
    """
    installer = _Installer(files, result)
    for module in model.modules():
        installer.install_on(module)
    result.changes += installer.changes()


class _Installer:
    """A maker of classes with rewritten methods, which counts the modules that get them.

    methods_by_class  the rewritten methods by name that an instance of a class runs
    classes           the classes made so far, by original class and names of methods
    counts            the number of modules that run a method, by file and method
    """

    def __init__(self, files: Sequence[ModelFile], result: Optimization) -> None:
        self.files, self.result = files, result
        self.methods_by_class: dict[type, dict[str, Method]] = {}
        self.classes: dict[tuple[type, frozenset[str]], type] = {}
        self.counts: dict[tuple[str, Name], int] = {}

    def install_on(self, module: Any) -> None:
        """Set the class of a module to one with those rewritten methods that it runs, and count it;
        do nothing if it runs none. A class that Python does not let a module change to is noted as
        unchanged."""
        cls = type(module)
        methods = self._methods_of(module)
        if not methods:
            return
        # PyTorch takes this class off by its base, so it stays the outermost
        parametrized = is_parametrized(cls)
        rewritten_cls = self._class_with_methods(cls.__bases__[0] if parametrized else cls, methods)
        try:
            module.__class__ = (
                rebase_class(cls, (rewritten_cls,)) if parametrized else rewritten_cls
            )
        except TypeError as problem:
            self.result.add_unchanged("", cls.__name__, str(problem))
            return
        for file, name in methods.values():
            self.counts[file.path, name] = self.counts.get((file.path, name), 0) + 1

    def changes(self) -> Iterator[Change]:
        """Yield a Change for each rewritten method that some module runs, with the number of these
        modules."""
        by_path = {file.path: file for file in self.files}
        for (path, name), count in self.counts.items():
            yield Change(path, dotted_name(*name), by_path[path].rules.get(name, ()), count)

    def _methods_of(self, module: Any) -> dict[str, Method]:
        """Return the rewritten methods that a module runs, by name; methods that an attribute of
        the module itself overrides are left out, and noted in `result`."""
        cls = type(module)
        if cls not in self.methods_by_class:
            self.methods_by_class[cls] = dict(self._rewritten_methods(cls))
        methods = self.methods_by_class[cls]
        own_names = [name for name in methods if name in vars(module)]
        for name in own_names:
            self.result.add_unchanged(
                methods[name][0].path,
                f"{cls.__name__}.{name}",
                "this module has one of its own",
            )
        return {name: method for name, method in methods.items() if name not in own_names}

    def _class_with_methods(self, cls: type, methods: Mapping[str, Method]) -> type:
        """Return the class that stands for `cls` with these methods; equal requests get the same
        class."""
        key = (cls, frozenset(methods))
        if key not in self.classes:
            rewritten = {
                name: file.rewritten_method(full_name)
                for name, (file, full_name) in methods.items()
            }
            self.classes[key] = make_subclass(cls, rewritten)
        return self.classes[key]

    def _rewritten_methods(self, cls: type) -> Iterator[tuple[str, Method]]:
        """Yield the rewritten methods that an instance of `cls` runs, by name; note in `result`
        those that a class before theirs overrides."""
        hidden: set[str] = set()
        for ancestor in cls.__mro__:
            for file in self.files:
                for name in _names_rewritten_in(file, ancestor):
                    if name not in hidden:
                        yield name, (file, (ancestor.__name__, name))
                        continue
                    self.result.add_unchanged(
                        file.path,
                        f"{ancestor.__name__}.{name}",
                        f"{cls.__name__} has another one, and may call it by super()",
                    )
            hidden |= vars(ancestor).keys()


def _names_rewritten_in(file: ModelFile, cls: type) -> Sequence[str]:
    """Return the names of the methods of a class that have a rewritten form in `file`; () for a
    class of another file."""
    assert file.rewritten is not None
    if vars(file.module).get(cls.__name__) is not cls:
        return ()
    return tuple(file.rewritten.methods.get(cls.__name__, {}))
