"""The sizes that the limits of regions list one by one, for the report of a split."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from regraft.splitting.program.residual import Region

_REMEDY = "example calls of further sizes, or a range (--dynamic, dynamic=), widen this"


def listed_sizes(regions: Sequence[Region], arguments: Collection[str]) -> list[str]:
    """Return a sentence for each list of sizes outside of which regions raise, with the place of
    the first region of these limits, a dimension and the remedy.

    arguments: the network's own inputs, which a sentence names rather than values in between.
    """
    sentences: dict[frozenset[int], str] = {}
    for region in regions:
        numbers_by_size = _numbers_by_size(region.limits)
        is_inner = {size: size.partition(".")[0] not in arguments for size in numbers_by_size}
        for size in sorted(numbers_by_size, key=is_inner.__getitem__):
            name, _, dim = size.removesuffix("]").rpartition(".shape[")
            numbers = numbers_by_size[size]
            sentences.setdefault(
                numbers,
                "{}:{}: ".format(*region.place)
                + f"dimension {dim} of {name} is {_in_words(sorted(numbers))}; {_REMEDY}",
            )
    return list(sentences.values())


def _numbers_by_size(limits: Sequence[str]) -> dict[str, frozenset[int]]:
    """Return, for each size that conditions bind to finitely many numbers, such as `x.shape[0]`,
    these numbers; also for a size that has to equal such a size."""
    trees = [ast.parse(text, mode="eval").body for text in limits]
    conditions = [condition for tree in trees for condition in _conjuncts(tree)]
    sizes = dict.fromkeys(
        ast.unparse(node)
        for condition in conditions
        for node in ast.walk(condition)
        if isinstance(node, ast.Subscript)
    )
    numbers_by_size = {}
    for size in sizes:
        numbers = _common([_numbers(condition, size) for condition in conditions])
        if numbers is not None:
            numbers_by_size[size] = numbers
    for condition in conditions:
        pair = _equal_sizes(condition)
        for size, equal in (pair, pair[::-1]):
            if equal in numbers_by_size:
                numbers_by_size.setdefault(size, numbers_by_size[equal])
    return numbers_by_size


def _conjuncts(tree: ast.expr) -> Iterator[ast.expr]:
    """Yield the conditions that all have to hold where a condition holds."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for value in tree.values:
            yield from _conjuncts(value)
    else:
        yield tree


def _equal_sizes(condition: ast.expr) -> tuple[str, str]:
    """Return the two sizes of a condition by which they are equal; two empty texts for another
    condition."""
    match condition:
        case ast.Compare(ast.Subscript() as left, [ast.Eq()], [ast.Subscript() as right]):
            return ast.unparse(left), ast.unparse(right)
    return "", ""


def _numbers(condition: ast.expr, size: str) -> frozenset[int] | None:
    """Return the numbers that a size may be where a condition holds; None where they may be
    infinitely many, or the condition is no comparison with constants."""
    match condition:
        case ast.BoolOp(ast.And(), values):
            return _common([_numbers(value, size) for value in values])
        case ast.BoolOp(ast.Or(), values):
            alternatives = [_numbers(value, size) for value in values]
            bounded = [numbers for numbers in alternatives if numbers is not None]
            return frozenset().union(*bounded) if len(bounded) == len(alternatives) else None
        case ast.Compare(left, [ast.Eq()], [ast.Constant(int(number))]):
            return frozenset({number}) if ast.unparse(left) == size else None
        case ast.Compare(
            ast.Constant(int(low)), [ast.LtE(), ast.LtE()], [middle, ast.Constant(int(high))]
        ):
            return frozenset(range(low, high + 1)) if ast.unparse(middle) == size else None
    return None


def _common(sets: Sequence[frozenset[int] | None]) -> frozenset[int] | None:
    """Return the numbers that are in all sets, of which None has every number; None where all sets
    are None."""
    bounded = [numbers for numbers in sets if numbers is not None]
    return frozenset.intersection(*bounded) if bounded else None


def _in_words(numbers: Sequence[int]) -> str:
    """Return ascending numbers as words, such as `1 to 4, 17 or 64`."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    ranges = [
        str(start) if start == end else f"{start} to {end}"
        for start, end in zip(starts, ends, strict=True)
    ]
    return " or ".join(filter(None, (", ".join(ranges[:-1]), ranges[-1])))
