"""Find sizes at which one version decides something and the other does not, by guards of a run with
symbolic sizes.

Both versions run on tensors without data whose sizes are symbols. PyTorch notes each comparison of
a size that decided something as a guard, such as `s0 > 64`; the numbers in guards that only one
version has are sizes to try.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.execution.nested import map_leaves
from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_outcomes import Target
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.state_watch import Watch

_LARGEST = 8192
_MOST = 4


def sizes_of_guards(
    original: Target, changed: Target, call: Call, name: str, ledger: Ledger
) -> tuple[int, ...]:
    """Return the `_MOST` smallest sizes, from 3 to `_LARGEST`, in guards that only one version has,
    without those of the call; () where a version does not run on symbolic sizes. The journal gets
    both steps."""
    with ledger.step("original", name, "sizes as symbols"):
        original_guards = guards_of(original, call)
    with ledger.step("changed", name, "sizes as symbols"):
        changed_guards = guards_of(changed, call)
    if original_guards is None or changed_guards is None:
        return ()
    sizes = {number for guard in original_guards ^ changed_guards for number in guard[1]}
    call_sizes = {size for shape in call_arguments.shapes(call) for size in shape}
    return tuple(sorted(size for size in sizes - call_sizes if 2 < size <= _LARGEST)[:_MOST])


def guards_of(target: Target, call: Call) -> frozenset[tuple[str, tuple[int, ...]]] | None:
    """Return the guards of a run of a copy of the model as text, without the names of symbols, each
    with its numbers; None where the run fails. State that it leaves in the model is restored."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    shape_env = ShapeEnv()
    mode = FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=True)

    def with_symbolic_sizes(leaf: Any) -> Any:
        """Return a tensor as a tensor without data whose sizes are symbols, any other argument as
        it is."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        sizes = [DimDynamic.DYNAMIC] * leaf.dim()
        return mode.from_tensor(
            leaf, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes)
        )

    # Values that a call leaves in a module would contain tensors without data. Hooks of the copy
    # may leave them in the model itself, to which their functions are bound.
    watch = Watch(target.module, target.scope)
    target = replace(target, model=weights.copy_model(target.model))
    try:
        live_call = call_arguments.build_arguments(
            call, target.model, gradients=False, scope=target.scope
        )
        args, kwargs = (
            map_leaves(live_call.args, with_symbolic_sizes),
            map_leaves(live_call.kwargs, with_symbolic_sizes),
        )
        with watch.collect_printing(), _restored_classes(target.scope), torch.no_grad(), mode:
            target.callable(*args, **kwargs)
    except Exception:  # noqa: BLE001 - not every model runs without data; it is compared on the other sizes
        return None
    finally:
        watch.rewind()
    return frozenset(_guard_text_and_numbers(guard.expr) for guard in shape_env.guards)


@contextmanager
def _restored_classes(scope: ModuleType | None) -> Iterator[None]:
    """Restore the attributes of the file's own classes after the body, and delete new attributes: a
    result without data must not stay there. Names with two leading underscores are not restored."""
    values = list(vars(scope).values()) if scope is not None else []
    attributes_by_class = [
        (cls, dict(vars(cls)))
        for cls in values
        if isinstance(cls, type) and scope is not None and cls.__module__ == scope.__name__
    ]
    try:
        yield
    finally:
        for cls, attributes in attributes_by_class:
            for name, value in dict(vars(cls)).items():
                if name not in attributes:
                    delattr(cls, name)
                elif value is not attributes[name] and not name.startswith("__"):
                    setattr(cls, name, attributes[name])


def _guard_text_and_numbers(expression: Any) -> tuple[str, tuple[int, ...]]:
    """Return an expression as text in which every symbol is `size`, and the absolute values of its
    integers, sorted."""
    symbols = sorted(expression.free_symbols, key=str)
    text = str(expression)
    for symbol in symbols:
        text = text.replace(str(symbol), "size")
    numbers = {
        abs(int(number)) for number in expression.atoms() if getattr(number, "is_Integer", False)
    }
    return text, tuple(sorted(numbers))
