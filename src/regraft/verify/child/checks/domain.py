"""Which calls beyond the recorded ones a definition, or a whole model, is compared on."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verify.child.checks.constants import Constants, constants_of
from regraft.verify.child.checks.masks import masked_calls
from regraft.verify.child.checks.sizes import reranked_calls, resized_calls
from regraft.verify.child.checks.values import valued_calls
from regraft.verify.child.replay import Target
from regraft.verify.child.session import Session
from regraft.verify.child.tree import Call

# Ops that take numbers for granted: their kernels may give others for NaN and infinity (docs/limits.md).
_FINITE_OPS = ("attention", "postponed_matmul", "postponed_einsum", "postponed_baddbmm")


@dataclass(frozen=True, slots=True)
class Domain:
    """What is particular to the changed lines of one definition."""

    constants: Constants
    finite: bool


def domain_of(definition: str, session: Session) -> Domain:
    """Return the domain of a definition, computed once in a session."""
    known = session.domains.get(definition)
    if known is None:
        versions = [
            (change, module)
            for changes, module in ((session.changes, session.changed), (session.older.changes, session.original))
            for change in changes
            if change.definition == definition
        ]
        cls = getattr(session.changed, definition, None)
        text = inspect.getsource(cls) if isinstance(cls, type) or callable(cls) else ""
        known = Domain(constants_of(tuple(versions)), any(f"{name}(" in text for name in _FINITE_OPS))
        session.domains[definition] = known
    return known


def calls_beyond(call: Call, target: Target, domain: Domain) -> Iterator[Call]:
    """Yield other masks, sizes and values for a recorded call of a definition."""
    parameters = target.module.parameters() if target.module is not None else ()
    yield from masked_calls(call, named_arguments(call, target.callable))
    yield from resized_calls(call, domain.constants, features=not any(True for _ in parameters))
    yield from reranked_calls(call)
    yield from valued_calls(call, domain.constants, finite=domain.finite)


def named_arguments(call: Call, function: Any) -> Mapping[str, Any]:
    """Return a call's arguments by the names of their parameters."""
    try:
        signature = inspect.signature(getattr(function, "forward", function))
        names = list(signature.parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"argument {number}" for number in range(len(names), len(call.args))]
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}
