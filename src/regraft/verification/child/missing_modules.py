"""Stand in for modules that are not installed, such as compiled extensions, while a file that
imports them is compared: what uses them fails in both versions."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, NoReturn, TypeVar

MOST_MODULES = 3  # where more are missing, it is the wrong environment
_MODULE_LEVEL = "<module>"  # the name of the code of a module's own statements
T = TypeVar("T")


class MissingName:
    """What a module that is missing would define. Whoever calls, subclasses, tests or computes with
    it gets a ModuleNotFoundError; it has no attributes. Only a call at the level of a module whose
    result is bound, such as that of a decorator, returns another one."""

    def __init__(self, module: str) -> None:
        """Store the name of the module that is missing."""
        self.__dict__["module"] = module

    def _fail(self, *_: Any, **__: Any) -> NoReturn:
        """Raise the error that the import of the module raises, with what to do."""
        raise ModuleNotFoundError(self._reason(), name=self.__dict__["module"])

    def _reason(self) -> str:
        """Return the message of the errors: which module is missing, and what to do."""
        advice = "install it, or name an interpreter that has it (--python)"
        return f"No module named {self.__dict__['module']!r}: {advice}"

    def __call__(self, *_: Any, **__: Any) -> MissingName:
        """Return what a module-level statement that calls the name would bind, which has no use
        either. Raises ModuleNotFoundError where a function, a class body or a comprehension calls
        it, and where the result has no name: such a call is there for its effects."""
        caller = sys._getframe(1)
        if caller.f_code.co_name == _MODULE_LEVEL and not _discards_result(caller):
            return MissingName(self.__dict__["module"])
        self._fail()

    def __or__(self, _: Any) -> MissingName:
        """Return the name itself: in an annotation it may stand beside None."""
        return self

    __ror__ = __or__

    __getitem__ = __iter__ = __len__ = __bool__ = __enter__ = __exit__ = _fail
    __mro_entries__ = __instancecheck__ = __subclasscheck__ = __setattr__ = __contains__ = _fail
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _fail
    __lt__ = __le__ = __gt__ = __ge__ = __float__ = __int__ = __index__ = _fail

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, as an object without the attribute does: code may ask for it."""
        raise AttributeError(self._reason())


def _discards_result(frame: FrameType) -> bool:
    """Return whether the call that a frame is in is a statement of its own."""
    following = (step for step in dis.get_instructions(frame.f_code) if step.offset > frame.f_lasti)
    return next(step.opname for step in following) == "POP_TOP"


class MissingModule(ModuleType):
    """A module that is not installed; its attributes are `MissingName`s."""

    def __getattr__(self, name: str) -> Any:
        """Return a `MissingName`; raise AttributeError for a name of Python itself."""
        if name.startswith("__"):
            raise AttributeError(name)
        return MissingName(self.__name__)


class _Finder:
    """The entry of `sys.meta_path` that finds the modules which are missing, by their full names,
    and what is below them."""

    def __init__(self) -> None:
        """Begin without modules. `refused` are those that were missing where a file was not
        loaded even without them."""
        self.names: list[str] = []
        self.refused: tuple[str, ...] = ()

    def find_spec(self, name: str, _: Sequence[str] | None, __: Any = None) -> ModuleSpec | None:
        """Return the specification of a missing module, None for any other."""
        is_missing = any(f"{name}.".startswith(f"{missing}.") for missing in self.names)
        return ModuleSpec(name, self, is_package=True) if is_missing else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module whose names are missing."""
        return MissingModule(spec.name)

    def exec_module(self, _: ModuleType) -> None:
        """Leave the module as it is."""


_FINDER = _Finder()


def missing_modules() -> tuple[str, ...]:
    """Return the full names of the modules that are stood in for."""
    return tuple(_FINDER.names)


def refused_modules() -> tuple[str, ...]:
    """Return the full names of the modules that were missing where nothing was loaded."""
    return _FINDER.refused


def without_missing_modules(load: Callable[[], T]) -> T:
    """Return what a function loads. Where it fails because a module is missing, the module is stood
    in for and the function called again, for up to `MOST_MODULES` modules.

    Raises the first error, with no module stood in for, where it still fails.
    """
    try:
        return load()
    except ModuleNotFoundError as error:
        first_error = error
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)
    missing = first_error.name
    while _is_new(missing):
        _FINDER.names.append(str(missing))
        try:
            return load()
        except Exception as error:  # noqa: BLE001 - code that needs the module; the first error is the reason
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
    for name in [name for name in sys.modules if _FINDER.find_spec(name, None) is not None]:
        del sys.modules[name]
    _FINDER.refused = tuple(dict.fromkeys([*_FINDER.names, *([missing] if missing else [])]))
    _FINDER.names.clear()
    raise first_error


def _is_new(name: str | None) -> bool:
    """Return whether a missing module may be stood in for: it is not yet, and others are few."""
    return bool(name) and name not in _FINDER.names and len(_FINDER.names) < MOST_MODULES
