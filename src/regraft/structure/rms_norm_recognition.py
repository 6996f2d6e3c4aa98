"""Recognition of classes that compute an RMS norm, whatever their name."""

from __future__ import annotations

import ast

from regraft.structure.lower import lower_function
from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Body, Value

# The ops of Regraft that an already rewritten class calls.
_KERNELS = frozenset({"regraft.ops.rms_norm", "regraft.ops.rms_normalize"})
_SQUARES = frozenset({"pow", "square", "mul"})
_WORDS = (b"rsqrt", b"rms_norm", b"rms_normalize")  # the text of such a class contains one of them
# Operations between the reciprocal root and the mean of squares, and between the mean and the
# input.
_STEPS = frozenset({"add", "to", "mean", *_SQUARES})


def is_rms_norm(module: Module, name: str) -> bool:
    """Return whether a layer's type is a class of the file or its package that divides by a root
    mean square.

    name  the name of the class in the file, or its qualified name
    """
    is_norm = module.rms_norm_by_name.get(name)
    if is_norm is None:
        is_norm = module.rms_norm_by_name[name] = _has_rms_forward(module, name)
    return is_norm


def _has_rms_forward(module: Module, name: str) -> bool:
    """Return whether the name is that of a class whose `forward`, its own or inherited, computes an
    RMS norm."""
    local = module.classes.get(name)
    home, cls = (module, local) if local is not None else module.imported(name) or (module, None)
    if not isinstance(cls, ast.ClassDef):
        return False
    definer = next((base for base in home.bases(cls) if "forward" in home.methods(base)), None)
    word_sets = (home.owner(method).words(method) for method in home.all_methods(cls).values())
    if definer is None or all(word_set.isdisjoint(_WORDS) for word_set in word_sets):
        return False
    owner = home.owner(definer)
    body = lower_function(
        owner.scopes.of(definer), owner.methods(definer)["forward"], "forward", method=True
    )
    is_norm = _contains_rms_norm(body)
    body.release()
    return is_norm


def _contains_rms_norm(body: Body) -> bool:
    """Return whether a body computes a reciprocal root of a mean of squares, or calls an op of
    Regraft for it."""
    if any(node.replacement is not None for node in body.nodes):
        return False
    roots = (node.args["input"] for node in body.index.get("rsqrt", ()))
    ops = (node for node in body.index.get("call", ()) if node.spelling in _KERNELS)
    return any(_is_mean_square(root) for root in roots) or any(ops)


def _is_mean_square(root: Value) -> bool:
    """Return whether a value is a mean of squares of parameters, attributes and constants, perhaps
    with a summand."""
    ops: set[str] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if value.node is None or value.node.op == "py.attr":
            continue  # a parameter of the function, a constant, an attribute
        if value.node.op not in _STEPS:
            return False
        ops.add(value.node.op)
        pending += [
            operand for name, operand in value.node.args.items() if name in ("input", "other")
        ]
    return "mean" in ops and not ops.isdisjoint(_SQUARES)
