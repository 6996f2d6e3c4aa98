"""Templates of arguments: descriptions of how a list, tuple or dictionary is built from tensors and
constants."""

from __future__ import annotations

import ast
from typing import Any

import numpy
import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.unused_names import unused_name

# {"leaf": name}, {"value": text}, {"list": [...]}, {"tuple": [...]} or {"dict": {key: ...}}
Template = dict[str, Any]


def make_template(name: str, value: Any, used_names: set[str]) -> Template:
    """Return the template of a value, with new names for its leaves, which are added to
    `used_names`.

    name: the argument, which names of leaves begin with. Raises TypeError if the value holds
    anything but tensors, constants, lists, tuples and dictionaries with strings as keys.
    """
    if isinstance(value, torch.Tensor):
        name = unused_name(name, used_names)
        used_names.add(name)
        return {"leaf": name}
    if type(value) in (list, tuple):
        return {
            type(value).__name__: [
                make_template(f"{name}_{place}", element, used_names)
                for place, element in enumerate(value)
            ]
        }
    if type(value) is dict and all(isinstance(key, str) for key in value):
        suffixes = [
            key if key.isidentifier() and key.isascii() else place
            for place, key in enumerate(value)
        ]
        leaf_prefixes = {
            key: f"{name}_{suffix}" for key, suffix in zip(value, suffixes, strict=True)
        }
        return {
            "dict": {
                key: make_template(leaf_prefixes[key], element, used_names)
                for key, element in value.items()
            }
        }
    text = constant_text(value)
    if text is None:
        raise TypeError(unsupported_message(name, value))
    return {"value": text}


def split_call(templates: dict[str, Template], call: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, the leaves of those that have a template in their
    place; raise ValueError for one that does not fit its template."""
    arguments: dict[str, Any] = {}
    for key, value in call.items():
        if key in templates:
            take_leaves(key, templates[key], value, arguments)
        else:
            arguments[key] = value
    return arguments


def take_leaves(name: str, template: Template, value: Any, leaf_values: dict[str, Any]) -> None:
    """Add the leaves of a value, tensors or arrays, to `leaf_values` by their names; raise
    ValueError if the value does not fit the template. name: the value's name in the error."""
    ((kind, inner),) = template.items()
    if kind == "leaf":
        if not isinstance(value, (torch.Tensor, numpy.ndarray)):
            raise ValueError(f"{name} is a {type(value).__name__}, not a tensor")
        leaf_values[inner] = value
    elif kind == "value":
        if constant_text(value) != inner:
            raise ValueError(f"{name} is {value!r}; the network was split for {inner}")
    elif kind == "dict":
        if type(value) is not dict or list(value) != list(inner):
            keys = f"a dictionary with the keys {', '.join(inner)}, in this order"
            raise ValueError(f"{name} is not {keys if inner else 'an empty dictionary'}")
        for key, element_template in inner.items():
            take_leaves(f"{name}[{key!r}]", element_template, value[key], leaf_values)
    else:
        if type(value) is not {"list": list, "tuple": tuple}[kind] or len(value) != len(inner):
            raise ValueError(f"{name} is not a {kind} of {len(inner)}")
        for place, element_template in enumerate(inner):
            take_leaves(f"{name}[{place}]", element_template, value[place], leaf_values)


def template_expression(template: Template) -> str:
    """Return the Python expression, as text, that builds a value of this structure, such as
    `[x_0, {'mask': x_1}, 3]`, from variables with the names of its leaves; constants are written
    out."""
    ((kind, inner),) = template.items()
    if kind in ("leaf", "value"):
        return str(inner)
    if kind == "dict":
        return (
            "{"
            + ", ".join(
                f"{key!r}: {template_expression(element)}" for key, element in inner.items()
            )
            + "}"
        )
    elements = "".join(f"{template_expression(element)}, " for element in inner)
    return f"[{elements}]" if kind == "list" else f"({elements})"


def build_value(template: Template, leaves: dict[str, torch.Tensor]) -> Any:
    """Return the value that a template describes, with these tensors as its leaves."""
    ((kind, inner),) = template.items()
    if kind == "leaf":
        return leaves[inner]
    if kind == "value":
        return ast.literal_eval(inner)
    if kind == "dict":
        return {key: build_value(element, leaves) for key, element in inner.items()}
    elements = [build_value(element, leaves) for element in inner]
    return elements if kind == "list" else tuple(elements)


def leaf_names(template: Template) -> list[str]:
    """Return the names of the tensors (leaves) in a template, in order."""
    ((kind, inner),) = template.items()
    if kind in ("leaf", "value"):
        return [inner] if kind == "leaf" else []
    return [
        leaf
        for element_template in (inner.values() if kind == "dict" else inner)
        for leaf in leaf_names(element_template)
    ]


def unsupported_message(name: str, value: Any) -> str:
    """Return the message for an argument whose type is not supported."""
    return f"argument {name}: a {type(value).__name__} is not supported as an input"


def constant_text(value: Any) -> str | None:
    """Return a constant as text; None for what is no constant that can be written down, and for a
    torch.Size."""
    code = None if isinstance(value, torch.Size) else literal(value)
    return None if code is None else ast.unparse(code)
