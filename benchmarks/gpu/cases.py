"""Calls of Regraft's ops, each with the plain composition that it replaces, on a fake device."""

from __future__ import annotations

import functools
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

WORTH = Path(__file__).parent.parent / "worth"
sys.path.insert(0, str(WORTH))

import rules as worth  # noqa: E402  the measurement of rules, whose subjects these are

CUDA = torch.device("cuda")
# Subjects of which neither version runs without values, with the reason.
VALUE_DEPENDENT = {
    "torch/experts": "on CUDA both versions ask the device how many rows each expert has",
}
Call = Callable[[], Any]


class CaseError(Exception):
    """A call and its composition differ in what they return; one sentence says how."""


@dataclass(frozen=True, slots=True)
class Version:
    """A call, the tensors whose gradients it gives, and its arguments."""

    call: Call
    leaves: list[torch.Tensor]
    arguments: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """A call of an op on a fake device, and the composition that it replaces.

    make      makes the tensors and returns both versions: the op's, and the composition
    training  whether gradients are computed
    twice     whether gradients of gradients are computed, too
    """

    name: str
    make: Callable[[], tuple[Version, Version]]
    training: bool = True
    twice: bool = False


def check(case: Case) -> None:
    """Run both versions of a case; raise CaseError where the shapes, dtypes or devices of results
    or gradients differ."""
    ours, plain = (run(version, case) for version in case.make())
    if ours != plain:
        raise CaseError(f"the op gives {', '.join(ours)}; the composition {', '.join(plain)}")


def run(version: Version, case: Case) -> list[str]:
    """Return what a call gives: words for its results and its gradients."""
    leaves = version.leaves
    # cuDNN's recurrent layers ask the device for random numbers
    with torch.set_grad_enabled(case.training), torch.backends.cudnn.flags(enabled=False):
        outputs = tree_leaves(version.call())
        tensors = [output for output in outputs if isinstance(output, torch.Tensor)]
        words = [words_of(tensor) for tensor in tensors]
        if not case.training:
            return words
        results = [tensor for tensor in tensors if tensor.requires_grad]
        gradients = torch.autograd.grad(
            results,
            leaves,
            [torch.ones_like(result) for result in results],
            allow_unused=True,
            create_graph=case.twice,
        )
        words += [words_of(gradient) for gradient in gradients]
        if case.twice:
            sums = [
                gradient.float().square().sum()
                for gradient in gradients
                if gradient is not None and gradient.requires_grad
            ]
            second = torch.autograd.grad(sums, leaves, allow_unused=True) if sums else ()
            words += [words_of(gradient) for gradient in second]
    return words


def words_of(tensor: torch.Tensor | None) -> str:
    """Return the dtype, shape and device of a tensor."""
    if tensor is None:
        return "no gradient"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} on {tensor.device}"


# The composition of experts asks the device how many rows each expert has, and loops over them.
LOOPING = "/experts"


def subject_cases(
    folder: Path, sizes: Iterable[str], dtypes: Iterable[torch.dtype]
) -> Iterator[Case]:
    """Yield the subjects of the measurement of rules, as written and as rewritten, in inference and
    in training."""
    for subject in worth.subjects("cuda"):
        if worth.lacking(subject.rule) or subject.rule in VALUE_DEPENDENT:
            continue
        load = functools.cache(functools.partial(load_modules, subject, folder))
        chosen = [getattr(torch, subject.dtype)] if subject.dtype else dtypes
        for size, dtype, mode in itertools.product(sizes, chosen, subject.modes):
            yield subject_case(subject, load, size, dtype, mode == "training")


def load_modules(subject: Any, folder: Path) -> tuple[Any, Any]:
    """Return the original and the rewritten source of a subject, loaded."""
    modules: tuple[Any, Any] = worth.modules(subject, Path(tempfile.mkdtemp(dir=folder)))
    return modules


def subject_case(
    subject: Any,
    load: Callable[[], tuple[Any, Any]],
    size: str,
    dtype: torch.dtype,
    training: bool,
) -> Case:
    """Return the case of a subject, whose modules `load` returns, at a size with a dtype."""

    def make() -> tuple[Version, Version]:
        original, rewritten = (
            version_of(subject, module, size, dtype, training) for module in load()
        )
        if subject.rule.endswith(LOOPING):
            original = looping_version(original)
        return rewritten, original

    name = str(dtype).removeprefix("torch.")
    mode = "training" if training else "inference"
    return Case(f"{subject.title}, {size}, {name}, {mode}", make, training)


def version_of(subject: Any, module: Any, size: str, dtype: torch.dtype, training: bool) -> Version:
    """Return the call of a version of a subject."""
    numbers = subject.sizes[size]
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with CUDA:
            model = worth.call(module.Subject, numbers).train(training)
            inputs = worth.call(module.inputs, numbers)
    finally:
        torch.set_default_dtype(default)
    arguments, leaves = worth.leaves_of(model, inputs, training)
    return Version(lambda: worth.result_of(model(*arguments)), leaves, arguments)


def looping_version(original: Version) -> Version:
    """Return a call whose result and gradients are like those of a composition that loops over
    values: like the first argument, and like the leaves."""
    first, leaves = original.arguments[0], original.leaves
    return Version(lambda: first + sum(leaf.sum() for leaf in leaves) * 0, leaves)
