"""Whether a definition can still be captured as one graph: `torch.compile(fullgraph=True)` and `torch.export`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regraft.verify.child import tree
from regraft.verify.child.compare import Check, Difference, Largest, compare
from regraft.verify.child.ledger import Ledger
from regraft.verify.child.limits import limited
from regraft.verify.child.replay import Target, reseed
from regraft.verify.child.state import Watch
from regraft.verify.child.tree import Call


def captured(
    original: Target, changed: Target, call: Call, definition: str, ledger: Ledger
) -> tuple[Difference | None, tuple[str, ...]]:
    """Return a difference where the original is captured and the changed version is not, or gives something else.

    Also return by which means both were captured.
    """
    done: list[str] = []
    for how, capture in (("torch.compile(fullgraph=True)", _compiled), ("torch.export", _exported)):
        with ledger.step("original", definition, how):
            before = run_capture(capture, original, call)
        if isinstance(before, BaseException):
            continue
        with ledger.step("changed", definition, how):
            after = run_capture(capture, changed, call)
        if isinstance(after, BaseException) and LATE in str(after):
            continue  # as slow as that says something about the machine, not about the graph
        if isinstance(after, BaseException):
            text = " ".join(str(after).split())[:200]
            return Difference("", f"{how} takes the original, not the changed version: {text}"), tuple(done)
        found = compare(before, after, Check("outputs", dict, Largest()))
        if found:
            return Difference(found.path, f"by {how} {found.sentence}"), tuple(done)
        done.append(how)
    return None, tuple(done)


LATE = "takes too long to capture"
SECONDS = 30.0  # what takes longer does not count as captured


Capture = Callable[[Target, tree.Live], Any]


def run_capture(capture: Capture, target: Target, call: Call) -> dict[str, Any] | BaseException:
    """Return the flat results of a captured target on a call, or what capturing or running it raised."""
    watch = Watch(target.module, target.scope)
    try:
        with watch.printing(), torch.no_grad(), limited(SECONDS, TimeoutError(LATE)):
            reseed(0)
            return tree.flatten(capture(target, tree.thaw(call, target.model, gradients=False, scope=target.scope)))
    except Exception as error:  # noqa: BLE001 - arbitrary model code in a compiler; the error is the result
        return error
    finally:
        torch.compiler.reset()
        watch.rewind()


def _compiled(target: Target, live: tree.Live) -> Any:
    compiled = torch.compile(target.callable, backend="eager", fullgraph=True)
    return compiled(*live.args, **live.kwargs)


def _exported(target: Target, live: tree.Live) -> Any:
    if not isinstance(target.module, nn.Module):
        raise TypeError("only modules are exported")
    program = torch.export.export(target.module, live.args, live.kwargs, strict=False)
    return program.module()(*live.args, **live.kwargs)
