"""Operations that may give a size which does not change with the sizes of what they get, until
these pass a bound: `x[:3]` has three rows from three rows of `x` on."""

from __future__ import annotations

from typing import Any

_WHOLE = 2**62  # the end of a slice that takes everything

# Operations that cut, pad or take apart; names may go on, as `split_with_sizes` does.
_CUTS = ("constant_pad_nd", "split", "chunk", "diagonal", "unfold", "im2col", "as_strided")
# Operations whose sizes are quotients: the result of a large stride is the same for several sizes.
_QUOTIENTS = ("convolution", "_convolution", "avg_pool", "max_pool", "adaptive_", "upsample_")


def may_clamp(func: Any, args: tuple[Any, ...]) -> bool:
    """Return whether an operation may cut a dimension at a bound: a slice of less than the whole,
    and the operations of `_CUTS`."""
    name = func.overloadpacket.__name__
    if name != "slice":
        return bool(name.startswith(_CUTS))
    start, end, step = [*args[2:], *(None, None, None)][:3]
    return not (start in (None, 0) and (end is None or end >= _WHOLE) and step in (None, 1))


def may_divide(func: Any) -> bool:
    """Return whether the sizes of an operation's result are quotients of sizes, rounded down."""
    name = func.overloadpacket.__name__
    return any(part in name for part in _QUOTIENTS)
