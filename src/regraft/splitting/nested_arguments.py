"""Arguments that hold tensors in lists, tuples and dictionaries, and a network that takes the
tensors one by one."""

from __future__ import annotations

import inspect
import linecache
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regraft.splitting.errors import Unsplittable, line_of_failure, line_of_forward
from regraft.splitting.preconditions import takes_any_keyword, text_of_parameter
from regraft.splitting.program.argument_templates import (
    Template,
    constant_text,
    leaf_names,
    make_template,
    split_call,
    take_leaves,
    template_expression,
    unsupported_message,
)
from regraft.splitting.program.residual_expressions import (
    WRAPPER_SUFFIX,
    file_of_wrapped,
    holds_tensor,
)


def unpack_arguments(
    model: nn.Module, path: str, calls: list[dict[str, Any]]
) -> tuple[nn.Module, list[dict[str, Any]], Packed | None]:
    """Return a network that takes the tensors in nested arguments one by one, its calls, and a
    Packed, which takes a user's arguments apart in the same way.

    The network is a wrapper that puts the arguments together and calls the original. Without nested
    tensors, and unless forward takes `**`, the original network, the original calls and None are
    returned. Raises Unsplittable for arguments that hold something else, and for calls of another
    structure than the first.
    """
    line = line_of_forward(model)
    try:
        nested = nested_arguments(calls[0])
        if not nested and not takes_any_keyword(model):
            return model, calls, None
        templates = make_templates(model, calls[0], nested)
    except TypeError as problem:
        raise Unsplittable(path, line, str(problem)) from problem
    optional = [
        key
        for key, template in templates.items()
        if not leaf_names(template) and is_default(model, key, template)
    ]
    unpacked_calls = []
    for number, call in enumerate(calls):
        try:
            unpacked_calls.append(split_call(templates, call))
        except ValueError as problem:
            raise Unsplittable(path, line, f"example call {number}: {problem}") from problem
    parameters = declared_parameters(model, calls[0])
    wrapper = build_wrapper(model, f"{path}{WRAPPER_SUFFIX}", line, parameters, templates)
    return wrapper, unpacked_calls, Packed(list(calls[0]), templates, optional)


def nested_arguments(call: dict[str, Any]) -> list[str]:
    """Return the names of a call's arguments that hold tensors, or are dictionaries.

    Raises TypeError for an argument that is neither such a one, nor a tensor, nor a constant.
    """
    plain_arguments = {
        key: value for key, value in call.items() if not isinstance(value, torch.Tensor)
    }
    nested = [
        key for key, value in plain_arguments.items() if holds_tensor(value) or type(value) is dict
    ]
    for key, value in plain_arguments.items():
        if key not in nested and constant_text(value) is None:
            raise TypeError(unsupported_message(key, value))
    return nested


def make_templates(
    model: nn.Module, call: dict[str, Any], nested: list[str]
) -> dict[str, Template]:
    """Return the templates of a call's nested arguments, whose leaves get names that nothing in the
    network's forward has.

    Raises TypeError if an argument holds something that is not supported.
    """
    code = inspect.unwrap(type(model).forward).__code__
    used_names = {*call, *code.co_varnames, *code.co_cellvars}
    return {key: make_template(key, call[key], used_names) for key in nested}


@dataclass(frozen=True)
class Packed:
    """The way to take a user's arguments apart: the names of the network's arguments, in order, and
    the templates of those that hold tensors.

    optional: those of the templates that hold constants alone, which are the parameters' defaults.
    """

    names: list[str]
    templates: dict[str, Template]
    optional: list[str]

    def parts(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call, by position and by name, taken apart: tensors in nested
        arguments by names of their own. Raises TypeError for missing, unknown or repeated
        arguments, ValueError for one of another structure."""
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


def check_unchanged(
    model: nn.Module, path: str, calls: list[dict[str, Any]], packed: Packed
) -> None:
    """Run the network on the calls, and refuse it with Unsplittable where it fails, or changes a
    list or dictionary that it gets, because the caller would see the change."""
    line = line_of_forward(model)
    for number, call in enumerate(calls):
        # snapshots keep their objects alive
        before = {key: snapshot(call[key]) for key in packed.templates}
        with torch.no_grad():
            try:
                model(**call)
            except Exception as problem:
                reason = f"the example call fails: {type(problem).__name__}: {problem}"
                line = line_of_failure(problem, path, line)
                raise Unsplittable(path, line, reason) from problem
        changed = [key for key in packed.templates if snapshot(call[key]) != before[key]]
        if changed:
            reason = f"example call {number}: forward changes what its argument {changed[0]} holds"
            raise Unsplittable(path, line, reason)


def snapshot(value: Any) -> Any:
    """Return lists for the dictionaries (pairs of key and value), lists and tuples of a structure,
    and an `Identity` for each object in them: equal as long as these hold the same objects."""
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
    """Return whether the default of parameter `key` of forward fits `template`, which holds
    constants alone, so that a call may leave the argument out."""
    parameter = inspect.signature(type(model).forward).parameters.get(key)
    if parameter is None:  # an argument that `**` takes
        return False
    try:
        take_leaves(key, template, parameter.default, {})
    except ValueError:
        return False
    return True


def declared_parameters(model: nn.Module, call: dict[str, Any]) -> list[inspect.Parameter]:
    """Return the parameters of the wrapper before its arguments are taken apart: those of the
    network's forward; where that takes `**`, the arguments of the call, without defaults."""
    if takes_any_keyword(model):
        return [inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD) for key in call]
    parameters = list(inspect.signature(type(model).forward).parameters.values())[1:]
    return [parameter for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]


def build_wrapper(
    model: nn.Module,
    file: str,
    line: int,
    parameters: list[inspect.Parameter],
    templates: dict[str, Template],
) -> nn.Module:
    """Return a network of the same name that takes the leaves one by one and calls `model`.

    Its source stands in no file, but in `linecache`, at the line of the original's. parameters:
    those of the wrapper before the arguments of `templates` are taken apart.
    """
    path = file_of_wrapped(file)
    declarations = wrapper_declarations(path, line, parameters, templates)
    keywords = (
        f"{param.name}={template_expression(templates[param.name]) if param.name in templates else param.name}"  # noqa: E501
        for param in parameters
    )
    return define_wrapper(
        model, file, declarations, [f"return self.network({', '.join(keywords)})"]
    )


def define_wrapper(
    network: nn.Module, file: str, declarations: list[str], statements: list[str]
) -> nn.Module:
    """Return a module of the same name as a network, which it holds as `network`.

    Its source stands in `linecache` under the name `file`, at the line of the network's forward.
    declarations: the parameters of its forward. statements: the lines of its forward.
    """
    name, line = type(network).__name__, line_of_forward(network)
    source_lines = [
        *[""] * max(line - 5, 0),
        f"class {name}(Module):",
        "    def __init__(self, network):",
        "        super().__init__()",
        "        self.network = network",
        f"    def forward(self, {', '.join(declarations)}):",
        *(f"        {statement}" for statement in statements),
    ]
    text = "\n".join([*source_lines, ""])
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"Module": nn.Module, "__name__": type(network).__module__}
    exec(compile(text, file, "exec"), scope)
    wrapper: nn.Module = scope[name](network)
    wrapper.training = False  # `eval()` would reach into the network
    return wrapper


def wrapper_declarations(
    path: str, line: int, parameters: list[inspect.Parameter], templates: dict[str, Template]
) -> list[str]:
    """Return the texts of a wrapper's parameters: the leaves of the arguments that are taken apart,
    then the others, those with a default last. path, line: the place of the original's."""
    leaves = [
        leaf
        for parameter in parameters
        if parameter.name in templates
        for leaf in leaf_names(templates[parameter.name])
    ]
    plain = [parameter for parameter in parameters if parameter.name not in templates]
    required = [parameter.name for parameter in plain if parameter.default is parameter.empty]
    optional = [
        text_of_parameter(parameter, path, line)
        for parameter in plain
        if parameter.default is not parameter.empty
    ]
    return [*leaves, *required, *optional]
