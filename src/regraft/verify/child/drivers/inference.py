"""Bring plain classes and functions to life by guessing constructor values and inputs from names."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.drivers.guess import HEADS, HIDDEN, value_for
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, seeded
from regraft.verify.child.tree import Call

SIZES = ((1, 5), (3, 8))
_SHAPES: tuple[Callable[[int, int, int], tuple[int, ...]], ...] = (
    lambda b, t, h: (b, t, h),
    lambda b, _, h: (b, h),
    lambda b, t, h: (b, HEADS, t, max(1, h // HEADS)),
    lambda b, t, h: (b, h, t, t),
    lambda b, t, h: (b, h, t),
    lambda b, t, h: (b, 3, 4 * t, 4 * t),
    lambda b, t, h: (h,),
)


class FunctionModule(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Lets a function of a module be run, recorded and compared as a model."""

    def __init__(self, module: ModuleType, name: str) -> None:
        super().__init__()
        self._module_of_function = (module,)
        self._name_of_function = name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._module_of_function[0], self._name_of_function)(*args, **kwargs)

    def __deepcopy__(self, _: Any) -> FunctionModule:
        return FunctionModule(self._module_of_function[0], self._name_of_function)


def subjects(session: Session, source: str) -> Iterator[Subject]:
    """Yield a subject for every definition and relative that still needs one and for which values can be guessed.

    `source` is the original text: the attributes that it reads from `config` are what a made-up one offers.
    """
    attributes = _config_attributes(source)
    for change in session.uncovered():
        value = getattr(session.original, change.definition, None)
        if isinstance(value, FunctionType):
            yield from _function_subjects(change.definition, value, session)
        elif isinstance(value, type) and issubclass(value, nn.Module):
            yield from _class_subjects(change.definition, value, attributes, session)
    for relative in session.unmet():
        value = getattr(session.original, relative.name, None)
        if relative in session.unmet() and isinstance(value, type) and issubclass(value, nn.Module):
            yield from itertools.islice(_class_subjects(relative.name, value, attributes, session), 1)


def _class_subjects(name: str, cls: type, attributes: tuple[str, ...], session: Session) -> Iterator[Subject]:
    try:
        values = _constructor_values(cls, attributes)
    except LookupError as error:
        session.ledger.skip(f"{name} (inference): {error}")
        return
    for changed_values in _flag_variants(values):
        if session.done() and changed_values is not values:
            return
        subject = _class_subject(name, changed_values, session)
        if subject is not None:
            yield subject


def _class_subject(name: str, values: dict[str, Any], session: Session) -> Subject | None:
    def build(module: ModuleType) -> Any:
        return getattr(module, name)(**{key: _revived(value) for key, value in values.items()})

    try:
        model = seeded(0, build, session.original)
    except Exception as error:  # noqa: BLE001 - guessed values may not fit; recorded as the reason to skip
        session.ledger.skip(f"{name} (inference): cannot be built from {values}: {type(error).__name__}: {error}")
        return None
    calls = _find_calls(model, inspect.signature(model.forward), _width(model), session, name)
    if calls is None:
        return None
    recipe = {"kind": "class", "name": name, "values": values}
    shown = ", ".join(f"{key}={value!r}" for key, value in values.items() if key != "config")
    return Subject(f"{name}({shown})", "inference", build, calls, recipe)


def _revived(value: Any) -> Any:
    return SimpleNamespace(**value) if isinstance(value, dict) else value


def _flag_variants(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the values, then each with one flag flipped or another activation."""
    yield values
    flat: list[tuple[tuple[str, ...], Any]] = [((key,), value) for key, value in values.items()]
    flat += [(("config", key), value) for key, value in (values.get("config") or {}).items()]
    for path, value in flat:
        for other in _alternatives(value):
            if len(path) == 1:
                yield {**values, path[0]: other}
            else:
                yield {**values, "config": {**values["config"], path[1]: other}}


def _alternatives(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, str):
        return tuple(other for other in ("gelu", "relu", "silu") if other != value)
    return ()


def _constructor_values(cls: type, attributes: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for parameter in _parameters(inspect.signature(cls)):
        if parameter.name == "config" and parameter.default is parameter.empty:
            values["config"] = _config_values(attributes)
        elif parameter.default is parameter.empty:
            values[parameter.name] = value_for(parameter.name, _annotation(parameter))
        elif isinstance(parameter.default, bool | int | float | str):
            values[parameter.name] = parameter.default
    return values


def _config_values(attributes: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in attributes:
        try:
            values[name] = value_for(name)
        except LookupError:
            values[name] = None  # an attribute that the class may not read; a wrong guess shows when it is built
    return values


def _config_attributes(source: str) -> tuple[str, ...]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    return tuple(sorted({node.attr for node in nodes if ast.unparse(node.value) in ("config", "self.config")}))


def _parameters(signature: inspect.Signature) -> list[inspect.Parameter]:
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in signature.parameters.values() if p.kind not in skipped and p.name != "self"]


def _annotation(parameter: inspect.Parameter) -> str:
    note = parameter.annotation
    return getattr(note, "__name__", str(note)).replace(" ", "").replace("|None", "")


def _width(model: Any) -> int:
    for name, parameter in model.named_parameters():
        if parameter.dim() <= 2 and not name.endswith("bias"):
            return int(parameter.shape[-1])
    return HIDDEN


def _function_subjects(name: str, function: FunctionType, session: Session) -> Iterator[Subject]:
    def build(module: ModuleType) -> Any:
        return FunctionModule(module, name)

    calls = _find_calls(build(session.original), inspect.signature(function), HIDDEN, session, name)
    if calls is not None:
        yield Subject(f"{name}(...)", "inference", build, calls, {"kind": "function", "name": name})


def _find_calls(
    model: Any, signature: inspect.Signature, width: int, session: Session, name: str
) -> Callable[[int], tuple[Call, ...]] | None:
    """Try shapes until the original accepts them."""
    wanted = [p for p in _parameters(signature) if p.default is p.empty]
    tensors = [p.name for p in wanted if not _is_plain(p)]
    reasons = []
    for shapes in _shape_choices(len(tensors)):

        def calls(seed: int, shapes: tuple[Any, ...] = shapes) -> tuple[Call, ...]:
            named = [{n: s(*size, width) for n, s in zip(tensors, shapes, strict=True)} for size in SIZES]
            return tuple(_call(wanted, made, size, seed) for made, size in zip(named, SIZES, strict=True))

        try:
            outcomes = [execute(Target(model), call, Plan(gradients=False)) for call in calls(0)]
        except LookupError as error:
            session.ledger.skip(f"{name} (inference): {error}")
            return None
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if not errors:
            return calls
        reasons.append(f"{type(errors[0]).__name__}: {str(errors[0])[:120]}")
    session.ledger.skip(f"{name} (inference): no inputs could be guessed: {reasons[0] if reasons else 'no shapes'}")
    return None


def _shape_choices(count: int) -> Iterator[tuple[Any, ...]]:
    yield from (tuple([shape] * count) for shape in _SHAPES)
    if 1 < count <= 3:
        yield from itertools.product(_SHAPES, repeat=count)


def _is_plain(parameter: inspect.Parameter) -> bool:
    if _annotation(parameter) in ("int", "float", "bool", "str"):
        return True
    names = ("eps", "epsilon", "dim", "p", "dropout", "training", "scale", "scaling", "n_rep")
    return parameter.name in names or parameter.name.startswith(("num_", "is_"))


def _call(
    wanted: list[inspect.Parameter], shapes: dict[str, tuple[int, ...]], size: tuple[int, int], seed: int
) -> Call:
    generator = torch.Generator().manual_seed(seed)
    values: dict[str, Any] = {}
    for parameter in wanted:
        if parameter.name in shapes:
            values[parameter.name] = _tensor(parameter.name, shapes[parameter.name], size, generator)
        elif parameter.name == "dim":
            values["dim"] = -1
        else:
            values[parameter.name] = value_for(parameter.name, _annotation(parameter))
    return Call((), values, f"batch {size[0]}, length {size[1]}")


def _tensor(name: str, shape: tuple[int, ...], size: tuple[int, int], generator: Any) -> Any:
    if name.endswith("ids"):
        return torch.randint(3, 90, size, generator=generator)
    if name in ("weight", "bias", "gamma", "beta"):
        return torch.randn(shape[-1:], generator=generator)
    return torch.randn(shape, generator=generator)
