"""Objects that forward returns: the host, which lacks their classes, has its own, of the same names and fields."""

from __future__ import annotations

import collections
import types
from typing import Any

import numpy
import torch

from regraft.splitting.records import fields_of, is_namedtuple

Classes = dict[str, list[str]]  # by name: the form, and the fields of a namedtuple

TEXTS = {
    "namedtuple": '{name} = collections.namedtuple("{name}", {fields}, rename=True)\n',
    "ordered": "{name} = collections.OrderedDict\n",
    "object": "{name} = type({name!r}, (types.SimpleNamespace,), {{}})\n",
    "mapping": '''
class {name}(dict):
    """Its fields are attributes, and, unless they are None, items, by their names and in their order."""

    def __init__(self, **fields):
        super().__init__({{key: one for key, one in fields.items() if one is not None}})
        vars(self).update(fields)

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]
''',
}
TAKEN = frozenset({"collections", "types", "hashlib", "json", "Path", "numpy", "math", "torch", "Host"})  # by the host
NO_OBJECTS = (type, torch.Tensor, numpy.ndarray, numpy.generic, types.FunctionType, types.ModuleType)


def form_of(kind: type) -> str | None:
    """What the host's class for it would be made like; None for what needs none."""
    if is_namedtuple(kind):
        return "namedtuple"
    if issubclass(kind, dict) and kind is not dict:
        return "ordered" if kind is collections.OrderedDict else "mapping"
    plain = kind.__dictoffset__ and not issubclass(kind, (*NO_OBJECTS, dict, tuple, list, Exception))
    return "object" if plain else None


def described(kind: type) -> list[str]:
    """How the host makes its own class."""
    form = form_of(kind) or ""
    return [form, *(fields_of(kind) if form == "namedtuple" else [])]


def source(classes: Classes) -> str:
    """The host's classes as text."""
    texts = [TEXTS[form].format(name=name, fields=fields) for name, (form, *fields) in classes.items()]
    return "".join(["import collections\nimport types\n\n", *texts]) if texts else ""


def made(classes: Classes) -> dict[str, Any]:
    """The host's classes by name."""
    scope: dict[str, Any] = {}
    exec(source(classes), scope)
    return {name: scope[name] for name in classes}


def same_kind(got: Any, expected: Any) -> bool:
    """Whether both are of one class, or one is of the host's class for the other's."""
    one, other = type(got), type(expected)
    return one is other or (one.__name__ == other.__name__ and None is not form_of(one) == form_of(other))


def contents(value: Any) -> Any:
    """What an object holds, by its fields; anything else as it is."""
    form = form_of(type(value))
    return dict(vars(value)) if form == "object" else value


def converted(convert: Any, value: Any) -> Any:
    """An object of a class of the host, with `convert` of all that it holds."""
    form = form_of(type(value))
    if form == "namedtuple":
        return type(value)(*map(convert, value))
    if form == "ordered":
        return type(value)((key, convert(one)) for key, one in value.items())
    return type(value)(**{key: convert(one) for key, one in vars(value).items()}) if form else value
