"""Sizes at which one version decides something and the other does not: guards of a run with symbolic sizes.

Both versions run on tensors without data whose sizes are symbols. PyTorch notes each comparison of a size that decided
something as a guard, such as `s0 > 64`; the numbers in guards that only one version has are sizes to try.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.verify.child import tree, weights
from regraft.verify.child.ledger import Ledger
from regraft.verify.child.replay import Target
from regraft.verify.child.state import Watch
from regraft.verify.child.tree import Call

_LARGEST = 8192
_MOST = 4


def sizes_of_guards(ours: Target, theirs: Target, call: Call, name: str, ledger: Ledger) -> tuple[int, ...]:
    """Return the sizes that guards of only one version show; none where one of them does not run on symbols."""
    with ledger.step("original", name, "sizes as symbols"):
        before = _guards(ours, call)
    with ledger.step("changed", name, "sizes as symbols"):
        after = _guards(theirs, call)
    if before is None or after is None:
        return ()
    sizes = {number for guard in before ^ after for number in guard[1]}
    known = {size for shape in tree.shapes(call) for size in shape}
    return tuple(sorted(size for size in sizes - known if 2 < size <= _LARGEST)[:_MOST])


def _guards(target: Target, call: Call) -> frozenset[tuple[str, tuple[int, ...]]] | None:
    """Return the guards of a run in words, without the names of symbols, each with its numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    shapes = ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)

    def symbolic(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        sizes = [DimDynamic.DYNAMIC] * leaf.dim()
        return mode.from_tensor(leaf, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))

    # what a call leaves in a module would hold tensors without data
    target = replace(target, model=weights.copied(target.model))
    watch = Watch(target.module, target.scope)
    try:
        live = tree.thaw(call, target.model, gradients=False, scope=target.scope)
        args, kwargs = tree.map_leaves(live.args, symbolic), tree.map_leaves(live.kwargs, symbolic)
        with watch.printing(), _kept_classes(target.scope), torch.no_grad(), mode:
            target.callable(*args, **kwargs)
    except Exception:  # noqa: BLE001 - not every model runs without data; it is compared on the other sizes
        return None
    finally:
        watch.rewind()
    return frozenset(_described(guard.expr) for guard in shapes.guards)


@contextmanager
def _kept_classes(scope: ModuleType | None) -> Iterator[None]:
    """Give the classes of a file back the attributes that they had: a result without data must not stay in one."""
    classes = [value for value in vars(scope).values() if isinstance(value, type)] if scope is not None else []
    before = [(cls, dict(vars(cls))) for cls in classes if scope is not None and cls.__module__ == scope.__name__]
    try:
        yield
    finally:
        for cls, attributes in before:
            for name, value in dict(vars(cls)).items():
                if name not in attributes:
                    delattr(cls, name)
                elif value is not attributes[name] and not name.startswith("__"):
                    setattr(cls, name, attributes[name])


def _described(expression: Any) -> tuple[str, tuple[int, ...]]:
    symbols = sorted(expression.free_symbols, key=str)
    text = str(expression)
    for symbol in symbols:
        text = text.replace(str(symbol), "size")
    numbers = {abs(int(number)) for number in expression.atoms() if getattr(number, "is_Integer", False)}
    return text, tuple(sorted(numbers))
