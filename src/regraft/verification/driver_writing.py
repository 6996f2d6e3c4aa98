"""Write a driver for a file: a function that builds one of its models, and calls of the model."""

from __future__ import annotations

import ast
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2

from regraft.verification.child_job import check_packages, read_result
from regraft.verification.child_process import run_child
from regraft.verification.containment import Containment
from regraft.verification.containment_hints import with_hint
from regraft.verification.parent_process import MEMORY_LIMIT
from regraft.verification.readable_files import readable_paths
from regraft.verification.types import VerifyError

_SECONDS = 120.0  # on the clock, for building the model and finding its inputs
_TEMPLATE = Path(__file__).with_name("driver_template.txt")


@dataclass(frozen=True, slots=True)
class DriverFile:
    """The text of a driver's file with the function `build`, the class that it builds, and what a
    person has to fill in: a sentence for each gap."""

    text: str
    class_name: str
    gaps: tuple[str, ...]


def driver_for(
    path: Path,
    target: Path,
    class_name: str = "",
    *,
    python: str = sys.executable,
    containment: Containment = Containment(),
    on_start: Callable[[], None] | None = None,
) -> DriverFile:
    """Return the driver, to be written to `target`, that builds a class of a file as the verifier
    brings it to life without a driver; by default the class that contains most of the others.

    What could not be guessed is marked with TODO. Runs the file in a child process of `python`,
    under `containment`; `on_start` is called before. Raises VerifyError where the file does not
    import, or has no such class, and where a required sandbox is not to be had.
    """
    containment.check()
    containment = replace(containment, readable=readable_paths(path.resolve(), None))
    if on_start is not None:
        on_start()
    facts = _describe(path, class_name, python, containment)
    if "error" in facts:
        class_names = f"; it has {', '.join(facts['classes'])}" if facts.get("classes") else ""
        error = with_hint(facts["error"], containment, MEMORY_LIMIT)
        raise VerifyError(f"{error}{class_names}", file=str(path))
    gaps = tuple(_gaps(facts))
    template = jinja2.Template(_TEMPLATE.read_text("utf-8"), trim_blocks=True, lstrip_blocks=True)
    inputs = _required_inputs(path, facts["class"])
    text = template.render(facts, file=str(path), driver=str(target), gaps=gaps, inputs=inputs)
    return DriverFile(f"{text.rstrip()}\n", facts["class"], gaps)


def _describe(path: Path, class_name: str, python: str, containment: Containment) -> dict[str, Any]:
    """Run a child that describes a class of a file (`child/class_description.py`), and return the
    description as its JSON values. Raises VerifyError where the child does not finish or has no
    torch."""
    with tempfile.TemporaryDirectory(prefix="regraft-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        request = {"original": str(path.resolve()), "class": class_name, "seconds": _SECONDS}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        child_exit = run_child(
            python, folder, _SECONDS, MEMORY_LIMIT, ("torch",), None, containment
        )
        if child_exit.how != "finished":
            reason = f"it was not brought to life: {child_exit.cause}{child_exit.last_line}"
            raise VerifyError(reason, file=str(path))
        result = read_result(folder)
    check_packages(result, python)
    return result


def _required_inputs(path: Path, class_name: str) -> tuple[str, ...]:
    """Return the names of the parameters without a default of the `forward` that the source of a
    class has; ("x",) where it has none."""
    tree = ast.parse(path.read_bytes())
    for definition in ast.walk(tree):
        if not isinstance(definition, ast.ClassDef) or definition.name != class_name:
            continue
        for method in definition.body:
            if isinstance(method, ast.FunctionDef) and method.name == "forward":
                return _names_without_default(method.args) or ("x",)
    return ("x",)


def _names_without_default(parameters: ast.arguments) -> tuple[str, ...]:
    """Return the names of the parameters of a method that have no default, but `self`."""
    positional = [*parameters.posonlyargs, *parameters.args]
    required = positional[1 : len(positional) - len(parameters.defaults)]
    keywords = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    return tuple(
        parameter.arg
        for parameter in (*required, *(name for name, default in keywords if default is None))
    )


def _gaps(facts: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each gap in a description: why the class was not brought to life, and
    the types whose values cannot be written as source."""
    gaps = [f"{facts['class']}: {facts['reason']}"] if facts["reason"] else []
    gaps += [f"a value of type {name} has no source" for name in facts["unknown"]]
    return gaps
