"""Rewriting a model in memory: the same instances with the rewritten methods of their classes."""

from regraft.live.model import (
    Change,
    Left,
    NothingOptimized,
    Optimization,
    OtherConditions,
    optimize,
    restore,
    rewrite,
)

__all__ = [
    "Change",
    "Left",
    "NothingOptimized",
    "Optimization",
    "OtherConditions",
    "optimize",
    "restore",
    "rewrite",
]
