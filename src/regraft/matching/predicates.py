"""The conditions of a rule's `where`: each function takes the condition's arguments and returns the
reason why it does not hold for a match, in words, or "" where it holds."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from regraft.dsl.syntax import Const, Operand, Predicate, Var
from regraft.matching import attended_heads
from regraft.matching.constants import ARITHMETIC_FUNCTIONS, is_certainly, operand_text
from regraft.matching.convolution_patches import is_of_patches
from regraft.matching.enlarged_parts import (
    is_enlarged,
    is_exposed,
    is_part_of,
    may_be_last_dimension,
)
from regraft.matching.loop_values import is_before, is_carried, step_nodes
from regraft.matching.matrices import is_column_product, is_matrix_attribute, may_be_matrix
from regraft.matching.reductions import is_call_of_torch
from regraft.matching.uses import METADATA
from regraft.structure import guards
from regraft.structure.calls import own_op
from regraft.structure.containers import NUMBERED_STEP
from regraft.structure.model import MISSING, Layer, Node, Structure, Value
from regraft.structure.module import Module
from regraft.structure.norms import is_rms_norm
from regraft.structure.optable import table
from regraft.structure.rank import exchanges_last_dimensions, rank
from regraft.structure.unit_dimensions import are_crossed, meets_rows

Arguments = tuple[Operand, ...]

# parts of names for the width of a model's head
_VOCABULARY = re.compile("vocab|classes|labels|num_tokens|n_token")
_WORDS = re.compile("vocab|num_tokens|n_?token")
_FEWEST_WORDS = 8192
_MAX_WIDTH_RATIO = 16  # as for the query of 16 heads beside a key of one

# Operations on a parameter before it is used: casts and arithmetic.
_ELEMENTWISE_OPS = frozenset({*ARITHMETIC_FUNCTIONS, "to", "neg", "py.attr"})


# Operations that leave the last dimension of logits, and the number of each, as they are.
_SHAPING_OPS = frozenset({"view", "reshape", "flatten", "contiguous", "to", "py.item"})


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The values of a match's variables that conditions are about, and the structure and file that
    hold the values."""

    bindings: Mapping[str, Value]
    structure: Structure
    module: Module

    def value(self, operand: Operand) -> Value | None:
        """Return the value of a variable; None for another operand and for a variable that is not
        bound."""
        return self.bindings.get(operand.name) if isinstance(operand, Var) else None


def unmet_reason(
    predicate: Predicate, bindings: Mapping[str, Value], structure: Structure, module: Module
) -> str:
    """Return why a condition of a rule does not hold for a match's bindings; "" where it does.
    Raise KeyError for a condition that PREDICATES lacks."""
    return PREDICATES[predicate.name][2](predicate.args, Scope(bindings, structure, module))


def _used_once(args: Arguments, scope: Scope) -> str:
    """Return a reason unless each value has exactly one use."""
    for operand in args:
        value = scope.value(operand)
        if value is not None and len(value.uses) != 1:
            return f"{_variable_text(operand)} is used {len(value.uses)} times"
    return ""


def _called_once(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the function calls each layer at one place; variables that are not
    bound, as in another alternative, are passed over."""
    for operand in args:
        value = scope.value(operand)
        calls = [use for use in value.uses if use.layer is value] if value is not None else []
        if len(calls) > 1:
            return f"{_variable_text(operand)} is called {len(calls)} times"
    return ""


def _distinct(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the variables stand for different values."""
    for number, operand in enumerate(args):
        for earlier in args[:number]:
            left, right = scope.value(operand), scope.value(earlier)
            if (
                left is not None
                and right is not None
                and (left is right or left.key() == right.key())
            ):
                return f"{_variable_text(operand)} is {_variable_text(earlier)}"
    return ""


def _comparable_widths(args: Arguments, scope: Scope) -> str:
    """Return a reason where a layer's output is much wider than another's, by their `out_features`:
    numbers more than 16 times as large, or names such as `vocab_size` for some of them only. One
    product of such layers would be as wide as the widest, and save nothing."""
    widths = {}
    for operand in args:
        value = scope.value(operand)
        for layer in value.layers if value is not None else ():
            if "out_features" in layer.args:
                widths[_variable_text(operand)] = layer.args["out_features"]
    vocabulary_wide = [
        name for name, width in widths.items() if _VOCABULARY.search(_describing_names(width))
    ]
    if vocabulary_wide and len(vocabulary_wide) < len(widths):
        return (
            f"{vocabulary_wide[0]} is as wide as a vocabulary or a list of classes, and others"
            " are not"
        )
    numbers = {name: width.const for name, width in widths.items() if isinstance(width.const, int)}
    widest, narrowest = (
        max(numbers, key=numbers.__getitem__, default=""),
        min(numbers.values(), default=0),
    )
    if widest and numbers[widest] > _MAX_WIDTH_RATIO * narrowest:
        return f"{widest} is {numbers[widest]} wide, another layer {narrowest}"
    return ""


def _describing_names(value: Value) -> str:
    """Return the names of a value and of the values that it is computed from, joined by blanks."""
    parts = [value.name, *value.names]
    if value.node is not None:
        parts += [value.node.spelling, *map(_describing_names, value.node.args.values())]
    return " ".join(parts)


def _vocabulary(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is, apart from its shape, in some branch the output of a
    Linear layer that is as wide as a vocabulary: by the names of its width, by its number, or
    because an embedding has as many rows."""
    value = scope.value(args[0])
    pending = list(value.alternatives()) if value is not None else []
    visited = set(pending)
    while pending:
        node = pending.pop().node
        if node is None:
            continue
        if node.layer is not None:
            if any(_is_vocabulary_wide(layer, scope.structure) for layer in node.layer.layers):
                return ""
        elif node.op in _SHAPING_OPS:
            options = node.args["base" if node.op == "py.item" else "input"].alternatives()
            pending += [option for option in options if option not in visited]
            visited.update(options)
    return f"{_variable_text(args[0])} is not known to be logits over a vocabulary"


def _is_vocabulary_wide(layer: Layer, structure: Structure) -> bool:
    """Return whether the output of a layer is as wide as a vocabulary: at least 8,192, a width with
    a name such as `vocab_size`, or the number of rows of an embedding of the class."""
    width = layer.args.get("out_features")
    if width is None:
        return False
    if isinstance(width.const, int):
        return width.const >= _FEWEST_WORDS
    if _WORDS.search(_describing_names(width)):
        return True
    layers = (each for layers in structure.layers.values() for each in layers)
    rows = (each.args.get("num_embeddings") for each in layers)
    return any(number is not None and number.key() == width.key() for number in rows)


def _constant(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is a constant."""
    value = scope.value(args[0])
    return (
        ""
        if value is not None and value.const is not MISSING
        else f"{_variable_text(args[0])} is not a constant"
    )


def _equals(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is certainly the constant or the name that the second
    argument is."""
    value = scope.value(args[0])
    return (
        ""
        if value is not None and is_certainly(args[1], value)
        else f"{_variable_text(args[0])} is not {operand_text(args[1])}"
    )


def _tensor(args: Arguments, scope: Scope) -> str:
    """Return a reason where the value is certainly something else than a tensor, and where it is
    not bound."""
    value = scope.value(args[0])
    can_be_tensor = value is not None and value.kind in ("tensor", "unknown")
    return "" if can_be_tensor else f"{_variable_text(args[0])} is not a tensor"


# Operations that give a number for numbers.
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "pow", "sqrt", "rsqrt", "neg"})


def _scalar(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is certainly a number.

    That is a constant, an annotated parameter, an attribute that the constructor sets from its
    arguments, or what is computed from these.
    """
    value = scope.value(args[0])
    if value is None or (value.const is not MISSING and not isinstance(value.const, int | float)):
        return f"{_variable_text(args[0])} is not a number"
    if _is_number_in_forward(value, scope):
        return ""
    return f"{_variable_text(args[0])} is not known to be a number"


def _is_number_in_forward(value: Value, scope: Scope) -> bool:
    """Return whether a value is a number, an attribute that holds one, or computed from such."""
    if isinstance(value.const, int | float) or value.kind in ("int", "scalar"):
        return True
    if value.node is not None and value.node.op in _ARITHMETIC:
        return all(_is_number_in_forward(operand, scope) for operand in value.node.args.values())
    stored = [layer.args.get("value") for layer in scope.structure.layers.get(value.name, ())]
    are_numbers = bool(stored) and all(_is_number_like(argument) for argument in stored)
    return value.origin == "path" and are_numbers


def _is_number_like(value: Value | None) -> bool:
    """Return whether a value that a constructor stores is a number, a parameter or an attribute, or
    computed from these."""
    if value is None:
        return False
    if value.node is not None and value.node.op in _ARITHMETIC:
        return all(_is_number_like(operand) for operand in value.node.args.values())
    return (
        isinstance(value.const, int | float)
        or value.kind in ("int", "scalar")
        or value.origin == "param"
        or value.attribute() is not None
    )


def _present(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is bound and neither False nor None."""
    value = scope.value(args[0])
    return (
        f"{_variable_text(args[0])} is None"
        if value is None or value.const in (None, False)
        else ""
    )


def _stored(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is made of attributes of the instance and of constants
    alone."""
    value = scope.value(args[0])
    return (
        ""
        if value is not None and _is_stored(value)
        else f"{_variable_text(args[0])} is not an attribute"
    )


def _is_stored(value: Value) -> bool:
    """Return whether a value is a constant, an attribute, a global, or elementwise arithmetic of
    such values."""
    if value.const is not MISSING or value.origin in ("path", "global"):
        return True
    node = value.node
    return (
        node is not None
        and node.op in _ELEMENTWISE_OPS
        and all(_is_stored(argument) for argument in node.args.values())
    )


def _feeds(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value, or what tensor operations make of it, is an argument of a
    call of the named function."""
    value, name = scope.value(args[0]), operand_text(args[1])
    op = table().canonical_op(name)
    visited, pending = {value}, [value] if value is not None else []
    while pending:
        current = pending.pop()
        for use in current.every_use():
            if use.op == op:
                return ""
            # arguments of a call with a star are gathered by a node of their own
            nodes = (
                use,
                *(gathering for gathering in use.output.uses if gathering.expr is use.expr),
            )
            if use.op == "call" and any(
                call.op == "call" and call.spelling == name for call in nodes
            ):
                return ""
            if use.op != "call" and not use.op.startswith("py.") and use.output not in visited:
                visited.add(use.output)
                pending.append(use.output)
    return f"{_variable_text(args[0])} is not given to {name}"


def _pairwise(args: Arguments, scope: Scope, *, expanded: bool = False) -> str:
    """Return a reason unless two tensors are certainly broadcast against each other, by dimensions
    of size one that the source gives them, or gives one of them before the rows of a matrix of the
    model.

    expanded: passed on to `are_crossed`; whether `expand` may give them, too.
    """
    first, second = scope.value(args[0]), scope.value(args[1])
    if first is None or second is None or are_crossed(first, second, expanded=expanded):
        return ""
    pairs = ((first, second), (second, first))
    if any(
        meets_rows(value) and is_matrix_attribute(other, scope.structure) for value, other in pairs
    ):
        return ""
    names = " and ".join(map(_variable_text, args))
    return f"{names} are not known to be broadcast against each other"


def _joins_enlarged(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the first value is a list of tensors of which one is enlarged, and the
    second may be the number of their last dimension."""
    parts, dim = scope.value(args[0]), scope.value(args[1])
    if parts is None or parts.items is None or len(parts.uses) != 1:
        return f"{_variable_text(args[0])} is no list that is written for this call alone"
    if not any(is_enlarged(part) and len(part.every_use()) == 1 for part in parts.items):
        return f"no part of {_variable_text(args[0])} is expanded, repeated or read by rows for it"
    if dim is None or not may_be_last_dimension(parts.items, dim.const):
        return f"{_variable_text(args[1])} is not the last dimension"
    return ""


def _part_of(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is used as a part of the list that the named op of Regraft
    is given, and for nothing else."""
    value, name = scope.value(args[0]), operand_text(args[1])
    if value is None or not is_part_of(value, name):
        return f"{_variable_text(args[0])} is no part that only {name} uses"
    if not is_enlarged(value):
        return f"{_variable_text(args[0])} is not expanded, repeated or read by rows"
    if is_exposed(value, scope.structure.bodies):
        return f"a tensor may be changed in place between {_variable_text(args[0])} and {name}"
    return ""


def _rms_norm(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the layer is an RMSNorm by the `forward` of its class in the model's
    code, whatever its name."""
    value = scope.value(args[0])
    layers = value.layers if value is not None else ()
    are_norms = bool(layers) and all(is_rms_norm(scope.module, layer.type) for layer in layers)
    return "" if are_norms else f"{_variable_text(args[0])} is no RMSNorm"


# Steps from scores to weights that a postponed tensor follows without its elements, in place or
# not.
_POSTPONED_OPS = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "masked_fill",
        "where",
        "to",
        "type",
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "contiguous",
        "detach",
        "dropout",
        "identity",
    }
)

# Ops of Regraft that compute an operation of PyTorch.
_OWN_OPS = {"regraft.ops.softmax": "softmax"}
# Operations that multiply values by weights, with the parameters of weights and of transposed
# weights; no parameter for any.
_WEIGHTED_SUMS = {"einsum": (), "matmul": ("input", "other")}


def _attends(args: Arguments, scope: Scope) -> str:
    """Return a reason unless scores become weights by softmax over the last dimension by which a
    value is multiplied, and other uses on the way that need the elements are in branches."""
    scores = scope.value(args[0])
    is_attended = False
    pending = [(scores, False, False)] if scores is not None else []
    visited = set(pending)
    while pending:
        current, is_softmaxed, is_transposed = pending.pop()
        for use in current.every_use():
            op = _computed_op(use)
            transposes = is_softmaxed and exchanges_last_dimensions(use)
            if is_softmaxed and _weights_values(use, op, current, is_transposed):
                is_attended = True
            elif transposes or _is_postponed(use, op, is_softmaxed):
                is_soft = is_softmaxed or op == "softmax"
                following = (use.output, is_soft, is_transposed != transposes)
                pending += [following] if following not in visited else []
                visited.add(following)
            elif _needs_elements(use) and guards.implies(_guard_of(scores), use.guard):
                line = getattr(use.expr, "lineno", use.statement.node.lineno)
                name = use.spelling or use.op
                return f"{name} at line {line} needs the elements of {_variable_text(args[0])}"
    return (
        "" if is_attended else f"{_variable_text(args[0])} does not become the weights of attention"
    )


def _computed_op(use: Node) -> str:
    """Return the operation that a node computes, whether in place, by PyTorch or by Regraft."""
    return _OWN_OPS.get(own_op(use.spelling) or "") or use.op.removesuffix("_")


def _weights_values(use: Node, op: str, weights: Value, is_transposed: bool) -> bool:
    """Return whether a node that computes `op` multiplies values by the weights, in some branch at
    least."""
    if op not in _WEIGHTED_SUMS:
        return False
    parameters = _WEIGHTED_SUMS[op]
    return not parameters or weights in use.args[parameters[is_transposed]].alternatives()


def _is_postponed(use: Node, op: str, is_softmaxed: bool) -> bool:
    """Return whether a postponed tensor follows a node that computes `op`: one softmax at most."""
    if op == "softmax":
        return not is_softmaxed and _can_be_last_dimension(use)
    return op in _POSTPONED_OPS


def _guard_of(value: Value | None) -> guards.Guard:
    """Return the guard of the node that makes a value; TRUE where no node does."""
    return guards.TRUE if value is None or value.node is None else value.node.guard


def _can_be_last_dimension(softmax: Node) -> bool:
    """Return whether a softmax may be over the last dimension; True where its dimension is unknown,
    and for the op of Regraft."""
    if softmax.op == "call":
        return True  # an op of Regraft, which is over the last one
    dim = softmax.args["dim"].const
    input_rank = rank(softmax.args["input"])
    if not isinstance(dim, int):
        return dim is MISSING
    return dim == -1 or (dim == input_rank.number - 1 if input_rank is not None else dim > 1)


def _needs_elements(use: Node) -> bool:
    """Return whether a node looks at the elements of a tensor, rather than only passing the tensor
    on."""
    if use.op == "py.attr":
        return use.spelling not in METADATA
    return use.op == "py.item" or not (
        use.op.startswith("py.") or use.spelling.rpartition(".")[2] in METADATA
    )


def _variable_text(operand: Operand) -> str:
    """Return a variable with its `$`, another operand as in messages, for reasons."""
    return f"${operand.name}" if isinstance(operand, Var) else operand_text(operand)


def _loop_step(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the first value is computed from the number of a loop's step, and the
    second is computed before the loop."""
    number, before = scope.value(args[0]), scope.value(args[1])
    steps = step_nodes(number) if number is not None else ()
    if not steps:
        return f"{_variable_text(args[0])} is not the number of a step of a loop"
    if before is not None and not is_before(before, steps[-1]):
        return f"{_variable_text(args[1])} is computed inside the loop"
    return ""


def _basic_index(args: Arguments, scope: Scope) -> str:
    """Return a reason where an index of a subscript may be a tensor or a list, which PyTorch does
    not apply one after the other with its other indices, or where not all of its first indices are
    slices; the second argument is their number."""
    value, count = scope.value(args[0]), args[1]
    node = value.node if value is not None else None
    index = node.args.get("index") if node is not None and node.op == "py.item" else None
    if index is None or not isinstance(count, Const) or not isinstance(count.value, int):
        return ""
    items = index.items or (index,)
    if not all(map(_is_slice, items[: count.value])):
        return f"not only slices are before the number in {_variable_text(args[0])}"
    if not all(map(_is_basic_index, items)):
        return f"an index of {_variable_text(args[0])} may be a tensor"
    return ""


def _is_basic_index(index: Value) -> bool:
    """Return whether an index is a slice, `None`, `...` or a number."""
    if index.const is not MISSING:
        return not isinstance(index.const, bool | str)
    return _is_slice(index) or index.kind == "int" or bool(step_nodes(index))


def _is_slice(index: Value) -> bool:
    """Return whether an index is a slice, written with colons."""
    return index.node is not None and index.node.op == "py.slice"


def _carried(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the first value is what the loop carries to a step from the one
    before, where it was the second value."""
    state, result = scope.value(args[0]), scope.value(args[1])
    if state is None or result is None or is_carried(state, result):
        return ""
    return f"{_variable_text(args[0])} is not {_variable_text(args[1])} of the step before"


def _first_only(args: Arguments, scope: Scope) -> str:
    """Return a reason where another element than the first of a tuple is used."""
    value = scope.value(args[0])
    for use in value.every_use() if value is not None else ():
        if use.op != "py.item" or not _takes_first(use):
            line = getattr(use.expr, "lineno", use.statement.node.lineno)
            return (
                f"more of {_variable_text(args[0])} than its first element is used at line {line}"
            )
    return ""


def _takes_first(item: Node) -> bool:
    """Return whether a subscript takes the first element of a tuple, or an element that nothing
    uses; True for the parts of a tuple that is unpacked."""
    if "base" not in item.args:
        return (
            True  # of a tuple that was unpacked: what uses the element uses that of the unpacking
        )
    index = item.args.get("index")
    if index is None or type(index.const) is not int:
        return False
    return index.const == 0 or not item.output.every_use()


def _reduces_tensor(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the first value is a reduction of a tensor along the dimensions that
    the second value is, by a call that is PyTorch's rather than NumPy's."""
    result, dim = scope.value(args[0]), scope.value(args[1])
    if dim is None or dim.const is None or isinstance(dim.const, bool):
        return f"{_variable_text(args[0])} is of all elements"
    node = result.node if result is not None else None
    if node is None or not is_call_of_torch(node, scope.module):
        return f"{_variable_text(args[0])} is not known to be of a tensor"
    return ""


def _matrix(args: Arguments, scope: Scope) -> str:
    """Return a reason unless a tensor has two dimensions as far as the source says."""
    value = scope.value(args[0])
    if value is None or may_be_matrix(value, scope.structure):
        return ""
    return f"{_variable_text(args[0])} is not known to be a matrix"


def _sums_columns(args: Arguments, scope: Scope) -> str:
    """Return a reason unless a constant equation of `einsum` multiplies columns by a matrix; the
    second argument is the position of the columns among its two terms."""
    equation, position = scope.value(args[0]), args[1]
    if equation is None or not isinstance(position, Const):
        return ""
    if is_column_product(equation.const, 1 if position.value else 0):
        return ""
    return f"{_variable_text(args[0])} does not multiply columns by a matrix"


def _patches_of(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the source views a tensor in sizes of which the last are those of a
    kernel."""
    patches, conv = scope.value(args[0]), scope.value(args[1])
    if patches is None or conv is None or is_of_patches(patches, conv.layers, scope.structure):
        return ""
    return (
        f"{_variable_text(args[0])} is not viewed in patches of the size of the kernel of"
        f" {_variable_text(args[1])}"
    )


def _attended_heads(args: Arguments, scope: Scope) -> str:
    """Return a reason unless heads are the key or value of attention, and nothing else needs them
    or may change them before."""
    heads = scope.value(args[0])
    if heads is None:
        return ""
    reason = attended_heads.postponing_objection(heads, scope.structure.bodies)
    return f"{_variable_text(args[0])} {reason}" if reason else ""


def _returned_for(args: Arguments, scope: Scope) -> str:
    """Return "": the condition is no test of a match, but says for which constant the kernel
    returns its input (`compile_rule` reads it)."""
    return ""


# Operations that a body must contain for a condition to hold.
REQUIRED_OPERATIONS = {
    "attends": ("softmax",),
    "loop_step": (NUMBERED_STEP,),
    "attended_heads": ("scaled_dot_product_attention",),
}
# Kinds of layers of the model's own classes that it must call.
REQUIRED_CLASSES = {"rms_norm": ("rms_norm",)}

# Each condition: the least and the greatest number of its arguments, and the function that decides
# it.
PREDICATES: Mapping[str, tuple[int, int, Callable[[Arguments, Scope], str]]] = {
    "used_once": (1, 9, _used_once),
    "called_once": (1, 9, _called_once),
    "distinct": (2, 9, _distinct),
    "comparable_widths": (2, 9, _comparable_widths),
    "vocabulary": (1, 1, _vocabulary),
    "constant": (1, 1, _constant),
    "equals": (2, 2, _equals),
    "tensor": (1, 1, _tensor),
    "scalar": (1, 1, _scalar),
    "present": (1, 1, _present),
    "stored": (1, 1, _stored),
    "feeds": (2, 2, _feeds),
    "attends": (1, 1, _attends),
    "rms_norm": (1, 1, _rms_norm),
    "loop_step": (2, 2, _loop_step),
    "basic_index": (2, 2, _basic_index),
    "carried": (2, 2, _carried),
    "first_only": (1, 1, _first_only),
    "joins_enlarged": (2, 2, _joins_enlarged),
    "part_of": (2, 2, _part_of),
    "reduces_tensor": (2, 2, _reduces_tensor),
    "attended_heads": (1, 1, _attended_heads),
    "returned_for": (3, 3, _returned_for),
    "patches_of": (2, 2, _patches_of),
    "matrix": (1, 1, _matrix),
    "sums_columns": (2, 2, _sums_columns),
    "pairwise": (2, 2, _pairwise),
    "expanded_pairwise": (2, 2, functools.partial(_pairwise, expanded=True)),
}
