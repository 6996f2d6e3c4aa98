"""Copies of instances whose class is rewritten, which keep it, and their pickles, which do not."""

from __future__ import annotations

import copy
import copyreg
import warnings
from typing import Any

from regraft.live.original_classes import ORIGINAL, is_parametrized, original_class


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


def reduce_instance(self: Any, protocol: Any) -> Any:
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
    replaced = tuple(stands_for if argument is cls else argument for argument in arguments)
    return (function, replaced, *state_parts)


def copy_instance(self: Any) -> Any:
    """Return a shallow copy of an instance, with the same rewritten class; used as `__copy__`."""
    state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
    cls: Any = type(self)
    return _restore_state(cls.__new__(cls), self.__dict__ if state is None else state)


def deep_copy_instance(self: Any, memo: dict[int, Any]) -> Any:
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
