"""Arguments that hold tensors in lists, tuples and dictionaries: a network that takes them one by one."""

from __future__ import annotations

import ast
import inspect
import linecache
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import nn

from regraft.splitting.codes import ARGUMENTS, holds_tensor
from regraft.splitting.errors import Unsplittable
from regraft.splitting.network import text_of_parameter
from regraft.splitting.values import literal

Template = dict[str, Any]  # {"leaf": name}, {"value": text}, {"list": [...]}, {"tuple": [...]} or {"dict": {key: ...}}


def unpacked(
    model: nn.Module, path: str, calls: list[dict[str, Any]]
) -> tuple[nn.Module, list[dict[str, Any]], Packed | None]:
    """The network, its calls, and how arguments that hold tensors are put together; without any, as they are.

    The network that takes the parts puts the arguments together and calls the original.
    """
    code = inspect.unwrap(type(model).forward).__code__
    line = code.co_firstlineno
    others = {key: one for key, one in calls[0].items() if not isinstance(one, torch.Tensor)}
    packed = [key for key, one in others.items() if holds_tensor(one) or type(one) is dict]
    for key, one in others.items():
        if key not in packed and text_of(one) is None:
            raise Unsplittable(path, line, unsupported(key, one))
    if not packed:
        return model, calls, None
    taken = {*calls[0], *code.co_varnames, *code.co_cellvars}
    templates: dict[str, Template] = {}
    for key in packed:
        try:
            templates[key] = template(key, calls[0][key], taken)
        except TypeError as problem:
            raise Unsplittable(path, line, str(problem)) from problem
    made = []
    optional = [key for key, one in templates.items() if not leaves(one) and is_default(model, key, one)]
    for number, call in enumerate(calls):
        try:
            made.append(parts(templates, call))
        except ValueError as problem:
            raise Unsplittable(path, line, f"example call {number}: {problem}") from problem
    return (
        taking_parts(model, f"{path}{ARGUMENTS}", line, templates),
        made,
        Packed(list(calls[0]), templates, optional),
    )


@dataclass(frozen=True)
class Packed:
    """The names of a network's arguments, in order, and how those are put together that hold tensors.

    optional  those of them that hold constants alone, which are the parameters' defaults
    """

    names: list[str]
    templates: dict[str, Template]
    optional: list[str]

    def parts(self, args: tuple[Any, ...], words: dict[str, Any]) -> dict[str, Any]:
        """A call's arguments one by one. Raises TypeError or ValueError where they do not fit."""
        call = {**dict(zip(self.names, args, strict=False)), **words}
        twice = len(args) + len(words) > len(call)
        needed = self.templates.keys() - set(self.optional)
        if twice or len(args) > len(self.names) or not needed <= call.keys() <= set(self.names):
            raise TypeError(f"the network takes {', '.join(self.names)}")
        return parts(self.templates, call)


def template(name: str, value: Any, taken: set[str]) -> Template:
    """How a value is put together from leaves, whose names join those taken. Raises TypeError if it cannot be."""
    if isinstance(value, torch.Tensor):
        while name in taken:
            name += "_"
        taken.add(name)
        return {"leaf": name}
    if type(value) in (list, tuple):
        return {type(value).__name__: [template(f"{name}_{place}", one, taken) for place, one in enumerate(value)]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        words = [key if key.isidentifier() and key.isascii() else place for place, key in enumerate(value)]
        named = {key: f"{name}_{word}" for key, word in zip(value, words, strict=True)}
        return {"dict": {key: template(named[key], one, taken) for key, one in value.items()}}
    text = text_of(value)
    if text is None:
        raise TypeError(unsupported(name, value))
    return {"value": text}


def parts(templates: dict[str, Template], call: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call one by one. Raises ValueError where they are put together otherwise."""
    found: dict[str, Any] = {}
    for key, value in call.items():
        if key in templates:
            take(key, templates[key], value, found)
        else:
            found[key] = value
    return found


def take(name: str, template: Template, value: Any, found: dict[str, Any]) -> None:
    ((kind, inner),) = template.items()
    if kind == "leaf":
        if not isinstance(value, (torch.Tensor, numpy.ndarray)):
            raise ValueError(f"{name} is a {type(value).__name__}, not a tensor")
        found[inner] = value
    elif kind == "value":
        if text_of(value) != inner:
            raise ValueError(f"{name} is {value!r}; the network was split for {inner}")
    elif kind == "dict":
        if type(value) is not dict or list(value) != list(inner):
            keys = f"a dictionary with the keys {', '.join(inner)}, in this order" if inner else "an empty dictionary"
            raise ValueError(f"{name} is not {keys}")
        for key, one in inner.items():
            take(f"{name}[{key!r}]", one, value[key], found)
    else:
        if type(value) is not {"list": list, "tuple": tuple}[kind] or len(value) != len(inner):
            raise ValueError(f"{name} is not a {kind} of {len(inner)}")
        for place, one in enumerate(inner):
            take(f"{name}[{place}]", one, value[place], found)


def check_unchanged(model: nn.Module, path: str, calls: list[dict[str, Any]], packed: Packed) -> None:
    """Refuse what changes a list or dictionary that it is given: the caller would see it."""
    line = inspect.unwrap(type(model).forward).__code__.co_firstlineno
    for number, call in enumerate(calls):
        before = {key: shown(call[key]) for key in packed.templates}  # which keeps what it shows
        with torch.no_grad():
            try:
                model(**call)
            except Exception as problem:
                reason = f"the example call fails: {type(problem).__name__}: {problem}"
                raise Unsplittable(path, line, reason) from problem
        changed = [key for key in packed.templates if shown(call[key]) != before[key]]
        if changed:
            reason = f"example call {number}: forward changes what its argument {changed[0]} holds"
            raise Unsplittable(path, line, reason)


def shown(value: Any) -> Any:
    """What a structure holds, and which objects."""
    if isinstance(value, dict):
        return [(key, shown(one)) for key, one in value.items()]
    return [*map(shown, value)] if isinstance(value, list | tuple) else Same(value)


@dataclass(frozen=True, eq=False)
class Same:
    """Equal to what holds the same object."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def is_default(model: nn.Module, key: str, template: Template) -> bool:
    """Whether a structure of constants is what the parameter holds where a call leaves it out."""
    default = inspect.signature(type(model).forward).parameters[key].default
    try:
        take(key, template, default, {})
    except ValueError:
        return False
    return True


def written(template: Template) -> str:
    """The expression that puts a value together from its leaves."""
    ((kind, inner),) = template.items()
    if kind in ("leaf", "value"):
        return str(inner)
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {written(one)}" for key, one in inner.items()) + "}"
    items = "".join(f"{written(one)}, " for one in inner)
    return f"[{items}]" if kind == "list" else f"({items})"


def leaves(template: Template) -> list[str]:
    ((kind, inner),) = template.items()
    if kind in ("leaf", "value"):
        return [inner] if kind == "leaf" else []
    return [leaf for one in (inner.values() if kind == "dict" else inner) for leaf in leaves(one)]


def taking_parts(model: nn.Module, file: str, line: int, templates: dict[str, Template]) -> nn.Module:
    """A network of the same name that calls `model`; its source stands in no file, at the line of the original's."""
    own = list(inspect.signature(type(model).forward).parameters.values())[1:]
    given = [leaf for one in own if one.name in templates for leaf in leaves(templates[one.name])]
    plain = [one for one in own if one.name not in templates]
    given += [one.name for one in plain if one.default is one.empty]
    path = file.removesuffix(ARGUMENTS)
    given += [text_of_parameter(one, path, line) for one in plain if one.default is not one.empty]
    words = (f"{one.name}={written(templates[one.name]) if one.name in templates else one.name}" for one in own)
    text = (
        "\n" * max(line - 5, 0) + f"class {type(model).__name__}(Module):\n"
        "    def __init__(self, network):\n        super().__init__()\n        self.network = network\n"
        f"    def forward(self, {', '.join(given)}):\n        return self.network({', '.join(words)})\n"
    )
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"Module": nn.Module, "__name__": type(model).__module__}
    exec(compile(text, file, "exec"), scope)
    made: nn.Module = scope[type(model).__name__](model)
    made.training = False  # `eval()` would reach into the model
    return made


def unsupported(name: str, value: Any) -> str:
    return f"argument {name}: a {type(value).__name__} is not supported as an input"


def text_of(value: Any) -> str | None:
    """A constant as text; None where it is none."""
    code = None if isinstance(value, torch.Size) else literal(value)
    return None if code is None else ast.unparse(code)
