"""Which classes of a model are a norm, whatever they are called."""

from __future__ import annotations

import ast

from regraft.structure.lower import lower_function
from regraft.structure.model import Body, Value
from regraft.structure.module import Module

# An op of Regraft that stands in the class already.
_KERNEL = "regraft.ops.rms_norm"
_SQUARES = frozenset({"pow", "square", "mul"})
_WORDS = (b"rsqrt", b"rms_norm")  # one of which is in the text
# Steps between the reciprocal root and the mean of squares, and between these and the input.
_STEPS = frozenset({"add", "to", "mean", *_SQUARES})


def is_rms_norm(module: Module, name: str) -> bool:
    """Whether a layer's type is a class of the file, or of its package, that divides by a root mean square.

    name  of the class in the file, or qualified
    """
    known = module.rms_norms.get(name)
    if known is None:
        known = module.rms_norms[name] = _divides(module, name)
    return known


def _divides(module: Module, name: str) -> bool:
    here = module.classes.get(name)
    home, cls = (module, here) if here is not None else module.imported(name) or (module, None)
    if not isinstance(cls, ast.ClassDef):
        return False
    own = next((one for one in home.bases(cls) if "forward" in home.methods(one)), None)
    words = (home.owner(one).words(one) for one in home.all_methods(cls).values())
    if own is None or all(one.isdisjoint(_WORDS) for one in words):
        return False
    owner = home.owner(own)
    body = lower_function(owner.scope(own), owner.methods(own)["forward"], "forward", method=True)
    normed = _is_normed(body)
    body.release()
    return normed


def _is_normed(body: Body) -> bool:
    roots = (node.args["input"] for node in body.index.get("rsqrt", ()))
    ops = (node for node in body.index.get("call", ()) if node.spelling == _KERNEL)
    return any(_is_mean_square(root) for root in roots) or any(ops)


def _is_mean_square(root: Value) -> bool:
    """Whether a value is the mean of squares of a parameter, and a constant beside it."""
    ops: set[str] = set()
    pending = [root]
    while pending:
        one = pending.pop()
        if one.node is None or one.node.op == "py.attr":
            continue  # a parameter of the function, a constant, an attribute
        if one.node.op not in _STEPS:
            return False
        ops.add(one.node.op)
        pending += [value for name, value in one.node.args.items() if name in ("input", "other")]
    return "mean" in ops and not ops.isdisjoint(_SQUARES)
