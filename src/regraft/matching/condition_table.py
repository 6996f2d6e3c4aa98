"""The table of the conditions of a rule's `where`.

Each function takes the condition's arguments and returns the reason why it does not hold for a
match, in words, or "" where it holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from regraft.dsl.syntax import Predicate
from regraft.matching.conditions import attention, kinds, layers, loop_steps, one_hot, shapes, uses
from regraft.matching.conditions.values_for_conditions import Arguments, Scope
from regraft.structure.containers import NUMBERED_STEP
from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Structure, Value


def unmet_reason(
    predicate: Predicate, bindings: Mapping[str, Value], structure: Structure, module: Module
) -> str:
    """Return why a condition of a rule does not hold for a match's bindings; "" where it does.
    Raise KeyError for a condition that PREDICATES lacks."""
    return PREDICATES[predicate.name][2](predicate.args, Scope(bindings, structure, module))


def _returned_for(args: Arguments, scope: Scope) -> str:
    """Return "": the condition is no test of a match, but says for which constant the kernel
    returns its input (`compile_rule` reads it)."""
    return ""


# Operations that a body must contain for a condition to hold.
REQUIRED_OPERATIONS = {
    "attends": ("softmax",),
    "loop_step": (NUMBERED_STEP,),
    "attended_heads": ("scaled_dot_product_attention",),
    "scattered_ones": ("scatter",),
    "encoded_ones": ("one_hot",),
}
# Kinds of layers of the model's own classes that it must call.
REQUIRED_CLASSES = {"rms_norm": ("rms_norm",)}

# Each condition: the least and the greatest number of its arguments, and the function that decides
# it.
PREDICATES: Mapping[str, tuple[int, int, Callable[[Arguments, Scope], str]]] = {
    "used_once": (1, 9, uses.used_once),
    "called_once": (1, 9, uses.called_once),
    "distinct": (2, 9, uses.distinct),
    "comparable_widths": (2, 9, layers.comparable_widths),
    "vocabulary": (1, 1, layers.vocabulary),
    "many_classes": (1, 1, layers.many_classes),
    "constant": (1, 1, kinds.constant),
    "equals": (2, 2, kinds.equals),
    "tensor": (1, 1, kinds.tensor),
    "scalar": (1, 1, kinds.scalar),
    "scattered_ones": (1, 1, one_hot.scattered_ones),
    "encoded_ones": (1, 1, one_hot.encoded_ones),
    "present": (1, 1, kinds.present),
    "stored": (1, 1, kinds.stored),
    "feeds": (2, 2, uses.feeds),
    "attends": (1, 1, attention.attends),
    "rms_norm": (1, 1, layers.rms_norm),
    "loop_step": (2, 2, loop_steps.loop_step),
    "basic_index": (2, 2, loop_steps.basic_index),
    "carried": (2, 2, loop_steps.carried),
    "first_only": (1, 1, uses.first_only),
    "joins_enlarged": (2, 2, shapes.joins_enlarged),
    "part_of": (2, 2, shapes.part_of),
    "different_dimensions": (2, 2, shapes.different_dimensions),
    "reduces_tensor": (2, 2, shapes.reduces_tensor),
    "attended_heads": (1, 1, attention.attended_heads),
    "returned_for": (3, 3, _returned_for),
    "patches_of": (2, 2, shapes.patches_of),
    "matrix": (1, 1, shapes.matrix),
    "sums_columns": (2, 2, shapes.sums_columns),
    "pairwise": (2, 2, shapes.pairwise),
    "expanded_pairwise": (2, 2, functools.partial(shapes.pairwise, expanded=True)),
}
