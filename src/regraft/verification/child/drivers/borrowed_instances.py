"""Build and call a class of the file as a model in another file of the repository does.

A file of layers says little about their arguments; a file that imports a layer builds it with
values that fit, and calls it with tensors that fit. So its models are built with guessed values, as
those of the file itself are, and the values and calls of the layer are recorded.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.checks.argument_variants import signature_of
from regraft.verification.child.drivers import parts_driver, source_hints, values_in_repository
from regraft.verification.child.drivers.argument_slots import Dim, Slot, Spec
from regraft.verification.child.drivers.class_instances import Instance, builder_of
from regraft.verification.child.drivers.driver_protocol import yield_until_error
from regraft.verification.child.drivers.input_guesses import AcceptedInputs
from regraft.verification.child.file_import import load_with_all_modules
from regraft.verification.child.running_classes import is_module_class
from regraft.verification.child.session import Session, build_seeded

FILES = 4  # the most files that are imported for a class
CLASSES = 2  # the most classes of such a file that are tried
SECONDS = 30.0  # of CPU time, for all of them
_LOOPS = (ast.For, ast.While, ast.With, ast.AsyncFor, ast.AsyncWith)
# Finds an instance of a class in a module with a source; None where none accepts inputs.
Finder = Callable[[type, ModuleType, str], Instance | None]


def borrowed_instance(cls: type, find: Finder, session: Session) -> Instance | None:
    """Return a class of the file with the values and calls that a model of another file of the
    repository has for it; None where no model that `find` builds calls it.

    At most `FILES` files that import the class are imported, those in the folder of the file first;
    errors are recorded in the ledger. Files with loops at the top level, which may be scripts, are
    left out.
    """
    deadline = session.ledger.deadline_within(SECONDS)
    path = Path(str(session.original.__file__))
    for user in _importing_files(path, cls.__name__)[:FILES]:
        if time.process_time() > deadline:
            break
        instances = _instances_in(user, cls, find, session)
        for instance in yield_until_error(
            instances, session.ledger, f"{cls.__name__} as {user.name} calls it (inference)"
        ):
            return instance
    return None


def _importing_files(path: Path, name: str) -> list[Path]:
    """Return the other Python files of the repository that name a class of the file in a class of
    their own and import the file or its package, by the look of their text."""
    places = "|".join(map(re.escape, (path.stem, path.parent.name, name)))
    imports = re.compile(rf"^\s*(from|import)\b.*(\b({places})\b|import\s+\*|from\s+\.)", re.M)
    named = re.compile(rf"\b{re.escape(name)}\b")
    texts = (
        (file, values_in_repository.text_of(file))
        for file in values_in_repository.files_around(path)
        if file.suffix == ".py" and file != path.resolve()
    )
    return [
        file
        for file, text in texts
        if named.search(text) and imports.search(text) and _class_names(name, text)
    ]


def _class_names(name: str, text: str) -> list[str]:
    """Return the classes of a text that use a name, directly or through others, those that the
    fewest names use first; [] where it does not parse or has loops at its top level."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    if any(isinstance(statement, _LOOPS) for statement in statements):
        return []
    users = source_hints.names_leading_to(frozenset({name}), text) - {name}
    names = [
        statement.name
        for statement in statements
        if isinstance(statement, ast.ClassDef) and statement.name in users
    ]
    number_of_users = {
        name: len(source_hints.names_leading_to(frozenset({name}), text)) for name in names
    }
    return sorted(names, key=lambda name: number_of_users[name])


def _instances_in(path: Path, cls: type, find: Finder, session: Session) -> Iterator[Instance]:
    """Import a file and yield the class as its models build and call it, for each model that is
    found; nothing where the file does not use this class."""
    text = values_in_repository.text_of(path)
    with session.ledger.step("original", "", f"import {path.name}"):
        module = load_with_all_modules(path)
        _rebind(module, session.original)
    if not any(value is cls for value in vars(module).values()) and not any(
        getattr(value, cls.__name__, None) is cls
        for value in vars(module).values()
        if isinstance(value, ModuleType)
    ):
        return
    for name in _class_names(cls.__name__, text)[:CLASSES]:
        user = getattr(module, name, None)
        if is_module_class(user):
            instance = find(user, module, text)
            if instance is not None:
                yield from _borrowed(instance, module, cls, session)


def _rebind(module: ModuleType, original: ModuleType) -> None:
    """Bind names of a module that are bound to a second copy of the original, or to a definition of
    one, to the original's own: a file outside of a package is imported under another name."""
    path = original.__file__
    for name, value in list(vars(module).items()):
        if isinstance(value, ModuleType):
            if value is not original and getattr(value, "__file__", None) == path:
                setattr(module, name, original)
            continue
        home = inspect.getmodule(value) if isinstance(value, type) or callable(value) else None
        if home is not None and home is not original and getattr(home, "__file__", "") == path:
            own_name = getattr(value, "__name__", "")
            setattr(module, name, getattr(original, own_name, value))


def _borrowed(
    user: Instance, module: ModuleType, cls: type, session: Session
) -> Iterator[Instance]:
    """Build and run a model of another file's module, and yield the first called part of the class
    `cls` with its values and calls; nothing where the model calls no such part."""
    values_by_part: dict[int, dict[str, Any] | None] = {}

    def build(_: ModuleType) -> Any:
        """Return the other file's model, and record the values of the parts."""
        with _recorded_constructions(cls, values_by_part):
            return user.build(module)

    model = parts_driver.WholeModel(user.name, build, {}, user.accepted.spec)
    for part, calls in parts_driver.borrow_calls(model, [cls.__name__], session):
        values = values_by_part.get(id(part))
        if type(part) is cls and values is not None:
            _check_rebuilt(part, values, session)
            accepted = AcceptedInputs(_spec_of(part, calls.by_size(0)), calls.sizes)
            yield Instance(cls.__name__, values, accepted, calls)


def _check_rebuilt(part: Any, values: Mapping[str, Any], session: Session) -> None:
    """Raise ValueError where the recorded values build another part: one whose weights have other
    names or shapes."""
    rebuilt = build_seeded(0, builder_of(type(part).__name__, values), session.original)
    shapes, own_shapes = (
        {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
        for module in (rebuilt, part)
    )
    if shapes != own_shapes:
        raise ValueError("the recorded arguments of its constructor build other weights")


@contextmanager
def _recorded_constructions(
    cls: type, values_by_part: dict[int, dict[str, Any] | None]
) -> Iterator[None]:
    """Record the arguments of the constructor, by parameter, of each instance of a class that is
    built within the context; None for one with arguments in `*args` or `**kwargs`."""
    constructor = inspect.getattr_static(cls, "__init__")
    signature = inspect.signature(constructor)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        """Record the arguments of an instance and construct it."""
        if type(self) is cls:
            values = _by_parameter(signature, args, kwargs)
            # the constructor may change what it gets
            values_by_part[id(self)] = (
                copy.deepcopy(values) if _is_named(values, signature) else None
            )
        constructor(self, *args, **kwargs)

    with mock.patch.object(cls, "__init__", construct):
        yield


def _is_named(values: Mapping[str, Any] | None, signature: inspect.Signature) -> bool:
    """Return whether all arguments have parameters of their own: of those in `**kwargs` nothing
    tells where they are read."""
    return values is not None and values.keys() <= signature.parameters.keys()


def _by_parameter(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the arguments of a call by parameter; None where some are in `*args` or the signature
    does not fit."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    values: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return None
        values.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return values


def _spec_of(part: Any, call_by_size: Mapping[tuple[int, int], Call]) -> Spec:
    """Return a description of the inputs of a part's calls, each recorded at a size, (batch,
    length): which dimensions are fixed, and which follow the batch or the length."""
    signature = signature_of(part)
    arguments = [_by_parameter(signature, call.args, call.kwargs) for call in call_by_size.values()]
    complete = [values for values in arguments if values is not None]
    sizes = list(call_by_size)
    return {
        name: _slot_of([values[name] for values in complete if name in values], sizes)
        for name in (complete[0] if complete else ())
    }


def _slot_of(values: Sequence[Any], sizes: Sequence[tuple[int, int]]) -> Slot:
    """Return the slot of an argument that has some values, each at a size; the first value itself
    where it is no tensor, or where its dimensions follow no size."""
    first = values[0]
    if not isinstance(first, torch.Tensor):
        return Slot("plain", value=first)
    shapes = [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]
    if len({len(shape) for shape in shapes}) > 1 or len(shapes) != len(values):
        return Slot("plain", value=first)
    dims = [_dim_of(lengths, sizes) for lengths in zip(*shapes, strict=True)]
    expressed = tuple(dim for dim in dims if dim is not None)
    if len(expressed) < len(dims):
        return Slot("plain", value=first)
    if first.is_floating_point():
        return Slot("normal", expressed)
    if first.dtype is torch.bool:
        return Slot("bool", expressed)
    largest = max((int(value.max()) for value in values if value.numel()), default=0)
    return Slot("ids", expressed, largest + 1, lowest=0)


def _dim_of(lengths: Sequence[int], sizes: Sequence[tuple[int, int]]) -> Dim | None:
    """Return the dimension that has some lengths, each at a size, (batch, length); None where it
    follows neither."""
    if len(set(lengths)) == 1:
        return Dim(lengths[0])
    candidates = []
    for position, name in enumerate(("batch", "length")):
        step = sizes[1][position] - sizes[0][position]
        factor = (lengths[1] - lengths[0]) // step if step else 0
        dim = Dim(factor, name, lengths[0] - factor * sizes[0][position])
        if factor and all(
            dim.at(size) == length for size, length in zip(sizes, lengths, strict=False)
        ):
            candidates.append(dim)
    return min(candidates, key=lambda dim: abs(dim.extra), default=None)
