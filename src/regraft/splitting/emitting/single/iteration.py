"""The values that a `for` runs over, and the value of its variable in an iteration."""

from __future__ import annotations

from regraft.splitting.emitting.single import number_arithmetic
from regraft.splitting.emitting.single.element_lowering import Elements
from regraft.splitting.emitting.single.graph import Graph
from regraft.splitting.emitting.single.graph_values import (
    Const,
    Items,
    NestedList,
    Number,
    Range,
    Rows,
    Sequence,
    Tensor,
    Value,
    Zip,
    describe_value,
)
from regraft.splitting.emitting.single.path_types import (
    Inexpressible,
    name_of,
    retype,
    unify,
)


def length_of_range(graph: Graph, values: Range) -> Value:
    """Return the number of elements of a range."""
    span = number_arithmetic.arithmetic(graph, "-", values.stop, values.start)
    almost_a_step = Const(values.step - (1 if values.step > 0 else -1))
    rounded_span = number_arithmetic.arithmetic(graph, "+", span, almost_a_step)
    iterations = number_arithmetic.arithmetic(graph, "//", rounded_span, Const(values.step))
    return number_arithmetic.min_or_max(graph, "max", iterations, Const(0))


def prepare_iterable(graph: Graph, values: Value) -> tuple[Value, str]:
    """Return the value that a `for` takes its elements from, and the name of the number of
    iterations. A list or tuple whose elements are known becomes an ONNX sequence; a range, a list
    of run time and a tensor stay; so do those of a `zip`, of which the shortest decides. Raises
    Inexpressible for other values."""
    reader = Elements(graph)
    if isinstance(values, Zip):
        parts, counts = zip(*(prepare_iterable(graph, part) for part in values.values), strict=True)
        return Zip(parts), reader.shortest(list(counts), values.strict)
    if isinstance(values, Items) and values.kind in ("list", "tuple"):
        elements = Items("list", values.values)
        values = retype(graph, elements, unify([elements, Items("list", ())]))
    if isinstance(values, Range):
        return values, name_of(graph, length_of_range(graph, values))
    if isinstance(values, (Sequence, NestedList, Rows, Tensor)) and not (
        isinstance(values, Tensor) and values.rank is None
    ):
        return values, name_of(graph, reader.length(values))
    raise Inexpressible(f"a loop over {describe_value(values)}")


def element_of_iteration(graph: Graph, values: Value, iteration: str) -> Value:
    """Return the element of `values` that a `for` assigns to its variable in one iteration. values:
    the result of `prepare_iterable`. iteration: the name of the iteration's number, which counts
    from 0."""
    reader = Elements(graph)
    if isinstance(values, (Zip, Rows)):
        parts = (element_of_iteration(graph, part, iteration) for part in values.values)
        return Items("tuple", tuple(parts))
    if isinstance(values, Range):
        offset = number_arithmetic.arithmetic(
            graph, "*", Number(iteration, "int", 2**40), Const(values.step)
        )
        return number_arithmetic.arithmetic(graph, "+", values.start, offset)
    if isinstance(values, (NestedList, Tensor)):
        return reader.row_of(values, iteration)
    return reader.element_at(values, Number(iteration, "int"))
