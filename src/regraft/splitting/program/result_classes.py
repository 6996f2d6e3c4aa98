"""The classes of objects that forward returns: the host, which lacks them, has its own of the same
names and fields."""

from __future__ import annotations

import collections
import types
from typing import Any

import numpy
import torch

from regraft.splitting.program.record_classes import fields_of, is_namedtuple

# the host's classes by name: the form, and the fields of a namedtuple
Classes = dict[str, list[str]]

# the text of a host's class, by its form
TEXTS = {
    "namedtuple": '{name} = collections.namedtuple("{name}", {fields}, rename=True)\n',
    "ordered": "{name} = collections.OrderedDict\n",
    "object": "{name} = type({name!r}, (types.SimpleNamespace,), {{}})\n",
    "mapping": (
        '''
class {name}(dict):
    """Fields that are attributes, and, unless they are None, items by their names or positions."""

    def __init__(self, **fields):
        super().__init__({{key: value for key, value in fields.items() if value is not None}})
        vars(self).update(fields)

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]
'''
    ),
}
# Names that the host uses itself.
RESERVED_NAMES = frozenset(
    {"collections", "types", "hashlib", "json", "Path", "numpy", "math", "torch", "Host"}
)
# classes of which the host has no class of the form "object"
NO_OBJECTS = (
    type,
    torch.Tensor,
    numpy.ndarray,
    numpy.generic,
    types.FunctionType,
    types.ModuleType,
)


def form_of(kind: type) -> str | None:
    """Return the form of the host's class for `kind`, a key of `TEXTS`; None where the host needs
    no class, as for tensors, numbers and plain containers, or cannot have one."""
    if is_namedtuple(kind):
        return "namedtuple"
    if issubclass(kind, dict) and kind is not dict:
        return "ordered" if kind is collections.OrderedDict else "mapping"
    has_attributes = kind.__dictoffset__ and not issubclass(
        kind, (*NO_OBJECTS, dict, tuple, list, Exception)
    )
    return "object" if has_attributes else None


def describe_class(kind: type) -> list[str]:
    """Return the form of the host's class for `kind` ("" where `form_of` gives none), then the
    fields if it is a namedtuple."""
    form = form_of(kind) or ""
    return [form, *(fields_of(kind) if form == "namedtuple" else [])]


def classes_source(classes: Classes) -> str:
    """Return the source text of the host's classes and their imports; "" where there are none."""
    texts = [
        TEXTS[form].format(name=name, fields=fields) for name, (form, *fields) in classes.items()
    ]
    return "".join(["import collections\nimport types\n\n", *texts]) if texts else ""


def make_classes(classes: Classes) -> dict[str, Any]:
    """Return the host's classes by name, made from their source text."""
    scope: dict[str, Any] = {}
    exec(classes_source(classes), scope)
    return {name: scope[name] for name in classes}


def is_same_kind(got: Any, expected: Any) -> bool:
    """Return whether both values are of one class, or the host represents their two classes, which
    have one name, in the same form (`form_of`)."""
    got_class, expected_class = type(got), type(expected)
    return got_class is expected_class or (
        got_class.__name__ == expected_class.__name__
        and None is not form_of(got_class) == form_of(expected_class)
    )


def comparable_contents(value: Any) -> Any:
    """Return a dictionary of the attributes of an object if the host represents it by its
    attributes (the form "object"); any other value as it is."""
    form = form_of(type(value))
    return dict(vars(value)) if form == "object" else value


def convert_fields(convert: Any, value: Any) -> Any:
    """Return a copy of an object, mapping or OrderedDict for which the host has a class of its own
    (`form_of`), with `convert` applied to each field; any other value as it is. Must not get a
    named tuple."""
    form = form_of(type(value))
    if form == "ordered":
        return type(value)((key, convert(element)) for key, element in value.items())
    return (
        type(value)(**{key: convert(field) for key, field in vars(value).items()})
        if form
        else value
    )
