"""Describe in Python source how a class of a file is built and called, as far as guesses lead."""

from __future__ import annotations

import inspect
import json
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regraft.verification.child.checks.replaced_functions import FunctionsSnapshot
from regraft.verification.child.drivers import source_hints
from regraft.verification.child.drivers.class_instances import Instance
from regraft.verification.child.drivers.guessed_instances import instance_or_failure
from regraft.verification.child.drivers.instance_variations import FileFacts
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.file_import import load_original
from regraft.verification.child.judge_process import Judge
from regraft.verification.child.line_tracing import Tracer
from regraft.verification.child.running_classes import module_classes
from regraft.verification.child.session import Session
from regraft.verification.child.session_start import advice_for
from regraft.verification.child.source_of_values import UNKNOWN, SourceWriter


def describe(folder: Path, request: Mapping[str, Any]) -> None:
    """Write to `folder`/result.json how the class `request["class"]` ("" for the one that contains
    most of the file's classes) of the file `request["original"]` is built and called, as Python
    source, or under "error" the reason why that cannot be described. `request["seconds"]` limits
    the processor time. The file is imported into this process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    deadline = time.process_time() + float(request["seconds"])
    source = Path(request["original"])
    try:
        module = load_original(source)
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; it is the answer
        result: dict[str, Any] = {
            "error": f"it does not import: {shorten_error(error)}{advice_for(error, source)}"
        }
    else:
        ledger = Ledger(folder, (), deadline)
        session = Session.start(
            module, module, (), Tracer("", ()), ledger, Judge(), FunctionsSnapshot()
        )
        result = _description(session, request["class"])
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def _description(session: Session, name: str) -> dict[str, Any]:
    """Return the description of a class of a file as JSON values with the keys "class",
    "arguments", "calls", "reason" (why no instance was built and called, else ""), "imports" and
    "unknown"; or only an "error", with the file's "classes" where the name is not among them."""
    classes = module_classes(session.original)
    if not classes:
        return {"error": "it defines no subclass of torch.nn.Module"}
    if name and name not in classes:
        return {
            "error": f"it has no subclass of torch.nn.Module called {name!r}",
            "classes": [*classes],
        }
    text = inspect.getsource(session.original)
    chosen = name or _outermost(classes, text)
    facts = FileFacts(text, source_hints.hints(text, text), ())
    outcome = instance_or_failure(chosen, classes[chosen], facts, session)
    writer = SourceWriter(session.original)
    if isinstance(outcome, Instance):
        calls = [_source_of_call(call, writer) for call in outcome.calls(0)]
        values, reason = outcome.values, ""
    else:
        failure, guess = outcome
        calls, values, reason = [], guess.values, " ".join(failure.reason.split())
    arguments = {key: writer.expression(value) for key, value in values.items()}
    if reason:
        arguments = {**_missing_arguments(classes[chosen], arguments), **arguments}
    return {
        "class": chosen,
        "arguments": arguments,
        "calls": calls,
        "reason": reason,
        "imports": sorted(writer.imports),
        "unknown": sorted(set(writer.unknown)),
    }


def _outermost(classes: Mapping[str, type], text: str) -> str:
    """Return the name of the class of a file's text that most of the file's classes lead to, as its
    parts; of several such classes, the last."""
    outer_names = (source_hints.names_leading_to(frozenset({name}), text) for name in classes)
    counts = Counter(name for names in outer_names for name in names)
    return max(reversed([*classes]), key=lambda name: counts[name])


def _source_of_call(call: Any, writer: SourceWriter) -> str:
    """Return a call as source text: a dictionary of its keyword arguments where it has some
    (positional ones are left out), else a tuple of its positional arguments."""
    return writer.expression(dict(call.kwargs) if call.kwargs else tuple(call.args))


def _missing_arguments(cls: type, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return `...` for each required parameter of a constructor that is not in `arguments`; *args
    and **kwargs do not count."""
    variadic_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: UNKNOWN
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in variadic_kinds
        and name not in arguments
    }
