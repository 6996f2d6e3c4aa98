"""Read and change the fields of objects that are configurations (dataclasses, named tuples,
namespaces and the like), and describe them for a reproducer."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import inspect
import json
from collections.abc import Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any

from torch import nn

from regraft.verification.child.drivers.field_tables import CONFIG_CLASSES, CONFIG_PARAMETERS

NESTED = "__config__"  # the key of a configuration inside another in a recipe
NAMESPACES = (SimpleNamespace, argparse.Namespace)


def is_config_class(value: Any) -> bool:
    """Return whether a value is a class of configurations.

    These are dataclasses, named tuples, classes of pydantic and attrs, namespaces, classes with a
    `from_dict`, and other classes with a usual name of a configuration. Modules, dictionaries,
    errors and enumerations are none.
    """
    if not isinstance(value, type) or issubclass(value, nn.Module | dict | BaseException | Enum):
        return False
    has_fields = any(
        hasattr(value, name)
        for name in ("__dataclass_fields__", "__attrs_attrs__", "model_fields", "from_dict")
    )
    is_named_tuple = issubclass(value, tuple) and hasattr(value, "_fields")
    return (
        issubclass(value, NAMESPACES)
        or has_fields
        or is_named_tuple
        or value.__name__ in CONFIG_CLASSES
    )


def is_config(value: Any) -> bool:
    """Return whether a value is an instance of a class of configurations, or has a `to_dict`."""
    if isinstance(value, type):
        return False
    return hasattr(value, "to_dict") or is_config_class(type(value))


def config_of(model: Any) -> Any:
    """Return the value of a model's `config`, whatever it is; else the first configuration in an
    attribute with a usual name (`CONFIG_PARAMETERS`); else the only configuration that the model
    holds. None where it holds none, or several under other names."""
    if hasattr(model, "config"):
        return model.config
    configs = {name: value for name, value in vars(model).items() if is_config(value)}
    named_configs = [value for name, value in configs.items() if name in CONFIG_PARAMETERS]
    if named_configs:
        return named_configs[0]
    return next(iter(configs.values())) if len(configs) == 1 else None


def has_own_fields(value: Any) -> bool:
    """Return whether a value is a configuration without a `to_dict`, whose fields are therefore its
    attributes."""
    return is_config(value) and not hasattr(value, "to_dict")


def field_defaults(cls: type) -> dict[str, Any]:
    """Return the fields of a class of configurations by name, each as the parameter of a function
    that has its annotation and default. Raises ValueError or TypeError for a class without a
    signature."""
    signature = inspect.signature(cls)
    variadic_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    class_values = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value)
        for name, value in _plain_class_attributes(cls).items()
    }
    return class_values | {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind not in variadic_kinds
    }


def fields_of(config: Any) -> dict[str, Any]:
    """Return the fields of a configuration by name, in a new dictionary.

    They are the result of `to_dict` if there is one. Otherwise, of a class that declares its fields
    they are those that the constructor takes, without the ones that the class computes; of any
    other class all attributes of the object, with plain attributes of the class.
    """
    cls = type(config)
    if hasattr(config, "to_dict"):
        return dict(config.to_dict())
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls) if field.init]
    elif hasattr(cls, "__attrs_attrs__"):
        return {  # a private attribute is a parameter without its underscore
            attribute.name.lstrip("_"): getattr(config, attribute.name)
            for attribute in cls.__attrs_attrs__
            if attribute.init
        }
    elif hasattr(cls, "model_fields"):
        names = list(cls.model_fields)
    elif isinstance(config, tuple):
        names = list(getattr(cls, "_fields", ()))
    else:
        return {**_plain_class_attributes(cls), **vars(config)}
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def _plain_class_attributes(cls: type) -> dict[str, Any]:
    """Return by name the public attributes of a class and of its bases that are plain values or
    None; {} for a dataclass, and for a class whose name is none of `CONFIG_CLASSES`."""
    if cls.__name__ not in CONFIG_CLASSES or dataclasses.is_dataclass(cls):
        return {}
    return {
        name: value
        for base in reversed(cls.__mro__[:-1])
        for name, value in vars(base).items()
        if not name.startswith("_") and isinstance(value, bool | int | float | str | None)
    }


def make_config(cls: Any, fields: Mapping[str, Any]) -> Any:
    """Return a configuration of a class with some fields.

    Fields that the constructor does not take are set as attributes. Raises what the constructor or
    the assignment raises.
    """
    if issubclass(cls, NAMESPACES):
        return cls(**fields)
    parameters = inspect.signature(cls).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    arguments = {key: value for key, value in fields.items() if takes_any or key in parameters}
    config = cls(**arguments)
    for name, value in fields.items():
        if name not in arguments:
            setattr(config, name, value)
    return config


def with_fields(config: Any, override: Mapping[str, Any]) -> Any:
    """Return a copy of a configuration with other values of fields; a mapping in the place of a
    nested configuration changes the fields of that one.

    The copy is made by the constructor where the configuration has no `to_dict`, so that attributes
    which follow from fields are computed anew. Where the class refuses the values, they are set as
    attributes without its checks: a model may take more than its configuration allows. Raises the
    error of the constructor for a named tuple, which cannot be changed.
    """
    new_values = {
        name: _nested_with_fields(getattr(config, name, None), value)
        for name, value in override.items()
    }
    if has_own_fields(config) and not isinstance(config, NAMESPACES):
        try:
            return make_config(type(config), {**copy.deepcopy(fields_of(config)), **new_values})
        except Exception:  # a class that checks its fields; its models may take more
            if isinstance(config, tuple):
                raise
    changed = copy.deepcopy(config)
    for name, value in new_values.items():
        try:
            setattr(changed, name, value)
        except Exception:  # noqa: BLE001 - a configuration that checks what it is given; the class may take more
            vars(changed)[name] = value
    return changed


def _nested_with_fields(nested: Any, value: Any) -> Any:
    """Return the new value of a field: `value` itself, or, where it is a mapping and `nested`, the
    present value, a configuration, a copy of that with the fields of the mapping that differ."""
    if not isinstance(value, Mapping) or nested is None or not is_config(nested):
        return value
    old_fields = fields_of(nested)
    return with_fields(
        nested,
        {name: field for name, field in value.items() if field != old_fields.get(name)},
    )


def class_recipe(
    name: str, arguments: Mapping[str, Any], **apart: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the description from which a reproducer calls the class or function `name` of the
    file: its arguments under "values", but for configurations, each of which has a description of
    its own under "configs", and for those that `apart` describes, each group under its name; {}
    where another argument has no form in JSON, such as a partial call."""
    described = {key for group in apart.values() for key in group}
    configs = {key: recipe_of(value) for key, value in arguments.items() if is_config(value)}
    plain = {
        key: value
        for key, value in arguments.items()
        if key not in described and key not in configs
    }
    try:
        json.dumps(plain)
    except (TypeError, ValueError):
        return {}
    return {"kind": "class", "name": name, "values": plain, "configs": configs, **apart}


def recipe_of(config: Any) -> list[Any]:
    """Return the list of module, class name and fields from which a reproducer makes a
    configuration.

    Where a configuration without `to_dict` holds others, each of these is `{NESTED: recipe}`; the
    result of a `to_dict` is taken as it is.
    """
    fields = fields_of(config)
    if not hasattr(config, "to_dict"):
        fields = {
            name: {NESTED: recipe_of(value)} if is_config(value) else value
            for name, value in fields.items()
        }
    return [type(config).__module__, type(config).__name__, fields]
