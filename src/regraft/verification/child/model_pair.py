"""Build a model from both versions, compare what construction leaves, give both the same weights,
and exchange their checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch

from regraft.execution.compare import are_alike
from regraft.verification.child import weights
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.initial_values import initial_difference, starts_alike
from regraft.verification.child.property_leaves import property_leaves
from regraft.verification.child.registered_hooks import hook_difference
from regraft.verification.child.result_comparison import describe_differences, is_close
from regraft.verification.child.session import Session, build_seeded
from regraft.verification.child.state_leaves import attribute_leaves
from regraft.verification.child.torch_modes import default_format

FEWEST = 64  # values from which on distributions are compared


@dataclass(slots=True)
class Pair:
    """The same model from both versions, in one number format. The float64 copy of the original is
    stored within `mode`."""

    original: Any
    changed: Any
    _exact: Any = None

    def exact(self, *, fresh: bool = False) -> Any:
        """Return the original in float64, stored after the first call within `mode`; with `fresh` a
        new copy, whose weights the caller may alter."""
        if fresh:
            return weights.copy_model(self.original).to(torch.float64)
        if self._exact is None:
            self._exact = weights.copy_model(self.original).to(torch.float64)
        return self._exact

    def cast(self, dtype: Any) -> Pair:
        """Return a pair of copies in another number format; for float32, a new pair of the models
        themselves."""
        if dtype == torch.float32:
            return Pair(self.original, self.changed)
        return Pair(
            weights.copy_model(self.original).to(dtype), weights.copy_model(self.changed).to(dtype)
        )

    @contextmanager
    def mode(self, training: bool, rate: float) -> Iterator[None]:
        """Switch both models to training or evaluation for good, and set their dropout rate to
        `rate` in the body. The stored float64 copy is dropped at both ends."""
        self._exact = None
        with ExitStack() as stack:
            for model in (self.original, self.changed):
                model.train(training)
                stack.enter_context(weights.set_dropout_rate(model, rate))
            yield
        self._exact = None


def build_both(subject: Subject, seed: int, session: Session) -> Pair | Difference | None:
    """Return both models with equal redrawn weights, or the first difference that building,
    attributes, state_dict and checkpoints show, or None where the original cannot be built.

    The session's state is rewound before. Levels of evidence that are reached ("builds",
    "state_dict") and the reason for None are noted in the ledger.
    """
    ledger = session.ledger
    session.rewind()
    original = _build_original(subject, seed, session)
    if original is None:
        return None
    try:
        with session.trace_changed("", f"build {subject.name}"), _fill_uninitialised():
            changed = build_seeded(seed, subject.build, session.changed)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; it is the finding
        return Difference(
            "", f"building {subject.name} from the changed version raises {shorten_error(error)}"
        )
    ledger.note_level("builds")
    difference = _fresh_difference(original, changed, session.strict)
    if difference is None and seed == 0:
        difference = _initial_difference(original, changed, subject, session)
    difference = difference or hook_difference(original, changed)
    difference = difference or _attribute_difference(original, changed, subject, seed, session)
    if difference is None and seed == 0 and not session.by_rules:
        difference = _difference_in_other_settings(subject, seed, session)
    if difference:
        return difference
    weights.redraw(original, seed)
    difference = _exchange_checkpoints(original, changed)
    if difference is None:
        ledger.note_level("state_dict")
    return difference or Pair(original, changed)


class _UnbuildableError(Exception):
    """The changed version of a model cannot be built where the original can; its cause is why."""


def _initial_difference(
    original: Any, changed: Any, subject: Subject, session: Session
) -> Difference | None:
    """Return the first difference of random initial values over several seeds, or the error of the
    changed version where it cannot be built with one of them, or None; also None where the original
    cannot be built with one of them or has other parameters, and where there was no difference in
    an earlier comparison of the subject. Adds to `session.widened`."""
    key = "", f"initial values of {subject.name} {subject.recipe}"
    if key in session.widened:
        return None

    def build(seed: int) -> tuple[Any, Any]:
        """Return the model of either version, built with a seed."""
        session.rewind()
        with _fill_uninitialised():
            original_model = build_seeded(seed, subject.build, session.original)
        session.rewind()
        try:
            with _fill_uninitialised():
                return original_model, build_seeded(seed, subject.build, session.changed)
        except Exception as error:
            raise _UnbuildableError(f"with seed {seed} raises {shorten_error(error)}") from error

    try:
        difference = initial_difference(original, changed, build, brief=bool(session.planted))
    except _UnbuildableError as error:
        difference = Difference("", f"building {subject.name} from the changed version {error}")
    except Exception:  # noqa: BLE001 - the first pair was built, and is compared
        difference = None
    finally:
        session.rewind()
    if difference is None and not session.planted:
        session.widened.add(key)
    return difference


def _difference_in_other_settings(
    subject: Subject, seed: int, session: Session
) -> Difference | None:
    """Return the first difference of both models right after construction with bfloat16 as the
    default number format, or an error of the changed version there and on the device "meta", or
    None: libraries build models so before they load a checkpoint. Settings in which the original
    cannot be built are left out."""
    settings = (
        ("with bfloat16 as the default number format", default_format(torch.bfloat16)),
        ('on the device "meta"', torch.device("meta")),
    )
    for text, setting in settings:
        session.rewind()
        with setting, _fill_uninitialised():
            try:
                original = build_seeded(seed, subject.build, session.original)
            except Exception:  # noqa: BLE001 - the original refuses the setting
                continue
            try:
                changed = build_seeded(seed, subject.build, session.changed)
            except Exception as error:  # noqa: BLE001 - arbitrary model code; it is the finding
                sentence = f"building {subject.name} from the changed version {text} raises"
                return Difference("", f"{sentence} {shorten_error(error)}")
        if not any(parameter.is_meta for parameter in _tensors_of(original)):
            difference = _fresh_difference(original, changed, session.strict)
            if difference is not None:
                return replace(difference, sentence=f"{text}, {difference.sentence}")
    session.rewind()
    return None


def _tensors_of(model: Any) -> Iterator[Any]:
    """Yield the parameters and buffers of a model."""
    yield from model.parameters()
    yield from model.buffers()


def _build_original(subject: Subject, seed: int, session: Session) -> Any:
    """Return the original's model, built with `seed`; None, with the reason noted in
    `ledger.skipped`, where its construction raises."""
    try:
        with (
            session.ledger.step("original", "", f"build {subject.name}"),
            session.trace_original(),
            _fill_uninitialised(),
        ):
            return build_seeded(seed, subject.build, session.original)
    except Exception as error:  # noqa: BLE001 - arbitrary model code; recorded as the reason to skip
        session.ledger.skip(
            f"{subject.name} ({subject.driver}): the original cannot be built:"
            f" {shorten_error(error)}"
        )
        return None


@contextmanager
def _fill_uninitialised() -> Iterator[None]:
    """Fill uninitialised memory (`torch.empty`) with NaN in the body, so that two builds agree on
    it; the debug mode of PyTorch is restored."""
    # `torch.use_deterministic_algorithms` would import the compiler, which takes seconds
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)


def _attribute_difference(
    original: Any, changed: Any, subject: Subject, seed: int, session: Session
) -> Difference | None:
    """Return the first difference of the plain attributes that construction leaves on the modules
    that are of one class in both versions, and of properties that an edit by hand changes, or None.

    Attributes that differ between two originals of different seeds depend on chance, and do not
    count. Where only results count, an attribute may be missing, but not hold another value: a rate
    of dropout, say.
    """
    scopes = session.original, session.changed
    differences = _describe_attribute_differences((original, changed), scopes, session)
    if differences:
        session.rewind()
        second_original = _build_original(subject, seed + 1, session)
        if second_original is not None:
            originals, scopes = (original, second_original), (session.original, session.original)
            random_differences = _describe_attribute_differences(originals, scopes, session)
            differences = {
                path: sentence
                for path, sentence in differences.items()
                if path not in random_differences
            }
    for path, sentence in differences.items():
        return Difference(path, f"after construction {sentence}")
    return None


def _describe_attribute_differences(
    models: tuple[Any, Any], scopes: tuple[ModuleType, ModuleType], session: Session
) -> dict[str, str]:
    """Return a sentence by path for each plain attribute that differs, and for each property of a
    changed class after an edit by hand, on modules that have the same path and class name in both
    models, each a model of its scope; a missing attribute counts only under the strict contract."""
    names = () if session.by_rules else session.ledger.unrefuted()
    differences: dict[str, str] = {}
    counterpart_modules = dict(models[1].named_modules())
    for path, module in models[0].named_modules():
        counterpart = counterpart_modules.get(path)
        if type(module).__qualname__ != type(counterpart).__qualname__:
            continue
        sides = tuple(zip((module, counterpart), scopes, strict=True))
        attributes = [attribute_leaves(side, path, scope) for side, scope in sides]
        properties = [property_leaves(side, path, scope, names) for side, scope in sides]
        differences.update(describe_differences(*attributes))
        differences.update(describe_differences(*properties))
    if session.strict:
        return differences
    return {path: text for path, text in differences.items() if not text.endswith(" is missing")}


def _fresh_difference(original: Any, changed: Any, strict: bool) -> Difference | None:
    """Return the first difference of two models right after construction, or None: names, shapes
    and formats of the state_dict, constant initial values, the distribution of random initial
    values, and buffers.

    Names of submodules without a part in the checkpoint count only where the comparison is
    `strict`.
    """
    difference = _name_difference(original, changed, strict)
    if difference:
        return difference
    original_state, changed_state = original.state_dict(), changed.state_dict()
    if sorted(original_state) != sorted(changed_state):
        missing = sorted(set(original_state) - set(changed_state))[:3]
        new = sorted(set(changed_state) - set(original_state))[:3]
        return Difference(
            "state_dict", f"the state_dict has other keys: missing {missing}, new {new}"
        )
    for name, value in original_state.items():
        changed_value = changed_state[name]
        if not isinstance(value, torch.Tensor):
            continue
        if not are_alike(value, changed_value):
            sentence = (
                f"{name} is {changed_value.dtype} {tuple(changed_value.shape)}, not {value.dtype}"
                f" {tuple(value.shape)}"
            )
            return Difference(name, f"in the state_dict {sentence}")
        constant = value.numel() > 0 and bool((value == value.flatten()[0]).all())
        if constant and not starts_alike(value, changed_value):
            return Difference(name, f"{name} starts with other values than the original's constant")
        if not constant and not _has_equal_distribution(value, changed_value):
            return Difference(name, f"{name} starts with values of another distribution")
    return _buffer_difference(dict(original.named_buffers()), dict(changed.named_buffers()))


def _name_difference(original: Any, changed: Any, strict: bool) -> Difference | None:
    """Return the first difference of the names by which callers reach into a model, or None:
    submodules that are gone or in another order (only if `strict`), parameters in their order, and
    whether they need gradients. New submodules do not count, and parameters only where the
    state_dicts have equal keys.

    Optimizers save their state by the order of the parameters. A submodule may be of another type;
    a subclass, say.
    """
    if strict:
        difference = _submodule_difference(original, changed)
        if difference:
            return difference
    original_names = [name for name, _ in original.named_parameters()]
    changed_names = [name for name, _ in changed.named_parameters()]
    if original_names != changed_names and sorted(original.state_dict()) == sorted(
        changed.state_dict()
    ):
        if sorted(original_names) == sorted(changed_names):
            return Difference(
                "parameters",
                f"the parameters have another order: {changed_names[:3]}, not {original_names[:3]}",
            )
        missing, new = (
            sorted(set(original_names) - set(changed_names))[:3],
            sorted(set(changed_names) - set(original_names))[:3],
        )
        return Difference("parameters", f"the parameters are others: missing {missing}, new {new}")
    requires_grad_by_name = {name: p.requires_grad for name, p in changed.named_parameters()}
    for name, parameter in original.named_parameters():
        if requires_grad_by_name.get(name, parameter.requires_grad) != parameter.requires_grad:
            return Difference(
                name,
                f"{name} has requires_grad={requires_grad_by_name[name]}, not"
                f" {parameter.requires_grad}",
            )
    return None


def _submodule_difference(original: Any, changed: Any) -> Difference | None:
    """Return the first submodule that is gone, or that comes earlier than another which it follows
    in the original (`children()` yields them in order), or None."""
    original_modules = dict(original.named_modules())
    changed_modules = dict(changed.named_modules())
    missing_paths = [path for path in original_modules if path not in changed_modules]
    if missing_paths:
        return Difference(missing_paths[0], f"the submodule {missing_paths[0]} is gone")
    common_paths = [path for path in changed_modules if path in original_modules]
    for path, changed_path in zip(original_modules, common_paths, strict=True):
        if path != changed_path:
            sentence = f"the submodule {changed_path} comes before {path}, in the original after it"
            return Difference(changed_path, f"{sentence} (--contract results accepts this)")
    return None


def _has_equal_distribution(value: Any, changed_value: Any) -> bool:
    """Return whether random initial values have one mean and spread; they may be drawn in another
    order. Integers, and fewer than `FEWEST` values, count as equal; False where NaN, which marks
    uninitialised elements, is elsewhere. Both are to lie within eight standard errors of each
    other, for distributions with tails no heavier than a Laplace's."""
    if not value.is_floating_point():
        return True
    initialised = ~value.isnan()  # uninitialised elements are NaN
    if not torch.equal(initialised, ~changed_value.isnan()):
        return False
    original_values, changed_values = (
        value[initialised].double(),
        changed_value[initialised].double(),
    )
    if torch.equal(original_values, changed_values) or value.numel() < FEWEST:
        return True
    spread, error = float(original_values.std()), 8 * math.sqrt(2 / value.numel())
    has_equal_means = abs(float(original_values.mean() - changed_values.mean())) <= error * spread
    return has_equal_means and abs(float(changed_values.std()) - spread) <= 1.5 * error * spread


def _buffer_difference(
    original_buffers: dict[str, Any], changed_buffers: dict[str, Any]
) -> Difference | None:
    """Return the first buffer of the original that is missing or has another initial value, or
    None; new buffers do not count."""
    for name, value in original_buffers.items():
        changed_value = changed_buffers.get(name)
        if not is_close(value, changed_value) or not starts_alike(value, changed_value):
            return Difference(name, f"the buffer {name} is missing or has another initial value")
    return None


def _exchange_checkpoints(original: Any, changed: Any) -> Difference | None:
    """Load each state_dict strictly into the model of the other version; both end with the
    original's values. Return a difference where loading raises or a value does not survive, or
    None."""
    try:
        changed.load_state_dict(original.state_dict(), strict=True)
    except Exception as error:  # noqa: BLE001 - load hooks are model code; it is the finding
        return Difference(
            "state_dict", f"the original's checkpoint does not load: {shorten_error(error)}"
        )
    expected = {
        name: value.clone()
        for name, value in original.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    try:
        original.load_state_dict(changed.state_dict(), strict=True)
    except Exception as error:  # noqa: BLE001 - load hooks are model code; it is the finding
        return Difference(
            "state_dict", f"the changed version's checkpoint does not load: {shorten_error(error)}"
        )
    returned_state = original.state_dict()
    wrong_names = [
        name for name, value in expected.items() if not torch.equal(value, returned_state[name])
    ]
    if wrong_names:
        return Difference(
            wrong_names[0], f"{wrong_names[0]} does not survive saving from the changed version"
        )
    return None
