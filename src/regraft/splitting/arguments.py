"""Arguments that hold tensors in lists, tuples and dictionaries, and a network that takes the
tensors one by one."""

from __future__ import annotations

import ast
import inspect
import linecache
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import nn

from regraft.splitting.errors import Unsplittable
from regraft.splitting.preconditions import text_of_parameter
from regraft.splitting.program.codes import WRAPPER_SUFFIX, holds_tensor
from regraft.splitting.program.values import literal

# {"leaf": name}, {"value": text}, {"list": [...]}, {"tuple": [...]} or {"dict": {key: ...}}
Template = dict[str, Any]


def unpack_arguments(
    model: nn.Module, path: str, calls: list[dict[str, Any]]
) -> tuple[nn.Module, list[dict[str, Any]], Packed | None]:
    """Return a network that takes nested tensors one by one, its calls, and how its arguments are
    put together.

    The network puts the arguments together and calls the original. Without nested tensors, the
    original network, the original calls and None are returned.
    """
    code = inspect.unwrap(type(model).forward).__code__
    line = code.co_firstlineno
    other_arguments = {
        key: value for key, value in calls[0].items() if not isinstance(value, torch.Tensor)
    }
    packed = [
        key for key, value in other_arguments.items() if holds_tensor(value) or type(value) is dict
    ]
    for key, value in other_arguments.items():
        if key not in packed and constant_text(value) is None:
            raise Unsplittable(path, line, unsupported_message(key, value))
    if not packed:
        return model, calls, None
    used_names = {*calls[0], *code.co_varnames, *code.co_cellvars}
    templates: dict[str, Template] = {}
    for key in packed:
        try:
            templates[key] = make_template(key, calls[0][key], used_names)
        except TypeError as problem:
            raise Unsplittable(path, line, str(problem)) from problem
    unpacked_calls = []
    optional = [
        key
        for key, structure in templates.items()
        if not leaf_names(structure) and is_default(model, key, structure)
    ]
    for number, call in enumerate(calls):
        try:
            unpacked_calls.append(split_call(templates, call))
        except ValueError as problem:
            raise Unsplittable(path, line, f"example call {number}: {problem}") from problem
    return (
        build_wrapper(model, f"{path}{WRAPPER_SUFFIX}", line, templates),
        unpacked_calls,
        Packed(list(calls[0]), templates, optional),
    )


@dataclass(frozen=True)
class Packed:
    """The names of a network's arguments, in order, and the templates of those that hold tensors.

    optional: those of the templates that hold constants alone, which are the parameters' defaults.
    """

    names: list[str]
    templates: dict[str, Template]
    optional: list[str]

    def parts(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """Return a call's arguments one by one; raise TypeError or ValueError if they do
        not fit."""
        call = {**dict(zip(self.names, args, strict=False)), **keywords}
        has_repeats = len(args) + len(keywords) > len(call)
        required = self.templates.keys() - set(self.optional)
        if (
            has_repeats
            or len(args) > len(self.names)
            or not required <= call.keys() <= set(self.names)
        ):
            raise TypeError(f"the network takes {', '.join(self.names)}")
        return split_call(self.templates, call)


def make_template(name: str, value: Any, used_names: set[str]) -> Template:
    """Return the template of a value, with new names for its leaves, which are added to
    `used_names`.

    Raises TypeError if the value holds something that is not supported.
    """
    if isinstance(value, torch.Tensor):
        while name in used_names:
            name += "_"
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
    """Return the arguments of a call one by one; raise ValueError if they are put together
    otherwise."""
    arguments: dict[str, Any] = {}
    for key, value in call.items():
        if key in templates:
            take_leaves(key, templates[key], value, arguments)
        else:
            arguments[key] = value
    return arguments


def take_leaves(name: str, template: Template, value: Any, leaf_values: dict[str, Any]) -> None:
    """Add the leaves of a value to `leaf_values`; raise ValueError if the value does not fit the
    template."""
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
            keys = (
                f"a dictionary with the keys {', '.join(inner)}, in this order"
                if inner
                else "an empty dictionary"
            )
            raise ValueError(f"{name} is not {keys}")
        for key, element_template in inner.items():
            take_leaves(f"{name}[{key!r}]", element_template, value[key], leaf_values)
    else:
        if type(value) is not {"list": list, "tuple": tuple}[kind] or len(value) != len(inner):
            raise ValueError(f"{name} is not a {kind} of {len(inner)}")
        for place, element_template in enumerate(inner):
            take_leaves(f"{name}[{place}]", element_template, value[place], leaf_values)


def check_unchanged(
    model: nn.Module, path: str, calls: list[dict[str, Any]], packed: Packed
) -> None:
    """Refuse a network that changes a list or dictionary that it is given, because the caller would
    see it."""
    line = inspect.unwrap(type(model).forward).__code__.co_firstlineno
    for number, call in enumerate(calls):
        # snapshots keep their objects alive
        before = {key: snapshot(call[key]) for key in packed.templates}
        with torch.no_grad():
            try:
                model(**call)
            except Exception as problem:
                reason = f"the example call fails: {type(problem).__name__}: {problem}"
                raise Unsplittable(path, line, reason) from problem
        changed = [key for key in packed.templates if snapshot(call[key]) != before[key]]
        if changed:
            reason = f"example call {number}: forward changes what its argument {changed[0]} holds"
            raise Unsplittable(path, line, reason)


def snapshot(value: Any) -> Any:
    """Return a structure with identities in the place of its objects."""
    if isinstance(value, dict):
        return [(key, snapshot(element)) for key, element in value.items()]
    return [*map(snapshot, value)] if isinstance(value, list | tuple) else Identity(value)


@dataclass(frozen=True, eq=False)
class Identity:
    """The identity of an object; it equals any other that holds the same object."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def is_default(model: nn.Module, key: str, template: Template) -> bool:
    """Return whether a structure of constants is what the parameter holds if a call leaves
    it out."""
    default = inspect.signature(type(model).forward).parameters[key].default
    try:
        take_leaves(key, template, default, {})
    except ValueError:
        return False
    return True


def template_expression(template: Template) -> str:
    """Return the expression that puts a value together from its leaves."""
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


def leaf_names(template: Template) -> list[str]:
    """Return the names of a template's leaves, in order."""
    ((kind, inner),) = template.items()
    if kind in ("leaf", "value"):
        return [inner] if kind == "leaf" else []
    return [
        leaf
        for element_template in (inner.values() if kind == "dict" else inner)
        for leaf in leaf_names(element_template)
    ]


def build_wrapper(
    model: nn.Module, file: str, line: int, templates: dict[str, Template]
) -> nn.Module:
    """Return a network of the same name that takes the leaves one by one and calls `model`.

    Its source stands in no file, at the line of the original's.
    """
    parameters = list(inspect.signature(type(model).forward).parameters.values())[1:]
    declarations = [
        leaf
        for parameter in parameters
        if parameter.name in templates
        for leaf in leaf_names(templates[parameter.name])
    ]
    plain_parameters = [parameter for parameter in parameters if parameter.name not in templates]
    declarations += [
        parameter.name for parameter in plain_parameters if parameter.default is parameter.empty
    ]
    path = file.removesuffix(WRAPPER_SUFFIX)
    declarations += [
        text_of_parameter(parameter, path, line)
        for parameter in plain_parameters
        if parameter.default is not parameter.empty
    ]
    keywords = (
        f"{param.name}={template_expression(templates[param.name]) if param.name in templates else param.name}"  # noqa: E501
        for param in parameters
    )
    text = (
        "\n"
        * max(line - 5, 0)
        + f"class {type(model).__name__}(Module):\n    def __init__(self, network):\n       "
        " super().__init__()\n        self.network = network\n    def forward(self,"
        f" {', '.join(declarations)}):\n        return self.network({', '.join(keywords)})\n"
    )
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"Module": nn.Module, "__name__": type(model).__module__}
    exec(compile(text, file, "exec"), scope)
    wrapper: nn.Module = scope[type(model).__name__](model)
    wrapper.training = False  # `eval()` would reach into the model
    return wrapper


def unsupported_message(name: str, value: Any) -> str:
    return f"argument {name}: a {type(value).__name__} is not supported as an input"


def constant_text(value: Any) -> str | None:
    """Return a constant as text; None if the value is none."""
    code = None if isinstance(value, torch.Size) else literal(value)
    return None if code is None else ast.unparse(code)
