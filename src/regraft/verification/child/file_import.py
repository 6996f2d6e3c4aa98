"""Import both versions of a file into one process."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from regraft.source.object_reference import load_source
from regraft.source.qualified_names import REPOSITORY_MARKS, module_names, root_and_package
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.missing_modules import without_missing_modules
from regraft.verification.child.package_stand_ins import import_packages, left_out_packages
from regraft.verification.child.script_import import failing_statement, load_script, script_of
from regraft.verification.names_and_scopes import future_imports

SUFFIX = "__regraft"
COPY = "__again"
ORIGINAL = "__original"
_ERROR_LENGTH = 80  # the most characters of the error of a statement that is left out


def package_of(path: Path) -> tuple[Path, str]:
    """Return the folder to import a file from and the file's dotted module name. An `__init__.py`
    has the name of its package; a file outside packages its stem."""
    root, package = root_and_package(path)
    parts = [package, "" if path.stem == "__init__" else path.stem]
    return root, ".".join(filter(None, parts))


def load_original(path: Path) -> ModuleType:
    """Import the original file as `load_with_all_modules` does; modules that are not installed are
    stood in for (`without_missing_modules`)."""
    return without_missing_modules(functools.partial(load_with_all_modules, path))


def load_with_all_modules(path: Path) -> ModuleType:
    """Import a file, by its real name inside its package where it has one, else by its stem with
    ORIGINAL. Folders are added to the front of `sys.path`.

    A package that is missing is looked for in the folders above the file, too, up to its
    repository: those who run the file start there. Where it is not the file that needs what is
    missing but an `__init__.py` of a package around it, this one is left out (`import_packages`).
    Raises ImportError where another copy of the package shadows the file, and what the file itself
    raises.
    """
    root, name = package_of(path)
    _put_on_path(root)
    while True:
        try:
            return _import_original(path, name)
        except ModuleNotFoundError as error:
            folder = _folder_above(path, str(error.name).partition(".")[0])
            if folder is None or not _put_on_path(folder):
                return _import_without_packages(path, root, name, error)


def _import_without_packages(
    path: Path, root: Path, name: str, error: ModuleNotFoundError
) -> ModuleType:
    """Import a file without each `__init__.py` around it that fails because a module is missing.
    Raises the error that the file was imported with before, where it still does not import."""
    package = name.rpartition(".")[0]
    if not package:
        raise error
    left_out_before = left_out_packages(name)
    try:
        import_packages(root, package)
        return _import_original(path, name)
    except ImportError:
        for stand_in in left_out_packages(name).keys() - left_out_before.keys():
            del sys.modules[stand_in]
        raise error from None


def _import_original(path: Path, name: str) -> ModuleType:
    """Import a file to which `package_of` assigns the dotted `name`, in part where a statement of
    it fails; a file without a package is loaded from its path under its stem with ORIGINAL. Raises
    ImportError where the name leads to another file."""
    if "." not in name:
        name = path.stem + ORIGINAL
        return _load_whole_or_in_part(functools.partial(load_source, path, name), path, name)
    module = _load_whole_or_in_part(functools.partial(importlib.import_module, name), path, name)
    loaded = Path(str(module.__file__)).resolve()
    if loaded != path.resolve():
        raise ImportError(f"{name} was imported from {loaded}, not from {path}")
    return module


def _load_whole_or_in_part(load: Callable[[], ModuleType], path: Path, name: str) -> ModuleType:
    """Return the module of a file, which a function loads. Where a statement at the module level of
    the file fails, but not because something cannot be imported, the file is imported without it
    under a name (`load_script`)."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        failing = failing_statement(path, error)
        if not failing:
            raise
        return load_script(path, name, failing, shorten_error(error, _ERROR_LENGTH))


def _folder_above(path: Path, package: str) -> Path | None:
    """Return the nearest folder above a file, not beyond its repository, that has a package or
    module of a name, also below `src`; None where there is none. What is inside a package is left
    out: its parts have longer names, and a package that is missing may have the name of one. Only
    the file's own folder counts, too, where a module of it has all that the file imports by the
    name: such a file is run as a script, whatever `__init__.py` is beside it."""
    if _is_beside(path, package):
        return path.resolve().parent
    for folder in path.resolve().parents[:-1]:
        for place in (folder, folder / "src"):
            has_name = (place / package).is_dir() or (place / f"{package}.py").is_file()
            if has_name and not (place / "__init__.py").exists():
                return place
        if any((folder / mark).exists() for mark in REPOSITORY_MARKS):
            return None
    return None


def _is_beside(path: Path, module: str) -> bool:
    """Return whether a file imports names from a module, and a file of this name in its folder
    binds all of them; a star is all that it binds."""
    neighbour = path.with_name(f"{module}.py")
    if neighbour == path or not neighbour.is_file():
        return False
    imports = [
        node
        for node in ast.parse(path.read_bytes()).body
        if isinstance(node, ast.ImportFrom) and node.module == module and not node.level
    ]
    wanted = {alias.name for node in imports for alias in node.names}
    try:
        tree = ast.parse(neighbour.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return bool(wanted) and wanted <= {"*", *module_names(tree, "").bound}


def missing_packages(path: Path) -> list[str]:
    """Return the top packages of the imports at the top level of a file that neither this
    interpreter nor a folder above the file has, in their order."""
    modules: list[str] = []
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.append(node.module)
    return [
        package
        for package in dict.fromkeys(module.partition(".")[0] for module in modules)
        if package not in sys.modules
        and importlib.util.find_spec(package) is None
        and _folder_above(path, package) is None
    ]


def load_changed(source: Path, path: Path, original: ModuleType) -> ModuleType:
    """Import the changed text in `source` as a sibling module of the original, which was imported
    from `path`; it is named with SUFFIX, so that relative imports resolve as the original's do."""
    return _load_like(original, source, package_of(path)[1] + SUFFIX)


def load_copy(path: Path, original: ModuleType) -> ModuleType:
    """Import the original from its path a second time, as a sibling module named with COPY; in part
    where the original was imported in part."""
    return _load_like(original, path, package_of(path)[1] + COPY)


def _load_like(original: ModuleType, source: Path, name: str) -> ModuleType:
    """Import a file under a name, in part where the original was imported in part, without the same
    statement. Raises ImportError where a statement after it fails that does not fail in the
    original."""
    script = script_of(original)
    if script is None:
        return load_source(source, name)
    module = load_script(source, name, script.failing, script.error)
    own_script = script_of(module)
    failed = Counter(own_script.failed_names if own_script is not None else ())
    only_here = failed - Counter(script.failed_names)
    if only_here:
        names = ", ".join(sorted(only_here))
        raise ImportError(f"the statement that binds {names} fails, unlike in the original")
    return module


def plain_module_name(name: str) -> str:
    """Return the name of a module without SUFFIX, COPY and ORIGINAL, which mark a version of the
    file."""
    return name.removesuffix(SUFFIX).removesuffix(COPY).removesuffix(ORIGINAL)


def define_in_changed_module(name: str, original: ModuleType, changed: ModuleType) -> Any:
    """Return a definition of the original, executed in the changed module, whose other definitions
    it then uses. The changed module keeps its own object under the name, if it has such an object;
    names that it lacks are added to it from the original, for good.

    Return the original's own object where its text defines the name not exactly once, or cannot be
    executed there.
    """
    path = str(original.__file__)
    statements = ast.parse(Path(path).read_bytes()).body
    definitions = [node for node in statements if getattr(node, "name", None) == name]
    if len(definitions) != 1:
        return getattr(original, name)
    for missing_name, value in vars(original).items():
        # imports that the changed version no longer has
        vars(changed).setdefault(missing_name, value)
    changed_value = getattr(changed, name, None)
    tree = ast.Module([*future_imports(statements), *definitions], [])
    try:
        exec(compile(tree, path, "exec", dont_inherit=True), vars(changed))
        return getattr(changed, name)
    except Exception:  # noqa: BLE001 - a decorator that refuses a second copy; the original itself is close enough
        return getattr(original, name)
    finally:
        if changed_value is not None:
            setattr(changed, name, changed_value)


def rebind(module: ModuleType, name: str, value: Any) -> None:
    """Bind a name of a module to `value`, and replace the old object in the class attributes of the
    module's own classes, also inside lists, tuples, dictionaries and dataclasses; in attributes
    with two leading underscores it stays.

    Tables in class attributes (the class of each kind of attention, say) name classes that stand
    above them in the file.
    """
    old_value = vars(module).get(name)
    setattr(module, name, value)
    if old_value is None or old_value is value:
        return
    for cls in [entry for entry in vars(module).values() if isinstance(entry, type)]:
        for attribute, old_attribute in list(vars(cls).items()):
            if cls.__module__ == module.__name__ and not attribute.startswith("__"):
                new_attribute = _exchange_value(old_attribute, old_value, value)
                if new_attribute is not old_attribute:
                    setattr(cls, attribute, new_attribute)


def _exchange_value(container: Any, old_value: Any, new_value: Any) -> Any:
    """Return a value, or a nested list, tuple, dictionary or dataclass, with one object replaced by
    another; the value itself where it does not hold the object. Nothing is changed in place."""
    if container is old_value:
        return new_value
    if type(container) in (list, tuple, dict):
        elements = list(container.values() if isinstance(container, dict) else container)
        new_elements = [_exchange_value(element, old_value, new_value) for element in elements]
        pairs = zip(new_elements, elements, strict=True)
        if all(new_element is element for new_element, element in pairs):
            return container
        if isinstance(container, dict):
            return dict(zip(container, new_elements, strict=True))
        return type(container)(new_elements)
    if dataclasses.is_dataclass(container) and not isinstance(container, type):
        names = [name for name, element in vars(container).items() if element is old_value]
        if names:
            return dataclasses.replace(container, **dict.fromkeys(names, new_value))
    return container


def _put_on_path(root: Path) -> bool:
    """Add a folder to the front of `sys.path` and return True; return False where the path has it
    already."""
    entries = {str(Path(entry or ".").resolve()) for entry in sys.path}
    is_new = str(root.resolve()) not in entries
    if is_new:
        sys.path.insert(0, str(root))
    return is_new
